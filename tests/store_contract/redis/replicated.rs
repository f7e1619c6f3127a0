//! A Redis server with replicas, and the faults that they meet.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allod::store::Store;
use allod::store::redis::{RedisOptions, RedisStore};

use super::{Begun, Server, config_step, network, process, token, wait};
use crate::crash::until;
use crate::redis::ShardId;

/// A replica is served at once, without waiting for more that want the same.
const SETTINGS: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

impl Server {
    /// Makes it a replica of another server, and waits until it has what that one has.
    pub fn follow(&self, primary: &Server) {
        let () = self.ask(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
        until("the replica follows", || self.ask::<String>(&["INFO", "replication"]).contains("master_link_status:up"));
        // The primary counts a replica once it has reported how far it is.
        let online = format!("port={},state=online", self.port);
        until("the replica counts", || primary.ask::<String>(&["INFO", "replication"]).contains(&online));
    }

    /// Stops the process as it is (`-STOP`), or lets it go on (`-CONT`).
    pub fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Ends the lease of shard 0: the next owner need not wait.
    pub fn lapse(&self) {
        let _: u64 = self.ask(&["HSET", "{allod}:0:head", "lease", "0"]);
    }

    /// Makes the leases of all shards, which nobody released, end some time ago.
    pub fn leases_ran_out_ago(&self) {
        for head in self.ask::<Vec<String>>(&["KEYS", "*:head"]) {
            let _: u64 = self.ask(&["HSET", &head, "lease", "1"]);
        }
    }

    /// The last batch of shard 0 on this server.
    pub fn seq(&self) -> u64 {
        self.ask(&["HGET", "{allod}:0:head", "seq"])
    }
}

/// One address for whichever server is the primary, like a service in front of them.
pub struct Front {
    pub port: u16,
    to: Arc<AtomicU16>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    /// How long answers take.
    delay_ms: Arc<AtomicU64>,
    gate: Arc<Mutex<Option<Gate>>>,
}

/// Holds up connections that ask a server for heads.
struct Gate {
    /// The server's port.
    port: u16,
    /// How many requests pass first.
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
                    // As when a copy of the connection ends; otherwise its client would wait for more.
                    let _ = client.shutdown(Shutdown::Write);
                });
            }
        });
        front
    }

    /// Delays the answers on later connections: Redis is far away.
    pub fn slow_down(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Release);
    }

    /// Sends new connections to this server; existing ones are left as they are.
    pub fn turn(&self, server: &Server) {
        self.to.store(server.port, Ordering::Release);
    }

    /// Holds up requests for heads at this server, after `lets_through` of them.
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
            // The connection may have ended already.
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

    /// All servers write append-only files, flush them as told, and report what is on disk. None where no server here can.
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
        // A new replica may not answer yet how much it has.
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

    /// Kills the primary; the first replica takes its place, with what it has.
    pub fn promote(&mut self) {
        self.begun.server.kill();
        self.replicas[0].signal("-CONT");
        let () = self.replicas[0].ask(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Sends new connections to the first replica.
    pub fn switch(&self) {
        self.front.switch(&self.replicas[0]);
    }

    pub fn fail_over(&mut self) {
        self.promote();
        self.switch();
    }

    /// Stops a replica and lets nothing more reach it: what Redis sends does not even get into its kernel.
    pub fn cut_off(&self, replica: usize) {
        self.replicas[replica].signal("-STOP");
        let _: u64 = self.begun.server.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
    }
}
