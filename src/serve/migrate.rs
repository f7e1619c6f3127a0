//! Moves a register from one store to another, whole, and leaves the old one closed for ever.
//!
//! ```text
//! nobody else is there ▶ take every shard of both ▶ copy ▶ load what was copied and compare
//!                                      ▶ the source says that it moved ▶ the target is finished
//! ```
//!
//! Up to the last but one step the source is as it was, and a crash leaves a target that no server accepts; from there on
//! nobody serves the source, and the same command finishes the target. The copy goes over the contract of all stores, so
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

mod presence;

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use self::presence::{alone, keep_leases, leave, take_all};
use crate::actors::clock::Clock;
use crate::actors::committer::chain;
use crate::actors::generations::generation_floor;
use crate::actors::shard_of;
use crate::core::plural::counted;
use crate::core::state::{Entry, Key, State, Step};
use crate::core::types::{Generation, NetworkId, ShardTime};
use crate::limits;
use crate::store::codec::Format;
use crate::store::moving::{LastOf, Movable, MoveNotice, Opening, fingerprint};
use crate::store::{Act, Batch, CommitError, Digest, Head, NetworkImage, ShardId, ShardImage, StoreError, codec};

/// Who did it, in the history.
const BY: &str = "migrate";

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

impl From<CommitError> for CannotMove {
    fn from(error: CommitError) -> Self {
        Self::Store(chain(&error))
    }
}

/// What a register holds, counted, and a sum over every record in no particular order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegisterTally {
    /// Networks, deleted ones that are remembered too.
    pub networks: u64,
    /// Subnets.
    pub subnets: u64,
    /// Reservations.
    pub held: u64,
    /// Addresses that cool, or were declined.
    pub resting: u64,
    /// Deployments.
    pub deployments: u64,
    sum: u128,
}

impl RegisterTally {
    fn add(&mut self, network: NetworkId, key: Key, state: &State) -> Result<(), CannotMove> {
        match state {
            State::Config(_) => self.networks += 1,
            State::Subnet(_) => self.subnets += 1,
            State::Deployment(_) => self.deployments += 1,
            State::Entry(Entry::Held(_)) => self.held += 1,
            State::Entry(Entry::Released(_) | Entry::Declined(_)) => self.resting += 1,
        }
        let mut bytes = Vec::new();
        codec::encode_state(state, Format::NEWEST, &mut bytes)
            .map_err(|error| CannotMove::Store(format!("a record of network {network} {error}")))?;
        let mut hash = Xxh3::new();
        hash.update(&network.0.to_be_bytes());
        hash.update(format!("{key:?}").as_bytes());
        hash.update(&bytes);
        self.sum = self.sum.wrapping_add(hash.digest128());
        Ok(())
    }

    /// In words.
    pub fn words(&self) -> String {
        let Self { networks, subnets, held, resting, deployments, sum: _ } = *self;
        format!(
            "{}, {}, {}, {} cooling or declined, {}",
            counted(networks, "network"),
            counted(subnets, "subnet"),
            counted(held, "reservation"),
            counted(resting, "address"),
            counted(deployments, "deployment")
        )
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
    let refused = |error: StoreError| match error {
        StoreError::Locked(text) => CannotMove::Served(text.to_string()),
        error => CannotMove::Target(chain(&error)),
    };
    let target = open(Opening::Target { from: source.place() }).map_err(refused)?;
    let moved = carry(source, &*target, clock, tell).await;
    target.close().await;
    moved
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
        let moving = async {
            let copy = Copy::begin(source, target, clock).await?;
            copy.run(source, target, clock, tell).await
        };
        tokio::select! {
            moved = moving => moved,
            lost = keep_leases(source) => Err(lost),
            lost = keep_leases(target) => Err(lost),
        }
    };
    let carried = carried.await;
    leave(source).await;
    leave(target).await;
    carried
}

/// Finishes a target that was whole when the source was closed. None where it is not as it was then: the source is
/// opened again, and is to be moved anew.
async fn finish(
    source: &dyn Movable,
    target: &dyn Movable,
    clock: &dyn Clock,
) -> Result<Option<MovedRegister>, CannotMove> {
    let Some(MoveNotice::Moved { register, fingerprint: whole, .. }) = source.notice() else { return Ok(None) };
    alone(target).await?;
    let heads = take_all(target, clock).await?;
    let ends: Vec<LastOf> = heads.iter().map(last_of).collect();
    let generation = heads.iter().map(|(_, head)| head.generation).max().unwrap_or_default();
    let is_whole = fingerprint(&ends) == whole && target.info().register == register;
    if is_whole {
        target.post(None, ends).await?;
    } else {
        // It is unfinished, so it never was served: the source is still the only register.
        source.post(None, Vec::new()).await?;
    }
    leave(target).await;
    Ok(is_whole.then_some(MovedRegister { tally: None, register, generation }))
}

fn last_of((shard, head): &(ShardId, Head)) -> LastOf {
    (*shard, head.token, head.seq, head.digest)
}

/// What waits to be committed to one shard of the target.
struct WaitingSteps {
    head: Head,
    acts: Vec<Act>,
    steps: usize,
    bytes: usize,
}

/// A copy under way.
struct Copy {
    from: Vec<(ShardId, Head)>,
    to: Vec<WaitingSteps>,
    time: ShardTime,
    generation: Generation,
    act_bytes_max: usize,
}

impl Copy {
    async fn begin(source: &dyn Movable, target: &dyn Movable, clock: &dyn Clock) -> Result<Self, CannotMove> {
        let from = take_all(source, clock).await?;
        let to = take_all(target, clock).await?;
        let time = from.iter().map(|(_, head)| head.time).max().unwrap_or_default();
        let given = from.iter().map(|(_, head)| head.generation).max().unwrap_or_default();
        let generation = generation_floor(given, clock.wall());
        let to = to.into_iter().map(|(_, head)| WaitingSteps { head, acts: Vec::new(), steps: 0, bytes: 0 }).collect();
        // Half of what is legal: an act that is one step over the bound still fits.
        let act_bytes_max = (target.info().act_bytes_max / 2).min(limits::BATCH_BYTES_MAX);
        Ok(Self { from, to, time, generation, act_bytes_max })
    }

    async fn run(
        mut self,
        source: &dyn Movable,
        target: &dyn Movable,
        clock: &dyn Clock,
        tell: Tell<'_>,
    ) -> Result<MovedRegister, CannotMove> {
        let all = (self.from.len() + self.to.len()) as u64;
        let mut there = RegisterTally::default();
        for (done, (shard, head)) in self.from.clone().into_iter().enumerate() {
            tell(done as u64, all);
            let image = source.load(shard, head.token).await?;
            let later = self.time.0 - head.time.0;
            for (id, states) in everything(image, later) {
                self.copy(target, clock, (id, states), &mut there).await?;
            }
        }
        // Also what gets no network has to know the generations that were given.
        for at in 0..self.to.len() {
            self.commit(target, at).await?;
        }
        let copied = self.load_again(target, tell, all).await?;
        if copied != there {
            return Err(CannotMove::Differs(format!("{}, and there were {}", copied.words(), there.words())));
        }
        let from: Vec<LastOf> = self.from.iter().map(last_of).collect();
        let to = self.ends();
        let register = target.info().register;
        let moved =
            MoveNotice::Moved { register, fingerprint: fingerprint(&to), at_ms: clock.wall().0, to: target.place() };
        source.post(Some(moved), from).await?;
        target.post(None, to).await?;
        tell(all, all);
        Ok(MovedRegister { tally: Some(there), register, generation: self.generation })
    }

    fn ends(&self) -> Vec<LastOf> {
        let heads = self.to.iter().enumerate();
        heads.map(|(at, waiting)| last_of(&(ShardId(at as u16), waiting.head))).collect()
    }

    /// Everything that the target has now, counted as it is loaded; each network is where it will be looked for.
    async fn load_again(&self, target: &dyn Movable, tell: Tell<'_>, all: u64) -> Result<RegisterTally, CannotMove> {
        let mut tally = RegisterTally::default();
        for (at, waiting) in self.to.iter().enumerate() {
            tell((self.from.len() + at) as u64, all);
            let shard = ShardId(at as u16);
            let image = target.load(shard, waiting.head.token).await?;
            if (image.head.seq, image.head.digest) != (waiting.head.seq, waiting.head.digest) {
                return Err(CannotMove::Differs(format!("shard {at} ends at batch {}", image.head.seq.0)));
            }
            for (id, states) in everything(image, 0) {
                if shard_of(id, target.info().shards) != shard {
                    return Err(CannotMove::Differs(format!("network {id} lies in shard {at}")));
                }
                for (key, state) in states {
                    tally.add(id, key, &state)?;
                }
            }
        }
        Ok(tally)
    }

    async fn copy(
        &mut self,
        target: &dyn Movable,
        clock: &dyn Clock,
        (id, states): (NetworkId, States),
        tally: &mut RegisterTally,
    ) -> Result<(), CannotMove> {
        let at = usize::from(shard_of(id, target.info().shards).0);
        let act =
            || Act { network: id, wall: clock.wall(), by: BY.into(), reason: None, transaction: None, steps: vec![] };
        let mut next = act();
        for (key, state) in states {
            tally.add(id, key, &state)?;
            let step = Step { key, expect: None, state: Some(state), event: None };
            let one = Act { steps: vec![step], ..act() };
            let bytes = one.bytes_max();
            let waiting = &mut self.to[at];
            if waiting.steps == limits::BATCH_CHANGES_MAX || waiting.bytes + bytes > self.act_bytes_max {
                if !next.steps.is_empty() {
                    waiting.acts.push(std::mem::replace(&mut next, act()));
                }
                self.commit(target, at).await?;
            }
            self.to[at].steps += 1;
            self.to[at].bytes += bytes;
            next.steps.extend(one.steps);
        }
        if !next.steps.is_empty() {
            self.to[at].acts.push(next);
        }
        Ok(())
    }

    /// Writes what waits for a shard, durably.
    async fn commit(&mut self, target: &dyn Movable, at: usize) -> Result<(), CannotMove> {
        let waiting = &mut self.to[at];
        let Head { epoch, token, .. } = waiting.head;
        let batch = Batch {
            shard: ShardId(at as u16),
            epoch,
            token,
            seq: crate::store::Seq(waiting.head.seq.0 + 1),
            time: self.time,
            generation: self.generation,
            acts: std::mem::take(&mut waiting.acts),
        };
        (waiting.steps, waiting.bytes) = (0, 0);
        let seq = batch.seq;
        let committed = target.commit(Arc::new([batch])).await?;
        let digest = committed.first().map_or(Digest(0), |committed| committed.digest);
        waiting.head = Head { seq, digest, time: self.time, generation: self.generation, ..waiting.head };
        target.confirm(vec![(ShardId(at as u16), token, seq, digest)]).await?;
        Ok(())
    }
}

/// Records that are stored under one id.
type States = Box<dyn Iterator<Item = (Key, State)> + Send>;

/// All records of a shard, by the id under which they are stored; their times so much later.
fn everything(image: ShardImage, later: u64) -> impl Iterator<Item = (NetworkId, States)> {
    let networks = image.networks.into_iter().map(move |network| {
        let id = network.config.id;
        (id, Box::new(states(network, later)) as States)
    });
    let record =
        |(id, deployment)| (id, Box::new(std::iter::once((Key::Deployment, State::Deployment(deployment)))) as States);
    networks.chain(image.deployments.into_iter().map(record))
}

/// The records of a network: configuration first, addresses ascending; its times so much later.
fn states(network: NetworkImage, later: u64) -> impl Iterator<Item = (Key, State)> {
    let subnets: BTreeMap<_, _> = network.subnets.into_iter().map(|subnet| (subnet.id, subnet)).collect();
    std::iter::once((Key::Config, State::Config(network.config)))
        .chain(subnets.into_iter().map(|(id, subnet)| (Key::Subnet(id), State::Subnet(subnet))))
        .chain(network.entries.into_iter().map(move |(address, entry)| {
            (Key::Address(address), State::Entry(entry.in_time_of(ShardTime(0), ShardTime(later))))
        }))
}
