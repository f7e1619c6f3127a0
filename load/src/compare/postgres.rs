//! An alternative built with PostgreSQL: a row for each address, and a client locks the first free row that no other client
//! has locked. It is driven by pgbench, with one outstanding transaction on each connection.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;
use tempfile::TempDir;

use super::Plan;
use crate::driver::Measured;
use crate::interrupt;
use crate::meter::{Kind, Meter, Outside};
use crate::refusal::NONE_LEFT;
use crate::report::Report;

/// PostgreSQL refuses to run as root; its packages create this user.
const USER: &str = "postgres";
/// The most rows of the table: creating a row takes longer than allocating it.
const ROWS_MAX: u64 = 1 << 20;

/// Why this machine cannot measure PostgreSQL, if so.
pub fn missing() -> Option<String> {
    let Some(programs) = programs() else { return Some("there is no PostgreSQL (initdb, pg_ctl)".to_owned()) };
    if !programs.join("pgbench").exists() {
        return Some("there is no pgbench".to_owned());
    }
    if geteuid().is_root() {
        return super::missing(&["setpriv"]);
    }
    None
}

/// The directory of the newest server's programs; Debian does not add it to the path.
fn programs() -> Option<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut places: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
    places.sort_by_key(|place| {
        let version =
            place.parent().and_then(|version| version.file_name()).map(|name| name.to_string_lossy().into_owned());
        version.and_then(|version| version.parse::<u32>().ok())
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = places.into_iter().rev().chain(std::env::split_paths(&path).collect::<Vec<_>>());
    candidates.into_iter().find(|place| place.join("initdb").exists() && place.join("pg_ctl").exists())
}

/// A server without a port: it listens on a socket in its directory. Dropping this stops it.
struct Server {
    programs: PathBuf,
    files: TempDir,
}

impl Server {
    fn start(connections: usize) -> io::Result<Self> {
        let programs = programs().ok_or_else(|| io::Error::other("there is no PostgreSQL"))?;
        let files = tempfile::tempdir()?;
        // The server's user needs access to this directory.
        std::fs::set_permissions(files.path(), std::fs::Permissions::from_mode(0o777))?;
        let server = Self { programs, files };
        let data = server.data();
        let made = ["-D", &data, "-A", "trust", "-U", USER, "--locale=C", "--encoding=UTF8"];
        server.run("initdb", &made)?;
        let directory = server.files.path().display();
        let settings = format!(
            "-c listen_addresses= -c unix_socket_directories={directory} -c shared_buffers=256MB -c max_wal_size=8GB \
             -c checkpoint_timeout=30min -c max_connections={}",
            connections + 20
        );
        let log = format!("{directory}/log");
        server.run("pg_ctl", &["-D", &data, "-l", &log, "-w", "-o", &settings, "start"])?;
        Ok(server)
    }

    fn data(&self) -> String {
        self.files.path().join("data").display().to_string()
    }

    /// Runs one of its programs as a user that it accepts, and returns the output.
    fn run(&self, program: &str, words: &[&str]) -> io::Result<String> {
        let path = self.programs.join(program);
        let mut command = if geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--init-groups"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        // The output goes to a file: a server started by pg_ctl keeps the descriptors that it inherits, so a pipe would
        // never end.
        let said = self.files.path().join("said");
        let file = std::fs::File::create(&said)?;
        command.args(words).current_dir(self.files.path());
        let mut child = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
        // An interrupted start or stop would leave a server behind.
        let status = interrupt::wait(&mut child, if program == "pg_ctl" { u32::MAX } else { 0 })?;
        let text = String::from_utf8_lossy(&std::fs::read(&said)?).into_owned();
        if status.success() { Ok(text) } else { Err(io::Error::other(format!("{program} ({status}): {text}"))) }
    }

    fn sql(&self, text: &str) -> io::Result<String> {
        let directory = self.files.path().display().to_string();
        let words = ["-qAt", "-v", "ON_ERROR_STOP=1", "-h", &directory, "-U", USER, "-d", "postgres", "-c", text];
        Ok(self.run("psql", &words)?.trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // This fails only if the server was never started.
        let _ = self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
    }
}

/// The table, its index of free addresses, and the function that takes one.
fn tables(rows: u64) -> [String; 4] {
    [
        format!(
            "create table address (network int, number bigint, owner text, record jsonb, at timestamptz, \
             primary key (network, number)) with (fillfactor = 70); \
             insert into address (network, number) select 1, n from generate_series(0, {}) n",
            rows - 1
        ),
        "create index free on address (network, number) where owner is null; \
         create index owned on address (owner) where owner is not null"
            .to_owned(),
        "create function take(wanted int, who text, what jsonb) returns bigint language sql as $$ \
         update address set owner = who, record = what, at = now() where (network, number) = \
         (select network, number from address where network = wanted and owner is null \
         order by number limit 1 for update skip locked) returning number $$"
            .to_owned(),
        "analyze address".to_owned(),
    ]
}

/// Runs pgbench against a server of its own.
///
/// # Errors
/// The server cannot be made or driven.
pub fn measure(plan: &Plan) -> io::Result<Report> {
    let server = Server::start(plan.connections)?;
    let rows = plan.addresses().min(ROWS_MAX);
    tables(rows).iter().try_for_each(|text| server.sql(text).map(drop))?;
    let script = server.files.path().join("take.sql");
    let record = r#"{"kind":"dynamic","claimant":"vm-17","labels":{"zone":"z1","tenant":"t-17"}}"#;
    let mut file = std::fs::File::create(&script)?;
    writeln!(file, "\\set n random(1, 1000000000)\nselect take(1, 'node-' || :n, '{record}');")?;
    drop(file);
    let directory = server.files.path().display().to_string();
    let (log, script) = (format!("{directory}/transactions"), script.display().to_string());
    let (clients, seconds) = (plan.connections.to_string(), plan.seconds.ceil().max(1.0).to_string());
    let options = ["-h", &directory, "-U", USER, "-n", "-M", "prepared", "-j", "1", "-c", &clients, "-T", &seconds];
    server.run("pgbench", &[&options[..], &["-l", "--log-prefix", &log, "-f", &script, "postgres"]].concat())?;
    let measured = read_log(server.files.path(), "transactions", rows)?;
    let taken: u64 =
        server.sql("select count(*) from address where owner is not null")?.parse().map_err(io::Error::other)?;
    let shape = super::Shape { depth: 1, ..plan.shape()? };
    let mut report = Report::measured("postgresql", "", &shape, 1, &measured);
    (report.held, report.capacity) = (taken, rows);
    // Transactions after the last free row took nothing.
    let without = report.answers.saturating_sub(taken);
    if taken == rows && without > 0 {
        report.refused.insert(NONE_LEFT.to_owned(), without);
    }
    Ok(report)
}

/// Reads pgbench's log of transactions: client, number, microseconds, script, and the time of its end.
fn read_log(directory: &Path, prefix: &str, rows: u64) -> io::Result<Measured> {
    let mut transactions: Vec<(f64, f64)> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) {
            continue;
        }
        for line in std::fs::read_to_string(path)?.lines() {
            let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [_, _, micros, _, seconds, fraction, ..] = numbers[..] else { continue };
            transactions.push((seconds + fraction / 1e6, micros / 1e6));
        }
    }
    transactions.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = transactions.iter().map(|(end, took)| end - took).fold(f64::INFINITY, f64::min);
    let mut meter = Meter::new(None, None);
    let (mut elapsed, mut answers) = (Duration::ZERO, 0);
    let outside = |held: u64| Outside { held: held.into(), capacity: rows.into(), ..Outside::default() };
    for (end, took) in transactions {
        elapsed = Duration::try_from_secs_f64(end - first).unwrap_or_default();
        answers += 1;
        meter.record(Kind::Allocate, Duration::try_from_secs_f64(took).unwrap_or_default(), false);
        if meter.is_due(elapsed) {
            meter.end_window(elapsed, outside(answers));
        }
    }
    meter.end_window(elapsed, outside(answers));
    Ok(Measured { answers, elapsed, ..Measured::new(meter) })
}
