//! What is committed: batches, what names them, and where the line of a shard stands.
//!
//! Before: `actors::committer` closes batches. After: `codec` writes them down, and a store compares their names with the
//! line (see the contract in [`super`]).

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::codec::Format;
use crate::core::state::{Entry, State, Step};
use crate::core::types::{Generation, NetworkId, ShardTime, WallTime};

/// Number of a shard, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShardId(pub u16);

/// 128 random bits, drawn at each take-over and compared with those of every batch. Zero means nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Token(pub u128);

/// Order of take-overs of a shard. It only orders them; the token does the fencing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(pub u64);

/// Number of a batch of a shard, dense from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Seq(pub u64);

/// Hash over a shard's line of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Digest(pub u128);

/// Identity of a transaction over several shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransactionId(pub u128);

/// Where a shard stands. The default is a shard that nobody has ever taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// Its last take-over.
    pub epoch: Epoch,
    /// Drawn at that take-over.
    pub token: Token,
    /// Token of the take-over before it.
    pub parent: Token,
    /// Last batch.
    pub seq: Seq,
    /// Hash over all batches up to it.
    pub digest: Digest,
    /// Shard time at the last batch.
    pub time: ShardTime,
    /// No generation up to this one is ever given again.
    pub generation: Generation,
    /// The format in which its records are written since its last take-over.
    pub format: Format,
}

/// What one request changed in one network, and who asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// The network.
    pub network: NetworkId,
    /// When it was decided, for people.
    pub wall: WallTime,
    /// Who asked: a principal, or the server itself (`lease`, `cooldown`).
    pub by: CompactString,
    /// Why, in the words of the client.
    pub reason: Option<CompactString>,
    /// The transaction that it belongs to.
    pub transaction: Option<TransactionId>,
    /// The changes, in order.
    pub steps: Vec<Step>,
}

/// One group commit of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The shard.
    pub shard: ShardId,
    /// Epoch of the writer.
    pub epoch: Epoch,
    /// Token of the writer.
    pub token: Token,
    /// Its number: the head's plus one.
    pub seq: Seq,
    /// Shard time when it was closed.
    pub time: ShardTime,
    /// Highest generation given so far in the shard.
    pub generation: Generation,
    /// What it changes, in order. Empty: a fence check only.
    pub acts: Vec<Act>,
}

impl Batch {
    /// Does it only let go? Then it is accepted while the disk is full. Such a batch may renew, bind and unbind what is
    /// already held, and change configuration that exists; it may not grant anything, nor create networks and subnets.
    pub fn lets_go(&self) -> bool {
        self.acts.iter().flat_map(|act| &act.steps).all(step_lets_go)
    }
}

/// Is this a step that a batch which only lets go may have?
pub fn step_lets_go(step: &Step) -> bool {
    match &step.state {
        None | Some(State::Entry(Entry::Released(_) | Entry::Declined(_))) => true,
        Some(State::Entry(Entry::Held(reservation))) => step.expect == Some(reservation.generation.0),
        Some(State::Config(_) | State::Subnet(_) | State::Deployment(_)) => step.expect.is_some(),
    }
}

/// A batch that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The shard.
    pub shard: ShardId,
    /// The batch.
    pub seq: Seq,
    /// Digest of the line up to it.
    pub digest: Digest,
}
