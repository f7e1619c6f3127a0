//! `redis-server` as a process of a test: it listens on a free port of the loopback address, and keeps its files in a
//! directory of the test. Whoever starts one ends it by its process id.
//!
//! `ALLOD_TEST_REDIS_SERVER` names another program: another release, or `valkey-server`. The same program is used for the
//! members of a cluster and for sentinels. If it has no WAITAOF, tests that need it use the program that
//! `ALLOD_TEST_REDIS_LATER` names.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

#[path = "../../../support/skips.rs"]
#[allow(dead_code, reason = "shared with all tests")]
pub mod skips;

#[path = "../../../support/ports.rs"]
pub mod ports;

static PROGRAM: LazyLock<String> =
    LazyLock::new(|| std::env::var("ALLOD_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned()));

pub fn program() -> &'static str {
    &PROGRAM
}

/// Is there no `redis-server` here? Then the test is skipped, which is printed.
pub fn is_missing() -> bool {
    if Command::new(program()).arg("--version").stdout(Stdio::null()).status().is_ok() {
        return false;
    }
    skips::skip(&format!("there is no {}", program()));
    true
}

/// A server that reports what is on disk (WAITAOF). None where there is none, which is printed as a skip.
pub fn program_with_waitaof() -> Option<&'static str> {
    static FOUND: LazyLock<Option<String>> = LazyLock::new(|| {
        let later = std::env::var("ALLOD_TEST_REDIS_LATER").ok();
        std::iter::once(program().to_owned()).chain(later).find(|program| has_waitaof(program))
    });
    if FOUND.is_none() {
        skips::skip("there is no redis-server that has WAITAOF (7.2 or later, by ALLOD_TEST_REDIS_LATER)");
    }
    FOUND.as_deref()
}

/// WAITAOF exists since 7.2. Versions read `Redis server v=7.0.15 sha=…`, `Valkey server v=8.0.1 …`.
fn has_waitaof(program: &str) -> bool {
    let Ok(said) = Command::new(program).arg("--version").output() else { return false };
    let said = String::from_utf8_lossy(&said.stdout);
    let version = said.split_once("v=").map_or("", |(_, behind)| behind);
    let mut numbers = version.split(['.', ' ']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(7), Some(2))
}

/// Arguments of every server: without persistence, unless later settings say otherwise.
pub fn arguments(port: u16, directory: &Path) -> Vec<String> {
    let (port, directory) = (port.to_string(), directory.display().to_string());
    let network = ["--bind", "127.0.0.1", "--port", &port, "--daemonize", "no"];
    let files = ["--save", "", "--appendonly", "no", "--loglevel", "warning", "--dir", &directory];
    [&network[..], &files[..]].concat().into_iter().map(str::to_owned).collect()
}

/// Starts a command whose output is discarded.
pub fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Do these settings give the server a certificate? Then its port speaks only TLS.
pub fn is_secured(settings: &[String]) -> bool {
    settings.iter().any(|setting| setting == "--tls-cert-file")
}

/// More arguments for a server with a certificate: a socket in its directory, for the test's own commands.
fn secured(port: u16, directory: &Path, settings: &[String]) -> Vec<String> {
    if !is_secured(settings) {
        return Vec::new();
    }
    let (port, socket) = (port.to_string(), socket(directory).display().to_string());
    ["--port", "0", "--tls-port", &port, "--unixsocket", &socket].map(str::to_owned).into()
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("operator.sock")
}

/// The URL at which a test asks a server with these settings.
pub fn operators_url(port: u16, directory: &Path, settings: &[String]) -> String {
    if is_secured(settings) {
        return format!("redis+unix://{}", socket(directory).display());
    }
    format!("redis://127.0.0.1:{port}/")
}

/// The URL at which a node reaches a server with these settings.
pub fn nodes_url(port: u16, settings: &[String]) -> String {
    format!("redis{}://127.0.0.1:{port}/", if is_secured(settings) { "s" } else { "" })
}

/// Starts a server by this command, and waits until it answers.
pub fn start_by(mut command: Command, port: u16, directory: &Path, settings: &[String]) -> Child {
    let behind = secured(port, directory, settings);
    let child = spawn(command.args(arguments(port, directory)).args(settings).args(behind));
    wait_at(&operators_url(port, directory, settings));
    child
}

pub fn wait(port: u16) {
    wait_at(&format!("redis://127.0.0.1:{port}/"));
}

fn wait_at(url: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    let client = redis::Client::open(url).unwrap();
    while client.get_connection().and_then(|mut c| redis::cmd("PING").query::<String>(&mut c)).is_err() {
        assert!(Instant::now() < end, "{} does not answer", program());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills a process, as a crash does.
pub fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}
