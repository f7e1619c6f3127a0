//! What `GET /readyz` says of a server that takes changes: that, and what is to be looked at all the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Server;
use super::role::Role;
use crate::actors::StopReason;
use crate::core::plural::counted;
use crate::core::types::Name;

/// What to do about files that are damaged, while they are served. What helps the next start only that can tell: it reads all of them.
const DAMAGE_HINT: &str = "`allod export > register.jsonl` now, and do not restart it before: what is served, from memory, is whole. \
                           Where the refusal of the next start names `--give-up-history` or `--give-up-snapshot`, no state is lost; \
                           then another disk";

/// What to do about networks that are stopped, by what stopped the first of them.
fn stopped_hint(why: StopReason) -> &'static str {
    match why {
        StopReason::Differs => {
            "`allod export > register.jsonl` now, and no restart and no drain before: both go by the store. Then decide between \
             both (deploy/README.md, \"What is served is what is stored\")"
        }
        StopReason::Crashes => {
            "`journalctl -u allod -p err` says why: report it; `systemctl restart allod` serves it again"
        }
        StopReason::Unloadable => {
            "no restart, which would be refused: `allod export > register.jsonl` has the others, a backup has it as it was"
        }
    }
}

/// It takes changes. What is wrong all the same, and what to do, in a second line.
fn text(damage: Option<Arc<str>>, stopped: &BTreeMap<Name, StopReason>) -> String {
    if let Some(damage) = damage {
        return format!("ready, but its next start will be refused: {damage}\n{DAMAGE_HINT}");
    }
    // What a restart mends is told behind what it loses.
    let Some((first, why)) = stopped.iter().max_by_key(|(_, why)| why.shows_memory()) else {
        return "ready".to_owned();
    };
    let more = match stopped.len() - 1 {
        0 => String::new(),
        1 => "; so is 1 more network".to_owned(),
        more => format!("; so are {}", counted(more, "more network")),
    };
    format!("ready, but {}{more}\n{}", why.problem(first), stopped_hint(*why))
}

impl Server {
    /// Of one that takes changes.
    pub fn ready_text(&self) -> String {
        match &*self.seat.role() {
            Role::Owner(shared) => text(shared.store.damage(), &shared.stopped()),
            Role::Follower { .. } | Role::Between | Role::Waiting { .. } => text(None, &BTreeMap::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_by_a_restart_is_told_before_what_one_mends() {
        let stopped = |all: &[(&str, StopReason)]| {
            text(None, &all.iter().map(|(name, why)| (name.parse().unwrap(), *why)).collect())
        };
        assert_eq!(stopped(&[]), "ready");
        let both = stopped(&[("a", StopReason::Crashes), ("b", StopReason::Differs)]);
        assert!(
            both.contains("network `b` was stopped as its self-check") && both.contains("; so is 1 more network\n"),
            "{both}"
        );
        assert!(both.ends_with(stopped_hint(StopReason::Differs)), "{both}");
        let damaged = text(Some("x".into()), &BTreeMap::from([("a".parse().unwrap(), StopReason::Crashes)]));
        assert!(damaged.starts_with("ready, but its next start will be refused: x\n"), "{damaged}");
    }
}
