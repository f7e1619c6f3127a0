//! A Redis server of a test's own: on a free loopback port, with its files in a directory of its own, ended by its process id.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use allod::limits::SHARDS_OF_NEW;

#[path = "../store_contract/redis/server/process.rs"]
#[allow(dead_code, reason = "shared with the tests of stores")]
pub mod process;

/// The process, and everything that is needed to start it again.
pub struct Redis {
    program: &'static str,
    child: Child,
    port: u16,
    directory: PathBuf,
    settings: Vec<String>,
    /// Its extra environment.
    environment: Vec<(String, String)>,
    /// The words before its command.
    entry: Vec<String>,
}

impl Redis {
    /// Starts a server. None if there is no `redis-server`; the test is then reported as skipped.
    pub fn start(directory: &Path, settings: &[&str]) -> Option<Self> {
        Self::start_as(directory, settings, Vec::new(), Vec::new())
    }

    /// Starts a server in a directory of this name: a replica of the server at `primary`, or a server that may get replicas.
    pub fn replicating(directory: &Path, name: &str, primary: Option<u16>) -> Option<Self> {
        let place = directory.join(name);
        std::fs::create_dir(&place).unwrap();
        let port = primary.map(|port| port.to_string());
        let follows: Vec<&str> = port.iter().flat_map(|port| ["--replicaof", "127.0.0.1", port]).collect();
        Self::start(&place, &[&["--repl-diskless-sync-delay", "0", "--repl-timeout", "60"], &follows[..]].concat())
    }

    /// Is it a replica whose link to its primary is up?
    pub fn follows(&self) -> bool {
        self.text(&["INFO", "replication"]).contains("master_link_status:up")
    }

    /// The sum of a number in the heads of all shards. A replica that has just started has none yet.
    pub fn of_heads(&self, field: &str) -> u64 {
        let of = |shard| self.text(&["HGET", &format!("{{allod}}:{shard}:head"), field]).parse().unwrap_or(0);
        (0..SHARDS_OF_NEW).map(of).sum::<u64>()
    }

    /// Starts a server that can tell what is on disk, and that has each change on disk before it answers. None if no server
    /// here can.
    pub fn start_on_disk(directory: &Path, settings: &[&str]) -> Option<Self> {
        let program = process::program_with_waitaof()?;
        let settings = [&["--appendonly", "yes", "--appendfsync", "always"], settings].concat();
        Some(Self::start_by(program, directory, &settings, Vec::new(), Vec::new()))
    }

    /// Starts a server with this extra environment.
    pub fn start_with(directory: &Path, settings: &[&str], environment: Vec<(String, String)>) -> Option<Self> {
        Self::start_as(directory, settings, environment, Vec::new())
    }

    /// Starts a server with these words before its command, so that it sees another file system than others do.
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

    /// Did the server end by itself?
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Kills the server.
    pub fn end(&mut self) {
        process::kill(&mut self.child);
    }

    /// Starts the server again.
    pub fn begin(&mut self) {
        let command = command(self.program, &self.environment, &self.entry);
        self.child = process::start_by(command, self.port, &self.directory, &self.settings);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its answer as text; empty if it does not answer.
    pub fn text(&self, words: &[&str]) -> String {
        let connection = self.client().get_connection_with_timeout(Duration::from_secs(1));
        let answer = connection.and_then(|mut connection| redis::cmd(words[0]).arg(&words[1..]).query(&mut connection));
        answer.unwrap_or_default()
    }

    /// Its answer as a number.
    pub fn number(&self, words: &[&str]) -> u64 {
        let mut connection = self.client().get_connection().unwrap();
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap()
    }

    /// Kills the server, and starts it again on what is left.
    pub fn crash(&mut self) {
        self.end();
        self.begin();
    }

    /// Deletes its files.
    pub fn forget(&self) {
        for name in ["appendonlydir", "dump.rdb"] {
            let path = self.directory.join(name);
            // Only one of the two exists.
            let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
        }
    }

    /// Sends `-STOP` or `-CONT` to the server.
    pub fn signal(&self, signal: &str) {
        send_signal(self.child.id(), signal);
    }

    pub fn url(&self) -> String {
        format!("{}0", process::nodes_url(self.port, &self.settings))
    }

    fn client(&self) -> redis::Client {
        redis::Client::open(process::operators_url(self.port, &self.directory, &self.settings)).unwrap()
    }

    /// Runs a command as an operator would.
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
        // Both calls fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command that starts a server, with this environment and these words before it.
fn command(program: &str, environment: &[(String, String)], entry: &[String]) -> Command {
    let words: Vec<&str> = entry.iter().map(String::as_str).chain([program]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).envs(environment.iter().map(|(name, value)| (name, value)));
    command
}

/// Sends a signal to a process. After `-STOP` waits until the process stands still: a thread that was not stopped yet could
/// answer the next request, and a test would take that for an answer of a process that was woken.
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
    // The file has the form `PID (NAME) STATE …`; these states mean stopped or ending.
    states.into_iter().all(|stat| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('T' | 't' | 'Z' | 'X'))
    })
}
