//! `ip.acquire` over several networks: all of it, or nothing; and where it may wait, until all of it is there.
//!
//! ```text
//! try: hold all, let each decide ──all do──▶ one joint unit ──▶ answered
//!        │ no capacity, and it may wait
//!        ▼
//! listed in the queue of each network, holding nothing ◀──no capacity still──┐
//!        ├──its turn in one of them, and there may be room in all──▶ try ────┤
//!        └──after a while, where one could not be asked──▶ try ──not yet─────┘
//! ```
//!
//! A waiting acquire holds nothing: what is freed in one network while another lacks goes to whoever is behind it. Each
//! network notes whether there may be room for its part (`Rooms`). Where there may be room in all, the one whose turn it
//! gives decides nothing else until it has tried (`network::holding`): so nobody behind it, and no newcomer, takes what
//! it could have. It is listed before its holds end, so that nothing that comes free in between is missed.
//!
//! Ended by an answer, by its time, by whoever lets go of all that its owner has, or because nobody waits for it any more:
//! [`Listed`] takes it off every list.
//!
//! A network that cannot be asked (it is loaded, contested) counts as one without room, and nobody else waits for it:
//! every attempt ends in all networks, also in those that it did not come to, and only time brings the next one. One that
//! was stopped does not come back by itself: whoever waits for it is told so, as one that waits for it alone.
//!
//! **It is off every list before it waits for its answer.** A refusal leaves behind what it saw, of which each network is asked: one
//! that still had it on its list would give it the turn, and wait for it.
//!
//! Review notes: does every way out drop `Listed`, before anything is awaited? Is a room noted as missing before the network
//! that lacks it goes on?

use std::sync::Arc;
use std::time::Duration;

use super::joint::{
    ByName, ByNetwork, Holds, NotHeld, SeenMemories, acquired, first_item, lost_before, of_first_item, rank, seen_of,
};
use super::{AcquirePart, Coordinator, Outcomes, Tell};
use crate::actors::committer::UnitPart;
use crate::actors::network::{DEFERRED_MS_MAX, Rooms, Several, Unlist, Waiting};
use crate::actors::routes::Route;
use crate::actors::service::Shared;
use crate::actors::waits::{Arrival, Wait, WaitingPlace, WaitsFor, full};
use crate::actors::{Fault, NotReadyReason};
use crate::core::command::{Acquire, Command};
use crate::core::outcome::Outcome;
use crate::core::refusal::{NoCapacity, Refusal};
use crate::core::types::{Name, NetworkId};
use crate::limits::NETWORK_WAITING_REQUESTS_MAX;

/// How often it is looked whether its time is over, and whether a network that could not be asked can be.
const LOOKS_EVERY: Duration = Duration::from_millis(250);
/// When to come again where the server stops or the register moves.
const RETRY_AFTER_MS: u64 = 200;

/// What is asked of each network, as it was found first, in order of their ids.
type Asks = Vec<(Arc<Route>, Acquire)>;

/// Its places in the queues of its networks.
struct Listed {
    shared: Arc<Shared>,
    networks: Vec<NetworkId>,
    rooms: Arc<Rooms>,
    place: WaitingPlace,
}

impl Drop for Listed {
    #[expect(clippy::disallowed_methods, reason = "lost only with an actor that is gone, and its list with it")]
    fn drop(&mut self) {
        for route in self.networks.iter().filter_map(|id| self.shared.routes.by_id(*id)) {
            // A closed mailbox is an actor that died with its list; a full one takes it all the same.
            route.addr.do_send(Unlist { arrival: self.place.arrival });
        }
    }
}

impl Listed {
    /// What a network is told of it when a hold ends.
    fn entry(&self, index: usize, ask: &Acquire) -> Waiting {
        let several = Several { state: Arc::clone(&self.rooms), index };
        let command = Command::Acquire(Box::new(ask.clone()));
        Waiting::Begins { arrival: self.place.arrival, command, several }
    }
}

/// How an attempt ended that granted nothing.
enum Lacks {
    /// It is answered so, when what it saw is durable. Nothing is held, and where it was, it is on no list.
    Refused { fault: Box<Fault>, seen: SeenMemories },
    /// Not all networks could be asked as things are. Those that are held are so still.
    NotAsked { fault: Box<Fault>, holds: Holds, there: Vec<bool> },
    /// Capacity is all that is missing, in some of the networks. They are held still. The fault is what `decided_by` said.
    Room { fault: Box<Fault>, decided_by: Arc<Route>, holds: Holds, there: Vec<bool> },
}

impl Coordinator {
    /// `ip.acquire`: of several refusals the first in the protocol's order.
    pub(super) async fn acquire(&self, parts: Vec<AcquirePart>, slot_prefix: &str, tell: &mut Tell) -> Outcomes {
        let exact = parts.iter().any(|part| part.ask.exact);
        let ByNetwork { mut asks, meant, by_name, missing } = self.by_network(parts, slot_prefix)?;
        if let Some(missing) = missing {
            return Err(self.before_missing(missing, asks).await);
        }
        if asks.len() == 1
            && let Some((route, ask)) = asks.pop()
        {
            let (name, first) = (route.name.clone(), first_item(&ask));
            let mut item = self.item(Command::Acquire(Box::new(ask)), self.dry_run);
            item.wait.clone_from(&self.wait);
            let named = by_name.get(&route.id);
            let outcome = match self.ask_and_wait((&route, named.is_some()), item, tell).await {
                Ok(outcome) => outcome,
                Err(fault) => match *fault {
                    // It is gone, or called otherwise by now.
                    Fault::Refused(refusal @ Refusal::NotFound { .. }) => {
                        return Err(self.not_there((&route, first), named, refusal).await);
                    }
                    fault => return Err(Box::new(fault)),
                },
            };
            return Ok(acquired(vec![(name, outcome)], exact));
        }
        asks.sort_by_key(|(route, _)| route.id);
        let routes: Vec<Arc<Route>> = asks.iter().map(|(route, _)| Arc::clone(route)).collect();
        self.together(&routes, "ips")?;
        let outcomes = match self.attempt(&asks, &by_name, None).await {
            Ok(outcomes) => outcomes,
            Err(Lacks::Refused { fault, seen }) => return Err(self.seen_durably(seen, fault).await),
            Err(Lacks::NotAsked { fault, .. }) => return Err(fault),
            Err(Lacks::Room { fault, decided_by, holds, there }) => match self.wait.clone().filter(|_| !self.dry_run) {
                Some(wait) => self.wait_for_all(&asks, (wait, meant), holds, there, tell).await?,
                None => {
                    self.note_answer(&decided_by, &fault);
                    let seen = seen_of(holds.routes());
                    drop(holds);
                    return Err(self.seen_durably(seen, fault).await);
                }
            },
        };
        Ok(acquired(outcomes, exact))
    }

    fn routes_of(&self, asks: &Asks) -> Result<Vec<Arc<Route>>, Box<Fault>> {
        let find = |(found, ask): &(Arc<Route>, Acquire)| {
            let there = self.shared.routes.by_id(found.id);
            there.ok_or_else(|| of_first_item(ask, Refusal::network_gone(found.name.as_ref(), found.id)).into())
        };
        asks.iter().map(find).collect()
    }

    /// Holds all networks, lets each decide, and if all do, makes one unit of it. One that is in `by_name` must be called so
    /// still.
    async fn attempt(
        &self,
        asks: &Asks,
        by_name: &ByName,
        listed: Option<&Listed>,
    ) -> Result<Vec<(Option<Name>, Outcome)>, Lacks> {
        let unseen = |fault| Lacks::Refused { fault, seen: Vec::new() };
        let routes = self.routes_of(asks).map_err(unseen)?;
        let seen = seen_of(&routes);
        let turn = listed.map(|listed| listed.place.arrival);
        let mut there = vec![true; asks.len()];
        let is_by_name = |route: &Route| by_name.contains_key(&route.id);
        let names: Vec<Option<Name>> =
            asks.iter().map(|(route, _)| route.name.clone().filter(|_| is_by_name(route))).collect();
        let holds = match Holds::in_turn(&self.shared, &routes, &names, turn).await {
            Ok(holds) => holds,
            Err(NotHeld { fault, at, holds }) => match *fault {
                Fault::Refused(refusal) => {
                    let (route, first) = (Arc::clone(&routes[at]), first_item(&asks[at].1));
                    end(holds.and_the_others(routes), turn);
                    let fault = self.not_there((&route, first), by_name.get(&route.id), refusal).await;
                    return Err(Lacks::Refused { fault, seen });
                }
                fault => {
                    there[at] = false;
                    return Err(Lacks::NotAsked { fault: Box::new(fault), holds: holds.and_the_others(routes), there });
                }
            },
        };
        self.begin().map_err(unseen)?;
        let transaction = self.transaction();
        let (mut decided, mut outcomes): (Vec<UnitPart>, _) = (Vec::new(), Vec::new());
        let mut first: Option<(Box<Fault>, &Arc<Route>)> = None;
        for (at, ((_, ask), route)) in asks.iter().zip(&routes).enumerate() {
            match holds.decide(self, route, Command::Acquire(Box::new(ask.clone())), transaction).await {
                Ok((part, outcome)) => {
                    decided.push(part);
                    outcomes.push((route.name.clone(), outcome));
                }
                Err(fault) => {
                    there[at] = false;
                    if first.as_ref().is_none_or(|(first, _)| rank(&fault) < rank(first)) {
                        first = Some((fault, route));
                    }
                }
            }
        }
        let (bytes, bytes_max) =
            (decided.iter().map(UnitPart::parted_bytes).sum(), self.shared.info.parted_bytes_max());
        match first {
            None if bytes > bytes_max => {
                end(holds, turn);
                Err(Lacks::Refused { fault: Refusal::too_much_at_once(bytes, bytes_max).into(), seen })
            }
            None if self.dry_run => {
                drop(holds);
                self.durable(seen).await.map(|()| outcomes).map_err(unseen)
            }
            // Their scope is known in all of them by now: whoever let go of it has ended this, or finds what is granted.
            None if listed.is_some_and(|listed| listed.place.is_ended()) => {
                let fault = no_room(&routes);
                end(holds, turn);
                Err(Lacks::Refused { fault, seen })
            }
            None => match super::joint::commit(&self.shared, holds, decided, turn).await {
                Ok(()) => Ok(outcomes),
                Err(fault) => Err(unseen(fault)),
            },
            Some((fault, decided_by)) if fault.is_no_capacity() => {
                Err(Lacks::Room { fault, decided_by: Arc::clone(decided_by), holds, there })
            }
            Some((fault, decided_by)) if matches!(*fault, Fault::Refused(_)) => {
                self.note_answer(decided_by, &fault);
                end(holds, turn);
                Err(Lacks::Refused { fault, seen })
            }
            Some((fault, _)) => Err(Lacks::NotAsked { fault, holds, there }),
        }
    }

    /// Until all of it is there, its time is over, or nobody waits for it any more.
    async fn wait_for_all(
        &self,
        asks: &Asks,
        (wait, meant): (Wait, Vec<NetworkId>),
        holds: Holds,
        there: Vec<bool>,
        tell: &mut Tell,
    ) -> Result<Vec<(Option<Name>, Outcome)>, Box<Fault>> {
        if wait.caller.has_left() {
            return Err(stopping());
        }
        if holds.routes().iter().any(|route| route.published.waits() >= NETWORK_WAITING_REQUESTS_MAX) {
            return Err(full(&format!("{NETWORK_WAITING_REQUESTS_MAX} requests wait for one of the networks already")));
        }
        let begun = self.shared.clock.boot_ms();
        let networks: Vec<NetworkId> = asks.iter().map(|(route, _)| route.id).collect();
        let Some((_, Acquire { scope, owner, .. })) = asks.first() else { return Err(stopping()) };
        let of = WaitsFor { scope: scope.clone(), owner: owner.clone(), networks: networks.clone() };
        let place = self.shared.waits.place(&wait, begun, of)?;
        let ended = place.end();
        let listed =
            Listed { shared: Arc::clone(&self.shared), networks, rooms: Arc::new(Rooms::new(asks.len())), place };
        let until = begun.saturating_add(wait.ms);
        let mut listed_at = go_on_waiting(&listed, asks, holds, &there);
        tell.waits(meant);
        // What could not be asked is asked again soon.
        let mut again = false;
        loop {
            let looks = tokio::select! {
                biased;
                () = wait.caller.left() => return Err(stopping()),
                () = self.shared.is_given_away() => {
                    let reason = NotReadyReason::Moved;
                    return Err(Box::new(Fault::NotReady { reason, retry_after_ms: RETRY_AFTER_MS }));
                }
                () = listed.rooms.woken() => true,
                () = ended.cancelled() => true,
                // A list went with the actor that had it.
                () = tokio::time::sleep(LOOKS_EVERY) => again || listed_at.iter().any(|route| !route.addr.connected()),
            };
            let now = self.shared.clock.boot_ms();
            if !looks && now < until {
                continue;
            }
            again = false;
            // Whatever its networks are called by now.
            match self.attempt(asks, &ByName::new(), Some(&listed)).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(lacks) if ended.is_cancelled() => return Err(self.end_with_owner(listed, lacks).await),
                Err(Lacks::Refused { fault, seen }) => {
                    drop(listed);
                    return Err(self.seen_durably(seen, fault).await);
                }
                Err(Lacks::NotAsked { .. }) if self.shared.is_over() => {
                    let reason = NotReadyReason::Moved;
                    return Err(Box::new(Fault::NotReady { reason, retry_after_ms: RETRY_AFTER_MS }));
                }
                Err(Lacks::NotAsked { fault, .. })
                    if matches!(*fault, Fault::Stopped { .. }) || now >= until.saturating_add(patience_ms(&fault)) =>
                {
                    return Err(fault);
                }
                Err(Lacks::NotAsked { holds, there, .. }) => {
                    listed_at = go_on_waiting(&listed, asks, holds, &there);
                    again = true;
                }
                Err(Lacks::Room { fault, decided_by, holds, .. }) if now >= until => {
                    self.note_answer(&decided_by, &fault);
                    let seen = seen_of(holds.routes());
                    end(holds, Some(listed.place.arrival));
                    let fault = fault.after_waiting(listed.place.waited_ms(now));
                    drop(listed);
                    return Err(self.seen_durably(seen, fault).await);
                }
                Err(Lacks::Room { holds, there, .. }) => listed_at = go_on_waiting(&listed, asks, holds, &there),
            }
        }
    }

    /// All that its owner has was let go of: it is told so, with what the last attempt found.
    async fn end_with_owner(&self, listed: Listed, lacks: Lacks) -> Box<Fault> {
        let waited_ms = listed.place.waited_ms(self.shared.clock.boot_ms());
        let (fault, seen) = match lacks {
            Lacks::Refused { fault, seen } => (fault, seen),
            Lacks::Room { fault, decided_by, holds, .. } => {
                self.note_answer(&decided_by, &fault);
                let seen = seen_of(holds.routes());
                end(holds, Some(listed.place.arrival));
                (fault, seen)
            }
            Lacks::NotAsked { holds, .. } => {
                let (fault, seen) = (no_room(holds.routes()), seen_of(holds.routes()));
                end(holds, Some(listed.place.arrival));
                (fault, seen)
            }
        };
        drop(listed);
        self.seen_durably(seen, fault.after_end_of_wait(waited_ms)).await
    }
}

/// That there is no room, where it is not looked into how much there is.
fn no_room(routes: &[Arc<Route>]) -> Box<Fault> {
    let name = routes.iter().find_map(|route| route.name.clone());
    name.map_or_else(lost_before, |name| Refusal::NotEnoughCapacity(Box::new(NoCapacity::plain(name))).into())
}

/// Ends the holds of an attempt, and lists it behind what it found. Answers where it is listed.
fn go_on_waiting(listed: &Listed, asks: &Asks, holds: Holds, there: &[bool]) -> Vec<Arc<Route>> {
    let routes = holds.routes().to_vec();
    for (index, is_there) in there.iter().enumerate() {
        listed.rooms.note_room(index, *is_there);
    }
    holds.list(|at| listed.entry(at, &asks[at].1));
    routes
}

/// Ends the holds of an attempt behind which nothing more is tried: a request that waited is on no list of theirs any more.
fn end(holds: Holds, waited: Option<Arrival>) {
    holds.list(|_| waited.map_or(Waiting::No, |arrival| Waiting::Ended { arrival }));
}

/// How long a request whose time is over is patient with a network that cannot be asked: as one for it alone.
fn patience_ms(fault: &Fault) -> u64 {
    let is_loading = matches!(fault, Fault::NotReady { reason: NotReadyReason::Loading, .. });
    if is_loading { DEFERRED_MS_MAX } else { 0 }
}

fn stopping() -> Box<Fault> {
    Box::new(Fault::NotReady { reason: NotReadyReason::Stopping, retry_after_ms: RETRY_AFTER_MS })
}
