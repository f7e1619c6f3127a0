//! Bounds of what a session has in memory: requests that are not answered, and answers that the client has not taken.
//!
//! Short requests can have long answers, so counting requests bounds nothing. Therefore only few requests with long answers are
//! under way at once; while the client does not take its answers, nothing more is begun; and members of a batch, whose answers
//! leave together, are refused once those before them are long.
//!
//! Review notes: is everything that is added to a count subtracted where it leaves?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Pending, Queued, Session};
use crate::limits::{
    ANSWER_BYTES_MAX, BATCH_ANSWER_BYTES_MAX, BATCHES_ANSWER_BYTES_MAX, IN_FLIGHT_BYTES_MAX, LONG_REQUESTS_MAX,
};
use crate::server::dispatch::Errand;
use crate::server::render::Shape;
use crate::wire::{Access, ErrorKind, Method, RpcError};

/// Bytes of output that wait for the client; beyond it nothing more is read or begun.
pub const OUT_BYTES_MAX: usize = ANSWER_BYTES_MAX;

/// The answers that several sessions have in memory together, with a bound in bytes; beyond it long ones are refused.
#[derive(Debug)]
pub struct AnswersTogether {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl AnswersTogether {
    /// No answers yet, with this bound.
    pub fn of(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), bytes_max })
    }

    /// The share of one session: nothing yet.
    pub fn share(self: &Arc<Self>) -> AnswersShare {
        AnswersShare { together: Arc::clone(self), bytes: 0 }
    }
}

/// The share of one session in [`AnswersTogether`]. It lives as long as its answers, until they are taken.
#[derive(Debug)]
pub struct AnswersShare {
    together: Arc<AnswersTogether>,
    bytes: usize,
}

impl AnswersShare {
    /// Sets the bytes of this share.
    fn note(&mut self, bytes: usize) {
        self.together.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.together.bytes.fetch_sub(std::mem::replace(&mut self.bytes, bytes), Ordering::Relaxed);
    }

    /// Is the bound reached?
    fn is_full(&self) -> bool {
        self.together.bytes.load(Ordering::Relaxed) >= self.together.bytes_max
    }
}

impl Drop for AnswersShare {
    fn drop(&mut self) {
        self.note(0);
    }
}

/// What a session has in memory, apart from [`Session::out`].
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Requests under way whose answers may be long.
    long: usize,
    /// Bytes of requests that are not answered.
    asked: usize,
    /// Bytes of answers that wait for the other members of their batches.
    pub(super) batched: usize,
    /// Whether requests are held back because the client does not take its answers.
    held_back: bool,
    /// Whether the server stops: then a client that does not take its answers holds nothing up.
    hurries: bool,
    /// Its share in the answers of several sessions, if those have a bound.
    share: Option<AnswersShare>,
}

/// May the answer of this method be long? Lists may, and answers with a whole network, subnet or deployment, changed or not. A list
/// of released reservations counts as short, because each is released only once; but a dry run of a release can be repeated, and
/// a sweep lists anew who still waits for another one.
fn may_be_long(shape: &Shape) -> bool {
    match shape.method {
        Method::IpFind
        | Method::IpList
        | Method::NetworkCreate
        | Method::NetworkGet
        | Method::NetworkList
        | Method::NetworkUpdate
        | Method::NetworkRestore
        | Method::NetworkUsage
        | Method::NetworkMap
        | Method::SubnetAdd
        | Method::SubnetModify
        | Method::SubnetMove
        | Method::ReservedAdd
        | Method::ReservedRemove
        | Method::RealmList
        | Method::ScopeList
        | Method::ClaimantSweep
        | Method::DeploymentPlan
        | Method::DeploymentApply
        | Method::DeploymentGet
        | Method::DeploymentCommit
        | Method::DeploymentRevert
        | Method::DeploymentDelete
        | Method::DeploymentList
        | Method::EventsHistory
        | Method::ClusterConflicts
        | Method::RpcDiscover => !shape.count_only,
        Method::IpAcquire => shape.many,
        Method::OwnerRelease | Method::ScopeRelease => shape.dry_run,
        Method::IpAllocate
        | Method::IpClaim
        | Method::IpRelease
        | Method::IpRenew
        | Method::IpBind
        | Method::IpUnbind
        | Method::IpUpdate
        | Method::IpTransfer
        | Method::IpDecline
        | Method::IpGet
        | Method::ClaimantMark
        | Method::NetworkDelete
        | Method::SubnetRemove
        | Method::PoolAdd
        | Method::PoolModify
        | Method::PoolRemove
        | Method::EventsWatch
        | Method::EventsUnwatch
        | Method::ServerInfo
        | Method::ServerPing
        | Method::ClusterNodes
        | Method::ClusterLocate
        | Method::ClusterDrain
        | Method::ClusterAccept
        | Method::SessionSet
        | Method::InventoryCompare
        | Method::AuthLogin => false,
    }
}

/// Does this request count as long? A request that waits for capacity does not: it must not hold up the one that would make room for
/// it, and it is answered only once.
fn is_long(pending: &Pending) -> bool {
    !pending.waits && may_be_long(&pending.shape)
}

impl Room {
    pub(super) fn queued(&mut self, queued: &Queued) {
        self.asked += queued.bytes;
    }

    pub(super) fn unqueued(&mut self, queued: &Queued) {
        self.asked -= queued.bytes;
    }

    pub(super) fn sent(&mut self, pending: &Pending) {
        self.asked += pending.bytes;
        self.long += usize::from(is_long(pending));
    }

    /// Notes that a request begins to wait. Must be called before it is marked as waiting.
    pub(super) fn begins_to_wait(&mut self, pending: &Pending) {
        self.long -= usize::from(is_long(pending));
    }

    pub(super) fn answered(&mut self, pending: &Pending) {
        self.asked -= pending.bytes;
        self.long -= usize::from(is_long(pending));
    }

    pub(super) fn has_room(&self) -> bool {
        self.asked < IN_FLIGHT_BYTES_MAX
    }
}

impl Session {
    /// Do the answers of this session, which may wait for the other members of their batch, and those of others that it counts
    /// among leave room for more?
    pub fn leaves_room_for_answers(&mut self) -> bool {
        self.note_answers();
        !self.room.share.as_ref().is_some_and(AnswersShare::is_full)
    }

    /// Makes the answers of this session count among these.
    pub fn counts_among(&mut self, together: &Arc<AnswersTogether>) {
        self.room.share = Some(together.share());
    }

    /// Takes the share of this session's answers, to be kept until the client has taken them.
    pub fn take_share(&mut self) -> Option<AnswersShare> {
        self.note_answers();
        self.room.share.take()
    }

    fn note_answers(&mut self) {
        let bytes = self.room.batched + self.out.len();
        self.room.share.iter_mut().for_each(|share| share.note(bytes));
    }

    /// Has the client left so many answers untaken that nothing more is begun?
    pub(super) fn is_backed_up(&self) -> bool {
        self.out.len() - self.taken >= OUT_BYTES_MAX && !self.room.hurries
    }

    /// Is nothing more to be begun now? Notes that requests are held back.
    pub(super) fn holds_back(&mut self) -> bool {
        self.room.held_back = self.is_backed_up();
        self.room.held_back
    }

    /// Begins the requests that were held back, if the client has taken its answers. The role of the node is looked at first, because
    /// no answer has reported it.
    pub fn go_on_if_taken(&mut self) {
        if self.room.held_back && !self.is_backed_up() {
            self.room.held_back = false;
            self.pump();
        }
    }

    /// From now on a client that does not take its answers holds nothing up.
    pub(super) fn hurry(&mut self) {
        self.room.hurries = true;
        if std::mem::take(&mut self.room.held_back) {
            self.pump();
        }
    }

    /// Must this request wait until fewer long answers are under way?
    pub(super) fn is_crowded(&self, queued: &Queued) -> bool {
        self.room.long >= LONG_REQUESTS_MAX && may_be_long(&queued.ready.shape)
    }

    /// The refusal of an answer for which there will be no room: the other answers of its batch are long already, the answers of
    /// several clients together are, or the server stops and the client takes nothing. Only a long answer is refused; but in a
    /// batch that is long already whatever asks actors and changes nothing is, because even errors add up.
    pub(super) fn too_much(&mut self, queued: &Queued) -> Option<RpcError> {
        let shape = &queued.ready.shape;
        let own = queued.batch.and_then(|at| self.batches.get(at)?.as_ref()).map_or(0, |batch| batch.text.len());
        let is_full = own >= BATCH_ANSWER_BYTES_MAX;
        let changes_nothing = shape.dry_run || shape.method.access() == Access::Read;
        let is_asked = changes_nothing && !matches!(queued.ready.errand, Errand::Here(_));
        if !(may_be_long(shape) || is_full && is_asked) {
            return None;
        }
        self.note_answers();
        let message = if is_full {
            format!(
                "the answers of this batch already have {BATCH_ANSWER_BYTES_MAX} bytes, and are sent together; ask for less at once"
            )
        } else if queued.batch.is_some() && self.room.batched >= BATCHES_ANSWER_BYTES_MAX {
            format!(
                "the answers to batches of this connection that wait for the rest of their batch have \
                 {BATCHES_ANSWER_BYTES_MAX} bytes; ask again when one is answered"
            )
        } else if let Some(share) = self.room.share.as_ref().filter(|share| share.is_full()) {
            format!(
                "the answers that are not taken by those who asked over HTTP have {} bytes; ask again when some are",
                share.together.bytes_max
            )
        } else if self.room.hurries && self.out.len() - self.taken >= OUT_BYTES_MAX {
            "the server stops, and what it answered is not taken; ask again".to_owned()
        } else {
            return None;
        };
        Some(RpcError::new(ErrorKind::Overloaded, message).with(|data| data.retry_after_ms = Some(100)))
    }
}
