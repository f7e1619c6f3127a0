//! What lies at an address: a reservation, or what is left of one that cools or was declined.
//!
//! What becomes of it, `network` decides (`grant`, `lifecycle`, `release`, `sweep`, `deploy`).

use std::num::NonZeroU64;
use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use crate::core::compact;
use crate::core::types::{
    Claimant, Generation, Labels, Mac, Owner, OwnerUid, Scope, ShardTime, Slot, SlotKey, WallTime,
};

/// How a reservation came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReservationKind {
    /// The register chose the address.
    Dynamic,
    /// The owner named it.
    Static,
}

/// The end of a reservation that is not renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When it ends.
    pub ends: ShardTime,
    /// How long it was asked for last, in seconds. Never none, so that a reservation without a lease is the smaller.
    pub ttl_seconds: NonZeroU64,
}

/// Let go by a deployment that has not been committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obsolete {
    /// Since when.
    pub since: WallTime,
    /// By which plan.
    pub plan: u64,
}

/// For whom an address is kept until who holds it lets it go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// By which plan.
    pub plan: u64,
    /// The instance that gets it, of the same scope.
    pub owner: Owner,
    /// For which of its slots.
    pub slot: Slot,
}

/// What a deployment has in mind with a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Planned {
    /// Its holder waits for an address that is promised to it, and lets this one go then: by which plan. Current until then.
    pub leaving: Option<u64>,
    /// Who gets the address when it is let go.
    pub promise: Option<Promise>,
    /// Who let it go for an address that has not come, and gets it back where that plan is reverted.
    pub back: Option<Promise>,
    /// A transient one that a plan did not list for the first time: by which plan.
    pub unlisted: Option<u64>,
    /// Granted by this plan, which was committed for its holder alone: a revert for others does not take it back.
    pub settled: Option<u64>,
    /// Obsolete until this plan made it current again, and what it was then: a revert makes it that again.
    pub revived: Option<(u64, Obsolete)>,
    /// Held with a lease when this plan found that it stays: the commit makes it permanent. What comes later has its own lease.
    pub kept: Option<u64>,
    /// Chosen until this plan named it: a revert makes it that again.
    pub was_chosen: Option<u64>,
}

/// What few reservations carry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Details {
    /// Tells two owners of one name apart.
    pub owner_uid: Option<OwnerUid>,
    /// Labels.
    #[serde(deserialize_with = "compact::labels")]
    pub labels: Labels,
    /// Text for people; empty where there is none.
    pub note: CompactString,
    /// Host name; empty where there is none.
    pub hostname: CompactString,
    /// Hardware address, unique in its realm.
    pub mac: Option<Mac>,
}

/// An address, or an aligned block named by its first address, in the hands of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// 32 or 128 for one address.
    #[serde(deserialize_with = "compact::prefix_length")]
    pub prefix_length: u8,
    /// Who holds it.
    pub holder: SlotKey,
    /// Tells this holding from any other of the same address.
    pub generation: Generation,
    /// Chosen or named.
    pub kind: ReservationKind,
    /// When this holding began.
    pub created_at: WallTime,
    /// When it ends if not renewed; none is permanent.
    pub lease: Option<Lease>,
    /// Made for a machine that is soon gone.
    pub transient: bool,
    /// Released when its claimant is unbound.
    pub release_with_claimant: bool,
    /// Who uses it now.
    pub claimant: Option<Claimant>,
    /// Let go by an uncommitted deployment. Few are: boxed, so that all others are the smaller.
    pub obsolete: Option<Box<Obsolete>>,
    /// The plan of its deployment that granted it.
    pub granted_by: Option<NonZeroU64>,
    /// What its deployment has in mind with it.
    pub planned: Option<Box<Planned>>,
    /// What few reservations carry.
    pub details: Option<Box<Details>>,
}

impl Reservation {
    /// A dynamic one for good, about which nothing more was said.
    pub fn plain(holder: SlotKey, generation: Generation, prefix_length: u8, created_at: WallTime) -> Self {
        Self {
            prefix_length,
            holder,
            generation,
            kind: ReservationKind::Dynamic,
            created_at,
            lease: None,
            transient: false,
            release_with_claimant: false,
            claimant: None,
            obsolete: None,
            granted_by: None,
            planned: None,
            details: None,
        }
    }
}

impl Declined {
    /// The slot that was to have it, if one was.
    pub fn taker(&self) -> Option<SlotKey> {
        self.promise.as_deref().map(|promise| promise.taker(&self.by.scope))
    }
}

impl Promise {
    /// The slot that gets it, in the scope of who lets it go.
    pub fn taker(&self, scope: &Scope) -> SlotKey {
        SlotKey { scope: scope.clone(), owner: self.owner.clone(), slot: self.slot.clone() }
    }
}

impl Reservation {
    /// Who gets the address when it is let go.
    pub fn promise(&self) -> Option<&Promise> {
        self.planned.as_ref()?.promise.as_ref()
    }

    /// Who gave it for an address that has not come, and would get it back.
    pub fn back(&self) -> Option<&Promise> {
        self.planned.as_ref()?.back.as_ref()
    }

    /// The plan by which its holder lets it go when what is promised to it comes.
    pub fn leaving(&self) -> Option<u64> {
        self.planned.as_ref()?.leaving
    }
}

/// An address that was let go and cools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Length of what was held.
    #[serde(deserialize_with = "compact::prefix_length")]
    pub prefix_length: u8,
    /// Who held it last; gets it back while it cools.
    pub last: SlotKey,
    /// Which of all owners of that name it was, if that was known.
    pub owner_uid: Option<OwnerUid>,
    /// Generation of that holding.
    pub generation: Generation,
    /// When it was let go; cools for as long as the network's configuration says now.
    pub released_at: ShardTime,
}

/// An address at which somebody else answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declined {
    /// Length of what was held.
    #[serde(deserialize_with = "compact::prefix_length")]
    pub prefix_length: u8,
    /// Who held and declined it.
    pub by: SlotKey,
    /// Generation of that holding.
    pub generation: Generation,
    /// When it comes back into circulation.
    pub until: ShardTime,
    /// What was seen there, in the decliner's words.
    pub seen: CompactString,
    /// To whom it was promised, who does not get it now: its deployment says so until it is applied anew, or until the address is
    /// not kept from anybody any more.
    pub promise: Option<Box<Promise>>,
}

/// What lies at an address. An address without one is free, or unusable by configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Held.
    Held(Arc<Reservation>),
    /// Let go, cooling.
    Released(Arc<Released>),
    /// Out of circulation for its probation.
    Declined(Arc<Declined>),
}

impl Entry {
    /// The reservation, if it is held.
    pub fn held(&self) -> Option<&Arc<Reservation>> {
        match self {
            Entry::Held(reservation) => Some(reservation),
            Entry::Released(_) | Entry::Declined(_) => None,
        }
    }

    /// Generation of the holding that it is or was: what a change of this address expects to find.
    pub fn generation(&self) -> Generation {
        match self {
            Entry::Held(reservation) => reservation.generation,
            Entry::Released(released) => released.generation,
            Entry::Declined(declined) => declined.generation,
        }
    }

    /// The entry in a shard whose time is `there` when that of its own is `here`: what is left of a lease, a cooldown
    /// or a probation stays as long as it was.
    pub fn in_time_of(mut self, here: ShardTime, there: ShardTime) -> Self {
        if here == there {
            return self;
        }
        // What is further back than that shard's time reaches ends late, never early.
        let moved = |time: ShardTime| ShardTime(time.0.saturating_add(there.0).saturating_sub(here.0));
        match &mut self {
            Entry::Held(reservation) => {
                if let Some(lease) = reservation.lease {
                    Arc::make_mut(reservation).lease = Some(Lease { ends: moved(lease.ends), ..lease });
                }
            }
            Entry::Released(released) => {
                let released = Arc::make_mut(released);
                released.released_at = moved(released.released_at);
            }
            Entry::Declined(declined) => {
                let declined = Arc::make_mut(declined);
                declined.until = moved(declined.until);
            }
        }
        self
    }

    /// A part of it, of this length, of what cools or is declined; what is held has no parts.
    pub fn part(&self, prefix_length: u8) -> Option<Self> {
        match self {
            Entry::Held(_) => None,
            Entry::Released(released) => {
                Some(Entry::Released(Arc::new(Released { prefix_length, ..Released::clone(released) })))
            }
            Entry::Declined(declined) => {
                Some(Entry::Declined(Arc::new(Declined { prefix_length, ..Declined::clone(declined) })))
            }
        }
    }

    /// Prefix length of what it covers.
    pub fn prefix_length(&self) -> u8 {
        match self {
            Entry::Held(reservation) => reservation.prefix_length,
            Entry::Released(released) => released.prefix_length,
            Entry::Declined(declined) => declined.prefix_length,
        }
    }
}
