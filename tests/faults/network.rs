//! Cuts between a node and Redis, between nodes, and between clients and a node; one way and both ways. What was held
//! arrives late, or never.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::checker::check;
use super::client::{Answer, Client};
use super::load::{Load, make_networks};
use super::nodes::Cluster;
use super::record::Told;
use super::redis::Redis;
use super::run::{Run, STANDSTILL_MAX, Setting, eventually};
use super::seed::seed;
use super::wire::{Way, Wire};
use serde_json::json;

const WIRED: Setting<'static> =
    Setting { redis: &[], nodes: 2, alone: false, store: "", wired: true, environments: Vec::new() };

/// First the owner does not hear Redis, then Redis does not hear the next owner. The other node takes over each time, and
/// what was sent arrives long after, or never.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_from_redis_one_way_is_replaced_and_what_it_sent_comes_too_late() {
    let Some(run) = Run::of(WIRED).await else { return };
    // A client may give up a request to a node that is cut off, and the node may still carry it out when it hears again.
    run.load.lingers_ms.store(8_000, Ordering::Relaxed);
    for (way, late) in [(Way::Back, true), (Way::There, false)] {
        let owner = run.nodes.cluster.owner_but(None).await;
        run.nodes.to_redis(owner).hold(way);
        let next = run.nodes.cluster.owner_but(Some(owner)).await;
        run.gets_on(200, "after another node took over").await;
        assert!(run.nodes.to_redis(owner).held() > 0, "nothing was held {way:?}");
        if late {
            run.nodes.to_redis(owner).release()
        } else {
            run.nodes.to_redis(owner).cut()
        }
        run.gets_on(200, "after the cut healed").await;
        assert_ne!(owner, next, "{way:?}");
    }
    assert!(run.refusals() > 0, "no cut met a request");
    let verdict = run.end().await;
    assert!(verdict.unknown > 0, "no cut met a change under way");
}

/// Followers cannot forward and tell their clients so; the owner's clients make progress, and all do once the cut is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_do_not_hear_each_other_refuse_what_they_cannot_forward() {
    let Some(run) = Run::of(WIRED).await else { return };
    // A client may give up a request to a node that is cut off, and the node may still carry it out when it hears again.
    run.load.lingers_ms.store(8_000, Ordering::Relaxed);
    for (way, late) in [(Way::Back, true), (Way::There, false)] {
        // If a cut lasts, the owner hands the register over by itself.
        let owner = run.nodes.cluster.owner_but(None).await;
        let refused = run.refusals();
        run.nodes.to_node(owner).hold(way);
        run.gets_on(200, "at the owner").await;
        eventually("the follower refuses", || run.refusals() > refused).await;
        assert!(run.nodes.to_node(owner).held() > 0);
        if late {
            run.nodes.to_node(owner).release()
        } else {
            run.nodes.to_node(owner).cut()
        }
        // Progress includes requests through the follower.
        let forwarded = run.nodes.figure("allod_forwarded_requests_total");
        run.gets_on(200, "after the cut healed").await;
        eventually("the follower forwards again", || {
            run.nodes.figure("allod_forwarded_requests_total") > forwarded + 20.0
        })
        .await;
    }
    run.end().await;
}

/// The owner's link to Redis is fine, but requests to the other nodes do not reach it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_the_other_nodes_do_not_reach_hands_the_register_to_one_that_they_do() {
    let Some(run) = Run::of(Setting { nodes: 3, ..WIRED }).await else { return };
    run.load.lingers_ms.store(8_000, Ordering::Relaxed);
    let owner = run.nodes.cluster.owner_but(None).await;
    run.nodes.to_node(owner).hold(Way::Both);
    let next = run.nodes.cluster.owner_but(Some(owner)).await;
    run.gets_on(200, "at a node that the others reach").await;
    let log = run.nodes.cluster.log(owner);
    assert!(
        log.contains("most other nodes cannot reach this one") && log.contains("handed the register over"),
        "{log}"
    );
    run.nodes.to_node(owner).cut();
    // The former owner is a follower now. Whether or not the others reach it, the register stays where it is.
    run.gets_on(200, "after the cut healed").await;
    assert_eq!(run.nodes.cluster.owner_but(Some(owner)).await, next);
    run.end().await;
}

/// The owner tries for a moment and finds that it reaches the other node, so that one is the better owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_an_owner_that_the_other_does_not_reach_hands_it_the_register() {
    let Some(run) = Run::of(WIRED).await else { return };
    run.load.lingers_ms.store(8_000, Ordering::Relaxed);
    let owner = run.nodes.cluster.owner_but(None).await;
    run.nodes.to_node(owner).hold(Way::Both);
    run.nodes.cluster.owner_but(Some(owner)).await;
    run.gets_on(200, "at the node that is reached").await;
    let log = run.nodes.cluster.log(owner);
    assert!(log.contains("handed the register over"), "{log}");
    run.nodes.to_node(owner).cut();
    run.end().await;
}

/// The register would be no better off elsewhere, and would come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_node_reaches_another_the_register_stays_where_it_is() {
    let Some(run) = Run::of(WIRED).await else { return };
    run.load.lingers_ms.store(8_000, Ordering::Relaxed);
    let owner = run.nodes.cluster.owner_but(None).await;
    // Both cuts happen at once: while one of the two ways is whole, one node is the better owner.
    for node in [0, 1] {
        run.nodes.to_node(node).hold(Way::Both);
    }
    eventually("the follower says so", || {
        run.nodes.cluster.log(1 - owner).contains("this node has had no way to the owner")
    })
    .await;
    let more = Duration::from_millis(3 * allod::limits::OWNER_LEFT_MS);
    tokio::time::sleep(more).await;
    assert_eq!(run.nodes.cluster.owner_but(None).await, owner);
    run.gets_on(200, "at the owner").await;
    for node in [0, 1] {
        run.nodes.to_node(node).cut();
    }
    run.end().await;
}

/// One of three nodes does not reach the owner, or does not hear its answers; everybody else goes on as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_one_other_node_does_not_reach_is_reached_by_the_third_and_keeps_the_register() {
    let Some(run) = Run::of(Setting { nodes: 3, ..WIRED }).await else { return };
    // A client may give up a request to a node that is cut off, and the node may still carry it out when it hears again.
    run.load.lingers_ms.store(8_000, Ordering::Relaxed);
    let owner = run.nodes.cluster.owner_but(None).await;
    let (cut_off, third) = ((owner + 1) % 3, (owner + 2) % 3);
    let wire = run.nodes.cluster.between(cut_off, owner);
    let forwarded = |node| run.nodes.cluster.figure(node, "allod_forwarded_requests_total");
    for way in [Way::There, Way::Back] {
        let (before, refused) = (forwarded(cut_off), run.refusals());
        eventually("all forward", || forwarded(cut_off) > before + 20.0).await;
        wire.hold(way);
        eventually("the one refuses", || run.refusals() > refused && wire.held() > 0).await;
        let of_third = forwarded(third);
        eventually("the third forwards", || forwarded(third) > of_third + 20.0).await;
        run.gets_on(100, "but for the one").await;
        wire.cut();
        run.gets_on(200, "after the cut healed").await;
    }
    assert_eq!(run.nodes.cluster.owner_but(None).await, owner, "nobody else needed to take over");
    run.end().await;
}

/// Answers are held, requests are held, both are lost: a client that asks again is told the truth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_whose_requests_or_answers_are_held_or_lost_are_told_the_truth_when_they_ask_again() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let seed = seed();
    let cluster = Cluster::start(directory.path(), &redis, 1);
    let wire = Wire::to(cluster.addresses()[0]);
    let networks = make_networks(&mut Client::connect(wire.address).await.unwrap(), 4).await;
    let load = Load::new(networks, vec![wire.address]);
    let clients = load.start(6, seed);
    assert!(load.more(200, STANDSTILL_MAX).await);
    load.lingers_ms.store(2_000, Ordering::Relaxed);
    for n in 0..12 {
        wire.hold([Way::There, Way::Back, Way::Both][n % 3]);
        tokio::time::sleep(Duration::from_millis(200)).await;
        if n % 2 == 0 {
            wire.release()
        } else {
            wire.cut()
        }
        assert!(load.more(60, STANDSTILL_MAX).await, "ALLOD_SEED={seed}: after cut {n}");
    }
    load.end(clients).await;
    assert!(load.ask_again(&check(&load.record.all())).await > 0);
    let verdict = check(&load.record.all());
    assert!(
        verdict.problems.is_empty(),
        "ALLOD_SEED={seed}: {:#?}",
        &verdict.problems[..verdict.problems.len().min(5)]
    );
    assert!(verdict.unknown > 20 && wire.held() > 0, "{} unknown", verdict.unknown);
    let mut client = Client::connect(wire.address).await.unwrap();
    assert!(matches!(client.call("server.info", json!({})).await, Answer::Result(_)));
    let refused = load.record.all().iter().filter(|call| matches!(call.told, Told::Refused(_))).count();
    assert!(refused < load.record.all().len() / 2, "{refused} refused");
}
