//! Damaged history that an operator decides to go on without (`allod serve --give-up-history`).
//!
//! *A bit flips in a segment that a snapshot has covered for weeks. State is never taken from there. But nothing is repaired
//! silently, so the register does not start, for the sake of data that nobody may ever read.* So this module checks whether
//! the register is whole without the damaged segments and those before them: history begins at one place and never has a gap.
//!
//! It is whole if the first segment that is kept is readable and begins no later than where the snapshot ends. Groups are
//! dense, so everything before that segment is in the snapshot; and the log must have the same digest as the snapshot at the
//! snapshot's last group. So nothing but history is given up: if state would be missing, the refusal stays whatever the
//! operator says.
//!
//! **Order.** The files are renamed and stay; the new names are made durable; `retention` notes the oldest segment that is
//! kept. If the process is killed in between, the next start misses the renamed files. This is the same kind of damage, and
//! has the same remedy.
//!
//! Neighbours: `recovery` judges, `mod` opens, `report` and the doctor show it to operators.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, read_exact};
use super::problem;
use super::recovery::{Ground, Recovered, Refused, judge};
use super::segment::{self, LOG, SegmentHeader};
use super::snapshot::Snapshot;
use crate::core::plural::counted;
use crate::store::{Seq, StoreError};

/// The suffix of files that were given up.
const ASIDE: &str = ".given-up";
/// How many shards are named with their batches.
const SHARDS_NAMED: usize = 16;

/// Is this the name of a segment that was given up?
pub(super) fn is_aside(name: &str) -> bool {
    before_aside(name).is_some_and(|name| segment::number_of(name).is_some())
}

/// The original name of a file that was given up; none if this file was not.
pub(super) fn before_aside(name: &str) -> Option<&str> {
    name.strip_suffix(ASIDE)
}

#[derive(Debug)]
pub(super) struct GivenUp {
    /// The first segment that is kept.
    pub until: u64,
    /// What is wrong, in words.
    problems: Vec<String>,
    /// Its segments that exist, oldest first.
    files: Vec<PathBuf>,
    /// The batches of each shard that are lost with it: the first, if known, and the last.
    batches: Vec<(usize, Option<Seq>, Seq)>,
    /// When it begins, if that can be read, and when the kept history begins: milliseconds since 1970.
    from_ms: Option<u64>,
    until_ms: u64,
}

/// The register without the damaged history, if the operator `gives_up` that; else the refusal, which offers this if it
/// would help.
pub(super) fn without(
    ground: Ground<'_>,
    snapshot: Option<Arc<Snapshot>>,
    numbers: &[u64],
    refused: Refused,
    gives_up: bool,
) -> Result<Recovered, StoreError> {
    let error = refused.error.clone();
    // If nothing will be given up, the register is only examined, not loaded.
    let ground = Ground { to_be_loaded: ground.to_be_loaded && gives_up, ..ground };
    match snapshot.and_then(|snapshot| behind_damage(ground, &snapshot, numbers, refused)) {
        None => Err(error),
        Some((_, given_up)) if !gives_up => Err(given_up.offer(error)),
        Some((recovered, given_up)) => Ok(Recovered { given_up: Some(given_up), ..recovered }),
    }
}

/// Leaves out segments, beginning with the oldest, and as few as possible, until the rest is whole. None if that would lose
/// state.
fn behind_damage(
    ground: Ground<'_>,
    snapshot: &Snapshot,
    numbers: &[u64],
    mut refused: Refused,
) -> Option<(Recovered, GivenUp)> {
    let (first, mut problems) = (std::mem::take(&mut refused.first), Vec::new());
    loop {
        let until = refused.next?;
        problems.push(problem::fact(&refused.error));
        let mut kept_from = snapshot.clone();
        kept_from.place.oldest = until;
        let (gone, kept) = numbers.split_at(numbers.partition_point(|&number| number < until));
        match judge(ground, Some(Arc::new(kept_from)), kept) {
            Err(again) => refused = again,
            Ok((recovered, kept_first)) => {
                // If no segment is left, nothing proves that there was none.
                let history = recovered.history.first().map(|of| &of.segment);
                let oldest = history.or_else(|| Some(&recovered.segments.first()?.segment))?;
                let begin = |shard: usize| match snapshot.place.oldest {
                    1 => Some(Seq(1)),
                    _ => first.get(shard).copied().flatten(),
                };
                let lost = |(shard, kept): (usize, &Option<Seq>)| {
                    let head = recovered.lines.get(shard)?.head().seq;
                    let (begin, last) = (begin(shard), kept.map_or(head, |kept| Seq(kept.0.saturating_sub(1))));
                    (last > Seq(0) && begin.is_none_or(|begin| begin <= last)).then_some((shard, begin, last))
                };
                let batches = kept_first.iter().enumerate().filter_map(lost).collect();
                let path = |number: &u64| ground.dir.join(LOG).join(segment::name(*number));
                let files: Vec<PathBuf> = gone.iter().map(path).collect();
                let from_ms = files.iter().find_map(|path| created_ms(ground.disk, path));
                let given_up = GivenUp { until, problems, files, batches, from_ms, until_ms: oldest.header.created_ms };
                return Some((recovered, given_up));
            }
        }
    }
}

fn created_ms(disk: &dyn Disk, path: &Path) -> Option<u64> {
    let mut bytes = [0; segment::HEADER_BYTES];
    read_exact(&*disk.open(path).ok()?, &mut bytes, 0).ok()?;
    Some(SegmentHeader::parse(&bytes)?.created_ms)
}

fn time(ms: u64) -> String {
    let second = i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(second).unwrap_or_default().to_string()
}

impl GivenUp {
    /// The time span, and the batches of each shard.
    fn words(&self) -> String {
        let begin = self.from_ms.map_or_else(String::new, |ms| format!("from {} ", time(ms)));
        let named = self.batches.iter().take(SHARDS_NAMED).map(|(shard, first, last)| match first {
            Some(first) => format!("batches {} to {} of shard {shard}", first.0, last.0),
            None => format!("up to batch {} of shard {shard}", last.0),
        });
        let mut named: Vec<String> = named.collect();
        if self.batches.len() > SHARDS_NAMED {
            named.push(format!("and of {}", counted((self.batches.len() - SHARDS_NAMED) as u64, "shard")));
        }
        format!("the history {begin}to {} ({})", time(self.until_ms), named.join(", "))
    }

    /// The refusal, with the remedy.
    fn offer(&self, error: StoreError) -> StoreError {
        let last = self.files.last().map_or_else(String::new, |path| {
            format!(", which stays in {} up to {}", counted(self.files.len() as u64, "file"), aside(path).display())
        });
        let offer = format!(
            "a snapshot has all that this led to, so no state is lost: `allod serve --give-up-history`, once, starts without {}{last}",
            self.words()
        );
        offered(error, "history", &offer, StoreError::HistoryDamaged)
    }

    /// Renames its files, durably, and logs what is given up. Returns how many files these are.
    pub(super) fn set_aside(&self, disk: &dyn Disk, dir: &Path) -> Result<u64, StoreError> {
        tracing::warn!(
            dir = %dir.display(),
            given_up = self.words(),
            problems = self.problems.join("; "),
            files = self.files.iter().map(|path| aside(path).display().to_string()).collect::<Vec<_>>().join(", "),
            "going on without damaged history, as `--give-up-history` says: no state is given up. Its files stay beside the others, \
             each under another name, until somebody removes them; look after the disk"
        );
        for path in &self.files {
            disk.rename(path, &aside(path)).map_err(problem::io("renaming", path))?;
        }
        let log = dir.join(LOG);
        disk.sync_dir(&log).map_err(problem::io("flushing", &log))?;
        Ok(self.files.len() as u64)
    }
}

/// The refusal because of a damaged file, with its kind and the offered remedy.
pub(super) fn offered(
    error: StoreError,
    kind: &str,
    offer: &str,
    damaged: impl FnOnce(Arc<str>) -> StoreError,
) -> StoreError {
    match error {
        // The error may pass: a disk that hangs, a cable.
        StoreError::Io { context, source } => {
            StoreError::Io { context: format!("{context} ({offer}, if this stays so)").into(), source }
        }
        error => {
            let fact = problem::fact(&error);
            let told =
                format!("{fact}; nothing was changed. It is {kind}, and {offer}; or bring that file back from a copy");
            damaged(told.into())
        }
    }
}

/// The name of a file once it is given up.
pub(super) fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ASIDE);
    name.into()
}
