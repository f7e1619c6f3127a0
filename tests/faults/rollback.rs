//! Redis comes back with older data while clients work: once, twice to the same state, past a take-over, or while a node is
//! stopped. What a node still knows is given back; where nobody knows, nothing more is granted.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::Client;
use super::run::{Nodes, Run, Setting, eventually, insist};
use super::server::http_get;
use super::wire::Way;

/// A Redis that goes back to its last snapshot whenever it is killed.
const SNAPSHOTS: Setting<'static> =
    Setting { redis: &[], nodes: 1, alone: false, store: "", wired: false, environments: Vec::new() };

/// Makes Redis lose everything since its last snapshot. Returns the number of batches before and after.
fn goes_back(run: &mut Run) -> (u64, u64) {
    run.nodes.cluster.signal(0, "-STOP");
    let before = run.nodes.redis.of_heads("seq");
    run.nodes.redis.crash();
    let after = run.nodes.redis.of_heads("seq");
    run.nodes.cluster.signal(0, "-CONT");
    assert!(after < before, "it did not go back: {after} of {before}");
    (before, after)
}

fn wish(owner: &str) -> Value {
    json!({"network": "lan", "owner": owner})
}

/// Two nodes with a network, and a Redis with a snapshot in which nobody holds anything. Also returns the owner of the
/// register, and a client of it.
async fn two_nodes() -> Option<(Nodes, usize, Client)> {
    let nodes = Nodes::set(Setting { nodes: 2, wired: true, ..SNAPSHOTS })?;
    let first = nodes.cluster.owner_but(None).await;
    let mut client = nodes.client(first).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await;
    nodes.redis.ask(&["SAVE"]);
    Some((nodes, first, client))
}

/// Grants an address to each of this many owners, and adds the answers to `granted`.
async fn grant(client: &mut Client, name: &str, count: usize, granted: &mut Vec<(String, Value)>) {
    for n in 0..count {
        let owner = format!("{name}{n}");
        granted.push((owner.clone(), insist(client, "ip.allocate", &wish(&owner)).await));
    }
}

/// Checks that each owner is told the same again.
async fn have_what_they_were_told(nodes: &Nodes, client: &mut Client, granted: &[(String, Value)]) {
    for (owner, told) in granted {
        let again = insist(client, "ip.allocate", &wish(owner)).await;
        let named = |answer: &Value| (answer["address"].clone(), answer["generation"].clone());
        assert_eq!(named(&again), named(told), "{owner}\n{}", nodes.logs());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_goes_back_twice_to_the_same_place_is_given_back_all_of_it_twice() {
    let Some(mut run) = Run::of(SNAPSHOTS).await else { return };
    run.nodes.redis.ask(&["SAVE"]);
    let mut healed = 0.0;
    for time in ["once", "twice"] {
        run.gets_on(200, "before it went back").await;
        let (before, after) = goes_back(&mut run);
        run.gets_on(200, &format!("after it went back {time}")).await;
        let now = run.nodes.figure("allod_store_healed_batches_total");
        assert!(now - healed >= (before - after) as f64, "{now} batches were given back, {before} - {after} were lost");
        healed = now;
    }
    run.end().await;
}

/// The owner slept for longer than its lease and took the register again: the changes before and after are all its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_goes_back_past_an_owners_own_take_over_is_given_back_that_too() {
    let Some(mut run) = Run::of(SNAPSHOTS).await else { return };
    run.nodes.redis.ask(&["SAVE"]);
    run.gets_on(200, "before it slept").await;
    let epoch = |run: &Run| run.nodes.redis.number(&["HGET", "{allod}:0:head", "epoch"]);
    let before = epoch(&run);
    run.nodes.cluster.signal(0, "-STOP");
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    run.nodes.cluster.signal(0, "-CONT");
    run.gets_on(200, "after it slept").await;
    // No other node wanted the register, and still the old token is over: a lapsed lease is not renewed. What the node had
    // begun before may still be granted first, which on a busy machine is much.
    eventually("it goes on under a new token", || epoch(&run) > before).await;
    run.gets_on(200, "after it took the register anew").await;
    let taken = epoch(&run);
    goes_back(&mut run);
    run.gets_on(200, "after it went back").await;
    assert!(epoch(&run) >= taken);
    assert!(run.nodes.logs().contains("is played again"), "{}", run.nodes.logs());
    run.end().await;
}

/// Another node granted in between, and is gone. This node does not know what it granted, and stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_goes_back_past_the_take_over_from_another_node_is_granted_nothing_more() {
    let Some(mut run) = Run::of(Setting { nodes: 2, ..SNAPSHOTS }).await else { return };
    let first = run.nodes.cluster.owner_but(None).await;
    run.nodes.redis.ask(&["SAVE"]);
    run.gets_on(200, "before the take-over").await;
    run.nodes.cluster.kill(first);
    let second = run.nodes.cluster.owner_but(Some(first)).await;
    run.gets_on(200, "after the take-over").await;
    run.nodes.redis.crash();
    // Requests from here on meet the older data.
    let since_ns = run.load.record.now_ns();
    // The node first waits, for as long as the other one may still come and give back what it has.
    eventually("it stops", || run.nodes.cluster.log(second).contains("went back: shard")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(run.granted_since(since_ns), [], "it grants what it cannot know to be free");
    run.end_in_silence().await;
}

/// Each node gives back what it changed while it owned the register, in the order of their tenures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_goes_back_past_hand_overs_is_given_back_all_of_it_by_the_nodes_that_live() {
    for hand_overs in [1, 2] {
        let Some(mut run) = Run::of(Setting { nodes: 2, ..SNAPSHOTS }).await else { return };
        run.nodes.redis.ask(&["SAVE"]);
        for _ in 0..hand_overs {
            run.gets_on(200, "before a hand-over").await;
            let owner = run.nodes.cluster.owner_but(None).await;
            let mut client = run.nodes.client(owner).await;
            client.call("cluster.drain", json!({})).await.ok();
            run.nodes.cluster.owner_but(Some(owner)).await;
            client.call("cluster.drain", json!({"drain": false})).await.ok();
        }
        run.gets_on(200, "after the last hand-over").await;
        run.nodes.redis.crash();
        run.gets_on(200, "after it went back").await;
        let logs = run.nodes.logs();
        let played = |node| run.nodes.cluster.log(node).contains("is played again");
        assert!((0..2).all(played), "one of them had nothing to give back: nothing was tested\n{logs}");
        assert!(!logs.contains("which are put aside") && !logs.contains("went back: shard"), "{logs}");
        (0..2).for_each(|node| run.nodes.cluster.serves_still(node));
        run.end().await;
    }
}

/// A tenure may end right after a heal; an operator who watches `increase()` must see the heal all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_gave_back_is_shown_by_it_also_when_another_node_owns_the_register() {
    const HEALED: &str = "allod_store_healed_batches_total";
    let Some(mut nodes) = Nodes::set(Setting { nodes: 2, ..SNAPSHOTS }) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    let shown = |nodes: &Nodes, node: usize| {
        let metrics = nodes.cluster.metrics(node);
        metrics.lines().any(|line| line.starts_with(HEALED)).then(|| nodes.cluster.figure(node, HEALED))
    };
    assert_eq!(
        [shown(&nodes, owner), shown(&nodes, 1 - owner)],
        [Some(0.0); 2],
        "a rise begins at what was there before"
    );
    let mut client = nodes.client(owner).await;
    let subnets = json!([{"cidr": "10.0.0.0/24"}]);
    client.call("network.create", json!({"name": "lan", "subnets": subnets})).await.ok();
    nodes.redis.ask(&["SAVE"]);
    for n in 0..5 {
        client.call("ip.allocate", json!({"network": "lan", "owner": format!("o{n}")})).await.ok();
    }
    nodes.redis.crash();
    eventually("what is missing is given back", || shown(&nodes, owner).is_some_and(|healed| healed > 0.0)).await;
    let healed = shown(&nodes, owner);
    insist(&mut client, "cluster.drain", &json!({})).await;
    nodes.cluster.owner_but(Some(owner)).await;
    assert_eq!(shown(&nodes, owner), healed, "{}", nodes.cluster.metrics(owner));
    assert_eq!(shown(&nodes, 1 - owner), Some(0.0), "each node counts what it gave back itself");
}

/// With its file Redis lacks nothing; `emptied` tests a Redis without its file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_started_again_with_its_file_lost_nothing_and_nothing_is_given_back() {
    let Some(mut run) = Run::of(Setting::default()).await else { return };
    for _ in 0..2 {
        run.nodes.redis.crash();
        run.gets_on(200, "after a restart with its file").await;
    }
    assert_eq!(run.nodes.figure("allod_store_healed_batches_total"), 0.0);
    run.end().await;
}

/// This is the case after a cut in which nothing was acknowledged: an operator who searches the log must not find a lost change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_lacks_nothing_but_a_take_over_is_not_said_to_have_gone_back() {
    let Some(mut nodes) = Nodes::set(Setting { nodes: 2, ..SNAPSHOTS }) else { return };
    let first = nodes.cluster.owner_but(None).await;
    let mut client = nodes.client(first).await;
    let subnets = json!([{"cidr": "10.0.0.0/24"}]);
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": subnets})).await;
    nodes.redis.ask(&["SAVE"]);
    insist(&mut client, "cluster.drain", &json!({})).await;
    let second = nodes.cluster.owner_but(Some(first)).await;
    nodes.redis.crash();
    let log = |nodes: &Nodes| nodes.cluster.log(second);
    let told = "take-overs that Redis lacks are played again, and no change";
    eventually("its take-over is played again", || log(&nodes).contains(told)).await;
    insist(&mut nodes.client(second).await, "ip.allocate", &json!({"network": "lan", "owner": "o"})).await;
    let log = log(&nodes);
    assert!(!log.contains("Redis went back: what it lost") && !log.contains("Redis has them again"), "{log}");
    assert_eq!(nodes.figure("allod_store_healed_batches_total"), 0.0);
}

/// Redis remembers the first node as the owner; the second one owned the register later, and has more to give back. Nothing
/// is under way when the first one is cut off, because the outcome of such a request would be unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_the_register_while_it_was_cut_off_leaves_it_to_who_has_it_though_redis_forgot_that() {
    let Some((mut nodes, first, mut client)) = two_nodes().await else { return };
    let mut granted = Vec::new();
    grant(&mut client, "a", 5, &mut granted).await;
    nodes.to_redis(first).hold(Way::Both);
    let second = nodes.cluster.owner_but(Some(first)).await;
    let mut client = nodes.client(second).await;
    grant(&mut client, "b", 5, &mut granted).await;
    nodes.cluster.signal(second, "-STOP");
    nodes.redis.crash();
    nodes.to_redis(first).cut();
    let gave_back = || nodes.cluster.log(first).contains("Redis has them again");
    eventually("the first one has given back its part", gave_back).await;
    // Redis answers, and it is the other node's turn: nobody needs to look at Redis.
    let said = "this node lets another one go first, which may have taken the register: asking Redis at ";
    eventually("it says for whom it waits", || http_get(nodes.cluster.http(first), "/readyz").contains(said)).await;
    // By then the first node would have taken the register.
    tokio::time::sleep(Duration::from_millis(500)).await;
    nodes.cluster.signal(second, "-CONT");
    let mut client = nodes.client(first).await;
    have_what_they_were_told(&nodes, &mut client, &granted).await;
    assert!(!nodes.logs().contains("which are put aside"), "somebody went on without the second one\n{}", nodes.logs());
}

/// Redis applied the batch, the answer never came, and the next owner went on from there: the first node does not know that
/// it could give the batch back. What the first node acknowledged before is more than the next one found, so each of them
/// has to give back a part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_was_under_way_when_its_owner_was_cut_off_is_given_back_by_who_went_on_from_it() {
    let Some((mut nodes, first, mut client)) = two_nodes().await else { return };
    let mut granted = Vec::new();
    grant(&mut client, "a", 20, &mut granted).await;
    nodes.to_redis(first).hold(Way::Back);
    let before = nodes.redis.of_heads("seq");
    let under_way = tokio::spawn(async move { client.call("ip.allocate", wish("under way")).await });
    let redis = &nodes.redis;
    eventually("Redis has applied it", || redis.of_heads("seq") > before).await;
    nodes.to_redis(first).hold(Way::Both);
    let second = nodes.cluster.owner_but(Some(first)).await;
    let mut client = nodes.client(second).await;
    grant(&mut client, "b", 5, &mut granted).await;
    under_way.abort();
    nodes.redis.crash();
    nodes.to_redis(first).cut();
    have_what_they_were_told(&nodes, &mut client, &granted).await;
    let listed = insist(&mut client, "ip.list", &json!({"network": "lan"})).await;
    let held = listed["reservations"].as_array().map_or(0, Vec::len);
    assert_eq!(held, granted.len() + 1, "what was under way is there, too: {listed}");
    assert!(!nodes.logs().contains("which are put aside"), "{}", nodes.logs());
}

/// The node is asked to stop while Redis is away. It alone knows what Redis lost, and its memory is lost when it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_ends_while_redis_is_away_gives_back_what_that_lost_when_it_is_started_again() {
    let Some(mut nodes) = Nodes::set(SNAPSHOTS) else { return };
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await;
    let mut granted = Vec::new();
    grant(&mut client, "before", 3, &mut granted).await;
    nodes.redis.ask(&["SAVE"]);
    grant(&mut client, "lost", 5, &mut granted).await;
    let (gone, _) = granted.swap_remove(0);
    insist(&mut client, "ip.release", &wish(&gone)).await;
    nodes.redis.end();
    nodes.cluster.stop(0);
    // A node that is started before this one would go on without the changes.
    let says = "the next start gives back what is missing. Of several nodes start first the one that says this";
    assert!(nodes.cluster.log(0).contains(says), "{}", nodes.logs());
    nodes.redis.begin();
    nodes.cluster.again(0);
    let mut client = nodes.client(0).await;
    have_what_they_were_told(&nodes, &mut client, &granted).await;
    let listed = insist(&mut client, "ip.list", &json!({"network": "lan"})).await;
    assert_eq!(listed["reservations"].as_array().map(Vec::len), Some(granted.len()), "what was let go is: {listed}");
    eventually("nothing is left to give back", || nodes.figure("allod_store_redo_bytes") == 0.0).await;
    // If nothing is missing, a stop leaves nothing.
    nodes.cluster.restart(0);
    assert_eq!(nodes.cluster.log(0).matches("the next start gives back").count(), 1, "{}", nodes.logs());
}

/// The batch that Redis applied after the process had ended is in nobody's memory: it is neither in what that process left,
/// nor among the changes of the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_was_under_way_when_its_process_ended_is_given_back_by_the_next_one_of_its_node() {
    let Some(mut nodes) = Nodes::set(Setting { wired: true, ..SNAPSHOTS }) else { return };
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await;
    nodes.redis.ask(&["SAVE"]);
    let mut granted = Vec::new();
    grant(&mut client, "a", 5, &mut granted).await;
    nodes.to_redis(0).hold(Way::Back);
    let before = nodes.redis.of_heads("seq");
    let under_way = tokio::spawn(async move { client.call("ip.allocate", wish("under way")).await });
    let redis = &nodes.redis;
    eventually("Redis has applied it", || redis.of_heads("seq") > before).await;
    nodes.to_redis(0).hold(Way::Both);
    nodes.cluster.stop(0);
    assert!(nodes.cluster.log(0).contains("the next start gives back what is missing"), "{}", nodes.logs());
    under_way.abort();
    nodes.to_redis(0).release();
    for (time, name) in ["b", "c"].into_iter().enumerate() {
        nodes.cluster.again(0);
        let mut client = nodes.client(0).await;
        grant(&mut client, name, 5, &mut granted).await;
        nodes.redis.crash();
        nodes.to_redis(0).cut();
        have_what_they_were_told(&nodes, &mut client, &granted).await;
        let listed = insist(&mut client, "ip.list", &json!({"network": "lan"})).await;
        let held = listed["reservations"].as_array().map_or(0, Vec::len);
        assert_eq!(held, granted.len() + 1, "what was under way is there, too ({time}): {listed}");
        // The third process gets the batch from the second one.
        nodes.redis.end();
        nodes.cluster.stop(0);
        nodes.redis.begin();
    }
    assert!(!nodes.logs().contains("which are put aside"), "{}", nodes.logs());
}

/// Once another node has gone on, the node cannot give back the changes themselves; they become claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_left_when_it_ended_is_claimed_where_another_one_went_on_meanwhile() {
    let Some((mut nodes, first, mut client)) = two_nodes().await else { return };
    let mut granted = Vec::new();
    grant(&mut client, "a", 5, &mut granted).await;
    nodes.to_redis(first).hold(Way::Both);
    nodes.redis.crash();
    nodes.cluster.stop(first);
    assert!(nodes.cluster.log(first).contains("the next start gives back what is missing"), "{}", nodes.logs());
    let second = nodes.cluster.owner_but(Some(first)).await;
    let mut client = nodes.client(second).await;
    let other = json!({"network": "lan", "owner": "b", "address": "10.0.0.200"});
    insist(&mut client, "ip.claim", &other).await;
    nodes.to_redis(first).release();
    nodes.cluster.again(first);
    eventually("it has brought them", || nodes.logs().contains("what a failover had cut off was given back")).await;
    have_what_they_were_told(&nodes, &mut client, &granted).await;
    eventually("nothing is left to give back", || nodes.figure("allod_store_redo_bytes") == 0.0).await;
}

/// By the time the node is started, another one has gone on from the older copy. The node can no longer refuse that, and
/// cannot tell what was lost. It says that something was lost, and says it once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_stopped_in_order_tells_when_another_one_went_on_from_an_older_copy() {
    let Some((mut nodes, first, mut client)) = two_nodes().await else { return };
    let mut granted = Vec::new();
    grant(&mut client, "a", 3, &mut granted).await;
    nodes.cluster.stop(1 - first);
    nodes.cluster.stop(first);
    // Redis goes back to its snapshot.
    nodes.redis.crash();
    nodes.cluster.again(1 - first);
    let again = insist(&mut nodes.client(1 - first).await, "ip.allocate", &wish("b")).await;
    assert_eq!(again["address"], granted[0].1["address"], "nothing was lost, so nothing is tested");
    nodes.cluster.again(first);
    let told =
        |nodes: &Nodes| nodes.cluster.log(first).matches("the register lacks what this node acknowledged").count();
    assert_eq!(told(&nodes), 1, "{}", nodes.logs());
    nodes.cluster.restart(first);
    assert_eq!(told(&nodes), 1, "{}", nodes.logs());
    nodes.cluster.serves_still(first);
    assert!(!nodes.cluster.log(1 - first).contains("the register lacks what"), "{}", nodes.logs());
}
