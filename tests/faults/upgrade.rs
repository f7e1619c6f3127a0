//! An upgrade to a later program that knows one more record format (`store::codec::Format`), and one more version of the
//! protocol between nodes: node by node under load, back, and again, and from then on in the later format. `tests/run` builds
//! the later program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use allod::limits::SHARDS_OF_NEW;
use allod::peer::PROTOCOL_VERSION;
use serde_json::{Value, json};

use super::client::Client;
use super::redis::Redis;
use super::redis::process::skips::skip;
use super::run::{Nodes, Run};
use super::server::{Server, Starting, allod};

const NODES: usize = 3;
const RAISED: [(&str, &str); 1] = [("ALLOD_STORE__RECORD_FORMAT", "2")];

/// The program that comes after this one.
fn later() -> Option<PathBuf> {
    let built = allod();
    let later = built.parent()?.parent()?.join("next-format/allod");
    if !later.exists() {
        skip("the later program is not built (tests/next-format)");
        return None;
    }
    Some(later)
}

/// The format in which the records of each shard are written.
fn formats(run: &Run) -> Vec<String> {
    (0..SHARDS_OF_NEW)
        .map(|shard| run.nodes.redis.text(&["HGET", &format!("{{allod}}:{shard}:head"), "format"]))
        .collect()
}

async fn drain_owner(run: &Run) -> usize {
    let owner = run.nodes.cluster.owner_but(None).await;
    run.nodes.client(owner).await.call("cluster.drain", json!({})).await.ok();
    run.nodes.cluster.owner_but(Some(owner)).await;
    owner
}

/// Drains one node after the other and starts it again as this program, the owner last. Calls `between` before each.
async fn roll(run: &mut Run, to: &Path, environment: &[(&str, &str)], mut between: impl FnMut(&Run)) {
    run.nodes.cluster.starts(to, environment);
    let owner = run.nodes.cluster.owner_but(None).await;
    for at in 1..=NODES {
        let node = (owner + at) % NODES;
        between(run);
        run.nodes.client(node).await.call("cluster.drain", json!({})).await.ok();
        run.restart(node);
        run.gets_on(60, "after a node was exchanged").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_go_to_a_later_format_one_by_one_and_back_before_it_is_raised_and_nobody_is_put_off() {
    let Some(later) = later() else { return };
    let Some(nodes) = Nodes::start(NODES, &[]) else { return };
    let mut run = Run::begin(nodes, 4, 11).await;
    run.gets_on(200, "before the upgrade").await;
    let all = |format: &str| vec![format.to_owned(); SHARDS_OF_NEW.into()];
    assert_eq!(formats(&run), all("1"));

    // There and back: nothing is written that the earlier program cannot read.
    roll(&mut run, &later, &[], |_| {}).await;
    drain_owner(&run).await;
    // The later program speaks one version more, and the one before with the earlier program.
    let logs = run.nodes.logs();
    for version in [PROTOCOL_VERSION, PROTOCOL_VERSION + 1] {
        assert!(logs.contains(&format!("version={version}")), "no two nodes spoke version {version}: {logs}");
    }
    run.gets_on(60, "with the later program alone").await;
    assert_eq!(formats(&run), all("1"));
    roll(&mut run, &allod(), &[], |_| {}).await;

    // There, to stay: the format is not raised while a node is left that could not read it.
    roll(&mut run, &later, &RAISED, |run| assert_eq!(formats(run), all("1"))).await;
    let drained = drain_owner(&run).await;
    run.gets_on(60, "in the later format").await;
    assert_eq!(formats(&run), all("2"));

    // From here on the earlier program is refused, which harms nobody.
    run.nodes.cluster.starts(&allod(), &[]);
    run.nodes.cluster.kill(drained);
    let words = run.nodes.cluster.fails(drained);
    assert!(words.contains("written in format 2, and this version of allod reads formats up to 1"), "{words}");
    run.nodes.cluster.starts(&later, &[]);
    let address = run.nodes.cluster.again(drained);
    run.load.moved(drained, address);
    run.gets_on(60, "after an earlier program was refused").await;
    assert_eq!(formats(&run), all("2"), "and it stays, whatever is asked for");
    let load = Arc::clone(&run.load);
    run.end().await;
    assert_eq!(load.put_off.load(Ordering::Relaxed), 0, "requests that were put off");
}

fn serve(program: &Path, data: &Path, environment: &[(&str, &str)]) -> Starting {
    let own = environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    Starting::of(program, data, &["serve", "--data", &data.display().to_string()], own)
}

async fn claims(server: &Server, last: u8) {
    let mut client = Client::connect(server.address).await.unwrap();
    let address = format!("10.0.0.{last}");
    client.call("ip.claim", json!({"network": "lan", "address": address, "owner": address})).await.ok();
}

async fn held(server: &Server) -> Vec<Value> {
    let mut client = Client::connect(server.address).await.unwrap();
    let listed = client.call("ip.list", json!({})).await.ok();
    listed["reservations"].as_array().unwrap().iter().map(|held| held["address"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_go_to_a_later_program_and_back_until_the_format_is_raised() {
    let Some(later) = later() else { return };
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = serve(&allod(), &data, &[]).ready();
    let mut client = Client::connect(server.address).await.unwrap();
    client.call("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await.ok();
    drop(client);
    claims(&server, 11).await;
    server.stop();
    for (program, environment, last) in
        [(&later, &[][..], 12), (&allod(), &[], 13), (&later, &RAISED, 14), (&later, &[], 15)]
    {
        let server = serve(program, &data, environment).ready();
        claims(&server, last).await;
        let all: Vec<String> = (11..=last).map(|last| format!("10.0.0.{last}")).collect();
        assert_eq!(held(&server).await, all);
        server.stop();
    }
    let words = serve(&allod(), &data, &[]).failed();
    let names_both = "has records in format 2, and this version of allod reads formats up to 1; start a newer one";
    // The message must not suggest to restore a backup: that would lack later grants, and nothing is lost.
    let is_said_so =
        |words: &str| words.contains(names_both) && !words.contains("damaged") && !words.contains("restore");
    assert!(is_said_so(&words), "{words}");
    let shown = data.display().to_string();
    let copy = directory.path().join("copy").display().to_string();
    for arguments in [&["doctor", "--data", &shown, "--store", "embedded"][..], &["backup", &copy, "--data", &shown]] {
        let output = Command::new(allod()).args(arguments).output().unwrap();
        let words = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // The output is broken into lines.
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(output.status.code() == Some(1) && is_said_so(&words), "{words}");
    }
    let server = serve(&later, &data, &[]).ready();
    assert_eq!(held(&server).await.len(), 5, "the earlier program left it as it was");
    server.stop();
}

/// After an upgrade an operator may still go back, because nobody asked to raise the format.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_by_a_later_program_keeps_the_format_that_the_register_has() {
    let Some(later) = later() else { return };
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let [data, back] = ["data", "back"].map(|name| directory.path().join(name));
    let server = serve(&allod(), &data, &[]).ready();
    let mut client = Client::connect(server.address).await.unwrap();
    client.call("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await.ok();
    drop(client);
    claims(&server, 11).await;
    server.stop();
    let url = redis.url();
    for (from, to) in [(data.to_str().unwrap(), &*url), (&url, back.to_str().unwrap())] {
        let moved = Command::new(&later).args(["migrate", from, to, "--yes"]).output().unwrap();
        assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
        if to == url {
            assert_eq!(redis.text(&["HGET", "{allod}:0:head", "format"]), "1");
        }
    }
    let server = serve(&allod(), &back, &[]).ready();
    assert_eq!(held(&server).await, ["10.0.0.11"]);
    server.stop();
}
