//! What hands out addresses by DHCP: ISC Kea with its file of leases, asked by perfdhcp, each in a network namespace of its
//! own with a cable between them. Needs root. Its rate is the highest of some offered rates that it answers best at.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use serde_json::json;
use tempfile::TempDir;

use super::Plan;
use crate::arrivals::Chance;
use crate::driver::Measured;
use crate::meter::Meter;
use crate::report::Report;

/// Exchanges that are offered in a second, one rate after the other, until less than before come back.
const RATES: [u32; 5] = [1_000, 2_000, 4_000, 8_000, 16_000];
/// Exchanges that are offered in a second of a pool in which something is held: what is free has to last for all of
/// them.
const RATES_FILLED: [u32; 5] = [250, 500, 1_000, 2_000, 4_000];
/// Where the pool of a fill level begins.
const POOL: u32 = 0x0a40_0000;
/// Leases last so long.
const LIFETIME_SECONDS: i64 = 7_200;
/// Longest wait until the server listens.
const START_MAX: Duration = Duration::from_secs(60);

/// Why it cannot be measured here, if so.
pub fn missing() -> Option<String> {
    if !geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    super::missing(&["kea-dhcp4", "perfdhcp", "ip", "ss"])
}

/// Two namespaces and the server in one of them. Dropping it ends both.
struct Bench {
    server_space: String,
    client_space: String,
    files: TempDir,
    server: Option<Child>,
}

fn ip(words: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(words).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())))
}

impl Bench {
    fn new() -> io::Result<Self> {
        let own = std::process::id();
        let files = tempfile::tempdir()?;
        let bench = Self {
            server_space: format!("allod-load-s{own}"),
            client_space: format!("allod-load-c{own}"),
            files,
            server: None,
        };
        let Self { server_space: server, client_space: client, .. } = &bench;
        ip(&["netns", "add", server])?;
        ip(&["netns", "add", client])?;
        ip(&["link", "add", "srv", "netns", server, "type", "veth", "peer", "name", "cli", "netns", client])?;
        for (space, link, address) in [(server, "srv", "10.0.0.1/8"), (client, "cli", "10.0.0.2/8")] {
            ip(&["-n", space, "addr", "add", address, "dev", link])?;
            ip(&["-n", space, "link", "set", "lo", "up"])?;
            ip(&["-n", space, "link", "set", link, "up"])?;
        }
        Ok(bench)
    }

    fn start(&mut self, plan: &Plan) -> io::Result<()> {
        let directory = self.files.path();
        let (leases, log) = (directory.join("leases.csv"), directory.join("log"));
        let pool = if plan.fill_level > 0.0 {
            write_leases(&leases, plan)?;
            format!("{}/{}", Ipv4Addr::from(POOL), plan.pool)
        } else {
            "10.1.0.0 - 10.255.255.254".to_owned()
        };
        let output = json!({"output": log.display().to_string()});
        let settings = json!({"Dhcp4": {
            "interfaces-config": {"interfaces": ["srv"], "dhcp-socket-type": "udp"},
            "lease-database": {"type": "memfile", "persist": true, "name": leases.display().to_string(), "lfc-interval": 0},
            "valid-lifetime": LIFETIME_SECONDS,
            "sanity-checks": {"lease-checks": "none"},
            "subnet4": [{"id": 1, "subnet": "10.0.0.0/8", "pools": [{"pool": pool}]}],
            "loggers": [{"name": "kea-dhcp4", "severity": "ERROR", "output_options": [output]}],
        }});
        let path = directory.join("kea.json");
        std::fs::File::create(&path)?.write_all(settings.to_string().as_bytes())?;
        let child = in_space(&self.server_space, "kea-dhcp4")
            .arg("-c")
            .arg(&path)
            .envs([("KEA_PIDFILE_DIR", directory), ("KEA_LOCKFILE_DIR", directory)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let child = self.server.insert(child);
        let begun = Instant::now();
        loop {
            let sockets = in_space(&self.server_space, "ss").args(["-Huln"]).output()?;
            if String::from_utf8_lossy(&sockets.stdout).contains(":67 ") {
                return Ok(());
            }
            if child.try_wait()?.is_some() || begun.elapsed() > START_MAX {
                return Err(io::Error::other(format!("kea-dhcp4 did not start: {}", read(&log))));
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Exchanges that were completed in a second at this rate.
    fn exchanges(&self, rate: u32, seconds: u64) -> io::Result<f64> {
        // Each rate has clients of its own, or they would be given what they hold.
        let clients = format!("mac=02:00:{:02x}:{:02x}:00:00", rate >> 8 & 0xff, rate & 0xff);
        let (rate, seconds) = (rate.to_string(), seconds.to_string());
        let output = in_space(&self.client_space, "perfdhcp")
            .args(["-4", "-l", "cli", "-r", &rate, "-R", "1000000", "-p", &seconds, "-W", "500000"])
            .args(["-b", &clients, "10.0.0.1"])
            .stdin(Stdio::null())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = text.lines().find_map(|line| line.strip_prefix("Rate:")?.split_whitespace().next()?.parse().ok());
        rate.ok_or_else(|| {
            io::Error::other(format!("perfdhcp tells no rate: {text}{}", String::from_utf8_lossy(&output.stderr)))
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Both fail only where it has ended already.
            let _ = server.kill();
            let _ = server.wait();
        }
        for space in [&self.server_space, &self.client_space] {
            if let Err(error) = ip(&["netns", "del", space]) {
                eprintln!("allod-load: {error}");
            }
        }
    }
}

fn in_space(space: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", space, program]);
    command
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Leases of clients that never come, scattered over the pool.
fn write_leases(path: &Path, plan: &Plan) -> io::Result<()> {
    let expire = jiff::Timestamp::now().as_second() + LIFETIME_SECONDS;
    let mut chance = Chance::new(0);
    let mut text =
        "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n"
            .to_owned();
    for number in (0..plan.addresses() as u32).filter(|_| chance.fraction() <= plan.fill_level) {
        let (address, [a, b, c, d]) = (Ipv4Addr::from(POOL + number), number.to_be_bytes());
        let hardware = format!("0a:01:{a:02x}:{b:02x}:{c:02x}:{d:02x}");
        // Writing into a string does not fail.
        let _ = writeln!(text, "{address},{hardware},,{LIFETIME_SECONDS},{expire},1,0,0,,0,");
    }
    std::fs::File::create(path)?.write_all(text.as_bytes())
}

/// Asks at rising rates; each time with new clients, whom nothing is known of.
///
/// # Errors
/// A namespace cannot be made, or Kea does not start.
pub fn measure(plan: &Plan) -> io::Result<Report> {
    let mut bench = Bench::new()?;
    bench.start(plan)?;
    let rates = if plan.fill_level > 0.0 { RATES_FILLED } else { RATES };
    let seconds = plan.seconds.ceil().max(1.0) as u64;
    let mut best = 0.0f64;
    for rate in rates {
        let reached = bench.exchanges(rate, seconds)?;
        if reached < best {
            break;
        }
        best = reached;
    }
    let elapsed = Duration::from_secs(seconds);
    let answers = (best * elapsed.as_secs_f64()) as u64;
    let meter = Meter::new(None, None);
    let measured = Measured { answers, elapsed, ..Measured::new(meter) };
    let shape = super::Shape { connections: 1, depth: 1, ..plan.shape()? };
    Ok(Report::measured("kea", "", &shape, 1, &measured))
}
