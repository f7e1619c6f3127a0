//! A server for the time of the run: the `allod` binary beside this one, on a free port, in a directory of its own.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

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

/// A running server. Dropping it stops it, and removes its data if they are its own.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    data: PathBuf,
    flags: Vec<String>,
    settings: Vec<(String, String)>,
    /// Removed with the server.
    _own: Option<TempDir>,
}

impl Server {
    /// Starts `allod serve` and waits until it says where it listens.
    ///
    /// # Errors
    /// There is no such binary, or it ended before it was ready; what it said is on standard error.
    pub fn start(store: Store) -> io::Result<Self> {
        Self::start_with(vec!["--store".to_owned(), store.name().to_owned()])
    }

    /// The same with these flags of `allod serve`.
    ///
    /// # Errors
    /// As of [`Server::start`].
    pub fn start_with(flags: Vec<String>) -> io::Result<Self> {
        let own = tempfile::tempdir()?;
        let (child, address) = spawn(own.path(), &flags, &[])?;
        let data = own.path().to_path_buf();
        Ok(Self { child, address, data, flags, settings: Vec::new(), _own: Some(own) })
    }

    /// The same with data that stay, and these settings of its environment.
    ///
    /// # Errors
    /// As of [`Server::start`].
    pub fn start_in(data: &Path, flags: &[&str], settings: &[(&str, &str)]) -> io::Result<Self> {
        let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let settings: Vec<(String, String)> =
            settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let (child, address) = spawn(data, &flags, &settings)?;
        Ok(Self { child, address, data: data.to_path_buf(), flags, settings, _own: None })
    }

    /// Ends it without a warning.
    pub fn kill(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on its data; it listens elsewhere.
    ///
    /// # Errors
    /// As of [`Server::start`].
    pub fn restart(&mut self) -> io::Result<()> {
        (self.child, self.address) = spawn(&self.data, &self.flags, &self.settings)?;
        Ok(())
    }
}

/// Starts the process, and waits until it says where it listens.
fn spawn(data: &Path, flags: &[String], settings: &[(String, String)]) -> io::Result<(Child, SocketAddr)> {
    let mut child = Command::new(beside_this("allod")?)
        .arg("serve")
        .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .args(flags)
        .arg("--data")
        .arg(data)
        .envs(settings.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("the server has no standard output"))?;
    let mut said = String::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if let Some(address) = ready_address(&line) {
            return Ok((child, address));
        }
        said.push_str(&line);
        said.push('\n');
    }
    let status = child.wait()?;
    Err(io::Error::other(format!("the server ended ({status}) before it was ready; it said: {said}")))
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // Failing means that it has ended by itself; waiting collects it either way.
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
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
