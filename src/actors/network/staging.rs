//! What one turn of a network's actor brings together, and the refusals of the actor itself.

use compact_str::CompactString;

use crate::actors::committer::Staged;
use crate::actors::published::Tally;
use crate::actors::reserve::{self, Claimed};
use crate::actors::{Answer, Applied, Fault, NotReadyReason, Outlet, Reply, answer_all};
use crate::core::command;
use crate::core::outcome::Outcome;
use crate::core::state::Step;
use crate::core::types::{NetworkId, Place};
use crate::store::{Act, Store, StoreHealth};

/// It is read from the store, and that takes; or it cannot be, for what stands in the way of the store.
pub(super) fn loading(hindrance: Option<&str>) -> Fault {
    match hindrance {
        None => Fault::NotReady { reason: NotReadyReason::Loading, retry_after_ms: 500 },
        Some(why) => {
            let problem =
                format!("{why}: a change of the network is in doubt until that is over, and what it has is not known");
            Fault::Unavailable { applied: Applied::No, problem }
        }
    }
}

/// Nobody knows yet what was granted since the copy was made.
pub(super) fn restored() -> Fault {
    Fault::NotReady { reason: NotReadyReason::Restored, retry_after_ms: 10_000 }
}

/// The store takes nothing, or nothing new.
pub(super) fn refused_by_store(health: StoreHealth, store: &dyn Store) -> Fault {
    let problem = match health {
        StoreHealth::Hindered | StoreHealth::Full => reserve::nothing_new(store),
        StoreHealth::Failed | StoreHealth::Ready => "the store failed and the server is stopping".to_owned(),
    };
    Fault::Unavailable { applied: Applied::No, problem }
}

/// What one turn of the actor brings together: changes and answers that leave as one.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) outlet: Option<Outlet>,
    pub(super) acts: Vec<Act>,
    pub(super) changes: usize,
    /// Bytes of the acts, at most.
    pub(super) bytes: usize,
    /// What they take of a full store's reserve.
    pub(super) claimed: Claimed,
    /// What the acts come to.
    pub(super) tally: Tally,
    pub(super) answers: Vec<Staged>,
    /// Refusals that are to name who holds a MAC of another network.
    pub(super) unnamed: Vec<Staged>,
    /// The request that is being decided.
    current: Option<u32>,
}

impl Staging {
    /// For the answers of one outlet, with room for so many requests.
    pub(super) fn new(outlet: Option<Outlet>, requests: usize) -> Self {
        Self {
            outlet,
            acts: Vec::with_capacity(requests),
            changes: 0,
            bytes: 0,
            claimed: Claimed::default(),
            tally: Tally::default(),
            answers: Vec::with_capacity(requests),
            unnamed: Vec::new(),
            current: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.acts.is_empty() && self.answers.is_empty()
    }

    pub(super) fn change(
        &mut self,
        network: NetworkId,
        moment: command::Context,
        by: CompactString,
        reason: Option<CompactString>,
        steps: Vec<Step>,
    ) {
        self.changes += steps.len();
        self.tally.note(&steps);
        let act = Act { network, wall: moment.wall, by, reason, transaction: None, steps };
        self.bytes += act.bytes_max();
        self.acts.push(act);
    }

    /// This request is being decided.
    pub(super) fn begin(&mut self, ticket: u32) {
        self.current = Some(ticket);
    }

    pub(super) fn answer(&mut self, ticket: u32, mut answer: Answer, wrote: bool) {
        self.current = None;
        if let Some(place) = answer.as_mut().ok().and_then(Outcome::place) {
            *place = Some(Box::new(Place { steps: Some(self.changes as u32), ..Place::default() }));
        }
        let is_unnamed = answer.as_ref().err().is_some_and(|fault| fault.unnamed_user().is_some());
        let to = if is_unnamed { &mut self.unnamed } else { &mut self.answers };
        to.push(Staged { reply: Reply { ticket, answer }, wrote });
    }
}

impl Drop for Staging {
    /// The actor dies of a panic outside its wall: what was decided in this turn is lost with its memory, and said so.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let answered = self.answers.drain(..).chain(self.unnamed.drain(..));
        let tickets = answered.map(|staged| staged.reply.ticket).chain(self.current.take());
        let problem = "the network's actor crashed; it is started again from the store".to_owned();
        let fault = Fault::Unavailable { applied: Applied::No, problem };
        if let Some(outlet) = &self.outlet {
            answer_all(outlet, tickets, &fault);
        }
    }
}
