//! Nodes are cut off from a Redis that has more than one address: the primary that sentinels name, or the server of a
//! cluster that has the slot. Each server announces the address of a wire in front of it, so every address that a node
//! learns leads through a wire.

use super::clustered::RedisCluster;
use super::run::{Keeper, Run, Setting, eventually};
use super::seed::seed;
use super::sentinels::Watched;
use super::wire::{Way, Wire};

/// The store of a register, with a wire in front of each of its servers.
struct Wired<R> {
    /// Kept until this value is dropped, which ends the servers.
    _keeper: R,
    wires: Vec<Wire>,
    url: String,
}

impl<R> Keeper for Wired<R> {
    fn url(&self) -> String {
        self.url.clone()
    }
}

pub fn wire(port: u16) -> Wire {
    Wire::to(([127, 0, 0, 1], port).into())
}

/// Sentinels that name the wires, and the wires themselves.
pub fn watched() -> Option<(Watched, Vec<Wire>)> {
    let mut keeper = Watched::start()?;
    let wires: Vec<Wire> = keeper.servers.iter().map(|server| wire(server.port())).collect();
    for (server, wire) in keeper.servers.iter().zip(&wires) {
        server.ask(&["CONFIG", "SET", "replica-announce-port", &wire.address.port().to_string()]);
    }
    let primary = wires[0].address.port();
    keeper.servers[1].ask(&["REPLICAOF", "127.0.0.1", &primary.to_string()]);
    keeper.made_anew_at(primary, 0);
    // No failover happens when the wires are slow on a busy machine: a failover may lose what nobody waits for.
    keeper.miss_nobody();
    Some((keeper, wires))
}

/// A cluster whose servers are known by their wires. No server has a replica that could take its place, because a failover
/// may lose what nobody waits for.
async fn cluster() -> Option<Wired<RedisCluster>> {
    let keeper = RedisCluster::start(3, 0, &["--appendonly", "yes"])?;
    let wires: Vec<Wire> = keeper.members.iter().map(|member| wire(member.port)).collect();
    for (member, wire) in keeper.members.iter().zip(&wires) {
        let port = wire.address.port().to_string();
        let _: String = member.ask(&["CONFIG", "SET", "cluster-announce-port", &port]);
    }
    let announced = |nodes: String| wires.iter().all(|wire| nodes.contains(&format!(":{}@", wire.address.port())));
    eventually("each knows the others by their wires", || {
        keeper.members.iter().all(|member| announced(member.ask(&["CLUSTER", "NODES"])))
    })
    .await;
    let hosts: Vec<String> = wires.iter().map(|wire| wire.address.to_string()).collect();
    let url = format!("redis+cluster://{}", hosts.join(","));
    Some(Wired { _keeper: keeper, wires, url })
}

/// The owner reaches no server of Redis for longer than its lease; then it hears none; then none hears it. Each time another
/// node takes over, and what the previous owner still had to say is refused.
async fn owners_are_cut_off<R>(keeper: Wired<R>) {
    let run = Run::over(keeper, Setting::default(), seed()).await;
    run.gets_on(200, "by the wires").await;
    for way in [Way::Both, Way::Back, Way::There] {
        let owner = run.nodes.cluster.owner_but(None).await;
        let apart = run.nodes.cluster.apart(owner, &run.nodes.redis.wires);
        run.gets_on(200, "by wires of its own").await;
        apart.iter().for_each(|wire| wire.hold(way));
        eventually("something is under way to or from Redis", || apart.iter().any(|wire| wire.held() > 0)).await;
        run.nodes.cluster.owner_but(Some(owner)).await;
        run.gets_on(200, "at another node").await;
        apart.iter().for_each(Wire::release);
        run.gets_on(200, "after what was held arrived").await;
        // Again, but now what is under way is lost when connections break.
        for _ in 0..3 {
            run.nodes.redis.wires.iter().chain(&apart).for_each(Wire::cut);
            run.gets_on(30, "after connections broke").await;
        }
    }
    (0..2).for_each(|node| run.nodes.cluster.serves_still(node));
    let verdict = run.end().await;
    assert!(verdict.unknown > 0, "no cut met a request under way: nothing was tested");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_sentinels_an_owner_that_is_cut_off_from_redis_grants_nothing_twice() {
    let Some((keeper, wires)) = watched() else { return };
    let url = keeper.url();
    owners_are_cut_off(Wired { _keeper: keeper, wires, url }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_redis_cluster_an_owner_that_is_cut_off_from_redis_grants_nothing_twice() {
    let Some(keeper) = cluster().await else { return };
    owners_are_cut_off(keeper).await;
}
