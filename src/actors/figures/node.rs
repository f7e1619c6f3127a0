//! The shards and deployments of the register, the number of requests that wait for capacity, and the state of the store as
//! its owner sees it. Without an owner none of this is exported; each node exports `allod_owner`.

use super::families::{Families, MetricSpec, gauge};
use crate::actors::service::Shared;
use crate::store::ShardId;

pub(super) const METRICS: &[MetricSpec] = &[
    gauge(
        "allod_networks",
        &[],
        "Networks served. A rise means that networks were made or restored; 0 on the owner, that there are none, except \
         deleted ones that are remembered.",
    ),
    gauge(
        "allod_shard_epoch",
        &["shard"],
        "How often the shard was taken over. A rise without a restart means that its owner was not heard of for a time.",
    ),
    gauge(
        "allod_deployments_uncommitted",
        &[],
        "Deployments that were applied and are neither committed nor reverted: what they let go is still held.",
    ),
    gauge(
        "allod_deployments_uncommitted_oldest_seconds",
        &[],
        "Since when the oldest of them is not. Hours mean a deploy that died: deployment.list names it, commit or revert it.",
    ),
    gauge(
        "allod_waiting_requests",
        &[],
        "Requests that wait for capacity, each counted once, however many networks it waits for. Near 32768 no more may: \
         overloaded. A rise means that networks are full: allod_network_waiting_requests says which.",
    ),
    gauge(
        "allod_store_ready",
        &[],
        "1 while the store takes changes, 0 when it is full, hindered or failed, or restored and not accepted yet: act at \
         once, /readyz says why. Told by the owner alone: where no node tells it, nobody serves (allod_owner).",
    ),
    gauge(
        "allod_store_left_for_releases_bytes",
        &[],
        "Bytes that the log has left for what lets go while the disk is full: a usual release takes some hundreds. Not there while \
         it is not full, and not over Redis. A fall towards 0 means that soon only reads go on: make room.",
    ),
    gauge(
        "allod_store_replicas_wanted",
        &[],
        "Replicas of Redis that must have a change before it is acknowledged. It is what store.redis_replicas says: a change means \
         another configuration. Told by the owner alone, as it is who waits for them.",
    ),
    gauge(
        "allod_store_replicas_answering",
        &[],
        "How many of them answered last. Below the wanted ones nothing is acknowledged, unless store.redis_degrade allows it: act \
         at once.",
    ),
    gauge(
        "allod_store_degraded",
        &[],
        "1 while changes are acknowledged that too few replicas have: they are on this node's disk instead. Bring the replicas \
         back.",
    ),
    gauge(
        "allod_store_appends",
        &[],
        "1 while Redis has an append-only file, 0 while it has none: a restart of Redis then loses what was acknowledged. Not there \
         where the store is no Redis, or that cannot be asked.",
    ),
];

/// Puts the current values.
pub(super) fn fill(families: &mut Families, shared: &Shared) {
    for shard in (0..shared.info.shards).map(ShardId) {
        families.put("allod_shard_epoch", &[&shard.0.to_string()], shared.epoch(shard) as f64);
    }
    let (uncommitted, since) = shared.deployments.uncommitted();
    families.put("allod_deployments_uncommitted", &[], uncommitted as f64);
    let oldest_ms = since.map_or(0, |since| shared.clock.wall().0.saturating_sub(since.0));
    families.put("allod_deployments_uncommitted_oldest_seconds", &[], oldest_ms as f64 / 1_000.0);
    families.put("allod_waiting_requests", &[], shared.waits.count() as f64);
    let figures = shared.store.figures();
    let is_ready = shared.unwilling().is_none();
    if let Some(appends) = figures.appends {
        families.put("allod_store_appends", &[], f64::from(u8::from(appends)));
    }
    if let Some(left) = shared.store.room() {
        families.put("allod_store_left_for_releases_bytes", &[], left as f64);
    }
    for (name, value) in [
        ("allod_store_ready", u64::from(is_ready)),
        ("allod_store_replicas_wanted", figures.replicas_wanted),
        ("allod_store_replicas_answering", figures.replicas_answering),
        ("allod_store_degraded", u64::from(figures.degraded)),
    ] {
        families.put(name, &[], value as f64);
    }
}
