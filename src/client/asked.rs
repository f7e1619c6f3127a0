//! One call as the client keeps it until it is answered: the request, and what decides whether it may be sent again.

use std::time::Duration;

use serde_json::{Map, Value};

use super::safety::{self, Repeat};
use super::{ClientError, RpcError, backoff, request_line};
use crate::wire::{ErrorKind, Method, Span};

/// What a call may touch. This decides its place in the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Touches {
    /// This network, as the caller named it.
    Network(String),
    /// Several networks, or all.
    All,
    /// No network: its place does not matter.
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

    /// The name under which a route is remembered; `None` for calls that always go home.
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
    /// Whether it may wait at the server, where it is in no other call's way.
    pub waits: bool,
    /// The params of a call that waits, because it must wait less if it is sent late; empty for other calls.
    params: Map<String, Value>,
    /// Whether the caller set a deadline. If the call is refused because of that, it is not repeated.
    has_deadline: bool,
    may_be_repeated: bool,
    /// Whether it may change something.
    changes: bool,
    refusal_is_ambiguous: bool,
    look: &'static str,
}

/// What to do after an error.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// The error is the answer.
    Deliver,
    /// The call was certainly not carried out, and may be sent again after this time.
    Later(Duration),
    /// Another node serves it, at this address if that is known.
    Elsewhere(Option<String>),
    /// The call may have been carried out, and may be repeated after this time.
    Repeat(Duration),
    /// The call may have been carried out, and must not be repeated.
    Unknown,
}

impl Asked {
    /// Prepares a call with this number.
    ///
    /// # Errors
    /// If clients do not offer the method, or the params cannot be written as JSON.
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

    /// The line to send under this number if `left` is left of the call's time. The server must wait no longer than the
    /// caller, or its grant would go to nobody. `None` means that the end of the call lies beyond what the clock can
    /// express.
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
        // Params that could be written with one number can be written with another.
        request_line(number, &self.method, &params).unwrap_or_else(|_| self.line.clone())
    }

    /// Decides what to do with an error, after `tries` earlier tries.
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
            // Only a restart with other flags changes that.
            Some(ErrorKind::NotReady) if error.data.get("reason") == Some(&Value::from("restored")) => Next::Deliver,
            Some(ErrorKind::Overloaded | ErrorKind::NotReady | ErrorKind::RateLimited) => Next::Later(wait),
            Some(ErrorKind::Moved) => {
                Next::Elsewhere(error.data.get("address").and_then(Value::as_str).map(str::to_owned))
            }
            Some(ErrorKind::Unavailable) if error.data.get("applied") == Some(&Value::Bool(false)) => Next::Later(wait),
            Some(ErrorKind::Unavailable) if self.may_be_repeated => Next::Repeat(wait),
            Some(ErrorKind::Unavailable) => Next::Unknown,
            // A bug, or a network that only an operator can start again: repeating the call is no help. All others are
            // answers.
            Some(_) | None => Next::Deliver,
        }
    }

    /// The refusal of a repeat, as the caller sees it. One that says that this try was not begun says nothing of the try that
    /// nobody answered.
    pub(super) fn refused_again(&self, error: ClientError) -> ClientError {
        match error {
            error if self.refusal_is_ambiguous => self.unknown(error),
            ClientError::Rpc(refused) if self.changes && is_of_this_try(&refused) => {
                ClientError::Rpc(refused.in_doubt())
            }
            error => error,
        }
    }

    /// The error of a call whose connection was lost, or that lost an earlier connection.
    pub(super) fn lost(&self, cause: ClientError) -> ClientError {
        if self.may_be_repeated { cause } else { self.unknown(cause) }
    }

    /// The error that nobody can tell whether the call took effect.
    pub(super) fn unknown(&self, cause: ClientError) -> ClientError {
        match cause {
            ClientError::Unknown { .. } => cause,
            cause => ClientError::Unknown { method: self.method.clone(), cause: Box::new(cause), look: self.look },
        }
    }

    /// The error if time runs out during a try: the refusal of the try before, with an unknown outcome if the call may
    /// change something. `None` if that refusal says nothing about this try.
    pub(super) fn unanswered(&self, refused: &RpcError) -> Option<ClientError> {
        let is_moved = ErrorKind::from_word(&refused.kind) == Some(ErrorKind::Moved);
        if is_moved || self.waits {
            return None;
        }
        let error = ClientError::Rpc(if self.changes { refused.in_doubt() } else { refused.clone() });
        Some(if self.may_be_repeated { error } else { self.unknown(error) })
    }

    /// The error if time runs out and the call may have been carried out.
    pub(super) fn timed_out(&self, seconds: u64) -> ClientError {
        let error = ClientError::TimedOut { method: self.method.clone(), seconds };
        if self.may_be_repeated { error } else { self.unknown(error) }
    }
}

/// Does the refusal say nothing but that this try was not begun?
fn is_of_this_try(refused: &RpcError) -> bool {
    let kind = ErrorKind::from_word(&refused.kind);
    matches!(kind, Some(ErrorKind::Overloaded | ErrorKind::NotReady | ErrorKind::RateLimited | ErrorKind::Unavailable))
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
        // For other calls, the time that is left does not matter.
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
    fn a_repeat_that_was_not_begun_says_nothing_of_the_try_whose_answer_was_lost() {
        let is_unknown = |method: &str, kind: ErrorKind, data: Value| {
            let asked = asked(method, json!({"network": "lan", "owner": "a", "deadline_ms": 5}));
            asked.refused_again(refusal(kind, data)).is_unknown()
        };
        assert!(is_unknown("ip.allocate", ErrorKind::Overloaded, json!({})));
        assert!(is_unknown("ip.allocate", ErrorKind::NotReady, json!({"reason": "restored"})));
        // The first try would have taken what is not there, or would be found.
        assert!(!is_unknown("ip.allocate", ErrorKind::NotEnoughCapacity, json!({})));
        assert!(!is_unknown("ip.list", ErrorKind::Overloaded, json!({})));
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
