//! What concerns addresses that are held: how one is named, what is done with it, and which of them a list shows.

use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::{Context, LabelsPatch, MacWish, Patch, PoolRef, SubnetRef};
use crate::core::address::{Address, Range};
use crate::core::state::{Reservation, ReservationKind};
use crate::core::types::{Claimant, Generation, Mac, Owner, OwnerUid, Scope, Slot, SlotKey, WallTime};

/// A reservation as a client names it: by address, by owner and slot, or by both, which are checked against each other.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Target {
    /// By address (a block by its first).
    pub address: Option<Address>,
    /// By owner.
    pub owner: Option<Owner>,
    /// Scope of the owner; default where an owner is given without.
    pub scope: Option<Scope>,
    /// Slot; with an address, a slot left out is not checked, else it is the default one.
    pub slot: Option<Slot>,
    /// Refused where the holding is another than this.
    pub if_generation: Option<Generation>,
}

/// `ip.release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// What.
    pub target: Target,
    /// Whoever holds it.
    pub force: bool,
    /// What is not held is `not_found`.
    pub strict: bool,
}

/// `ip.update`'s `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReservationPatch {
    /// Labels, merged.
    pub labels: Patch<LabelsPatch>,
    /// Text for people.
    pub note: Patch<CompactString>,
    /// Host name.
    pub hostname: Patch<CompactString>,
    /// Hardware address.
    pub mac: Patch<MacWish>,
    /// Tells two owners of one name apart.
    pub owner_uid: Patch<OwnerUid>,
}

/// `ip.transfer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The address.
    pub address: Address,
    /// Who holds it now; slot left out is not checked.
    pub from: (Scope, Owner, Option<Slot>),
    /// Who shall.
    pub to: SlotKey,
    /// The two swap.
    pub exchange: bool,
    /// Refused where the holding is another than this.
    pub if_generation: Option<Generation>,
}

/// `ip.decline`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decline {
    /// The address.
    pub address: Address,
    /// Who holds it; slot left out is not checked.
    pub from: (Scope, Owner, Option<Slot>),
    /// What was seen there.
    pub seen: CompactString,
    /// For how long it is out of circulation.
    pub probation_seconds: u64,
    /// Grant another in the same commit.
    pub again: bool,
}

/// Which reservations `ip.list` shows. Every member given must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Filter {
    /// Scope.
    pub scope: Option<Scope>,
    /// Owner.
    pub owner: Option<Owner>,
    /// Beginning of the owner.
    pub owner_prefix: Option<CompactString>,
    /// Claimant.
    pub claimant: Option<Claimant>,
    /// With a claimant, or without.
    pub bound: Option<bool>,
    /// `k`, or `k=v`.
    pub label: Option<(CompactString, Option<CompactString>)>,
    /// In this subnet.
    pub subnet: Option<SubnetRef>,
    /// In these pools.
    pub pool: Option<PoolRef>,
    /// Dynamic or static.
    pub kind: Option<ReservationKind>,
    /// Overlapping this range.
    pub range: Option<Range>,
    /// Host name.
    pub hostname: Option<CompactString>,
    /// Hardware address.
    pub mac: Option<Mac>,
    /// Obsolete ones only, or current ones only.
    pub obsolete: Option<bool>,
    /// Lease ends before.
    pub expires_before: Option<WallTime>,
    /// Made before.
    pub created_before: Option<WallTime>,
}

/// The first slice of a list: at most `limit` records that match, and at most
/// [`crate::limits::LIST_SLICE_RECORDS_MAX`] looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSlice {
    /// What to show.
    pub filter: Filter,
    /// After this address.
    pub after: Option<Address>,
    /// How many at most.
    pub limit: usize,
    /// Only how many there are.
    pub count_only: bool,
}

/// The rest of a list, as its network was when the first slice was decided: whoever has it asks for the next slices with
/// [`Network::list_rest`](crate::core::network::Network::list_rest). What is kept for it is forgotten when it was dropped.
#[derive(Debug, PartialEq, Eq)]
pub struct ListRest {
    /// Which list of its network: they are counted as they begin.
    pub began: u64,
    /// That of the network when it began.
    pub era: Arc<()>,
    /// The moment of its first slice: leases are told as they stood then.
    pub context: Context,
    /// What to show.
    pub filter: Filter,
    /// Only how many there are.
    pub count_only: bool,
    /// In order, where the list goes over what an owner holds and not over the network.
    pub of_owner: Option<Vec<(Address, Arc<Reservation>)>>,
}
