//! One call as the client keeps it until it is answered: what is sent, and what must be known to send it again.

use std::time::Duration;

use serde_json::{Map, Value};

use super::safety::{self, Repeat};
use super::{ClientError, RpcError, backoff, request_line};
use crate::wire::{ErrorKind, Method, Span};

/// What a call may touch, which decides its place in the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Touches {
    /// This network, as it was named.
    Network(String),
    /// Several, or all.
    All,
    /// None: its place does not matter.
    Nothing,
}

impl Touches {
    fn of(method: &str, params: &Map<String, Value>) -> Self {
        let network = || params.get("network").and_then(Value::as_str).map(|name| Self::Network(name.to_owned()));
        match Method::from_name(method).map(Method::span) {
            Some(Span::Network | Span::NetworkOrSeveral) => network().unwrap_or(Self::All),
            Some(Span::Several) | None => Self::All,
            Some(Span::Server) => Self::Nothing,
        }
    }

    /// Must one take effect before the other?
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => false,
            (Self::All, _) | (_, Self::All) => true,
            (Self::Network(one), Self::Network(other)) => one == other,
        }
    }

    /// Under what name a route is remembered: none for what always goes home.
    pub(super) fn route(&self) -> Option<&str> {
        match self {
            Self::Network(name) => Some(name),
            Self::All => Some(""),
            Self::Nothing => None,
        }
    }
}

/// A call.
#[derive(Debug)]
pub(super) struct Asked {
    pub method: String,
    /// The request with its line end. The number of the call is its id on every connection.
    pub line: Vec<u8>,
    pub touches: Touches,
    /// It may wait on the server's side, and stands in nobody's way there.
    pub waits: bool,
    /// Params of a call that waits, which waits less when it is sent late; else none.
    params: Map<String, Value>,
    /// The caller said until when it may begin: refused for that, it is not asked again.
    has_deadline: bool,
    may_be_repeated: bool,
    /// It may change something.
    changes: bool,
    refusal_is_ambiguous: bool,
    look: &'static str,
}

/// What is to be done after a refusal.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// It is the answer.
    Deliver,
    /// It was certainly not carried out, and may be after a while.
    Later(Duration),
    /// Another node serves it, there if it is known where.
    Elsewhere(Option<String>),
    /// It may have been carried out, and may be repeated after a while.
    Repeat(Duration),
    /// It may have been carried out, and must not be repeated.
    Unknown,
}

impl Asked {
    /// A call of this number.
    ///
    /// # Errors
    /// What no client makes, or no JSON can say.
    pub(super) fn new(number: u64, method: &str, params: &Map<String, Value>) -> Result<Self, ClientError> {
        let rule = safety::rule_of(method);
        if let Some(rule) = rule.filter(|rule| rule.repeat == Repeat::OfConnection) {
            return Err(ClientError::NotForClient { method: method.to_owned(), hint: rule.look });
        }
        let waits = params.get("wait_seconds").and_then(Value::as_u64).is_some_and(|seconds| seconds > 0);
        Ok(Self {
            method: method.to_owned(),
            line: request_line(number, method, params)?,
            touches: Touches::of(method, params),
            waits,
            params: if waits { params.clone() } else { Map::new() },
            has_deadline: params.contains_key("deadline_ms"),
            may_be_repeated: safety::may_be_repeated(method, params),
            changes: safety::may_change(method, params),
            refusal_is_ambiguous: safety::refusal_is_ambiguous(method, params),
            look: rule.map_or("look with the methods that read", |rule| rule.look),
        })
    }

    /// What is sent under this number where so much of the call's time is left: the server waits no longer than its caller,
    /// or what it grants at last goes to nobody. None: more than a clock can say.
    pub(super) fn line_within(&self, number: u64, left: Option<Duration>) -> Vec<u8> {
        let asked = self.params.get("wait_seconds").and_then(Value::as_u64).unwrap_or(0);
        let seconds = left.map_or(asked, |left| asked.min(left.as_secs()));
        if seconds == asked {
            return self.line.clone();
        }
        let mut params = self.params.clone();
        if seconds > 0 {
            params.insert("wait_seconds".to_owned(), Value::from(seconds));
        } else {
            params.shift_remove("wait_seconds");
        }
        // What could be written with one number can be with another.
        request_line(number, &self.method, &params).unwrap_or_else(|_| self.line.clone())
    }

    /// What to do with an error, after so many tries before this one.
    pub(super) fn next(&self, error: &ClientError, tries: u32) -> Next {
        let error = match error {
            ClientError::Rpc(error) => error,
            ClientError::Lost { .. } if self.may_be_repeated => return Next::Repeat(Duration::ZERO),
            ClientError::Lost { .. } | ClientError::Malformed { .. } | ClientError::TimedOut { .. } => {
                return if self.may_be_repeated { Next::Deliver } else { Next::Unknown };
            }
            ClientError::Connect { .. }
            | ClientError::NotSent { .. }
            | ClientError::NotForClient { .. }
            | ClientError::Unknown { .. } => return Next::Deliver,
        };
        let wait = backoff::wait_asked(tries, error.data.get("retry_after_ms").and_then(Value::as_u64));
        match ErrorKind::from_word(&error.kind) {
            Some(ErrorKind::Overloaded) if self.has_deadline => Next::Deliver,
            // Only a start with other flags changes that.
            Some(ErrorKind::NotReady) if error.data.get("reason") == Some(&Value::from("restored")) => Next::Deliver,
            Some(ErrorKind::Overloaded | ErrorKind::NotReady | ErrorKind::RateLimited) => Next::Later(wait),
            Some(ErrorKind::Moved) => {
                Next::Elsewhere(error.data.get("address").and_then(Value::as_str).map(str::to_owned))
            }
            Some(ErrorKind::Unavailable) if error.data.get("applied") == Some(&Value::Bool(false)) => Next::Later(wait),
            Some(ErrorKind::Unavailable) if self.may_be_repeated => Next::Repeat(wait),
            Some(ErrorKind::Unavailable) => Next::Unknown,
            // A bug, or a network that only an operator starts again: repeating it helps nobody. All else is an answer.
            Some(_) | None => Next::Deliver,
        }
    }

    /// The refusal of a repeat, as the caller is told it.
    pub(super) fn refused_again(&self, error: ClientError) -> ClientError {
        if self.refusal_is_ambiguous { self.unknown(error) } else { error }
    }

    /// That the connection was lost with it, or with what came before it.
    pub(super) fn lost(&self, cause: ClientError) -> ClientError {
        if self.may_be_repeated { cause } else { self.unknown(cause) }
    }

    /// That nobody can tell.
    pub(super) fn unknown(&self, cause: ClientError) -> ClientError {
        match cause {
            ClientError::Unknown { .. } => cause,
            cause => ClientError::Unknown { method: self.method.clone(), cause: Box::new(cause), look: self.look },
        }
    }

    /// That time is over while a try is under way: what the one before was refused with, and that nobody knows of a change. None
    /// where that says nothing of this try.
    pub(super) fn unanswered(&self, refused: &RpcError) -> Option<ClientError> {
        let is_moved = ErrorKind::from_word(&refused.kind) == Some(ErrorKind::Moved);
        if is_moved || self.waits {
            return None;
        }
        let mut refused = refused.clone();
        if self.changes {
            if !refused.data.is_object() {
                refused.data = Value::Object(Map::new());
            }
            refused.data["applied"] = Value::from("unknown");
        }
        let error = ClientError::Rpc(refused);
        Some(if self.may_be_repeated { error } else { self.unknown(error) })
    }

    /// That time is over while it may have been carried out.
    pub(super) fn timed_out(&self, seconds: u64) -> ClientError {
        let error = ClientError::TimedOut { method: self.method.clone(), seconds };
        if self.may_be_repeated { error } else { self.unknown(error) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(method: &str, params: Value) -> Asked {
        Asked::new(1, method, params.as_object().unwrap()).unwrap()
    }

    fn refusal(kind: ErrorKind, mut data: Value) -> ClientError {
        data["kind"] = json!(kind.as_str());
        ClientError::Rpc(RpcError { code: kind.code().into(), kind: kind.to_string(), message: String::new(), data })
    }

    #[test]
    fn what_was_certainly_not_carried_out_is_asked_again_whatever_it_is() {
        let release = asked("ip.release", json!({"network": "lan", "owner": "a"}));
        for error in [
            refusal(ErrorKind::Overloaded, json!({"retry_after_ms": 5})),
            refusal(ErrorKind::NotReady, json!({})),
            refusal(ErrorKind::RateLimited, json!({})),
            refusal(ErrorKind::Unavailable, json!({"applied": false})),
        ] {
            assert!(matches!(release.next(&error, 0), Next::Later(_)), "{error:?}");
        }
    }

    #[test]
    fn a_register_that_waits_for_an_operator_is_not_asked_again() {
        let ask = asked("ip.allocate", json!({"network": "lan", "owner": "a"}));
        assert_eq!(ask.next(&refusal(ErrorKind::NotReady, json!({"reason": "restored"})), 0), Next::Deliver);
    }

    #[test]
    fn what_may_have_been_carried_out_is_repeated_only_where_that_is_safe() {
        let lost = ClientError::Lost { cause: "closed".to_owned() };
        let unknown = refusal(ErrorKind::Unavailable, json!({"applied": "unknown"}));
        let release = json!({"network": "lan", "owner": "a"});
        let guarded = json!({"network": "lan", "owner": "a", "if_generation": 4});
        for error in [&lost, &unknown] {
            assert!(matches!(asked("ip.allocate", release.clone()).next(error, 0), Next::Repeat(_)));
            assert!(matches!(asked("ip.release", guarded.clone()).next(error, 0), Next::Repeat(_)));
        }
        assert_eq!(asked("ip.release", release.clone()).next(&unknown, 0), Next::Unknown);
        assert_eq!(asked("ip.release", release).next(&lost, 0), Next::Unknown);
    }

    #[test]
    fn a_call_asks_to_wait_for_no_more_than_the_whole_seconds_that_are_left() {
        let waiting = asked("ip.allocate", json!({"network": "lan", "wait_seconds": 7, "owner": "a"}));
        let wait = |left: Option<u64>| -> Value {
            let line = waiting.line_within(1, left.map(Duration::from_millis));
            serde_json::from_slice::<Value>(&line).unwrap()["params"].take()
        };
        for (left, seconds) in [(None, 7), (Some(9_000), 7), (Some(7_000), 7), (Some(6_999), 6), (Some(1_000), 1)] {
            assert_eq!(wait(left), json!({"network": "lan", "owner": "a", "wait_seconds": seconds}), "{left:?}");
        }
        assert_eq!(wait(Some(999)), json!({"network": "lan", "owner": "a"}));
        // Of others no time is written.
        let plain = asked("ip.allocate", json!({"network": "lan", "owner": "a"}));
        assert_eq!(plain.line_within(1, Some(Duration::ZERO)), plain.line);
    }

    #[test]
    fn a_refusal_for_the_callers_own_deadline_is_the_answer() {
        let ask = asked("ip.get", json!({"address": "10.0.0.1", "deadline_ms": 5}));
        assert_eq!(ask.next(&refusal(ErrorKind::Overloaded, json!({})), 0), Next::Deliver);
    }

    #[test]
    fn every_other_refusal_is_the_answer() {
        let again = [
            ErrorKind::Overloaded,
            ErrorKind::NotReady,
            ErrorKind::RateLimited,
            ErrorKind::Moved,
            ErrorKind::Unavailable,
        ];
        for &kind in ErrorKind::ALL.iter().filter(|kind| !again.contains(kind)) {
            let ask = asked("ip.allocate", json!({"network": "lan", "owner": "a"}));
            assert_eq!(ask.next(&refusal(kind, json!({})), 0), Next::Deliver, "{kind}");
        }
    }

    #[test]
    fn a_refusal_of_a_repeat_is_no_proof_where_the_first_try_may_have_caused_it() {
        let conflict = refusal(ErrorKind::Conflict, json!({}));
        let guarded = asked("ip.release", json!({"network": "lan", "address": "10.0.0.5", "if_generation": 4}));
        assert!(matches!(guarded.refused_again(conflict.clone()), ClientError::Unknown { .. }));
        let create = asked("ip.allocate", json!({"network": "lan", "owner": "a", "must_create": true}));
        assert!(matches!(create.refused_again(conflict.clone()), ClientError::Unknown { .. }));
        let plain = asked("ip.allocate", json!({"network": "lan", "owner": "a"}));
        assert_eq!(plain.refused_again(conflict.clone()), conflict);
    }

    #[test]
    fn calls_for_one_network_and_calls_for_several_stand_in_each_others_way() {
        let [lan, dmz] = ["lan", "dmz"].map(|name| asked("ip.list", json!({"network": name})).touches);
        let all = asked("network.list", json!({})).touches;
        let none = asked("server.ping", json!({})).touches;
        assert!(lan.conflicts(&lan) && lan.conflicts(&all) && all.conflicts(&all));
        assert!(!lan.conflicts(&dmz) && !none.conflicts(&all) && !none.conflicts(&none));
    }
}
