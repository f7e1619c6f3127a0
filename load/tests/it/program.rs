//! The program under test, the server beside it, and how a skip is told.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// `allod-load`.
pub fn load() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allod-load"));
    command.stdin(Stdio::null());
    command
}

/// Runs it with `--json`, and reads what it printed; the exit code beside it.
#[track_caller]
pub fn report(words: &[&str]) -> (i32, Value) {
    let output = load().args(words).args(["--json", "--quiet"]).output().unwrap();
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code().unwrap(), report.unwrap_or_else(|error| panic!("{words:?}: {error}: {}", said(&output))))
}

/// What a program said, for the message of a test that failed.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Is there such a program?
pub fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// `allod serve --store memory`, on a free port; ended when dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    _files: TempDir,
}

impl Server {
    pub fn start() -> Self {
        let allod = PathBuf::from(env!("CARGO_BIN_EXE_allod-load")).with_file_name("allod");
        assert!(allod.exists(), "there is no `allod` beside allod-load: cargo build --workspace");
        let files = tempfile::tempdir().unwrap();
        let mut child = Command::new(allod)
            .args(["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"])
            .arg(files.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.map(Result::unwrap).find(|line| line.starts_with("ready")).unwrap();
        let address = ready.split(['=', ' ']).find_map(|word| word.parse().ok()).unwrap();
        Self { child, address, _files: files }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
