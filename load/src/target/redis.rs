//! A Redis server for the time of a run: on a free loopback port, its files in a directory of its own.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longest wait until a server that was started answers.
const START_MAX: Duration = Duration::from_secs(60);

/// What Redis flushes to its append-only file, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Flush {
    /// Nothing is written: what it holds is lost with it.
    Off,
    /// Once a second.
    Everysec,
    /// Before each answer.
    Always,
}

impl Flush {
    /// As a report names it.
    pub fn name(self) -> &'static str {
        match self {
            Flush::Off => "no file",
            Flush::Everysec => "everysec",
            Flush::Always => "always",
        }
    }
}

/// A running server. Dropping it kills it and removes its files.
pub struct Redis {
    child: Child,
    pub port: u16,
    _files: TempDir,
}

/// A port that nobody has now.
///
/// # Errors
/// There is none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Redis {
    /// Starts `redis-server` and waits until it answers.
    ///
    /// # Errors
    /// There is no such program, or it does not answer.
    pub fn start(flush: Flush) -> io::Result<Self> {
        let files = tempfile::tempdir()?;
        let port = free_port()?;
        let child = command(port, files.path(), flush).spawn().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("redis-server cannot be started ({error}); install it, or use another store"),
            )
        })?;
        let mut redis = Self { child, port, _files: files };
        let begun = Instant::now();
        while !redis.answers() {
            if let Some(status) = redis.child.try_wait()? {
                return Err(io::Error::other(format!("redis-server ended at once ({status})")));
            }
            if begun.elapsed() > START_MAX {
                return Err(io::Error::other("redis-server does not answer"));
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Ok(redis)
    }

    /// As `allod serve --redis` takes it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let mut answer = [0; 5];
        stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut answer).is_ok() && &answer == b"+PONG"
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(port: u16, files: &Path, flush: Flush) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no", "--loglevel", "warning"]);
    // A rewrite of the file would fork in the middle of a measurement.
    command.args(["--save", "", "--auto-aof-rewrite-percentage", "0", "--dir"]).arg(files);
    match flush {
        Flush::Off => command.args(["--appendonly", "no"]),
        Flush::Everysec => command.args(["--appendonly", "yes", "--appendfsync", "everysec"]),
        Flush::Always => command.args(["--appendonly", "yes", "--appendfsync", "always"]),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
