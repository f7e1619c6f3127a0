//! What a server's log tells somebody who has to find out where a request is.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::Client;
use super::journal;
use super::redis::send_signal;
use super::server::{Server, Starting};

/// The way of an `ip.allocate` as `src/lib.rs` describes it, as the modules that log it.
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
    // The last line may come a moment after the answer.
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

#[tokio::test]
async fn the_log_tells_whom_a_promise_is_broken_to_where_its_address_is_declined() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let mut client = Client::connect(server.address).await.unwrap();
    client.call("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await.ok();
    let wishes = |of: &[(&str, &str)]| -> Value {
        let wish = |(id, at): &(&str, &str)| json!({"id": id, "networks": [{"network": "lan", "address": at}]});
        json!({"deployment": "shop", "instances": of.iter().map(wish).collect::<Vec<_>>()})
    };
    client.call("deployment.apply", wishes(&[("gone", "10.0.0.10"), ("b", "10.0.0.20")])).await.ok();
    client.call("deployment.apply", wishes(&[("a", "10.0.0.10"), ("b", "10.0.0.20")])).await.ok();
    let decline = |owner: &str, address: &str, dry_run: bool| json!({"network": "lan", "address": address, "scope": "shop", "owner": owner, "dry_run": dry_run});
    client.call("ip.decline", decline("b", "10.0.0.20", false)).await.ok();
    // Neither the decline above nor the dry run below breaks a promise.
    client.call("ip.decline", decline("gone", "10.0.0.10", true)).await.ok();
    client.call("ip.decline", decline("gone", "10.0.0.10", false)).await.ok();
    // The line may not be in the file yet when the answer arrives.
    let end = Instant::now() + Duration::from_secs(30);
    while !server.log_text().contains("promises") {
        assert!(Instant::now() < end, "{}", server.log_text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let log = server.log_text();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("promises")).collect();
    let [line] = lines[..] else { panic!("{lines:?}") };
    for fact in ["WARN", "10.0.0.10", "held_by=`gone` of scope `shop`", "promised_to=a", "network=lan"] {
        assert!(line.contains(fact), "{fact} in {line}");
    }
}

#[test]
fn in_the_journal_each_line_has_the_priority_of_its_level_and_elsewhere_none() {
    for (format, level_in) in [("text", " LEVEL "), ("json", "\"level\":\"LEVEL\"")] {
        let directory = tempfile::tempdir().unwrap();
        let [data, config, log] = ["data", "server.toml", "data.log"].map(|name| directory.path().join(name));
        std::fs::write(&config, format!("[log]\nformat = \"{format}\"\n")).unwrap();
        let arguments = ["serve", "--data", data.to_str().unwrap(), "--config", config.to_str().unwrap()];
        let start = |environment| Starting::with_environment(&data, &arguments, environment);
        let server = start(journal::environment(&log)).ready();
        std::fs::write(&config, "nonsense = 1\n").unwrap();
        send_signal(server.pid(), "-HUP");
        let end = Instant::now() + Duration::from_secs(30);
        while !server.log_text().contains("the configuration is refused") {
            assert!(Instant::now() < end, "{}", server.log_text());
            std::thread::sleep(Duration::from_millis(20));
        }
        server.stop();
        let told = std::fs::read_to_string(&log).unwrap();
        for (priority, level) in [("<3>", "ERROR"), ("<6>", "INFO")] {
            let of_level = |line: &&str| line.contains(&level_in.replace("LEVEL", level));
            assert!(told.lines().filter(of_level).count() > 0, "{level}: {told}");
            assert!(told.lines().filter(of_level).all(|line| line.starts_with(priority)), "{level}: {told}");
        }
        let errors = journal::journalctl(&["-u", "allod", "-p", "err"], &told);
        assert!(errors.lines().count() == 1 && errors.contains("the configuration is refused"), "{errors}");

        // Why a start is refused is the last that it says.
        let refused = start(journal::environment(&log)).failed();
        let errors = journal::journalctl(&["-u", "allod", "-p", "err"], &refused[told.len()..]);
        assert!(errors.starts_with("allod: cannot ") && errors.contains("nonsense"), "{refused}");

        // The variable is inherited, and the file may be another one.
        std::fs::write(&config, format!("[log]\nformat = \"{format}\"\n")).unwrap();
        let server = start(journal::environment(&config)).ready();
        let lines = server.log_text()[refused.len()..].to_owned();
        assert!(lines.contains("the register is open") && !lines.contains("<6>"), "{lines}");
        server.stop();
    }
}

/// The module that logged a line.
fn target(line: &str) -> String {
    let line: Value = serde_json::from_str(line).unwrap_or_else(|problem| panic!("{problem}: {line}"));
    line["target"].as_str().unwrap().to_owned()
}
