//! The owner and the primary of its register are cut off together from sentinels, replica and the other node. What that side
//! can still acknowledge is what the settings promise (deploy/README.md, *Two owners side by side*).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::cut_off::{watched, wire};
use super::redis::Redis;
use super::run::{Keeper, Nodes, Run, Setting, eventually, insist};
use super::seed::seed;
use super::sentinels::Watched;
use super::wire::{Way, Wire};

/// The server that is the primary at first, and its replica.
const PRIMARY: usize = 0;
const REPLICA: usize = 1;

/// Sentinels that are reached through wires and that name wires.
struct Between {
    keeper: Watched,
    servers: Vec<Wire>,
    sentinels: Vec<Wire>,
}

impl Between {
    fn start() -> Option<Self> {
        let (keeper, servers) = watched()?;
        let sentinels = keeper.sentinel_ports().into_iter().map(wire).collect();
        Some(Self { keeper, servers, sentinels })
    }

    /// Cuts the primary off from all nodes but this owner, and this owner off from everything but the primary.
    fn cut(nodes: &Nodes<Self>, ways: &Ways) {
        let Self { keeper, servers, .. } = &nodes.redis;
        servers[PRIMARY].hold(Way::Both);
        ways.servers[REPLICA].hold(Way::Both);
        ways.sentinels.iter().chain(&nodes.cluster.to_node).for_each(|wire| wire.hold(Way::Both));
        keeper.miss_again();
    }

    fn heal(nodes: &Nodes<Self>, ways: &Ways) {
        // However slow all of this is, no other server is promoted.
        nodes.redis.keeper.miss_nobody();
        let wires = nodes.redis.servers.iter().chain(&nodes.cluster.to_node);
        wires.chain(&ways.servers).chain(&ways.sentinels).for_each(Wire::release);
    }

    fn has_failed_over(&self) -> bool {
        self.keeper.is_primary_at(REPLICA, self.servers[REPLICA].address.port())
    }
}

impl Keeper for Between {
    fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|wire| wire.address.to_string()).collect();
        format!("redis+sentinel://{}/register", hosts.join(","))
    }
}

/// The wires that only the owner uses.
struct Ways {
    servers: Vec<Wire>,
    sentinels: Vec<Wire>,
}

impl Ways {
    async fn of(nodes: &Nodes<Between>, owner: usize) -> Self {
        let Between { servers, sentinels, .. } = &nodes.redis;
        let ways =
            Self { servers: nodes.cluster.apart(owner, servers), sentinels: nodes.cluster.apart(owner, sentinels) };
        // By then everything that asks once a second or less often has connected again: after the cut no sentinel names the
        // primary to it.
        tokio::time::sleep(Duration::from_secs(5)).await;
        ways
    }
}

fn setting(store: &str) -> Setting<'_> {
    Setting { store, wired: true, ..Setting::default() }
}

fn ask(owner: &str) -> Value {
    json!({"network": "lan", "owner": owner})
}

async fn makes_lan(client: &mut Client) {
    let made = json!({"name": "lan", "subnets": [{"cidr": "10.200.0.0/24"}]});
    insist(client, "network.create", &made).await;
}

/// A grant, the repeat of one, and other requests that might be answered from memory.
fn asks(round: usize) -> Vec<(String, Value)> {
    let network = || json!({"network": "lan"});
    let calls = [
        ("ip.allocate", ask(&format!("new/{round}"))),
        ("ip.allocate", ask("known")),
        ("ip.release", ask("nobody")),
        ("ip.get", json!({"network": "lan", "address": "10.200.0.1"})),
        ("ip.list", network()),
        ("network.usage", network()),
    ];
    calls.into_iter().map(|(method, params)| (method.to_owned(), params)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_replica_waited_for_an_owner_that_is_cut_off_with_its_primary_acknowledges_and_shows_nothing() {
    let Some(between) = Between::start() else { return };
    let run = Run::over(between, setting("redis_replicas = 1"), seed()).await;
    let nodes = &run.nodes;
    let owner = nodes.cluster.owner_but(None).await;
    let mut client = nodes.client(owner).await;
    makes_lan(&mut client).await;
    insist(&mut client, "ip.allocate", &ask("known")).await;
    let ways = Ways::of(nodes, owner).await;
    run.gets_on(200, "by wires of its own").await;
    Between::cut(nodes, &ways);
    // From here to the end of the cut the client asks without a pause.
    let (over, mut is_over) = tokio::sync::oneshot::channel::<()>();
    let cut_off = tokio::spawn(async move {
        let mut refused = Vec::new();
        while is_over.try_recv().is_err() {
            let asked = asks(refused.len());
            for ((method, _), answer) in asked.iter().zip(client.call_all(asked.clone()).await) {
                let Answer::Refused(_, error) = answer else { panic!("{method}: {answer:?}") };
                refused.push(format!("{method}: {}", error["message"]));
            }
        }
        refused
    });
    eventually("the replica is promoted", || nodes.redis.has_failed_over()).await;
    let place = nodes.directory.path().join("third");
    std::fs::create_dir(&place).unwrap();
    let primary = nodes.redis.servers[REPLICA].address.port().to_string();
    let follows = ["--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1", &primary];
    let third = Redis::start(&place, &follows).unwrap();
    assert_eq!(nodes.cluster.owner_but(Some(owner)).await, 1 - owner, "the other side goes on");
    run.gets_on(300, "at the other node").await;
    assert!(third.follows() && ways.sentinels.iter().any(|wire| wire.held() > 0), "{}", nodes.logs());
    over.send(()).unwrap();
    // The node refused what it could have done with a replica.
    let refused = cut_off.await.unwrap();
    let why = |method: &str| {
        refused.iter().any(|said| said.starts_with(method) && said.contains("1 replicas wanted, 0 answer"))
    };
    assert!(["ip.allocate", "ip.get"].into_iter().all(why), "{:#?}", &refused[..12]);
    Between::heal(nodes, &ways);
    insist(&mut nodes.client(owner).await, "ip.allocate", &ask("known")).await;
    run.gets_on(200, "after the cut healed").await;
    let conflicts = insist(&mut nodes.client(owner).await, "cluster.conflicts", &json!({})).await;
    assert_eq!(conflicts, json!({"conflicts": []}), "{}", nodes.logs());
    (0..2).for_each(|node| nodes.cluster.serves_still(node));
    run.end().await;
}

/// Grants of the side that is cut off, and how many of their addresses the other side grants, too.
const LOST: usize = 20;
const TAKEN: usize = 5;

/// Both sides have granted addresses: the owner some that only its primary knows of, the other node some of the same addresses.
struct Apart {
    nodes: Nodes<Between>,
    owner: usize,
    ways: Ways,
    /// By address: whom each side told that the address is his.
    lost: BTreeMap<String, String>,
    taken: BTreeMap<String, String>,
}

impl Apart {
    async fn begin() -> Option<Self> {
        let nodes = Nodes::over(tempfile::tempdir().unwrap(), Between::start()?, setting("redis_replicas = 0"));
        let owner = nodes.cluster.owner_but(None).await;
        let mut old = nodes.client(owner).await;
        makes_lan(&mut old).await;
        let ways = Ways::of(&nodes, owner).await;
        // One change and one repeat, so that each of the owner's connections exists before no sentinel names the primary any
        // more.
        for created in [true, false] {
            assert_eq!(insist(&mut old, "ip.allocate", &ask("known")).await["created"], created);
        }
        let [primary, replica] = &nodes.redis.keeper.servers;
        eventually("the replica has it", || replica.of_heads("seq") == primary.of_heads("seq")).await;
        Between::cut(&nodes, &ways);
        let mut lost = BTreeMap::new();
        for n in 0..LOST {
            let owner = format!("lost/{n}");
            let granted = insist(&mut old, "ip.allocate", &ask(&owner)).await;
            lost.insert(granted["address"].as_str().unwrap().to_owned(), owner);
        }
        assert_eq!(nodes.cluster.owner_but(Some(owner)).await, 1 - owner);
        let mut new = nodes.client(1 - owner).await;
        let mut taken = BTreeMap::new();
        for n in 0..TAKEN {
            let owner = format!("other/{n}");
            let granted = insist(&mut new, "ip.allocate", &ask(&owner)).await;
            taken.insert(granted["address"].as_str().unwrap().to_owned(), owner);
        }
        // Both nodes are owners at the same time.
        insist(&mut old, "ip.allocate", &ask("lost/0")).await;
        let owns = |node| nodes.cluster.figure(node, "allod_owner");
        assert_eq!([owns(0), owns(1)], [1.0; 2], "{}", nodes.logs());
        let log = nodes.cluster.log(owner);
        assert!(log.contains("not say who the primary is"), "{log}");
        Some(Self { nodes, owner, ways, lost, taken })
    }

    /// The cut is over. What the owner acknowledged is not lost, and what was granted twice is reported.
    async fn comes_back(&self) {
        let Self { nodes, owner, lost, taken, .. } = self;
        let (owner, mut new) = (*owner, nodes.client(1 - owner).await);
        let became = |became: &str| {
            nodes.cluster.figure(owner, &format!("allod_late_claims_total{{became=\"{became}\"}}")) as usize
        };
        eventually("it brings what it has", || became("healed") + became("conflict") >= LOST).await;
        assert_eq!((became("healed"), became("conflict")), (LOST - TAKEN, TAKEN), "{}", nodes.logs());
        for (address, owner) in lost.iter().chain([(&"10.200.0.1".to_owned(), &"known".to_owned())]) {
            let got = insist(&mut new, "ip.get", &json!({"network": "lan", "address": address})).await;
            let holder = taken.get(address).unwrap_or(owner);
            assert_eq!(got["reservation"]["owner"], json!(holder), "{address}");
        }
        let conflicts = insist(&mut new, "cluster.conflicts", &json!({"network": "lan"})).await;
        let told = conflicts["conflicts"].as_array().unwrap().iter().map(|conflict| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let owners = (text(&conflict["late"]["owner"]), text(&conflict["present"]["owner"]));
            (text(&conflict["address"]), owners)
        });
        let twice = taken.iter().map(|(address, owner)| (address.clone(), (lost[address].clone(), owner.clone())));
        assert_eq!(told.collect::<BTreeMap<_, _>>(), twice.collect(), "{conflicts}");
        let Answer::Refused(kind, error) = new.call("ip.allocate", ask("new")).await else { panic!("it grants") };
        assert_eq!((kind.as_str(), &error["data"]["reason"]), ("not_ready", &json!("conflicts")), "{error}");
    }
}

/// Nothing told the owner about the other one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_owner_acknowledged_that_was_cut_off_with_its_primary_comes_back_as_claims_and_conflicts() {
    let Some(apart) = Apart::begin().await else { return };
    Between::heal(&apart.nodes, &apart.ways);
    apart.comes_back().await;
}

/// The owner's primary has everything, but nobody goes on from it; what was only in the owner's memory is on its disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_owner_acknowledged_that_is_stopped_while_it_is_cut_off_with_its_primary_comes_back_when_it_is_started()
{
    let Some(mut apart) = Apart::begin().await else { return };
    apart.nodes.cluster.stop(apart.owner);
    let log = apart.nodes.cluster.log(apart.owner);
    assert!(log.contains("the next start gives back what is missing"), "{log}");
    Between::heal(&apart.nodes, &apart.ways);
    let [primary, replica] = &apart.nodes.redis.keeper.servers;
    eventually("the old primary follows the new one", || primary.follows() && !replica.follows()).await;
    apart.nodes.cluster.again(apart.owner);
    apart.comes_back().await;
}
