//! A primary, a replica and three sentinels, two nodes, and clients that work on while the primary is killed or stopped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::checker::{Verdict, check};
use super::client::Client;
use super::load::{Load, make_networks};
use super::nodes::Cluster;
use super::redis::{Redis, process};
use super::watch::Watching;

/// Longest that clients may stand still: a failover, a lease, a take-over, and a debug build.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);
/// Silence after which sentinels take a server for gone.
const DOWN_AFTER_MS: u32 = 800;

/// Redis with one replica, watched by three sentinels.
struct Watched {
    /// The first one is the primary at the start.
    redis: [Redis; 2],
    sentinels: Vec<(Child, u16)>,
}

impl Watched {
    fn start(directory: &Path) -> Option<Self> {
        // With files: sentinels may turn back to a server that was just started again, and one that came back empty would
        // empty the other (and stop every node, as it must).
        let settings = ["--repl-diskless-sync-delay", "0", "--repl-timeout", "5", "--appendonly", "yes"];
        let place = |name: &str| {
            let place = directory.join(name);
            std::fs::create_dir(&place).unwrap();
            place
        };
        let primary = Redis::start(&place("primary"), &settings)?;
        let port = primary.port().to_string();
        let replica = Redis::start(&place("replica"), &[&settings[..], &["--replicaof", "127.0.0.1", &port]].concat())?;
        let mut watched = Self { redis: [primary, replica], sentinels: Vec::new() };
        watched.wait("the replica follows", |it| it.redis[1].text(&["INFO", "replication"]).contains("status:up"));
        for number in 0..3 {
            let (place, port) = (place(&format!("sentinel-{number}")), process::ports::free_port());
            watched.sentinels.push((sentinel(&place, port, watched.redis[0].port(), 0), port));
        }
        watched.sentinels_know();
        Some(watched)
    }

    fn sentinels_know(&self) {
        self.wait("the sentinels know each other and the replica", |it| {
            it.sentinels.iter().all(|(_, port)| {
                let about = text_at(*port, &["INFO", "sentinel"]);
                about.contains("slaves=1,sentinels=3")
            })
        });
    }

    /// Ends the sentinels, and begins others in their places that know nothing but the primary, and how many failovers there
    /// were.
    fn made_anew(&mut self, directory: &Path, primary: usize, epoch: u64) {
        self.end_sentinels();
        let primary = self.redis[primary].port();
        for (number, (child, port)) in self.sentinels.iter_mut().enumerate() {
            *child = sentinel(&directory.join(format!("sentinel-{number}")), *port, primary, epoch);
        }
        self.sentinels_know();
    }

    fn end_sentinels(&mut self) {
        for (child, _) in &mut self.sentinels {
            // Both fail only where it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + STANDSTILL_MAX;
        while !is_so(self) {
            assert!(Instant::now() < end, "never: {what}: {}", self.state());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What each says of itself.
    fn state(&self) -> String {
        let servers = self.redis.iter().map(|redis| redis.text(&["INFO", "replication"]));
        let sentinels = self.sentinels.iter().map(|(_, port)| text_at(*port, &["INFO", "sentinel"]));
        servers.chain(sentinels).collect::<Vec<_>>().join("\n")
    }

    fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}/register", hosts.join(","))
    }

    /// Do all sentinels name this one, and is it one?
    fn is_primary(&self, which: usize) -> bool {
        let port = self.redis[which].port().to_string();
        let named = |sentinel: u16| text_at(sentinel, &["SENTINEL", "get-master-addr-by-name", "register"]);
        self.sentinels.iter().all(|(_, sentinel)| named(*sentinel).contains(&port))
            && self.redis[which].text(&["INFO", "replication"]).contains("role:master")
    }

    fn promoted(&self, which: usize) {
        self.wait("a failover", |it| it.is_primary(which));
    }

    /// Waits until one is the primary and the other one follows it: sentinels may have turned back meanwhile. Which it is.
    fn settled(&self) -> usize {
        let follows = |it: &Self, which: usize| it.redis[which].text(&["INFO", "replication"]).contains("status:up");
        let primary = |it: &Self| (0..2).find(|&which| it.is_primary(which) && follows(it, 1 - which));
        self.wait("one follows the other", |it| primary(it).is_some());
        primary(self).unwrap_or_default()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.end_sentinels();
    }
}

fn sentinel(directory: &Path, port: u16, primary: u16, epoch: u64) -> Child {
    let file = directory.join("sentinel.conf");
    let text = format!(
        "bind 127.0.0.1\nport {port}\ndir {}\nsentinel monitor register 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds register {DOWN_AFTER_MS}\nsentinel failover-timeout register 3000\n\
         sentinel config-epoch register {epoch}\nsentinel current-epoch {epoch}\n",
        directory.display()
    );
    std::fs::write(&file, text).unwrap();
    process::spawn(Command::new(process::program()).arg(&file).arg("--sentinel"))
}

fn text_at(port: u16, words: &[&str]) -> String {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let Ok(mut connection) = client.get_connection_with_timeout(Duration::from_secs(1)) else { return String::new() };
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    match command.query::<redis::Value>(&mut connection) {
        Ok(redis::Value::Array(words)) => words.into_iter().map(text_of).collect::<Vec<_>>().join(" "),
        Ok(value) => text_of(value),
        Err(_) => String::new(),
    }
}

fn text_of(value: redis::Value) -> String {
    redis::from_redis_value(value).unwrap_or_default()
}

struct Run {
    watched: Watched,
    cluster: Cluster,
    load: std::sync::Arc<Load>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Run {
    async fn begin(directory: &Path, store: &str) -> Option<Self> {
        let watched = Watched::start(directory)?;
        let settings: PathBuf = directory.join("node.toml");
        std::fs::write(&settings, format!("[store]\n{store}\n")).unwrap();
        let settings = settings.display().to_string();
        let cluster = Cluster::start_with(directory, &watched.url(), 2, &["--config", &settings]);
        let networks = make_networks(&mut Client::connect(cluster.addresses()[0]).await.unwrap(), 4).await;
        let load = Load::new(networks, cluster.addresses());
        let clients = load.start(4, 5);
        assert!(load.more(300, STANDSTILL_MAX).await, "clients get on");
        Some(Self { watched, cluster, load, clients })
    }

    /// The replica hears nothing more; clients are told that they hold what only the primary has. Then it takes over.
    async fn lose(&mut self) {
        self.watched.redis[1].signal("-STOP");
        self.watched.redis[0].ask(&["CLIENT", "KILL", "TYPE", "replica"]);
        assert!(self.load.more(150, STANDSTILL_MAX).await);
        self.watched.redis[0].end();
        self.watched.redis[1].signal("-CONT");
        self.watched.promoted(1);
    }

    async fn end(self) -> Verdict {
        self.load.end(self.clients).await;
        check(&self.load.record.all())
    }

    /// Ends the clients and judges what they were told, and what those were told who watched meanwhile.
    async fn end_with(mut self, watching: Watching) -> Verdict {
        self.load.end(std::mem::take(&mut self.clients)).await;
        let owner = self.cluster.owner_but(None).await;
        let (told, connections) = watching.judge(self.cluster.address(owner)).await;
        assert!(told > 300, "{told} events over {connections} connections");
        self.end().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_replicas_waited_for_no_failover_loses_what_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut run) = Run::begin(directory.path(), "redis_replicas = 1").await else { return };
    // What was told is not lost either: whoever listed before and watched has the picture of whoever lists at the end.
    let watching = Watching::start(&run.load.networks, run.cluster.addresses());
    run.watched.redis[0].end();
    run.watched.promoted(1);
    run.watched.redis[0].begin();
    assert!(run.load.more(300, STANDSTILL_MAX).await, "after the primary was killed\n{}", run.cluster.log(0));
    let primary = run.watched.settled();
    run.watched.redis[primary].signal("-STOP");
    run.watched.promoted(1 - primary);
    run.watched.redis[primary].signal("-CONT");
    assert!(run.load.more(300, STANDSTILL_MAX).await, "after the primary stood still\n{}", run.cluster.log(0));
    (0..2).for_each(|node| run.cluster.serves_still(node));
    let verdict = run.end_with(watching).await;
    assert!(verdict.problems.is_empty(), "{:#?}", &verdict.problems[..verdict.problems.len().min(5)]);
    assert!(verdict.unknown > 0, "no failover met a request under way: nothing was tested");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_failover_lost_is_healed_by_the_node_that_acknowledged_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut run) = Run::begin(directory.path(), "redis_replicas = 0").await else { return };
    run.lose().await;
    assert!(run.load.more(300, STANDSTILL_MAX).await, "after the failover\n{}", run.cluster.log(0));
    let log = run.cluster.log(0);
    let metrics = run.cluster.metrics(0);
    let verdict = run.end().await;
    assert!(verdict.problems.is_empty(), "{:#?}\n{log}", &verdict.problems[..verdict.problems.len().min(5)]);
    let healed = metrics.lines().find_map(|line| line.strip_prefix("allod_store_healed_batches_total "));
    assert!(healed.is_some_and(|count| count.parse::<u64>().unwrap() > 0), "{healed:?}\n{log}");
    assert!(log.contains("is played again"), "{log}");
}

/// Sentinels that lost their files count failovers from the beginning. What they say is followed all the same: whether the
/// one of before is killed, or became a replica of which they knew nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_forgot_how_often_they_failed_over_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut run) = Run::begin(directory.path(), "redis_replicas = 0").await else { return };
    run.watched.made_anew(directory.path(), 0, 7);
    // They are asked once a second.
    tokio::time::sleep(Duration::from_secs(4)).await;
    run.watched.made_anew(directory.path(), 0, 0);
    tokio::time::sleep(Duration::from_secs(4)).await;
    run.watched.redis[0].end();
    run.watched.promoted(1);
    assert!(run.load.more(300, STANDSTILL_MAX).await, "after the primary was killed\n{}", run.cluster.log(0));
    run.watched.redis[0].begin();
    run.watched.settled();
    // As if they had failed over often, and then forgot it at once with a switch by hand.
    let primary = run.watched.settled();
    run.watched.made_anew(directory.path(), primary, 9);
    tokio::time::sleep(Duration::from_secs(4)).await;
    run.watched.end_sentinels();
    let other = run.watched.redis[1 - primary].port().to_string();
    run.watched.redis[1 - primary].ask(&["REPLICAOF", "NO", "ONE"]);
    run.watched.redis[primary].ask(&["REPLICAOF", "127.0.0.1", &other]);
    run.watched.made_anew(directory.path(), 1 - primary, 0);
    assert!(run.load.more(300, STANDSTILL_MAX).await, "after a switch by hand\n{}", run.cluster.log(0));
    let verdict = run.end().await;
    assert!(verdict.problems.is_empty(), "{:#?}", &verdict.problems[..verdict.problems.len().min(5)]);
}

/// All of it is started again where it was not before, as in pods with other addresses, and the sentinels lost their files: the
/// address that they named last is nobody's any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_forgot_all_and_name_another_address_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut run) = Run::begin(directory.path(), "redis_replicas = 0").await else { return };
    run.watched.made_anew(directory.path(), 0, 7);
    // They are asked once a second.
    tokio::time::sleep(Duration::from_secs(4)).await;
    run.watched.end_sentinels();
    run.watched.redis[0].end();
    run.watched.redis[1].ask(&["REPLICAOF", "NO", "ONE"]);
    let place = directory.path().join("third");
    std::fs::create_dir(&place).unwrap();
    let follows = ["--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1"];
    let primary = run.watched.redis[1].port().to_string();
    let before = run.watched.redis[0].port();
    run.watched.redis[0] = Redis::start(&place, &[&follows[..], &[&primary]].concat()).unwrap();
    run.watched.made_anew(directory.path(), 1, 0);
    assert!(run.load.more(300, STANDSTILL_MAX).await, "at the other address\n{}", run.cluster.log(0));
    let log = run.cluster.log(0);
    let said = format!("connecting to 127.0.0.1:{before} (most of those asked name 127.0.0.1:{primary}");
    assert!(log.contains(&said), "{log}");
    let verdict = run.end().await;
    assert!(verdict.problems.is_empty(), "{:#?}", &verdict.problems[..verdict.problems.len().min(5)]);
}

/// The negative control of both: nothing is waited for and nothing healed, and the checker sees what that costs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_waiting_and_without_healing_the_checker_finds_two_holders() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut run) = Run::begin(directory.path(), "redis_replicas = 0\nredis_heal_bytes = 0").await else { return };
    run.lose().await;
    // The other node takes over what is left.
    run.load.more(600, STANDSTILL_MAX).await;
    let log = run.cluster.log(0);
    assert!(log.contains("went back"), "{log}");
    assert!(!run.end().await.problems.is_empty(), "the checker would not have noticed");
}
