//! Nodes are taken out of service and put back, one after the other, while clients of every node work.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use allod::actors::coordinator::{Job, Order};
use allod::actors::nodes::NodeJob;
use allod::actors::{Told, outlet};
use allod::limits::HANDOVER_HOLD_MS;
use allod::peer::link::Link;
use allod::peer::secret::Secret;
use allod::peer::{Identity, NO_CLIENT, NodeId, Versions};
use serde_json::{Value, json};

use super::client::Answer;
use super::load::make_networks;
use super::run::{Nodes, Run, Setting, eventually, insist};
use super::seed::number;
use super::wire::Way;

/// The owner whose event is the last one that the streams wait for.
const LAST: &str = "the-last";

/// What the nodes logged about the pause of each hand-over. The successor loads beside the owner: what it has ready is what it
/// goes on with, though a busy machine may be too late with it now and then.
#[track_caller]
fn pauses(run: &Run) -> Vec<String> {
    let logs = run.nodes.logs();
    let took = logs.lines().filter_map(|line| line.split_once("took the register over from its owner"));
    let took: Vec<_> = took.map(|(_, figures)| figures.trim().to_owned()).collect();
    assert!(took.iter().any(|figures| figures.contains("ready=true")), "all was loaded in the pause: {took:?}\n{logs}");
    took
}

/// The owners in the events of network `watched`, as a node streams them over HTTP, up to the last one.
fn streamed(http: SocketAddr) -> JoinHandle<Vec<String>> {
    let mut socket = TcpStream::connect(http).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A response of HTTP/1.0 is not chunked.
    socket.write_all(b"GET /events?network=watched HTTP/1.0\r\n\r\n").unwrap();
    let mut lines = BufReader::new(socket).lines();
    // From here on the stream misses no event.
    let begun = lines.by_ref().find(|line| line.as_ref().unwrap().starts_with("retry: "));
    assert!(begun.is_some(), "it begins");
    std::thread::spawn(move || {
        let mut owners: Vec<String> = Vec::new();
        while owners.last().is_none_or(|owner| owner != LAST) {
            let line = lines.next().expect("a stream does not end with an owner").unwrap();
            assert!(line != "event: lagged" && line != "event: cursor_lost", "{line}");
            let event: Option<Value> = line.strip_prefix("data: ").map(|data| serde_json::from_str(data).unwrap());
            owners.extend(event.and_then(|event| Some(event["owner"].as_str()?.to_owned())));
        }
        owners
    })
}

async fn drain(run: &Run, asked: usize, params: Value) -> Value {
    run.nodes.client(asked).await.call("cluster.drain", params).await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained_under_load_and_no_client_is_put_off() {
    let Some(nodes) = Nodes::start(3, &[]) else { return };
    let run = Run::begin(nodes, 6, 7).await;
    run.gets_on(400, "before anything is drained").await;
    let mut owner = run.nodes.cluster.owner_but(None).await;
    let mut client = run.nodes.client(0).await;
    let subnets = json!([{"cidr": "10.250.0.0/24"}]);
    client.call("network.create", json!({"name": "watched", "realm": "watched", "subnets": subnets})).await.ok();
    let streams: Vec<_> = (0..3).map(|node| streamed(run.nodes.cluster.http(node))).collect();
    run.load.longest_pause();
    for round in 0..4 {
        client.call("ip.allocate", json!({"network": "watched", "owner": format!("round-{round}")})).await.ok();
        let name = format!("node-{owner}");
        // The request goes to the node itself, or to another one with the node's name.
        let (asked, params) =
            if round % 2 == 0 { (owner, json!({})) } else { ((owner + 1) % 3, json!({"node": name})) };
        let drained = drain(&run, asked, params.clone()).await;
        let next = run.nodes.cluster.owner_but(Some(owner)).await;
        assert_eq!(drained, json!({"node": name, "draining": true, "owner": format!("node-{next}")}));
        assert_eq!(drain(&run, asked, params.clone()).await, drained, "once more changes nothing");
        run.gets_on(200, "after a node was drained").await;
        let nodes = run.nodes.client(asked).await.call("cluster.nodes", json!({})).await.ok();
        for node in nodes["nodes"].as_array().unwrap() {
            assert_eq!(node["draining"], node["name"] == name.as_str(), "{nodes}");
        }
        let mut params = params;
        params["drain"] = json!(false);
        assert_eq!(drain(&run, asked, params).await["draining"], false);
        eprintln!("round {round}: clients stood still for {:?}", run.load.longest_pause());
        owner = next;
    }
    client.call("ip.allocate", json!({"network": "watched", "owner": LAST})).await.ok();
    for stream in streams {
        // Whichever nodes were drained, over all hand-overs no event is missing and none comes twice.
        assert_eq!(stream.join().unwrap(), ["round-0", "round-1", "round-2", "round-3", LAST]);
    }
    eprintln!("pauses: {:#?}", pauses(&run));
    assert_eq!(pauses(&run).len(), 4);
    let load = std::sync::Arc::clone(&run.load);
    let verdict = run.end().await;
    assert!(verdict.sure_holdings > 500, "{} sure holdings", verdict.sure_holdings);
    assert_eq!(verdict.unknown, 0, "requests of which nobody knows what became");
    assert_eq!(load.put_off.load(Ordering::Relaxed), 0, "requests that were put off");
}

/// A node out of service takes the register only if no other node can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_node_leaves_the_register_to_others_while_there_are_any() {
    let Some(nodes) = Nodes::start(3, &[]) else { return };
    let mut run = Run::begin(nodes, 4, 8).await;
    run.gets_on(200, "before anything is drained").await;
    let drained = run.nodes.cluster.owner_but(None).await;
    let said = run.nodes.cluster.allod(drained, &["cluster", "drain"]);
    assert!(said.contains("draining") && said.contains("owner"), "{said}");
    assert!(run.nodes.cluster.allod(drained, &["cluster", "nodes"]).contains("follower, draining"));
    // The other nodes end one after the other, without notice. As long as one of them is left, it takes over, not the
    // drained node.
    let second = run.nodes.cluster.owner_but(Some(drained)).await;
    run.nodes.cluster.kill(second);
    let third = 3 - drained - second;
    run.load.moved(second, run.nodes.cluster.address(third));
    assert_eq!(run.nodes.cluster.owner_but(None).await, third);
    run.gets_on(200, "after one was killed").await;
    // The last node in service cannot be drained.
    let Answer::Refused(kind, error) = run.nodes.client(third).await.call("cluster.drain", json!({})).await else {
        panic!("nobody is in service any more")
    };
    assert_eq!(kind, "in_use", "{error}");
    run.nodes.cluster.kill(third);
    for gone in [second, third] {
        run.load.moved(gone, run.nodes.cluster.address(drained));
    }
    assert_eq!(run.nodes.cluster.owner_but(None).await, drained, "rather this one than nobody");
    run.gets_on(200, "on the only node that is left").await;
    let undone = run.nodes.cluster.allod(drained, &["cluster", "drain", "--undo", "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&undone).unwrap()["draining"], false);
    run.end().await;
}

/// The nodes that are out of service, and the owner of the register, as this node sees them.
async fn standings(nodes: &Nodes, asked: usize) -> (Vec<String>, Option<String>) {
    let told = nodes.client(asked).await.call("cluster.nodes", json!({})).await.ok();
    let told = told["nodes"].as_array().unwrap().clone();
    let names = |member: &str| told.iter().filter(|node| node[member] == true).map(name_of).collect::<Vec<_>>();
    (names("draining"), names("owner").pop())
}

fn name_of(node: &Value) -> String {
    node["name"].as_str().unwrap().to_owned()
}

/// Whoever was told that the node is out of service will stop it next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_goes_out_of_service_while_it_gets_ready_is_not_given_the_register() {
    let setting = Setting { redis: &[], nodes: 3, store: "shards = 16\n", wired: true, ..Setting::default() };
    let Some(nodes) = Nodes::set(setting) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    let others = [(owner + 1) % 3, (owner + 2) % 3];
    // The node that gets ready needs long for it.
    others.iter().for_each(|&node| nodes.to_redis(node).delay(Duration::from_millis(60)));
    let mut client = nodes.client(owner).await;
    let draining = tokio::spawn(async move { client.call("cluster.drain", json!({})).await });
    let gets_ready = |node: &usize| nodes.cluster.log(*node).contains("gets ready to take the register over");
    eventually("one gets ready", || others.iter().any(gets_ready)).await;
    let first = others.into_iter().find(gets_ready).unwrap();
    let last = others.into_iter().find(|&node| node != first).unwrap();
    nodes.client(first).await.call("cluster.drain", json!({})).await.ok();
    let log = nodes.cluster.log(first);
    assert!(!log.contains("ready to take the register over took_ms"), "it was ready before, nothing was tested: {log}");
    let drained = draining.await.unwrap().ok();
    assert_eq!(drained["owner"], format!("node-{last}"), "{}", nodes.logs());
    assert_eq!(nodes.cluster.owner_but(Some(owner)).await, last);
}

/// The node had to take the register, because no other node was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_out_of_service_gives_the_register_to_one_in_service_as_soon_as_there_is_one() {
    let Some(nodes) = Nodes::start(2, &[]) else { return };
    let mut run = Run::begin(nodes, 2, 11).await;
    run.gets_on(100, "before anything is drained").await;
    let owner = run.nodes.cluster.owner_but(None).await;
    let drained = 1 - owner;
    drain(&run, drained, json!({})).await;
    run.nodes.cluster.kill(owner);
    run.load.moved(owner, run.nodes.cluster.address(drained));
    assert_eq!(run.nodes.cluster.owner_but(None).await, drained, "rather this one than nobody");
    run.gets_on(100, "on the only node that is left").await;
    let address = run.nodes.cluster.again(owner);
    run.load.moved(owner, address);
    assert_eq!(run.nodes.cluster.owner_but(Some(drained)).await, owner);
    run.gets_on(100, "on the node in service").await;
    let drained = format!("node-{drained}");
    assert_eq!(standings(&run.nodes, owner).await, (vec![drained], Some(format!("node-{owner}"))));
    run.end().await;
}

/// This holds for a node that does not own the register, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_drains_a_node_by_way_of_one_that_does_not_reach_it_is_told_that() {
    let Some(nodes) = Nodes::set(Setting { redis: &[], wired: true, ..Setting::default() }) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    let other = 1 - owner;
    nodes.cluster.to_node[other].hold(Way::Both);
    let params = json!({"node": format!("node-{other}")});
    let answer = nodes.client(owner).await.call("cluster.drain", params).await;
    let Answer::Refused(kind, error) = answer else { panic!("{answer:?}") };
    assert_eq!((kind.as_str(), &error["data"]["applied"]), ("unavailable", &json!(false)), "{error}");
    let message = error["message"].as_str().unwrap();
    let says = format!("node `node-{other}` cannot be reached from `node-{owner}`: no connection to node ");
    assert!(message.contains(&says) && message.contains("; ask it directly"), "{message}");
}

/// A follower that holds requests, because its owner told it to, and that then hears nothing more of the hand-over; and a
/// moment before that.
async fn holding(nodes: &Nodes) -> (usize, Instant) {
    let owner = nodes.cluster.owner_but(None).await;
    let follower = 1 - owner;
    make_networks(&mut nodes.client(follower).await, 1).await;
    let card = nodes.redis.text(&["HGET", "{allod}:nodes", &format!("node-{follower}")]);
    let address = card.split(' ').nth(4).unwrap().to_owned();
    let own = Identity {
        node: NodeId(7),
        name: "gone".into(),
        register: nodes.redis.text(&["HGET", "{allod}:register", "register"]).into(),
        shards: u16::try_from(nodes.redis.number(&["HGET", "{allod}:register", "shards"])).unwrap(),
        build: "0.1.0".into(),
    };
    let secret = Secret::read(&nodes.directory.path().join("secret")).unwrap();
    let link = Link::start(&tokio::runtime::Handle::current(), address, (Arc::new(own), Versions::SPOKEN), secret);
    assert!(link.connected(Duration::from_secs(10)).await, "{:?}", *link.state().borrow());
    let hold = |owner: String| Order {
        job: Job::Node(NodeJob::Hold { successor: "nobody".into(), owner: owner.into() }),
        by: "node".into(),
        reason: None,
        deadline: None,
        dry_run: false,
        wait: None,
    };
    // A follower holds nothing for a node that is no longer the owner, however late that node's word arrives.
    let (out, mut told) = outlet();
    link.job(NO_CLIENT, 0, hold("before".to_owned()), &out);
    let Some(Told::Job(_, Err(refused))) = told.recv().await else { panic!("it is held") };
    assert!(refused.problem().contains("not `before`'s any more"), "{}", refused.problem());
    let begun = Instant::now();
    link.job(NO_CLIENT, 0, hold(format!("node-{owner}")), &out);
    assert!(matches!(told.recv().await, Some(Told::Job(_, Ok(_)))));
    (follower, begun)
}

/// The effect of a drain on clients is bounded: a node that was told to hold, and then hears nothing more, goes on as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_for_a_hand_over_that_never_comes_is_held_for_ten_seconds_and_answered_then() {
    let Some(nodes) = Nodes::start(2, &[]) else { return };
    let (follower, begun) = holding(&nodes).await;
    nodes.client(follower).await.call("ip.allocate", json!({"network": "net-0", "owner": "a"})).await.ok();
    let took = begun.elapsed();
    let held = Duration::from_millis(HANDOVER_HOLD_MS);
    assert!(held <= took && took < 2 * held, "{took:?}");
}

/// A node that holds requests asks Redis whether the register has an owner by now, so Redis must not keep it waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_for_a_hand_over_is_refused_in_time_where_redis_stands_still_meanwhile() {
    let Some(nodes) = Nodes::start(2, &[]) else { return };
    let (follower, _) = holding(&nodes).await;
    nodes.redis.signal("-STOP");
    let begun = Instant::now();
    let answer = nodes.client(follower).await.call("ip.allocate", json!({"network": "net-0", "owner": "a"})).await;
    let took = begun.elapsed();
    assert!(
        matches!(&answer, Answer::Refused(kind, _) if ["unavailable", "not_ready"].contains(&kind.as_str())),
        "{answer:?}"
    );
    let most = Duration::from_millis(3 * HANDOVER_HOLD_MS);
    assert!(took < most, "{took:?}: {answer:?}");
    nodes.redis.signal("-CONT");
    insist(&mut nodes.client(follower).await, "ip.allocate", &json!({"network": "net-0", "owner": "a"})).await;
}

/// Reservations in the large register (`ALLOD_MANY` overrides it), and small networks beside it (`ALLOD_NETWORKS`).
const MANY: usize = 20_000;
const NETWORKS: usize = 200;
/// Addresses of one request, and requests that are under way at once.
const EACH: usize = 256;
const AT_ONCE: usize = 32;

/// Makes small networks, fills a large one, and returns how many reservations that one holds.
async fn fill(run: &Run, many: usize, networks: usize) -> usize {
    let mut client = run.nodes.client(0).await;
    let subnet = json!({"cidr": "10.128.0.0/9"});
    client.call("network.create", json!({"name": "large", "subnets": [subnet]})).await.ok();
    let mut calls = Vec::new();
    for at in 0..networks {
        let subnet = json!({"cidr": format!("172.{}.{}.0/27", 16 + at / 256 % 16, at % 256)});
        let params = json!({"name": format!("small-{at}"), "realm": format!("r{}", at / 4_096), "subnets": [subnet]});
        calls.push(("network.create".to_owned(), params));
    }
    for at in 0..many.div_ceil(EACH) {
        let ips: Vec<Value> = (0..EACH).map(|_| json!({"network": "large"})).collect();
        calls.push(("ip.acquire".to_owned(), json!({"owner": format!("host/{at}"), "ips": ips, "brief": true})));
    }
    for some in calls.chunks(AT_ONCE) {
        for answer in client.call_all(some.to_vec()).await {
            answer.ok();
        }
    }
    many.div_ceil(EACH) * EACH
}

/// Prints how long clients stood still while a large register went to the other node and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_register_is_handed_over_whole() {
    let Some(nodes) = Nodes::start(2, &[]) else { return };
    let run = Run::begin(nodes, 4, 9).await;
    let many = |variable, otherwise| number(variable).map_or(otherwise, |many| usize::try_from(many).unwrap());
    let held = fill(&run, many("ALLOD_MANY", MANY), many("ALLOD_NETWORKS", NETWORKS)).await;
    let mut owner = run.nodes.cluster.owner_but(None).await;
    run.load.longest_pause();
    for _ in 0..2 {
        let begun = std::time::Instant::now();
        drain(&run, owner, json!({})).await;
        let took = begun.elapsed();
        let next = run.nodes.cluster.owner_but(Some(owner)).await;
        run.gets_on(100, "after the register was handed over").await;
        eprintln!("{held} reservations: drained in {took:?}, clients stood still for {:?}", run.load.longest_pause());
        drain(&run, owner, json!({"drain": false})).await;
        let usage = run.nodes.client(next).await.call("network.usage", json!({"network": "large"})).await.ok();
        assert_eq!(usage["reservations"], held, "{usage}");
        owner = next;
    }
    eprintln!("pauses: {:#?}", pauses(&run));
    let load = std::sync::Arc::clone(&run.load);
    run.end().await;
    assert_eq!(load.put_off.load(Ordering::Relaxed), 0, "requests that were put off");
}
