//! How a store keeps its files: what may be set, and its defaults.
//!
//! Before: `serve` sets it from the configuration, tests set what they try.

use std::sync::Arc;
use std::time::Duration;

use super::disk::{Disk, RealDisk};
use super::segment::Lengths;
use crate::limits;
use crate::store::codec::Format;
use crate::store::moving::Opening;

/// Zeros are written in pieces of this size. What is flushed at once, a commit that comes meanwhile may have to wait for.
pub(super) const PIECE_BYTES: u64 = 512 << 10;
/// Length of a segment where nothing else is said.
const SEGMENT_BYTES: u64 = 64 << 20;
/// A start with other bounds than it should have, as one without its file of settings, is noticed and stopped in that time: what
/// it has let go nobody brings back.
const HISTORY_GRACE: Duration = Duration::from_secs(600);
// A segment as long as it usually is sets no bound of its own.
const _: () = assert!(act_bytes_max(SEGMENT_BYTES) == limits::ACT_BYTES_MAX);

/// Bytes of one group that fit into a segment of this length, with room for frames and heads of all shards.
pub(super) const fn act_bytes_max(segment_bytes: u64) -> usize {
    let room = segment_bytes - segment_bytes / 16;
    if room < limits::ACT_BYTES_MAX as u64 { room as usize } else { limits::ACT_BYTES_MAX }
}

/// How a store keeps its files. Only the bounds of history and the trigger of snapshots may differ between two starts
/// without being noticed; a new segment length counts for segments that are made from then on.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// Length of a segment of the log in bytes.
    pub segment_bytes: u64,
    /// How much of a segment that is made ahead of need is flushed at once, in bytes.
    pub piece_bytes: u64,
    /// A snapshot is made when the closed segments behind the last one are longer than this, and longer than it.
    pub snapshot_log_bytes: u64,
    /// Bytes of log whose net effect a snapshot holds in memory at once, in as many passes over the shards as that takes.
    pub pass_bytes: u64,
    /// Segments that were closed longer ago are removed with the next snapshot, after a start, and when the disk is full.
    pub history_seconds: u64,
    /// Segments beyond this length together are removed likewise.
    pub history_bytes: u64,
    /// So long after a start nothing of history is removed, unless the disk is full.
    pub history_grace: Duration,
    /// How long a full disk is left alone before the next try.
    pub full_retry: Duration,
    /// How long a snapshot that failed, or a removal, is left alone before the next try.
    pub compaction_retry: Duration,
    /// Longest sleep of a thread that has nothing to do; a bound, not a delay.
    pub idle: Duration,
    /// A register that was restored is taken for what it is from now on: an operator reconciled it.
    pub accept_restored: bool,
    /// Where history is damaged that a snapshot covers, it is opened without that. Nothing of state is given up.
    pub give_up_history: bool,
    /// Where a snapshot is damaged and the log leads to all of the state, it is opened from the log.
    pub give_up_snapshot: bool,
    /// In which format records are to be written from the next take-over on, unless they are in a later one already. None:
    /// in that of the register, and a new one in the newest.
    pub record_format: Option<Format>,
    /// What it is opened for.
    pub opening: Opening,
    /// The file system.
    pub disk: Arc<dyn Disk>,
}

impl EmbeddedOptions {
    /// Of the segments that are made from now on.
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
