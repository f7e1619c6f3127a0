//! Starts that cannot succeed: whatever the reason, nothing is written before it is reported.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::redis::Redis;
use crate::server::{Server, Starting, allod};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a file that only its owner may read.
fn file(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Redis may have lost a register that a running node will write anew. A register that was begun meanwhile would stay in its
/// place for ever, and its server would be one that nobody can reach.
#[test]
fn a_node_that_cannot_start_begins_no_register() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &["--appendonly", "yes"]) else { return };
    let (url, data) = (redis.url(), directory.path().join("data").display().to_string());
    let secret = file(directory.path(), "secret", "0123456789abcdef").display().to_string();
    let short = file(directory.path(), "short", "abc").display().to_string();
    let none = directory.path().join("none").display().to_string();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let free = "127.0.0.1:0";
    let begin = |secret: &str, [tcp, http, cluster]: [&str; 3], more: &[&str]| {
        let shared = ["serve", "--redis", &url, "--data", &data, "--cluster-secret-file", secret];
        let ports = ["--listen", tcp, "--http", http, "--cluster-listen", cluster];
        // `timeout` ends the process, whatever it does.
        let mut command = Command::new("timeout");
        command.arg("60").arg(allod()).args(shared).args(ports).args(more).output().unwrap()
    };
    for (output, says) in [
        (begin(&short, [free; 3], &[]), "which has 3 bytes"),
        (begin(&none, [free; 3], &[]), "which cannot be read: No such file"),
        (begin(&secret, [free, free, "0.0.0.0:0"], &["--insecure-listen"]), "tells other nodes no address of this one"),
        (begin(&secret, [&taken, free, free], &[]), "(`server.listen`): Address already in use"),
        (begin(&secret, [free, &taken, free], &[]), "(`server.http_listen`): Address already in use"),
        (begin(&secret, [free, free, &taken], &[]), "(`cluster.listen`): Address already in use"),
    ] {
        assert!(output.status.code() == Some(1) && said(&output).contains(says), "{says}: {output:?}");
        assert_eq!(redis.text(&["DBSIZE"]), "0", "{says}: {}", said(&output));
    }
    let arguments = ["serve", "--redis", &url, "--data", &data, "--cluster-secret-file", &secret];
    Starting::with_arguments(Path::new(&data), &[&arguments[..], &["--cluster-listen", free]].concat()).ready().stop();
    assert_ne!(redis.text(&["DBSIZE"]), "0");
}

/// The second server is told that the register is in use, which is worth another try. A port that is in use would not be.
#[test]
fn a_second_server_with_the_settings_of_one_that_runs_is_told_that_it_has_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let first = Server::start(&data);
    let mut second = Command::new("timeout");
    second.arg("60").arg(allod()).args(["serve", "--http", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    let output = second.args(["--listen", &first.address.to_string()]).output().unwrap();
    let held = format!("is in use by process {}", first.pid());
    assert!(output.status.code() == Some(75) && said(&output).contains(&held), "{output:?}");
    // With another directory the port is the obstacle, and no register is begun.
    let other = directory.path().join("other");
    let mut third = Command::new("timeout");
    third.arg("60").arg(allod()).args(["serve", "--http", "127.0.0.1:0", "--data", other.to_str().unwrap()]);
    let output = third.args(["--listen", &first.address.to_string()]).output().unwrap();
    assert!(output.status.code() == Some(1) && said(&output).contains("Address already in use"), "{output:?}");
    assert!(!other.exists());
    first.stop();
}

/// Whether an upgrade goes on depends on what this command says.
#[test]
fn what_a_start_refuses_of_other_nodes_is_refused_by_check_config_too() {
    let directory = tempfile::tempdir().unwrap();
    let secret = file(directory.path(), "secret", "0123456789abcdef");
    let check = |secret: &Path, listen: &str| {
        let text = format!(
            "[server]\ninsecure_listen = true\n[store]\nkind = \"redis\"\n[cluster]\nsecret_file = {secret:?}\nlisten = {listen:?}\n"
        );
        let settings = file(directory.path(), "server.toml", &text);
        let output = Command::new(allod()).arg("check-config").arg(settings).output().unwrap();
        (output.status.code(), said(&output))
    };
    assert_eq!(check(&secret, "127.0.0.1:7402"), (Some(0), String::new()));
    for (secret, listen, says) in [
        (&file(directory.path(), "short", "abc"), "127.0.0.1:7402", "has 3 bytes"),
        (&directory.path().join("none"), "127.0.0.1:7402", "cannot be read: No such file"),
        (&secret, "0.0.0.0:7402", "`cluster.advertise`"),
    ] {
        let (code, said) = check(secret, listen);
        assert!(code == Some(1) && said.contains(says), "{says}: {code:?}, {said}");
    }
}
