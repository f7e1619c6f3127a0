//! Changes several networks at once: hold them, let each decide, commit one joint unit, let them go on. Used by `waiting` for
//! `ip.acquire`, by `moves` for `subnet.move`, and by `deploy` for deployments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::oneshot;

use super::configure::is_gone;
use super::{AcquirePart, Coordinator, Done, lost};
use crate::actors::committer::{Enqueue, Staged, Unit, UnitPart};
use crate::actors::directory::Gone;
use crate::actors::network::{DecideHeld, Finish, Hold, HoldId, HoldRefused, Waiting};
use crate::actors::routes::Route;
use crate::actors::service::Shared;
use crate::actors::waits::Arrival;
use crate::actors::{Applied, Fault, Reply, only_answer, sending};
use crate::core::command::{Acquire, Command, MacWish};
use crate::core::forms;
use crate::core::outcome::Outcome;
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::Key;
use crate::core::types::{Name, NetworkId, Slot};
use crate::store::TransactionId;

/// Networks that decide nothing else until the holds are finished or dropped.
pub(super) struct Holds {
    hold: HoldId,
    held: Vec<Arc<Route>>,
}

/// One of several networks could not be held.
pub(super) struct NotHeld {
    pub(super) fault: Box<Fault>,
    /// Its index.
    pub(super) at: usize,
    /// The networks before it are still held.
    pub(super) holds: Holds,
}

impl Holds {
    /// Holds networks, which must be in order of their ids.
    pub(super) async fn of(shared: &Shared, routes: &[Arc<Route>]) -> Result<Self, Box<Fault>> {
        Self::in_turn(shared, routes, &[], None).await.map_err(|not_held| not_held.fault)
    }

    /// Holds networks, which must be in order of their ids, for a request whose turn it is: it has waited since `turn`. Begins
    /// again if another waiter has its turn, or a network is being loaded, for as long as a request waits for one that is. A
    /// network that has an entry in `names` is refused if it was renamed by now.
    pub(super) async fn in_turn(
        shared: &Shared,
        routes: &[Arc<Route>],
        names: &[Option<Name>],
        turn: Option<Arrival>,
    ) -> Result<Self, NotHeld> {
        let begun = Instant::now();
        loop {
            let (refused, at, holds) = match Self::try_all(shared, routes, names, turn).await {
                Ok(holds) => return Ok(holds),
                Err(refused) => refused,
            };
            match refused {
                HoldRefused::Fault(fault) => return Err(NotHeld { fault, at, holds }),
                HoldRefused::Behind { fault, .. } if begun.elapsed() > shared.deferred_max() => {
                    return Err(NotHeld { fault, at, holds });
                }
                HoldRefused::Behind { over, .. } => {
                    drop(holds);
                    // Either it ended or its network is gone: in both cases the network is looked up again.
                    drop(over.await);
                }
            }
        }
    }

    async fn try_all(
        shared: &Shared,
        routes: &[Arc<Route>],
        names: &[Option<Name>],
        turn: Option<Arrival>,
    ) -> Result<Self, (HoldRefused, usize, Self)> {
        let mut holds = Holds { hold: HoldId(shared.clock.entropy()), held: Vec::with_capacity(routes.len()) };
        for (at, route) in routes.iter().enumerate() {
            let named = names.get(at).cloned().flatten();
            if let Err(refused) = holds.add(shared, route, named, turn).await {
                return Err((refused, at, holds));
            }
        }
        Ok(holds)
    }

    async fn add(
        &mut self,
        shared: &Shared,
        route: &Arc<Route>,
        named: Option<Name>,
        turn: Option<Arrival>,
    ) -> Result<(), HoldRefused> {
        let (granted, answer) = oneshot::channel();
        let beside = !self.held.is_empty();
        sending::post(shared, route, Hold { hold: self.hold, named, turn, beside, granted })
            .map_err(HoldRefused::Fault)?;
        // From here on this job has to end the hold, even if it is granted after the job gave up.
        self.held.push(Arc::clone(route));
        answer.await.map_err(|_| HoldRefused::Fault(lost_before()))?
    }

    /// Adds the networks that were not reached. They too are told what happens to a waiting request: it may have its turn
    /// there.
    pub(super) fn and_the_others(mut self, routes: Vec<Arc<Route>>) -> Self {
        self.held = routes;
        self
    }

    /// The networks that are held, in order.
    pub(super) fn routes(&self) -> &[Arc<Route>] {
        &self.held
    }

    pub(super) async fn decide(
        &self,
        coordinator: &Coordinator,
        route: &Route,
        command: Command,
        transaction: TransactionId,
    ) -> Result<(UnitPart, Outcome), Box<Fault>> {
        let (decided, answer) = oneshot::channel();
        let item = coordinator.item(command, coordinator.dry_run);
        if route.addr.try_send(DecideHeld { hold: self.hold, item, transaction, decided }).is_err() {
            return Err(lost_before());
        }
        answer.await.map_err(|_| lost_before())?
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "lost only with an actor that is gone, and then it is wanted no more"
    )]
    fn finish(&mut self, apply: bool, waiting: impl Fn(usize) -> Waiting) {
        for (at, route) in self.held.drain(..).enumerate() {
            // A closed mailbox belongs to an actor that died with its hold; its successor loads what is durable. A full
            // mailbox takes this message all the same: without it the network would be held forever.
            route.addr.do_send(Finish { hold: self.hold, apply, waiting: waiting(at) });
        }
    }

    /// Ends the holds without effect, and puts what was decided under them into the queues of their networks.
    pub(super) fn list(mut self, waiting: impl Fn(usize) -> Waiting) {
        self.finish(false, waiting);
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.finish(false, |_| Waiting::No);
    }
}

/// A network, and the request to it.
type AskOf = (Arc<Route>, Acquire);

/// The index of the first item that asks for a network by its name; none: the network is named, and only emptied.
pub(super) type ByName = BTreeMap<NetworkId, Option<usize>>;

/// An acquire, by network.
pub(super) struct ByNetwork {
    pub(super) asks: Vec<AskOf>,
    /// The network of each part of the request.
    pub(super) meant: Vec<NetworkId>,
    /// The networks that are asked for by their names.
    pub(super) by_name: ByName,
    /// The answer if a network does not exist.
    pub(super) missing: Option<Box<Fault>>,
}

/// Networks, and the incarnation of the memory of each that was seen.
pub(super) type SeenMemories = Vec<(Arc<Route>, u64)>;

pub(super) fn seen_of(routes: &[Arc<Route>]) -> SeenMemories {
    routes.iter().map(|route| (Arc::clone(route), route.lane.incarnation.load(Ordering::Acquire))).collect()
}

pub(super) fn lost_before() -> Box<Fault> {
    let problem = "a network's actor died before anything was changed".to_owned();
    Box::new(Fault::Unavailable { applied: Applied::No, problem })
}

/// Hands all parts to the committer as one unit, lets the networks go on, and waits until it is durable.
///
/// The unit is in the committer's mailbox before any of the networks goes on, so whatever they decide next is committed after
/// it. With `waited`, the unit belongs to a request that waited and no longer does. The directory is told of networks that end
/// with it, so that a client that reads the answer may ask for the space that became free, as when a network ends by itself
/// (`network::end`).
pub(super) async fn commit(
    shared: &Shared,
    mut holds: Holds,
    parts: Vec<UnitPart>,
    waited: Option<Arrival>,
) -> Result<(), Box<Fault>> {
    if parts.is_empty() {
        // Nothing is written and nothing was asked: a deployment without networks, repeated.
        return Ok(());
    }
    let (outlet, answers) = crate::actors::outlet();
    let wrote = parts.iter().any(|part| part.changes > 0);
    let ended: Vec<NetworkId> = parts.iter().filter(|part| ends_network(part)).map(|part| part.lane.id).collect();
    let answers_then = vec![Staged { reply: Reply { ticket: 0, answer: Ok(Outcome::Done) }, wrote }];
    shared.enqueue(Enqueue(Unit::new(parts, Some(outlet), answers_then)));
    holds.finish(true, |_| waited.map_or(Waiting::No, |arrival| Waiting::Ended { arrival }));
    only_answer(answers).await.unwrap_or_else(|| Err(lost()))?;
    ended.into_iter().for_each(|id| shared.gone(Gone { id }));
    Ok(())
}

/// Attributes what a network refuses as a whole to the first item that asks something of it. If the network is only emptied,
/// because of `exact`, there is no such item: the refusal names the network itself.
pub(super) fn of_first_item(ask: &Acquire, refusal: Refusal) -> Refusal {
    of_item(first_item(ask), refusal)
}

pub(super) fn first_item(ask: &Acquire) -> Option<usize> {
    ask.items.first().map(|item| item.index)
}

pub(super) fn of_item(index: Option<usize>, refusal: Refusal) -> Refusal {
    match index {
        Some(index) => Refusal::OfItem { index, refusal: Box::new(refusal) },
        None => refusal,
    }
}

/// Is the network gone once this is durable?
fn ends_network(part: &UnitPart) -> bool {
    let steps = part.acts.iter().flat_map(|act| &act.steps);
    steps.into_iter().any(|step| step.key == Key::Config && step.state.is_none())
}

impl Coordinator {
    /// Counts the refusal of a network that becomes the answer, whether decided under a hold or dry. Other networks whose
    /// refusals no client sees do not count them.
    pub(super) fn note_answer(&self, decided_by: &Route, fault: &Fault) {
        if !self.dry_run {
            decided_by.published.refusals.note_answer(fault);
        }
    }

    pub(super) fn transaction(&self) -> TransactionId {
        TransactionId(self.shared.clock.entropy())
    }

    pub(super) fn together(&self, routes: &[Arc<Route>], field: &str) -> Result<(), Box<Fault>> {
        let one_shard = routes.windows(2).all(|pair| pair[0].lane.shard == pair[1].lane.shard);
        if self.shared.info.commits_shards_together || one_shard {
            return Ok(());
        }
        let problem = "spans networks that this store cannot commit together yet; ask for them one by one";
        Err(Refusal::invalid(field, problem).into())
    }

    /// Returns a refusal that was decided under holds, which have ended, once everything that it saw is durable, like every
    /// other refusal: after an answer of each of its networks, from the same memory.
    pub(super) async fn seen_durably(&self, seen: SeenMemories, refusal: Box<Fault>) -> Box<Fault> {
        if !matches!(*refusal, Fault::Refused(_)) {
            return refusal;
        }
        self.durable(seen).await.err().unwrap_or(refusal)
    }

    /// Waits until everything is durable that was seen under holds, which have ended. A plan or a dry run, which changes
    /// nothing, may then be answered.
    pub(super) async fn durable(&self, seen: SeenMemories) -> Result<(), Box<Fault>> {
        for (route, incarnation) in seen {
            match self.ask_item(&route, self.item(Command::Show, false)).await {
                Ok(_) if route.lane.incarnation.load(Ordering::Acquire) == incarnation => {}
                Ok(_) => {
                    let problem = "a network was loaded again before anything was changed".to_owned();
                    return Err(Box::new(Fault::Unavailable { applied: Applied::No, problem }));
                }
                // It was deleted, which is durable too.
                Err(fault) if matches!(*fault, Fault::Refused(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Groups what is asked by network, under whatever names or ids the request uses, and finds the network of each part. That
    /// a network does not exist is reported last: what is wrong elsewhere may come before it.
    pub(super) fn by_network(&self, parts: Vec<AcquirePart>, slot_prefix: &str) -> Result<ByNetwork, Box<Fault>> {
        let mut found: Vec<(Arc<Route>, AcquirePart)> = Vec::with_capacity(parts.len());
        let (mut meant, mut by_name) = (Vec::with_capacity(parts.len()), ByName::new());
        let mut missing: Option<Box<Fault>> = None;
        for part in parts {
            let Some(route) = self.shared.routes.find(&part.network) else {
                let refusal = Refusal::not_found(Missing::Network, part.network);
                if part.ask.items.is_empty() {
                    // Nothing is asked of it: what is wrong with an item comes first.
                    missing.get_or_insert_with(|| refusal.into());
                    continue;
                }
                let refused: Box<Fault> = of_first_item(&part.ask, refusal).into();
                if missing.as_ref().is_none_or(|before| rank(&refused) < rank(before)) {
                    missing = Some(refused);
                }
                continue;
            };
            meant.push(route.id);
            if route.is_called(&part.network) {
                by_name.insert(route.id, first_item(&part.ask));
            }
            match found.iter_mut().find(|(present, _)| present.id == route.id) {
                Some((_, present)) => present.join(part, slot_prefix)?,
                None => found.push((route, part)),
            }
        }
        let asks: Vec<AskOf> = found.into_iter().map(|(route, part)| (route, part.ask)).collect();
        mac_once_in_a_realm(&asks)?;
        Ok(ByNetwork { asks, meant, by_name, missing })
    }

    /// The answer if a network that was found is gone or was renamed by now. It is attributed to the first item that asks for
    /// the network, or, if that item uses its id, to the first item that finds it missing: the same as a repeated request
    /// would be told.
    pub(super) async fn not_there(
        &self,
        (route, first): (&Arc<Route>, Option<usize>),
        by_name: Option<&Option<usize>>,
        refusal: Refusal,
    ) -> Box<Fault> {
        let told_by = match by_name {
            Some(named) if *named != first && !self.is_no_more(route).await => *named,
            Some(_) | None => first,
        };
        of_item(told_by, refusal).into()
    }

    async fn is_no_more(&self, route: &Arc<Route>) -> bool {
        self.ask_item(route, self.item(Command::Show, false)).await.is_err_and(|fault| is_gone(&fault))
    }

    /// The answer if a network does not exist: that, or the refusal of another network that comes before it.
    pub(super) async fn before_missing(&self, missing: Box<Fault>, asks: Vec<AskOf>) -> Box<Fault> {
        let (mut first, mut decided_by) = (missing, None);
        for (route, ask) in asks {
            let item = self.item(Command::Acquire(Box::new(ask)), true);
            if let Err(fault) = self.ask_item(&route, item).await
                // Unless a refusal ranks before it, the missing network is the answer.
                && rank(&fault).0 < rank(&first).0
            {
                (first, decided_by) = (fault, Some(route));
            }
        }
        if let Some(route) = decided_by {
            self.note_answer(&route, &first);
        }
        first
    }
}

impl AcquirePart {
    /// Merges what was asked of the same network under another name. Positions count over both.
    fn join(&mut self, other: AcquirePart, slot_prefix: &str) -> Result<(), Refusal> {
        let items = &mut self.ask.items;
        items.extend(other.ask.items);
        items.sort_unstable_by_key(|item| item.index);
        self.by_position.extend(other.by_position);
        for (position, item) in items.iter_mut().enumerate() {
            if self.by_position.contains(&item.index) {
                item.slot = Slot::new(compact_str::format_compact!("{slot_prefix}{position}"))
                    .map_err(|problem| Refusal::text("slot_prefix", &problem))?;
            }
        }
        Ok(())
    }
}

/// Refuses one MAC for addresses of several networks of a realm, as a network refuses it for several of its own: each would
/// find in the other what this very request is about to do there.
fn mac_once_in_a_realm(asks: &[AskOf]) -> Result<(), Refusal> {
    let mut realms = BTreeSet::new();
    for (route, ask) in asks {
        if let Some(MacWish::Given(mac)) = ask.options.mac
            && !ask.items.is_empty()
            && !realms.insert(&route.realm)
        {
            return Err(forms::mac_for_several(mac));
        }
    }
    Ok(())
}

/// Ranks refusals of items: by the protocol's order, then by place in the request. Any fault that is not a refusal comes
/// before all of them, and first of all a crash: what crashed is not run again, whatever else is in the way.
pub(super) fn rank(fault: &Fault) -> (u8, usize) {
    match fault {
        Fault::Internal { .. } => (0, 0),
        Fault::Contested { index, .. } => (1, index.unwrap_or(0)),
        Fault::Overloaded { .. }
        | Fault::Unavailable { .. }
        | Fault::StoreAway { .. }
        | Fault::NotReady { .. }
        | Fault::Stopped { .. }
        | Fault::CursorLost { .. } => (1, 0),
        Fault::Refused(refusal) => {
            let index = if let Refusal::OfItem { index, .. } = refusal { *index } else { 0 };
            (refusal.precedence().saturating_add(2), index)
        }
    }
}

pub(super) fn acquired(outcomes: Vec<(Option<Name>, Outcome)>, exact: bool) -> Done {
    let mut all = Vec::new();
    let mut let_go = Vec::new();
    for (name, outcome) in outcomes {
        if let Outcome::Acquired { grants, released } = outcome {
            // A closed network grants nothing, so every network that granted has a name.
            let_go.extend(released.into_iter().filter_map(|address| Some((name.clone()?, address))));
            all.extend(grants);
        }
    }
    all.sort_by_key(|(index, _)| *index);
    // They come in the order in which networks are held.
    let_go.sort_unstable();
    Done::Acquired { grants: all, released: exact.then_some(let_go) }
}
