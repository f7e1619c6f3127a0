//! What the committer is handed: units, their parts, and the messages that carry them; and where the line of a shard stands.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::prelude::*;
use tokio::sync::oneshot;

use crate::actors::network::Loaded;
use crate::actors::published::Tally;
use crate::actors::reserve::Claimed;
use crate::actors::routes::Lane;
use crate::actors::{Applied, Fault, Outlet, Reply, answer_all};
use crate::core::state::{Entry, State};
use crate::core::types::{Generation, NetworkId, Place, ShardTime};
use crate::limits::PARTED_CHANGE_BYTES;
use crate::metrics::COMMIT_FAILURES;
use crate::store::{Act, CommitError, Digest, Epoch, Head, Seq, ShardId, Token};

/// An answer that waits for durability, and whether its request changed something.
#[derive(Debug)]
pub struct Staged {
    /// The answer.
    pub reply: Reply,
    /// Decides between `applied: "unknown"` and `false`.
    pub wrote: bool,
}

/// What a unit changes in one network.
#[derive(Debug)]
pub struct UnitPart {
    /// The network.
    pub lane: Arc<Lane>,
    /// Incarnation of the memory it was decided on.
    pub incarnation: u64,
    /// Steps of all acts.
    pub changes: usize,
    /// Bytes of all acts, at most.
    pub bytes: usize,
    /// The changes, in order.
    pub acts: Vec<Act>,
    /// What they take of a full store's reserve.
    pub claimed: Claimed,
    /// What they come to, once they are durable.
    pub tally: Tally,
}

impl UnitPart {
    /// Nothing of a network, but of this shard: its owner must be proved before the answers of the unit leave.
    pub fn proof(shard: ShardId) -> Self {
        Self::new(Arc::new(Lane::new(NetworkId(0), shard)), 0, Vec::new())
    }

    /// What it counts for where it is a part of what could be asked for in parts.
    pub fn parted_bytes(&self) -> usize {
        self.bytes.max(self.changes.saturating_mul(PARTED_CHANGE_BYTES))
    }

    /// What these acts change.
    pub fn new(lane: Arc<Lane>, incarnation: u64, acts: Vec<Act>) -> Self {
        let changes = acts.iter().map(|act| act.steps.len()).sum();
        let bytes = acts.iter().map(Act::bytes_max).sum();
        let mut tally = Tally::default();
        acts.iter().for_each(|act| tally.note(&act.steps));
        Self { lane, incarnation, changes, bytes, acts, claimed: Claimed::default(), tally }
    }

    /// It is durable, whatever became of its memory since.
    pub(super) fn became_durable(&self) {
        self.lane.deeds.add(self.tally);
        if self.lane.incarnation.load(Ordering::Acquire) != self.incarnation {
            // It was under way when something that came behind it was given up; what came before it is durable as well.
            self.lane.durable.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The memory that it was decided on is worthless from now on. False if that was so before.
    pub(super) fn disown(&self) -> bool {
        // Only the memory that it was decided on: a newer one was loaded from the store already.
        if self.lane.incarnation.load(Ordering::Acquire) != self.incarnation {
            return false;
        }
        // All that was settled until now is durable, and whoever sees the next incarnation knows how far that goes at least.
        self.lane.durable.store(self.lane.settled.load(Ordering::Acquire), Ordering::Release);
        let next = self.incarnation + 1;
        self.lane.incarnation.compare_exchange(self.incarnation, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// What becomes durable together, and what may be answered then. One part, except for what spans several networks.
#[derive(Debug)]
pub struct Unit {
    /// The changes; a part without any only stands behind what its network has under way.
    pub parts: Vec<UnitPart>,
    /// Where answers go; none for what the server does by itself.
    pub outlet: Option<Outlet>,
    /// The answers.
    pub answers: Vec<Staged>,
    /// The store was given it, so that it may be durable.
    pub(super) sent: bool,
    /// How many steps of its shard's batch come before it; none where that has none, or it stands behind all of them.
    pub(super) behind: Option<u32>,
}

impl Drop for Unit {
    /// A unit that nobody settles: its committer is no more. What waits for it is answered all the same.
    fn drop(&mut self) {
        let applied = if self.sent { Applied::Unknown } else { Applied::No };
        let tickets = std::mem::take(&mut self.answers).into_iter().map(|staged| staged.reply.ticket);
        if let Some(outlet) = &self.outlet
            && tickets.len() > 0
        {
            let problem = "this node no longer owns the network".to_owned();
            answer_all(outlet, tickets, &Fault::Unavailable { applied, problem });
        }
    }
}

impl Unit {
    /// Of what was decided, and not given to the store yet. Without an answer nobody is told anything: whoever asked one thing
    /// would take a message without an answer for the last word.
    pub fn new(parts: Vec<UnitPart>, outlet: Option<Outlet>, answers: Vec<Staged>) -> Self {
        let outlet = outlet.filter(|_| !answers.is_empty());
        Self { parts, outlet, answers, sent: false, behind: None }
    }

    /// Tells its answers where in the history of their network they stand, now that it is durable up to `tip`.
    pub(super) fn place(&mut self, tip: impl Fn(ShardId) -> Option<Place>) {
        let Some(shard) = self.parts.first().map(|part| part.lane.shard) else { return };
        for staged in &mut self.answers {
            let Ok(outcome) = &mut staged.reply.answer else { continue };
            let Some(place) = outcome.place() else { continue };
            // What came before it in its own unit the network has noted.
            let own = place.as_ref().and_then(|place| place.steps).unwrap_or(0);
            let steps = self.behind.map(|behind| behind + own);
            *place = tip(shard).map(|tip| Box::new(Place { steps, ..tip }));
        }
    }

    /// Do the answers of both go to one outlet?
    pub(super) fn is_answered_with(&self, other: &Unit) -> bool {
        match (&self.outlet, &other.outlet) {
            (Some(outlet), Some(of_other)) => outlet.same_channel(of_other),
            (Some(_), None) | (None, Some(_)) | (None, None) => false,
        }
    }

    /// Steps of all parts.
    pub(super) fn changes(&self) -> usize {
        self.parts.iter().map(|part| part.changes).sum()
    }

    /// Bytes of all parts, at most.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

/// A unit for the next group.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Enqueue(pub Unit);

/// Load a network again, once everything of it that is under way is definite.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reload {
    /// Which.
    pub lane: Arc<Lane>,
    /// Who is told.
    pub to: oneshot::Sender<Loaded>,
}

/// Answered when everything that came before is definite.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Drained(pub oneshot::Sender<()>);

/// The tenure is over: nothing is acknowledged or written from here on.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Retire(pub String);

/// Where a shard's line stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShardLine {
    pub(super) epoch: Epoch,
    pub(super) token: Token,
    /// Last batch handed to the store.
    pub(super) seq: Seq,
    /// Last batch that the store acknowledged: what a proof of ownership names.
    pub(super) durable: (Seq, Digest),
    /// Highest generation given so far.
    pub(super) generation: Generation,
    /// Shard time of the last batch.
    pub(super) time: ShardTime,
}

impl ShardLine {
    /// Behind what is durable of it.
    pub(super) fn tip(&self, shard: ShardId) -> Place {
        let (seq, digest) = self.durable;
        Place { shard: shard.0, epoch: self.epoch.0, seq: seq.0, steps: None, digest: digest.0 }
    }
}

/// A line that goes on from this head.
pub(super) fn line_of(head: &Head) -> ShardLine {
    let &Head { epoch, token, seq, digest, generation, time, parent: _, format: _ } = head;
    ShardLine { epoch, token, seq, durable: (seq, digest), generation, time }
}

/// Highest generation that these acts give.
pub(super) fn highest(acts: &[Act]) -> Generation {
    let steps = acts.iter().flat_map(|act| &act.steps);
    let granted = steps.filter_map(|step| match &step.state {
        Some(State::Entry(Entry::Held(reservation))) => Some(reservation.generation),
        Some(
            State::Entry(Entry::Released(_) | Entry::Declined(_))
            | State::Config(_)
            | State::Subnet(_)
            | State::Deployment(_),
        )
        | None => None,
    });
    granted.max().unwrap_or_default()
}

/// Label of the metric.
pub(super) fn class_of(error: &CommitError) -> &'static str {
    let [not_applied, unknown, fenced, mismatch] = COMMIT_FAILURES;
    match error {
        CommitError::NotApplied { .. } => not_applied,
        CommitError::Unknown { .. } => unknown,
        CommitError::Fenced { .. } => fenced,
        CommitError::Mismatch { .. } => mismatch,
    }
}
