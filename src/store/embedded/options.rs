//! How a store keeps its files: what can be set, and the defaults.
//!
//! Before: `serve` fills it from the configuration; tests set what they need.

use std::sync::Arc;
use std::time::Duration;

use super::disk::{Disk, RealDisk};
use super::segment::Lengths;
use crate::limits;
use crate::store::codec::Format;
use crate::store::moving::Opening;

/// Zeros are written in pieces of this size. Each piece is flushed at once, and a commit may have to wait for that.
pub(super) const PIECE_BYTES: u64 = 512 << 10;
const SEGMENT_BYTES: u64 = 64 << 20;
/// Grace period after a start with the wrong bounds, such as one without its configuration file: within this time somebody
/// notices and stops it. Removed history cannot be brought back.
const HISTORY_GRACE: Duration = Duration::from_secs(600);
// A segment of the usual length must not make the bound of an act any lower.
const _: () = assert!(act_bytes_max(SEGMENT_BYTES) == limits::ACT_BYTES_MAX);

/// Bytes of one group that fit into a segment of this length, with room for frames and for the heads of all shards.
pub(super) const fn act_bytes_max(segment_bytes: u64) -> usize {
    let room = segment_bytes - segment_bytes / 16;
    if room < limits::ACT_BYTES_MAX as u64 { room as usize } else { limits::ACT_BYTES_MAX }
}

/// How a store keeps its files. Two starts may differ in the bounds of history and in the trigger of snapshots without any
/// notice. A new segment length applies to segments made from then on.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Length of a segment of the log in bytes.
    pub segment_bytes: u64,
    /// How much of a segment that is made ahead of need is flushed at once, in bytes.
    pub piece_bytes: u64,
    /// A snapshot is made when the closed segments after the last one are longer than this, and longer than that snapshot.
    pub snapshot_log_bytes: u64,
    /// The net effect of this many bytes of log is held in memory at once; a snapshot takes as many passes over the shards
    /// as needed.
    pub pass_bytes: u64,
    /// Segments that were closed longer ago are removed with the next snapshot, after a start, and when the disk is full.
    pub history_seconds: u64,
    /// Segments that exceed this total length are removed likewise.
    pub history_bytes: u64,
    /// For this long after a start no history is removed, unless the disk is full.
    pub history_grace: Duration,
    /// How long a full disk is left alone before the next attempt.
    pub full_retry: Duration,
    /// How long to wait after a failed snapshot or removal before the next attempt.
    pub compaction_retry: Duration,
    /// Longest sleep of a thread that has nothing to do. A bound, not a delay.
    pub idle: Duration,
    /// From now on a restored register is treated as a normal one: an operator has reconciled it.
    pub accept_restored: bool,
    /// If history that a snapshot covers is damaged, the register is opened without it. No state is given up.
    pub give_up_history: bool,
    /// If a snapshot is damaged and the log leads to all of the state, the register is opened from the log.
    pub give_up_snapshot: bool,
    /// The format in which records are written from the next take-over on, unless they are in a later one already. None: an
    /// existing register keeps its format, and a new one gets the newest.
    pub record_format: Option<Format>,
    /// What the register is opened for.
    pub opening: Opening,
    /// The file system.
    pub disk: Arc<dyn Disk>,
}

impl EmbeddedOptions {
    /// Lengths of the segments that are made from now on.
    pub(super) fn lengths(&self) -> Lengths {
        Lengths { whole: self.segment_bytes, piece: self.piece_bytes.max(1) }
    }
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
            piece_bytes: PIECE_BYTES,
            snapshot_log_bytes: 64 << 20,
            pass_bytes: 128 << 20,
            history_seconds: 30 * 86_400,
            history_bytes: 10 << 30,
            history_grace: HISTORY_GRACE,
            full_retry: Duration::from_secs(1),
            compaction_retry: Duration::from_secs(60),
            idle: Duration::from_secs(1),
            accept_restored: false,
            give_up_history: false,
            give_up_snapshot: false,
            record_format: None,
            opening: Opening::Serve,
            disk: Arc::new(RealDisk),
        }
    }
}
