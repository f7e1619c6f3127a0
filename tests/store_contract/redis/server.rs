//! A Redis server for one test: it listens on a free port of the loopback address, keeps its files in a directory of its
//! own, and is stopped by its process id when the test ends.

use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use allod::store::StoreError;
use allod::store::redis::{RedisOptions, RedisStore};
use redis::{Client, Connection, FromRedisValue};
use tempfile::TempDir;

#[path = "server/process.rs"]
#[allow(dead_code, reason = "shared with the tests of several nodes")]
pub mod process;

pub struct Server {
    program: &'static str,
    pub child: Option<Child>,
    pub port: u16,
    directory: Arc<TempDir>,
    settings: Vec<String>,
    /// Variables of its environment.
    environment: Vec<(&'static str, String)>,
}

impl Server {
    /// Starts a server, without persistence unless the settings say otherwise. None where there is no `redis-server`, which
    /// is printed as a skip.
    pub fn start(settings: &[&str]) -> Option<Server> {
        if process::is_missing() {
            return None;
        }
        Some(Self::start_by(process::program(), settings))
    }

    pub fn start_by(program: &'static str, settings: &[&str]) -> Server {
        Self::start_in(program, settings, Vec::new())
    }

    /// The same with these variables in its environment.
    pub fn start_in(program: &'static str, settings: &[&str], environment: Vec<(&'static str, String)>) -> Server {
        let port = process::ports::free_port();
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let mut server = Server { program, child: None, port, directory, settings, environment };
        server.begin();
        server
    }

    /// A handle on a server that is ended by whoever started it.
    #[allow(dead_code, reason = "only some of those who share this file have several threads")]
    pub fn like(other: &Self) -> Self {
        let Self { program, port, directory, settings, environment, .. } = other;
        let (directory, settings, environment) = (Arc::clone(directory), settings.clone(), environment.clone());
        Self { program, child: None, port: *port, directory, settings, environment }
    }

    pub fn begin(&mut self) {
        let mut command = Command::new(self.program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.child = Some(process::start_by(command, self.port, self.directory.path(), &self.settings));
    }

    /// Kills the process, as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::kill(&mut child);
        }
    }

    pub fn url(&self) -> String {
        process::nodes_url(self.port, &self.settings)
    }

    fn client(&self) -> Client {
        Client::open(process::operators_url(self.port, self.directory.path(), &self.settings)).unwrap()
    }

    #[allow(dead_code, reason = "only some of those who share this file keep a connection")]
    pub fn connection(&self) -> Connection {
        self.client().get_connection().unwrap()
    }

    /// Sends a command, as an operator would.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).unwrap()
    }

    /// Sends a command to a server that may not answer.
    pub fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut connection = self.client().get_connection_with_timeout(Duration::from_secs(2))?;
        connection.set_read_timeout(Some(Duration::from_secs(10)))?;
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection)
    }

    /// Ends the leases of all shards, so that another node may take a shard whose owner did not release it.
    #[allow(dead_code, reason = "only some of those who share this file wait for leases")]
    pub fn leases_ran_out(&self) {
        for head in self.ask::<Vec<String>>(&["KEYS", "*:head"]) {
            let _: u64 = self.ask(&["HSET", &head, "lease", "0"]);
        }
    }

    /// Options for a store of three shards, as the contract's tests have them.
    pub fn options(&self) -> RedisOptions {
        RedisOptions::new(self.url(), 3)
    }

    pub fn open(&self) -> Result<RedisStore, StoreError> {
        RedisStore::open(self.options())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
