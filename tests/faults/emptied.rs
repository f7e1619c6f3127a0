//! Redis loses everything: somebody empties it, or it starts again without its file. A node that owned the register has it
//! in memory and writes it anew. If no node certainly has all of it, nothing is granted.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::run::{Nodes, Run, STANDSTILL_MAX, Setting, eventually, insist};
use super::wire::Way;

/// What a node logs when it has written the register anew.
const WHOLE: &str = "the register is whole again";

/// How often a register was written anew, according to the nodes' logs.
pub fn written<R>(nodes: &Nodes<R>) -> usize {
    nodes.logs().matches(WHOLE).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_whose_redis_is_emptied_under_load_is_written_anew_and_nothing_acknowledged_is_lost() {
    let Some(run) = Run::of(Setting { redis: &[], ..Setting::default() }).await else { return };
    for times in 1..=3 {
        run.nodes.redis.ask(&["FLUSHALL"]);
        run.gets_on(300, "after it was emptied").await;
        assert_eq!(written(&run.nodes), times, "{}", run.nodes.logs());
    }
    run.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_started_again_without_its_file_is_given_back_the_register() {
    let Some(mut run) = Run::of(Setting::default()).await else { return };
    for times in 1..=2 {
        run.nodes.redis.end();
        run.nodes.redis.forget();
        run.nodes.redis.begin();
        run.gets_on(300, "without its file").await;
        assert_eq!(written(&run.nodes), times, "{}", run.nodes.logs());
    }
    run.end().await;
}

/// The node has no secret, so no other node can have owned the register in between, even if Redis is away for longer than a
/// lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_alone_writes_its_register_anew_however_long_redis_was_away() {
    let Some(mut run) = Run::of(Setting { alone: true, ..Setting::default() }).await else { return };
    run.nodes.redis.end();
    run.nodes.redis.forget();
    tokio::time::sleep(Duration::from_secs(8)).await;
    run.nodes.redis.begin();
    run.gets_on(300, "after it was away").await;
    assert_eq!(written(&run.nodes), 1, "{}", run.nodes.logs());
    run.end().await;
}

/// Each node could have owned the register while the other did not reach Redis. Neither writes over what the other may have
/// granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_share_a_register_grant_nothing_from_a_redis_that_comes_back_empty_after_their_leases() {
    let Some(mut run) = Run::of(Setting::default()).await else { return };
    run.nodes.redis.end();
    run.nodes.redis.forget();
    tokio::time::sleep(Duration::from_secs(8)).await;
    let since_ns = run.load.record.now_ns();
    run.nodes.redis.begin();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(run.granted_since(since_ns), [], "an emptied register grants");
    assert_eq!(written(&run.nodes), 0, "{}", run.nodes.logs());
    run.end_in_silence().await;
}

/// The owner never saw the other node: neither reached the other, and the other is gone together with the contents of Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_is_back_writes_nothing_over_what_a_node_granted_that_it_never_saw() {
    let Some(mut nodes) = Nodes::set(Setting { nodes: 1, wired: true, ..Setting::default() }) else { return };
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await;
    nodes.to_redis(0).hold(Way::Both);
    nodes.to_node(0).hold(Way::Both);
    let other = nodes.cluster.begin_as("other", "other", 1).ready();
    let mut of_other = Client::connect(other.address).await.unwrap();
    insist(&mut of_other, "ip.allocate", &json!({"network": "lan", "owner": "theirs"})).await;
    eventually("its lease lapsed", || nodes.logs().contains("this node no longer owns the register")).await;
    drop(other);
    nodes.redis.end();
    nodes.redis.forget();
    nodes.redis.begin();
    nodes.to_redis(0).cut();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(written(&nodes), 0, "{}", nodes.logs());
    let granted = client.call("ip.allocate", json!({"network": "lan", "owner": "ours"})).await;
    assert!(!matches!(granted, Answer::Result(_)), "{granted:?}");
}

/// What clients were told is kept; what only the old Redis had is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_that_is_written_anew_is_what_it_was_but_for_its_history() {
    let Some(nodes) = Nodes::start(1, &[]) else { return };
    let mut client = nodes.client(0).await;
    let pools = json!([{"range": "10.0.0.0/25"}, {"range": "10.0.0.128/25", "kind": "static", "name": "still"}]);
    let subnets =
        json!([{"cidr": "10.0.0.0/24", "pools": pools, "reserved": [{"range": "10.0.0.9"}]}, {"cidr": "fd00::/64"}]);
    let network = json!({"name": "lan", "subnets": subnets, "cooldown_seconds": 3_600, "tags": {"a": "b"}});
    insist(&mut client, "network.create", &network).await;
    let early = insist(&mut client, "network.get", &json!({"network": "lan"})).await["cursor"].clone();
    insist(&mut client, "network.create", &json!({"name": "gone", "subnets": [{"cidr": "10.1.0.0/24"}]})).await;
    insist(&mut client, "network.delete", &json!({"network": "gone"})).await;
    for n in 0..20 {
        insist(&mut client, "ip.allocate", &json!({"network": "lan", "owner": format!("o{n}"), "ttl_seconds": 600}))
            .await;
    }
    for n in 0..5 {
        insist(&mut client, "ip.release", &json!({"network": "lan", "owner": format!("o{n}")})).await;
    }
    insist(
        &mut client,
        "ip.decline",
        &json!({"network": "lan", "address": "10.0.0.6", "owner": "o5", "probation_seconds": 900}),
    )
    .await;
    insist(
        &mut client,
        "ip.allocate",
        &json!({"network": "lan", "owner": "block", "subnet": "fd00::/64", "prefix_length": 80}),
    )
    .await;
    let instances = json!([{"id": "web", "networks": [{"network": "lan"}]}]);
    let plan =
        insist(&mut client, "deployment.apply", &json!({"deployment": "shop", "instances": instances})).await["plan"]
            .clone();
    let before = everything(&mut client).await;
    let seen = insist(&mut client, "network.get", &json!({"network": "lan"})).await["cursor"].clone();

    nodes.redis.ask(&["FLUSHALL"]);
    eventually("it is written anew", || written(&nodes) == 1).await;
    // An operator who does what the log says must not end the only process that has the register.
    let logs = nodes.logs();
    let writes = logs.lines().find(|line| line.contains("is being written again")).unwrap_or_else(|| panic!("{logs}"));
    assert!(writes.contains("leave it running") && !logs.contains("start again"), "{logs}");
    let whole = logs.lines().find(|line| line.contains(WHOLE)).unwrap();
    assert!(whole.contains("WARN"), "it is good news: {whole}");
    let mut client = again(&nodes).await;
    let after = everything(&mut client).await;
    for (what, before) in before.as_object().unwrap() {
        assert_eq!(&after[what], before, "{what}");
    }
    let gone = client.call("events.watch", json!({"network": "lan", "since": early})).await;
    assert!(gone.is("cursor_lost"), "{gone:?}");
    // A client that had watched so far misses no event and is told none twice.
    insist(&mut client, "events.watch", &json!({"network": "lan", "since": seen})).await;
    // Released addresses still cool down, and no generation is used again.
    let next = insist(&mut client, "ip.allocate", &json!({"network": "lan", "owner": "next"})).await;
    let highest = before["list"].as_array().unwrap().iter().map(|held| held["generation"].as_u64().unwrap()).max();
    assert!(next["generation"].as_u64() > highest, "{next}");
    assert!(!(1..=6).any(|n| next["address"] == format!("10.0.0.{n}")), "{next}");
    let told = client.told().await.unwrap();
    let event = &told["params"]["event"];
    assert_eq!((&event["type"], &event["owner"]), (&json!("granted"), &json!("next")), "{told}");
    let done = insist(&mut client, "deployment.commit", &json!({"deployment": "shop", "plan": plan})).await;
    assert!(done.is_object(), "{done}");
}

/// The first batch of a shard then follows nothing, even if it is batch 1. Most shards of a small register stand there, and
/// so do all idle shards when the register is written anew once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_of_a_register_that_was_written_anew_at_its_first_batch_is_told_by_page_and_after_a_restart() {
    let Some(mut nodes) = Nodes::start(1, &["--appendonly", "yes"]) else { return };
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await;
    for times in 1..=2 {
        nodes.redis.ask(&["FLUSHALL"]);
        eventually("it is written anew", || written(&nodes) == times).await;
        drop(again(&nodes).await);
    }
    let mut client = again(&nodes).await;
    insist(&mut client, "network.create", &json!({"name": "doomed", "subnets": [{"cidr": "10.1.0.0/24"}]})).await;
    insist(&mut client, "network.delete", &json!({"network": "doomed"})).await;
    nodes.cluster.stop(0);
    nodes.cluster.again(0);
    let mut client = again(&nodes).await;
    // Once the index has been read, the name of a network that no longer exists is known.
    assert_eq!(events(&mut client, json!({"network": "doomed"})).await, 2);
    // The next page goes on from wherever the previous one ended.
    let count = events(&mut client, json!({"realm": "default", "limit": 1})).await;
    assert!(count >= 2, "{count} events");
    let logs = nodes.logs();
    assert!(!logs.contains("the index of the history waits"), "{logs}");
}

/// How many events all pages have together. Where reading takes long, a page ends with what was found so far.
async fn events(client: &mut Client, mut asked: Value) -> usize {
    let mut count = 0;
    loop {
        let page = insist(client, "events.history", &asked).await;
        count += page["events"].as_array().unwrap().len();
        let Some(next) = page.get("next") else { return count };
        asked["after"] = next.clone();
    }
}

/// Connects to a node that has begun anew at the same address. Until the register is whole, the node answers `unavailable`,
/// and then it closes the connection.
async fn again(nodes: &Nodes) -> Client {
    let end = std::time::Instant::now() + STANDSTILL_MAX;
    loop {
        if let Ok(mut client) = Client::connect(nodes.cluster.address(0)).await
            && let Answer::Result(_) = client.call("ip.list", json!({"limit": 1})).await
        {
            return client;
        }
        assert!(std::time::Instant::now() < end, "{}", nodes.logs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Everything in the register that does not change by itself.
async fn everything(client: &mut Client) -> Value {
    let mut list = insist(client, "ip.list", &json!({})).await["reservations"].clone();
    for held in list.as_array_mut().unwrap() {
        held.as_object_mut().unwrap().retain(|name, _| !["expires_at", "expires_in_seconds"].contains(&name.as_str()));
    }
    let mut network = insist(client, "network.get", &json!({"network": "lan"})).await;
    let networks = insist(client, "network.list", &json!({"deleted": true})).await;
    let mut usage = insist(client, "network.usage", &json!({"network": "lan"})).await;
    for told in [&mut network, &mut usage] {
        // The position in the history.
        told.as_object_mut().unwrap().remove("cursor");
    }
    let deployment = insist(client, "deployment.get", &json!({"deployment": "shop"})).await;
    json!({"list": list, "network": network, "networks": networks, "usage": usage, "deployment": deployment})
}

/// What was answered as not done is absent, and what was answered as done is present. Only what was answered `unknown` may
/// be either, even if it had been decided and waited to be written when Redis was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_anew_is_what_was_answered_also_of_requests_that_were_under_way() {
    // Redis comes back before the lease is over, and after.
    for pause in [Duration::from_millis(2_800), Duration::from_secs(7)] {
        // A busy machine may end Redis when all is done already.
        let mut counts = Vec::new();
        loop {
            let Some((refused, unknown)) = ended_beneath_requests(pause).await else { return };
            if refused > 100 && unknown > 0 {
                break;
            }
            counts.push((refused, unknown));
            assert!(counts.len() < 5, "refused and unknown: {counts:?}, so nothing was under way");
        }
    }
}

/// Ends Redis while requests are under way, starts it again, empty, after this pause, and compares what was answered with what
/// is there then. Returns how many requests were refused, and of how many the outcome is unknown; none if there is no Redis.
async fn ended_beneath_requests(pause: Duration) -> Option<(usize, usize)> {
    const OWNERS: usize = 3_000;
    let mut nodes = Nodes::set(Setting { alone: true, ..Setting::default() })?;
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]})).await;
    let ask =
        |n: usize, method: &str| (method.to_owned(), json!({"network": "lan", "owner": format!("o{}", n % OWNERS)}));
    // Every owner asks for an address, every second one releases its own, and all ask again.
    let calls: Vec<_> = (0..OWNERS)
        .map(|n| ask(n, "ip.allocate"))
        .chain((0..OWNERS).step_by(2).map(|n| ask(n, "ip.release")))
        .chain((0..OWNERS).map(|n| ask(n, "ip.allocate")))
        .collect();
    let asked = calls.clone();
    let asking = tokio::spawn(async move { client.call_all(calls).await });
    let mut looking = nodes.client(0).await;
    let held = json!({"network": "lan", "count_only": true});
    while insist(&mut looking, "ip.list", &held).await["count"].as_u64() < Some(200) {}
    nodes.redis.end();
    nodes.redis.forget();
    tokio::time::sleep(pause).await;
    nodes.redis.begin();
    let answers = asking.await.unwrap();
    eventually("it is written anew", || written(&nodes) == 1).await;

    let mut told: HashMap<String, Option<Option<String>>> = HashMap::new();
    let (mut refused, mut unknown) = (0, 0);
    for ((method, params), answer) in asked.iter().zip(answers) {
        let of_owner = told.entry(params["owner"].as_str().unwrap().to_owned()).or_insert(Some(None));
        match answer {
            Answer::Result(result) if method == "ip.allocate" => {
                *of_owner = Some(Some(result["address"].as_str().unwrap().to_owned()));
            }
            Answer::Result(_) => *of_owner = Some(None),
            Answer::Refused(kind, error) if error["data"]["applied"] == "unknown" => {
                assert_eq!(kind, "unavailable", "{error}");
                (*of_owner, unknown) = (None, unknown + 1);
            }
            Answer::Refused(kind, error) if kind == "not_found" => assert_eq!(*of_owner, Some(None), "{error}"),
            Answer::Refused(..) => refused += 1,
            // The connection ended before the answer came.
            Answer::Lost => *of_owner = None,
        }
    }
    let list = again(&nodes).await.list_all().await;
    let there: HashMap<_, _> = list.iter().map(|held| (held["owner"].as_str().unwrap(), &held["address"])).collect();
    let wrong: Vec<_> = told
        .iter()
        .filter(|(owner, told)| {
            told.as_ref()
                .is_some_and(|told| *told != there.get(owner.as_str()).map(|at| at.as_str().unwrap().to_owned()))
        })
        .take(5)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?} of {} were told, after {pause:?}\n{}", told.len(), nodes.logs());
    Some((refused, unknown))
}

/// Redis is emptied again while the register is being written. What is there then was written by this node, which deletes
/// it: no other node has the register.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_whose_redis_is_emptied_again_while_it_is_written_anew_is_written_all_the_same() {
    const HELD: usize = 4_000;
    /// How many keys Redis has when it is emptied again: when the writing has just begun, and in the middle of it.
    const KEYS: [&str; 3] = ["0", "30", "50"];
    const WHILE_IT_IS_WRITTEN: &str = "if redis.call('HEXISTS', KEYS[1], 'moved') == 0 or redis.call('DBSIZE') < \
                                       tonumber(ARGV[1]) then return 0 end redis.call('FLUSHALL') return 1";
    let Some(nodes) = Nodes::set(Setting { alone: true, redis: &[], ..Setting::default() }) else { return };
    let mut client = nodes.client(0).await;
    insist(&mut client, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]})).await;
    let calls = (0..HELD).map(|n| ("ip.allocate".to_owned(), json!({"network": "lan", "owner": format!("o{n}")})));
    let granted = client.call_all(calls.collect()).await;
    assert!(granted.iter().all(|answer| matches!(answer, Answer::Result(_))));
    let (mut again, mut whole) = (0, 0);
    nodes.redis.ask(&["FLUSHALL"]);
    while let Some(keys) = KEYS.get(again) {
        again += nodes.redis.number(&["EVAL", WHILE_IT_IS_WRITTEN, "1", "{allod}:register", keys]) as usize;
        if written(&nodes) > whole {
            // The register was whole before the script found the right moment, so it is emptied once more.
            whole = written(&nodes);
            nodes.redis.ask(&["FLUSHALL"]);
        }
        assert!(!nodes.logs().contains("not written again from memory"), "{}", nodes.logs());
    }
    eventually("it is written anew", || written(&nodes) > whole).await;
    let list = self::again(&nodes).await.list_all().await;
    assert_eq!(list.len(), HELD);
}
