//! A third node goes on although the second one knows more: the second one sleeps, Redis goes back, the third one takes
//! over, and then the second one wakes, all of it while clients work.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::asks::span_of;
use super::checker::Sure;
use super::client::Client;
use super::happens::seqs;
use super::run::{Run, Setting, eventually, insist};

/// Three nodes over a Redis that goes back to its last snapshot whenever it is killed.
const SNAPSHOTS: Setting<'static> =
    Setting { redis: &[], nodes: 3, alone: false, store: "", wired: false, environments: Vec::new() };

fn goes_back(run: &mut Run) {
    let before = seqs(&run.nodes.redis);
    run.nodes.redis.crash();
    let after = seqs(&run.nodes.redis);
    assert!(after < before, "it did not go back: {after} of {before}");
}

/// The addresses, each with its network, for which somebody must decide who has them.
async fn contested(client: &mut Client) -> BTreeSet<(String, u128)> {
    let listed = insist(client, "cluster.conflicts", &json!({})).await;
    let of = |one: &Value| (one["network"].as_str().unwrap().to_owned(), span_of(&one["address"], None).0);
    listed["conflicts"].as_array().unwrap().iter().map(of).collect()
}

/// The second node wakes after the third one went on without what it acknowledged. Every address that was promised twice is
/// listed, and nothing more is granted there until an operator decides; then everything goes on.
async fn returns(run: Run, second: usize, third: usize) {
    run.nodes.cluster.signal(second, "-CONT");
    let brings = || run.nodes.cluster.log(second).contains("changes, which are put aside");
    eventually("it knows that it was left behind", brings).await;
    let brought = || {
        let figure = |name: &str| run.nodes.cluster.figure(second, name);
        let became = |what: &str| figure(&format!("allod_late_claims_total{{became=\"{what}\"}}"));
        became("healed") + became("standing") + became("conflict") > 0.0 && figure("allod_late_batches") == 0.0
    };
    eventually("it brings what it has", brought).await;
    let mut client = run.nodes.client(third).await;
    let told = contested(&mut client).await;
    let networks: BTreeSet<&String> = told.iter().map(|(network, _)| network).collect();
    for network in networks {
        insist(&mut client, "cluster.accept", &json!({"network": network})).await;
    }
    run.gets_on(200, "when an operator has decided").await;
    let decided_ns = run.load.record.now_ns();
    run.gets_on(100, "and on").await;
    [second, third].iter().for_each(|&node| run.nodes.cluster.serves_still(node));
    let logs = run.nodes.logs();
    let verdict = run.unjudged().await;
    let lasting = |both: &&(Sure, Sure)| both.0.until_ns.is_none() && both.1.until_ns.is_none();
    let twice: Vec<_> = verdict.twice.iter().filter(lasting).collect();
    assert!(!verdict.twice.is_empty(), "nothing was granted again: nothing was tested\n{logs}");
    let is_told = |(one, other): &(Sure, Sure)| {
        told.iter().any(|(network, at)| *network == one.holder.network && within(*at, one, other))
    };
    for both in twice {
        assert!(is_told(both), "nobody was told of {both:?}\n{told:?}\n{logs}");
    }
    // The operator decided against the late claims: their addresses may be granted to anybody once they come free, also while
    // whoever claimed them has not asked since.
    let later = |both: &&(Sure, Sure)| both.0.from_ns.max(both.1.from_ns) > decided_ns && !is_told(both);
    let late = verdict.twice.iter().find(later);
    assert!(late.is_none(), "granted again after all was told: {late:?}\n{logs}");
}

/// What was acknowledged since the snapshot belongs to the second node's own tenure, so the third cannot know of it and goes on.
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
    returns(run, second, third).await;
}

/// Is this an address of either holding?
fn within(address: u128, one: &Sure, other: &Sure) -> bool {
    [one, other].iter().any(|sure| sure.span.0 <= address && address <= sure.span.1)
}
