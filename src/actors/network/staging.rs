//! Collects what one turn of a network's actor produces; and the refusals of the actor itself.

use compact_str::CompactString;

use crate::actors::committer::Staged;
use crate::actors::mac_holder;
use crate::actors::published::Tally;
use crate::actors::reserve::Claimed;
use crate::actors::{Answer, Applied, Fault, NotReadyReason, Outlet, Reply, answer_all};
use crate::core::command;
use crate::core::outcome::Outcome;
use crate::core::state::Step;
use crate::core::types::{NetworkId, Place};
use crate::store::Act;

/// The refusal while the network is read from the store, which takes time; or while something keeps it from being read
/// (`hindrance`).
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

/// The refusal of a restored register: nobody knows yet what was granted since the copy was made.
pub(super) fn restored() -> Fault {
    Fault::NotReady { reason: NotReadyReason::Restored, retry_after_ms: 10_000 }
}

/// Collects what one turn of the actor produces: changes and answers that leave together.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) outlet: Option<Outlet>,
    pub(super) acts: Vec<Act>,
    pub(super) changes: usize,
    /// Upper bound of the bytes of the acts.
    pub(super) bytes: usize,
    /// What the acts claim of a full store's reserve.
    pub(super) claimed: Claimed,
    /// What the acts amount to.
    pub(super) tally: Tally,
    pub(super) answers: Vec<Staged>,
    /// Answers that are to name the holder of a MAC in another network. One that changed something is among the other answers:
    /// the committer releases it with its change.
    pub(super) unnamed: Vec<Staged>,
    /// Is there such a one among the other answers?
    pub(super) has_unnamed_that_wrote: bool,
    /// The request that is being decided.
    current: Option<u32>,
}

impl Staging {
    /// For the answers of one outlet, with room for this many requests.
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
            has_unnamed_that_wrote: false,
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

    /// Notes that this request is being decided.
    pub(super) fn begin(&mut self, ticket: u32) {
        self.current = Some(ticket);
    }

    pub(super) fn answer(&mut self, ticket: u32, mut answer: Answer, wrote: bool) {
        self.current = None;
        if let Some(place) = answer.as_mut().ok().and_then(Outcome::place) {
            *place = Some(Box::new(Place { steps: Some(self.changes as u32), ..Place::default() }));
        }
        let is_unnamed = mac_holder::is_unnamed(&answer);
        self.has_unnamed_that_wrote |= is_unnamed && wrote;
        let to = if is_unnamed && !wrote { &mut self.unnamed } else { &mut self.answers };
        to.push(Staged { reply: Reply { ticket, answer }, wrote });
    }
}

impl Drop for Staging {
    /// Handles the death of the actor by a panic outside its wall: what was decided in this turn is lost with its memory, and
    /// clients are told.
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
