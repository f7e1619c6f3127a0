//! What happened, as the clients saw it: every request with the time it was sent, every answer with the time it came.
//!
//! All clients of a run share one record, in nanoseconds of one monotonic clock. A request without an answer, or with an
//! answer that its outcome is unknown, *may* have taken effect at any time after it was sent.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A slot of an owner in a network: what a grant is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    pub network: String,
    pub owner: String,
    pub slot: String,
}

/// First and last address, as numbers; the network determines the family.
pub type Span = (u128, u128);

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// `ip.allocate`, `ip.claim` or `ip.acquire`: one address or block for this holder.
    Grant,
    /// `ip.release` or `owner.release` of what the holder has.
    Release,
    /// `ip.transfer` of what the holder has to another holder in its network.
    Transfer { to: Holder },
    /// `ip.get` of the address that the holder was told last. [`Told::Nothing`] then means that nobody, or somebody else,
    /// has it.
    Read,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The holder has this span, granted with this generation. `created`: this very request made it. A lease certainly lasts
    /// until `until_ns`; without that, the holder keeps the span until it lets go. After a transfer the heir is the one that
    /// has it.
    Held { span: Span, generation: u64, created: bool, until_ns: Option<u64> },
    /// The holder no longer has anything.
    Released,
    /// The holder had nothing.
    Nothing,
    /// Certainly nothing was changed; the kind of the error.
    Refused(String),
    /// There was no answer, or the answer said that the outcome is unknown.
    Unknown,
}

/// One request and its outcome, as far as they concern one holder: an `ip.acquire` in two networks makes two of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub holder: Holder,
    pub asked: Asked,
    pub sent_ns: u64,
    /// When the answer came. For [`Told::Unknown`]: from when on nobody carries the request out, which is when the client
    /// gave up, or later.
    pub told_ns: u64,
    pub told: Told,
}

/// Everything that happened in a run.
#[derive(Debug)]
pub struct Record {
    began: Instant,
    calls: Mutex<Vec<Call>>,
}

impl Record {
    pub fn new() -> Self {
        Self { began: Instant::now(), calls: Mutex::new(Vec::new()) }
    }

    /// Nanoseconds since the run began.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub fn note(&self, call: Call) {
        self.calls().push(call);
    }

    pub fn all(&self) -> Vec<Call> {
        self.calls().clone()
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
