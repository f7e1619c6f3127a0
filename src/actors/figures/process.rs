//! What this process did with its store, and what of the store lies on this machine. It is exported as long as the process
//! lives, whoever owns the register: a tenure may end right after a heal, and files on this disk stay when another node owns
//! the register.

use super::families::{Families, MetricSpec, counter, gauge};
use crate::store::StoreFigures;

pub(super) const METRICS: &[MetricSpec] = &[
    gauge(
        "allod_store_redo_bytes",
        &[],
        "Bytes of changes on this node's disk that too few replicas of Redis had. At store.redis_heal_bytes nothing more is \
         acknowledged.",
    ),
    gauge(
        "allod_store_disk_bytes",
        &[],
        "Bytes that the store takes on disk. A steady rise means compaction does not keep up.",
    ),
    counter(
        "allod_store_flushes_total",
        &[],
        "Groups flushed by the store. A rise is load; compare with commits: a flush is for as many as wait.",
    ),
    counter(
        "allod_store_log_bytes_total",
        &[],
        "Bytes written to the store's log. A rise is load; a steeper one than that of commits means larger changes.",
    ),
    counter(
        "allod_store_compactions_total",
        &[],
        "Compactions finished. A rise is normal under load; none beside a rising log means that compaction does not keep up.",
    ),
    counter(
        "allod_store_compaction_failures_total",
        &[],
        "Compactions that failed. A rise means a full or failing disk, or a file of the register that is damaged.",
    ),
    gauge(
        "allod_store_given_up_segments",
        &[],
        "Segments of history that were damaged and given up (--give-up-history), and lie beside the others until somebody removes \
         them. Above 0 means that history does not reach as far back as its bounds, and that the disk has failed once.",
    ),
    gauge(
        "allod_store_given_up_snapshots",
        &[],
        "Snapshots that were damaged and of which the log had everything (--give-up-snapshot, or while it was served), and that lie \
         beside the others until somebody removes them. Above 0 means that the disk has failed once.",
    ),
    counter(
        "allod_store_healed_batches_total",
        &[],
        "Batches that Redis had lost and was given again. Any rise means that Redis went back, or was emptied: look at its failover and its file.",
    ),
    gauge(
        "allod_store_certificate_expires_timestamp_seconds",
        &["setting"],
        "When the certificates in this file end that TLS to Redis needs, since 1970; of several that sign the last. Near means: put \
         another into the file, it is read again by itself.",
    ),
];

/// Puts the current values.
pub(super) fn fill(families: &mut Families, figures: &StoreFigures) {
    for (name, value) in [
        ("allod_store_redo_bytes", figures.redo_bytes),
        ("allod_store_disk_bytes", figures.disk_bytes),
        ("allod_store_flushes_total", figures.flushes),
        ("allod_store_log_bytes_total", figures.log_bytes),
        ("allod_store_compactions_total", figures.compactions),
        ("allod_store_compaction_failures_total", figures.compaction_failures),
        ("allod_store_given_up_segments", figures.given_up_segments),
        ("allod_store_given_up_snapshots", figures.given_up_snapshots),
        ("allod_store_healed_batches_total", figures.healed_batches),
    ] {
        families.put(name, &[], value as f64);
    }
    for (setting, ends) in [("store.redis_ca", figures.ca_ends), ("store.redis_certificate", figures.certificate_ends)]
    {
        if let Some(ends) = ends {
            families.put("allod_store_certificate_expires_timestamp_seconds", &[setting], ends as f64);
        }
    }
}
