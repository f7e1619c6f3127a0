//! What a server would find on this machine, without starting one: for `allod doctor`.
//!
//! Each check looks and changes nothing: the file that times the disk has no name, and is gone when it is closed. Whatever a
//! start would refuse is checked by the same code that refuses it (`config`, `store::embedded::nameplate`,
//! `store::redis::examine`).
//!
//! Review notes: does each warning say what to do? Does a check that cannot be made say so?

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
    /// It works, but somebody should look.
    Warning,
    /// A server would not start, or would not keep its promises.
    Wrong,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its subject.
    pub check: &'static str,
    /// Its outcome.
    pub state: CheckState,
    /// What was found.
    pub seen: String,
    /// What to do; empty if nothing needs to be done.
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

    /// A certificate for TLS to Redis has expired, or will soon.
    fn of_near_end(NearEnd { seen, hint }: NearEnd) -> Self {
        Self::warning("redis", seen, hint)
    }

    /// The nodes that were seen run several releases.
    pub fn of_several_releases(seen: impl Into<String>) -> Self {
        Self::warning("nodes", seen, "go on with the upgrade, one node after the other: `allod cluster drain`")
    }

    /// It must not stay like this.
    pub fn wrong(check: &'static str, seen: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { check, state: CheckState::Wrong, seen: seen.into(), hint: hint.into() }
    }
}

/// What was found without asking a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Examined {
    /// In the order in which they are printed.
    pub checks: Vec<Check>,
    /// A server has the data directory open.
    pub in_use: bool,
    /// The data directory, if the register is kept in files and the directory can be examined.
    pub directory: Option<String>,
    /// Where a server with these settings listens, for clients and for HTTP.
    pub ports: Option<(String, String)>,
}

/// Checks everything that a server with this configuration would need.
pub fn examine(sources: Result<Sources, String>) -> Examined {
    let loaded = sources.and_then(|sources| Config::load(&sources).map(|config| (sources, config)));
    let mut checks = vec![machine::versions()];
    let Ok((sources, config)) = loaded.inspect_err(|problem| checks.push(configuration::refused(problem))) else {
        // Without settings neither directory nor store is known. The remaining checks need none.
        checks.push(machine::clock());
        return Examined { checks, ..Examined::default() };
    };
    checks.extend(configuration::told(&sources, &config));
    let holder = match config.store.kind {
        StoreKind::Memory => {
            let hint = "set `store.kind` to \"embedded\", unless nothing needs to be kept";
            checks.push(Check::warning("store", "the memory store keeps nothing when the server ends", hint));
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
    // If the directory cannot be examined, nobody knows who has it open.
    let is_seen = checks.iter().all(|check| check.check != "directory" || check.state != CheckState::Wrong);
    let is_used = config.store.kind == StoreKind::Embedded && is_seen;
    let directory = is_used.then(|| config.store.directory.display().to_string());
    Examined { checks, in_use: holder.is_some(), directory, ports }
}

/// Two synchronised clocks differ by less.
const CLOCKS_DIFFER_MS_MAX: u64 = 2_000;

/// Whether this machine's clock agrees with another one (`whose`).
pub fn clocks(whose: &str, here_ms: u64, there_ms: u64, hint: &str) -> Check {
    let differ = here_ms.abs_diff(there_ms);
    let seen = format!("{whose} clock and this machine's differ by {differ} ms");
    if differ > CLOCKS_DIFFER_MS_MAX { Check::warning("clocks", seen, hint) } else { Check::ok("clocks", seen) }
}

/// The register has another number of shards than the configuration says. `seen` describes the register.
fn other_shards(seen: &str, shards: u64, config: &Config) -> Option<Check> {
    let wanted = config.store.shards().filter(|&wanted| shards != u64::from(wanted))?;
    let hint = format!("leave `store.shards` out, or set it to {shards}: it is fixed at the first start");
    Some(Check::wrong("register", format!("{seen}; the configuration says {wanted}"), hint))
}

/// The time of this machine, milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemClock.wall().0
}
