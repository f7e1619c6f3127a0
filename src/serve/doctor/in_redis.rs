//! Redis: whether it can keep a register, whether it holds ours, and how long an answer takes.

use super::disk::{ms, quantile};
use super::{Check, clocks, now_ms, other_shards};
use crate::config::Config;
use crate::core::plural::counted;
use crate::serve::cannot::CannotStart;
use crate::store::codec::Format;
use crate::store::redis::examine::{ExaminedServer, KNOWN_FORMAT, Memory, WentBack, examine};
use crate::store::redis::{RedisOptions, without_secret};
use crate::store::{StoreError, chain};

const CHECK: &str = "redis";
const CLOCKS_HINT: &str = "synchronise both with a time server; the leases of nodes depend on the clock of Redis alone";
/// A call within a local network takes less.
const SLOW_MS: u128 = 5;
const MB: u64 = 1_000_000;

pub(super) fn checks(config: &Config, options: &RedisOptions) -> Vec<Check> {
    let examined = match examine(options) {
        Ok(examined) => examined,
        Err(error) => {
            let seen = format!("{}: {}", without_secret(&options.url), chain(&error));
            return vec![Check::wrong(CHECK, seen, hint_of_start(config, &error))];
        }
    };
    let mut checks = vec![reached(&examined)];
    checks.extend(examined.certificate_ends.clone().map(Check::of_near_end));
    if !examined.is_known {
        checks.push(Check::warning(
            CHECK,
            "INFO is not permitted, so it cannot be checked whether Redis persists its data and never evicts",
            "let its user ask: `ACL SETUSER … +info +config +role` (see deploy/README.md)",
        ));
    }
    for finding in &examined.findings {
        // The problem, and after the last semicolon what to do.
        let (seen, hint) = finding.problem.rsplit_once("; ").unwrap_or((&finding.problem, ""));
        checks.push(if finding.refuses { Check::wrong(CHECK, seen, hint) } else { Check::warning(CHECK, seen, hint) });
    }
    if let Some(error) = &examined.refusal {
        checks.push(Check::wrong(CHECK, chain(error), hint_of_start(config, error)));
    }
    checks.push(Check::ok("durability", format!("an acknowledged change survives {}", examined.durability)));
    if let Some(Memory { used, limit, set }) = examined.memory {
        let whose = if set { "maxmemory" } else { "all of its machine" };
        checks.push(Check::ok("memory", format!("Redis uses {} of {} MB ({whose})", used / MB, limit / MB)));
    }
    checks.push(register(config, &examined));
    checks.push(clocks("Redis'", now_ms(), examined.time_ms, CLOCKS_HINT));
    checks.extend(nodes(&examined));
    checks
}

/// The hint that a start would give for this error.
fn hint_of_start(config: &Config, error: &StoreError) -> String {
    CannotStart::of_node(String::new(), error, &config.store.directory).hint
}

fn reached(examined: &ExaminedServer) -> Check {
    let (median, p99) = (quantile(&examined.round_trips, 0.5), quantile(&examined.round_trips, 0.99));
    let (engine, place) = (&examined.engine, &examined.place);
    let over = if examined.is_over_tls { " over TLS" } else { "" };
    let seen = format!("{engine} at {place}{over}, a call takes {} (median), {} (p99)", ms(median), ms(p99));
    if median.as_millis() >= SLOW_MS {
        return Check::warning(CHECK, seen, "every answer waits for at least one call: keep Redis close, and not busy");
    }
    Check::ok(CHECK, seen)
}

fn register(config: &Config, examined: &ExaminedServer) -> Check {
    let prefix = &config.store.prefix;
    if let Some(lost) = &examined.lost {
        return Check::wrong("register", chain(lost), hint_of_start(config, lost));
    }
    let Some(held) = &examined.held else {
        return match &examined.known {
            None => Check::ok("register", format!("none under `{prefix}` yet; the first start creates one")),
            Some(known) => Check::wrong(
                "register",
                format!(
                    "none under `{prefix}`, but {known} is this node's: Redis was emptied, or this is another Redis"
                ),
                "bring its data back, or name the right one by `--redis URL`; `--accept-new-store` begins an empty register",
            ),
        };
    };
    let shards = counted(held.shards, "shard");
    let seen = format!("{} under `{prefix}`, {shards}, records of format {}", held.register, held.records);
    if held.format != KNOWN_FORMAT {
        return Check::wrong("register", format!("{seen}, keys of format {}", held.format), "start a newer allod");
    }
    if held.records > Format::NEWEST.number().into() {
        return Check::wrong("register", seen, "start a newer allod");
    }
    if let Some(notice) = &held.notice {
        return Check::wrong("register", format!("{seen}; it {}", notice.refusal()), notice.hint_in(prefix));
    }
    if let Some(wrong) = other_shards(&seen, held.shards, config) {
        return wrong;
    }
    match &examined.known {
        Some(known) if *known != held.register => Check::wrong(
            "register",
            format!("{seen}; but this node's is another one, {known}"),
            "name the right one by `--redis URL`; `--accept-new-store` takes this one",
        ),
        Some(_) | None => match examined.behind {
            Some(WentBack { acknowledged, stands_at }) => Check::wrong(
                "register",
                format!(
                    "{seen}; it has lost changes: this server acknowledged batch {acknowledged}, but the register stands at \
                     {stands_at}"
                ),
                "bring its data back; or `allod serve --accept-rollback`, once, which grants from the first moment: keep the \
                 clients' way closed until what is in use was claimed (`allod ip claim`)",
            ),
            None => Check::ok("register", seen),
        },
    }
}

/// The nodes that were seen lately, and whether all run the same release.
fn nodes(examined: &ExaminedServer) -> Option<Check> {
    if examined.nodes.is_empty() {
        return None;
    }
    let name = |(card, _): &(crate::store::NodeCard, u64)| format!("{} ({})", card.name, card.version);
    let all: Vec<String> = examined.nodes.iter().map(name).collect();
    let first = &examined.nodes[0].0.version;
    let seen = format!("seen lately: {}", all.join(", "));
    Some(if examined.nodes.iter().any(|(card, _)| card.version != *first) {
        Check::of_several_releases(seen)
    } else {
        Check::ok("nodes", seen)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::doctor::CheckState;

    #[test]
    fn clocks_that_differ_are_told() {
        assert_eq!(clocks("Redis'", 10_000, 10_900, CLOCKS_HINT).state, CheckState::Ok);
        let check = clocks("Redis'", 10_000, 13_000, CLOCKS_HINT);
        assert!(check.state == CheckState::Warning && check.seen.contains("3000 ms"), "{check:?}");
    }
}
