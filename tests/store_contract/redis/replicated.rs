//! A Redis server with replicas, and what happens to them.

use std::process::Command;
use std::time::{Duration, Instant};

use allod::store::Store;
use allod::store::redis::{Options, RedisStore};

use super::{Begun, Server, config_step, network, token, wait};
use crate::redis::ShardId;

/// Without waiting for more who want the same: replicas are there at once.
const SETTINGS: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

impl Server {
    /// Makes it a replica of another one, and waits until it has what that one has.
    pub fn follow(&self, primary: &Server) {
        let () = self.ask(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
        until("the replica follows", || self.ask::<String>(&["INFO", "replication"]).contains("master_link_status:up"));
    }

    /// Stops it as it is, or lets it go on: `-STOP`, `-CONT`.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// The lease of shard 0 ran out: whoever comes next need not wait.
    pub fn lapse(&self) {
        let _: u64 = self.ask(&["HSET", "allod:{0}:head", "lease", "0"]);
    }

    /// The last batch of shard 0 that it has.
    pub fn seq(&self) -> u64 {
        self.ask(&["HGET", "allod:{0}:head", "seq"])
    }
}

pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A primary with replicas, and a store on it.
pub struct Replicated {
    pub begun: Begun,
    pub replicas: Vec<Server>,
}

impl Replicated {
    pub fn new(replicas: usize, settle: impl FnOnce(Options) -> Options) -> Option<Self> {
        let server = Server::start(&SETTINGS)?;
        let replicas: Vec<Server> = (0..replicas).filter_map(|_| Server::start(&SETTINGS)).collect();
        replicas.iter().for_each(|replica| replica.follow(&server));
        // A replica that was just made may not be asked yet for what it has.
        until("the replicas answer", || {
            let mut written = redis::pipe();
            written.cmd("SET").arg("written").arg(1).ignore().cmd("WAIT").arg(replicas.len()).arg(100);
            written.query::<(usize,)>(&mut server.connection()).unwrap().0 == replicas.len()
        });
        let store = RedisStore::open(settle(server.options())).unwrap();
        let head = wait(store.take(ShardId(0), token(1))).unwrap();
        let mut begun = Begun { server, store, head };
        begun.commit(vec![config_step(network(1))]).unwrap();
        Some(Self { begun, replicas })
    }

    /// Nothing more reaches a replica, which stands still: what Redis sends it is not even in its kernel.
    pub fn cut_off(&self, replica: usize) {
        self.replicas[replica].signal("-STOP");
        let _: u64 = self.begun.server.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
    }
}
