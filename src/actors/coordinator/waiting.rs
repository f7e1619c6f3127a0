//! `ip.acquire` over several networks: grants all of it or nothing, and if it may wait, waits until all of it is there.
//!
//! ```text
//! try: hold all, let each decide ──all do──▶ one joint unit ──▶ answered
//!        │ no capacity, and it may wait
//!        ▼
//! listed in the queue of each network, holding nothing ◀──no capacity still──┐
//!        ├──its turn in one of them, and there may be room in all──▶ try ────┤
//!        └──after a while, if one could not be asked─────▶ try ──not yet─────┘
//! ```
//!
//! A waiting acquire holds nothing: if one network has something free while another lacks room, the free part goes to the next
//! waiter. Each network notes whether there may be room for its part (`Rooms`). Once there may be room in all of them, the
//! network that gives the acquire its turn decides nothing else until the acquire has tried (`network::holding`): so no later
//! waiter and no newcomer takes what it could have. The acquire is listed before its holds end, so that nothing that becomes
//! free in between is missed.
//!
//! The wait ends with an answer, when its time is over, when everything of its owner is released, or when nobody waits for it
//! any more: [`Listed`] takes it off every list.
//!
//! A network that cannot be asked (it is being loaded, or contested) counts as one without room, and nobody else waits for it:
//! every attempt ends in all networks, including those that it did not reach, and only time brings the next attempt. A network
//! that was stopped does not come back by itself: the client is told so, as is one that waits for that network alone. So is
//! one whose own part crashed: it is not run again (R-19).
//!
//! **The acquire is off every list before it waits for its answer.** A refusal leaves only after what it saw is durable, and
//! each network is asked about that: a network that still had the acquire on its list would give it the turn, and wait for it.
//!
//! Review notes: does every way out drop `Listed` before anything is awaited? Is a room noted as missing before the network
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

/// How often to check whether the time of the request is over, and whether a network that could not be asked can be.
const LOOKS_EVERY: Duration = Duration::from_millis(250);
/// When to come again if the server stops or the register moves.
const RETRY_AFTER_MS: u64 = 200;

/// What is asked of each network, with the route by which it was first found, in order of their ids.
type Asks = Vec<(Arc<Route>, Acquire)>;

/// The places of the request in the queues of its networks.
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
            // A closed mailbox belongs to an actor that died with its queue; a full one takes this message nevertheless.
            route.addr.do_send(Unlist { arrival: self.place.arrival });
        }
    }
}

impl Listed {
    /// What a network is told about the request when a hold ends.
    fn entry(&self, index: usize, ask: &Acquire) -> Waiting {
        let several = Several { state: Arc::clone(&self.rooms), index };
        let command = Command::Acquire(Box::new(ask.clone()));
        Waiting::Begins { arrival: self.place.arrival, command, several }
    }
}

/// How an attempt ended that granted nothing.
enum Lacks {
    /// The request is refused, once what the refusal saw is durable. Nothing is held, and the request is off the lists of the
    /// networks it held.
    Refused { fault: Box<Fault>, seen: SeenMemories },
    /// Not all networks could be asked at the moment. Those that are held still are.
    NotAsked { fault: Box<Fault>, holds: Holds, there: Vec<bool> },
    /// Only capacity is missing, in some of the networks. They are still held. The fault is that of `decided_by`.
    Room { fault: Box<Fault>, decided_by: Arc<Route>, holds: Holds, there: Vec<bool> },
}

impl Coordinator {
    /// `ip.acquire`: of several refusals the answer is the first in the protocol's order.
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
                    // The network is gone or was renamed by now.
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

    /// Holds all networks, lets each decide, and if all grant, commits one unit. A network that is in `by_name` must still
    /// have its name.
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
            // The scope is published in all networks by now: a job that released it has ended this wait, or finds the grants.
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

    /// Waits until all of it is there, its time is over, or nobody waits for it any more.
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
            return Err(full(&format!("{NETWORK_WAITING_REQUESTS_MAX} requests already wait for one of the networks")));
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
        // Networks that could not be asked are asked again soon.
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
                // A queue was lost with the actor that had it.
                () = tokio::time::sleep(LOOKS_EVERY) => again || listed_at.iter().any(|route| !route.addr.connected()),
            };
            let now = self.shared.clock.boot_ms();
            if !looks && now < until {
                continue;
            }
            again = false;
            if let Some(fault) = listed.rooms.crashed() {
                return Err(fault);
            }
            // Whatever names the networks have by now.
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
                // A command that crashed is not run again.
                Err(Lacks::NotAsked { fault, holds, .. }) if matches!(*fault, Fault::Internal { .. }) => {
                    end(holds, Some(listed.place.arrival));
                    return Err(fault);
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

    /// Ends the wait because everything of its owner was released: the client is told so, with what the last attempt found.
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

/// The fault that there is no room, when it was not checked how much there is.
fn no_room(routes: &[Arc<Route>]) -> Box<Fault> {
    let name = routes.iter().find_map(|route| route.name.clone());
    name.map_or_else(lost_before, |name| Refusal::NotEnoughCapacity(Box::new(NoCapacity::plain(name))).into())
}

/// Ends the holds of an attempt, and lists the request according to what the attempt found. Returns where it is listed.
fn go_on_waiting(listed: &Listed, asks: &Asks, holds: Holds, there: &[bool]) -> Vec<Arc<Route>> {
    let routes = holds.routes().to_vec();
    for (index, is_there) in there.iter().enumerate() {
        listed.rooms.note_room(index, *is_there);
    }
    holds.list(|at| listed.entry(at, &asks[at].1));
    routes
}

/// Ends the holds of a last attempt: a request that waited is then on no list of these networks any more.
fn end(holds: Holds, waited: Option<Arrival>) {
    holds.list(|_| waited.map_or(Waiting::No, |arrival| Waiting::Ended { arrival }));
}

/// How long a request whose time is over still waits for a network that cannot be asked: as long as one for it alone.
fn patience_ms(fault: &Fault) -> u64 {
    let is_loading = matches!(fault, Fault::NotReady { reason: NotReadyReason::Loading, .. });
    if is_loading { DEFERRED_MS_MAX } else { 0 }
}

fn stopping() -> Box<Fault> {
    Box::new(Fault::NotReady { reason: NotReadyReason::Stopping, retry_after_ms: RETRY_AFTER_MS })
}
