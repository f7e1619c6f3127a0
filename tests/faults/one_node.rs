//! One node. On the embedded store it is killed under load. Over Redis: where its records lie, and what it does after it
//! slept through its lease.

use std::process::Command;
use std::time::Duration;

use allod::limits::{NODE_LEASE_LAPSES_MS, NODE_LEASE_MS};
use serde_json::json;

use super::checker::check;
use super::client::Client;
use super::load::{Load, make_networks};
use super::nodes::Cluster;
use super::redis::Redis;
use super::run::{eventually, insist};
use super::server::{Server, Starting, allod};

/// An operator who looks into Redis by hand types what is printed, as it stands.
#[test]
fn the_key_of_an_address_that_is_printed_has_its_record() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let cluster = Cluster::start(directory.path(), &redis, 1);
    let said = |arguments: &[&str]| cluster.allod(0, arguments);
    said(&["network", "create", "lan", "--subnet", "10.0.0.0/24", "--subnet", "2001:db8::/64"]);
    said(&["ip", "claim", "lan", "10.0.0.69", "--owner", "a"]);
    said(&["ip", "allocate", "lan", "--owner", "block", "--prefix-length", "28", "--subnet", "10.0.0.0/24"]);
    said(&["ip", "claim", "lan", "2001:db8::5", "--owner", "b"]);
    let key = |address: &str| -> Vec<String> {
        said(&["cluster", "key", "lan", address]).lines().map(str::to_owned).collect()
    };
    let is_there = |command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!((words.len(), words[0]), (3, "HGET"), "{command}");
        redis.number(&["HEXISTS", words[1], words[2]]) == 1
    };
    let [command] = &key("10.0.0.69")[..] else { panic!("{:?}", key("10.0.0.69")) };
    assert!(command.ends_with(":0a000040 5") && is_there(command), "{command}");
    // The key of an address in a block is that of the block.
    let block = said(&["who", "10.0.0.17"]);
    assert!(block.contains("/28"), "{block}");
    let [command] = &key("10.0.0.17")[..] else { panic!("{:?}", key("10.0.0.17")) };
    assert!(is_there(command), "{command}");
    let [index, command] = &key("2001:db8::5")[..] else { panic!("{:?}", key("2001:db8::5")) };
    let words: Vec<&str> = index.split(' ').collect();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let low: Vec<String> = redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap();
    assert!(is_there(&command.replace("LOW", &low[0])), "{index} {command} {low:?}");
    // Of an address that cools the record is that of its last holder.
    said(&["network", "create", "cool", "--subnet", "10.2.0.0/24", "--cooldown", "1h"]);
    said(&["ip", "claim", "cool", "10.2.0.9", "--owner", "c"]);
    said(&["ip", "release", "cool", "10.2.0.9", "--owner", "c"]);
    let asked = Command::new(allod())
        .args(["--server", &cluster.address(0).to_string(), "cluster", "key", "cool", "10.2.0.9"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&asked.stderr);
    assert!(words.contains("nobody holds it (cooling): the record is of its last holder"), "{words}");
    assert!(is_there(String::from_utf8_lossy(&asked.stdout).trim()), "{asked:?}");
    // Other stores have no keys.
    let files = Starting::with_store(&directory.path().join("files"), "embedded").ready();
    files.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    let refused = files.allod(&["cluster", "key", "lan", "10.0.0.69"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("embedded store, which has no keys"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_address_has_two_holders_while_a_node_is_killed_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = Server::start(&data);
    let networks = make_networks(&mut Client::connect(server.address).await.unwrap(), 4).await;
    let load = Load::new(networks, vec![server.address]);
    let clients = load.start(6, 1);
    for _ in 0..4 {
        assert!(load.more(400, Duration::from_secs(60)).await, "the clients get on");
        server.kill();
        server = Server::start(&data);
        load.moved(0, server.address);
    }
    assert!(load.more(400, Duration::from_secs(60)).await);
    load.end(clients).await;
    let verdict = check(&load.record.all());
    assert!(verdict.problems.is_empty(), "{:#?}", &verdict.problems[..verdict.problems.len().min(5)]);
    assert!(verdict.unknown > 0, "no kill met a request under way: nothing was tested");
    assert!(verdict.sure_holdings > 1_000, "{}", verdict.sure_holdings);
}

/// Nothing is under way, no other node is there, and in Redis the lease still lasts: only the node's own clock tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_slept_through_its_lease_goes_on_by_itself_and_under_another_token() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let cluster = Cluster::start(directory.path(), &redis, 1);
    cluster.allod(0, &["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    let mut client = Client::connect(cluster.address(0)).await.unwrap();
    let mine = json!({"network": "lan", "owner": "a"});
    let address = insist(&mut client, "ip.allocate", &mine).await["address"].clone();
    let token = || redis.text(&["HGET", "{allod}:0:head", "token"]);
    for _ in 0..3 {
        let before = token();
        cluster.signal(0, "-STOP");
        tokio::time::sleep(Duration::from_millis((NODE_LEASE_LAPSES_MS + NODE_LEASE_MS) / 2)).await;
        cluster.signal(0, "-CONT");
        eventually("it takes the register anew", || token() != before).await;
        assert_eq!(insist(&mut client, "ip.allocate", &mine).await["address"], address);
    }
}
