//! The machine: versions of what runs here, its clock, and how many files and connections a process may open.

use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, getrlimit};

use super::{Check, now_ms};
use crate::actors::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::store::codec;
use crate::store::embedded::nameplate;
use crate::store::redis::examine;
use crate::{peer, wire};

/// 2026-01-01: allod is not older, so no register can be.
const BEGINNING_MS: u64 = 1_767_225_600_000;
/// For the store's files (it keeps none of the history open), for the threads, and some to spare.
const DESCRIPTORS_BESIDE: u64 = 128;

/// The version of this program, and the formats and protocols that it understands.
pub(super) fn versions() -> Check {
    Check::ok(
        "version",
        format!(
            "allod {}; protocol {}, between nodes {}; records {}, files {}, keys in Redis {}",
            env!("CARGO_PKG_VERSION"),
            wire::PROTOCOL_VERSION,
            peer::Versions::SPOKEN,
            codec::Format::NEWEST,
            nameplate::KNOWN_FORMAT,
            examine::KNOWN_FORMAT,
        ),
    )
}

/// Whether the clock is synchronised.
pub(super) fn clock() -> Check {
    judged(now_ms(), SystemClock.boot_ms(), synchronised())
}

fn judged(now_ms: u64, boot_ms: u64, synchronised: Option<bool>) -> Check {
    if now_ms < BEGINNING_MS || boot_ms == 0 {
        let seen =
            format!("the clock of this machine says {} s since 1970, {boot_ms} ms since its start", now_ms / 1_000);
        return Check::wrong("clock", seen, "set the clock: times and generations are made from it");
    }
    match synchronised {
        Some(true) => Check::ok("clock", "synchronised with a time server"),
        Some(false) => Check::warning(
            "clock",
            "it is not synchronised: times in history drift, and differ between nodes",
            "`systemctl enable --now systemd-timesyncd`, or chrony; leases and cooldowns do not depend on it",
        ),
        None => Check::ok("clock", "it runs; whether it is synchronised cannot be found out here"),
    }
}

/// As systemd reports it: its own time service by a file, any other by the kernel's flag.
fn synchronised() -> Option<bool> {
    if Path::new("/run/systemd/timesync/synchronized").exists() {
        return Some(true);
    }
    let asked = Command::new("timedatectl").args(["show", "--property=NTPSynchronized", "--value"]).output().ok()?;
    match String::from_utf8_lossy(&asked.stdout).trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Whether there are enough descriptors for all connections that are allowed, over TCP and as many over HTTP. Looks at the
/// limit of the running server if there is one, else at that of this process.
pub(super) fn descriptors(config: &Config, holder: Option<&str>) -> Check {
    let wanted = config.server.max_connections.saturating_mul(2).saturating_add(DESCRIPTORS_BESIDE);
    let served = holder.and_then(|holder| holder.strip_prefix("process ")).and_then(limit_of);
    let (limit, whose) = match served {
        Some(limit) => (limit, "of the server that runs"),
        None => (getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), "of a process started here"),
    };
    let seen = format!(
        "{limit} open files {whose}; {wanted} are needed for {} TCP connections and as many HTTP connections",
        config.server.max_connections
    );
    if limit < wanted {
        let hint =
            "`LimitNOFILE=16384` in the unit (`ulimit -n 16384` in a shell), or a lower `server.max_connections`";
        return Check::warning("descriptors", seen, hint);
    }
    Check::ok("descriptors", seen)
}

/// The soft limit of another process, if this one may read it.
fn limit_of(process: &str) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).ok()?;
    soft_limit(&limits)
}

fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        soft => soft.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::doctor::CheckState;

    #[test]
    fn a_clock_of_another_time_is_wrong_and_one_that_nobody_keeps_is_told() {
        let now = BEGINNING_MS + 1;
        assert_eq!(judged(0, 5, Some(true)).state, CheckState::Wrong);
        assert_eq!(judged(now, 5, Some(false)).state, CheckState::Warning);
        assert_eq!([judged(now, 5, Some(true)).state, judged(now, 5, None).state], [CheckState::Ok, CheckState::Ok]);
    }

    #[test]
    fn the_limit_of_the_server_counts_and_not_that_of_the_shell() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            \
         1024                 524288               files     \n";
        assert_eq!(soft_limit(limits), Some(1_024));
        assert_eq!(
            soft_limit("Max open files            unlimited            unlimited            files"),
            Some(u64::MAX)
        );
        let mut config = Config::default();
        let own = format!("process {}", std::process::id());
        config.server.max_connections = 1;
        let check = descriptors(&config, Some(&own));
        assert!(check.seen.contains("of the server that runs"), "{check:?}");
        config.server.max_connections = u64::MAX / 2;
        assert!(descriptors(&config, None).hint.contains("LimitNOFILE"));
    }
}
