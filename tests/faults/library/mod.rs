//! The client library, against real nodes that are killed, stopped and cut off while calls are in flight.
//!
//! `calls` and `command` use one server, `nodes` several on one Redis; `events` watches across kills.

mod calls;
mod command;
mod events;
mod nodes;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use allod::client::{Client, Options};
use serde_json::{Map, Value, json};

use super::client::Client as Raw;
use super::server::http_get;

/// The longest that anything may take, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn members(object: Value) -> Map<String, Value> {
    object.as_object().cloned().unwrap()
}

/// A client that waits as long as a test does.
fn client(addresses: &[SocketAddr]) -> Client {
    client_with(addresses, Options::default())
}

fn client_with(addresses: &[SocketAddr], options: Options) -> Client {
    Client::new(addresses.iter().map(ToString::to_string), Options { timeout: PATIENCE, ..options })
}

async fn make_lan(server: SocketAddr) {
    let subnets = json!([{"cidr": "10.0.0.0/20"}]);
    let mut raw = Raw::connect(server).await.unwrap();
    raw.call("network.create", json!({"name": "lan", "subnets": subnets})).await.ok();
}

/// Waits until this is true of what is held, and returns that.
async fn until_held(server: SocketAddr, is: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let mut raw = Raw::connect(server).await.unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        let held = raw.list_all().await;
        if is(&held) {
            return held;
        }
        assert!(Instant::now() < end, "{held:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The sum of all request counters of a method.
fn requests(http: SocketAddr, method: &str) -> u64 {
    let begin = format!("allod_requests_total{{method=\"{method}\",");
    let metrics = http_get(http, "/metrics");
    let of_method = metrics.lines().filter(|line| line.starts_with(&begin));
    of_method.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Waits until a server has counted this many requests of a method, which it does a little after it answers.
async fn until_asked(http: SocketAddr, method: &str, count: u64) {
    let end = Instant::now() + PATIENCE;
    while requests(http, method) != count {
        assert!(Instant::now() < end, "{}, not {count}", requests(http, method));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
