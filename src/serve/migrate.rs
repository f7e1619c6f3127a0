//! Moves a register from one store to another, whole, and leaves the old one closed for ever.
//!
//! ```text
//! nobody else is there ▶ take every shard of both ▶ copy ▶ load what was copied and compare
//!                                      ▶ the source says that it moved ▶ the target is finished
//! ```
//!
//! Up to the last step but one the source is unchanged, and a crash leaves a target that no server accepts. From then on
//! nobody serves the source, and the same command finishes the target (`finishing`). Each of the last two steps is durable
//! before the next one begins, as far as the stores can say: in Redis on the replicas that follow it, and on its disk. The
//! copy uses the contract of all stores, so it works the same from files to Redis, back, and between two of a kind.
//!
//! **What is carried over**: every network, subnet and entry, with their ids, versions and generations. The rest of the
//! register starts afresh. It gets a new identity, so that nothing that knows the old one (a copy of it, a note beside a
//! server) takes one for the other; its generations start above all that can have been given (R-11); its history is empty,
//! because batches carry the tokens and digests of their own line. The number of shards may change: an id determines the
//! shard of its network.
//!
//! **Time** (R-12). Each shard has its own time, so what is left of a lease is counted from the time of the shard that it
//! comes from: all target shards begin at the latest of these times, and each entry is shifted by the difference. The
//! duration of the move itself does not count.
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

/// How long Redis, or a replica that is waited for, may be away in each attempt.
const PATIENCE: Duration = Duration::from_secs(30);
/// The author of the changes, in the history.
const WRITER: Writer<'static> = Writer { by: "migrate", reason: None };

/// Why a register is not moved. `Display` is a sentence.
#[derive(Debug, thiserror::Error)]
pub enum CannotMove {
    /// A store, mostly the source, refuses or cannot be reached.
    #[error("{0}")]
    Store(String),
    /// A server has it open.
    #[error("{0}")]
    Served(String),
    /// The register has already gone elsewhere.
    #[error("{0}")]
    Gone(String),
    /// The target must not be moved into.
    #[error("{0}")]
    Target(String),
    /// The target cannot be reached, or refuses this client.
    #[error("{0}")]
    Away(String),
    /// The source was closed by an earlier move, and the target cannot be reached.
    #[error("{0}")]
    ClosedAndAway(String),
    /// The register was served at the target, and is incomplete there.
    #[error("{0}")]
    WentOn(String),
    /// What the target holds is not what the source had.
    #[error("the copy differs from the original ({0}); nothing was moved")]
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
    /// For what was already copied.
    fn of_target(cannot: CannotFill) -> Self {
        match cannot {
            CannotFill::Record(text) => Self::Differs(text),
            CannotFill::Read(_) | CannotFill::Commit(_) => cannot.into(),
        }
    }
}

/// The result of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovedRegister {
    /// What the register holds; none if this only finished an earlier move.
    pub tally: Option<RegisterTally>,
    /// The target's identity.
    pub register: u128,
    /// No generation up to this one will be given again.
    pub generation: Generation,
}

/// Reports progress: steps done, of how many.
pub type Tell<'a> = &'a dyn Fn(u64, u64);

/// Opens the target.
pub type Open<'a> = &'a dyn Fn(Opening) -> Result<Box<dyn Movable>, StoreError>;

/// Moves a register that was opened for this. Goes on from where an earlier move broke off.
///
/// # Errors
/// What stands in the way. Unless the source says that it moved, it is unchanged.
pub async fn run(
    source: &dyn Movable,
    open: Open<'_>,
    clock: &dyn Clock,
    tell: Tell<'_>,
) -> Result<MovedRegister, CannotMove> {
    if let Some(notice @ MoveNotice::Moved { register, .. }) = source.notice() {
        // It was closed already: all that can be left to do is to finish the target.
        let unfinished = open(Opening::Unfinished(register)).map_err(|error| not_finished(source, &notice, error))?;
        let finished = finish(source, &*unfinished, clock).await;
        unfinished.close().await;
        if let Some(moved) = finished? {
            return Ok(moved);
        }
    }
    movable(source)?;
    // Before the target is opened, because opening it removes what an interrupted move left there: that move may still be
    // running.
    alone(source).await?;
    let target = open(Opening::Target { from: origin(source) }).map_err(untaken)?;
    let moved = carry(source, &*target, clock, tell).await;
    target.close().await;
    moved
}

/// Why the move of a register that was closed already cannot be finished at the target. Only a target that was read and holds
/// something else, or nothing, shows that there is nothing to finish.
pub fn not_finished(source: &dyn Movable, notice: &MoveNotice, error: StoreError) -> CannotMove {
    let place = source.place();
    match error {
        StoreError::Foreign(reason) => CannotMove::Gone(format!("{place} {}; and {reason}", notice.refusal())),
        StoreError::Locked(text) => CannotMove::Served(text.to_string()),
        error @ StoreError::Io { .. } => CannotMove::ClosedAndAway(format!(
            "{place} is closed: its register was moved, and whether the move is finished cannot be seen: {}",
            chain(&error)
        )),
        error => CannotMove::Store(chain(&error)),
    }
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

/// Whether it could be moved, as far as can be seen without a target. Changes nothing.
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
        let text = "it was restored from a copy that nobody has accepted yet: start the server once with `--accept-restored`, \
         stop it, then move it";
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

/// Makes the source say where it went, or that it went nowhere, durably. Retries while a replica is late.
async fn post(source: &dyn Movable, notice: Option<MoveNotice>, ends: Vec<LastOf>) -> Result<(), StoreError> {
    insist(Instant::now() + PATIENCE, is_away, || source.post(notice.clone(), ends.clone())).await
}

/// Copies everything of a register that was taken, and closes it. Sets `ends` before that: from there on nobody owns the
/// source, and nobody can take the target before it is finished.
async fn copy(
    source: &dyn Movable,
    target: &dyn Movable,
    ends: &Cell<bool>,
    (clock, tell): (&dyn Clock, Tell<'_>),
) -> Result<MovedRegister, CannotMove> {
    let from = take_all(source, clock).await?;
    // If nobody raised the record format, the operator may go back to a program that reads no later one.
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
