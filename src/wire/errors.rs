//! Errors of the protocol: kind, code and name in the only table there is, and the facts that go with them.
//!
//! `error.code` and `error.data.kind` are stable, `error.message` is for people. The order of the table up to
//! `not_enough_capacity` is the order of precedence where several errors apply.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::core::address::{Address, Range};
use crate::core::types::{Claimant, Name, Owner, Scope, Slot};
use crate::wire::object::{object, words};
use crate::wire::values::{Count, Cursor, Time};

words! {
    /// May the same request be sent again?
    Retry {
        /// At once.
        Now = "now",
        /// After a while, or after `retry_after_ms`.
        Later = "later",
        /// The same request will not succeed by being repeated.
        Never = "never",
    }
}

macro_rules! error_kinds {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $word:literal $retry:ident $rank:literal,)*) => {
        words! {
            /// What kind of error it is.
            ErrorKind { $($(#[$doc])* $variant = $word,)* }
        }

        impl ErrorKind {
            /// `error.code`.
            pub const fn code(self) -> i32 {
                match self { $(ErrorKind::$variant => $code,)* }
            }

            /// The kind with this code.
            pub fn from_code(code: i64) -> Option<Self> {
                match code { $($code => Some(ErrorKind::$variant),)* _ => None }
            }

            /// What `data.retry` says where nothing better is known.
            pub const fn retry(self) -> Retry {
                match self { $(ErrorKind::$variant => Retry::$retry,)* }
            }

            /// Where several errors apply, the one with the lowest number is answered. Refusals that come before a
            /// request is looked at (not ready, overloaded, …) come before all.
            pub const fn precedence(self) -> u8 {
                match self { $(ErrorKind::$variant => $rank,)* }
            }
        }
    };
}

// kind = code, name, default of `retry`, precedence.
error_kinds! {
    /// No JSON, or not UTF-8.
    ParseError = -32700 "parse_error" Never 0,
    /// No JSON-RPC request.
    InvalidRequest = -32600 "invalid_request" Never 0,
    /// There is no such method.
    MethodNotFound = -32601 "method_not_found" Never 0,
    /// Wrong type or value.
    InvalidArgument = -32602 "invalid_argument" Never 1,
    /// A bug; carries an id found in the log.
    Internal = -32603 "internal" Never 0,
    /// No such network, subnet, pool or reservation.
    NotFound = -32001 "not_found" Never 2,
    /// A name is taken; the slot holds another address.
    AlreadyExists = -32002 "already_exists" Never 10,
    /// The address is held by another owner.
    AlreadyInUse = -32003 "already_in_use" Never 9,
    /// No free address that fits.
    NotEnoughCapacity = -32004 "not_enough_capacity" Later 13,
    /// The address lies in no subnet of the network; a pool outside its subnet.
    OutOfRange = -32005 "out_of_range" Never 4,
    /// External reservation, gateway, network or broadcast address.
    Reserved = -32006 "reserved" Never 11,
    /// It overlaps another subnet or pool.
    Overlap = -32007 "overlap" Never 5,
    /// The thing to be removed or shrunk is still used.
    InUse = -32008 "in_use" Later 6,
    /// Held by another owner than the one named.
    NotOwner = -32009 "not_owner" Never 7,
    /// Static asked of a dynamic network, and the like.
    WrongKind = -32010 "wrong_kind" Never 3,
    /// `if_version`, `if_generation` or `plan` did not match.
    Conflict = -32011 "conflict" Never 8,
    /// An owner or scope holds as many as it may.
    QuotaExceeded = -32012 "quota_exceeded" Later 12,
    /// A sweep would let go of too much.
    Brake = -32013 "brake" Never 14,
    /// The cursor is of a history that is gone.
    CursorLost = -32014 "cursor_lost" Never 14,
    /// The store cannot be reached.
    Unavailable = -32020 "unavailable" Later 0,
    /// Refused before it was looked at.
    Overloaded = -32021 "overloaded" Later 0,
    /// Loading, taking over, or waiting for an operator.
    NotReady = -32022 "not_ready" Later 0,
    /// Another node serves the network.
    Moved = -32023 "moved" Now 0,
    /// The network failed its self-check, and answers only what reads; or it crashed repeatedly.
    NetworkStopped = -32024 "network_stopped" Later 0,
    /// Too many requests in a time.
    RateLimited = -32025 "rate_limited" Later 0,
    /// Who is asking is not known.
    Unauthenticated = -32030 "unauthenticated" Never 0,
    /// Who is asking may not.
    PermissionDenied = -32031 "permission_denied" Never 0,
    /// The line is longer than `server.max_line_bytes`.
    LineTooLong = -32032 "line_too_long" Never 0,
}

/// Of several errors that apply, the one to answer; of equals the first.
pub fn first_of(errors: impl IntoIterator<Item = RpcError>) -> Option<RpcError> {
    errors.into_iter().min_by_key(|error| error.kind().precedence())
}

/// Whether a change that failed has been made all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// `false`: it has not.
    No,
    /// `"unknown"`: nobody can say; look, or repeat what may be repeated.
    Unknown,
}

impl Serialize for Applied {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Applied::No => serializer.serialize_bool(false),
            Applied::Unknown => serializer.serialize_str("unknown"),
        }
    }
}

impl<'de> Deserialize<'de> for Applied {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AppliedVisitor;
        impl serde::de::Visitor<'_> for AppliedVisitor {
            type Value = Applied;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("false or \"unknown\"")
            }
            fn visit_bool<E: serde::de::Error>(self, applied: bool) -> Result<Applied, E> {
                if applied { Err(E::custom("must be false or \"unknown\", not true")) } else { Ok(Applied::No) }
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Applied, E> {
                match text {
                    "unknown" => Ok(Applied::Unknown),
                    other => Err(E::custom(format_args!("must be false or \"unknown\", not {other:?}"))),
                }
            }
        }
        deserializer.deserialize_any(AppliedVisitor)
    }
}

impl schemars::JsonSchema for Applied {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Applied".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "enum": [false, "unknown"] })
    }
}

object! { open
    /// Who holds an address that was asked for.
    HeldBy {
        /// Scope of the owner.
        scope: Scope,
        /// The owner.
        owner: Owner,
        /// Its slot.
        slot: Slot,
        /// Who uses it.
        claimant?: Claimant,
        /// Since when.
        since: Time,
    }
}

object! { open
    /// What something overlaps.
    OverlapWith {
        /// The network; the id of one that is deleted and remembered.
        network: Name,
        /// The subnet of it, or the pool's range.
        cidr: String,
    }
}

object! { open
    /// Why a pool had no address to give.
    PoolFill {
        /// The pool.
        range: Range,
        /// Its name.
        name?: Name,
        /// Its addresses.
        size: Count,
        /// Held.
        held: Count,
        /// Reserved or draining.
        reserved: Count,
        /// Cooling.
        cooling: Count,
        /// Declined.
        declined: Count,
    }
}

object! { open
    /// The facts of an error. Only `kind` and `retry` are always there.
    ErrorData {
        /// What kind of error it is.
        kind: ErrorKind,
        /// May the same request be sent again?
        retry: Retry,
        /// The member of the params that is wrong, as a path: `subnets[0].cidr`.
        field?: String,
        /// The network that was asked.
        network?: Name,
        /// The address in question.
        address?: String,
        /// Who holds it.
        held_by?: HeldBy,
        /// What it overlaps.
        with?: OverlapWith,
        /// How many reservations stand in the way, or count against the limit.
        count?: u64,
        /// The first of them.
        first?: Vec<Address>,
        /// Members in which what is there differs.
        differs?: Vec<String>,
        /// What the request expected.
        expected?: u64,
        /// What is there.
        actual?: u64,
        /// Which of the `ips` of an acquire, from 0.
        index?: u64,
        /// Which instance of a deployment.
        instance?: Owner,
        /// Addresses of the pools that were asked.
        size?: Count,
        /// Of these held.
        held?: Count,
        /// Of the held ones obsolete.
        obsolete?: Count,
        /// Reserved or draining.
        reserved?: Count,
        /// Cooling.
        cooling?: Count,
        /// Declined.
        declined?: Count,
        /// When the next of them is free by itself.
        next_free_at?: Time,
        /// The same, pool by pool.
        pools?: Vec<PoolFill>,
        /// How long the request waited.
        waited_ms?: u64,
        /// How many may be held or given at most.
        max?: u64,
        /// How many reservations the sweep would let go.
        would_release?: u64,
        /// The last cursor that is certainly still good. What is told behind it may have been told before.
        last_common?: Cursor,
        /// Has the change been made?
        applied?: Applied,
        /// When to try again.
        retry_after_ms?: u64,
        /// Why the server is not ready; of a plan that ended otherwise, how: `committed` or `reverted`; of the latest one that
        /// cannot end so because of what it promised: `promise`; why the network is stopped: `crashes`, `unloadable` or `differs`.
        reason?: String,
        /// Where a list of networks goes on behind the one that is stopped (`after`).
        next?: String,
        /// The node that serves the network.
        node?: String,
        /// Under which id the log has the whole story.
        id?: String,
    }
}

/// An error as it is answered. `Result<_, RpcError>` stays small: the facts are boxed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    /// Stable number.
    pub code: i32,
    /// For people: what was asked, what stands in the way, what to do.
    pub message: String,
    /// The facts.
    pub data: Box<ErrorData>,
}

impl RpcError {
    /// An error with the default `retry` of its kind and no further facts.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { code: kind.code(), message: message.into(), data: Box::new(ErrorData::new(kind, kind.retry())) }
    }

    /// `invalid_argument` of one member, named by its path; where that is in one of the `ips` of an acquire, by its `index`,
    /// too.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        let field = field.into();
        let index = field.strip_prefix("ips[").and_then(|rest| rest.split_once(']')?.0.parse().ok());
        Self::new(ErrorKind::InvalidArgument, message).with(|data| (data.field, data.index) = (Some(field), index))
    }

    /// The same error with more facts.
    #[must_use]
    pub fn with(mut self, fill: impl FnOnce(&mut ErrorData)) -> Self {
        fill(&mut self.data);
        self
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.data.kind
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RpcError {}
