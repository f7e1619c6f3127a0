//! The start: every file is read and judged before anything is served.
//!
//! The rule: either everything that was acknowledged is there, whole and unchanged, or the start is refused with the file,
//! the place and what to do. Only one thing is repaired, and logged: a *torn tail*, which is a last frame whose flush never
//! ended. It is a torn tail only if
//! - nothing valid follows it, in its segment or in a later one (a frame is written only after the one before it is durable,
//!   so whatever follows proves that it was durable too), and
//! - the mark does not name it: it was never acknowledged.
//!
//! Something missing is judged like a change: numbers of segments and groups are dense, the snapshot names the oldest
//! segment that must be there, unless `retention` has noted a later one, a sealed segment has a successor, and the log must
//! reach the mark.
//!
//! Neighbours: `mod` opens the store with the result, `report` prints it; `giving_up` has the remedy if only history is
//! damaged, `lost_snapshot` if only a snapshot is. Inside: `scan` reads the log.

mod scan;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::scan::Scan;
use super::disk::{Disk, DiskFile};
use super::giving_up::{self, GivenUp};
use super::lost_snapshot::{self, Covered, LostSnapshot};
use super::meta::{Marked, Meta};
use super::problem;
use super::replay::Prepared;
use super::retention;
use super::segment::{self, LOG, Spare};
use super::shared::{HistorySegment, KeptSegment};
use super::snapshot::{self, SNAP, Snapshot};
use crate::store::fence::FenceLine;
use crate::store::{Seq, StoreError};

/// A data directory that can be trusted.
#[derive(Debug)]
pub(super) struct Recovered {
    pub lines: Vec<FenceLine>,
    /// Segments that the snapshot covers, oldest first, each with the end of its last frame.
    pub history: Vec<HistorySegment>,
    /// The segments after those, which have a header.
    pub segments: Vec<KeptSegment>,
    /// Blank segments after these.
    pub spares: Vec<Spare>,
    pub snapshot: Option<Arc<Snapshot>>,
    /// The last group, and the digest of its frame.
    pub group: u64,
    pub digest: u128,
    /// Where the last segment goes on; none if it is sealed or does not exist.
    pub open_end: Option<u64>,
    /// Offset of the last frame in the last segment, if there is one.
    pub last_frame: Option<u64>,
    /// A torn tail, if there is one.
    pub torn: Option<Torn>,
    /// Segments that should be blank and are not, and how much of each is written. They are cleared before they are used.
    pub unusable: Vec<(Spare, u64)>,
    /// Segments that are too short to be of use. They are made again before they are used.
    pub short: Vec<PathBuf>,
    /// Files that an interrupted operation left.
    pub leftovers: Vec<PathBuf>,
    /// What `retention` has noted, or 0; if history is given up, what it must note.
    pub oldest_noted: u64,
    /// Damaged history that the operator decided to go on without.
    pub given_up: Option<GivenUp>,
    /// A damaged snapshot that the operator decided to go on without.
    pub lost_snapshot: Option<LostSnapshot>,
    /// Segments that were given up at an earlier start; their files are still in the directory.
    pub aside: u64,
    /// The same for snapshots.
    pub snapshots_aside: u64,
    /// One of the two places of `MARK` is unreadable.
    pub half_marked: bool,
    /// What the log did after the snapshot, if this was asked for.
    pub prepared: Prepared,
}

/// The last write of a process that lost power. It was never acknowledged.
#[derive(Debug, Clone)]
pub(super) struct Torn {
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    pub from: u64,
    pub bytes: u64,
}

/// What is read, and what it is compared with.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub disk: &'a dyn Disk,
    pub dir: &'a Path,
    pub meta: &'a Meta,
    pub marked: Marked,
    /// Keep what is read of the log for the first load, which would otherwise read it again.
    pub to_be_loaded: bool,
}

/// What the operator agrees to go on without if it is damaged.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GivesUp {
    pub history: bool,
    pub snapshot: bool,
}

pub(super) struct Refused {
    pub error: StoreError,
    /// If the problem lies before a certain segment, everything from that segment on may be sound; none if leaving out
    /// history cannot help.
    pub next: Option<u64>,
    /// The first batch of each shard that was read before the problem.
    pub first: Vec<Option<Seq>>,
}

impl Refused {
    /// A refusal that stands whichever segments are left out.
    fn for_good(error: StoreError) -> Self {
        Self { error, next: None, first: Vec::new() }
    }
}

/// Reads everything and changes nothing. Damage is refused. But if it is in history that a snapshot covers, or in a snapshot
/// to which the log leads, and the operator `gives_up` that part, the result leaves it out.
pub(super) fn recover(ground: Ground<'_>, gives_up: GivesUp) -> Result<Recovered, StoreError> {
    let Ground { disk, dir, .. } = ground;
    let mut leftovers = Vec::new();
    let oldest_noted = retention::read(disk, dir)?;
    let (covered, snapshots_aside) = snapshots(disk, dir, &mut leftovers)?;
    let opened =
        covered.split_last().map(|(&newest, older)| (open_snapshot(ground, newest, oldest_noted), newest, older));
    let recovered = match opened {
        None => behind(ground, None, oldest_noted, gives_up.history, leftovers),
        Some((Ok(snapshot), _, older)) => {
            // It was read back before it got its name, so the earlier ones are of no use any more, whether damaged or not.
            leftovers.extend(older.iter().map(|&older| dir.join(SNAP).join(snapshot::name(older))));
            behind(ground, Some(Arc::new(snapshot)), oldest_noted, gives_up.history, leftovers)
        }
        Some((Err(error), newest, older)) => {
            let (numbers, aside) = segment_numbers(disk, dir, None, &mut leftovers)?;
            let covered = Covered { newest, older };
            let recovered = lost_snapshot::without(ground, covered, (&numbers, oldest_noted), error, gives_up.snapshot);
            recovered.map(|recovered| Recovered { leftovers, aside, ..recovered })
        }
    };
    Ok(Recovered { snapshots_aside, ..recovered? })
}

/// What the log leads to after a snapshot, or from its beginning.
fn behind(
    ground: Ground<'_>,
    snapshot: Option<Arc<Snapshot>>,
    oldest_noted: u64,
    gives_up: bool,
    mut leftovers: Vec<PathBuf>,
) -> Result<Recovered, StoreError> {
    let (numbers, aside) = segment_numbers(ground.disk, ground.dir, snapshot.as_deref(), &mut leftovers)?;
    let recovered = match judge(ground, snapshot.clone(), &numbers) {
        Ok((recovered, _)) => recovered,
        Err(refused) => giving_up::without(ground, snapshot, &numbers, refused, gives_up)?,
    };
    let until = recovered.given_up.as_ref().map_or(0, |given_up| given_up.until);
    Ok(Recovered { leftovers, oldest_noted: oldest_noted.max(until), aside, ..recovered })
}

/// Reads these segments, from the oldest one that the snapshot requires. Also returns the first batch of each shard in them.
pub(super) fn judge(
    ground: Ground<'_>,
    snapshot: Option<Arc<Snapshot>>,
    numbers: &[u64],
) -> Result<(Recovered, Vec<Option<Seq>>), Refused> {
    let Ground { disk, dir, .. } = ground;
    let oldest = snapshot.as_ref().map_or(1, |snapshot| snapshot.place.oldest);
    check_dense(dir, oldest, numbers)?;
    let mut scan = Scan::new(ground, snapshot);
    let mut buffer = Vec::new();
    for &number in numbers {
        let path = dir.join(LOG).join(segment::name(number));
        let read = || {
            let file = disk.open(&path).map_err(problem::io("opening", &path))?;
            let length = file.length().map_err(problem::io("reading", &path))?;
            scan.segment(number, path.clone(), file, length, &mut buffer)
        };
        if let Err(error) = { read }() {
            // An error found in a segment may be caused by the end of the one before it.
            let next = if number > oldest { number } else { number + 1 };
            let next = Some(next).filter(|_| !scan.contradicts && error.is_unreadable());
            return Err(Refused { error, next, first: scan.first });
        }
    }
    scan.finish().map_err(Refused::for_good)
}

/// The last groups that the snapshots cover, ascending; and how many snapshots were given up.
fn snapshots(disk: &dyn Disk, dir: &Path, leftovers: &mut Vec<PathBuf>) -> Result<(Vec<u64>, u64), StoreError> {
    let snap = dir.join(SNAP);
    let names = disk.list(&snap).map_err(problem::unread(&snap, "cannot be listed"))?;
    let mut covered: Vec<u64> = names.iter().filter_map(|name| snapshot::covered_of(name)).collect();
    leftovers.extend(names.iter().filter(|name| name.ends_with(".tmp")).map(|name| snap.join(name)));
    covered.sort_unstable();
    let aside = names.iter().filter(|name| lost_snapshot::is_aside(name)).count() as u64;
    Ok((covered, aside))
}

/// Opens the snapshot that covers a group, and reads all of it.
pub(super) fn open_snapshot(ground: Ground<'_>, covered: u64, oldest_noted: u64) -> Result<Snapshot, StoreError> {
    let Ground { disk, dir, meta, .. } = ground;
    let path = dir.join(SNAP).join(snapshot::name(covered));
    let mut snapshot = Snapshot::open(disk, &path, meta.register, meta.shards)?;
    snapshot.place.oldest = snapshot.place.oldest.max(oldest_noted);
    if snapshot.place.covered != covered {
        return Err(problem::damaged(&path, "has the content of another snapshot"));
    }
    Ok(snapshot)
}

/// Numbers of the segments that belong to the register, ascending; and how many segments were given up.
fn segment_numbers(
    disk: &dyn Disk,
    dir: &Path,
    snapshot: Option<&Snapshot>,
    leftovers: &mut Vec<PathBuf>,
) -> Result<(Vec<u64>, u64), StoreError> {
    let log = dir.join(LOG);
    let names = disk.list(&log).map_err(problem::unread(&log, "cannot be listed"))?;
    leftovers.extend(names.iter().filter(|name| name.ends_with(".tmp")).map(|name| log.join(name)));
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number_of(name)).collect();
    numbers.sort_unstable();
    let oldest = snapshot.map_or(1, |snapshot| snapshot.place.oldest);
    let kept = numbers.partition_point(|&number| number < oldest);
    leftovers.extend(numbers.drain(..kept).map(|number| log.join(segment::name(number))));
    let aside = names.iter().filter(|name| giving_up::is_aside(name)).count() as u64;
    Ok((numbers, aside))
}

/// Checks that no segment is missing between the oldest required one and the last one.
fn check_dense(dir: &Path, oldest: u64, numbers: &[u64]) -> Result<(), Refused> {
    for (expected, place) in (oldest..).zip(0..numbers.len().max(1)) {
        if numbers.get(place) != Some(&expected) {
            let error = problem::damaged(&dir.join(LOG).join(segment::name(expected)), "is missing");
            return Err(Refused { next: numbers.get(place).copied(), ..Refused::for_good(error) });
        }
    }
    Ok(())
}
