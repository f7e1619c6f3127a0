//! Every "no" of the domain: what was asked, what stands in the way and what to do, with the facts as fields.
//!
//! `Display` is the sentence that people read; it is made only here, and so is the order of precedence. The server turns a
//! refusal into an error kind, and its fields into `error.data`.

mod facts;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use self::facts::{HeldBy, Missing, NoCapacity, PlanHindrance, Remembered};
use super::address::{Address, Cidr, Range};
use super::plural::counted;
use super::types::{Generation, InvalidText, Mac, Name, NetworkId, Owner, Scope, SlotKey};

/// A refusal. One variant per cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A value that makes no sense.
    #[error("`{field}` {problem}")]
    InvalidArgument {
        /// Path of the member: `subnets[0].gateway`.
        field: String,
        /// What is wrong, as a fragment that follows the field.
        problem: String,
    },
    /// The named thing does not exist.
    #[error("{} {what} does not exist; {}", .missing.noun(), .hint.as_deref().unwrap_or(.missing.where_to_look()))]
    NotFound {
        /// What sort of thing.
        missing: Missing,
        /// How it was named, ready for a sentence: `` `lan` ``.
        what: String,
        /// What to do, as a sentence without full stop; none points to where such things are shown.
        hint: Option<String>,
    },
    /// For example, a static address was asked of a dynamic network.
    #[error("{problem}")]
    WrongKind {
        /// The sentence.
        problem: String,
        /// The address, if one was named.
        address: Option<Address>,
    },
    /// The address lies in no subnet of the network, or a pool lies outside its subnet.
    #[error("{problem}")]
    OutOfRange {
        /// The sentence.
        problem: String,
        /// The address, if one was named.
        address: Option<Address>,
    },
    /// The range overlaps a subnet of the realm.
    #[error("{} overlaps {with} of {}", .asked.as_typed(), whose_space(.network, *.remembered))]
    Overlap {
        /// What was asked for.
        asked: Range,
        /// What it overlaps.
        with: Cidr,
        /// The network that has it.
        network: Name,
        /// Set if that network is deleted and only remembered.
        remembered: Option<Remembered>,
    },
    /// Two pools of one subnet overlap.
    #[error("pool {} overlaps pool {} of network `{network}`; pools never overlap, so choose another \
     range", .asked.as_typed(), .with.as_typed())]
    PoolOverlap {
        /// What was asked for.
        asked: Range,
        /// What it overlaps.
        with: Range,
        /// The network.
        network: Name,
    },
    /// The thing to be removed or shrunk is still used.
    #[error("{what} is in use: {}{}", counted(*.count, "reservation"), first_of(*.count, .first))]
    InUse {
        /// The thing, ready for the beginning of a sentence.
        what: String,
        /// How many reservations stand in the way.
        count: u64,
        /// The first of them, at most ten.
        first: Vec<Address>,
    },
    /// A subnet is too large to move in one commit.
    #[error(
        "subnet {subnet} is too large to move in one commit: its contents, {} among them, take at least {bytes} bytes, and at \
         most {bytes_max} can move at once; release some reservations, move the subnet, then take them again with ip.claim in \
         the new network",
        counted(*.count, "reservation")
    )]
    TooMuchToMove {
        /// The subnet.
        subnet: Cidr,
        /// How many reservations lie in it.
        count: u64,
        /// The first of them, at most ten.
        first: Vec<Address>,
        /// The least number of bytes that the move takes.
        bytes: usize,
        /// The bytes that may move at once.
        bytes_max: usize,
    },
    /// Something is in use or guarded for a reason other than reservations.
    #[error("{problem}")]
    Guarded {
        /// The sentence.
        problem: String,
        /// How many reservations lie in it; 0 for things that cannot hold any.
        count: u64,
        /// The first of them, at most ten.
        first: Vec<Address>,
    },
    /// Somebody else holds it.
    #[error(
        "{address} is not held by {} but by {}; name that holder if this reservation is meant (an `ip.release` of the address \
         alone also accepts `force`)",
        .asked.beside(&.held_by.holder), .held_by.holder.beside(.asked)
    )]
    NotOwner {
        /// The address.
        address: Address,
        /// Who was named.
        asked: SlotKey,
        /// Who holds it.
        held_by: Box<HeldBy>,
    },
    /// `if_generation` did not match.
    #[error("{address} is at generation {}, not {}: it has changed hands since; look again with \
     ip.get", .actual.map_or_else(|| "none".to_owned(), |g| g.0.to_string()), .expected.0)]
    GenerationConflict {
        /// The address.
        address: Address,
        /// The generation in the request.
        expected: Generation,
        /// The present generation.
        actual: Option<Generation>,
    },
    /// `if_version` did not match.
    #[error(
        "network `{network}` is at version {actual}, not {expected}: somebody changed it; read it again with network.get"
    )]
    VersionConflict {
        /// The network.
        network: Name,
        /// The version in the request.
        expected: u64,
        /// The present version.
        actual: u64,
    },
    /// The address is held by another owner.
    #[error("{address} of network `{network}` is held by {}; ask for another address, or have it released", .held_by.holder)]
    AlreadyInUse {
        /// The network.
        network: Name,
        /// The address.
        address: Address,
        /// Who holds it.
        held_by: Box<HeldBy>,
    },
    /// An address, MAC or owner is taken, but not by a holder of the requested address.
    #[error("{problem}")]
    Taken {
        /// The sentence.
        problem: String,
        /// The network in which that address is held. If a holder is known, [`super::network::Network::decide`] fills it in.
        network: Option<Name>,
        /// The address that it concerns.
        address: Option<Address>,
        /// Who holds it.
        held_by: Option<Box<HeldBy>>,
        /// A MAC that another network of the realm uses at that address. Only that network knows the holder, and it is asked
        /// before the refusal leaves, so this never crosses between nodes.
        #[serde(skip)]
        used_in: Option<(Mac, NetworkId)>,
    },
    /// Nobody holds any part of the block, but it contains more cooling ranges than one commit can clear.
    #[error(
        "{block} of network `{network}` is held by nobody, but more than {pieces_max} cooling ranges lie in it, and one commit \
         clears at most that many; ask for smaller blocks, or again after the cooldown"
    )]
    Cools {
        /// The network.
        network: Name,
        /// What was asked for.
        block: Range,
        /// Cooling ranges that one commit clears.
        pieces_max: usize,
    },
    /// The slot already holds another address, or one that differs from what is asked.
    #[error("{holder} already holds {address} in network `{network}`{}; release it first, or name another slot (`ip.allocate`, \
     `ip.claim` and `ip.acquire` also accept `replace`)", differs_of(.differs))]
    SlotTaken {
        /// The network.
        network: Name,
        /// The slot.
        holder: SlotKey,
        /// What it holds.
        address: Address,
        /// Members in which it differs from the request.
        differs: Vec<Cow<'static, str>>,
    },
    /// A name is taken, or the existing thing differs from what `if_absent` asks for.
    #[error("{what} already exists{}; choose another name{}", differs_of(.differs), if .differs.is_empty() { "" } else { ", or \
     change the existing one" })]
    NameTaken {
        /// The thing, ready for the beginning of a sentence.
        what: String,
        /// Members in which it differs from the request.
        differs: Vec<Cow<'static, str>>,
    },
    /// The address is reserved, a gateway, a network or broadcast address, or draining.
    #[error("{address} is {why}")]
    Reserved {
        /// The address.
        address: Address,
        /// Why, as a fragment: `the gateway of subnet …`.
        why: String,
    },
    /// A limit would be exceeded.
    #[error(
        "{who} would hold {} in network `{network}`, but its limit is {max}; ask for fewer, release some, or raise \
         `limits.{limit}`",
        counted(*.would_hold, "reservation")
    )]
    QuotaExceeded {
        /// The network.
        network: Name,
        /// Whose limit, ready for the beginning of a sentence.
        who: String,
        /// `per_owner` or `per_scope`.
        limit: Cow<'static, str>,
        /// How many reservations there would be after the request.
        would_hold: u64,
        /// The limit.
        max: u64,
    },
    /// There is no free address or block.
    #[error("network `{}` has no free {}{}{}", .0.network, .0.sought(), .0.where_sought(), .0.why())]
    NotEnoughCapacity(Box<NoCapacity>),
    /// A sweep would let go of too many reservations.
    #[error(
        "the sweep would release {would_release} of the {} of scope `{scope}`, more than `max_share` allows: nothing was \
         changed; make sure that every live claimant was named, or allow a larger `max_share`",
        counted(*.reservations, "reservation")
    )]
    Brake {
        /// The scope.
        scope: Scope,
        /// How many it would release.
        would_release: u64,
        /// How many the scope has, over all networks.
        reservations: u64,
    },
    /// `plan` is not the latest, has ended the other way, or cannot end this way because of a promise.
    #[error("deployment `{deployment}`: {problem}")]
    PlanConflict {
        /// The deployment.
        deployment: Scope,
        /// The sentence.
        problem: String,
        /// The plan that was named.
        expected: u64,
        /// The latest.
        actual: u64,
        /// What stands in the way, unless it is that another plan is the latest.
        hindrance: Option<PlanHindrance>,
    },
    /// The address is declined, and not by the owner that was named.
    #[error(
        "{address} is not held by {}: it was declined by {}, and nobody holds it; ip.get shows its state",
        .asked.beside(.by), .by.beside(.asked)
    )]
    DeclinedByOther {
        /// The address.
        address: Address,
        /// Who was named.
        asked: SlotKey,
        /// Who held and declined it.
        by: SlotKey,
    },
    /// One request wishes for the same slot twice.
    #[error(
        "slot `{}` is requested twice in network `{network}`{}; leave one of the two out, or name another slot",
        .holder.slot, differs_of(.differs)
    )]
    WishedTwice {
        /// The network.
        network: Name,
        /// The slot.
        holder: SlotKey,
        /// The address that the first wish names, or that the slot holds.
        address: Option<Address>,
        /// Members in which the two differ.
        differs: Vec<Cow<'static, str>>,
    },
    /// A deleted network is to come back, but another network has taken its name.
    #[error(
        "network `{name}` already exists: another network has taken that name since this one was deleted; rename that one with \
         network.update, or delete it, then restore this one"
    )]
    NameTakenSince {
        /// The name of both.
        name: Name,
    },
    // What serde skips stands last: between nodes, variants are numbers.
    /// A refusal of what one instance of a deployment wishes. Crosses between nodes by [`super::compact::refusal`].
    #[serde(skip)]
    #[error("instance `{instance}`: {refusal}")]
    OfInstance {
        /// The instance.
        instance: Owner,
        /// Why.
        refusal: Box<Refusal>,
    },
    /// A refusal of one member of an acquire. Crosses between nodes by [`super::compact::refusal`].
    #[serde(skip)]
    #[error("ips[{index}]: {refusal}")]
    OfItem {
        /// Its index in the request.
        index: usize,
        /// Why.
        refusal: Box<Refusal>,
    },
}

/// Members of a request for the list in a refusal.
pub fn members(names: Vec<&'static str>) -> Vec<Cow<'static, str>> {
    names.into_iter().map(Cow::Borrowed).collect()
}

/// The protocol's kinds of refusals, in order of precedence.
pub const KINDS: [&str; 14] = [
    "invalid_argument",
    "not_found",
    "wrong_kind",
    "out_of_range",
    "overlap",
    "in_use",
    "not_owner",
    "conflict",
    "already_in_use",
    "already_exists",
    "reserved",
    "quota_exceeded",
    "not_enough_capacity",
    "brake",
];

impl Refusal {
    /// An `invalid_argument` about this member.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Refusal::InvalidArgument { field: field.into(), problem: problem.into() }
    }

    /// The refusal of an `ip.acquire` with `exact` that would let go of more than one commit may carry.
    pub fn too_much_at_once(bytes: usize, bytes_max: usize) -> Self {
        let problem = format!(
            "would release so much that it takes {bytes} bytes of one commit, for which everybody else would wait; at most \
             {bytes_max} are allowed. First release part of it with ip.release, or everything that the owner holds with \
             owner.release, which works in pieces"
        );
        Refusal::invalid("exact", problem)
    }

    /// The refusal of a list of subnets that takes more than one commit may carry.
    pub fn too_much_configuration(field: &str, bytes: u64, bytes_max: u64) -> Self {
        let problem = format!(
            "would take {bytes} bytes of one commit; at most {bytes_max} are allowed. Give fewer subnets, or less with each, and add the rest with subnet.add and subnet.modify"
        );
        Refusal::invalid(field, problem)
    }

    /// An `invalid_argument` about a text that is not allowed.
    pub fn text(field: &str, problem: &InvalidText) -> Self {
        Refusal::invalid(field, problem.to_string())
    }

    /// A thing that does not exist.
    pub fn not_found(missing: Missing, what: impl std::fmt::Display) -> Self {
        Refusal::NotFound { missing, what: format!("`{what}`"), hint: None }
    }

    /// The refusal if a network existed when the request came, but is gone by now. It gives the last name too, because few
    /// clients know the id.
    pub fn network_gone(name: Option<&Name>, id: NetworkId) -> Self {
        let what = name.map_or_else(|| format!("`{id}`"), |name| format!("`{name}` ({id})"));
        Refusal::NotFound { missing: Missing::Network, what, hint: None }
    }

    /// Records that the request waited this long and found no capacity in that time.
    pub fn note_wait(&mut self, waited_ms: u64) {
        match self {
            Refusal::NotEnoughCapacity(why) => why.waited_ms = Some(waited_ms),
            Refusal::OfItem { refusal, .. } => refusal.note_wait(waited_ms),
            _ => {} // Nothing else is waited for.
        }
    }

    /// Records that the wait was ended, because everything that its owner holds was released.
    pub fn note_end_of_wait(&mut self) {
        match self {
            Refusal::NotEnoughCapacity(why) => why.is_ended = true,
            Refusal::OfItem { refusal, .. } => refusal.note_end_of_wait(),
            _ => {} // Nothing else is waited for.
        }
    }

    /// Is it a lack of capacity that no freed address can end?
    pub fn no_pool_fits(&self) -> bool {
        match self {
            Refusal::NotEnoughCapacity(why) => why.no_pool_fits,
            Refusal::OfItem { refusal, .. } | Refusal::OfInstance { refusal, .. } => refusal.no_pool_fits(),
            _ => false, // No other refusal is a lack of capacity.
        }
    }

    /// Adds the network in which an address is taken, if the refusal does not name it yet.
    pub fn taken_in(self, name: &Name) -> Self {
        match self {
            Refusal::Taken { problem, network: None, address, held_by, used_in } => {
                Refusal::Taken { problem, network: Some(name.clone()), address, held_by, used_in }
            }
            Refusal::OfItem { index, refusal } => Refusal::OfItem { index, refusal: Box::new(refusal.taken_in(name)) },
            Refusal::OfInstance { instance, refusal } => {
                Refusal::OfInstance { instance, refusal: Box::new(refusal.taken_in(name)) }
            }
            other => other,
        }
    }

    /// The MAC that another network of the realm uses, that network, and the address there, if the holder is not known yet.
    pub fn unnamed_user(&self) -> Option<(Mac, NetworkId, Address)> {
        match self {
            Refusal::Taken { address: Some(address), held_by: None, used_in: Some((mac, network)), .. } => {
                Some((*mac, *network, *address))
            }
            Refusal::OfItem { refusal, .. } | Refusal::OfInstance { refusal, .. } => refusal.unnamed_user(),
            _ => None, // Every other refusal knows its facts where it is made.
        }
    }

    /// Adds who holds what is taken.
    pub fn name_holder(&mut self, by: HeldBy) {
        match self {
            Refusal::Taken { problem, held_by, .. } => {
                // The sentence first says what stands in the way, then, after the semicolon, what to do.
                if let Some(end) = problem.find(';') {
                    problem.insert_str(end, &format!(", held by {}", by.holder));
                }
                *held_by = Some(Box::new(by));
            }
            Refusal::OfItem { refusal, .. } | Refusal::OfInstance { refusal, .. } => refusal.name_holder(by),
            _ => {} // The refusal has no holder, or names it already.
        }
    }

    /// The place of a lack of capacity in that order.
    pub(crate) const OF_NO_CAPACITY: u8 = 12;

    /// Place in the protocol's order of precedence, and in [`KINDS`]: of several refusals that apply, the one with the
    /// lowest is answered.
    pub fn precedence(&self) -> u8 {
        match self {
            Refusal::InvalidArgument { .. } => 0,
            Refusal::NotFound { .. } => 1,
            Refusal::WrongKind { .. } => 2,
            Refusal::OutOfRange { .. } => 3,
            Refusal::Overlap { .. } | Refusal::PoolOverlap { .. } => 4,
            Refusal::InUse { .. } | Refusal::TooMuchToMove { .. } | Refusal::Guarded { .. } => 5,
            Refusal::NotOwner { .. } | Refusal::DeclinedByOther { .. } => 6,
            Refusal::GenerationConflict { .. } | Refusal::VersionConflict { .. } | Refusal::PlanConflict { .. } => 7,
            Refusal::AlreadyInUse { .. } | Refusal::Taken { .. } | Refusal::Cools { .. } => 8,
            Refusal::SlotTaken { .. }
            | Refusal::NameTaken { .. }
            | Refusal::NameTakenSince { .. }
            | Refusal::WishedTwice { .. } => 9,
            Refusal::Reserved { .. } => 10,
            Refusal::QuotaExceeded { .. } => 11,
            Refusal::NotEnoughCapacity(_) => Self::OF_NO_CAPACITY,
            Refusal::Brake { .. } => 13,
            Refusal::OfItem { refusal, .. } | Refusal::OfInstance { refusal, .. } => refusal.precedence(),
        }
    }
}

/// Whose space it is and what to do, even if the network's name no longer identifies it.
fn whose_space(network: &Name, remembered: Option<Remembered>) -> String {
    let choose = "choose another range, or a realm of its own";
    match remembered {
        None => format!("network `{network}`; {choose}"),
        Some(Remembered { id, purged: true }) => format!(
            "network {id} (deleted for good; it was called `{network}`), whose reservations are being released; ask again in a \
             moment, or {choose}"
        ),
        Some(Remembered { id, purged: false }) => format!(
            "network {id} (deleted; it was called `{network}`), which is remembered as long as anything is held in it; release \
             what it holds (ip.list shows it, with the id as `network`), bring the network back with network.restore, or {choose}"
        ),
    }
}

fn first_of(count: u64, first: &[Address]) -> String {
    let Some((head, rest)) = first.split_first() else { return String::new() };
    let list = rest.iter().fold(head.to_string(), |text, address| format!("{text}, {address}"));
    let more = if count > first.len() as u64 { ", …" } else { "" };
    format!(" ({list}{more}); release {} first", if count == 1 { "it" } else { "them" })
}

fn differs_of(differs: &[Cow<'static, str>]) -> String {
    if differs.is_empty() { String::new() } else { format!(", but differs in {}", differs.join(", ")) }
}
