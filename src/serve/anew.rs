//! Writes the register anew from memory into a store that was emptied: a FLUSHALL, or a Redis that was restarted without its file.
//!
//! Whoever owned it knows all that was acknowledged: it is in memory, and nobody else can have changed it. So the tenure ends as
//! where anything else is in doubt, and what its networks had that was durable is told before they go (`actors::service::recall`).
//! It is written as a register is that is moved: closed to everybody until it was read once more and is what it was. Then this
//! process begins anew with it, as it would after a restart, and gives no address before it has loaded what it wrote.
//!
//! **Who may.** Only an owner whose lease is in force, or one that has no secret and saw no other node: else another one may have
//! owned the register since, also one that is gone again and that this one never saw, and granted what is free in this memory. A store in which anything is left of a register is never written over; nor is one that only
//! went back (`store::redis::heal`).
//!
//! **It is tried again and again**, whatever stands in the way: Redis is away, refuses to write, or was emptied once more. It ends only
//! where something is there that this process did not write, or where another node may have owned the register meanwhile. What is left
//! on the disk then is in `store::redis::farewell`.
//!
//! **A stop** waits for it: what is written is served by nobody before it is whole, and the memory ends with the process. So it
//! goes on for a while, says so, and has the supervisor wait, too (`supervisor`).
//!
//! Review notes: can two write it? Is what was answered as not done certainly not in it?

use std::ops::RangeInclusive;
use std::sync::Arc;
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
use crate::server::role::{Role, Seat};
use crate::store::moving::{Begun, Movable};
use crate::store::{CommitError, Store, StoreError, chain};
use crate::telemetry::Seldom;

/// What its clients are told meanwhile.
const WRITING: &str = "Redis was emptied, and this node writes the register anew, which it has in memory";
/// For how long Redis, or a replica that is waited for, may be away while it is written: each time, before it is begun once more.
/// And how long it may be away from a node that is one of several.
const PATIENCE: Duration = Duration::from_secs(300);
/// Pause before it is begun once more.
const BEGINS_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How soon, and how seldom at the end, it is said why it is not whole yet.
const SAID_EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);
/// How often it is written once more where a record stands in the way: it will the next time, too.
const TRIES_OF_RECORDS: u32 = 3;
/// For how long it is written on when the server is asked to stop.
const WRITES_ON_WITHIN: Duration = PATIENCE;
/// How long the last words of the store that was written may take.
const LEAVES_WITHIN: Duration = Duration::from_millis(NODE_LEASE_MS);

/// A register that is to be written anew, if that can be done.
pub(super) enum Emptied {
    /// It was emptied under its owner.
    Owned {
        /// The tenure that is over.
        tenure: Arc<Shared>,
        /// May it write it? Else another node may have owned it since.
        may: bool,
    },
    /// It was away, and came back with nothing.
    Remembered(RegisterMemory),
}

impl Keeper {
    /// Writes the register anew. Where that is not to be done, or fails, the process ends of what was the `problem`. Not to be
    /// broken off: from where it is begun until it is whole, nobody has it but this process.
    pub(super) async fn write_anew(&mut self, emptied: Emptied, problem: String, stop: &CancellationToken) -> Ended {
        self.writes_anew.send_replace(true);
        let ended = self.written_anew(emptied, problem, stop).await;
        self.writes_anew.send_replace(false);
        ended
    }

    async fn written_anew(&mut self, emptied: Emptied, problem: String, stop: &CancellationToken) -> Ended {
        // Nobody is served, as whoever is paged for that must see.
        self.server.metrics.owner.set(0);
        let seat = &self.server.seat;
        seat.become_role(waiting(None));
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
                tracing::error!(
                    problem,
                    "the register is written anew, from the memory of this node: leave it running"
                );
                let writing = Writing {
                    store: &*self.store,
                    memory,
                    clock: &*self.server.clock,
                    node: &self.card.name,
                    is_alone: self.shares_with_nobody(),
                    tells: &|why| tell(seat, why),
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
                    "the register is whole again, by what was in memory: nothing that was acknowledged is missing but the history \
                     before. See why Redis was emptied"
                );
                Ended::WrittenAnew(batches)
            }
            Err(why) => {
                tracing::error!(why, "the register is not written anew");
                Ended::Failed(format!(
                    "{problem}. It was not written anew from memory: {why}. Bring the data of Redis back, and start again with the \
                     directory of this node (`store.directory`): it knows what was acknowledged last, and an older copy lacks that"
                ))
            }
        }
    }
}

/// A node that writes the register, and serves nobody meanwhile; with what keeps it from that, if something does.
fn waiting(why: Option<&str>) -> Role {
    let hindered = why.map_or_else(String::new, |why| format!("; what stands in its way now: {why}"));
    let fault = Fault::Unavailable { applied: Applied::No, problem: format!("{WRITING}{hindered}") };
    Role::Waiting { why: WRITING, fault }
}

/// Clients, and whoever looks whether this node is ready, are told what it waits for. The log has it from the store itself.
fn tell(seat: &Seat, why: Option<&str>) {
    let role = waiting(why);
    if role.nobody() != seat.role().nobody() {
        seat.become_same(Arc::new(role));
    }
}

/// Also where the server is asked to stop meanwhile: then for a bounded time.
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
        "the server was asked to stop while the register is written anew: it ends when that is done, at the latest in \
         {at_most_s} s. Ended now, it would lose the register, which is nowhere but in its memory. A second SIGTERM changes nothing"
    );
    match timeout(WRITES_ON_WITHIN, writing).await {
        Ok(written) => written,
        Err(_) => Err(format!("the server was asked to stop, and {at_most_s} s later the register was not whole")),
    }
}

/// A register that is written, until it is whole.
struct Writing<'a> {
    store: &'a dyn Store,
    memory: RegisterMemory,
    clock: &'a dyn Clock,
    node: &'a str,
    /// No other node can own the register, however long Redis is away.
    is_alone: bool,
    /// Says what keeps it from being written.
    tells: Tells<'a>,
}

/// Why it is not whole yet.
enum Unwritten {
    /// Redis does not answer, or does not write.
    Away(StoreError),
    /// It was emptied once more, or else something came in between.
    Disturbed(CannotFill),
}

impl Writing<'_> {
    /// Writes it, reads it again, and opens it to everybody. Answers what it has, and in how many batches that was written.
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
                    "the register is not written anew yet, and is tried again: leave this node running"
                );
            }
            tokio::time::sleep(BEGINS_AGAIN_AFTER).await;
        }
    }

    async fn begin(&self) -> Result<Begun, StoreError> {
        self.store.anew(self.memory.times.clone()).await
    }

    /// Writes it into what was begun, which is closed then.
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
                return Err(CannotFill::Record(format!("{there} are there, and {written} were written")));
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

/// Is it worth while to ask again?
fn may_pass(error: &StoreError) -> bool {
    is_away(error) || matches!(error, StoreError::Full)
}

/// A node that is one of several gives up.
fn too_long(error: &StoreError) -> String {
    let (away_s, why) = (PATIENCE.as_secs(), chain(error));
    format!("Redis was not there for {away_s} s, in which another node may have owned the register ({why})")
}

/// Whoever owns it next need not wait for the end of a lease.
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
        // Nobody asks it to stop: it takes as long as it takes.
        assert_eq!(to_the_end(writing(10 * WRITES_ON_WITHIN), &CancellationToken::new()).await, Ok(()));
    }
}
