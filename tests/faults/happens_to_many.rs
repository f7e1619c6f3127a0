//! What may happen to several Redis servers that keep one register together, in addition to what happens to nodes.

use super::clustered::RedisCluster;
use super::happens::{Fault, Happens, Wildly};
use super::redis::send_signal;
use super::run::Run;
use super::sentinels::Watched;

impl Happens for Watched {
    fn faults(&self) -> Vec<Fault> {
        vec![("a failover loses", 4), ("the primary is killed", 2), ("the replica stands still", 1)]
    }

    async fn happens(wildly: &mut Wildly<Self>, fault: &str) -> bool {
        let pause = wildly.pause();
        let run = &mut wildly.run;
        match fault {
            "a failover loses" => {
                let ended = run.lose().await;
                run.nodes.redis.servers[ended].begin();
            }
            "the primary is killed" => {
                let primary = run.nodes.redis.settled();
                run.nodes.redis.servers[primary].end();
                run.nodes.redis.promoted(1 - primary);
                run.nodes.redis.servers[primary].begin();
            }
            "the replica stands still" => {
                let replica = 1 - run.nodes.redis.settled();
                run.nodes.redis.servers[replica].signal("-STOP");
                tokio::time::sleep(pause).await;
                run.nodes.redis.servers[replica].signal("-CONT");
            }
            other => panic!("{other}"),
        }
        true
    }
}

/// The slot of the register.
pub fn slot(redis: &RedisCluster) -> u16 {
    redis.slot("{allod}:register")
}

impl Run<RedisCluster> {
    /// Loses writes: the replica of the register's primary hears nothing more, clients are told that they hold what only the
    /// primary has, and then the replica takes over the slot. Returns the former primary, which has ended.
    pub async fn lose(&mut self) -> usize {
        let slot = slot(&self.nodes.redis);
        let (primary, replica) = self.nodes.redis.settled(slot);
        let signal = |run: &Self, signal: &str| {
            send_signal(run.nodes.redis.members[replica].child.as_ref().expect("it runs").id(), signal);
        };
        signal(self, "-STOP");
        let _: u64 = self.nodes.redis.members[primary].ask(&["CLIENT", "KILL", "TYPE", "replica"]);
        self.gets_on(150, "without a replica").await;
        self.nodes.redis.members[primary].kill();
        signal(self, "-CONT");
        assert_eq!(self.nodes.redis.failed_over(slot, primary), replica);
        primary
    }
}

impl Happens for RedisCluster {
    fn faults(&self) -> Vec<Fault> {
        vec![("a failover loses", 4), ("the primary is killed", 2), ("the slot is moved", 1)]
    }

    async fn happens(wildly: &mut Wildly<Self>, fault: &str) -> bool {
        let run = &mut wildly.run;
        let slot = slot(&run.nodes.redis);
        match fault {
            "a failover loses" => {
                let ended = run.lose().await;
                run.nodes.redis.members[ended].begin();
            }
            "the primary is killed" => {
                let (primary, _) = run.nodes.redis.settled(slot);
                run.nodes.redis.members[primary].kill();
                run.nodes.redis.failed_over(slot, primary);
                run.nodes.redis.members[primary].begin();
            }
            "the slot is moved" => {
                let redis = &run.nodes.redis;
                let (from, _) = redis.settled(slot);
                let other = (0..redis.members.len()).find(|&at| at != from && redis.replicas_of(at).len() == 1);
                let Some(to) = other else { return false };
                redis.begin_move(slot, from, to);
                while redis.move_keys(slot, from, to, 5) > 0 {}
                redis.end_move(slot, from, to);
            }
            other => panic!("{other}"),
        }
        true
    }
}
