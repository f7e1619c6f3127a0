//! Every "no" of the domain: what was asked, what stands in the way and what to do, with the facts as fields.
//!
//! `Display` is the sentence that people read, made here once. The place in the order of kinds is told here, too; the server
//! turns it into an error kind, and the fields into `error.data`.

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
    /// A value that cannot be meant.
    #[error("`{field}` {problem}")]
    InvalidArgument {
        /// The member, as a path: `subnets[0].gateway`.
        field: String,
        /// What is wrong, as a fragment after the field.
        problem: String,
    },
    /// What is named does not exist.
    #[error("{} {what} does not exist; {}", .missing.noun(), .hint.as_deref().unwrap_or(.missing.where_to_look()))]
    NotFound {
        /// What sort of thing.
        missing: Missing,
        /// How it was named, ready for a sentence: `` `lan` ``.
        what: String,
        /// What to do, as a sentence without full stop; none: look where such things are shown.
        hint: Option<String>,
    },
    /// Static asked of a dynamic network, and the like.
    #[error("{problem}")]
    WrongKind {
        /// The sentence.
        problem: String,
        /// The address, where one was named.
        address: Option<Address>,
    },
    /// The address lies in no subnet of the network, a pool outside its subnet.
    #[error("{problem}")]
    OutOfRange {
        /// The sentence.
        problem: String,
        /// The address, where one was named.
        address: Option<Address>,
    },
    /// Two subnets of a realm, or two pools.
    #[error("{} overlaps {with} of {}", .asked.as_typed(), whose_space(.network, *.remembered))]
    Overlap {
        /// What was asked for.
        asked: Range,
        /// What it overlaps.
        with: Cidr,
        /// Whose that is.
        network: Name,
        /// Where it is deleted and only remembered.
        remembered: Option<Remembered>,
    },
    /// Two pools of one subnet.
    #[error("pool {} overlaps pool {} of network `{network}`; pools never overlap, so choose another range", .asked.as_typed(), .with.as_typed())]
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
        /// What, ready for the beginning of a sentence.
        what: String,
        /// How many reservations stand in the way.
        count: u64,
        /// The first of them, at most ten.
        first: Vec<Address>,
    },
    /// More would move with a subnet than may at once.
    #[error(
        "subnet {subnet} cannot move at once: what lies in it, {} among it, takes at least {bytes} bytes of a commit, and at most \
         {bytes_max} may move at once; release some of it, move the subnet, then ip.claim in its new network what was released",
        counted(*.count, "reservation")
    )]
    TooMuchToMove {
        /// The subnet.
        subnet: Cidr,
        /// How many reservations lie in it.
        count: u64,
        /// The first of them, at most ten.
        first: Vec<Address>,
        /// What the move takes, at least.
        bytes: usize,
        /// What may move at once.
        bytes_max: usize,
    },
    /// Something is used or guarded for another reason than reservations.
    #[error("{problem}")]
    Guarded {
        /// The sentence.
        problem: String,
        /// How many reservations lie in it; none in what cannot hold any.
        count: u64,
        /// The first of them, at most ten.
        first: Vec<Address>,
    },
    /// Somebody else holds it.
    #[error(
        "{address} is not held by {} but by {}; name its holder, if it is meant (`ip.release` of the address alone may `force` it)",
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
    #[error("{address} is at generation {}, not {}: it changed hands since; look again with ip.get", .actual.map_or_else(|| "none".to_owned(), |g| g.0.to_string()), .expected.0)]
    GenerationConflict {
        /// The address.
        address: Address,
        /// What the request speaks of.
        expected: Generation,
        /// What is there.
        actual: Option<Generation>,
    },
    /// `if_version` did not match.
    #[error(
        "network `{network}` is at version {actual}, not {expected}: somebody changed it; read it again with network.get"
    )]
    VersionConflict {
        /// The network.
        network: Name,
        /// What the request speaks of.
        expected: u64,
        /// What is there.
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
    /// The address, MAC or owner is taken in another way than by a holder of the address.
    #[error("{problem}")]
    Taken {
        /// The sentence.
        problem: String,
        /// Where that address is held; of what its holder has, [`super::network::Network::decide`] fills it in.
        network: Option<Name>,
        /// The address it concerns.
        address: Option<Address>,
        /// Who holds it.
        held_by: Option<Box<HeldBy>>,
        /// A MAC that another network of the realm uses, at that address: who holds it only that network knows, and it is
        /// asked before the refusal leaves. So it never crosses between nodes.
        #[serde(skip)]
        used_in: Option<(Mac, NetworkId)>,
    },
    /// Nobody holds any of it, but so much of it cools that one commit does not clear it.
    #[error(
        "{block} of network `{network}` is free but for what cools there, in more than {pieces_max} pieces, and one commit clears no \
         more; ask for smaller blocks of it, or again when the cooldown is over"
    )]
    Cools {
        /// The network.
        network: Name,
        /// What was asked for.
        block: Range,
        /// Pieces that one commit clears.
        pieces_max: usize,
    },
    /// The slot holds another address, or one that does not match what is asked.
    #[error("{holder} already holds {address} in network `{network}`{}; release it first, or name another slot (`ip.allocate`, `ip.claim` and `ip.acquire` may `replace` it)", differs_of(.differs))]
    SlotTaken {
        /// The network.
        network: Name,
        /// Whose slot.
        holder: SlotKey,
        /// What it holds.
        address: Address,
        /// Members in which it differs from what was asked.
        differs: Vec<Cow<'static, str>>,
    },
    /// A name is taken, or what is there differs from what `if_absent` asks for.
    #[error("{what} already exists{}; name another one{}", differs_of(.differs), if .differs.is_empty() { "" } else { ", or change that one" })]
    NameTaken {
        /// What, ready for the beginning of a sentence.
        what: String,
        /// Members in which it differs from what was asked.
        differs: Vec<Cow<'static, str>>,
    },
    /// External reservation, gateway, network or broadcast address, or draining.
    #[error("{address} is {why}")]
    Reserved {
        /// The address.
        address: Address,
        /// Why, as a fragment: `the gateway of subnet …`.
        why: String,
    },
    /// Limits.
    #[error(
        "{who} would hold {} in network `{network}`, its limit is {max}; ask for fewer, release some, or raise \
         `limits.{limit}`",
        counted(*.would_hold, "reservation")
    )]
    QuotaExceeded {
        /// The network.
        network: Name,
        /// Whose limit: ready for the beginning of a sentence.
        who: String,
        /// `per_owner` or `per_scope`.
        limit: Cow<'static, str>,
        /// How many it would hold after the request.
        would_hold: u64,
        /// The bound.
        max: u64,
    },
    /// No room.
    #[error("network `{}` has no free {}{}{}", .0.network, .0.sought(), .0.where_sought(), .0.why())]
    NotEnoughCapacity(Box<NoCapacity>),
    /// A sweep would let go of too much.
    #[error(
        "the sweep would let go of {would_release} of the {} of scope `{scope}`, more than `max_share` allows: nothing was \
         changed; make sure that everybody alive was named, or allow a larger `max_share`",
        counted(*.reservations, "reservation")
    )]
    Brake {
        /// The scope.
        scope: Scope,
        /// What would be let go.
        would_release: u64,
        /// How many the scope has, over all networks.
        reservations: u64,
    },
    /// `plan` is not the latest, or ended the other way, or cannot end so because of a promise.
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
        /// What stands in the way, where it is not that another one is the latest.
        hindrance: Option<PlanHindrance>,
    },
    /// Somebody else declined it.
    #[error(
        "{address} is not held by {}: it was declined by {}, and nobody holds it; ip.get shows what it is",
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
    /// Two wishes of one request for one slot.
    #[error(
        "slot `{}` is wished for twice in network `{network}`{}; leave one of the wishes out, or name another slot",
        .holder.slot, differs_of(.differs)
    )]
    WishedTwice {
        /// The network.
        network: Name,
        /// Whose slot.
        holder: SlotKey,
        /// The address that the first of them names, or that the slot holds.
        address: Option<Address>,
        /// Members in which they differ.
        differs: Vec<Cow<'static, str>>,
    },
    /// A deleted network is to come back, and its name is another one's by now.
    #[error(
        "network `{name}` already exists: another one has got that name since this one was deleted; give that one another name \
         with network.update, or delete it, then restore this one"
    )]
    NameTakenSince {
        /// The name of both.
        name: Name,
    },
    // What is skipped stands last: between nodes, variants are numbers.
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
        /// Its place in the request.
        index: usize,
        /// Why.
        refusal: Box<Refusal>,
    },
}

/// Members of a request, as a refusal names them.
pub fn members(names: Vec<&'static str>) -> Vec<Cow<'static, str>> {
    names.into_iter().map(Cow::Borrowed).collect()
}

/// What the protocol calls the refusals, in its order of precedence.
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
    /// An `invalid_argument` of this member.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Refusal::InvalidArgument { field: field.into(), problem: problem.into() }
    }

    /// A request that lets go of more than may become durable at once: an `ip.acquire` that is `exact`.
    pub fn too_much_at_once(bytes: usize, bytes_max: usize) -> Self {
        let problem = format!(
            "lets go of so much that it counts for {bytes} bytes of one commit, for which everybody else waits, and at most \
             {bytes_max} may become durable at once; let go of it first: of what is too much with ip.release, or of all that the \
             owner holds with owner.release, which does it piece by piece"
        );
        Refusal::invalid("exact", problem)
    }

    /// An `invalid_argument` from a text that may not be.
    pub fn text(field: &str, problem: &InvalidText) -> Self {
        Refusal::invalid(field, problem.to_string())
    }

    /// A thing that does not exist.
    pub fn not_found(missing: Missing, what: impl std::fmt::Display) -> Self {
        Refusal::NotFound { missing, what: format!("`{what}`"), hint: None }
    }

    /// A network that was there when somebody asked for it, and is no more: by its last name, too, as few know its id.
    pub fn network_gone(name: Option<&Name>, id: NetworkId) -> Self {
        let what = name.map_or_else(|| format!("`{id}`"), |name| format!("`{name}` ({id})"));
        Refusal::NotFound { missing: Missing::Network, what, hint: None }
    }

    /// No capacity was found, and none came in this time.
    pub fn note_wait(&mut self, waited_ms: u64) {
        match self {
            Refusal::NotEnoughCapacity(why) => why.waited_ms = Some(waited_ms),
            Refusal::OfItem { refusal, .. } => refusal.note_wait(waited_ms),
            _ => {} // Nothing else is waited for.
        }
    }

    /// All that its owner has was let go of while it waited.
    pub fn note_end_of_wait(&mut self) {
        match self {
            Refusal::NotEnoughCapacity(why) => why.is_ended = true,
            Refusal::OfItem { refusal, .. } => refusal.note_end_of_wait(),
            _ => {} // Nothing else is waited for.
        }
    }

    /// Names the network in which an address is taken, where the refusal does not.
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

    /// A MAC that another network of the realm uses, that network, and the address there, where it is not said who holds it.
    pub fn unnamed_user(&self) -> Option<(Mac, NetworkId, Address)> {
        match self {
            Refusal::Taken { address: Some(address), held_by: None, used_in: Some((mac, network)), .. } => {
                Some((*mac, *network, *address))
            }
            Refusal::OfItem { refusal, .. } | Refusal::OfInstance { refusal, .. } => refusal.unnamed_user(),
            _ => None, // Whatever else is refused is known where it is refused.
        }
    }

    /// Says who holds what is taken.
    pub fn name_holder(&mut self, by: HeldBy) {
        match self {
            Refusal::Taken { problem, held_by, .. } => {
                // What stands in the way comes first in the sentence, then what to do.
                if let Some(end) = problem.find(';') {
                    problem.insert_str(end, &format!(", held by {}", by.holder));
                }
                *held_by = Some(Box::new(by));
            }
            Refusal::OfItem { refusal, .. } | Refusal::OfInstance { refusal, .. } => refusal.name_holder(by),
            _ => {} // It has no holder, or names it.
        }
    }

    /// Where want of room stands in that order.
    pub(crate) const OF_NO_CAPACITY: u8 = 12;

    /// Place in the protocol's order of precedence, and in [`KINDS`]: where several apply, the lowest is answered.
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

/// Whose space somebody else wants, and what to do; also where nobody can name the network by its name any more.
fn whose_space(network: &Name, remembered: Option<Remembered>) -> String {
    let choose = "choose another range, or a realm of its own";
    match remembered {
        None => format!("network `{network}`; {choose}"),
        Some(Remembered { id, purged: true }) => format!(
            "network {id} (deleted for good; it was called `{network}`), of which all is being released; ask again in a moment, or \
             {choose}"
        ),
        Some(Remembered { id, purged: false }) => format!(
            "network {id} (deleted; it was called `{network}`), which is remembered while anything is held in it; release that \
             (ip.list shows it, with the id as `network`), bring the network back with network.restore, or {choose}"
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
