//! A Redis server with replicas, and what happens to them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use allod::store::Store;
use allod::store::redis::{RedisOptions, RedisStore};

use super::{Begun, Server, config_step, network, process, token, wait};
use crate::redis::ShardId;

/// Without waiting for more who want the same: replicas are there at once.
const SETTINGS: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

impl Server {
    /// Makes it a replica of another one, and waits until it has what that one has.
    pub fn follow(&self, primary: &Server) {
        let () = self.ask(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
        until("the replica follows", || self.ask::<String>(&["INFO", "replication"]).contains("master_link_status:up"));
        // The primary counts it once it has said how far it is.
        let online = format!("port={},state=online", self.port);
        until("the replica counts", || primary.ask::<String>(&["INFO", "replication"]).contains(&online));
    }

    /// Stops it as it is, or lets it go on: `-STOP`, `-CONT`.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// The lease of shard 0 ran out: whoever comes next need not wait.
    pub fn lapse(&self) {
        let _: u64 = self.ask(&["HSET", "{allod}:0:head", "lease", "0"]);
    }

    /// The leases of all shards, which nobody let go of, ended some time ago.
    pub fn leases_ran_out_ago(&self) {
        for head in self.ask::<Vec<String>>(&["KEYS", "*:head"]) {
            let _: u64 = self.ask(&["HSET", &head, "lease", "1"]);
        }
    }

    /// The last batch of shard 0 that it has.
    pub fn seq(&self) -> u64 {
        self.ask(&["HGET", "{allod}:0:head", "seq"])
    }
}

pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One address for whichever server is the primary, as a service in front of them has.
pub struct Front {
    pub port: u16,
    to: Arc<AtomicU16>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    /// How long answers are under way.
    delay_ms: Arc<AtomicU64>,
    gate: Arc<Mutex<Option<Gate>>>,
}

/// Where whoever asks a server for heads is held up.
struct Gate {
    /// The server's.
    port: u16,
    /// So many who ask are let through before.
    lets_through: u32,
    is_reached: bool,
}

impl Front {
    pub fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let to = Arc::new(AtomicU16::new(server.port));
        let front = Self { port, to, open: Arc::default(), delay_ms: Arc::default(), gate: Arc::default() };
        let (to, open, delay_ms) = (Arc::clone(&front.to), Arc::clone(&front.open), Arc::clone(&front.delay_ms));
        let gate = Arc::clone(&front.gate);
        // Ends with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let port = to.load(Ordering::Acquire);
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for socket in [&client, &server] {
                    socket.set_nodelay(true).unwrap();
                    open.lock().unwrap().push(socket.try_clone().unwrap());
                }
                let (mut from_client, mut from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (mut client, mut server) = (client, server);
                let gate = Arc::clone(&gate);
                std::thread::spawn(move || {
                    let mut bytes = [0; 1 << 16];
                    while let Ok(count @ 1..) = from_client.read(&mut bytes) {
                        let asks_for_heads = bytes[..count].windows(5).any(|word| word == b"HMGET");
                        while asks_for_heads && is_held_up(&gate, port) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        if server.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = server.shutdown(Shutdown::Write);
                });
                let delay_ms = Arc::clone(&delay_ms);
                std::thread::spawn(move || {
                    let mut bytes = [0; 1 << 16];
                    while let Ok(count @ 1..) = from_server.read(&mut bytes) {
                        std::thread::sleep(Duration::from_millis(delay_ms.load(Ordering::Acquire)));
                        if client.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                    // As a copy that ends, or its client would wait for more.
                    let _ = client.shutdown(Shutdown::Write);
                });
            }
        });
        front
    }

    /// Whoever asks from now on has his answers so much later: Redis is far away.
    pub fn slow_down(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Release);
    }

    /// Whoever connects from now on reaches this one; connections that stand are left as they are.
    pub fn turn(&self, server: &Server) {
        self.to.store(server.port, Ordering::Release);
    }

    /// Whoever asks this server for heads is held up, after so many who are not.
    pub fn hold_up(&self, server: &Server, lets_through: u32) {
        *self.gate.lock().unwrap() = Some(Gate { port: server.port, lets_through, is_reached: false });
    }

    pub fn holds_somebody_up(&self) -> bool {
        self.gate.lock().unwrap().as_ref().is_some_and(|gate| gate.is_reached)
    }

    pub fn lets_go(&self) {
        *self.gate.lock().unwrap() = None;
    }

    pub fn switch(&self, server: &Server) {
        self.turn(server);
        for socket in self.open.lock().unwrap().drain(..) {
            // It may have ended already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn is_held_up(gate: &Mutex<Option<Gate>>, port: u16) -> bool {
    let mut gate = gate.lock().unwrap();
    let Some(gate) = gate.as_mut().filter(|gate| gate.port == port) else { return false };
    if gate.lets_through > 0 {
        gate.lets_through -= 1;
        return false;
    }
    gate.is_reached = true;
    true
}

/// A primary with replicas, and a store that reaches whichever is the primary by one address.
pub struct Replicated {
    pub begun: Begun,
    pub replicas: Vec<Server>,
    pub front: Front,
}

impl Replicated {
    pub fn new(replicas: usize, settle: impl FnOnce(RedisOptions) -> RedisOptions) -> Option<Self> {
        let server = Server::start(&SETTINGS)?;
        let replicas: Vec<Server> = (0..replicas).filter_map(|_| Server::start(&SETTINGS)).collect();
        Some(Self::of(server, replicas, settle))
    }

    /// All of them write append-only files, flush so, and tell what is on disk. None where no server here does.
    pub fn on_disk(replicas: u32, appendfsync: &str) -> Option<Self> {
        let program = process::program_with_waitaof()?;
        let settings = [&SETTINGS[..], &["--appendonly", "yes", "--appendfsync", appendfsync]].concat();
        let server = Server::start_by(program, &settings);
        let others: Vec<Server> = (0..replicas).map(|_| Server::start_by(program, &settings)).collect();
        others.iter().for_each(|replica| replica.follow(&server));
        // A replica that has just followed writes its first file.
        until("the first files are written", || {
            others.iter().chain([&server]).all(|one| {
                let info: String = one.ask(&["INFO", "persistence"]);
                info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
            })
        });
        Some(Self::of(server, others, |options| RedisOptions { replicas, ..options }))
    }

    fn of(server: Server, replicas: Vec<Server>, settle: impl FnOnce(RedisOptions) -> RedisOptions) -> Self {
        replicas.iter().for_each(|replica| replica.follow(&server));
        // A replica that was just made may not be asked yet for what it has.
        until("the replicas answer", || {
            let mut written = redis::pipe();
            written.cmd("SET").arg("written").arg(1).ignore().cmd("WAIT").arg(replicas.len()).arg(100);
            written.query::<(usize,)>(&mut server.connection()).unwrap().0 == replicas.len()
        });
        let front = Front::to(&server);
        let url = format!("redis://127.0.0.1:{}/", front.port);
        let store = RedisStore::open(settle(RedisOptions { url, ..server.options() })).unwrap();
        let head = wait(store.take(ShardId(0), token(1))).unwrap();
        let mut begun = Begun { server, store, head };
        begun.commit(vec![config_step(network(1))]).unwrap();
        Self { begun, replicas, front }
    }

    /// The primary is gone; the first replica takes its place, with what it has.
    pub fn promote(&mut self) {
        self.begun.server.kill();
        self.replicas[0].signal("-CONT");
        let () = self.replicas[0].ask(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Whoever connects from now on reaches the first replica.
    pub fn switch(&self) {
        self.front.switch(&self.replicas[0]);
    }

    pub fn fail_over(&mut self) {
        self.promote();
        self.switch();
    }

    /// Nothing more reaches a replica, which stands still: what Redis sends it is not even in its kernel.
    pub fn cut_off(&self, replica: usize) {
        self.replicas[replica].signal("-STOP");
        let _: u64 = self.begun.server.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
    }
}
