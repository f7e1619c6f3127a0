//! Looking at a data directory that no server has open: verify it, copy it.
//!
//! Neighbours: `recovery` judges, `doctor` on the command line prints.

use std::path::Path;

use super::disk::{Disk, RealDisk};
use super::meta::{Mark, Meta};
use super::recovery;
use crate::store::{Head, StoreError};

/// What a data directory holds.
#[derive(Debug, Clone)]
pub struct Report {
    /// Identity of the register.
    pub register: u128,
    /// The register that it was restored from.
    pub restored_from: Option<u128>,
    /// Head of each shard.
    pub heads: Vec<Head>,
    /// Last group of the log.
    pub groups: u64,
    /// Segments with frames.
    pub segments: usize,
    /// Length of the snapshot, if there is one.
    pub snapshot_bytes: Option<u64>,
    /// Bytes of a torn tail that the next start would cut off.
    pub torn_bytes: u64,
}

/// Reads everything in a data directory and changes nothing.
///
/// # Errors
/// [`StoreError`] says what is wrong, where, and what to do.
pub fn verify(dir: &Path) -> Result<Report, StoreError> {
    verify_on(&RealDisk, dir)
}

fn verify_on(disk: &dyn Disk, dir: &Path) -> Result<Report, StoreError> {
    let _lock = super::lock(disk, dir)?;
    let meta = Meta::read(disk, dir)?;
    let (_, group, digest) = Mark::open(disk, dir)?;
    let recovered = recovery::recover(disk, dir, &meta, (group, digest))?;
    Ok(Report {
        register: meta.register,
        restored_from: Some(meta.restored_from).filter(|&register| register != 0),
        heads: recovered.lines.iter().map(crate::store::fence::Line::head).collect(),
        groups: recovered.group,
        segments: recovered.segments.len(),
        snapshot_bytes: recovered.snapshot.map(|snapshot| snapshot.length),
        torn_bytes: recovered.torn.map_or(0, |torn| torn.bytes),
    })
}

/// x
pub fn copy() {}
