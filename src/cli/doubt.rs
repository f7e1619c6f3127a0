//! Remarks on the answer to a repeated call. After a lost answer the client repeats what is safe to repeat, and then
//! something that exists already, or is gone already, may be the work of the first attempt.
//!
//! Before: `perform`, `settle`, `deployment`, `call`, each of which asks the session whether an answer is such a one.

use serde_json::{Map, Value};

use super::output::list;
use super::quote::shell;
use crate::wire::{Access, Method};

/// What is unknown about an answer to `method`. None if the answer is the same whichever attempt did the work.
pub fn words(method: &str, params: &Map<String, Value>, result: &Value) -> Option<String> {
    known(method, params, result)?
}

/// The same for a call of any method.
pub fn of_any(method: &str, params: &Map<String, Value>, result: &Value) -> Option<String> {
    let changes = Method::from_name(method).is_some_and(|method| method.access() != Access::Read);
    let plain =
        "the first answer was lost: what this answer says was there before may have been made by the first attempt";
    known(method, params, result).unwrap_or_else(|| changes.then(|| plain.to_owned()))
}

/// What is unknown about an answer, if anything; none if it is not known how a repeat of this method is answered.
fn known(method: &str, params: &Map<String, Value>, result: &Value) -> Option<Option<String>> {
    let is_no = |of: &Value| of.get("created") == Some(&Value::Bool(false));
    let is_set = |member: &str| params.get(member) == Some(&Value::Bool(true));
    let lets_nothing_go = || list(result, "released").next().is_none();
    // If the first attempt released something, or may have done so, only the history shows it.
    let let_go = |scope: &str| {
        let scope = shell(params.get(scope).and_then(Value::as_str).unwrap_or("default"));
        format!("what the first attempt released is not listed again; `allod history --scope {scope}` shows it")
    };
    Some(match method {
        "ip.release" => lets_nothing_go().then(|| {
            "nothing is held there now: the first answer was lost, and it may have been released then".to_owned()
        }),
        "network.create" | "subnet.add" | "pool.add" => is_no(result)
            .then(|| "it exists: the first answer was lost, and the first attempt may have made it".to_owned()),
        "ip.allocate" | "ip.claim" => is_no(result).then(|| {
            let granted = "it is held: the first answer was lost, and the first attempt may have granted it";
            if is_set("replace") { format!("{granted}; {}", let_go("scope")) } else { granted.to_owned() }
        }),
        "ip.acquire" => {
            let made = |held: &Value| held.get("created") == Some(&Value::Bool(true));
            let was_held = list(result, "reservations").any(is_no);
            // A reservation that was granted only now shows that the first attempt did nothing.
            let may_have = is_set("exact") && lets_nothing_go() && !list(result, "reservations").any(made);
            let held = was_held.then(|| "what was held before may have been granted by the first attempt".to_owned());
            let parts: Vec<String> = held.into_iter().chain(may_have.then(|| let_go("scope"))).collect();
            (!parts.is_empty()).then(|| format!("the first answer was lost: {}", parts.join("; ")))
        }
        "deployment.commit" | "deployment.revert" => {
            lets_nothing_go().then(|| format!("the first answer was lost: {}", let_go("deployment")))
        }
        "deployment.apply" => {
            let mut slots = list(result, "instances").flat_map(|instance| list(instance, "networks"));
            let is_kept = slots.any(|slot| slot.get("state").is_some_and(|state| state == "kept"));
            is_kept.then(|| {
                "the first answer was lost: what is kept here may have been granted by the first attempt".to_owned()
            })
        }
        _ => return None,
    })
}

/// The answer without the member that says whether something is new, because that is unknown.
pub fn without_created(result: &Value) -> Value {
    let mut shown = result.clone();
    if let Value::Object(members) = &mut shown {
        members.remove("created");
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_first_try_may_have_done_is_in_doubt() {
        let (old, new) = (json!({"created": false}), json!({"created": true}));
        let (none, exact) = (Map::new(), Map::from_iter([("exact".to_owned(), json!(true))]));
        let doubt = |method: &str, result: Value| words(method, &none, &result).is_some();
        assert!(doubt("ip.claim", old.clone()) && !doubt("ip.claim", new.clone()));
        assert!(doubt("ip.acquire", json!({"reservations": [&new, old]})));
        assert!(
            doubt("ip.release", json!({"released": []})) && !doubt("ip.release", json!({"released": ["10.0.0.5"]}))
        );
        let applied = |state: &str| json!({"instances": [{"id": "a", "networks": [{"state": state}]}]});
        assert!(doubt("deployment.apply", applied("kept")) && !doubt("deployment.apply", applied("new")));
        // An exact acquire of nothing releases everything.
        let nothing = json!({"reservations": []});
        assert!(words("ip.acquire", &exact, &nothing).is_some() && !doubt("ip.acquire", nothing));
        assert!(words("ip.acquire", &exact, &json!({"reservations": [new]})).is_none());
        assert!(of_any("ip.update", &none, &json!({})).is_some() && of_any("ip.get", &none, &json!({})).is_none());
        assert!(of_any("ip.release", &none, &json!({"released": ["10.0.0.5"]})).is_none());
    }
}
