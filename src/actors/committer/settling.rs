//! Settles units: they are durable and their answers leave, or they are given up and their requests refused.
//!
//! Each unit is settled here exactly once, and the networks count it.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::unit::{Unit, UnitPart};
use super::{Committer, Group, UnderWay};
use crate::actors::network::Tick;
use crate::actors::{Applied, Fatal, Fault, Reply, Told};
use crate::core::types::NetworkId;
use crate::store::{Committed, StoreHealth};

impl Committer {
    pub(super) fn leave(&mut self, unit: &Unit, change: impl Fn(&mut UnderWay)) {
        for part in &unit.parts {
            if let Some(standing) = self.networks.get_mut(&part.lane.id) {
                change(standing);
                if standing.queued == 0 && standing.in_flight == 0 {
                    self.networks.remove(&part.lane.id);
                }
            }
        }
    }

    /// A group is durable: who proves, answers or watches learns how far.
    pub(super) fn durable(&mut self, group: &Group, committed: &[Committed]) {
        for committed in committed {
            if let Some(line) = self.lines.get_mut(&committed.shard) {
                line.durable = (committed.seq, committed.digest);
            }
        }
        if !group.batches.is_empty() {
            let bytes = group.units.iter().map(Unit::bytes).sum();
            self.shared.feed.publish(&group.batches, committed, bytes, self.shared.clock.boot_ms());
        }
    }

    /// Durable: the answers leave, and the networks learn it.
    pub(super) fn settle(&self, mut unit: Unit) {
        self.settle_all(std::slice::from_mut(&mut unit));
    }

    /// Several are durable: their answers leave, and their networks learn it.
    pub(super) fn settle_all(&self, units: &mut [Unit]) {
        for unit in &mut *units {
            unit.place(|shard| Some(self.lines.get(&shard)?.tip(shard)));
            // Before the answers: whoever has one finds it counted.
            unit.parts.iter().for_each(UnitPart::became_durable);
        }
        release(units);
    }

    /// The memories that a unit was decided on are worthless from now on. Their actors are told: where nobody asks anything, one
    /// would look at that with the next lease that ends, and whoever waits for what is free after all hears of it from nobody else.
    pub(super) fn disown(&self, unit: &Unit) {
        for part in unit.parts.iter().filter(|part| part.disown()) {
            // Once nothing is written any more, nothing is loaded either.
            if !self.fatal
                && let Some(route) = self.shared.routes.by_id(part.lane.id)
            {
                // A full mailbox is one that is busy: whatever comes next there looks, too.
                let _ = route.addr.try_send(Tick);
            }
        }
    }

    /// These are given up: what they change, the memories of their networks have and the store has not. One of which they only
    /// answer has lost nothing by it.
    pub(super) fn disown_changed(&self, units: &[&Unit]) {
        let changing = units.iter().filter(|unit| unit.changes() > 0);
        let changed: HashSet<NetworkId> =
            changing.flat_map(|unit| unit.parts.iter().map(|part| part.lane.id)).collect();
        let saw_it = |unit: &&&Unit| unit.parts.iter().any(|part| changed.contains(&part.lane.id));
        units.iter().filter(saw_it).for_each(|unit| self.disown(unit));
    }

    pub(super) fn give_up(&mut self, unit: Unit, applied: Applied, problem: &str) {
        self.disown(&unit);
        self.refuse(unit, applied, problem);
    }

    /// Its memory is disowned already: the answers say so, whatever was decided.
    pub(super) fn refuse(&mut self, mut unit: Unit, applied: Applied, problem: &str) {
        for staged in &mut unit.answers {
            let (applied, problem) = match (staged.wrote, applied) {
                (true, _) | (false, Applied::No) => (applied, problem.to_owned()),
                (false, Applied::Unknown) => {
                    (Applied::No, format!("what it saw may be undone: another change is in doubt ({problem})"))
                }
            };
            staged.reply.answer = Err(Box::new(Fault::Unavailable { applied, problem }));
        }
        release(std::slice::from_mut(&mut unit));
    }

    /// Nothing is acknowledged from here on, and whoever keeps the actors is told.
    pub(super) fn stop(&mut self, problem: &str) {
        if !self.fatal {
            tracing::error!(problem, "nothing more is acknowledged under this token");
            // Said first: who waits for the end asks then how it ended.
            self.shared.fatal(Fatal(problem.to_owned()));
            self.end(problem);
        }
    }

    /// A store that fails while nothing is under way fails no commit, and whoever asks for one is refused before it gets here: the
    /// server would be about to stop for ever. Over Redis whoever renews the lease finds out.
    pub(super) fn notice_failure(&mut self) {
        let is_watched = self.shared.info.ownership_is_standing && self.in_flight.is_empty();
        let has_failed = is_watched && self.shared.store.health() == StoreHealth::Failed;
        // What was under way a moment ago may be being answered.
        if std::mem::replace(&mut self.looked_failed, has_failed) && has_failed {
            let why = self.shared.unwilling();
            self.stop(why.as_deref().unwrap_or("the store failed"));
        }
    }

    /// Nothing is acknowledged from here on.
    pub(super) fn end(&mut self, problem: &str) {
        if std::mem::replace(&mut self.fatal, true) {
            return;
        }
        let under_way = self.in_flight.drain(..).flat_map(|group| group.units).map(|unit| (unit, Applied::Unknown));
        let behind = self.queue.take_all().into_iter().map(|unit| (unit, Applied::No));
        let units: Vec<(Unit, Applied)> = under_way.chain(behind).collect();
        for (unit, applied) in units {
            self.give_up(unit, applied, problem);
        }
        self.networks.clear();
        // Nothing is written any more, so nobody waits for these either.
        self.marks.clear();
        self.tell_drained();
    }
}

/// Lets the answers go, in order. Answers of one outlet that come one after the other leave in one message: a client with a
/// request for each of many networks is woken once.
fn release(units: &mut [Unit]) {
    for part in units.iter().flat_map(|unit| &unit.parts) {
        part.lane.definite.fetch_add(1, Ordering::AcqRel);
    }
    for run in units.chunk_by_mut(|one, next| one.is_answered_with(next)) {
        let replies = run.iter_mut().flat_map(|unit| std::mem::take(&mut unit.answers)).map(|staged| staged.reply);
        let replies: Vec<Reply> = replies.collect();
        if let Some(outlet) = run.first().and_then(|unit| unit.outlet.as_ref()) {
            // A closed outlet is a client that hung up: the change stands, nobody is left to tell.
            let _ = outlet.send(Told::Replies(replies));
        }
        for part in run.iter().flat_map(|unit| &unit.parts) {
            part.lane.settled.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Wake};

    use super::*;
    use crate::actors::committer::Staged;
    use crate::actors::macs::Leaving;
    use crate::actors::routes::Lane;
    use crate::core::outcome::Outcome;
    use crate::store::ShardId;

    /// Looks, as soon as an answer is on its way, whether what left with it is free.
    struct Client {
        let_go: Leaving,
        found_free: AtomicBool,
    }

    impl Wake for Client {
        fn wake(self: Arc<Self>) {
            self.found_free.store(self.let_go.is_durable(), Ordering::Release);
        }
    }

    /// What is unique in a realm is claimed by another network the moment the client hears that the first one let it go.
    #[test]
    fn who_is_told_that_something_was_let_go_finds_it_free() {
        let lane = Arc::new(Lane::new(NetworkId(1), ShardId(0)));
        let let_go = Leaving { lane: Arc::clone(&lane), incarnation: 0, unit: 1 };
        let client = Arc::new(Client { let_go, found_free: AtomicBool::new(false) });
        let (outlet, mut answers) = crate::actors::outlet();
        let waker = Arc::clone(&client).into();
        assert!(answers.poll_recv(&mut Context::from_waker(&waker)).is_pending());
        let answer = Staged { reply: Reply { ticket: 0, answer: Ok(Outcome::Done) }, wrote: true };
        let part = UnitPart::new(lane, 0, Vec::new());
        release(&mut [Unit::new(vec![part], Some(outlet), vec![answer])]);
        assert!(client.found_free.load(Ordering::Acquire));
    }

    /// Of a network that decides together with one that is loaded again, what it decided before may be under way still.
    #[test]
    fn what_is_durable_of_a_memory_that_was_given_up_meanwhile_counts_as_durable() {
        let lane = Arc::new(Lane::new(NetworkId(1), ShardId(0)));
        let part = || UnitPart::new(Arc::clone(&lane), 0, Vec::new());
        let durable = || lane.durable.load(Ordering::Acquire);
        release(&mut [Unit::new(vec![part()], None, Vec::new())]);
        let (under_way, joint) = (part(), part());
        assert!(joint.disown() && durable() == 1);
        under_way.became_durable();
        assert_eq!(durable(), 2);
    }
}
