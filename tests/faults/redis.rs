//! A Redis server of a test's own: on a free loopback port, its files in a directory of its own, ended by its process id.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use allod::limits::SHARDS_OF_NEW;

#[path = "../store_contract/redis/server/process.rs"]
#[allow(dead_code, reason = "shared with the tests of stores")]
pub mod process;

/// The process, and what it is started again with.
pub struct Redis {
    program: &'static str,
    child: Child,
    port: u16,
    directory: PathBuf,
    settings: Vec<String>,
    /// What it finds in its environment.
    environment: Vec<(String, String)>,
    /// What comes before its command.
    entry: Vec<String>,
}

impl Redis {
    /// Starts one. None where there is no `redis-server`, which is told as a skip.
    pub fn start(directory: &Path, settings: &[&str]) -> Option<Self> {
        Self::start_as(directory, settings, Vec::new(), Vec::new())
    }

    /// Starts one that has replicas, or is a replica of the one at this port, in a directory of this name.
    pub fn replicating(directory: &Path, name: &str, primary: Option<u16>) -> Option<Self> {
        let place = directory.join(name);
        std::fs::create_dir(&place).unwrap();
        let port = primary.map(|port| port.to_string());
        let follows: Vec<&str> = port.iter().flat_map(|port| ["--replicaof", "127.0.0.1", port]).collect();
        Self::start(&place, &[&["--repl-diskless-sync-delay", "0", "--repl-timeout", "60"], &follows[..]].concat())
    }

    /// Has it, as a replica, what its primary has?
    pub fn follows(&self) -> bool {
        self.text(&["INFO", "replication"]).contains("master_link_status:up")
    }

    /// A number in the heads of all shards, together. A replica that has just come has none yet.
    pub fn of_heads(&self, field: &str) -> u64 {
        let of = |shard| self.text(&["HGET", &format!("{{allod}}:{shard}:head"), field]).parse().unwrap_or(0);
        (0..SHARDS_OF_NEW).map(of).sum::<u64>()
    }

    /// Starts one that tells what is on disk, and has each change there before it answers. None where no server here does.
    pub fn start_on_disk(directory: &Path, settings: &[&str]) -> Option<Self> {
        let program = process::program_with_waitaof()?;
        let settings = [&["--appendonly", "yes", "--appendfsync", "always"], settings].concat();
        Some(Self::start_by(program, directory, &settings, Vec::new(), Vec::new()))
    }

    /// Starts one with this in its environment.
    pub fn start_with(directory: &Path, settings: &[&str], environment: Vec<(String, String)>) -> Option<Self> {
        Self::start_as(directory, settings, environment, Vec::new())
    }

    /// Starts one with this before its command: what it sees is not what others see.
    pub fn start_in(directory: &Path, settings: &[&str], entry: Vec<String>) -> Option<Self> {
        Self::start_as(directory, settings, Vec::new(), entry)
    }

    fn start_as(
        directory: &Path,
        settings: &[&str],
        environment: Vec<(String, String)>,
        entry: Vec<String>,
    ) -> Option<Self> {
        if process::is_missing() {
            return None;
        }
        Some(Self::start_by(process::program(), directory, settings, environment, entry))
    }

    fn start_by(
        program: &'static str,
        directory: &Path,
        settings: &[&str],
        environment: Vec<(String, String)>,
        entry: Vec<String>,
    ) -> Self {
        let port = process::ports::free_port();
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let child = process::start_by(command(program, &environment, &entry), port, directory, &settings);
        Self { program, child, port, directory: directory.to_owned(), settings, environment, entry }
    }

    /// Did it end by itself?
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills it.
    pub fn end(&mut self) {
        process::kill(&mut self.child);
    }

    /// Starts it again.
    pub fn begin(&mut self) {
        let command = command(self.program, &self.environment, &self.entry);
        self.child = process::start_by(command, self.port, &self.directory, &self.settings);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it answers; nothing where it does not.
    pub fn text(&self, words: &[&str]) -> String {
        let connection = self.client().get_connection_with_timeout(Duration::from_secs(1));
        let answer = connection.and_then(|mut connection| redis::cmd(words[0]).arg(&words[1..]).query(&mut connection));
        answer.unwrap_or_default()
    }

    /// What it answers as a number.
    pub fn number(&self, words: &[&str]) -> u64 {
        let mut connection = self.client().get_connection().unwrap();
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap()
    }

    /// Kills it, and starts it again on what is left.
    pub fn crash(&mut self) {
        self.end();
        self.begin();
    }

    /// Its files are gone.
    pub fn forget(&self) {
        for name in ["appendonlydir", "dump.rdb"] {
            let path = self.directory.join(name);
            // It has one of both.
            let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
        }
    }

    /// `-STOP`, `-CONT`.
    pub fn signal(&self, signal: &str) {
        send_signal(self.child.id(), signal);
    }

    pub fn url(&self) -> String {
        format!("{}0", process::nodes_url(self.port, &self.settings))
    }

    fn client(&self) -> redis::Client {
        redis::Client::open(process::operators_url(self.port, &self.directory, &self.settings)).unwrap()
    }

    /// A command of an operator.
    pub fn ask(&self, words: &[&str]) {
        let mut connection = self.client().get_connection().unwrap();
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(word);
        });
        command.query::<redis::Value>(&mut connection).unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with this in its environment, and this before it.
fn command(program: &str, environment: &[(String, String)], entry: &[String]) -> Command {
    let words: Vec<&str> = entry.iter().map(String::as_str).chain([program]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).envs(environment.iter().map(|(name, value)| (name, value)));
    command
}

/// Sends a signal to a process. What is stopped stands still when this returns: a thread that has not heard of it yet could
/// answer what is asked next, and a test would take that for an answer of one that was woken.
pub fn send_signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
    while signal == "-STOP" && !stands_still(pid) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Is every thread of a process stopped, or is there none?
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    let states = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    // `PID (NAME) STATE …`: stopped, or at its end.
    states.into_iter().all(|stat| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('T' | 't' | 'Z' | 'X'))
    })
}
