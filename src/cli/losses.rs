//! Side effects of a change: things that the server, by contract, removes or replaces although the call does not name them.
//! They are shown first, and the user is asked.
//!
//! Before: `perform`. What the pools of a subnet lose is in `shrink`; what a `remove` or `delete` takes is in `preview`.

use serde_json::{Map, Value, json};

use super::apply::subnets::whom;
use super::args::Ask;
use super::contested;
use super::output::{list, short_range};
use super::phrase::{self, text};
use super::preview;
use super::session::{Done, Session};
use super::shrink::{is_pool, lost, pool_words};
use crate::core::address::Range;
use crate::core::plural::counted;

/// The most lines that are shown; the rest is counted.
const LINES_MAX: usize = 20;

/// What a change removes or replaces beyond what it names.
#[derive(Debug, Default)]
pub struct Lost {
    /// In words: a heading, then a line each. None if nothing is lost.
    pub words: Option<String>,
    /// The addresses of the late claims that are given up.
    pub addresses: Vec<String>,
    /// The network of which it is lost, as it was shown.
    network: Option<Value>,
}

impl Lost {
    /// As [`preview::Would::pinned`]; none if the call is made as it was typed.
    pub fn pinned(&self, ask: &Ask, was_asked: bool) -> Option<Map<String, Value>> {
        let network = self.network.as_ref().filter(|_| was_asked)?;
        let mut params = ask.params.clone();
        preview::pin(&mut params, network);
        Some(params)
    }
}

/// What the call removes or replaces beyond what it names.
pub async fn of(session: &mut Session, ask: &Ask) -> Done<Lost> {
    let (mut addresses, mut network) = (Vec::new(), None);
    let sets = |member: &str| ask.params.get("set").is_some_and(|set| set.get(member).is_some());
    let (heading, lines) = match ask.method {
        "subnet.modify" if sets("cidr") => {
            ("the subnet's pools lose what lies outside:", pools_of_subnet(session, ask, &mut network).await?)
        }
        "pool.modify" if sets("range") => (
            "this goes out of the pool; what is held stays held, and nothing new is granted there:",
            cut(session, ask, &mut network).await?,
        ),
        "reserved.add" => ("this is replaced:", replaced(session, ask, &mut network).await?),
        // A user who names a single address has looked at it.
        "cluster.accept" if ask.text("address").is_none() => (
            "all these late claims are given up, including those that nobody has looked at; whoever was granted one may be \
             using the address:",
            late_claims(session, ask, &mut addresses).await?,
        ),
        _ => return Ok(Lost::default()),
    };
    let rest = lines.len().saturating_sub(LINES_MAX);
    let more = if rest > 0 { format!("\n  … and {rest} more") } else { String::new() };
    let shown: Vec<&str> = lines.iter().take(LINES_MAX).map(String::as_str).collect();
    let words = (!lines.is_empty()).then(|| format!("{heading}\n  {}{more}", shown.join("\n  ")));
    Ok(Lost { words, addresses, network })
}

/// What pools lose by a change of their subnet's cidr. Their network becomes `shown`.
async fn pools_of_subnet(session: &mut Session, ask: &Ask, shown: &mut Option<Value>) -> Done<Vec<String>> {
    // The dry run comes first, so that a refusal is worded like that of the change.
    let would = session.make(&ask.clone().with("dry_run", true)).await?;
    let network = session.call("network.get", json!({"network": ask.text("network")})).await?;
    let there = list(&network, "subnets").find(|subnet| subnet.get("id") == would.get("id"));
    let after: Vec<Value> = list(&would, "pools").cloned().collect();
    let Some(there) = there else { return Ok(Vec::new()) };
    let lines = lost(there, &after, true);
    *shown = Some(network);
    Ok(lines)
}

/// The late claims: their owners were told that they have an address which another owner has now.
/// Their addresses, each once, become part of `addresses`.
async fn late_claims(session: &mut Session, ask: &Ask, addresses: &mut Vec<String>) -> Done<Vec<String>> {
    let would = session.make(&ask.clone().with("dry_run", true)).await?;
    for address in list(&would, "accepted").filter_map(|conflict| text(conflict, "address")) {
        if !addresses.iter().any(|known| known == address) {
            addresses.push(address.to_owned());
        }
    }
    let line = |conflict: &Value| {
        let present = contested::in_the_way(conflict).map_or_else(String::new, |present| format!("; {present}"));
        Some(format!("- {} of {}{present}", text(conflict, "address")?, contested::whose(conflict.get("late")?)))
    };
    Ok(list(&would, "accepted").filter_map(line).collect())
}

/// What a pool loses when its range changes. Its network becomes `shown`.
async fn cut(session: &mut Session, ask: &Ask, shown: &mut Option<Value>) -> Done<Vec<String>> {
    let would = session.make(&ask.clone().with("dry_run", true)).await?;
    let network = session.call("network.get", json!({"network": ask.text("network")})).await?;
    let (named, pools) = (ask.text("pool").unwrap_or_default(), list(&network, "subnets"));
    let pool = pools.flat_map(|subnet| list(subnet, "pools")).find(|pool| is_pool(pool, named));
    let (Some(before), Some(after)) = (pool.and_then(range), range(&would)) else { return Ok(Vec::new()) };
    let mut lines = Vec::new();
    for part in before.without(after) {
        let held = preview::count(session, json!({"network": ask.text("network"), "range": part.to_string()})).await?;
        let (part, held) = (short_range(&part.to_string()), counted(held, "reservation"));
        lines.push(format!("- {part} of pool {} ({held})", pool.map(pool_words).unwrap_or_default()));
    }
    *shown = Some(network);
    Ok(lines)
}

/// Reservations of ranges that are replaced by those for another owner, and notes that are lost when a wider range is added.
/// Their network becomes `shown`.
async fn replaced(session: &mut Session, ask: &Ask, shown: &mut Option<Value>) -> Done<Vec<String>> {
    let Some(added) = ask.text("range").and_then(|range| range.parse::<Range>().ok()) else { return Ok(Vec::new()) };
    let named = ask.params.get("network").map(|network| ("network".to_owned(), network.clone()));
    // An error with the network is left to the call itself.
    let Ok(network) = session.try_call("network.get", named.into_iter().collect()).await else { return Ok(Vec::new()) };
    let meets = |reserved: &&Value| range(reserved).is_some_and(|range| range.overlaps(added));
    let says = |reserved: &Value| whom(reserved).is_some() || note(reserved).is_some();
    let before: Vec<&Value> =
        list(&network, "subnets").flat_map(|subnet| list(subnet, "reserved")).filter(meets).collect();
    if !before.iter().any(|reserved| says(reserved)) {
        return Ok(Vec::new());
    }
    let would = session.make(&ask.clone().with("dry_run", true)).await?;
    let after: Vec<&Value> = list(&would, "reserved").collect();
    let lines = before.into_iter().flat_map(|was| replaced_of(was, &after, added)).collect();
    *shown = Some(network);
    Ok(lines)
}

/// The same for one reserved range. If exactly this range is added, its note is meant to be replaced.
fn replaced_of(was: &Value, after: &[&Value], added: Range) -> Vec<String> {
    let Some(before) = range(was) else { return Vec::new() };
    let mut lines = Vec::new();
    for is in after {
        let Some(part) = range(is).and_then(|range| range.intersection(before)) else { continue };
        let part = short_range(&part.to_string());
        if let Some(owner) = was.get("for").and_then(|whom| text(whom, "owner")).filter(|_| whom(is) != whom(was)) {
            let now = is.get("for").and_then(|whom| text(whom, "owner"));
            let now = now.map_or_else(String::new, |now| format!(", and for `{now}` from then on"));
            lines.push(format!("- {part} is reserved for `{owner}`{now}"));
        }
        if let Some(note) = note(was).filter(|was| before != added && note(is) != Some(*was)) {
            lines.push(format!("- the note of {part}: {note}"));
        }
    }
    lines
}

fn note(of: &Value) -> Option<&str> {
    text(of, "note").filter(|note| !note.is_empty())
}

fn range(of: &Value) -> Option<Range> {
    phrase::range(of, "range")
}
