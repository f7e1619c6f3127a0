//! The program under test, the server for it, and scripts that take the server's place.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// `allod-load`.
pub fn load() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_allod-load"));
    command.stdin(Stdio::null());
    command
}

/// Runs the program with `--json`, and returns the exit code and the parsed output.
#[track_caller]
pub fn report(words: &[&str]) -> (i32, Value) {
    let output = load().args(words).args(["--json", "--quiet"]).output().unwrap();
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code().unwrap(), report.unwrap_or_else(|error| panic!("{words:?}: {error}: {}", said(&output))))
}

/// The output of a program, for the message of a failed test.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The program in a directory where `allod`, which it starts, is this script.
pub fn load_that_starts(script: &str) -> (Command, TempDir) {
    let built = load().get_program().to_owned();
    let directory = tempfile::tempdir_in(Path::new(&built).parent().unwrap()).unwrap();
    let program = directory.path().join("allod-load");
    std::fs::hard_link(&built, &program).unwrap();
    write_script(&directory.path().join("allod"), script);
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    (command, directory)
}

/// Writes an executable script.
pub fn write_script(path: &Path, script: &str) {
    // A program that any thread still has open for writing cannot be started. So another process writes it.
    let mut write = Command::new("sh");
    write.args(["-c", r#"printf '%s' "$1" > "$0" && chmod +x "$0""#]).arg(path).arg(format!("#!/bin/sh\n{script}\n"));
    assert!(write.status().unwrap().success());
}

/// The script of a server that prints its address and stays.
pub fn ready(address: SocketAddr) -> String {
    format!("echo ready {address}; exec sleep 600")
}

/// Is this program installed?
pub fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// `allod serve --store memory` on a free port; ended when dropped.
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
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
