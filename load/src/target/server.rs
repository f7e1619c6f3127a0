//! A server for one run: the `allod` binary beside this program, on a free port, with a directory of its own.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::interrupt;

/// The exit code of a server that should be started again shortly.
const NOT_JUST_NOW: i32 = 75;
/// The delay before that.
const START_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How long the start is repeated.
const START_AGAIN_MAX: Duration = Duration::from_secs(60);
/// How long a server may take to stop in order, and how often this is checked.
const STOP_MAX: Duration = Duration::from_secs(120);
const STOP_LOOKED_EVERY: Duration = Duration::from_millis(5);
/// Lines of its output that may be buffered.
const LINES_WAITING: usize = 16;

/// Where the records of the started server live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// A log on this machine's disk, synced before each answer.
    #[value(alias = "EMBEDDED")]
    Embedded,
    /// Memory only.
    #[value(alias = "MEMORY")]
    Memory,
    /// A Redis server, which is started too.
    Redis,
}

impl Store {
    /// The name in the server's flag.
    pub fn name(self) -> &'static str {
        match self {
            Store::Embedded => "embedded",
            Store::Memory => "memory",
            Store::Redis => "redis",
        }
    }
}

/// The program to start, and the program that it runs under.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The binary; by default the one beside this program.
    pub path: Option<PathBuf>,
    /// A program with arguments that runs the binary, such as valgrind.
    pub under: Vec<OsString>,
}

impl Program {
    fn command(&self) -> io::Result<Command> {
        let path = match &self.path {
            Some(path) => path.clone(),
            None => beside_this("allod")?,
        };
        let mut words = self.under.iter().cloned().chain([path.into_os_string()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        Ok(command)
    }
}

/// A running server. Dropping this stops it, and removes its data if the directory is its own.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    program: Program,
    data: PathBuf,
    flags: Vec<String>,
    settings: Vec<(String, String)>,
    /// Removed with the server.
    _own: Option<TempDir>,
}

impl Server {
    /// Starts `allod serve` with these flags and environment settings, and waits until it prints its address.
    ///
    /// # Errors
    /// There is no such binary, or it ended before it was ready; its output is in the error or on standard error.
    pub fn start_with(flags: Vec<String>, settings: Vec<(String, String)>, program: &Program) -> io::Result<Self> {
        let own = tempfile::tempdir()?;
        let (child, address) = spawn(program, own.path(), &flags, &settings)?;
        let data = own.path().to_path_buf();
        Ok(Self { child, address, program: program.clone(), data, flags, settings, _own: Some(own) })
    }

    /// Starts `allod serve` with these flags and environment settings, on data that are kept.
    ///
    /// # Errors
    /// As of [`Server::start_with`].
    pub fn start_in(data: &Path, flags: &[&str], settings: &[(&str, &str)]) -> io::Result<Self> {
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let settings = super::settings(settings);
        let program = Program::default();
        let (child, address) = spawn(&program, data, &flags, &settings)?;
        Ok(Self { child, address, program, data: data.to_path_buf(), flags, settings, _own: None })
    }

    /// Its process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        end(&mut self.child);
    }

    /// Stops it in order; kills it if that takes too long.
    pub fn stop(&mut self) {
        // Once its status was collected, its process id may belong to another process.
        let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()).filter(|_| runs(&mut self.child)) {
            // Sending fails only if the process has ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        let begun = Instant::now();
        // The first signal ended the run and led to this stop; a second signal means that the user does not want to wait.
        while runs(&mut self.child) && begun.elapsed() < STOP_MAX && interrupt::check(1).is_ok() {
            std::thread::park_timeout(STOP_LOOKED_EVERY);
        }
        if runs(&mut self.child) {
            say!("allod-load: the server did not end within {:.0} s, and was killed", begun.elapsed().as_secs_f64());
            self.kill();
        }
    }

    /// Starts it again on its data; its address changes.
    ///
    /// # Errors
    /// As of [`Server::start_with`].
    pub fn restart(&mut self) -> io::Result<()> {
        (self.child, self.address) = spawn(&self.program, &self.data, &self.flags, &self.settings)?;
        Ok(())
    }
}

/// Starts the process, and waits until it prints its address. If it exits with "not just now", for example because a replica
/// that was just attached does not answer yet, it is started again, as a supervisor would do.
fn spawn(
    program: &Program,
    data: &Path,
    flags: &[String],
    settings: &[(String, String)],
) -> io::Result<(Child, SocketAddr)> {
    let begun = Instant::now();
    loop {
        match spawn_once(program, data, flags, settings)? {
            Begun::Ready(child, address) => return Ok((child, address)),
            Begun::Ended(status, _) if status.code() == Some(NOT_JUST_NOW) && begun.elapsed() < START_AGAIN_MAX => {
                std::thread::park_timeout(START_AGAIN_AFTER);
            }
            Begun::Ended(status, said) => {
                let text = format!("the server ended ({status}) before it was ready; it said: {said}");
                return Err(io::Error::other(text));
            }
        }
    }
}

/// The outcome of a start.
enum Begun {
    Ready(Child, SocketAddr),
    /// With its output.
    Ended(ExitStatus, String),
}

fn spawn_once(program: &Program, data: &Path, flags: &[String], settings: &[(String, String)]) -> io::Result<Begun> {
    let mut child = program
        .command()?
        .arg("serve")
        .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .args(flags)
        .arg("--data")
        .arg(data)
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Ctrl-C on the terminal is meant for the load program, which ends the server after the comparison.
        .process_group(0)
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("the server has no standard output"))?;
    match until_ready(stdout) {
        Ok((Some(address), _)) => Ok(Begun::Ready(child, address)),
        Ok((None, said)) => Ok(Begun::Ended(child.wait()?, said)),
        Err(error) => {
            end(&mut child);
            Err(error)
        }
    }
}

/// Reads the output of a server until it prints its address, or until the output ends. Returns the address and the output
/// before it.
///
/// # Errors
/// The output cannot be read, or a signal came: a server that waits for its register may print nothing for a long time.
fn until_ready(stdout: ChildStdout) -> io::Result<(Option<SocketAddr>, String)> {
    let (sender, lines) = sync_channel(LINES_WAITING);
    // The thread ends with the server's output, or when the receiver is gone.
    std::thread::Builder::new()
        .name("ready".into())
        .spawn(move || BufReader::new(stdout).lines().try_for_each(|line| sender.send(line)))?;
    let mut said = String::new();
    loop {
        interrupt::check(0)?;
        let line = match lines.recv_timeout(interrupt::LOOKED_EVERY) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok((None, said)),
        };
        if let Some(address) = ready_address(&line) {
            return Ok((Some(address), said));
        }
        said.push_str(&line);
        said.push('\n');
    }
}

/// Kills the process.
fn end(child: &mut Child) {
    // Both fail only if the process has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The first address with a port on a line that contains `ready`.
fn ready_address(line: &str) -> Option<SocketAddr> {
    line.contains("ready")
        .then(|| line.split(|c: char| c.is_whitespace() || "=,\"".contains(c)).find_map(|word| word.parse().ok()))?
}

/// The path of a binary in the directory of this program.
fn beside_this(name: &str) -> io::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.exists() {
        return Ok(path);
    }
    Err(io::Error::other(format!("there is no `{name}` beside this program; build it with the same profile")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_is_read_in_any_wording() {
        let address: SocketAddr = "127.0.0.1:4711".parse().unwrap();
        for line in [
            "ready 127.0.0.1:4711",
            "ready listen=127.0.0.1:4711 http=127.0.0.1:4712",
            r#"{"ready": "127.0.0.1:4711"}"#,
        ] {
            assert_eq!(ready_address(line), Some(address), "{line}");
        }
        assert_eq!(ready_address("loading 127.0.0.1:4711"), None);
    }
}
