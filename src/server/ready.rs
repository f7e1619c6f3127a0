//! The answer of `GET /readyz` from a server that takes changes: that it does, and what needs attention nevertheless.

use std::sync::Arc;

use super::Server;
use super::role::Role;
use crate::actors::{StopReason, Stopped};
use crate::core::plural::counted;
use crate::core::types::Name;

/// What to do about damaged files while the server runs. Only the next start can tell what repairs them: it reads all of
/// them.
const DAMAGE_HINT: &str = "`allod export > register.jsonl` now, and do not restart it before: what is served, from memory, is whole. \
                           Where the refusal of the next start names `--give-up-history` or `--give-up-snapshot`, no state is lost; \
                           then another disk";

/// What to do about networks that are being read from the store again.
const LOADING_HINT: &str = "it ends by itself: what is asked of them waits meanwhile, for 2 s at most, and is then to be asked again; \
                            `journalctl -u allod` says why";

/// What to do about networks in which two claim an address.
const CONTESTED_HINT: &str = "`allod cluster conflicts` shows who claims what: decide, then `allod cluster accept` (deploy/README.md, \
                              \"Conflicts after a failover\")";

/// What to do about stopped networks, by the reason of the first one.
fn stopped_hint(why: StopReason) -> &'static str {
    match why {
        StopReason::Differs => {
            "`allod export > register.jsonl` now, and no restart before: it goes by the store. Then decide between both \
             (deploy/README.md, \"What is served is what is stored\")"
        }
        StopReason::Crashes => {
            "`journalctl -u allod -p err` says why: report it; `systemctl restart allod` serves it again"
        }
        StopReason::Unloadable => {
            "no restart mends that: `allod export > register.jsonl` has the others, a backup has it as it was"
        }
    }
}

/// Says that the server is ready; if something is wrong nevertheless, a second line says what to do. `loading`: how many
/// networks are being read from the store again.
fn text(damage: Option<Arc<str>>, stopped: &[Stopped], contested: &[Name], loading: usize) -> String {
    if let Some(damage) = damage {
        return format!("ready, but its next start will be refused: {damage}\n{DAMAGE_HINT}");
    }
    if let Some((Stopped { network: first, why, .. }, more)) = stopped.split_first() {
        let more = match more.len() {
            0 => String::new(),
            1 => "; so is 1 more network".to_owned(),
            more => format!("; so are {}", counted(more, "more network")),
        };
        return format!("ready, but {}{more}\n{}", why.problem(first), stopped_hint(*why));
    }
    if let Some((first, more)) = contested.split_first() {
        let more = match more.len() {
            0 => String::new(),
            more => format!(", nor in {}", counted(more, "more network")),
        };
        let why = "two claim an address there since a failover";
        return format!("ready, but nothing new is granted in network `{first}`{more}, as {why}\n{CONTESTED_HINT}");
    }
    match loading {
        0 => "ready".to_owned(),
        1 => format!("ready, except for 1 network, which is being read from the store again\n{LOADING_HINT}"),
        many => format!(
            "ready, except for {}, which are being read from the store again\n{LOADING_HINT}",
            counted(many, "network")
        ),
    }
}

impl Server {
    /// The answer for a server that takes changes.
    pub fn ready_text(&self) -> String {
        match &*self.seat.role() {
            Role::Owner(shared) => {
                text(shared.store.damage(), &shared.stopped(), &shared.contested(), shared.loading())
            }
            Role::Follower { .. } | Role::Between | Role::Waiting { .. } => text(None, &[], &[], 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ShardId;

    #[test]
    fn what_is_lost_by_a_restart_is_told_before_what_one_mends() {
        let of = |network: &str, why| Stopped { network: network.parse().unwrap(), shard: ShardId(0), why };
        assert_eq!(text(None, &[], &[], 0), "ready");
        let both = text(None, &[of("b", StopReason::Differs), of("a", StopReason::Crashes)], &[], 1);
        assert!(
            both.contains("network `b` was stopped because its self-check")
                && both.contains("; so is 1 more network\n"),
            "{both}"
        );
        assert!(both.ends_with(stopped_hint(StopReason::Differs)), "{both}");
        let damaged = text(Some("x".into()), &[of("a", StopReason::Crashes)], &[], 1);
        assert!(damaged.starts_with("ready, but its next start will be refused: x\n"), "{damaged}");
        let contested: [Name; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let told = text(None, &[], &contested, 1);
        assert!(
            told.starts_with("ready, but nothing new is granted in network `a`, nor in 1 more network, as "),
            "{told}"
        );
        assert!(told.ends_with(CONTESTED_HINT), "{told}");
        let loading = text(None, &[], &[], 2);
        let told = "ready, except for 2 networks, which are being read from the store again\n";
        assert!(loading.starts_with(told) && loading.ends_with(LOADING_HINT), "{loading}");
    }
}
