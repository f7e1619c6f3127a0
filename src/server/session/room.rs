//! How much a session has in memory of what its client asked and has not taken yet.
//!
//! Short requests have long answers, so counting requests bounds nothing. Few whose answers may be long are under way at
//! once; while the client does not take what is answered, nothing more is begun; and the members of a batch, which leave
//! together, are refused once those before them are long.
//!
//! Review notes: is everything that is added taken away where it leaves?

use super::{Pending, Queued, Session};
use crate::limits::{ANSWER_BYTES_MAX, BATCH_ANSWER_BYTES_MAX, IN_FLIGHT_BYTES_MAX, LONG_REQUESTS_MAX};
use crate::server::render::Shape;
use crate::wire::methods::Access;
use crate::wire::{ErrorKind, Method, RpcError};

/// Output that waits for the client; beyond it nothing more is read or begun.
pub const OUT_BYTES_MAX: usize = ANSWER_BYTES_MAX;

/// What is in memory, apart from [`Session::out`].
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Requests under way whose answers may be long.
    long: usize,
    /// Bytes of requests that are not answered.
    asked: usize,
    /// Bytes of answers that wait for the other members of their batches.
    pub(super) batched: usize,
    /// Something is not begun because the client does not take what is answered.
    held_back: bool,
    /// The server stops: who does not take what is answered holds nothing up.
    hurries: bool,
}

/// May its answer be long? All that take a page, or tell of everything; what changes something says little.
fn may_be_long(shape: &Shape) -> bool {
    match shape.method {
        Method::IpGet
        | Method::ServerPing
        | Method::ServerInfo
        | Method::SessionSet
        | Method::EventsWatch
        | Method::EventsUnwatch
        | Method::ClusterLocate => false,
        method => method.access() == Access::Read && !shape.count_only,
    }
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
        self.long += usize::from(may_be_long(&pending.shape));
    }

    pub(super) fn answered(&mut self, pending: &Pending) {
        self.asked -= pending.bytes;
        self.long -= usize::from(may_be_long(&pending.shape));
    }

    pub(super) fn has_room(&self) -> bool {
        self.asked < IN_FLIGHT_BYTES_MAX
    }
}

impl Session {
    /// Does the client leave so much of what is answered that nothing more is begun?
    pub(super) fn is_backed_up(&self) -> bool {
        self.out.len() - self.taken >= OUT_BYTES_MAX && !self.room.hurries
    }

    /// Is nothing more begun? Notes that there is something to go on with.
    pub(super) fn holds_back(&mut self) -> bool {
        self.room.held_back = self.is_backed_up();
        self.room.held_back
    }

    /// Begins what was held back, if the client took what was answered.
    pub fn go_on_if_taken(&mut self) {
        if self.room.held_back && !self.is_backed_up() {
            self.room.held_back = false;
            self.go_on();
        }
    }

    /// From now on nobody waits for the client to take what is answered.
    pub(super) fn hurry(&mut self) {
        self.room.hurries = true;
        if std::mem::take(&mut self.room.held_back) {
            self.go_on();
        }
    }

    /// Must it wait until fewer long answers are under way?
    pub(super) fn is_crowded(&self, queued: &Queued) -> bool {
        self.room.long >= LONG_REQUESTS_MAX && may_be_long(&queued.planned.shape)
    }

    /// A long answer that there is no room for, and that nobody waits for: of a batch the others are long already, or the
    /// server stops and the client takes nothing.
    pub(super) fn too_much(&self, queued: &Queued) -> Option<RpcError> {
        if !may_be_long(&queued.planned.shape) {
            return None;
        }
        let message = if queued.batch.is_some() && self.room.batched >= BATCH_ANSWER_BYTES_MAX {
            format!(
                "the answers of the batch have {BATCH_ANSWER_BYTES_MAX} bytes already, and leave together; ask for less at once"
            )
        } else if self.room.hurries && self.out.len() - self.taken >= OUT_BYTES_MAX {
            "the server stops, and what it answered is not taken; ask again".to_owned()
        } else {
            return None;
        };
        Some(RpcError::new(ErrorKind::Overloaded, message).with(|data| data.retry_after_ms = Some(100)))
    }
}
