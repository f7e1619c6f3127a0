//! Commands on addresses that are held: how a client names one, what can be done with it, and which ones a list shows.

use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::{Context, LabelsPatch, MacWish, Patch, PoolRef, SubnetRef};
use crate::core::address::{Address, Range};
use crate::core::state::{Reservation, ReservationKind};
use crate::core::types::{Claimant, Generation, Mac, Owner, OwnerUid, Scope, Slot, SlotKey, WallTime};

/// A reservation as a client names it: by address, by owner and slot, or by both, which must then agree.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Target {
    /// By address; a block by its first one.
    pub address: Option<Address>,
    /// By owner.
    pub owner: Option<Owner>,
    /// Scope of the owner; the default one if only an owner is given.
    pub scope: Option<Scope>,
    /// The slot. If it is left out, any slot matches with an address, and the default slot is meant without one.
    pub slot: Option<Slot>,
    /// Refuses if the holding has another generation.
    pub if_generation: Option<Generation>,
}

/// `ip.release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// What to release.
    pub target: Target,
    /// Release it whoever holds it.
    pub force: bool,
    /// Answer `not_found` if nothing is held.
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
    /// Tells two owners of the same name apart.
    pub owner_uid: Patch<OwnerUid>,
}

/// `ip.transfer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The address.
    pub address: Address,
    /// The present holder; without a slot, any slot matches.
    pub from: (Scope, Owner, Option<Slot>),
    /// The new holder.
    pub to: SlotKey,
    /// The two exchange their addresses.
    pub exchange: bool,
    /// Refuses if the holding has another generation.
    pub if_generation: Option<Generation>,
}

/// `ip.decline`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decline {
    /// The address.
    pub address: Address,
    /// The present holder; without a slot, any slot matches.
    pub from: (Scope, Owner, Option<Slot>),
    /// What was seen there.
    pub seen: CompactString,
    /// For how long the address is out of circulation.
    pub probation_seconds: u64,
    /// Grant another address in the same commit.
    pub again: bool,
}

/// Which reservations `ip.list` shows. Every given member must match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Filter {
    /// Scope.
    pub scope: Option<Scope>,
    /// Owner.
    pub owner: Option<Owner>,
    /// A prefix of the owner's name.
    pub owner_prefix: Option<CompactString>,
    /// Claimant.
    pub claimant: Option<Claimant>,
    /// With a claimant, or without one.
    pub bound: Option<bool>,
    /// A label `k`, or `k=v`.
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
    /// The lease ends before this time.
    pub expires_before: Option<WallTime>,
    /// Created before this time.
    pub created_before: Option<WallTime>,
}

/// The first slice of a list: returns at most `limit` records that match, and looks at no more than
/// [`crate::limits::LIST_SLICE_RECORDS_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSlice {
    /// Which records to show.
    pub filter: Filter,
    /// The slice begins after this address.
    pub after: Option<Address>,
    /// How many at most.
    pub limit: usize,
    /// Only count the records.
    pub count_only: bool,
}

/// The rest of a list, in the state that its network had when the first slice was decided. Its holder asks for the next
/// slices with [`Network::list_rest`](crate::core::network::Network::list_rest). When it is dropped, the network forgets
/// what it kept for it.
#[derive(Debug, PartialEq, Eq)]
pub struct ListRest {
    /// Number of the list in its network, in the order in which lists began.
    pub began: u64,
    /// The network's era when the list began.
    pub era: Arc<()>,
    /// The moment of the first slice: leases are shown as they stood then.
    pub context: Context,
    /// Which records to show.
    pub filter: Filter,
    /// Only count the records.
    pub count_only: bool,
    /// For a list of what one owner holds, its records in order; none for a list that goes over the network.
    pub of_owner: Option<Vec<(Address, Arc<Reservation>)>>,
}
