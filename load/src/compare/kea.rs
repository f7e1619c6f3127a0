//! An alternative that hands out addresses by DHCP: ISC Kea with its lease file, driven by perfdhcp. Each runs in a network
//! namespace of its own, with a veth cable between them. Needs root.
//!
//! Exchanges are offered at rising rates until not all are answered. Each rate gets a new server with a lease file of its
//! own, so that addresses of an earlier rate are not missing from the pool. The result is the most exchanges that were
//! completed in the time of one rate.

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
use crate::interrupt;
use crate::meter::Meter;
use crate::report::Report;

/// Exchanges per second at first; each further rate is twice the previous one.
const RATE_FIRST: u32 = 1_000;
/// Higher rates are not offered: Kea has never been seen to answer them.
const RATE_MAX: u32 = 128_000;
/// The percentage of exchanges that must be completed for a rate to count as answered: the last ones are still under way at
/// the end.
const ANSWERED_PERCENT: u64 = 98;
/// How long perfdhcp waits for these, in microseconds.
const WAIT_MICROS: &str = "100000";
/// The largest share of a pool's free addresses that is handed out: the fill level must stay close to its nominal value.
const FREE_USED: f64 = 0.8;
/// Bounds for the addresses of a pool: the leases of each rate are written and read before it.
const ADDRESSES_MAX: f64 = (1u32 << 22) as f64;
const ADDRESSES_MIN: f64 = (1u32 << 16) as f64;
/// The first address of a pool with a fill level.
const POOL: u32 = 0x0a40_0000;
/// The lifetime of leases.
const LIFETIME_SECONDS: i64 = 7_200;
/// The longest wait until the server listens: it reads millions of leases before.
const START_MAX: Duration = Duration::from_secs(180);

/// Why this machine cannot measure Kea, if so.
pub fn missing() -> Option<String> {
    if !geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    super::missing(&["kea-dhcp4", "perfdhcp", "ip", "ss"])
}

/// Two namespaces, and the server in one of them. Dropping this ends both.
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

    /// Starts a new server in place of the old one, with leases for the fill level and room for this rate.
    fn start(&mut self, plan: &Plan, rate: u32, seconds: u64) -> io::Result<()> {
        self.stop();
        let directory = &self.files.path().join(rate.to_string());
        std::fs::create_dir(directory)?;
        let (leases, log) = (directory.join("leases.csv"), directory.join("log"));
        let pool = if plan.fill_level > 0.0 {
            let addresses = addresses(plan.fill_level, rate, seconds);
            write_leases(&leases, plan.fill_level, addresses)?;
            format!("{} - {}", Ipv4Addr::from(POOL), Ipv4Addr::from(POOL + addresses - 1))
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
            let ended = child.try_wait()?;
            if ended.is_some() || begun.elapsed() > START_MAX {
                let how = ended.map_or_else(|| format!("not within {START_MAX:?}"), |status| status.to_string());
                return Err(io::Error::other(format!("kea-dhcp4 did not start: {how}: {}", read(&log))));
            }
            interrupt::check(0)?;
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The exchanges that were completed in this time at this rate.
    fn exchanges(&self, rate: u32, seconds: u64) -> io::Result<u64> {
        let (rate, seconds) = (rate.to_string(), seconds.to_string());
        let mut child = in_space(&self.client_space, "perfdhcp")
            .args(["-4", "-l", "cli", "-r", &rate, "-R", "1000000", "-p", &seconds, "-W", WAIT_MICROS])
            .args(["-b", "mac=02:00:00:00:00:00", "10.0.0.1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // The output at its end fits into a pipe.
        interrupt::wait(&mut child, 0)?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        completed(&text).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!("perfdhcp tells of no acknowledgements: {text}{errors}"))
        })
    }

    fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Both fail only if the process has ended already.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The acknowledgements that perfdhcp received. The rate that it prints includes the time of waiting.
fn completed(text: &str) -> Option<u64> {
    let (_, acknowledged) = text.split_once("REQUEST-ACK")?;
    acknowledged.lines().find_map(|line| line.strip_prefix("received packets:")?.trim().parse().ok())
}

/// The size of a pool of this fill level whose free addresses last for a rate.
fn addresses(fill_level: f64, rate: u32, seconds: u64) -> u32 {
    let taken = f64::from(rate) * seconds as f64;
    (taken / FREE_USED / (1.0 - fill_level)).clamp(ADDRESSES_MIN, ADDRESSES_MAX).ceil() as u32
}

/// The highest rate that is offered: a pool must have room for it.
fn rate_max(fill_level: f64, seconds: u64) -> u32 {
    if fill_level <= 0.0 {
        return RATE_MAX;
    }
    let lasts = ADDRESSES_MAX * (1.0 - fill_level) * FREE_USED / seconds as f64;
    (lasts as u32).min(RATE_MAX)
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop();
        for space in [&self.server_space, &self.client_space] {
            if let Err(error) = ip(&["netns", "del", space]) {
                say!("allod-load: {error}");
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

/// Writes leases of clients that never appear, scattered over the pool.
fn write_leases(path: &Path, fill_level: f64, addresses: u32) -> io::Result<()> {
    let expire = jiff::Timestamp::now().as_second() + LIFETIME_SECONDS;
    let mut chance = Chance::new(0);
    let mut text =
        "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n"
            .to_owned();
    for number in (0..addresses).filter(|_| chance.fraction() <= fill_level) {
        let (address, [a, b, c, d]) = (Ipv4Addr::from(POOL + number), number.to_be_bytes());
        let hardware = format!("0a:01:{a:02x}:{b:02x}:{c:02x}:{d:02x}");
        // Writing into a string does not fail.
        let _ = writeln!(text, "{address},{hardware},,{LIFETIME_SECONDS},{expire},1,0,0,,0,");
    }
    std::fs::File::create(path)?.write_all(text.as_bytes())
}

/// Offers rising rates. If a rate is not answered completely, three quarters of it is offered too.
///
/// # Errors
/// A namespace cannot be made, or Kea does not start.
pub fn measure(plan: &Plan) -> io::Result<Report> {
    let mut bench = Bench::new()?;
    let seconds = plan.seconds.ceil().max(1.0) as u64;
    let most = rate_max(plan.fill_level, seconds);
    let mut offer = |rate: u32| {
        interrupt::check(0)?;
        bench.start(plan, rate, seconds)?;
        let completed = bench.exchanges(rate, seconds)?;
        Ok::<_, io::Error>((completed, completed * 100 >= u64::from(rate) * seconds * ANSWERED_PERCENT))
    };
    let (mut best, mut rate) = (0, RATE_FIRST.min(most));
    let is_bound = loop {
        let (completed, all_answered) = offer(rate)?;
        best = best.max(completed);
        if !all_answered {
            best = best.max(offer(rate * 3 / 4)?.0);
            break false;
        }
        if rate == most {
            break true;
        }
        rate = (rate * 2).min(most);
    };
    let measured =
        Measured { answers: best, elapsed: Duration::from_secs(seconds), ..Measured::new(Meter::new(None, None)) };
    let shape = super::Shape { connections: 1, depth: 1, ..plan.shape()? };
    let mut report = Report::measured("kea", "", &shape, 1, &measured);
    if is_bound {
        report.note =
            format!("all of {most} exchanges a second were answered, and no more were offered: it may be faster");
        say!("allod-load: kea: {}", report.note);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_are_the_exchanges_that_were_completed_and_not_the_time_that_was_waited() {
        let told = "Rate: 799 4-way exchanges/second, expected rate: 1000\n\
            ***Statistics for: DISCOVER-OFFER***\nsent packets: 2000\nreceived packets: 2000\n\
            ***Statistics for: REQUEST-ACK***\nsent packets: 2000\nreceived packets: 1998\n";
        assert_eq!(completed(told), Some(1_998));
        assert_eq!(completed("cannot bind"), None);
    }

    #[test]
    fn the_free_addresses_of_a_pool_last_for_each_rate_that_is_offered() {
        for seconds in [1, 2, 10] {
            let most = rate_max(0.99, seconds);
            for rate in [RATE_FIRST, 4_000, most] {
                let free = f64::from(addresses(0.99, rate.min(most), seconds)) * 0.01;
                let taken = f64::from(rate.min(most)) * seconds as f64;
                assert!(free * FREE_USED >= taken * 0.99, "{rate} for {seconds} s: {free}");
            }
        }
        assert_eq!(rate_max(0.0, 2), RATE_MAX);
    }
}
