//! `events.history` with `at`: what was held at a given time.
//!
//! All of the history that may matter is read for this: what happened until that time shows what was granted, and what
//! happened since shows what was there before, for holdings that are older than the kept history. That can take longer than
//! anybody should wait for a page, so a *walk* is kept for some time: each page reads on for a moment, and returns nothing
//! until everything is read. A client that repeats the same question continues the same walk. If the walk is no longer kept,
//! it begins again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::Cursor;
use super::cursor::beginning;
use super::filter::Filter;
use super::happened::{Happened, What};
use super::history::PAGE_WITHIN;
use super::scan::{Piece, Scan};
use crate::actors::Fault;
use crate::actors::service::Shared;
use crate::core::address::Address;
use crate::core::outcome::View;
use crate::core::refusal::Refusal;
use crate::core::state::{EventKind, Reservation};
use crate::core::types::{Name, NetworkId, Place, ShardTime, WallTime};
use crate::limits::{HISTORY_AT_MAX, HISTORY_WALKS_MAX};

/// How long a walk is kept after it was last asked for.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// How long a walk is kept for its last asker if somebody else wants to walk and there is no room.
const WAITED_FOR: Duration = Duration::from_secs(5);
/// Shown as the granter of what was granted before the kept history.
const UNKNOWN: &str = "unknown";

/// Where a page continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeldPlace {
    /// Nothing was reported yet.
    First,
    /// After this address of this network.
    Behind(Name, NetworkId, Option<Address>),
}

/// What was held, in order of `order_of`, each with the cursor after the event that made it so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldPage {
    /// Each holding as of its last event up to that time.
    pub events: Vec<(Happened, Cursor)>,
    /// Where to continue, if that was not all; the page may be empty.
    pub next: Option<HeldPlace>,
}

/// An address of a network; for a block its first.
type AddressKey = (NetworkId, Address);

/// What is known of an address that was held at the time: its event, and a cursor somewhere before it.
type KnownEvent = (Box<Happened>, Arc<Cursor>);

/// What was held, by address; none if it is known that nothing was, although there are later events.
type HeldThen = BTreeMap<AddressKey, Option<KnownEvent>>;

/// The walk through the history for one question. See the module.
#[derive(Debug, Default)]
pub enum HeldWalk {
    /// Nothing was read yet.
    #[default]
    New,
    /// Some of it was read.
    Reading(Box<HeldReading>),
    /// Everything was read, at this time: what was held, in order.
    Read(WallTime, Vec<KnownEvent>),
}

/// A walk that is under way.
#[derive(Debug)]
pub struct HeldReading {
    filter: Filter,
    at: WallTime,
    from: Cursor,
    end: Cursor,
    known: HeldThen,
    /// What was held when the walk began.
    now: Vec<View>,
}

/// The question, as it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldQuestion {
    /// The network's name, or its id.
    pub network: Option<CompactString>,
    /// What is wanted.
    pub filter: Filter,
    /// The time asked about.
    pub at: WallTime,
}

/// A walk that several may share.
pub type SharedWalk = Arc<tokio::sync::Mutex<HeldWalk>>;

#[derive(Debug)]
struct KeptWalk {
    question: HeldQuestion,
    walk: SharedWalk,
    asked: Instant,
}

/// The walks that are kept.
#[derive(Debug, Default)]
pub struct Walks(Mutex<Keeping>);

#[derive(Debug, Default)]
struct Keeping {
    walks: Vec<KeptWalk>,
    /// A task calls [`Walks::sweep`] until no walk is left.
    is_swept: bool,
}

impl Walks {
    fn keeping(&self) -> MutexGuard<'_, Keeping> {
        // A panic inside leaves all walks in order.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The walk for a question, a new one if none is kept; and whether this walk is kept: it is not if there is no room.
    pub fn of(&self, question: &HeldQuestion) -> (SharedWalk, bool) {
        let kept = &mut self.keeping().walks;
        if let Some(one) = kept.iter_mut().find(|one| one.question == *question) {
            one.asked = Instant::now();
            return (Arc::clone(&one.walk), true);
        }
        let walk = SharedWalk::default();
        if kept.len() >= HISTORY_WALKS_MAX {
            let oldest = kept.iter().enumerate().min_by_key(|(_, one)| one.asked).map_or(0, |(place, _)| place);
            if kept[oldest].asked.elapsed() < WAITED_FOR {
                return (walk, false);
            }
            kept.remove(oldest);
        }
        kept.push(KeptWalk { question: question.clone(), walk: Arc::clone(&walk), asked: Instant::now() });
        (walk, true)
    }

    /// Drops a walk.
    pub fn forget(&self, walk: &SharedWalk) {
        self.keeping().walks.retain(|one| !Arc::ptr_eq(&one.walk, walk));
    }

    /// Must a task call [`Walks::sweep`] from now on, until no walk is left? Says so once.
    pub fn wants_sweeper(&self) -> bool {
        let mut keeping = self.keeping();
        let wants = !keeping.walks.is_empty() && !keeping.is_swept;
        keeping.is_swept |= wants;
        wants
    }

    /// Drops the walks that nobody asks for any more. Returns how long until there may be more of them; none: no walks are
    /// kept.
    pub fn sweep(&self) -> Option<Duration> {
        let mut keeping = self.keeping();
        keeping.walks.retain(|one| one.asked.elapsed() < KEPT_FOR);
        keeping.is_swept = !keeping.walks.is_empty();
        keeping.walks.iter().map(|one| KEPT_FOR.saturating_sub(one.asked.elapsed())).min()
    }
}

impl HeldWalk {
    /// Must the walk begin? Also if `at` was still in the future when it ended, and somebody asks from the beginning.
    pub fn begins(&self, at: WallTime, after: Option<&HeldPlace>) -> bool {
        match self {
            Self::New => true,
            Self::Reading(_) => false,
            Self::Read(when, _) => *when <= at && after.is_none(),
        }
    }

    /// Begins the walk: `now` is what was held just before.
    pub fn begin(&mut self, shared: &Shared, filter: Filter, at: WallTime, now: Vec<View>) {
        // A holding that another holder took over, or that ended, shows the holder before: the walk itself judges the time.
        let filter = Filter { from: None, to: None, ..filter };
        let shards = filter.shards(shared.info.shards);
        let from = Cursor::new(filter.is_whole(&shards), shards.iter().map(|&shard| beginning(shard)));
        let end = shared.feed.end();
        *self = Self::Reading(Box::new(HeldReading { filter, at, from, end, known: HeldThen::new(), now }));
    }

    /// The page after a place, asked for at `begun`. First reads on for a moment, if not everything is read.
    ///
    /// # Errors
    /// As of [`super::page()`]; a refusal of `at` beyond [`HISTORY_AT_MAX`] addresses.
    pub async fn page(
        &mut self,
        shared: &Shared,
        begun: Instant,
        (after, limit): (Option<HeldPlace>, usize),
    ) -> Result<HeldPage, Box<Fault>> {
        if let Self::Reading(reading) = self {
            if !reading.read_on(shared, begun).await? {
                return Ok(HeldPage { events: Vec::new(), next: Some(after.unwrap_or(HeldPlace::First)) });
            }
            let held = std::mem::take(&mut reading.known).into_values();
            let mut held: Vec<KnownEvent> = held.flatten().collect();
            held.sort_by(|(one, _), (other, _)| order_of(one).cmp(&order_of(other)));
            *self = Self::Read(shared.clock.wall(), held);
        }
        let Self::Read(_, held) = &*self else {
            return Ok(HeldPage { events: Vec::new(), next: Some(HeldPlace::First) });
        };
        let first = match &after {
            Some(HeldPlace::Behind(name, id, address)) => {
                held.partition_point(|(event, _)| order_of(event) <= (name, *id, *address))
            }
            Some(HeldPlace::First) | None => 0,
        };
        let last = held.len().min(first.saturating_add(limit));
        let events = held[first..last].iter().map(|(event, before)| {
            let mut cursor = (**before).clone();
            cursor.advance(event.place);
            ((**event).clone(), cursor)
        });
        let events: Vec<(Happened, Cursor)> = events.collect();
        let next = events.last().filter(|_| last < held.len()).map(|(event, _)| place_of(event));
        Ok(HeldPage { events, next })
    }
}

/// The refusal if what was held, or is, is more than is gathered for one request. Asking again does not help.
pub(in crate::actors) fn too_much_held(filter: &Filter) -> Box<Fault> {
    let Filter { networks, address, owner, scope, .. } = filter;
    let given = [networks.is_some(), scope.is_some(), owner.is_some(), address.is_some()];
    let members = ["`network`", "`scope`", "`owner`", "`address`"].into_iter().zip(given);
    let left: Vec<&str> = members.filter(|(_, given)| !given).map(|(member, _)| member).collect();
    let narrower = match &left[..] {
        [] => "ask for what happened since, without it".to_owned(),
        [one] => format!("give {one}, too"),
        [most @ .., last] => format!("give {} or {last}, too", most.join(", ")),
    };
    let problem =
        format!("would list more than {HISTORY_AT_MAX} addresses that were held then or are held now; {narrower}");
    Refusal::invalid("at", problem).into()
}

impl HeldReading {
    /// Reads for a moment, but always something. True: everything was read, and `known` is what was held.
    async fn read_on(&mut self, shared: &Shared, begun: Instant) -> Result<bool, Box<Fault>> {
        let Self { filter, at, from, end, known, now } = self;
        let at = *at;
        let mut scan = Scan::new(shared, filter, from.clone(), end.clone());
        while let Some(Piece { span: (begin, _), events }) = scan.next().await? {
            let begin = Arc::new(begin);
            for event in events {
                learn(known, event, &begin, at);
            }
            if known.len() > HISTORY_AT_MAX {
                return Err(too_much_held(filter));
            }
            if begun.elapsed() > PAGE_WITHIN && !scan.is_over() {
                *from = scan.cursor;
                return Ok(false);
            }
        }
        for view in std::mem::take(now) {
            let key = (view.network.id, view.address);
            if view.reservation.created_at <= at
                && let Entry::Vacant(unknown) = known.entry(key)
            {
                let shard = shared.shard_of(view.network.id);
                let grant = grant_of_view(view, beginning(shard));
                unknown.insert(Some((Box::new(grant), Arc::new(Cursor::default()))));
            }
        }
        if known.len() > HISTORY_AT_MAX {
            return Err(too_much_held(filter));
        }
        known.retain(|_, known| match known.as_ref().map(|(event, _)| &event.what) {
            Some(What::Holding { address, after: Some(after), .. }) => filter.wants_holding(*address, after),
            Some(What::Holding { after: None, .. } | What::Network { .. }) | None => false,
        });
        Ok(true)
    }
}

/// Notes what an event shows of the time asked about.
fn learn(known: &mut HeldThen, event: Happened, begin: &Arc<Cursor>, at: WallTime) {
    let What::Holding { address, before, after } = &event.what else { return };
    let (key, address) = ((event.network, *address), *address);
    if event.wall <= at {
        // What was released until then is known by not being there.
        match after {
            Some(_) => drop(known.insert(key, Some((Box::new(event), Arc::clone(begin))))),
            None => drop(known.remove(&key)),
        }
        return;
    }
    let was_then = |held: &&Arc<Reservation>| held.created_at <= at;
    let Entry::Vacant(unknown) = known.entry(key) else { return };
    if let Some(was) = before.as_ref().filter(was_then) {
        let grant = grant_of(&event, address, Arc::clone(was));
        unknown.insert(Some((Box::new(grant), Arc::new(Cursor::default()))));
    } else if before.is_none() && after.as_ref().is_some_and(|after| was_then(&after)) {
        // It was held at that time, in another network, and came here with its subnet.
        unknown.insert(None);
    }
}

/// The order of a page: by name of the network, then by address.
fn order_of(event: &Happened) -> (&Name, NetworkId, Option<Address>) {
    let address = match &event.what {
        What::Holding { address, .. } => Some(*address),
        What::Network { .. } => None,
    };
    (&event.name, event.network, address)
}

/// The place after an event.
pub fn place_of(event: &Happened) -> HeldPlace {
    let (name, id, address) = order_of(event);
    HeldPlace::Behind(name.clone(), id, address)
}

/// The grant of what existed before an event, as far as the holding itself shows it.
fn grant_of(event: &Happened, address: Address, held: Arc<Reservation>) -> Happened {
    let created = held.created_at;
    // Its lease is counted from the known event.
    let since = event.wall.0.saturating_sub(created.0);
    Happened {
        place: Place { seq: 0, steps: None, digest: 0, ..event.place },
        wall: created,
        time: ShardTime(event.time.0.saturating_sub(since)),
        kind: EventKind::Granted,
        network: event.network,
        name: event.name.clone(),
        realm: event.realm.clone(),
        what: What::Holding { address, before: None, after: Some(held) },
        by: UNKNOWN.into(),
        reason: None,
    }
}

/// The grant of what is held now, as far as the holding itself shows it.
fn grant_of_view(view: View, place: Place) -> Happened {
    let held = view.reservation;
    let lease_at = |ends: ShardTime| {
        let left = view.expires.map(|(wall, _)| wall.0.saturating_sub(held.created_at.0));
        left.map_or(ends, |left| ShardTime(ends.0.saturating_sub(left)))
    };
    Happened {
        place,
        wall: held.created_at,
        time: held.lease.map_or(ShardTime(0), |lease| lease_at(lease.ends)),
        kind: EventKind::Granted,
        network: view.network.id,
        name: view.network.name.clone(),
        realm: view.network.realm.clone(),
        what: What::Holding { address: view.address, before: None, after: Some(held) },
        by: UNKNOWN.into(),
        reason: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(at: u64) -> HeldQuestion {
        HeldQuestion { network: None, filter: Filter::default(), at: WallTime(at) }
    }

    #[test]
    fn more_than_is_gathered_is_refused_for_good_and_what_is_given_already_is_not_advised() {
        let refused = |filter: Filter| match *too_much_held(&filter) {
            Fault::Refused(refusal) => refusal.to_string(),
            fault => panic!("{fault:?}"),
        };
        let all = refused(Filter::default());
        assert!(all.starts_with("`at` would list more than 100000 addresses"), "{all}");
        assert!(all.ends_with("; give `network`, `scope`, `owner` or `address`, too"), "{all}");
        let networks = Some(vec![NetworkId(1)]);
        let named = refused(Filter { networks: networks.clone(), ..Filter::default() });
        assert!(named.ends_with("; give `scope`, `owner` or `address`, too"), "{named}");
        let (owner, scope) = (Some("o".parse().unwrap()), Some("s".parse().unwrap()));
        let most = refused(Filter { networks, owner, scope, ..Filter::default() });
        assert!(most.ends_with("; give `address`, too"), "{most}");
    }

    #[test]
    fn one_sweeper_is_wanted_while_there_are_walks() {
        let walks = Walks::default();
        assert!(!walks.wants_sweeper(), "there is nothing to sweep");
        let (walk, is_kept) = walks.of(&question(1));
        assert!(is_kept);
        assert_eq!([walks.wants_sweeper(), walks.wants_sweeper()], [true, false]);
        assert!(walks.sweep().is_some(), "it is kept, so that who asked goes on with it");
        assert!(!walks.wants_sweeper());
        walks.forget(&walk);
        assert_eq!(walks.sweep(), None);
        walks.of(&question(2));
        assert!(walks.wants_sweeper(), "the one before is gone");
    }
}
