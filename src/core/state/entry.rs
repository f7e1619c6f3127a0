//! What lies at an address: a reservation, or what is left of one while it cools or is declined.
//!
//! `network` decides what becomes of it (`grant`, `lifecycle`, `release`, `sweep`, `deploy`).

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
    /// The duration that was last asked for, in seconds. Nonzero, which makes a reservation without a lease smaller in memory.
    pub ttl_seconds: NonZeroU64,
}

impl Lease {
    /// When it was granted or renewed last, if its end was not moved since.
    pub fn began(&self) -> ShardTime {
        ShardTime(self.ends.0.saturating_sub(self.ttl_seconds.get().saturating_mul(1_000)))
    }
}

/// Marks a reservation that a deployment lets go, while the deployment is not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obsolete {
    /// Since when.
    pub since: WallTime,
    /// By which plan.
    pub plan: u64,
}

/// For whom an address is kept until its present holder lets it go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// The plan that promised it.
    pub plan: u64,
    /// The instance that gets it, in the same scope.
    pub owner: Owner,
    /// For which of its slots.
    pub slot: Slot,
}

/// What a deployment intends with a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Planned {
    /// The holder waits for an address that is promised to it, and gives this one up when that one comes: the plan that says
    /// so. The reservation stays current until then.
    pub leaving: Option<u64>,
    /// Who gets the address when it is let go.
    pub promise: Option<Promise>,
    /// Who gave this address up for another one that has not come yet. If that plan is reverted, it gets this one back.
    pub back: Option<Promise>,
    /// The plan that was the first not to list this transient reservation.
    pub unlisted: Option<u64>,
    /// Granted by this plan, which was then committed for its holder alone: a revert of the plan for the others does not
    /// take it back.
    pub settled: Option<u64>,
    /// Made current again by this plan, and what made it obsolete before. A revert of the plan makes it obsolete again.
    pub revived: Option<(u64, Obsolete)>,
    /// Had a lease when this plan decided to keep it: the commit makes it permanent, also if the lease was renewed since. Without
    /// this a lease that is set after the apply stays.
    pub kept: Option<u64>,
    /// Had a chosen address until this plan named it: a revert makes it a chosen one again.
    pub was_chosen: Option<u64>,
}

/// What only few reservations have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Details {
    /// Tells two owners of the same name apart.
    pub owner_uid: Option<OwnerUid>,
    /// Labels.
    #[serde(deserialize_with = "compact::labels")]
    pub labels: Labels,
    /// Text for people; empty if there is none.
    pub note: CompactString,
    /// Host name; empty if there is none.
    pub hostname: CompactString,
    /// Hardware address, unique in its realm.
    pub mac: Option<Mac>,
}

/// An address, or an aligned block named by its first address, that an owner holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// 32 or 128 for one address.
    #[serde(deserialize_with = "compact::prefix_length")]
    pub prefix_length: u8,
    /// Who holds it.
    pub holder: SlotKey,
    /// Tells this holding from any other of the same address.
    pub generation: Generation,
    /// Whether the address was chosen or named.
    pub kind: ReservationKind,
    /// When this holding began.
    pub created_at: WallTime,
    /// When it ends unless renewed; none if it is permanent.
    pub lease: Option<Lease>,
    /// Made for a machine that will soon be gone.
    pub transient: bool,
    /// Released when its claimant is unbound.
    pub release_with_claimant: bool,
    /// Who uses it at present.
    pub claimant: Option<Claimant>,
    /// Let go by an uncommitted deployment. Rare, so it is boxed to keep all other reservations small.
    pub obsolete: Option<Box<Obsolete>>,
    /// The plan of its deployment that granted it.
    pub granted_by: Option<NonZeroU64>,
    /// What its deployment intends with it.
    pub planned: Option<Box<Planned>>,
    /// What only few reservations have.
    pub details: Option<Box<Details>>,
}

impl Reservation {
    /// A permanent dynamic reservation without any details.
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
    /// The slot to which it was promised, if any.
    pub fn taker(&self) -> Option<SlotKey> {
        self.promise.as_deref().map(|promise| promise.taker(&self.by.scope))
    }
}

impl Promise {
    /// The slot that gets it, in the scope of the present holder.
    pub fn taker(&self, scope: &Scope) -> SlotKey {
        SlotKey { scope: scope.clone(), owner: self.owner.clone(), slot: self.slot.clone() }
    }
}

impl Reservation {
    /// Who gets the address when it is let go.
    pub fn promise(&self) -> Option<&Promise> {
        self.planned.as_ref()?.promise.as_ref()
    }

    /// Who gave the address up for one that has not come yet, and would get it back.
    pub fn back(&self) -> Option<&Promise> {
        self.planned.as_ref()?.back.as_ref()
    }

    /// The plan by which its holder gives it up when the promised address comes.
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
    /// Who held it last. That slot gets it back while it cools.
    pub last: SlotKey,
    /// Which of the owners of that name it was, if known.
    pub owner_uid: Option<OwnerUid>,
    /// Generation of that holding.
    pub generation: Generation,
    /// When it was let go. It cools for as long as the network's present configuration says.
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
    /// What was seen there, in the words of whoever declined it.
    pub seen: CompactString,
    /// To whom it had been promised, and who will not get it now. The deployment reports that until it is applied anew, or
    /// until the probation of the address is over.
    pub promise: Option<Box<Promise>>,
}

/// What lies at an address. An address without one is free, or unusable by configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Somebody holds it.
    Held(Arc<Reservation>),
    /// Let go; it cools.
    Released(Arc<Released>),
    /// Out of circulation until its probation ends.
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

    /// Generation of the holding that it is or was: a change of this address must expect it.
    pub fn generation(&self) -> Generation {
        match self {
            Entry::Held(reservation) => reservation.generation,
            Entry::Released(released) => released.generation,
            Entry::Declined(declined) => declined.generation,
        }
    }

    /// The same entry in another shard whose time is `there` when this one's is `here`: what is left of a lease, a cooldown
    /// or a probation stays as long as it was.
    pub fn in_time_of(mut self, here: ShardTime, there: ShardTime) -> Self {
        if here == there {
            return self;
        }
        // A time that lies before the beginning of the other shard's time becomes its beginning, so it ends late, never early.
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

    /// A part of this length, if it cools or is declined; what is held has no parts.
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

    /// Prefix length of what the entry covers.
    pub fn prefix_length(&self) -> u8 {
        match self {
            Entry::Held(reservation) => reservation.prefix_length,
            Entry::Released(released) => released.prefix_length,
            Entry::Declined(declined) => declined.prefix_length,
        }
    }
}
