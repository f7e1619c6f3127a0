//! The story of R-9 (`allod::consistency`): a node acknowledges what the replica lacks, and stands still; the replica is
//! promoted, and another node goes on from there; then the first node wakes. What it acknowledged is not lost, and no holder
//! is put out: an address that is still free is held again, and one that is not waits for an operator.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::client::Answer;
use super::redis::Redis;
use super::run::{Nodes, Setting, eventually, insist, settled};

/// Grants that only the primary has.
const LOST: usize = 20;
/// How many of these addresses were granted to somebody else meanwhile.
const TAKEN: usize = 5;

/// Renews a reservation that the replica has, too.
fn renewal(seconds: u32) -> Value {
    json!({"network": "lan", "owner": "kept/8", "ttl_seconds": seconds})
}

struct Story {
    nodes: Nodes,
    replica: Redis,
    /// By owner: the address and the generation that the first node answered.
    lost: BTreeMap<String, (String, u64)>,
}

fn granted(answer: &Value) -> (String, u64) {
    (answer["address"].as_str().unwrap().to_owned(), answer["generation"].as_u64().unwrap())
}

fn ask(owner: &str) -> Value {
    json!({"network": "lan", "owner": owner})
}

impl Story {
    /// Runs the story up to the point where the first node, which owns the register, has acknowledged what the replica lacks.
    async fn begin(directory: &Path) -> Option<Self> {
        let primary = Redis::replicating(directory, "primary", None)?;
        let replica = Redis::replicating(directory, "replica", Some(primary.port()))?;
        eventually("the replica follows", || replica.follows()).await;
        let setting = Setting { nodes: 2, wired: true, ..Setting::default() };
        let nodes = Nodes::over(tempfile::tempdir().unwrap(), primary, setting);
        assert_eq!(nodes.cluster.owner_but(None).await, 0);
        let mut client = nodes.client(0).await;
        for (network, cidr) in [("lan", "10.0.0.0/24"), ("other", "10.0.1.0/24")] {
            let made = json!({"name": network, "subnets": [{"cidr": cidr}]});
            insist(&mut client, "network.create", &made).await;
        }
        for n in 0..10 {
            insist(&mut client, "ip.allocate", &ask(&format!("kept/{n}"))).await;
        }
        insist(&mut client, "ip.renew", &renewal(3_600)).await;
        eventually("the replica has it", || replica.of_heads("seq") == nodes.redis.of_heads("seq")).await;
        replica.signal("-STOP");
        nodes.redis.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
        let mut lost = BTreeMap::new();
        for n in 0..LOST {
            let owner = format!("lost/{n}");
            let answer = insist(&mut client, "ip.allocate", &ask(&owner)).await;
            assert_eq!(answer["created"], true);
            lost.insert(owner, granted(&answer));
        }
        insist(&mut client, "ip.release", &ask("kept/9")).await;
        Some(Self { nodes, replica, lost })
    }

    /// The first node stands still, the replica is promoted, and the second node goes on from there.
    async fn go_on(&mut self) {
        let Self { nodes, replica, .. } = self;
        nodes.cluster.signal(0, "-STOP");
        nodes.redis.end();
        replica.signal("-CONT");
        replica.ask(&["REPLICAOF", "NO", "ONE"]);
        for node in 0..2 {
            nodes.lead(node, replica);
        }
        assert_eq!(nodes.cluster.owner_but(Some(0)).await, 1);
    }

    fn figure(&self, node: usize, name: &str) -> f64 {
        self.nodes.cluster.figure(node, name)
    }

    /// The first node wakes and brings what it acknowledged to the new owner.
    async fn wake(&self) {
        self.nodes.cluster.signal(0, "-CONT");
        let brought = || {
            let of = |became: &str| self.figure(0, &format!("allod_late_claims_total{{became=\"{became}\"}}"));
            of("healed") + of("standing") + of("conflict") + of("gone") >= LOST as f64
                && self.figure(0, "allod_late_batches") == 0.0
        };
        eventually("what was acknowledged is brought to the owner", brought).await;
        self.nodes.cluster.serves_still(0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_acknowledged_before_another_went_on_without_it_is_given_back_when_it_wakes() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut story) = Story::begin(directory.path()).await else { return };
    let renewed = insist(&mut story.nodes.client(0).await, "ip.renew", &renewal(36_000)).await;
    story.go_on().await;
    let mut client = story.nodes.client(1).await;
    let listed = insist(&mut client, "ip.list", &json!({"network": "lan", "owner_prefix": "lost/"})).await;
    assert_eq!(listed["reservations"], json!([]), "nothing was lost, so nothing is tested");
    // After the wake-up an owner who asks again has what he was told before.
    story.wake().await;
    for (owner, known) in &story.lost {
        let again = insist(&mut client, "ip.allocate", &ask(owner)).await;
        assert_eq!((again["created"].clone(), granted(&again)), (json!(false), known.clone()), "{owner}");
    }
    let got = insist(&mut client, "ip.get", &json!({"address": renewed["address"]})).await;
    let left = got["reservation"]["expires_in_seconds"].as_u64();
    assert!(left > Some(30_000), "whoever renewed was told that it is his for longer: {renewed}, and then {got}");
    let conflicts = insist(&mut client, "cluster.conflicts", &json!({})).await;
    assert_eq!(conflicts, json!({"conflicts": []}));
    let history = insist(&mut client, "events.history", &json!({"network": "lan", "owner": "lost/7"})).await;
    let told: Vec<_> = history["events"].as_array().unwrap().iter().map(|event| &event["type"]).collect();
    assert_eq!(told, ["healed"]);
    let new = insist(&mut client, "ip.allocate", &ask("new")).await;
    assert!(!story.lost.values().any(|(address, _)| *address == granted(&new).0));
    let logs = story.nodes.logs();
    assert!(logs.contains("the register lacks changes, which are put aside"), "{logs}");
    // The release is not repeated; the log names it.
    let named =
        logs.lines().find(|line| line.contains("cut off, and not repeated")).unwrap_or_else(|| panic!("{logs}"));
    assert!(named.contains("what=\"released\"") && named.contains("kept/9"), "{named}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_to_another_meanwhile_waits_for_an_operator_over_every_restart() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut story) = Story::begin(directory.path()).await else { return };
    story.go_on().await;
    let mut client = story.nodes.client(1).await;
    let mut taken = BTreeMap::new();
    for n in 0..TAKEN {
        let owner = format!("other/{n}");
        let answer = insist(&mut client, "ip.allocate", &ask(&owner)).await;
        assert_eq!(answer["created"], true);
        taken.insert(granted(&answer).0, owner);
    }
    story.wake().await;
    let contested: Vec<_> = story.lost.iter().filter(|(_, (address, _))| taken.contains_key(address)).collect();
    assert_eq!(contested.len(), TAKEN, "the lowest free address was given twice");
    // The second node is killed; the node that takes over knows of the conflicts.
    story.nodes.cluster.kill(1);
    assert_eq!(story.nodes.cluster.owner_but(Some(1)).await, 0);
    let mut client = story.nodes.client(0).await;
    let listed = insist(&mut client, "cluster.conflicts", &json!({"network": "lan"})).await;
    let listed = listed["conflicts"].as_array().unwrap();
    assert_eq!(listed.len(), TAKEN, "{listed:?}");
    for conflict in listed {
        let (late, address) = (conflict["late"]["owner"].as_str().unwrap(), conflict["address"].as_str().unwrap());
        assert_eq!(story.lost[late], (address.to_owned(), conflict["late"]["generation"].as_u64().unwrap()));
        assert_eq!(conflict["present"]["owner"], json!(taken[address]));
    }
    // No holder was put out, and everybody else has what he was told.
    for (owner, known) in &story.lost {
        let got = insist(&mut client, "ip.get", &json!({"address": known.0})).await;
        let holder = taken.get(&known.0).unwrap_or(owner);
        assert_eq!(got["reservation"]["owner"], json!(holder));
    }
    // Nothing new is granted in the network, and everything else goes on.
    let refused = client.call("ip.allocate", ask("new")).await;
    let Answer::Refused(kind, data) = &refused else { panic!("{refused:?}") };
    assert_eq!((kind.as_str(), &data["data"]["reason"]), ("not_ready", &json!("conflicts")), "{data}");
    assert_eq!(insist(&mut client, "ip.allocate", &ask("kept/3")).await["created"], false);
    insist(&mut client, "ip.release", &ask("kept/4")).await;
    insist(&mut client, "ip.allocate", &json!({"network": "other", "owner": "new"})).await;
    assert_eq!(story.figure(0, "allod_network_conflicts{network=\"lan\",realm=\"default\"}"), TAKEN as f64);
    let history = insist(&mut client, "events.history", &json!({"network": "lan"})).await;
    let of = |kind: &str| history["events"].as_array().unwrap().iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of("conflict"), of("healed")), (TAKEN, LOST - TAKEN));
    let shards = story.nodes.cluster.allod(0, &["cluster", "shards"]);
    assert!(shards.contains(&format!("nothing new in 1 network with {TAKEN} conflicts")), "{shards}");
    // An operator decides.
    let (first, _) = contested[0].1;
    assert!(story.nodes.cluster.allod(0, &["cluster", "conflicts"]).contains(first.as_str()));
    story.nodes.cluster.allod(0, &["cluster", "accept", "lan", first, "--reason", "lost is told"]);
    let refused = settled(&mut client, "cluster.accept", &json!({"network": "lan", "address": first})).await;
    assert!(matches!(&refused, Answer::Refused(kind, _) if kind == "not_found"), "{refused:?}");
    let accepted = insist(&mut client, "cluster.accept", &json!({"network": "lan"})).await;
    assert_eq!(accepted["accepted"].as_array().unwrap().len(), TAKEN - 1);
    // A claim that is given up leaves a trace in the history.
    let history = insist(&mut client, "events.history", &json!({"network": "lan", "address": first})).await;
    let last = history["events"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["type"], &last["reason"], &last["before"]["owner"], &last["after"]["owner"]),
        (&json!("conflict"), &json!("lost is told"), &json!(contested[0].0), &json!(taken[first]))
    );
    let log = story.nodes.cluster.log(0);
    assert_eq!(log.matches("a late claim is given up").count(), TAKEN, "{log}");
    assert_eq!(insist(&mut client, "ip.allocate", &ask("new")).await["created"], true);
}

/// Such claims can be neither given back nor accepted: they would be brought again, with a warning, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_in_a_network_that_is_deleted_meanwhile_is_given_up_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut story) = Story::begin(directory.path()).await else { return };
    story.go_on().await;
    let mut client = story.nodes.client(1).await;
    insist(&mut client, "network.delete", &json!({"network": "lan", "purge": true})).await;
    story.wake().await;
    assert_eq!(story.figure(0, "allod_late_claims_total{became=\"gone\"}"), LOST as f64);
    let log = story.nodes.cluster.log(0);
    let said = log.lines().filter(|line| line.contains("a network that no longer exists is given up"));
    let said: String = said.collect::<Vec<_>>().join("\n");
    for (owner, (address, _)) in &story.lost {
        assert!(said.contains(&format!("{address} of `{owner}`")), "{owner}: {log}");
    }
}

/// The primary has everything when the node is stopped, but the replica that is promoted then does not. If the replica has
/// it, the node leaves nothing for its next start to bring.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_replica_lacks_when_a_node_is_stopped_is_given_back_when_that_is_started_at_the_replica() {
    let directory = tempfile::tempdir().unwrap();
    let Some(primary) = Redis::replicating(directory.path(), "primary", None) else { return };
    let replica = Redis::replicating(directory.path(), "replica", Some(primary.port())).unwrap();
    eventually("the replica follows", || replica.follows()).await;
    let mut nodes = Nodes::over(directory, primary, Setting { nodes: 1, wired: true, ..Setting::default() });
    let mut client = nodes.client(0).await;
    let made = json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]});
    insist(&mut client, "network.create", &made).await;
    let leaves = |nodes: &Nodes| nodes.cluster.log(0).matches("the next start gives back").count();
    // A stopping node asks the replica for a moment only, which may be too short on a busy machine.
    let mut left = 0;
    for _ in 0..10 {
        let before = leaves(&nodes);
        nodes.cluster.restart(0);
        left = leaves(&nodes);
        if left == before {
            break;
        }
    }
    assert!(left < 10, "{}", nodes.logs());
    replica.signal("-STOP");
    let mut client = nodes.client(0).await;
    let mut lost = Vec::new();
    for n in 0..LOST {
        let owner = format!("lost/{n}");
        lost.push((granted(&insist(&mut client, "ip.allocate", &ask(&owner)).await), owner));
    }
    nodes.cluster.stop(0);
    assert_eq!(leaves(&nodes), left + 1, "{}", nodes.logs());
    nodes.redis.end();
    replica.signal("-CONT");
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    nodes.lead(0, &replica);
    nodes.cluster.again(0);
    let mut client = nodes.client(0).await;
    for (known, owner) in &lost {
        let again = insist(&mut client, "ip.allocate", &ask(owner)).await;
        assert_eq!((again["created"].clone(), granted(&again)), (json!(false), known.clone()), "{owner}");
    }
}
