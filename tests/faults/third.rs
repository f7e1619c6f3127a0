//! A third node goes on where the second one knows better: the second one sleeps, Redis goes back, the third one takes over, and
//! then the second one wakes, all of it while clients work.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::asks::span_of;
use super::checker::Sure;
use super::client::Client;
use super::happens::seqs;
use super::run::{Run, Setting, eventually, insist};

/// Three nodes over a Redis that goes back to its last snapshot whenever it is killed.
const SNAPSHOTS: Setting<'static> = Setting { redis: &[], nodes: 3, store: "", wired: false, environments: Vec::new() };

fn goes_back(run: &mut Run) {
    let before = seqs(&run.nodes.redis);
    run.nodes.redis.crash();
    let after = seqs(&run.nodes.redis);
    assert!(after < before, "it did not go back: {after} of {before}");
}

/// The addresses, in a network, of which somebody must decide who has them.
async fn contested(client: &mut Client) -> BTreeSet<(String, u128)> {
    let listed = insist(client, "cluster.conflicts", &json!({})).await;
    let of = |one: &Value| (one["network"].as_str().unwrap().to_owned(), span_of(&one["address"], None).0);
    listed["conflicts"].as_array().unwrap().iter().map(of).collect()
}

/// What was acknowledged since the snapshot is of the second one's own tenure: the third one has no way to know of it, goes on, and
/// grants some of it again. When the sleeper wakes, whoever was promised the same as another is named, and nobody is granted
/// anything more there until an operator decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_third_node_granted_again_after_a_rollback_is_told_when_the_second_one_returns() {
    let Some(mut run) = Run::of(SNAPSHOTS).await else { return };
    let second = run.nodes.cluster.owner_but(None).await;
    run.nodes.redis.ask(&["SAVE"]);
    run.gets_on(200, "before it sleeps").await;
    run.nodes.cluster.signal(second, "-STOP");
    goes_back(&mut run);
    let third = run.nodes.cluster.owner_but(Some(second)).await;
    run.gets_on(200, "at the third").await;
    run.nodes.cluster.signal(second, "-CONT");
    let brings = || run.nodes.cluster.log(second).contains("changes, which are put aside");
    eventually("it knows that it was left behind", brings).await;
    eventually("it brings what it has", || run.nodes.cluster.figure(second, "allod_late_batches") == 0.0).await;
    let mut client = run.nodes.client(third).await;
    let told = contested(&mut client).await;
    let networks: BTreeSet<&String> = told.iter().map(|(network, _)| network).collect();
    for network in networks {
        insist(&mut client, "cluster.accept", &json!({"network": network})).await;
    }
    run.gets_on(200, "when an operator has decided").await;
    let decided_ns = run.load.record.now_ns();
    run.gets_on(100, "and on").await;
    let logs = run.nodes.logs();
    let verdict = run.unjudged().await;
    let lasting = |both: &&(Sure, Sure)| both.0.until_ns.is_none() && both.1.until_ns.is_none();
    let twice: Vec<_> = verdict.twice.iter().filter(lasting).collect();
    assert!(!twice.is_empty(), "nothing was granted again: nothing was tested\n{logs}");
    for (one, other) in twice {
        let (first, last) = (one.span.0.max(other.span.0), one.span.1.min(other.span.1));
        let is_told = told.iter().any(|(network, at)| *network == one.holder.network && within(*at, one, other));
        assert!(is_told, "nobody was told of {first} to {last}: {one:?} and {other:?}\n{told:?}\n{logs}");
        let later = one.from_ns.max(other.from_ns);
        assert!(later < decided_ns, "granted again after all was told: {one:?} and {other:?}\n{logs}");
    }
}

/// Is this an address of either?
fn within(address: u128, one: &Sure, other: &Sure) -> bool {
    [one, other].iter().any(|sure| sure.span.0 <= address && address <= sure.span.1)
}

/// Redis goes back past the second one's take-over: those who are left know that they do not know, and nobody grants anything until
/// it returns, and gives back all that it acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_take_over_of_a_node_that_sleeps_nobody_grants_until_it_returns_and_gives_all_back() {
    let Some(mut run) = Run::of(SNAPSHOTS).await else { return };
    let first = run.nodes.cluster.owner_but(None).await;
    run.nodes.redis.ask(&["SAVE"]);
    run.gets_on(100, "at the first").await;
    run.nodes.cluster.signal(first, "-STOP");
    let second = run.nodes.cluster.owner_but(Some(first)).await;
    run.nodes.cluster.signal(first, "-CONT");
    run.gets_on(200, "at the second").await;
    run.nodes.cluster.signal(second, "-STOP");
    goes_back(&mut run);
    assert!(!run.load.more(50, Duration::from_secs(6)).await, "it grants what it cannot know to be free");
    run.nodes.cluster.signal(second, "-CONT");
    run.gets_on(200, "when the second one is back").await;
    eprintln!("PAST\n{}", run.nodes.logs());
    let healed = run.nodes.healed();
    assert!(healed > 0.0, "nothing was given back\n{}", run.nodes.logs());
    run.end().await;
}
