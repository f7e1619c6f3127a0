//! Moves a register from one store to another, whole, and leaves the old one closed for ever.
//!
//! ```text
//! nobody else is there ▶ take every shard of both ▶ copy ▶ load what was copied and compare
//!                                      ▶ the source says that it moved ▶ the target is finished
//! ```
//!
//! Up to the last but one step the source is as it was, and a crash leaves a target that no server accepts; from there on
//! nobody serves the source, and the same command finishes the target (`finishing`). Both last steps are durable before the next
//! begins, as far as the stores can say: in Redis at the replicas that follow it, and on its disk. The copy goes over the contract of all stores, so
//! it is the same from files to Redis, back, and between two of a kind.
//!
//! **What is carried over**: every network, subnet and entry, with their ids, versions and generations. The rest of the
//! register begins anew: its identity, so that whoever knows the old one (a copy of it, a note beside a server) never
//! takes one for the other; its generations, above all that can have been given (R-11); its history, because
//! batches bear the tokens and the digests of their own line. The number of shards may change: where a network lies
//! follows from its id.
//!
//! **Time** (R-12). Each shard has its own, so what is left of a lease is counted from the time of the shard that
//! it comes from: all target shards begin at the latest of these times, and each entry is moved by the difference. The
//! time of the move itself does not count.
//!
//! Neighbours: `cli::migrate` asks and prints; `store::moving` says what the stores promise.
//!
//! Review notes: is there an instant at which both are served? Is each shard's end compared again before it is closed?

mod finishing;
mod presence;

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use self::finishing::finish;
use self::presence::{alone, keep_leases, leave, take_all};
pub use super::filling::RegisterTally;
use super::filling::{CannotFill, Filling, Writer, everything, insist, is_away, last_of, post_whole};
use crate::actors::clock::Clock;
use crate::actors::generations::generation_floor;
use crate::core::types::Generation;
use crate::store::moving::{LastOf, Movable, MoveNotice, Opening, Origin, fingerprint};
use crate::store::{Head, StoreError, chain};

/// For how long Redis, or a replica that is waited for, may be away: each time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Who did it, in the history.
const WRITER: Writer<'static> = Writer { by: "migrate", reason: None };

/// Why a register is not moved. `Display` is a sentence.
#[derive(Debug, thiserror::Error)]
pub enum CannotMove {
    /// A store says no, or cannot be reached: the source, mostly.
    #[error("{0}")]
    Store(String),
    /// Somebody serves it.
    #[error("{0}")]
    Served(String),
    /// It is somewhere else already.
    #[error("{0}")]
    Gone(String),
    /// The target is not to be moved into.
    #[error("{0}")]
    Target(String),
    /// The target is not reached, or refuses whoever asks.
    #[error("{0}")]
    Away(String),
    /// It was served where it went, and is not whole there.
    #[error("{0}")]
    WentOn(String),
    /// What the target holds is not what the source had.
    #[error("what was copied is not what was there ({0}); nothing was moved")]
    Differs(String),
}

impl From<StoreError> for CannotMove {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Held { ref owner, left_ms, .. } => Self::Served(format!(
                "node {} has it open, and its lease runs for another {left_ms} ms unless it is renewed",
                if owner.is_empty() { "without a name" } else { owner }
            )),
            StoreError::Locked(text) => Self::Served(text.to_string()),
            error => Self::Store(chain(&error)),
        }
    }
}

impl From<CannotFill> for CannotMove {
    fn from(cannot: CannotFill) -> Self {
        match cannot {
            CannotFill::Read(error) => error.into(),
            cannot @ (CannotFill::Commit(_) | CannotFill::Record(_)) => Self::Store(cannot.words()),
        }
    }
}

impl CannotMove {
    /// Of what was copied already.
    fn of_target(cannot: CannotFill) -> Self {
        match cannot {
            CannotFill::Record(text) => Self::Differs(text),
            CannotFill::Read(_) | CannotFill::Commit(_) => cannot.into(),
        }
    }
}

/// What was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovedRegister {
    /// What it holds; nothing where a move that was broken off was finished.
    pub tally: Option<RegisterTally>,
    /// The target's identity.
    pub register: u128,
    /// No generation up to this one is given any more.
    pub generation: Generation,
}

/// Told how far it is: done, of how many.
pub type Tell<'a> = &'a dyn Fn(u64, u64);

/// Opens the target.
pub type Open<'a> = &'a dyn Fn(Opening) -> Result<Box<dyn Movable>, StoreError>;

/// Moves a register that was opened for that. Where an earlier move was broken off, goes on from what it left.
///
/// # Errors
/// What stands in the way. Unless the source says that it moved, it is as it was.
pub async fn run(
    source: &dyn Movable,
    open: Open<'_>,
    clock: &dyn Clock,
    tell: Tell<'_>,
) -> Result<MovedRegister, CannotMove> {
    if let Some(notice @ MoveNotice::Moved { register, .. }) = source.notice() {
        // It was closed already: all that can be left to do is to finish where it went.
        let gone = |_| CannotMove::Gone(format!("{} {}", source.place(), notice.refusal()));
        let unfinished = open(Opening::Unfinished(register)).map_err(gone)?;
        let finished = finish(source, &*unfinished, clock).await;
        unfinished.close().await;
        if let Some(moved) = finished? {
            return Ok(moved);
        }
    }
    movable(source)?;
    // Before the target is opened, which removes what a move that was broken off left there: it may be under way.
    alone(source).await?;
    let target = open(Opening::Target { from: origin(source) }).map_err(untaken)?;
    let moved = carry(source, &*target, clock, tell).await;
    target.close().await;
    moved
}

/// Why a target cannot be moved into.
pub fn untaken(error: StoreError) -> CannotMove {
    match error {
        StoreError::Locked(text) => CannotMove::Served(text.to_string()),
        error @ StoreError::Io { .. } => CannotMove::Away(chain(&error)),
        error => CannotMove::Target(chain(&error)),
    }
}

/// Which register is moved, and where it is.
pub fn origin(source: &dyn Movable) -> Origin {
    Origin::of(source.info().register, source.place())
}

/// Would it be moved, as far as it can be seen without a target? Nothing is changed.
///
/// # Errors
/// What stands in the way.
pub async fn look(source: &dyn Movable) -> Result<(), CannotMove> {
    movable(source)?;
    let alone = alone(source).await;
    leave(source).await;
    alone
}

fn movable(source: &dyn Movable) -> Result<(), CannotMove> {
    if source.info().restored_from.is_some() {
        let text = "it was restored from a copy, and nobody has said yet that it is right: start the server with \
                    `--accept-restored`, stop it, and move it then";
        return Err(CannotMove::Store(text.to_owned()));
    }
    Ok(())
}

/// Moves a register into an empty target.
async fn carry(
    source: &dyn Movable,
    target: &dyn Movable,
    clock: &dyn Clock,
    tell: Tell<'_>,
) -> Result<MovedRegister, CannotMove> {
    let carried = async {
        alone(target).await?;
        let ends = Cell::new(false);
        tokio::select! {
            moved = copy(source, target, &ends, (clock, tell)) => moved,
            lost = keep_leases(source, &ends) => Err(lost),
            lost = keep_leases(target, &ends) => Err(lost),
        }
    };
    let carried = carried.await;
    leave(source).await;
    leave(target).await;
    carried
}

/// Has the source say where it went, or that it went nowhere, durably. A replica may be late for once.
async fn post(source: &dyn Movable, notice: Option<MoveNotice>, ends: Vec<LastOf>) -> Result<(), StoreError> {
    insist(Instant::now() + PATIENCE, is_away, || source.post(notice.clone(), ends.clone())).await
}

/// Copies all of a register that was taken, and closes it. Says when it `ends`: from there on nobody owns the source, and nobody
/// can take the target before it is finished.
async fn copy(
    source: &dyn Movable,
    target: &dyn Movable,
    ends: &Cell<bool>,
    (clock, tell): (&dyn Clock, Tell<'_>),
) -> Result<MovedRegister, CannotMove> {
    let from = take_all(source, clock).await?;
    // Who raised no format may go back to a program that reads no later one.
    target.write_in(from.iter().map(|(_, head)| head.format).max().unwrap_or_default());
    let to = take_all(target, clock).await?;
    let time = from.iter().map(|(_, head)| head.time).max().unwrap_or_default();
    let given = from.iter().map(|(_, head)| head.generation).max().unwrap_or_default();
    let generation = generation_floor(given, clock.wall());
    let heads = to.into_iter().map(|(_, head)| Head { time, ..head }).collect::<Vec<_>>();
    let (begun, all) = (from.len(), (from.len() + heads.len()) as u64);
    let mut filling = Filling::new(target, heads, generation, (clock, WRITER)).patient(PATIENCE);
    for (done, &(shard, head)) in from.iter().enumerate() {
        tell(done as u64, all);
        let image = source.load(shard, head.token).await?;
        for (id, states) in everything(image, time.0 - head.time.0) {
            filling.write(id, states).await?;
        }
    }
    filling.flush().await?;
    let copied = filling.load_again(|at| tell((begun + at) as u64, all)).await.map_err(CannotMove::of_target)?;
    let there = filling.written();
    if copied != there {
        return Err(CannotMove::Differs(format!("{}, and there were {}", copied.words(), there.words())));
    }
    let (last, register) = (filling.ends(), target.info().register);
    let moved =
        MoveNotice::Moved { register, fingerprint: fingerprint(&last), at_ms: clock.wall().0, to: target.place() };
    ends.set(true);
    post(source, Some(moved), from.iter().map(last_of).collect()).await?;
    post_whole(target, last, (PATIENCE, None)).await?;
    tell(all, all);
    Ok(MovedRegister { tally: Some(there), register, generation })
}
