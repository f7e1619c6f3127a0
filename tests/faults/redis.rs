//! A Redis server of a test's own: on a free loopback port, its files in a directory of its own, ended by its process id.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            if let Some(path) = std::env::var_os("ALLOD_SKIPS_FILE") {
                let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
                let name = std::thread::current().name().unwrap_or("redis").to_owned();
                writeln!(file, "{name}: there is no redis-server").unwrap();
            }
            return None;
        }
        let port = free_port();
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let child = spawn(port, directory, &settings);
        let redis = Self { child, port, directory: directory.to_owned(), settings };
        redis.wait();
        Some(redis)
    }

    /// Kills it.
    pub fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again.
    pub fn begin(&mut self) {
        self.child = spawn(self.port, &self.directory, &self.settings);
        self.wait();
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

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        let client = redis::Client::open(self.url()).unwrap();
        while client.get_connection().and_then(|mut c| redis::cmd("PING").query::<String>(&mut c)).is_err() {
            assert!(Instant::now() < end, "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody has now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(port: u16, directory: &Path, settings: &[String]) -> Child {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no", "--save", ""]);
    command.args(["--appendonly", "no", "--loglevel", "warning", "--dir"]).arg(directory).args(settings);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Sends a signal to a process.
pub fn send_signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}
