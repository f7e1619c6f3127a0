//! A Redis server of a test's own: on a free port of the loopback address, its files in a directory of its own, stopped
//! by its process id when the test ends.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use allod::store::StoreError;
use allod::store::redis::{Options, RedisStore};
use redis::{Client, Connection, FromRedisValue};
use tempfile::TempDir;

pub struct Server {
    pub child: Option<Child>,
    pub port: u16,
    directory: TempDir,
    settings: Vec<String>,
}

impl Server {
    /// Without persistence unless the settings say so. None where there is no `redis-server`, which is told as a skip.
    pub fn start(settings: &[&str]) -> Option<Server> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            if let Some(path) = std::env::var_os("ALLOD_SKIPS_FILE") {
                let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
                let name = std::thread::current().name().unwrap_or("redis").to_owned();
                writeln!(file, "{name}: there is no redis-server").unwrap();
            }
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Server { child: None, port, directory: tempfile::tempdir().unwrap(), settings };
        server.begin();
        Some(server)
    }

    /// Starts the process, and waits until it answers.
    pub fn begin(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--daemonize", "no", "--save", ""]);
        command.args(["--appendonly", "no", "--loglevel", "warning", "--dir"]).arg(self.directory.path());
        command.args(&self.settings).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        let end = Instant::now() + Duration::from_secs(20);
        while self.client().get_connection().and_then(|mut c| redis::cmd("PING").query::<String>(&mut c)).is_err() {
            assert!(Instant::now() < end, "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process, as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn client(&self) -> Client {
        Client::open(self.url()).unwrap()
    }

    pub fn connection(&self) -> Connection {
        self.client().get_connection().unwrap()
    }

    /// A command of an operator, or of whatever happens to a server.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.connection()).unwrap()
    }

    /// Lets the time pass after which another node may take a shard whose owner did not let go.
    #[allow(dead_code, reason = "only some of those who share this file wait for leases")]
    pub fn leases_ran_out(&self) {
        for head in self.ask::<Vec<String>>(&["KEYS", "*:head"]) {
            let _: u64 = self.ask(&["HSET", &head, "lease", "0"]);
        }
    }

    /// A store of three shards, as the contract's tests have them.
    pub fn options(&self) -> Options {
        Options::new(self.url(), 3)
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
