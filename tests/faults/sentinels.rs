//! A primary, a replica and three sentinels.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::redis::{Redis, process};
use super::run::{Keeper, Run, STANDSTILL_MAX};

/// The silence after which sentinels consider a server gone.
const DOWN_AFTER_MS: u32 = 800;

/// Redis with one replica, watched by three sentinels.
pub struct Watched {
    /// The first server is the primary at the start.
    pub servers: [Redis; 2],
    sentinels: Vec<(Child, u16)>,
    /// The settings with the certificate, if all are reached over TLS.
    tls: Vec<String>,
    pub directory: TempDir,
}

impl Watched {
    /// None if there is no `redis-server`; the test is then reported as skipped.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts all of them with these settings, which are those of TLS.
    pub fn start_with(tls: &[String]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        // The servers have files: sentinels may turn back to a server that has just restarted, and one that came back empty
        // would empty the other one (and stop every node, as it must).
        let settings = ["--repl-diskless-sync-delay", "0", "--repl-timeout", "5", "--appendonly", "yes"];
        let settings: Vec<&str> = settings.into_iter().chain(tls.iter().map(String::as_str)).collect();
        let place = |name: &str| {
            let place = directory.path().join(name);
            std::fs::create_dir(&place).unwrap();
            place
        };
        let primary = Redis::start(&place("primary"), &settings)?;
        let port = primary.port().to_string();
        let replica = Redis::start(&place("replica"), &[&settings[..], &["--replicaof", "127.0.0.1", &port]].concat())?;
        let (servers, sentinels) = ([primary, replica], Vec::new());
        let mut watched = Self { servers, sentinels, tls: tls.to_vec(), directory };
        watched.wait("the replica follows", |it| it.servers[1].text(&["INFO", "replication"]).contains("status:up"));
        for number in 0..3 {
            let (place, port) =
                (watched.directory.path().join(format!("sentinel-{number}")), process::ports::free_port());
            std::fs::create_dir(&place).unwrap();
            let primary = watched.servers[0].port();
            watched.sentinels.push((sentinel(&place, (port, tls), primary, 0), port));
        }
        watched.sentinels_know();
        Some(watched)
    }

    fn sentinels_know(&self) {
        self.wait("the sentinels know each other and the replica", |it| {
            it.sentinels.iter().all(|(_, port)| {
                let about = it.text_at(*port, &["INFO", "sentinel"]);
                about.contains("slaves=1,sentinels=3")
            })
        });
    }

    /// Replaces the sentinels by new ones, which know only the primary and how many failovers there were.
    pub fn made_anew(&mut self, primary: usize, epoch: u64) {
        self.made_anew_at(self.servers[primary].port(), epoch);
    }

    /// Like [`Watched::made_anew`], with the primary at this port.
    pub fn made_anew_at(&mut self, primary: u16, epoch: u64) {
        self.end_sentinels();
        for (number, (child, port)) in self.sentinels.iter_mut().enumerate() {
            let place = self.directory.path().join(format!("sentinel-{number}"));
            *child = sentinel(&place, (*port, &self.tls), primary, epoch);
        }
        self.sentinels_know();
    }

    /// From now on sentinels consider no server gone, however long a busy machine takes to restart one.
    pub fn miss_nobody(&self) {
        self.miss_after_ms(600_000);
    }

    /// Sentinels consider a silent server gone as quickly as at the start.
    pub fn miss_again(&self) {
        self.miss_after_ms(DOWN_AFTER_MS);
    }

    fn miss_after_ms(&self, ms: u32) {
        for (_, port) in &self.sentinels {
            let said =
                self.text_at(*port, &["SENTINEL", "SET", "register", "down-after-milliseconds", &ms.to_string()]);
            assert_eq!(said.trim(), "OK");
        }
    }

    /// The ports of the sentinels.
    pub fn sentinel_ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(|(_, port)| *port).collect()
    }

    pub fn end_sentinels(&mut self) {
        for (child, _) in &mut self.sentinels {
            // Both calls fail only if the process has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The answer of the sentinel at a port.
    fn text_at(&self, port: u16, words: &[&str]) -> String {
        let url = if self.tls.is_empty() {
            format!("redis://127.0.0.1:{port}/")
        } else {
            format!("redis+unix://{}", self.directory.path().join(format!("{port}.sock")).display())
        };
        let client = redis::Client::open(url).unwrap();
        let Ok(mut connection) = client.get_connection_with_timeout(Duration::from_secs(1)) else {
            return String::new();
        };
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        match command.query::<redis::Value>(&mut connection) {
            Ok(redis::Value::Array(words)) => words.into_iter().map(text_of).collect::<Vec<_>>().join(" "),
            Ok(value) => text_of(value),
            Err(_) => String::new(),
        }
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + STANDSTILL_MAX;
        while !is_so(self) {
            assert!(Instant::now() < end, "never: {what}: {}", self.state());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the servers and the sentinels report about themselves.
    fn state(&self) -> String {
        let servers = self.servers.iter().map(|redis| redis.text(&["INFO", "replication"]));
        let sentinels = self.sentinels.iter().map(|(_, port)| self.text_at(*port, &["INFO", "sentinel"]));
        servers.chain(sentinels).collect::<Vec<_>>().join("\n")
    }

    /// Do all sentinels name this server as the primary, and is it one?
    pub fn is_primary(&self, which: usize) -> bool {
        self.is_primary_at(which, self.servers[which].port())
    }

    /// Like [`Watched::is_primary`], for a server that is known by this port.
    pub fn is_primary_at(&self, which: usize, port: u16) -> bool {
        let port = port.to_string();
        let named = |sentinel: u16| self.text_at(sentinel, &["SENTINEL", "get-master-addr-by-name", "register"]);
        self.sentinels.iter().all(|(_, sentinel)| named(*sentinel).contains(&port))
            && self.servers[which].text(&["INFO", "replication"]).contains("role:master")
    }

    pub fn promoted(&self, which: usize) {
        self.wait("a failover", |it| it.is_primary(which));
    }

    /// Waits until one server is the primary and the other follows it, because sentinels may have turned back. Returns the
    /// primary.
    pub fn settled(&self) -> usize {
        let follows = |it: &Self, which: usize| it.servers[which].text(&["INFO", "replication"]).contains("status:up");
        let primary = |it: &Self| (0..2).find(|&which| it.is_primary(which) && follows(it, 1 - which));
        self.wait("one follows the other", |it| primary(it).is_some());
        primary(self).unwrap_or_default()
    }
}

impl Keeper for Watched {
    fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect();
        let over_tls = if self.tls.is_empty() { "" } else { "s" };
        format!("redis{over_tls}+sentinel://{}/register", hosts.join(","))
    }
}

impl Run<Watched> {
    /// Loses writes: the replica hears nothing more, clients are told that they hold what only the primary has, and then the
    /// replica takes over. Returns the former primary, which has ended.
    pub async fn lose(&mut self) -> usize {
        let primary = self.nodes.redis.settled();
        self.nodes.redis.servers[1 - primary].signal("-STOP");
        self.nodes.redis.servers[primary].ask(&["CLIENT", "KILL", "TYPE", "replica"]);
        self.gets_on(150, "without a replica").await;
        self.nodes.redis.servers[primary].end();
        self.nodes.redis.servers[1 - primary].signal("-CONT");
        self.nodes.redis.promoted(1 - primary);
        primary
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.end_sentinels();
    }
}

fn sentinel(directory: &Path, (port, tls): (u16, &[String]), primary: u16, epoch: u64) -> Child {
    let file = directory.join("sentinel.conf");
    let port = if tls.is_empty() {
        format!("port {port}\n")
    } else {
        let socket = directory.with_file_name(format!("{port}.sock"));
        let lines = tls.chunks(2).map(|setting| format!("{} {}\n", setting[0].trim_start_matches('-'), setting[1]));
        lines.collect::<String>() + &format!("port 0\ntls-port {port}\nunixsocket {}\n", socket.display())
    };
    let text = format!(
        "bind 127.0.0.1\n{port}dir {}\nsentinel monitor register 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds register {DOWN_AFTER_MS}\nsentinel failover-timeout register 3000\n\
         sentinel config-epoch register {epoch}\nsentinel current-epoch {epoch}\n",
        directory.display()
    );
    std::fs::write(&file, text).unwrap();
    process::spawn(Command::new(process::program()).arg(&file).arg("--sentinel"))
}

fn text_of(value: redis::Value) -> String {
    redis::from_redis_value(value).unwrap_or_default()
}
