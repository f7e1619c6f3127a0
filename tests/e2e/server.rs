//! The `allod` process of a test: on free ports, in a directory of the test, stopped by its pid.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The program under test: the one built with the tests, or the one that `ALLOD_BIN` names (a release build).
pub fn allod() -> PathBuf {
    std::env::var_os("ALLOD_BIN").map_or_else(|| env!("CARGO_BIN_EXE_allod").into(), PathBuf::from)
}

/// The longest wait until a server is ready: a debug build that loads a hundred thousand records.
const READY_WAIT_MAX: Duration = Duration::from_secs(60);

/// A process that was started and may not be ready yet. Dropping it kills it.
pub struct Starting {
    child: Child,
    said: mpsc::Receiver<String>,
    log: PathBuf,
}

/// A server that listens.
pub struct Server {
    process: Starting,
    /// The address of the JSON-RPC port.
    pub address: SocketAddr,
    /// The address of the HTTP port.
    pub http: SocketAddr,
}

impl Starting {
    /// Starts `allod serve` with the embedded store in `data`; its log is appended to a file beside `data`, with the
    /// extension `log`.
    pub fn new(data: &Path) -> Self {
        Self::with_store(data, "embedded")
    }

    /// Starts `allod serve` with this store in `data`.
    pub fn with_store(data: &Path, store: &str) -> Self {
        let data_text = data.display().to_string();
        Self::with_arguments(data, &["serve", "--store", store, "--data", &data_text])
    }

    /// Starts `allod` with these arguments, which begin with `serve`, on free ports; its log goes beside `data`.
    pub fn with_arguments(data: &Path, arguments: &[impl AsRef<OsStr>]) -> Self {
        Self::with_environment(data, arguments, Vec::new())
    }

    /// Like [`Starting::with_arguments`], with this in the environment.
    pub fn with_environment(data: &Path, arguments: &[impl AsRef<OsStr>], environment: Vec<(String, String)>) -> Self {
        Self::of(&allod(), data, arguments, environment)
    }

    /// Like [`Starting::with_environment`], but starts this program instead of `allod`.
    pub fn of(
        program: &Path,
        data: &Path,
        arguments: &[impl AsRef<OsStr>],
        environment: Vec<(String, String)>,
    ) -> Self {
        Self::read_for(usize::MAX, program, data, arguments, environment)
    }

    /// Starts `allod` with these arguments, and reads only the first line of its stdout.
    #[allow(dead_code, reason = "for tests of processes")]
    pub fn read_once(data: &Path, arguments: &[impl AsRef<OsStr>]) -> Self {
        Self::read_for(1, &allod(), data, arguments, Vec::new())
    }

    fn read_for(
        lines: usize,
        program: &Path,
        data: &Path,
        arguments: &[impl AsRef<OsStr>],
        environment: Vec<(String, String)>,
    ) -> Self {
        let log = data.with_extension("log");
        let log_file = OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut child = Command::new(program)
            .args(arguments)
            .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, said) = mpsc::sync_channel(1_024);
        // Reads to the end, so that the server never blocks on a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok).take(lines) {
                let _ = sender.try_send(line);
            }
        });
        Self { child, said, log }
    }

    /// Waits until the server says where it listens.
    #[track_caller]
    pub fn ready(self) -> Server {
        self.ready_or_ended().unwrap_or_else(|(reason, log)| panic!("not ready ({reason}): {log}"))
    }

    /// Waits until the server says where it listens. Otherwise returns why it does not (`code 75` if it ended so), and its log.
    pub fn ready_or_ended(mut self) -> Result<Server, (String, String)> {
        loop {
            match self.said.recv_timeout(READY_WAIT_MAX) {
                Ok(line) => {
                    if let Some((address, http)) = ready_addresses(&line) {
                        return Ok(Server { process: self, address, http });
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => return Err(("it takes too long".to_owned(), self.log_text())),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let code = self.child.wait().unwrap().code().unwrap_or_default();
                    return Err((format!("code {code}"), self.log_text()));
                }
            }
        }
    }

    /// Waits until the server listens and owns its register.
    #[allow(dead_code, reason = "for tests of one process")]
    #[track_caller]
    pub fn owning(self) -> Server {
        let server = self.ready();
        let end = Instant::now() + READY_WAIT_MAX;
        while !http_get(server.http, "/readyz").starts_with("HTTP/1.1 200") {
            assert!(Instant::now() < end, "it does not own its register: {}", server.log_text());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Waits until the process ends by itself, which must be a failure. Returns its log.
    #[allow(dead_code, reason = "for tests of nodes that cannot join")]
    pub fn failed(mut self) -> String {
        assert!(!self.child.wait().unwrap().success());
        self.log_text()
    }

    /// Sends a signal to the process.
    #[allow(dead_code, reason = "for tests of nodes that are stopped before they are ready")]
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Waits until the process ends. Returns its exit code (none after a signal) and its log.
    #[allow(dead_code, reason = "for tests of nodes that are stopped before they are ready")]
    pub fn ends(mut self) -> (Option<i32>, String) {
        (self.child.wait().unwrap().code(), self.log_text())
    }

    /// Ends the process without any notice. Unlike after a power cut, what the kernel was given is kept.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The log of all processes of this data directory.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // Both calls fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a server with the embedded store, and waits until it is ready.
    #[track_caller]
    pub fn start(data: &Path) -> Self {
        Starting::new(data).ready()
    }

    /// Like [`Starting::kill`].
    pub fn kill(self) {
        self.process.kill();
    }

    /// The server's process id.
    #[allow(dead_code, reason = "for tests that send it other signals than to stop")]
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Waits until the server ends. Returns its exit code and its log.
    #[allow(dead_code, reason = "for tests of nodes that cannot go on")]
    pub fn ends(mut self) -> (Option<i32>, String) {
        (self.process.child.wait().unwrap().code(), self.process.log_text())
    }

    /// The log of this server and of all that ran in this place before.
    #[allow(dead_code, reason = "for tests that read what a node says of its role")]
    pub fn log_text(&self) -> String {
        self.process.log_text()
    }

    /// Asks the server to stop, and waits until it has.
    #[track_caller]
    pub fn stop(mut self) {
        let pid = self.process.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(self.process.child.wait().unwrap().code(), Some(0), "{}", self.process.log_text());
    }

    /// Runs `allod` against this server.
    pub fn allod(&self, arguments: &[&str]) -> Output {
        Command::new(allod()).args(arguments).env("ALLOD_SERVER", self.address.to_string()).output().unwrap()
    }

    /// Runs `allod` against this server, and returns what it printed.
    #[track_caller]
    pub fn allod_ok(&self, arguments: &[&str]) -> String {
        let output = self.allod(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }
}

/// The addresses in `ready tcp=… http=…`.
fn ready_addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let (tcp, http) = line.strip_prefix("ready tcp=")?.split_once(" http=")?;
    Some((tcp.parse().ok()?, http.parse().ok()?))
}

/// The answer to an HTTP GET, head and body.
pub fn http_get(server: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// The answer to an HTTP POST of a JSON body: status and body.
pub fn http_post(server: SocketAddr, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server).unwrap();
    let length = body.len();
    write!(stream, "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
        .unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
