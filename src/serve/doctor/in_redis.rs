//! Redis: is it one that can keep a register, does it hold ours, what does an answer cost.

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
const CLOCKS_HINT: &str = "let a time server keep both; leases of nodes run by the clock of Redis alone";
/// A call over a network of this machine's own takes less.
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
            "INFO is not permitted: whether it keeps what it is given, and never evicts, cannot be checked",
            "let its user ask: `ACL SETUSER … +info +config +role` (see deploy/README.md)",
        ));
    }
    for finding in &examined.findings {
        // What it is, and behind the semicolon what to do.
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

/// What a start would say to do about it.
fn hint_of_start(config: &Config, error: &StoreError) -> String {
    CannotStart::of_node(String::new(), error, &config.store.directory).hint
}

fn reached(examined: &ExaminedServer) -> Check {
    let (median, p99) = (quantile(&examined.round_trips, 0.5), quantile(&examined.round_trips, 0.99));
    let (engine, place) = (&examined.engine, &examined.place);
    let over = if examined.is_over_tls { " over TLS" } else { "" };
    let seen = format!("{engine} at {place}{over}, a call takes {} (median), {} (p99)", ms(median), ms(p99));
    if median.as_millis() >= SLOW_MS {
        return Check::warning(CHECK, seen, "every answer waits for one call at least: keep Redis near, and not busy");
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
            None => Check::ok("register", format!("none under `{prefix}` yet; the first start makes one")),
            Some(known) => Check::wrong(
                "register",
                format!("none under `{prefix}`, and {known} is this node's: Redis was emptied, or is another one"),
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
            format!("{seen}; another one is this node's, {known}"),
            "name the right one by `--redis URL`; `--accept-new-store` takes this one",
        ),
        Some(_) | None => match examined.behind {
            Some(WentBack { acknowledged, stands_at }) => Check::wrong(
                "register",
                format!(
                    "{seen}; it went back: this server acknowledged batch {acknowledged}, and it stands at {stands_at}"
                ),
                "bring its data back; or `allod serve --accept-rollback`, once, which grants from the first moment: keep the \
                 clients' way closed until what is in use was claimed (`allod ip claim`)",
            ),
            None => Check::ok("register", seen),
        },
    }
}

/// Which nodes were seen lately, and whether they are of one release.
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
