//! What can be asked of one network: the vocabulary of `decide`, in the words of the protocol.
//!
//! A command is complete: it carries no clock and no randomness (see [`Context`]) and needs nothing but the network's
//! state to be decided. A method over several networks becomes one command for each.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::address::{Address, Cidr, Family, Range};
use super::compact;
use super::state::{Dns, L2, Limits, NetworkKind, Policy, PoolKind, ReservationKind, ReservedFor};
use super::types::{
    Claimant, Generation, Labels, Mac, Name, Owner, OwnerUid, Scope, ShardTime, Slot, SlotKey, SubnetId, Version,
    WallTime,
};

/// What a decision depends on besides state and command.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// The shard's time.
    pub now: ShardTime,
    /// The wall clock, for what people read.
    pub wall: WallTime,
    /// Fresh random bits: new ids and the random policy are drawn from them.
    pub entropy: u128,
    /// A MAC that the command may lead to and another network of the realm uses, and where.
    pub mac_elsewhere: Option<(Mac, Address)>,
}

/// A subnet as a client names it. A text that is no prefix is a name first, then an id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubnetRef {
    /// By its prefix.
    Cidr(Cidr),
    /// By its name, or its id in text form.
    Named(CompactString),
}

/// Pools as a client names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolRef {
    /// The one pool with exactly this range.
    Range(Range),
    /// All pools of this name.
    Named(Name),
}

/// Where an automatic grant may come from, and how large it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Wish {
    /// One family only.
    pub family: Option<Family>,
    /// One subnet only.
    pub subnet: Option<SubnetRef>,
    /// Some pools only.
    pub pool: Option<PoolRef>,
    /// Subnets that serve this zone only.
    pub zone: Option<CompactString>,
    /// A block instead of one address.
    #[serde(deserialize_with = "compact::some_prefix_length")]
    pub prefix_length: Option<u8>,
}

/// The MAC of a reservation, as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MacWish {
    /// Make one under the network's prefix.
    Auto,
    /// This one.
    Given(Mac),
}

/// What may be said with every grant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GrantOptions {
    /// Tells two owners of one name apart.
    pub owner_uid: Option<OwnerUid>,
    /// What exists already is `already_exists`.
    pub must_create: bool,
    /// Where the slot holds another address, it is released in the same commit.
    pub replace: bool,
    /// Made for a machine that is soon gone.
    pub transient: bool,
    /// Lease; none is permanent.
    pub ttl_seconds: Option<u64>,
    /// Who uses it.
    pub claimant: Option<Claimant>,
    /// Released when the claimant is unbound.
    pub release_with_claimant: bool,
    /// Labels; given, they replace those of an existing reservation.
    #[serde(deserialize_with = "compact::some_labels")]
    pub labels: Option<Labels>,
    /// Text for people.
    pub note: Option<CompactString>,
    /// Host name.
    pub hostname: Option<CompactString>,
    /// Hardware address.
    pub mac: Option<MacWish>,
}

/// `ip.allocate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocate {
    /// Who asks, for which slot.
    pub holder: SlotKey,
    /// Where from.
    pub wish: Wish,
    /// The rest.
    pub options: GrantOptions,
}

/// `ip.claim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Who asks, for which slot.
    pub holder: SlotKey,
    /// The address, or the first of the block.
    pub address: Address,
    /// A block instead of one address.
    #[serde(deserialize_with = "compact::some_prefix_length")]
    pub prefix_length: Option<u8>,
    /// Also inside reserved ranges.
    pub force: bool,
    /// The rest.
    pub options: GrantOptions,
}

/// One of the addresses of an `ip.acquire` in this network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireItem {
    /// Its place in the request, over all networks.
    pub index: usize,
    /// The slot.
    pub slot: Slot,
    /// Named, or none for an automatic one.
    pub address: Option<Address>,
    /// Where from; of a named one only the prefix length counts, and subnet, zone and family are checked.
    pub wish: Wish,
    /// Left out where there is no capacity.
    pub optional: bool,
}

/// The part of an `ip.acquire` that falls on this network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// Scope of the owner.
    pub scope: Scope,
    /// The owner.
    pub owner: Owner,
    /// What it wants here, in the order asked.
    pub items: Vec<AcquireItem>,
    /// Release what else the owner holds here.
    pub exact: bool,
    /// The rest; `replace` is implied by `exact`.
    pub options: GrantOptions,
}

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

/// A change of one member: left as it is, removed, or set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Patch<T> {
    /// Not mentioned.
    #[default]
    Keep,
    /// `null`.
    Clear,
    /// A value.
    Set(T),
}

impl<T> Patch<T> {
    /// Is nothing asked?
    pub fn is_keep(&self) -> bool {
        matches!(self, Patch::Keep)
    }
}

/// A merge patch of labels or tags: each key set or removed.
pub type LabelsPatch = Vec<(CompactString, Option<CompactString>)>;

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

/// A slice of a list: at most `limit` records that match, and at most
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

/// A pool as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInput {
    /// Its addresses; none: the whole subnet.
    pub range: Option<Range>,
    /// Name.
    pub name: Option<Name>,
    /// Dynamic where not said.
    pub kind: Option<PoolKind>,
    /// Draining where said.
    pub draining: Option<bool>,
}

/// A reserved range as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedInput {
    /// The addresses.
    pub range: Range,
    /// Text for people.
    pub note: CompactString,
    /// For whom.
    pub reserved_for: Option<ReservedFor>,
}

/// A subnet as it is asked for. `None` is "not said", which `if_absent` does not compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetInput {
    /// Its addresses.
    pub cidr: Cidr,
    /// Name.
    pub name: Option<Name>,
    /// Gateway.
    pub gateway: Option<Address>,
    /// Flag.
    pub dhcp: Option<bool>,
    /// DNS settings.
    pub dns: Option<Dns>,
    /// Zones.
    pub zones: Option<Vec<CompactString>>,
    /// Tags.
    #[serde(deserialize_with = "compact::some_labels")]
    pub tags: Option<Labels>,
    /// Draining.
    pub draining: Option<bool>,
    /// Pools; none: one that spans the subnet.
    pub pools: Option<Vec<PoolInput>>,
    /// Reserved ranges.
    pub reserved: Option<Vec<ReservedInput>>,
}

/// `network.create`. `None` is "not said", which `if_absent` does not compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInput {
    /// Name.
    pub name: Name,
    /// Realm; `default` where not said.
    pub realm: Option<Name>,
    /// Kind; manual where not said.
    pub kind: Option<NetworkKind>,
    /// Link layer.
    pub l2: Option<L2>,
    /// Policy; lowest where not said.
    pub policy: Option<Policy>,
    /// Cooldown; 0 where not said.
    pub cooldown_seconds: Option<u64>,
    /// Cooling addresses yield.
    pub cooldown_yields: Option<bool>,
    /// Claims only in static pools.
    pub static_only: Option<bool>,
    /// Cannot be deleted.
    pub protected: Option<bool>,
    /// Bounds.
    pub limits: Option<Limits>,
    /// Tags.
    #[serde(deserialize_with = "compact::some_labels")]
    pub tags: Option<Labels>,
    /// Text for people.
    pub description: Option<CompactString>,
    /// Subnets.
    pub subnets: Option<Vec<SubnetInput>>,
}

/// `l2` inside a `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct L2Patch {
    /// Mode.
    pub mode: Patch<CompactString>,
    /// Link.
    pub link: Patch<CompactString>,
    /// MAC prefix.
    pub mac_prefix: Patch<CompactString>,
}

/// `limits` inside a `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitsPatch {
    /// Per owner.
    pub per_owner: Patch<u64>,
    /// Per scope.
    pub per_scope: Patch<u64>,
}

/// `network.update`'s `set`. `Clear` puts back the default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetworkPatch {
    /// Rename. Uniqueness is the catalog's.
    pub name: Option<Name>,
    /// Link layer, merged.
    pub l2: Patch<L2Patch>,
    /// Policy.
    pub policy: Patch<Policy>,
    /// Cooldown.
    pub cooldown_seconds: Patch<u64>,
    /// Cooling addresses yield.
    pub cooldown_yields: Patch<bool>,
    /// Claims only in static pools.
    pub static_only: Patch<bool>,
    /// Cannot be deleted.
    pub protected: Patch<bool>,
    /// Bounds, merged.
    pub limits: Patch<LimitsPatch>,
    /// Tags, merged.
    pub tags: Patch<LabelsPatch>,
    /// Text for people.
    pub description: Patch<CompactString>,
}

/// `dns` inside a `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DnsPatch {
    /// Servers, replaced.
    pub servers: Patch<Vec<Address>>,
    /// Search domains, replaced.
    pub search: Patch<Vec<CompactString>>,
}

/// `subnet.modify`'s `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SubnetPatch {
    /// Grow or shrink.
    pub cidr: Option<Cidr>,
    /// Name.
    pub name: Patch<Name>,
    /// Gateway.
    pub gateway: Patch<Address>,
    /// Flag.
    pub dhcp: Patch<bool>,
    /// DNS settings, merged.
    pub dns: Patch<DnsPatch>,
    /// Zones, replaced.
    pub zones: Patch<Vec<CompactString>>,
    /// Tags, merged.
    pub tags: Patch<LabelsPatch>,
    /// Draining.
    pub draining: Patch<bool>,
    /// Pools, replaced; `Clear` leaves none.
    pub pools: Patch<Vec<PoolInput>>,
}

/// `pool.modify`'s `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolPatch {
    /// New range, inside one subnet.
    pub range: Option<Range>,
    /// Name.
    pub name: Patch<Name>,
    /// Kind.
    pub kind: Patch<PoolKind>,
    /// Draining.
    pub draining: Patch<bool>,
}

/// What `pool.remove` takes away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolRemoval {
    /// These addresses, out of whichever pools; the middle of a pool splits it.
    Range(Range),
    /// All pools of the name, or the pool of that range.
    Pool(PoolRef),
    /// All pools of a subnet.
    Subnet(SubnetRef),
}

/// A change of configuration that concerns one network alone. Overlaps with other networks of the realm and names of
/// networks are checked by the catalog before it is decided here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Configure {
    /// `network.update`.
    Update(Box<NetworkPatch>),
    /// `network.delete`: refused while something is held, remembered with `force`, emptied with `purge`.
    Delete {
        /// Close it although something is held.
        force: bool,
        /// Release everything that is held.
        purge: bool,
    },
    /// `network.restore`.
    Restore,
    /// `subnet.add`.
    SubnetAdd {
        /// The subnet.
        input: Box<SubnetInput>,
        /// What is there already and equal is answered.
        if_absent: bool,
    },
    /// `subnet.modify`.
    SubnetModify {
        /// Which.
        subnet: SubnetRef,
        /// What changes.
        set: Box<SubnetPatch>,
    },
    /// `subnet.remove`.
    SubnetRemove {
        /// Which.
        subnet: SubnetRef,
    },
    /// `pool.add`.
    PoolAdd {
        /// The pool; its range, or the whole of `subnet`.
        input: PoolInput,
        /// In place of a range.
        subnet: Option<SubnetRef>,
        /// What is there already and equal is answered.
        if_absent: bool,
    },
    /// `pool.modify`.
    PoolModify {
        /// Which; a name that several pools share is `invalid_argument`.
        pool: PoolRef,
        /// What changes.
        set: Box<PoolPatch>,
    },
    /// `pool.remove`.
    PoolRemove(PoolRemoval),
    /// `reserved.add`.
    ReservedAdd(Box<ReservedInput>),
    /// `reserved.remove`.
    ReservedRemove(Range),
}

/// How `network.map` draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapFormat {
    /// A character an address.
    Text,
    /// Runs of equal state.
    Runs,
    /// Counts per cell of this prefix length.
    Cells {
        /// Prefix length of a cell.
        #[serde(deserialize_with = "compact::prefix_length")]
        prefix_length: u8,
    },
}

/// Everything that can be asked of one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// `ip.allocate`.
    Allocate(Box<Allocate>),
    /// `ip.claim`.
    Claim(Box<Claim>),
    /// The part of `ip.acquire` that falls here.
    Acquire(Box<Acquire>),
    /// `ip.release`.
    Release(Box<Release>),
    /// `ip.renew`; none makes it permanent.
    Renew(Box<Target>, Option<u64>),
    /// `ip.bind`.
    Bind(Box<Target>, Claimant),
    /// `ip.unbind`; a claimant where one was named.
    Unbind(Box<Target>, Option<Claimant>),
    /// `ip.update`.
    Update(Box<Target>, Box<ReservationPatch>),
    /// `ip.transfer`.
    Transfer(Box<Transfer>),
    /// `ip.decline`.
    Decline(Box<Decline>),
    /// `ip.get`, `ip.find`.
    Get(Address),
    /// A slice of `ip.list`.
    List(Box<ListSlice>),
    /// A slice of `owner.release`: at most `limit`.
    ReleaseOwner {
        /// Scope of the owner.
        scope: Scope,
        /// The owner.
        owner: Owner,
        /// How many at most.
        limit: usize,
    },
    /// A slice of `scope.release`: at most `limit`.
    ReleaseScope {
        /// The scope.
        scope: Scope,
        /// How many at most.
        limit: usize,
    },
    /// Empties a network that is being purged: a slice of at most `limit` entries.
    Purge {
        /// How many at most.
        limit: usize,
    },
    /// `network.get`.
    Show,
    /// `network.usage`.
    Usage,
    /// `network.map`.
    Map {
        /// One subnet only.
        subnet: Option<SubnetRef>,
        /// Some pools only.
        pool: Option<PoolRef>,
        /// How.
        format: MapFormat,
    },
    /// `scope.list`.
    Scopes,
    /// A change of configuration.
    Configure {
        /// What.
        change: Configure,
        /// Refused where the network has moved on.
        if_version: Option<Version>,
    },
    /// Takes a subnet out for `subnet.move`; answers what [`Command::MoveIn`] needs.
    MoveOut {
        /// Which.
        subnet: SubnetRef,
        /// Refused where the network has moved on.
        if_version: Option<Version>,
    },
    /// Takes in what another network gave up, generations and all.
    MoveIn(Box<Moved>),
    /// Ends leases, cooldowns and probations that are due, at most [`crate::limits::EXPIRE_STEPS_MAX`].
    Expire,
}

/// A subnet on its way from one network to another, with all that lies in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The subnet.
    pub subnet: std::sync::Arc<super::state::SubnetConfig>,
    /// What lies in it.
    #[serde(deserialize_with = "compact::entries")]
    pub entries: Vec<(Address, super::state::Entry)>,
    /// The network that takes it in gives no generation below this one.
    pub next_generation: Generation,
}

impl Command {
    /// Does it only read?
    pub fn is_read(&self) -> bool {
        match self {
            Command::Get(_)
            | Command::List(_)
            | Command::Show
            | Command::Usage
            | Command::Map { .. }
            | Command::Scopes => true,
            Command::Allocate(_)
            | Command::Claim(_)
            | Command::Acquire(_)
            | Command::Release(_)
            | Command::Renew(..)
            | Command::Bind(..)
            | Command::Unbind(..)
            | Command::Update(..)
            | Command::Transfer(_)
            | Command::Decline(_)
            | Command::ReleaseOwner { .. }
            | Command::ReleaseScope { .. }
            | Command::Purge { .. }
            | Command::Configure { .. }
            | Command::MoveOut { .. }
            | Command::MoveIn(_)
            | Command::Expire => false,
        }
    }

    /// Does it take nothing new, so that a full disk lets it pass?
    pub fn lets_go(&self) -> bool {
        matches!(
            self,
            Command::Release(_)
                | Command::ReleaseOwner { .. }
                | Command::ReleaseScope { .. }
                | Command::Purge { .. }
                | Command::Unbind(..)
                | Command::Expire
                | Command::Configure { change: Configure::Delete { .. }, .. }
        ) || self.is_read()
    }
}

/// The draw of this number out of the entropy of one context: every bit depends on all of it.
pub fn mixed(entropy: u128, index: u64) -> u128 {
    // SplitMix64 over both halves.
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let (high, low) = ((entropy >> 64) as u64, entropy as u64);
    u128::from(mix(high ^ mix(index))) << 64 | u128::from(mix(low.wrapping_add(index) ^ high.rotate_left(17)))
}

/// Identity of something new, for commands that make several; version and variant bits as UUID v4 wants them.
pub fn derived_id(entropy: u128, index: u64) -> u128 {
    (mixed(entropy, index) & !(0xf << 76) & !(0b11 << 62)) | (0x4 << 76) | (0b10 << 62)
}

/// Identity of a new subnet.
pub fn subnet_id(entropy: u128, index: u64) -> SubnetId {
    SubnetId(derived_id(entropy, index))
}
