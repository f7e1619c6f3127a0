//! A server for the time of the run: the `allod` binary beside this one, on a free port, in a directory of its own.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Exit code of a server that is to be started again in a moment.
const NOT_JUST_NOW: i32 = 75;
/// After such a moment.
const START_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How long it is started again.
const START_AGAIN_MAX: Duration = Duration::from_secs(60);

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
    /// As the server's flag spells it.
    pub fn name(self) -> &'static str {
        match self {
            Store::Embedded => "embedded",
            Store::Memory => "memory",
            Store::Redis => "redis",
        }
    }
}

/// What is started: `allod`, and what it runs under.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The binary; without one, that beside this program.
    pub path: Option<PathBuf>,
    /// A program and its arguments that run it.
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

/// A running server. Dropping it stops it, and removes its data if they are its own.
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
    /// Starts `allod serve` with these flags, and these settings of its environment, and waits until it says where it listens.
    ///
    /// # Errors
    /// There is no such binary, or it ended before it was ready; what it said is on standard error.
    pub fn start_with(flags: Vec<String>, settings: Vec<(String, String)>, program: &Program) -> io::Result<Self> {
        let own = tempfile::tempdir()?;
        let (child, address) = spawn(program, own.path(), &flags, &settings)?;
        let data = own.path().to_path_buf();
        Ok(Self { child, address, program: program.clone(), data, flags, settings, _own: Some(own) })
    }

    /// Starts `allod serve` with these flags and settings of its environment, on data that stay.
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

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends it without a warning.
    pub fn kill(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it in order.
    pub fn stop(&mut self) {
        // Who was collected has left its number to others.
        let runs = matches!(self.child.try_wait(), Ok(None));
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()).filter(|_| runs) {
            // Failing means that it has ended by itself; waiting collects it either way.
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }

    /// Starts it again on its data; it listens elsewhere.
    ///
    /// # Errors
    /// As of [`Server::start_with`].
    pub fn restart(&mut self) -> io::Result<()> {
        (self.child, self.address) = spawn(&self.program, &self.data, &self.flags, &self.settings)?;
        Ok(())
    }
}

/// Starts the process, and waits until it says where it listens. One that says "not just now", as where a replica that was
/// just attached does not answer yet, is started again, as its supervisor does.
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

/// What came of a start.
enum Begun {
    Ready(Child, SocketAddr),
    /// With what it said.
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
        // Ctrl-C on the terminal is for the load, which ends the server when it has compared.
        .process_group(0)
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("the server has no standard output"))?;
    let mut said = String::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if let Some(address) = ready_address(&line) {
            return Ok(Begun::Ready(child, address));
        }
        said.push_str(&line);
        said.push('\n');
    }
    Ok(Begun::Ended(child.wait()?, said))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The first address with a port on a line that says `ready`.
fn ready_address(line: &str) -> Option<SocketAddr> {
    line.contains("ready")
        .then(|| line.split(|c: char| c.is_whitespace() || "=,\"".contains(c)).find_map(|word| word.parse().ok()))?
}

/// The path of a binary that was built together with this one.
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
