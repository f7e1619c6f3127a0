//! Alerts by their real causes: in each story what an alert is about happens to real servers, Redis and Prometheus. The
//! alert fires, the instructions of `deploy/README.md` are followed as they stand, and the alert stops.
//!
//! `scene` has Prometheus with the shipped rules; `runbook` reads the page and does what it says; `capacity`, `store`,
//! `nodes` and `failover` are the stories. All of them run at once, and wait most of the time: an hour of a rule takes half
//! a minute here, but the lease of a node lasts as long as ever.
//!
//! | story | what happens | what fires |
//! | --- | --- | --- |
//! | `capacity` | networks fill, an address is declined, hundreds wait, clients come without end, a deploy dies | `AllodNetworkNearlyFull`, `AllodNetworkFullSoon`, `AllodNetworkRefuses`, `AllodNetworkHasNoPool`, `AllodAddressDeclined`, `AllodOverloaded`, `AllodTurnsAway`, `AllodDeployUncommitted` |
//! | `store` | a replica is killed, Redis is far away, keeps no file, its memory is full; it goes back; a second register is scraped; somebody deletes records | `AllodReplicaMissing`, `AllodSlow`, `AllodStoreForgets`, `AllodStoreNotReady`, `AllodCommitsFail`, `AllodStoreHealed`, `AllodOwnedTwice`, `AllodNetworkStopped`, `AllodUnreadable` |
//! | `nodes` | a node is killed, Redis is stopped, nodes stand still, one ends again and again | `AllodDown`, `AllodNobodyServes`, `AllodTakenAgainAndAgain`, `AllodRestarts` |
//! | `failover` | a failover loses what was acknowledged, and others are given it | `AllodLateBatches`, `AllodConflict` |

mod capacity;
mod failover;
mod nodes;
mod runbook;
mod scene;
mod store;

use std::collections::BTreeSet;

use crate::alerts::alerts;
use crate::tools::needs;

/// A story, which provokes some alerts one after the other, and ends each.
struct Story {
    name: &'static str,
    alerts: &'static [&'static str],
    /// Returns the alerts that fired and stopped.
    run: fn() -> BTreeSet<&'static str>,
}

const STORIES: [Story; 6] = [
    Story {
        name: "capacity",
        alerts: &[
            "AllodNetworkNearlyFull",
            "AllodNetworkFullSoon",
            "AllodNetworkRefuses",
            "AllodNetworkHasNoPool",
            "AllodAddressDeclined",
            "AllodOverloaded",
            "AllodTurnsAway",
            "AllodDeployUncommitted",
        ],
        run: capacity::run,
    },
    Story {
        name: "store",
        alerts: &["AllodReplicaMissing", "AllodSlow", "AllodStoreForgets", "AllodStoreNotReady", "AllodCommitsFail"],
        run: store::run,
    },
    Story { name: "store, back", alerts: &["AllodStoreHealed", "AllodOwnedTwice"], run: store::run_back },
    Story { name: "store, touched", alerts: &["AllodNetworkStopped", "AllodUnreadable"], run: store::run_touched },
    Story {
        name: "nodes",
        alerts: &["AllodDown", "AllodNobodyServes", "AllodTakenAgainAndAgain", "AllodRestarts"],
        run: nodes::run,
    },
    Story { name: "failover", alerts: &["AllodLateBatches", "AllodConflict"], run: failover::run },
];

/// Alerts whose cause cannot be made here, and why.
const NOT_HERE: [(&str, &str); 3] = [
    (
        "AllodPanics",
        "its cause is a bug that nobody knows of. That a panic is counted is shown inside the process \
         (`a_panic_is_one_internal_error_and_the_network_goes_on_from_the_store`), that the count alerts by promtool's story",
    ),
    (
        "AllodCertificateEnds",
        "no Redis of these stories speaks TLS. That the figure is that of the file, and of another one once it is exchanged, is shown by \
         `a_certificate_that_is_exchanged_on_disk_is_shown_at_the_next_connection`",
    ),
    (
        "AllodSnapshotsFail",
        "a snapshot is due after more than two segments of 64 MiB, and none of them may be damaged before the start. That it is \
         counted and told is shown with small ones (`a_closed_segment_that_rots_while_it_is_served_is_told_and_grants_go_on`)",
    ),
];

#[test]
fn every_alert_is_provoked_by_its_cause_or_it_is_said_why_not() {
    let provoked = STORIES.iter().flat_map(|story| story.alerts.iter().copied());
    let told: Vec<&str> = provoked.chain(NOT_HERE.iter().map(|(alert, _)| *alert)).collect();
    let known: BTreeSet<String> = alerts().into_iter().map(|(name, _)| name).collect();
    assert_eq!(told.len(), known.len(), "one is told twice, or not at all: {told:?}");
    assert_eq!(told.into_iter().map(str::to_owned).collect::<BTreeSet<String>>(), known);
}

/// One test for all stories, because they mostly wait: side by side they take as long as the longest one.
/// `ALLOD_STORY=nodes` runs only those whose name begins so.
#[test]
fn alerts_fire_by_their_causes_and_stop_when_the_runbook_was_followed() {
    needs!(["prometheus", "redis-server", "redis-cli", "curl", "cc"]);
    let only = std::env::var("ALLOD_STORY").unwrap_or_default();
    let wanted = STORIES.iter().filter(|story| story.name.starts_with(&only));
    let running: Vec<_> = wanted
        .map(|story| {
            let thread = std::thread::Builder::new().name(story.name.to_owned());
            (story, thread.spawn(story.run).unwrap())
        })
        .collect();
    let mut failed = Vec::new();
    for (story, thread) in running {
        match thread.join() {
            Ok(told) => assert_eq!(told, story.alerts.iter().copied().collect(), "{}", story.name),
            Err(_) => failed.push(story.name),
        }
    }
    assert!(failed.is_empty(), "these stories failed, see above: {failed:?}");
}
