//! What is said of an answer that is that of a repeat: the client repeats what is safe to repeat after a lost answer, and then
//! what was there already, or is gone already, may be the work of its first try.
//!
//! Before: `perform`, `settle`, `deployment`, `call`, each of which asks the session whether an answer is such a one.

use serde_json::Value;

use super::output::list;
use crate::wire::{Access, Method};

/// What is not known of an answer to `method`. None where it says the same whichever try did it.
pub fn words(method: &str, result: &Value) -> Option<&'static str> {
    let is_no = |of: &Value| of.get("created") == Some(&Value::Bool(false));
    let lets_nothing_go = || result.get("released").and_then(Value::as_array).is_some_and(Vec::is_empty);
    match method {
        "ip.release" if lets_nothing_go() => {
            Some("nothing is held there now: the first answer was lost, and it may have been released then")
        }
        "network.create" | "subnet.add" | "pool.add" if is_no(result) => {
            Some("it is there: the first answer was lost, and it may have been made then")
        }
        "ip.allocate" | "ip.claim" if is_no(result) => {
            Some("it is held: the first answer was lost, and it may have been granted then")
        }
        "ip.acquire" if list(result, "reservations").any(is_no) => {
            Some("the first answer was lost: what was held before may have been granted then")
        }
        "deployment.commit" | "deployment.revert" if lets_nothing_go() => {
            Some("the first answer was lost: what was let go then is not told again")
        }
        "deployment.apply" => Some("the first answer was lost: what is kept here may have been granted then"),
        _ => None,
    }
}

/// The same of a call of any method, whatever it answers.
pub fn of_any(method: &str, result: &Value) -> Option<&'static str> {
    let changes = Method::from_name(method).is_some_and(|method| method.access() != Access::Read);
    let plain = "the first answer was lost: what this one says was there before may have been made then";
    changes.then(|| words(method, result).unwrap_or(plain))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_first_try_may_have_done_is_in_doubt() {
        let (old, new) = (json!({"created": false}), json!({"created": true}));
        assert!(words("ip.claim", &old).is_some() && words("ip.claim", &new).is_none());
        assert!(words("ip.acquire", &json!({"reservations": [new, old]})).is_some());
        assert!(words("ip.release", &json!({"released": []})).is_some());
        assert!(words("ip.release", &json!({"released": ["10.0.0.5"]})).is_none());
        assert!(of_any("ip.update", &json!({})).is_some() && of_any("ip.get", &json!({})).is_none());
    }
}
