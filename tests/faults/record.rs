//! What happened, as the clients saw it: every request when it was sent, every answer when it came.
//!
//! One record for all clients of a run, in nanoseconds of one monotonic clock. A request without an answer, or whose
//! answer says that nobody knows, *may* have taken effect at any time after it was sent.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A slot of an owner in a network: who a grant is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    pub network: String,
    pub owner: String,
    pub slot: String,
}

/// First and last address, as numbers; the family is that of the network.
pub type Span = (u128, u128);

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// `ip.allocate`, `ip.claim` or `ip.acquire`: one address or block for this holder.
    Grant,
    /// `ip.release` or `owner.release` of what the holder has.
    Release,
    /// `ip.transfer` of what the holder has to another one in its network.
    Transfer { to: Holder },
    /// `ip.get` of the address that the holder was told last; [`Told::Nothing`]: nobody or somebody else has it.
    Read,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// The holder has this, granted with this generation; `created` by this very request or before. A lease lasts until
    /// `until_ns` for certain; without it the holder keeps it until it lets go. After a transfer it is the heir that has it.
    Held { span: Span, generation: u64, created: bool, until_ns: Option<u64> },
    /// The holder has nothing any more.
    Released,
    /// The holder had nothing.
    Nothing,
    /// Certainly nothing was changed; the error's kind.
    Refused(String),
    /// No answer, or one that says that nobody knows.
    Unknown,
}

/// One request and what became of it, as far as it is about one holder: an `ip.acquire` of two networks is two of them.
#[derive(Debug, Clone)]
pub struct Call {
    pub holder: Holder,
    pub asked: Asked,
    pub sent_ns: u64,
    /// When the answer came; for [`Told::Unknown`] when the client gave up, or later: from when on nobody carries it out.
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
