//! Two nodes of one register: one is killed, Redis is stopped under both, and they stand still by turns.

use std::collections::BTreeSet;
use std::time::Duration;

use super::runbook::{Operator, no_unit};
use super::scene::{Scene, Seen, until};
use super::store::redis_in;
use crate::nodes::Cluster;

/// The node that owns the register; waits until one does that is not this one.
fn owner_but(cluster: &Cluster, not: Option<usize>) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(cluster.owner_but(not))
}

pub fn run() -> BTreeSet<&'static str> {
    let directory = tempfile::tempdir().unwrap();
    let mut redis = redis_in(directory.path(), "redis", &["--appendonly", "yes", "--appendfsync", "always"]);
    let mut cluster = Cluster::start(directory.path(), &redis, 2);
    let seen = [0, 1].map(|node| Seen::at(cluster.address(node), cluster.http(node)));
    let scene = Scene::of(&[&seen[0], &seen[1]]);
    let data = [0, 1].map(|node| directory.path().join(format!("node-{node}")));
    let operator = [0, 1].map(|node| Operator {
        rpc: seen[node].rpc.address,
        http: seen[node].http.address,
        redis: redis.port(),
        data: &data[node],
    });

    let instance = format!("instance=\"{}\"", seen[0].http.address);
    assert_eq!(owner_but(&cluster, None), 0);
    scene.provoked("AllodDown", &instance, || cluster.kill(0));
    let mut asked = Vec::new();
    operator[0].follows("AllodDown", &[], &mut |verb, unit| {
        asked.push(format!("{verb} {unit}"));
        if verb == "restart" {
            let address = cluster.again(0);
            seen[0].moved(address, cluster.http(0));
        }
    });
    assert_eq!(asked, ["status allod", "restart allod"]);
    scene.stops("AllodDown", &instance);
    let owner = owner_but(&cluster, None);

    scene.provoked("AllodNobodyServes", "", || redis.end());
    let told = operator[owner].follows("AllodNobodyServes", &[], &mut |verb, unit| {
        assert_eq!((verb, unit), ("restart", "redis-server"));
        redis.begin();
    });
    assert!(told.contains("Connection refused") && told.contains("node-1"), "{told}");
    scene.stops("AllodNobodyServes", "");

    until("AllodTakenAgainAndAgain fires", || {
        let owner = owner_but(&cluster, None);
        cluster.signal(owner, "-STOP");
        owner_but(&cluster, Some(owner));
        cluster.signal(owner, "-CONT");
        // The node learns that it is no longer the owner.
        std::thread::sleep(Duration::from_millis(300));
        scene.is_firing("AllodTakenAgainAndAgain", "")
    });
    scene.fires("AllodTakenAgainAndAgain", "");
    // A node that stood still is listed again once it has met the others.
    until("node-1 is seen by node-0", || cluster.allod(0, &["cluster", "nodes"]).contains("node-1"));
    let told = operator[0].follows("AllodTakenAgainAndAgain", &[], &mut no_unit);
    assert!(told.contains("node-1"), "{told}");
    scene.stops("AllodTakenAgainAndAgain", "");

    until("AllodRestarts fires", || {
        cluster.kill(0);
        let address = cluster.again(0);
        seen[0].moved(address, cluster.http(0));
        // The start time is published in whole seconds, and it has to be scraped.
        std::thread::sleep(Duration::from_millis(300));
        scene.is_firing("AllodRestarts", &instance)
    });
    scene.fires("AllodRestarts", &instance);
    let mut asked = Vec::new();
    operator[0].follows("AllodRestarts", &[], &mut |verb, unit| asked.push(format!("{verb} {unit}")));
    assert_eq!(asked, ["status allod"]);
    scene.stops("AllodRestarts", &instance);
    scene.end()
}
