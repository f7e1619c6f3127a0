//! One of two nodes owns the register. A client of the other one that wants to be redirected is told where it is: `moved`.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allod::serve::Options;
use serde_json::json;
use tempfile::NamedTempFile;

use crate::errors::compare;
use crate::redis_server::Server;
use crate::support::TestServer;

/// The secret of nodes that share a register.
pub fn secret() -> NamedTempFile {
    let mut file = tempfile::Builder::new().permissions(Permissions::from_mode(0o600)).tempfile().unwrap();
    file.write_all(b"a secret that only a test has").unwrap();
    file
}

pub fn node(redis: &Server, name: &str, secret: &Path) -> TestServer {
    node_with(redis, name, secret, |_| {})
}

pub fn node_with(redis: &Server, name: &str, secret: &Path, change: impl FnOnce(&mut Options)) -> TestServer {
    TestServer::over(Arc::new(redis.open().unwrap()), |options| {
        name.clone_into(&mut options.config.server.node);
        "127.0.0.1:0".clone_into(&mut options.config.cluster.listen);
        secret.clone_into(&mut options.config.cluster.secret_file);
        options.config.server.threads = 2;
        // Nodes discover each other in real time.
        options.clock = Arc::new(allod::actors::clock::SystemClock);
        change(options);
    })
}

#[test]
fn who_wishes_to_be_sent_on_is_told_where_as_written_down() {
    let Some(redis) = Server::start(&[]) else { return };
    let secret = secret();
    let owner = node(&redis, "north", secret.path());
    owner.with_lan();
    let other = node(&redis, "south", secret.path());
    let mut client = other.client();
    // Until the node has heard where clients reach the owner.
    let end = Instant::now() + Duration::from_secs(60);
    while client.ok("cluster.nodes", json!({})).to_string().matches("\"address\"").count() < 2 {
        assert!(Instant::now() < end, "the nodes do not find each other");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut text = "# a node that does not own the register, asked by a client that wishes to be sent on\n".to_owned();
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"method":"session.set","params":{"redirect":true}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"ip.allocate","params":{"network":"lan","owner":"web/0"}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"session.set","params":{"redirect":false}}"#,
    ] {
        client.raw(format!("{line}\n"));
        let received = client.judged_line().replace(&owner.running.tcp.to_string(), "127.0.0.1:7400");
        text.push_str(&format!("> {line}\n< {received}\n"));
    }
    assert!(text.contains(r#""code":-32023"#) && text.contains(r#""kind":"moved""#), "{text}");
    if let Some(wrong) = compare("moved", &text) {
        panic!("{wrong}");
    }
    // The node forwards again.
    assert_eq!(client.ok("ip.allocate", json!({"network": "lan", "owner": "web/0"}))["address"], "10.0.0.2");
}
