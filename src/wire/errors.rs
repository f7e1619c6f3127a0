//! Errors of the protocol. The only table of their kinds, codes and names is here, and so are the facts that go with them.
//!
//! `error.code` and `error.data.kind` are stable; `error.message` is for people. If several errors apply, the core decides
//! which one is answered: [`Refusal::precedence`](crate::core::refusal::Refusal::precedence).

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
        /// Never as it is: repeating the same request does not help.
        Never = "never",
    }
}

macro_rules! error_kinds {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $word:literal $retry:ident,)*) => {
        words! {
            /// What kind of error it is.
            ErrorKind { $($(#[$doc])* $variant = $word,)* }
        }

        impl ErrorKind {
            /// `error.code`.
            pub const fn code(self) -> i32 {
                match self { $(ErrorKind::$variant => $code,)* }
            }

            /// The value of `data.retry` unless something better is known.
            pub const fn retry(self) -> Retry {
                match self { $(ErrorKind::$variant => Retry::$retry,)* }
            }
        }
    };
}

// Columns: kind = code, name, default of `retry`.
error_kinds! {
    /// Not JSON, or not UTF-8.
    ParseError = -32700 "parse_error" Never,
    /// Not a JSON-RPC request.
    InvalidRequest = -32600 "invalid_request" Never,
    /// There is no such method.
    MethodNotFound = -32601 "method_not_found" Never,
    /// Wrong type or value.
    InvalidArgument = -32602 "invalid_argument" Never,
    /// A bug; carries an id that is found in the log.
    Internal = -32603 "internal" Never,
    /// No such network, subnet, pool or reservation.
    NotFound = -32001 "not_found" Never,
    /// The name is taken, or the slot holds another address.
    AlreadyExists = -32002 "already_exists" Never,
    /// The address is held by another owner.
    AlreadyInUse = -32003 "already_in_use" Never,
    /// No free address that fits.
    NotEnoughCapacity = -32004 "not_enough_capacity" Later,
    /// The address lies in no subnet of the network, or a pool lies outside its subnet.
    OutOfRange = -32005 "out_of_range" Never,
    /// External reservation, gateway, network or broadcast address.
    Reserved = -32006 "reserved" Never,
    /// It overlaps another subnet or pool.
    Overlap = -32007 "overlap" Never,
    /// What is to be removed or shrunk is still used.
    InUse = -32008 "in_use" Later,
    /// Held by another owner than the one named.
    NotOwner = -32009 "not_owner" Never,
    /// For example, a static address was asked of a dynamic network.
    WrongKind = -32010 "wrong_kind" Never,
    /// `if_version`, `if_generation` or `plan` did not match.
    Conflict = -32011 "conflict" Never,
    /// An owner or scope already holds as many reservations as it may.
    QuotaExceeded = -32012 "quota_exceeded" Later,
    /// A sweep would release too much.
    Brake = -32013 "brake" Never,
    /// The cursor belongs to a history that no longer exists.
    CursorLost = -32014 "cursor_lost" Never,
    /// The store cannot be reached.
    Unavailable = -32020 "unavailable" Later,
    /// Refused before it was processed: the server is too busy.
    Overloaded = -32021 "overloaded" Later,
    /// The server is loading, taking over, or waiting for an operator.
    NotReady = -32022 "not_ready" Later,
    /// Another node serves the network.
    Moved = -32023 "moved" Now,
    /// The network failed its self-check and answers only requests that read; or it crashed repeatedly.
    NetworkStopped = -32024 "network_stopped" Later,
    /// Too many requests in too short a time.
    RateLimited = -32025 "rate_limited" Later,
    /// The caller is not known.
    Unauthenticated = -32030 "unauthenticated" Never,
    /// The caller may not do this.
    PermissionDenied = -32031 "permission_denied" Never,
    /// The line is longer than `server.max_line_bytes`.
    LineTooLong = -32032 "line_too_long" Never,
}

impl ErrorKind {
    /// Kinds that are the server's own failure, however correct the request was. All others are proper answers.
    pub const FAILURES: &[ErrorKind] = &[
        ErrorKind::Internal,
        ErrorKind::Unavailable,
        ErrorKind::Overloaded,
        ErrorKind::NotReady,
        ErrorKind::NetworkStopped,
        ErrorKind::RateLimited,
    ];
}

/// Whether a change whose request failed was made nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// `false`: it was not made.
    No,
    /// `"unknown"`: nobody can say; look, or repeat the request if it may be repeated.
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
    /// The holder of an address that was asked for.
    HeldBy {
        /// Scope of the owner.
        scope: Scope,
        /// The owner.
        owner: Owner,
        /// Slot of the owner.
        slot: Slot,
        /// Who uses it.
        claimant?: Claimant,
        /// When it was granted.
        since: Time,
    }
}

object! { open
    /// What it overlaps.
    OverlapWith {
        /// The network. For one that is deleted and remembered: its id.
        network: Name,
        /// The subnet in it, or the range of the pool.
        cidr: String,
    }
}

object! { open
    /// Why a pool had no address to grant.
    PoolFill {
        /// The pool.
        range: Range,
        /// Its name.
        name?: Name,
        /// Its addresses.
        size: Count,
        /// Of these, held.
        held: Count,
        /// Of these, reserved or draining.
        reserved: Count,
        /// Of these, cooling.
        cooling: Count,
        /// Of these, declined.
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
        /// The network that the request named.
        network?: Name,
        /// The address in question.
        address?: String,
        /// Who holds it.
        held_by?: HeldBy,
        /// What it overlaps.
        with?: OverlapWith,
        /// How many reservations stand in the way, or count against the limit.
        count?: u64,
        /// The addresses of the first of them.
        first?: Vec<Address>,
        /// Members whose present value differs.
        differs?: Vec<String>,
        /// What the request expected.
        expected?: u64,
        /// The actual value.
        actual?: u64,
        /// Index in the `ips` of an acquire, from 0.
        index?: u64,
        /// The instance of a deployment.
        instance?: Owner,
        /// Number of addresses in the pools that could have been used.
        size?: Count,
        /// Of these, held.
        held?: Count,
        /// Of the held ones, obsolete.
        obsolete?: Count,
        /// Of these, reserved or draining.
        reserved?: Count,
        /// Of these, cooling.
        cooling?: Count,
        /// Of these, declined.
        declined?: Count,
        /// When the next of them becomes free by itself.
        next_free_at?: Time,
        /// The same for each pool.
        pools?: Vec<PoolFill>,
        /// How long the request waited.
        waited_ms?: u64,
        /// The greatest number that may be held or granted.
        max?: u64,
        /// How many reservations the sweep would release.
        would_release?: u64,
        /// The last cursor that is certainly still good. Events after it may have been sent before.
        last_common?: Cursor,
        /// Was the change made?
        applied?: Applied,
        /// When to try again.
        retry_after_ms?: u64,
        /// Why the server is not ready; how a plan ended if it ended otherwise (`committed` or `reverted`); `promise` if the
        /// latest plan cannot end so because of its promises; why the network is stopped (`crashes`, `unloadable` or
        /// `differs`).
        reason?: String,
        /// Where a list of networks continues after the one that is stopped (`after`).
        next?: String,
        /// The node that serves the network.
        node?: String,
        /// The id under which the log has the whole story.
        id?: String,
    }
}

/// An error as it is answered. The facts are boxed, so that `Result<_, RpcError>` stays small.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    /// The stable number of the kind.
    pub code: i32,
    /// For people: what was asked, what stands in the way, and what to do.
    pub message: String,
    /// The facts.
    pub data: Box<ErrorData>,
}

impl RpcError {
    /// An error with the default `retry` of its kind and no further facts.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { code: kind.code(), message: message.into(), data: Box::new(ErrorData::new(kind, kind.retry())) }
    }

    /// `invalid_argument` for one member, named by its path. If that is in one of the `ips` of an acquire, the error has its
    /// `index`, too.
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
