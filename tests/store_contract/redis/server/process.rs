//! `redis-server` as a process of a test: on a free port of the loopback address, its files in a directory of the test.
//! Whoever starts one ends it by its process id.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[path = "../../../support/skips.rs"]
#[allow(dead_code, reason = "shared with all tests")]
pub mod skips;

#[path = "../../../support/ports.rs"]
pub mod ports;

/// Is there no `redis-server` here? Then the test ends, which is told as a skip.
pub fn is_missing() -> bool {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok() {
        return false;
    }
    skips::skip("there is no redis-server");
    true
}

/// What every server is started with: without persistence, unless settings behind these say so.
pub fn arguments(port: u16, directory: &Path) -> Vec<String> {
    let (port, directory) = (port.to_string(), directory.display().to_string());
    let network = ["--bind", "127.0.0.1", "--port", &port, "--daemonize", "no"];
    let files = ["--save", "", "--appendonly", "no", "--loglevel", "warning", "--dir", &directory];
    [&network[..], &files[..]].concat().into_iter().map(str::to_owned).collect()
}

/// Starts a command that says nothing.
pub fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Starts a server, and waits until it answers.
pub fn start(port: u16, directory: &Path, settings: &[String]) -> Child {
    start_by(Command::new("redis-server"), port, directory, settings)
}

/// Starts a server by another command than its own, and waits until it answers.
pub fn start_by(mut command: Command, port: u16, directory: &Path, settings: &[String]) -> Child {
    let child = spawn(command.args(arguments(port, directory)).args(settings));
    wait(port);
    child
}

/// Waits until a server answers.
pub fn wait(port: u16) {
    let end = Instant::now() + Duration::from_secs(60);
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    while client.get_connection().and_then(|mut c| redis::cmd("PING").query::<String>(&mut c)).is_err() {
        assert!(Instant::now() < end, "redis-server does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills a process, as a crash does.
pub fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}
