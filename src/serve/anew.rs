//! Writes the register again from memory into a store that was emptied: after a FLUSHALL, or after a restart of Redis
//! without its file.
//!
//! The owner knows everything that was acknowledged: it is in its memory, and nobody else can have changed it. So the tenure
//! ends as it does whenever something is in doubt, and its networks hand over their durable state before they go
//! (`actors::service::recall`). The register is written like one that is moved: it stays closed to everybody until it was
//! read back and compared. Then this process starts over with it, as it would after a restart, and grants no address before
//! it has loaded what it wrote.
//!
//! **Who may.** Only an owner whose lease is in force, or one that has no secret and saw no other node. In any other case
//! another node may have owned the register since, perhaps one that this node never saw and that is gone again, and may have
//! granted addresses that are free in this memory. A store that still holds any part of a register is never overwritten; nor
//! is one that only went back (`store::redis::heal`).
//!
//! **Retries.** It retries whatever stands in the way: Redis is away, refuses writes, or was emptied once more. It gives up
//! only if the store holds something that this process did not write, or if another node may have owned the register
//! meanwhile. `store::redis::farewell` describes what is left on disk then.
//!
//! **A stop** waits for the write: nobody serves the register before it is whole, and the memory is lost with the process.
//! So writing continues for a bounded time, says so, and makes the supervisor wait as well (`supervisor`). An owner that is
//! told to stop asks Redis once more whether it has the register, before it lets go of it: it may have been emptied just now.
//! So does a node that still remembers the register, because Redis was away when its tenure ended and has not answered since;
//! it waits a moment for the answer.
//!
//! Review notes: can two nodes write it? Is a change that was answered as not applied certainly absent?

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Ended;
use super::filling::{CannotFill, Filling, RegisterTally, Tells, Writer, is_away, post_whole};
use super::keeper::Keeper;
use super::lease::let_go;
use crate::actors::clock::Clock;
use crate::actors::service::{RegisterMemory, Shared};
use crate::actors::{Applied, Fault};
use crate::limits::NODE_LEASE_MS;
use crate::seldom::Seldom;
use crate::server::role::{Role, Seat};
use crate::store::moving::{Begun, Movable};
use crate::store::{CommitError, Store, StoreError, chain};

/// What clients are told until it is known whether this node may write it.
const LOOKING: &str =
    "Redis lost the register, or a part of it; this node looks whether it may write it again from memory";
/// What clients are told meanwhile.
const WRITING: &str = "Redis was emptied; this node writes the register to it again from memory";
/// How long Redis, or a replica that is waited for, may be away during each attempt, before the write starts over. Also how
/// long Redis may be away in all if this node is one of several.
const PATIENCE: Duration = Duration::from_secs(300);
/// Pause before the next attempt.
const BEGINS_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Interval between log lines that say why the register is not whole yet: it grows from the first to the second.
const SAID_EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);
/// How often a store is asked that is away when the server stops.
const ASKS_EVERY: Duration = Duration::from_millis(100);
/// Attempts if a record cannot be written: a further attempt would fail at the same record.
const TRIES_OF_RECORDS: u32 = 3;
/// How long writing continues after the server was asked to stop.
const WRITES_ON_WITHIN: Duration = PATIENCE;
/// How long closing the written store may take.
const LEAVES_WITHIN: Duration = Duration::from_millis(NODE_LEASE_MS);

/// A register that is to be written again, if that is allowed.
pub(super) enum Emptied {
    /// Emptied while this node owned the register.
    Owned {
        /// The tenure that is over.
        tenure: Arc<Shared>,
        /// Whether this node may write it. If not, another node may have owned the register since.
        may: bool,
    },
    /// Redis could not be reached, and came back empty.
    Remembered(RegisterMemory),
}

impl Keeper {
    /// Writes the register again. If that is not allowed or fails, the process ends with `problem` as the cause. Must not be
    /// cancelled: from the first write until the register is whole, only this process has it.
    pub(super) async fn write_anew(&mut self, emptied: Emptied, problem: String, stop: &CancellationToken) -> Ended {
        self.writes_anew.send_replace(true);
        let ended = self.written_anew(emptied, problem, stop).await;
        self.writes_anew.send_replace(false);
        ended
    }

    /// The server stops, and the tenure ends with it: writes the register again if the store turns out to have lost it.
    /// Returns how that ended; none if the store has not lost it, as far as is known.
    pub(super) async fn rescue(&mut self, tenure: &Arc<Shared>) -> Option<Ended> {
        if self.store.info().may_be_emptied && !self.failed() {
            // Asked while this node owns the register: whoever owns none only waits for its owner to write it. Any other
            // problem is for the next owner.
            let _ = timeout(LEAVES_WITHIN, self.store.renew()).await;
        }
        let emptied = self.emptied(tenure)?;
        let problem = self.store.failure().map_or_else(|| "the store was emptied".to_owned(), |why| why.to_string());
        let stop = self.server.stop.clone();
        Some(self.write_anew(emptied, problem, &stop).await)
    }

    /// The same for a node whose tenure ended before because the store was away, and that has no other one since.
    pub(super) async fn rescue_remembered(&mut self) -> Option<Ended> {
        if self.remembers() && !self.failed() {
            let store = Arc::clone(&self.store);
            let answered = async {
                while store.holder().await.is_err() && !store.was_emptied() {
                    tokio::time::sleep(ASKS_EVERY).await;
                }
            };
            // Any other problem is for the next owner.
            let _ = timeout(LEAVES_WITHIN, answered).await;
        }
        let (remembered, problem) = self.remembered()?;
        let stop = self.server.stop.clone();
        Some(self.write_anew(remembered, problem, &stop).await)
    }

    async fn written_anew(&mut self, emptied: Emptied, problem: String, stop: &CancellationToken) -> Ended {
        // Nobody is served, and alerts on this metric must fire.
        self.server.metrics.owner.set(0);
        let seat = &self.server.seat;
        seat.become_role(waiting(LOOKING, None));
        let remembered = match emptied {
            Emptied::Remembered(memory) => Ok(memory),
            Emptied::Owned { tenure, may: true } => tenure.recall(&problem).await,
            Emptied::Owned { tenure, may: false } => {
                tenure.retire(&problem);
                Err("another node may have owned the register since".to_owned())
            }
        };
        let begun = Instant::now();
        let written = match remembered {
            Ok(memory) => {
                let has_begun = AtomicBool::new(false);
                let writing = Writing {
                    store: &*self.store,
                    memory,
                    clock: &*self.server.clock,
                    node: &self.card.name,
                    is_alone: self.shares_with_nobody(),
                    // The first thing that it tells without an obstacle is that it has begun.
                    tells: &|why| {
                        if why.is_none() && !has_begun.swap(true, Ordering::Relaxed) {
                            tracing::error!(
                                problem,
                                "the register is being written again from the memory of this node: leave it running"
                            );
                        }
                        tell(seat, if has_begun.load(Ordering::Relaxed) { WRITING } else { LOOKING }, why);
                    },
                };
                to_the_end(writing.write(), stop).await
            }
            Err(why) => Err(why),
        };
        match written {
            Ok((tally, batches)) => {
                self.store.written_anew();
                let (written, took_ms) = (tally.words(), begun.elapsed().as_millis() as u64);
                tracing::warn!(
                    written,
                    batches,
                    took_ms,
                    "the register is whole again, from memory: nothing that was acknowledged is missing except earlier history. \
                     Find out why Redis was emptied"
                );
                Ended::WrittenAnew(batches)
            }
            // The process ends with this, and says it then.
            Err(why) => Ended::Failed(format!(
                "{problem}. It was not written again from memory: {why}. Bring the data of Redis back, and start again with \
                 the directory of this node (`store.directory`), which knows what was acknowledged last; an older copy lacks \
                 that"
            )),
        }
    }
}

/// The role of a node that has the register in memory only, and serves nobody meanwhile.
fn waiting(doing: &'static str, why: Option<&str>) -> Role {
    let hindered = why.map_or_else(String::new, |why| format!("; the obstacle at present: {why}"));
    let fault = Fault::Unavailable { applied: Applied::No, problem: format!("{doing}{hindered}") };
    Role::Waiting { why: doing, fault }
}

/// Tells clients, and callers of /readyz, what this node waits for; `why` is what currently prevents it from writing, if
/// anything. The store itself has logged it.
fn tell(seat: &Seat, doing: &'static str, why: Option<&str>) {
    let role = waiting(doing, why);
    if role.nobody() != seat.role().nobody() {
        seat.become_same(Arc::new(role));
    }
}

/// Runs `writing` to its end, even if the server is asked to stop meanwhile: then for a bounded time.
async fn to_the_end<T>(
    writing: impl Future<Output = Result<T, String>>,
    stop: &CancellationToken,
) -> Result<T, String> {
    tokio::pin!(writing);
    tokio::select! {
        biased;
        written = &mut writing => return written,
        () = stop.cancelled() => {}
    }
    let at_most_s = WRITES_ON_WITHIN.as_secs();
    tracing::error!(
        "the server was asked to stop while it writes the register again: it ends when that is done, in at most {at_most_s} s. \
         If it ended now the register would be lost, because it exists only in memory. A second SIGTERM changes nothing"
    );
    match timeout(WRITES_ON_WITHIN, writing).await {
        Ok(written) => written,
        Err(_) => Err(format!("the server was asked to stop, and {at_most_s} s later the register was not whole")),
    }
}

/// The register while it is written, until it is whole.
struct Writing<'a> {
    store: &'a dyn Store,
    memory: RegisterMemory,
    clock: &'a dyn Clock,
    node: &'a str,
    /// No other node can own the register, however long Redis is away.
    is_alone: bool,
    /// Reports what prevents the write.
    tells: Tells<'a>,
}

/// Why the register is not whole yet.
enum Unwritten {
    /// Redis does not answer, or refuses writes.
    Away(StoreError),
    /// Redis was emptied once more, or something else interfered.
    Disturbed(CannotFill),
}

impl Writing<'_> {
    /// Writes the register, reads it back, and opens it to everybody. Returns what it holds, and in how many batches it was
    /// written.
    async fn write(self) -> Result<(RegisterTally, u64), String> {
        let says = Seldom::new(SAID_EVERY);
        let (mut away_since, mut tries_of_records) = (None, 0);
        loop {
            let why = match self.begin().await {
                Ok(begun) => {
                    away_since = None;
                    (self.tells)(None);
                    match self.fill(begun).await {
                        Ok(written) => return Ok(written),
                        Err(Unwritten::Away(error)) if !self.is_alone => return Err(too_long(&error)),
                        Err(Unwritten::Away(error)) => chain(&error),
                        Err(Unwritten::Disturbed(cannot)) => {
                            tries_of_records += u32::from(matches!(cannot, CannotFill::Record(_)));
                            let why = cannot.words();
                            if tries_of_records == TRIES_OF_RECORDS {
                                return Err(why);
                            }
                            why
                        }
                    }
                }
                Err(error) if may_pass(&error) => {
                    let since = *away_since.get_or_insert_with(Instant::now);
                    if !self.is_alone && since.elapsed() >= PATIENCE {
                        return Err(too_long(&error));
                    }
                    chain(&error)
                }
                Err(error) => return Err(chain(&error)),
            };
            (self.tells)(Some(&why));
            if let Some(unsaid) = says.turn() {
                tracing::error!(
                    why,
                    unsaid,
                    "the register is not written again yet, and this node keeps trying: leave it running"
                );
            }
            tokio::time::sleep(BEGINS_AGAIN_AFTER).await;
        }
    }

    async fn begin(&self) -> Result<Begun, StoreError> {
        self.store.anew(self.memory.times.clone()).await
    }

    /// Writes the register into the store that was begun, and closes that store.
    async fn fill(&self, begun: Begun) -> Result<(RegisterTally, u64), Unwritten> {
        let Begun { store: target, heads } = begun;
        let reason = format!("Redis was emptied; written from the memory of node {}", self.node);
        let writing = async {
            let writer = Writer { by: "anew", reason: Some(&reason) };
            let mut filling = Filling::new(&*target, heads, self.memory.generation, (self.clock, writer))
                .patient(PATIENCE)
                .telling(self.tells);
            for (id, states) in &self.memory.records {
                filling.write(*id, states.iter().cloned()).await?;
            }
            filling.flush().await?;
            let (written, there) = (filling.written(), filling.load_again(|_| {}).await?);
            if written != there {
                let (there, written) = (there.words(), written.words());
                return Err(CannotFill::Record(format!("{there} exist, and {written} were written")));
            }
            post_whole(&*target, filling.ends(), (PATIENCE, Some(self.tells))).await?;
            Ok((written, filling.batches()))
        };
        let written = writing.await;
        leave(&*target).await;
        written.map_err(|cannot| match cannot {
            CannotFill::Read(error) if may_pass(&error) => Unwritten::Away(error),
            CannotFill::Commit(CommitError::NotApplied { cause } | CommitError::Unknown { cause })
                if may_pass(&cause) =>
            {
                Unwritten::Away(cause)
            }
            cannot => Unwritten::Disturbed(cannot),
        })
    }
}

/// Whether a retry may help.
fn may_pass(error: &StoreError) -> bool {
    is_away(error) || matches!(error, StoreError::Full)
}

/// Why a node that is one of several gives up: Redis was away, or refused.
fn too_long(error: &StoreError) -> String {
    let (away_s, why) = (PATIENCE.as_secs(), chain(error));
    format!("Redis did not take it for {away_s} s, in which another node may have owned the register ({why})")
}

/// Releases the lease, so that the next owner need not wait for its end.
async fn leave(target: &dyn Movable) {
    let_go(target).await;
    if tokio::time::timeout(LEAVES_WITHIN, target.close()).await.is_err() {
        tracing::warn!("the store that was written does not close in time");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_what_is_written_and_not_for_ever() {
        let stop = CancellationToken::new();
        stop.cancel();
        let writing = |takes: Duration| async move {
            tokio::time::sleep(takes).await;
            Ok(())
        };
        let second = Duration::from_secs(1);
        assert_eq!(to_the_end(writing(WRITES_ON_WITHIN - second), &stop).await, Ok(()));
        let late = to_the_end(writing(WRITES_ON_WITHIN + second), &stop).await.unwrap_err();
        assert!(late.contains("300 s later the register was not whole"), "{late}");
        // Without a stop there is no time limit.
        assert_eq!(to_the_end(writing(10 * WRITES_ON_WITHIN), &CancellationToken::new()).await, Ok(()));
    }
}
