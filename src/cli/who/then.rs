//! `allod who ADDRESS --at TIME`: who held the address then, who granted it and why; or what came before and after.

use serde_json::{Map, Value, json};

use super::is_grant;
use crate::cli::exit::Exit;
use crate::cli::history::{PAGE, Pages, begins};
use crate::cli::output::table::fields;
use crate::cli::output::{Format, labels, print, text_of};
use crate::cli::quote::shell;
use crate::cli::session::{Done, Session};
use crate::cli::time::Time;

/// What the history says about an address at a time.
#[derive(Debug, Default)]
struct Then {
    /// The reservations: the event that made each as it was, and the event that granted it.
    held: Vec<(Value, Option<Value>)>,
    /// The last event up to that time, and the first one after it.
    before: Option<Value>,
    after: Option<Value>,
    /// The beginning of the available history, if that is later.
    begins: Option<Value>,
    /// The history has no events at all: it began anew.
    is_empty: bool,
}

/// Runs the command.
pub async fn run(session: &mut Session, address: &str, at: Time) -> Done<Exit> {
    let at = at.past(session, &format!("tell who held {address} then")).await?;
    let then = ask(session, address, &at).await?;
    if session.options.style.format != Format::Table {
        let held: Vec<Value> =
            then.held.iter().map(|(event, grant)| json!({"event": event, "granted": grant})).collect();
        let mut answer = json!({"address": address, "at": at, "held": held});
        let more = [("before", &then.before), ("after", &then.after), ("history_begins", &then.begins)];
        for (member, value) in more {
            if let Some(value) = value {
                answer[member] = value.clone();
            }
        }
        session.print("who", &Map::new(), &answer)?;
        return Ok(Exit::Success);
    }
    if then.held.is_empty() {
        print(&nobody(address, &at, &then))?;
    }
    for (number, (event, grant)) in then.held.iter().enumerate() {
        let gap = if number > 0 { "\n" } else { "" };
        let network = called(session, event).await;
        print(&format!("{gap}{}", describe((address, &at), &network, event, grant.as_ref())))?;
    }
    session.say(&format!("\nnext: `allod history {}` shows all of it", shell(address)));
    Ok(Exit::Success)
}

async fn ask(session: &mut Session, address: &str, at: &str) -> Done<Then> {
    let ask = |more: &[(&str, &str)]| {
        let members = [("address", address)].into_iter().chain(more.iter().copied());
        Pages::new(members.map(|(member, text)| (member.to_owned(), text.into())).collect())
    };
    let (mut then, mut pages) = (Then::default(), ask(&[("at", at)]));
    loop {
        let events = pages.next(session, PAGE).await?;
        if events.is_empty() {
            break;
        }
        then.held.extend(events.into_iter().map(|event| (event, None)));
    }
    let mut pages = ask(&[("to", at)]);
    loop {
        let events = pages.next(session, PAGE).await?;
        let Some(last) = events.last() else { break };
        then.before = Some(last.clone());
        for (event, grant) in &mut then.held {
            let same = |one: &Value| one.get("generation") == event.get("generation") && is_same_network(one, event);
            *grant = events.iter().rfind(|one| is_grant(one) && same(one)).cloned().or_else(|| grant.take());
        }
    }
    if then.held.is_empty() {
        // Events of that very millisecond count as before.
        let mut pages = ask(&[("from", at)]);
        while then.after.is_none() {
            let events = pages.next(session, PAGE).await?;
            if events.is_empty() {
                break;
            }
            then.after =
                events.into_iter().find(|event| event.get("time").is_some_and(|time| text_of(time).as_str() > at));
        }
        if then.before.is_none() {
            let begins = begins(session).await?;
            then.is_empty = begins.is_none();
            then.begins = begins.filter(|begins| begins.as_str() > at).map(Value::from);
        }
    }
    Ok(then)
}

/// The name of the network at that event, and the current one if it differs, even if the network is deleted and remembered.
/// For a network that is gone, the last name is not looked up.
async fn called(session: &mut Session, event: &Value) -> String {
    let then = event.get("network").map(text_of).unwrap_or_default();
    let Some(id) = event.get("network_id") else { return then };
    let shown = session.call("network.get", json!({"network": id})).await.ok();
    match shown.as_ref().and_then(|network| network.get("name")).map(text_of) {
        Some(now) if now != then => format!("{then} (`{now}` by now)"),
        _ => then,
    }
}

fn is_same_network(one: &Value, other: &Value) -> bool {
    one.get("network_id") == other.get("network_id")
}

/// Who held it, as fields.
fn describe((address, at): (&str, &str), network: &str, event: &Value, grant: Option<&Value>) -> String {
    let text = |of: &Value, member: &str| of.get(member).map(text_of).unwrap_or_default();
    let held = event.get("after").unwrap_or(&Value::Null);
    let first = text(event, "address");
    let length = event.get("prefix_length").and_then(Value::as_u64).unwrap_or(32);
    let is_block = length != if first.contains(':') { 128 } else { 32 };
    let scope = Some(text(held, "scope")).filter(|scope| scope != "default" && !scope.is_empty());
    let scope = scope.map_or_else(String::new, |scope| format!(" of scope `{scope}`"));
    let slot =
        Some(text(held, "slot")).filter(|slot| slot != "0").map_or_else(String::new, |slot| format!(", slot `{slot}`"));
    let claimant = Some(text(held, "claimant")).filter(|claimant| !claimant.is_empty());
    let lease = match held.get("expires_at") {
        Some(until) => format!("until {}, unless renewed", text_of(until)),
        None => "for good".to_owned(),
    };
    let granted = match grant.unwrap_or(event) {
        // The event of a renewal or the like was made by someone other than the grantor.
        event if is_grant(event) => event.clone(),
        _ => Value::Null,
    };
    fields(&[
        ("address", address.to_owned()),
        ("at", at.to_owned()),
        ("block", if is_block { format!("{first}/{length}") } else { String::new() }),
        ("network", network.to_owned()),
        ("network id", text(event, "network_id")),
        ("held by", format!("`{}`{scope}{slot}", text(held, "owner"))),
        (
            "used by",
            claimant.map_or_else(|| "nobody (no claimant was bound)".to_owned(), |claimant| format!("`{claimant}`")),
        ),
        ("since", text(held, "created_at")),
        ("granted by", text(&granted, "by")),
        ("why", text(&granted, "reason")),
        ("lease", lease),
        ("obsolete", held.get("obsolete").map_or_else(String::new, |o| format!("since {}", text(o, "since")))),
        ("hostname", text(held, "hostname")),
        ("mac", text(held, "mac")),
        ("labels", labels(held)),
        ("note", text(held, "note")),
    ])
}

/// That nobody held it, and between which events.
fn nobody(address: &str, at: &str, then: &Then) -> String {
    let held = match &then.begins {
        Some(begins) => format!("nobody knows: the history that is kept begins at {}", text_of(begins)),
        None if then.is_empty => "nobody knows: nothing has happened since the history that is kept began".to_owned(),
        None => "nobody".to_owned(),
    };
    let told = |event: &Option<Value>, none: &str| event.as_ref().map_or_else(|| none.to_owned(), sentence);
    fields(&[
        ("address", address.to_owned()),
        ("at", at.to_owned()),
        ("held by", held),
        ("before", told(&then.before, "nothing is known")),
        ("after", told(&then.after, "nothing, up to now")),
    ])
}

/// `released at … in lan (`web/0`) by admin: moved away`.
fn sentence(event: &Value) -> String {
    let text = |member: &str| event.get(member).map(text_of).unwrap_or_default();
    let reason = Some(text("reason")).filter(|reason| !reason.is_empty());
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    format!(
        "{} at {} in {} (`{}`) by {}{reason}",
        text("type"),
        text("time"),
        text("network"),
        text("owner"),
        text("by")
    )
}
