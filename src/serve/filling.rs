//! Writes a whole register into an empty store, and reads it back: one that is moved from another store, or one that its
//! owner has in memory.
//!
//! Neighbours: `migrate` and `anew` supply the contents, and finish the register.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use xxhash_rust::xxh3::Xxh3;

use crate::actors::clock::Clock;
use crate::actors::shard_of;
use crate::core::plural::counted;
use crate::core::state::{Entry, Key, State, Step};
use crate::core::types::{Generation, NetworkId, ShardTime};
use crate::limits;
use crate::store::codec::Format;
use crate::store::moving::{LastOf, Movable};
use crate::store::{
    Act, Batch, CommitError, Digest, Head, NetworkImage, Seq, ShardId, ShardImage, StoreError, Token, chain, codec,
};

/// Pause before the next attempt.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Why a register cannot be filled.
#[derive(Debug)]
pub(super) enum CannotFill {
    /// The store could not be read, or refused something.
    Read(StoreError),
    /// The store failed a commit.
    Commit(CommitError),
    /// A record cannot be written, or lies where nobody looks for it: a sentence.
    Record(String),
}

impl From<StoreError> for CannotFill {
    fn from(error: StoreError) -> Self {
        Self::Read(error)
    }
}

impl From<CommitError> for CannotFill {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl CannotFill {
    /// As a sentence.
    pub(super) fn words(self) -> String {
        match self {
            Self::Read(error) => chain(&error),
            Self::Commit(error) => chain(&error),
            Self::Record(text) => text,
        }
    }
}

/// Counts of what a register holds, and a checksum over its records that does not depend on their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegisterTally {
    /// Networks, including deleted ones that are remembered.
    pub networks: u64,
    /// Subnets.
    pub subnets: u64,
    /// Reservations.
    pub held: u64,
    /// Addresses that are cooling down, or were declined.
    pub resting: u64,
    /// Deployments.
    pub deployments: u64,
    sum: u128,
}

impl RegisterTally {
    /// Counts a record.
    fn add(&mut self, network: NetworkId, key: Key, state: &State) -> Result<(), CannotFill> {
        match state {
            State::Config(_) => self.networks += 1,
            State::Subnet(_) => self.subnets += 1,
            State::Deployment(_) => self.deployments += 1,
            State::Entry(Entry::Held(_)) => self.held += 1,
            State::Entry(Entry::Released(_) | Entry::Declined(_)) => self.resting += 1,
        }
        let mut bytes = Vec::new();
        codec::encode_state(state, Format::NEWEST, &mut bytes)
            .map_err(|error| CannotFill::Record(format!("a record of network {network} {error}")))?;
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

/// Steps that wait to be committed to one shard.
struct WaitingSteps {
    head: Head,
    acts: Vec<Act>,
    steps: usize,
    bytes: usize,
}

/// Who writes the register and why, as its history records it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) by: &'static str,
    pub(super) reason: Option<&'a str>,
}

/// A register that is being written.
pub(super) struct Filling<'a> {
    target: &'a dyn Movable,
    clock: &'a dyn Clock,
    writer: Writer<'a>,
    shards: Vec<WaitingSteps>,
    generation: Generation,
    act_bytes_max: usize,
    written: RegisterTally,
    batches: u64,
    /// How long each call may be retried while the store cannot serve it.
    patience: Duration,
    /// Called with the obstacle while a call is retried, and with none once it has succeeded after all.
    tells: Option<Tells<'a>>,
}

/// Receives the reason for a wait, for as long as it lasts.
pub(super) type Tells<'a> = &'a (dyn Fn(Option<&str>) + Sync);

impl<'a> Filling<'a> {
    /// Starts with shards that were taken and are empty. Their times are in their heads; `generation`, and every lower one,
    /// is never given again.
    pub(super) fn new(
        target: &'a dyn Movable,
        heads: Vec<Head>,
        generation: Generation,
        (clock, writer): (&'a dyn Clock, Writer<'a>),
    ) -> Self {
        let shards =
            heads.into_iter().map(|head| WaitingSteps { head, acts: Vec::new(), steps: 0, bytes: 0 }).collect();
        // Half of the limit: an act that is one step over the bound still fits.
        let act_bytes_max = (target.info().act_bytes_max / 2).min(limits::BATCH_BYTES_MAX);
        let written = RegisterTally::default();
        let (batches, patience, tells) = (0, Duration::ZERO, None);
        Self { target, clock, writer, shards, generation, act_bytes_max, written, batches, patience, tells }
    }

    /// Retries each call for this long while the store cannot serve it.
    pub(super) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Reports the obstacle while it retries.
    pub(super) fn telling(self, tells: Tells<'a>) -> Self {
        Self { tells: Some(tells), ..self }
    }

    /// Writes the records stored under one id. They may wait to be committed with later ones.
    pub(super) async fn write(
        &mut self,
        id: NetworkId,
        states: impl Iterator<Item = (Key, State)>,
    ) -> Result<(), CannotFill> {
        let at = usize::from(shard_of(id, self.target.info().shards).0);
        let (wall, Writer { by, reason }) = (self.clock.wall(), self.writer);
        let act = || Act {
            network: id,
            wall,
            by: by.into(),
            reason: reason.map(Into::into),
            transaction: None,
            steps: vec![],
        };
        let mut next = act();
        for (key, state) in states {
            self.written.add(id, key, &state)?;
            let step = Step { key, expect: None, state: Some(state), event: None };
            let one = Act { steps: vec![step], ..act() };
            let bytes = one.bytes_max();
            let waiting = &mut self.shards[at];
            if waiting.steps == limits::BATCH_CHANGES_MAX || waiting.bytes + bytes > self.act_bytes_max {
                if !next.steps.is_empty() {
                    waiting.acts.push(std::mem::replace(&mut next, act()));
                }
                self.commit(at).await?;
            }
            self.shards[at].steps += 1;
            self.shards[at].bytes += bytes;
            next.steps.extend(one.steps);
        }
        if !next.steps.is_empty() {
            self.shards[at].acts.push(next);
        }
        Ok(())
    }

    /// Commits everything that waits. A shard without networks is committed, too: it has to know the generations that were
    /// given.
    pub(super) async fn flush(&mut self) -> Result<(), CannotFill> {
        for at in 0..self.shards.len() {
            self.commit(at).await?;
        }
        Ok(())
    }

    /// Commits what waits for a shard, durably.
    async fn commit(&mut self, at: usize) -> Result<(), CannotFill> {
        let waiting = &mut self.shards[at];
        let Head { epoch, token, time, .. } = waiting.head;
        let batch = Batch {
            shard: ShardId(at as u16),
            epoch,
            token,
            seq: Seq(waiting.head.seq.0 + 1),
            time,
            generation: self.generation,
            acts: std::mem::take(&mut waiting.acts),
        };
        (waiting.steps, waiting.bytes) = (0, 0);
        let (seq, batches) = (batch.seq, Arc::new([batch]));
        let end = Instant::now() + self.patience;
        // The same bytes each time: the store recognises what it has written already.
        let send = || self.target.commit(Arc::<[Batch; 1]>::clone(&batches));
        let committed = insist_telling(self.tells, end, passes, send).await?;
        let digest = committed.first().map_or(Digest(0), |committed| committed.digest);
        self.batches += 1;
        let waiting = &mut self.shards[at];
        waiting.head = Head { seq, digest, generation: self.generation, ..waiting.head };
        let name = (ShardId(at as u16), token, seq, digest);
        insist_telling(self.tells, end, passes, || self.target.confirm(vec![name])).await?;
        Ok(())
    }

    /// Loads a shard as it is stored now.
    async fn image(&self, shard: ShardId, token: Token) -> Result<ShardImage, StoreError> {
        let end = Instant::now() + self.patience;
        insist_telling(self.tells, end, is_away, || self.target.load(shard, token)).await
    }

    /// The number of batches that were written.
    pub(super) fn batches(&self) -> u64 {
        self.batches
    }

    /// What was written.
    pub(super) fn written(&self) -> RegisterTally {
        self.written
    }

    /// The last batch of each shard.
    pub(super) fn ends(&self) -> Vec<LastOf> {
        let heads = self.shards.iter().enumerate();
        heads.map(|(at, waiting)| last_of(&(ShardId(at as u16), waiting.head))).collect()
    }

    /// Loads and counts everything that is stored now, and checks that each network lies where it will be looked for. `tell`
    /// is called before each shard.
    pub(super) async fn load_again(&self, tell: impl Fn(usize)) -> Result<RegisterTally, CannotFill> {
        let mut tally = RegisterTally::default();
        for (at, waiting) in self.shards.iter().enumerate() {
            tell(at);
            let shard = ShardId(at as u16);
            let image = self.image(shard, waiting.head.token).await?;
            if (image.head.seq, image.head.digest) != (waiting.head.seq, waiting.head.digest) {
                return Err(CannotFill::Record(format!("shard {at} ends at batch {}", image.head.seq.0)));
            }
            for (id, states) in everything(image, 0) {
                if shard_of(id, self.target.info().shards) != shard {
                    return Err(CannotFill::Record(format!("network {id} lies in shard {at}")));
                }
                for (key, state) in states {
                    tally.add(id, key, &state)?;
                }
            }
        }
        Ok(tally)
    }
}

/// Calls `ask` repeatedly while its error `passes`, until this instant.
pub(super) async fn insist<T, E: Error, A: Future<Output = Result<T, E>>>(
    until: Instant,
    passes: impl Fn(&E) -> bool,
    ask: impl FnMut() -> A,
) -> Result<T, E> {
    insist_telling(None, until, passes, ask).await
}

/// As [`insist`], and reports the error while it lasts.
async fn insist_telling<T, E: Error, A: Future<Output = Result<T, E>>>(
    tells: Option<Tells<'_>>,
    until: Instant,
    passes: impl Fn(&E) -> bool,
    mut ask: impl FnMut() -> A,
) -> Result<T, E> {
    let mut told = None;
    loop {
        match ask().await {
            Err(error) if passes(&error) && Instant::now() < until => {
                if let Some(tells) = tells {
                    tells(Some(&chain(&error)));
                    told = Some(tells);
                }
                tokio::time::sleep(ASKED_AGAIN_AFTER).await;
            }
            ended => {
                if let Some(tells) = told {
                    tells(None);
                }
                return ended;
            }
        }
    }
}

/// Marks a register as whole, durably: from then on anybody may take it. Retries while a replica is late.
pub(super) async fn post_whole(
    target: &dyn Movable,
    ends: Vec<LastOf>,
    (patience, tells): (Duration, Option<Tells<'_>>),
) -> Result<(), StoreError> {
    let mut asked = 0;
    let ask = || {
        asked += 1;
        target.post(None, ends.clone())
    };
    match insist_telling(tells, Instant::now() + patience, is_away, ask).await {
        // Nobody can take it before it was marked: so an earlier attempt succeeded.
        Err(StoreError::Fenced { .. }) if asked > 1 => Ok(()),
        posted => posted,
    }
}

/// Whether the store does not answer at present.
pub(super) fn is_away(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { .. })
}

/// Whether a commit may succeed when it is repeated.
fn passes(error: &CommitError) -> bool {
    match error {
        CommitError::NotApplied { cause } | CommitError::Unknown { cause } => {
            is_away(cause) || matches!(cause, StoreError::Full)
        }
        CommitError::Fenced { .. } | CommitError::Mismatch { .. } => false,
    }
}

/// The last batch of a shard that was taken.
pub(super) fn last_of((shard, head): &(ShardId, Head)) -> LastOf {
    (*shard, head.token, head.seq, head.digest)
}

/// The records that are stored under one id.
pub(super) type States = Box<dyn Iterator<Item = (Key, State)> + Send>;

/// All records of a shard, by the id under which they are stored, with their times moved `later`.
pub(super) fn everything(image: ShardImage, later: u64) -> impl Iterator<Item = (NetworkId, States)> {
    let networks = image.networks.into_iter().map(move |network| {
        let id = network.config.id;
        (id, Box::new(states(network, later)) as States)
    });
    let record =
        |(id, deployment)| (id, Box::new(std::iter::once((Key::Deployment, State::Deployment(deployment)))) as States);
    networks.chain(image.deployments.into_iter().map(record))
}

/// The records of a network, configuration first and addresses ascending, with their times moved `later`.
fn states(network: NetworkImage, later: u64) -> impl Iterator<Item = (Key, State)> {
    let subnets: BTreeMap<_, _> = network.subnets.into_iter().map(|subnet| (subnet.id, subnet)).collect();
    std::iter::once((Key::Config, State::Config(network.config)))
        .chain(subnets.into_iter().map(|(id, subnet)| (Key::Subnet(id), State::Subnet(subnet))))
        .chain(network.entries.into_iter().map(move |(address, entry)| {
            (Key::Address(address), State::Entry(entry.in_time_of(ShardTime(0), ShardTime(later))))
        }))
}
