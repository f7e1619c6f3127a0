//! What a server would find on this machine, told without starting one: for `allod doctor`.
//!
//! Each check looks and changes nothing: what it writes to time the disk has no name and is gone when it is closed. What a
//! start refuses is asked of the same code that refuses it (`config`, `store::embedded::nameplate`, `store::redis::examine`).
//!
//! Review notes: does each warning say what to do? Is a check that cannot be made said to be none?

mod configuration;
mod directory;
mod disk;
mod in_redis;
mod machine;

pub use configuration::open_password;
use serde::Serialize;

use crate::actors::clock::{Clock, SystemClock};
use crate::config::{Config, Sources, StoreKind};
use crate::store::redis::NearEnd;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// As it should be.
    Ok,
    /// It works, and somebody should look.
    Warning,
    /// A server does not start, or does not keep what it promises.
    Wrong,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What.
    pub check: &'static str,
    /// How it is.
    pub state: CheckState,
    /// What was seen.
    pub seen: String,
    /// What to do; empty where nothing is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl Check {
    /// All is well.
    pub fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self { check, state: CheckState::Ok, seen: seen.into(), hint: String::new() }
    }

    /// Somebody should look.
    pub fn warning(check: &'static str, seen: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check, state: CheckState::Warning, seen: seen.into(), hint: hint.into() }
    }

    /// A certificate of TLS to Redis has ended, or will soon.
    fn of_near_end(NearEnd { seen, hint }: NearEnd) -> Self {
        Self::warning("redis", seen, hint)
    }

    /// Nodes of several releases were seen.
    pub fn of_several_releases(seen: impl Into<String>) -> Self {
        Self::warning("nodes", seen, "go on with the upgrade, one node after the other: `allod cluster drain`")
    }

    /// It cannot be left so.
    pub fn wrong(check: &'static str, seen: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check, state: CheckState::Wrong, seen: seen.into(), hint: hint.into() }
    }
}

/// What was found without asking a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Examined {
    /// In the order in which they are told.
    pub checks: Vec<Check>,
    /// A server has the data directory open.
    pub in_use: bool,
    /// The data directory, where the register would be in files and can be looked at.
    pub directory: Option<String>,
    /// Where a server with these settings listens, for clients and for HTTP.
    pub ports: Option<(String, String)>,
}

/// Looks at everything that a server with these sources would need.
pub fn examine(sources: Result<Sources, String>) -> Examined {
    let loaded = sources.and_then(|sources| Config::load(&sources).map(|config| (sources, config)));
    let mut checks = vec![machine::versions()];
    let Ok((sources, config)) = loaded.inspect_err(|problem| checks.push(configuration::refused(problem))) else {
        // Which directory, which store: nobody knows. What is left needs no settings.
        checks.push(machine::clock());
        return Examined { checks, ..Examined::default() };
    };
    checks.extend(configuration::told(&sources, &config));
    let holder = match config.store.kind {
        StoreKind::Memory => {
            let hint = "set `store.kind` to \"embedded\", unless nothing is to be kept";
            checks.push(Check::warning("store", "the memory store keeps nothing beyond the server's end", hint));
            None
        }
        StoreKind::Embedded | StoreKind::Redis => {
            let (found, holder) = directory::checks(&config);
            checks.extend(found);
            holder
        }
    };
    if config.store.kind == StoreKind::Embedded {
        checks.push(disk::check(&config.store.directory));
    }
    if config.store.kind == StoreKind::Redis {
        checks.extend(in_redis::checks(&config, &super::opening::redis_options(&config)));
    }
    checks.push(machine::clock());
    checks.push(machine::descriptors(&config, holder.as_deref()));
    let ports = Some((config.server.listen.clone(), config.server.http_listen.clone()));
    // Where it may not be looked into nobody knows who has it open.
    let is_seen = checks.iter().all(|check| check.check != "directory" || check.state != CheckState::Wrong);
    let is_used = config.store.kind == StoreKind::Embedded && is_seen;
    let directory = is_used.then(|| config.store.directory.display().to_string());
    Examined { checks, in_use: holder.is_some(), directory, ports }
}

/// Two clocks that are kept differ by less.
const CLOCKS_DIFFER_MS_MAX: u64 = 2_000;

/// Do this machine's clock and another one (`whose`) agree?
pub fn clocks(whose: &str, here_ms: u64, there_ms: u64, hint: &str) -> Check {
    let differ = here_ms.abs_diff(there_ms);
    let seen = format!("{whose} clock and this machine's differ by {differ} ms");
    if differ > CLOCKS_DIFFER_MS_MAX { Check::warning("clocks", seen, hint) } else { Check::ok("clocks", seen) }
}

/// A register of another number of shards than the configuration says. `seen` is what the register is.
fn other_shards(seen: &str, shards: u64, config: &Config) -> Option<Check> {
    let wanted = config.store.shards().filter(|&wanted| shards != u64::from(wanted))?;
    let hint = format!("take `store.shards` out, or set it to {shards}: it is fixed at the first start");
    Some(Check::wrong("register", format!("{seen}; the configuration says {wanted}"), hint))
}

/// The time of this machine, milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemClock.wall().0
}
