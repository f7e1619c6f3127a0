//! Reports what a repeated grant asked for and did not change, so that nothing is lost silently.
//!
//! A grant that finds an existing reservation returns it. Its claimant, labels, lease and uid are updated; other members are
//! set only when an address is granted, or by `ip.update`.
//!
//! Before: `perform`, which prints the answer.

use serde_json::Value;

use super::args::Ask;
use super::quote::shell;

/// Members that a repeat leaves unchanged, and that `ip.update` can change.
const UPDATED: [&str; 3] = ["note", "hostname", "mac"];
/// Members that a repeat leaves unchanged, and that nothing can change.
const FIXED: [&str; 2] = ["release_with_claimant", "transient"];

/// A line for each reservation that existed before and differs from the call; none if there is none.
pub fn unchanged(ask: &Ask, result: &Value) -> Option<String> {
    let one = matches!(ask.method, "ip.allocate" | "ip.claim").then_some(std::slice::from_ref(result));
    let several = || result.get("reservations").filter(|_| ask.method == "ip.acquire")?.as_array().map(Vec::as_slice);
    let lines: Vec<String> = one.or_else(several)?.iter().filter_map(|held| of_one(ask, held)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn of_one(ask: &Ask, held: &Value) -> Option<String> {
    if held.get("created") != Some(&Value::Bool(false)) {
        return None;
    }
    let updated: Vec<&str> = UPDATED.into_iter().filter(|member| text_differs(ask, held, member)).collect();
    let is_yes = |of: Option<&Value>| of == Some(&Value::Bool(true));
    let fixed = FIXED.into_iter().filter(|member| is_yes(ask.params.get(*member)) && !is_yes(held.get(member)));
    let all: Vec<&str> = updated.iter().copied().chain(fixed).collect();
    let (last, before) = all.split_last()?;
    let names = if before.is_empty() { (*last).to_owned() } else { format!("{} and {last}", before.join(", ")) };
    let (are, them) = if before.is_empty() { ("it is", "it") } else { ("they are", "them") };
    let member = |name: &str| held.get(name).and_then(Value::as_str);
    let (network, address) = (member("network")?, member("address")?);
    let update = format!("`allod ip update {} {address}` changes", shell(network));
    let then = if updated.is_empty() {
        format!(
            "{} said when an address is taken, and not changed",
            if before.is_empty() { "it is" } else { "they are" }
        )
    } else if updated.len() == all.len() {
        format!("{update} {them}")
    } else {
        format!("{update} what may be changed of a reservation")
    };
    Some(format!("{address} was held before: a repeat leaves its {names} as {are}; {then}"))
}

fn text_differs(ask: &Ask, held: &Value, member: &str) -> bool {
    let Some(asked) = ask.text(member) else { return false };
    let there = held.get(member).and_then(Value::as_str).unwrap_or_default();
    match member {
        "mac" if asked == "auto" => there.is_empty(),
        "mac" => asked.to_ascii_lowercase().replace('-', ":") != there,
        "hostname" => !asked.eq_ignore_ascii_case(there),
        _ => asked != there,
    }
}
