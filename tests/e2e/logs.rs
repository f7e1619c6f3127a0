//! What the log of a server tells whoever has to find out where a request is.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::Client;
use super::server::Starting;

/// Where `src/lib.rs` says that an `ip.allocate` goes, as modules that log it.
const LIFE: [&str; 8] = [
    "server::connection",
    "server::session::sending",
    "actors::network::working",
    "actors::committer",
    "store::embedded::writer",
    "actors::committer",
    "server::session",
    "server::connection",
];

#[tokio::test]
async fn a_trace_of_an_allocation_shows_its_life_in_order_and_each_line_is_json() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let arguments = ["serve", "--data", data.to_str().unwrap()];
    let environment = [("ALLOD_LOG__LEVEL", "info,allod=trace"), ("ALLOD_LOG__FORMAT", "json")];
    let environment = environment.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let server = Starting::with_environment(&data, &arguments, environment).ready();
    let mut client = Client::connect(server.address).await.unwrap();
    client.call("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await.ok();
    let before = server.log_text().len();
    client.call("ip.allocate", json!({"network": "lan", "owner": "web/0"})).await.ok();
    // The last line may come a moment behind the answer.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let log = server.log_text();
        let targets: Vec<String> = log[before..].lines().map(target).collect();
        let mut life = LIFE.iter().peekable();
        for target in &targets {
            life.next_if(|next| target.strip_prefix("allod::") == Some(next));
        }
        if life.peek().is_none() {
            return;
        }
        assert!(Instant::now() < end, "{:?} is not in the log in its place: {targets:#?}", life.peek());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Which module logged a line.
fn target(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|problem| panic!("{problem}: {line}"));
    line["target"].as_str().unwrap().to_owned()
}
