//! A Redis server of a test's own: on a free loopback port, its files in a directory of its own, ended by its process id.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

#[path = "../store_contract/redis/server/process.rs"]
#[allow(dead_code, reason = "shared with the tests of stores")]
pub mod process;

/// The process, and what it is started again with.
pub struct Redis {
    child: Child,
    port: u16,
    directory: PathBuf,
    settings: Vec<String>,
}

impl Redis {
    /// Starts one. None where there is no `redis-server`, which is told as a skip.
    pub fn start(directory: &Path, settings: &[&str]) -> Option<Self> {
        if process::is_missing() {
            return None;
        }
        let port = process::free_port();
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let child = process::start(port, directory, &settings);
        Some(Self { child, port, directory: directory.to_owned(), settings })
    }

    /// Kills it.
    pub fn end(&mut self) {
        process::kill(&mut self.child);
    }

    /// Starts it again.
    pub fn begin(&mut self) {
        self.child = process::start(self.port, &self.directory, &self.settings);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it answers; nothing where it does not.
    pub fn text(&self, words: &[&str]) -> String {
        let client = redis::Client::open(self.url()).unwrap();
        let connection = client.get_connection_with_timeout(Duration::from_secs(1));
        let answer = connection.and_then(|mut connection| redis::cmd(words[0]).arg(&words[1..]).query(&mut connection));
        answer.unwrap_or_default()
    }

    /// Kills it, and starts it again on what is left.
    pub fn crash(&mut self) {
        self.end();
        self.begin();
    }

    /// `-STOP`, `-CONT`.
    pub fn signal(&self, signal: &str) {
        send_signal(self.child.id(), signal);
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// A command of an operator.
    pub fn ask(&self, words: &[&str]) {
        let mut connection = redis::Client::open(self.url()).unwrap().get_connection().unwrap();
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

/// Sends a signal to a process.
pub fn send_signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}
