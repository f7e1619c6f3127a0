//! A Redis server for one run: on a free loopback port, with its files in a directory of its own.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::process::processor_time;
use crate::interrupt;

/// The longest wait until a server that was started answers.
const START_MAX: Duration = Duration::from_secs(60);
/// How many ports are tried.
const PORTS_MAX: u32 = 3;

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
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Flush::Off => "no file",
            Flush::Everysec => "everysec",
            Flush::Always => "always",
        }
    }
}

/// The role of a server among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Alone,
    /// A replica of the server on this port.
    Behind(u16),
    OfCluster,
}

/// A running server and its replicas. Dropping this kills them and removes their files.
pub struct Redis {
    child: Child,
    pub port: u16,
    /// The port for the other servers of its cluster; 0 without a cluster.
    pub(super) bus: u16,
    flush: Flush,
    replicas: Vec<Redis>,
    _files: TempDir,
}

/// A port that is free at the moment.
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
        Self::start_as(Role::Alone, flush)
    }

    /// Starts a server that can join a cluster.
    ///
    /// # Errors
    /// As of [`Redis::start`].
    pub(super) fn start_of_cluster(flush: Flush) -> io::Result<Self> {
        Self::start_as(Role::OfCluster, flush)
    }

    /// Starts a replica with the same flush setting, and waits until it has caught up.
    ///
    /// # Errors
    /// It does not start, or does not catch up.
    pub fn add_replica(&mut self) -> io::Result<()> {
        self.replicas.push(Self::start_as(Role::Behind(self.port), self.flush)?);
        let count = self.replicas.len();
        // WAIT counts replicas that have the latest write of this connection. Without a write it would also count replicas
        // that have nothing yet.
        let mut control = RedisControl::connect(self.address())?;
        control.call(&["SET", "followed", "1"])?;
        let answer = control.call(&["WAIT", &count.to_string(), &START_MAX.as_millis().to_string()])?;
        control.call(&["DEL", "followed"])?;
        if answer == format!(":{count}") {
            return Ok(());
        }
        Err(io::Error::other(format!("of {count} replicas of redis-server not all follow it: {answer}")))
    }

    fn start_as(role: Role, flush: Flush) -> io::Result<Self> {
        // Another process may take the port before Redis binds it: then Redis ends at once.
        let mut started = Self::begin(role, flush);
        for _ in 1..PORTS_MAX {
            match &started {
                Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => started = Self::begin(role, flush),
                _ => break,
            }
        }
        started
    }

    fn begin(role: Role, flush: Flush) -> io::Result<Self> {
        let files = tempfile::tempdir()?;
        let port = free_port()?;
        let mut command = command(port, files.path(), flush);
        let bus = if role == Role::OfCluster { free_port()? } else { 0 };
        match role {
            Role::Alone => {}
            Role::Behind(primary) => drop(command.args(["--replicaof", "127.0.0.1", &primary.to_string()])),
            Role::OfCluster => {
                command.args(["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()]);
                // A slow machine must not count as a failure, and there is no replica that could take over.
                command.args(["--cluster-node-timeout", "15000", "--cluster-require-full-coverage", "no"]);
            }
        }
        let child = command.spawn().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("redis-server cannot be started ({error}); install it, or use another store"),
            )
        })?;
        let mut redis = Self { child, port, bus, flush, replicas: Vec::new(), _files: files };
        let begun = Instant::now();
        while !redis.answers() {
            if let Some(status) = redis.child.try_wait()? {
                let text = format!("redis-server ended at once ({status})");
                return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
            }
            if begun.elapsed() > START_MAX {
                return Err(io::Error::other("redis-server does not answer"));
            }
            interrupt::check(0)?;
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Ok(redis)
    }

    /// The URL for `allod serve --redis`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Makes a call over a new connection. The answer is one line, or a text of one line.
    ///
    /// # Errors
    /// The server is gone, or refuses.
    pub fn call(&self, words: &[&str]) -> io::Result<String> {
        RedisControl::connect(self.address())?.call(words)
    }

    /// Makes a call whose answer has several lines.
    ///
    /// # Errors
    /// As of [`Redis::call`].
    pub(super) fn text(&self, words: &[&str]) -> io::Result<String> {
        RedisControl::connect(self.address())?.text(words)
    }

    /// Processor time that it has used so far in all its threads, without its replicas.
    ///
    /// # Errors
    /// The system gives no figures.
    pub fn processor_time(&self) -> io::Result<Duration> {
        processor_time(self.child.id())
    }

    fn answers(&self) -> bool {
        self.call(&["PING"]).is_ok_and(|answer| answer == "+PONG")
    }
}

/// A connection to a Redis server, one call at a time.
pub struct RedisControl {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl RedisControl {
    /// Connects.
    ///
    /// # Errors
    /// Nothing listens at this address.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, reader })
    }

    /// Makes a call whose answer is one line, or a text of one line.
    ///
    /// # Errors
    /// The connection is lost, or the call is refused.
    pub fn call(&mut self, words: &[&str]) -> io::Result<String> {
        let mut line = self.ask(words)?;
        if line.starts_with('$') {
            line.clear();
            self.reader.read_line(&mut line)?;
        }
        Ok(line.trim_end().to_owned())
    }

    /// Makes a call whose answer is a text.
    fn text(&mut self, words: &[&str]) -> io::Result<String> {
        let line = self.ask(words)?;
        let length = line.strip_prefix('$').and_then(|length| length.trim_end().parse::<usize>().ok());
        let length = length.ok_or_else(|| io::Error::other(format!("{}: {}", words[0], line.trim_end())))?;
        let mut text = vec![0; length];
        self.reader.read_exact(&mut text)?;
        String::from_utf8(text).map_err(io::Error::other)
    }

    /// Makes a call, and returns the first line of its answer.
    fn ask(&mut self, words: &[&str]) -> io::Result<String> {
        let mut call = format!("*{}\r\n", words.len()).into_bytes();
        words.iter().for_each(|word| push_word(&mut call, word));
        self.stream.write_all(&call)?;
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "Redis closed the connection"));
        }
        if let Some(error) = line.strip_prefix('-') {
            return Err(io::Error::other(format!("{}: {}", words[0], error.trim_end())));
        }
        Ok(line)
    }
}

/// Appends a word of a call.
pub fn push_word(out: &mut Vec<u8>, word: &str) {
    out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(port: u16, files: &Path, flush: Flush) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no", "--loglevel", "warning"]);
    // A rewrite of the file would fork in the middle of a measurement.
    command.args(["--save", "", "--auto-aof-rewrite-percentage", "0", "--dir"]).arg(files);
    // Otherwise Redis would delay the synchronisation of a replica, in case more replicas come.
    command.args(["--repl-diskless-sync-delay", "0"]);
    match flush {
        Flush::Off => command.args(["--appendonly", "no"]),
        Flush::Everysec => command.args(["--appendonly", "yes", "--appendfsync", "everysec"]),
        Flush::Always => command.args(["--appendonly", "yes", "--appendfsync", "always"]),
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Ctrl-C on the terminal is meant for the load program, which ends this process itself.
    command.process_group(0);
    command
}
