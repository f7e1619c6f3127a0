//! `allod network why-full NETWORK`: what takes the space, pool by pool and scope by scope, and what frees it.

mod blocks;
mod named;

use serde_json::{Value, json};

use super::args::Ask;
use super::exit::Exit;
use super::failure::Failure;
use super::hint;
use super::output::map::grouped;
use super::output::table::{Table, wrapped};
use super::output::{Format, list, number_of, print, short_range, text_of, usage};
use super::quote::shell;
use super::session::{Done, Session};
use super::stops;
use crate::core::plural::{counted, counted_were};
pub use named::Named;

/// The most scopes that are shown.
const SCOPES_MAX: usize = 10;

/// Fetches counts, configuration and scopes of a network, and explains them.
pub async fn run(session: &mut Session, network: &str) -> Done<Exit> {
    let named = json!({"network": network});
    let counts = session.call("network.usage", named.clone()).await?;
    let config = session.call("network.get", named.clone()).await?;
    let every = Ask::new("scope.list", &named);
    let scopes = super::pages::all(session, &every, "scopes").await?;
    let mut top: Vec<Value> = scopes.get("scopes").and_then(Value::as_array).cloned().unwrap_or_default();
    top.sort_by_key(|scope| std::cmp::Reverse(scope.get("addresses").and_then(number_of).unwrap_or(0)));
    if session.options.style.format != Format::Table {
        let result = json!({"usage": counts, "scopes": top});
        session.print("why-full", &serde_json::Map::new(), &result)?;
        return Ok(Exit::Success);
    }
    let width = session.options.style.width;
    let mut shown = usage(&counts, width);
    if !top.is_empty() {
        shown.push_str(&format!("\n{}", scope_table(&top).render(width)));
        let rest = top.len().saturating_sub(SCOPES_MAX);
        if rest > 0 {
            shown.push_str(&format!("and {} more: `allod scope list {}`\n", counted(rest, "scope"), shell(network)));
        }
    }
    print(&shown)?;
    let found = Named::of(session, network, &config).await;
    let found = found.map_err(|error| Failure::of_method("network.get", &named, &error))?;
    let advice = match (stopped(session, &named["network"]).await, found) {
        (Some(why), _) => vec![why],
        (None, Named::Open(name)) => {
            let contested = contested(session, network).await;
            contested.into_iter().chain(open(session, &name, &counts, &config, &top).await).collect()
        }
        (None, Named::Closed { id, name }) => closed(&id, &name, &counts, &top),
    };
    let advice: Vec<String> = advice.iter().map(|line| wrapped(line, 78, 2)).collect();
    session.say(&format!("\n{}", advice.join("\n")));
    Ok(Exit::Success)
}

/// Why nothing is granted even if addresses are free, if the network is stopped and shows what it has in memory.
async fn stopped(session: &mut Session, network: &Value) -> Option<String> {
    let refused = stops::refused(session.try_call(stops::METHOD, stops::params(network)).await)?;
    let what = "nothing is granted in it, whatever is free";
    Some(format!(
        "{what}: {}; {}",
        refused.message,
        hint::network_stopped(refused.data.get("reason").and_then(Value::as_str))
    ))
}

/// Why nothing new is granted, whatever is free, if addresses of the network have two claims since a failover.
async fn contested(session: &mut Session, network: &str) -> Option<String> {
    let found = session.try_call("cluster.conflicts", named(network)).await.ok()?;
    contested_words(network, list(&found, "conflicts").count())
}

fn contested_words(network: &str, count: usize) -> Option<String> {
    let (named, are) = (shell(network), if count == 1 { "is" } else { "are" });
    let count = (count > 0).then(|| counted(count, "conflict"))?;
    Some(format!(
        "nothing new is granted in it, whatever is free, until {count} of a failover {are} decided: `allod cluster conflicts {named}` \
         lists both claims, and `allod cluster accept {named} ADDRESS` gives up the late one (first see that it is not in use)"
    ))
}

fn named(network: &str) -> serde_json::Map<String, Value> {
    serde_json::Map::from_iter([("network".to_owned(), network.into())])
}

/// The advice, together with facts that the counts do not contain: when an address becomes free, and which blocks fit.
async fn open(session: &mut Session, name: &str, counts: &Value, config: &Value, scopes: &[Value]) -> Vec<String> {
    let mut advice = advice(name, counts, config, scopes);
    if let Some(words) = next_free(session, name, counts, config).await {
        let more = advice.len().saturating_sub(1);
        advice.insert(more, words);
    }
    let mut blocks = free_blocks(session, name, counts).await;
    if !blocks.is_empty() {
        blocks.push(blocks::NEVER.to_owned());
        let more = advice.len().saturating_sub(1);
        advice.splice(more..more, blocks);
    }
    advice
}

/// The advice for a network that was deleted: nothing is granted there even if addresses are free, and nothing makes more
/// room.
fn closed(id: &str, name: &str, counts: &Value, scopes: &[Value]) -> Vec<String> {
    // It accepts no changes, so reserved and cooling addresses cannot be freed.
    let whole = json!({"held": counts.get("held"), "obsolete": counts.get("obsolete")});
    let mut lines = vec![format!(
        "network `{name}` was deleted, and is remembered for what it holds: nothing is granted there; what is held:"
    )];
    lines.extend(part_lines(parts(id, &[&whole], scopes, false, false)));
    lines.push(format!(
        "`allod network restore {id}` brings it back; `allod ip release {id} ADDRESS --owner OWNER` gives back what it \
         holds, and it is gone with the last"
    ));
    lines
}

/// The most pools that are queried one by one.
const POOLS_MAX: usize = 8;

/// When an address becomes free by itself, according to the server's refusal of an allocation. If no pool of a family has
/// room, one query is enough; otherwise each full pool is queried, because an allocation may name it. None if no pool is
/// full.
async fn next_free(session: &mut Session, network: &str, counts: &Value, config: &Value) -> Option<String> {
    let yields = yields(config);
    let full = full(counts, yields);
    let has_room =
        |family: u8| dynamic(counts).into_iter().any(|pool| of_family(pool, family) && room(pool, yields) > 0);
    let mut asked = Vec::new();
    for family in [4, 6].into_iter().filter(|&family| full.iter().any(|pool| of_family(pool, family))) {
        if has_room(family) {
            let pools = full.iter().filter(|pool| of_family(pool, family));
            asked.extend(pools.map(|pool| json!({"pool": text(pool, "range")})));
        } else {
            asked.push(json!({"family": family}));
        }
    }
    let left_out = asked.len().saturating_sub(POOLS_MAX);
    let mut earliest: Option<String> = None;
    for mut asked in asked.into_iter().take(POOLS_MAX) {
        (asked["network"], asked["owner"], asked["dry_run"]) = (json!(network), json!("why-full"), json!(true));
        let answer = session.try_call("ip.allocate", asked.as_object().cloned().unwrap_or_default()).await;
        let at = answer.err().and_then(|error| error.rpc()?.data.get("next_free_at").map(text_of));
        // All times have the same form, so the earlier one is the smaller text.
        earliest = [earliest, at].into_iter().flatten().min();
    }
    match (earliest, left_out) {
        (None, 0) => None,
        (Some(at), 0) => Some(format!("the next address is free by itself at {at}")),
        (at, left_out) => {
            let when = at.map_or_else(
                || "no address is free by itself".to_owned(),
                |at| format!("the next address is free by itself at {at}"),
            );
            Some(format!(
                "{when}, of the first {POOLS_MAX} that are full; {} not asked about",
                counted_were(left_out, "more pool")
            ))
        }
    }
}

/// The largest block that fits into each pool with free addresses. If the map of a pool is too large for the server, it is
/// left out.
async fn free_blocks(session: &mut Session, network: &str, counts: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let with_room: Vec<&Value> = dynamic(counts).into_iter().filter(|pool| number(pool, "free") > 0).collect();
    for pool in with_room.iter().take(POOLS_MAX) {
        let asked = json!({"network": network, "pool": text(pool, "range"), "format": "runs"});
        let map = session.try_call("network.map", asked.as_object().cloned().unwrap_or_default()).await;
        lines.extend(map.iter().flat_map(blocks::lines));
    }
    let left_out = with_room.len().saturating_sub(POOLS_MAX);
    if left_out > 0 {
        let named = shell(network);
        lines.push(format!(
            "- {} not looked at: `allod network map {named} --pool RANGE` draws one",
            counted_were(left_out, "more pool")
        ));
    }
    lines
}

/// Is the pool of this family, 4 or 6?
fn of_family(pool: &Value, family: u8) -> bool {
    text(pool, "range").contains(':') == (family == 6)
}

/// The pools that allocations draw from.
fn dynamic(counts: &Value) -> Vec<&Value> {
    let dynamic = |pool: &&Value| pool.get("kind").and_then(Value::as_str) != Some("static");
    list(counts, "subnets").flat_map(|subnet| list(subnet, "pools")).filter(dynamic).collect()
}

/// Those of them without room.
fn full(counts: &Value, yields: bool) -> Vec<&Value> {
    dynamic(counts).into_iter().filter(|pool| room(pool, yields) == 0).collect()
}

/// The addresses of a pool that can be granted; if cooling addresses yield, they count as well.
fn room(pool: &Value, yields: bool) -> u128 {
    let cooling = if yields { number(pool, "cooling") } else { 0 };
    number(pool, "free").saturating_add(cooling)
}

/// Does the network grant cooling addresses when nothing else is free?
fn yields(config: &Value) -> bool {
    config.get("cooldown_yields") == Some(&Value::Bool(true))
}

fn scope_table(scopes: &[Value]) -> Table {
    let mut table = Table::new(&["SCOPE", "#ADDRESSES", "#RESERVATIONS", "#OBSOLETE", "#UNBOUND"]);
    for scope in scopes.iter().take(SCOPES_MAX) {
        let count = |name: &str| grouped(&scope.get(name).map(text_of).unwrap_or_default());
        let name = scope.get("scope").map(text_of).unwrap_or_default();
        table.row(vec![name, count("addresses"), count("reservations"), count("obsolete"), count("unbound")]);
    }
    table
}

/// A line for each thing that takes space, the largest first, with the command that frees it; ways to make room come last.
/// If pools are full, only these are counted: an IPv6 subnet always has room, which does not help a client that needs IPv4.
pub fn advice(network: &str, counts: &Value, config: &Value, scopes: &[Value]) -> Vec<String> {
    let named = shell(network);
    let yields = yields(config);
    let (pools, full) = (dynamic(counts), full(counts, yields));
    let mut lines = Vec::new();
    let has_subnets = list(config, "subnets").next().is_some();
    if text(config, "kind") == "dynamic" {
        lines.push(format!("what it holds the infrastructure picks; `allod ip list --network {named}` shows it"));
        return lines;
    }
    if !has_subnets {
        lines.push(format!("it has no subnet to draw from: `allod subnet add {named} CIDR`"));
        return lines;
    }
    if pools.is_empty() {
        lines.push(format!("it has no dynamic pool to draw from: `allod pool add {named} RANGE`"));
    } else if full.is_empty() {
        lines.push(format!("no pool is full; what takes space in network `{network}`:"));
    } else {
        let names: Vec<String> = full.iter().map(|pool| short_range(&text(pool, "range"))).collect();
        lines.push(format!("full: {}; what takes the space there:", names.join(", ")));
    }
    let whole = [counts];
    let counted: &[&Value] = if full.is_empty() { &whole } else { &full };
    let has_reserved = list(config, "subnets").any(|subnet| list(subnet, "reserved").next().is_some());
    lines.extend(part_lines(parts(&named, counted, scopes, has_reserved, yields)));
    lines.extend(list(config, "subnets").flat_map(|subnet| draining(&named, subnet)));
    lines.push(format!("more room: `allod subnet add {named} CIDR`, or `allod pool add {named} RANGE`"));
    lines
}

fn part_lines(parts: Vec<(u128, String)>) -> impl Iterator<Item = String> {
    parts.into_iter().map(|(count, what)| format!("- {} {what}", grouped(&count.to_string())))
}

/// What takes space in `counted`, the largest first, with the command that frees it. Cooling addresses that yield take none.
fn parts(named: &str, counted: &[&Value], scopes: &[Value], has_reserved: bool, yields: bool) -> Vec<(u128, String)> {
    let count = |name: &str| counted.iter().fold(0u128, |sum, of| sum.saturating_add(number(of, name)));
    let top = scopes.first().map_or_else(|| "default".to_owned(), |scope| shell(&text(scope, "scope")));
    let unreserve = if has_reserved { format!(", `allod reserved remove {named} RANGE` frees") } else { String::new() };
    let mut parts = vec![
        (
            count("held").saturating_sub(count("obsolete")),
            format!("held: `allod ip list --network {named} --scope {top}` lists those of the largest scope"),
        ),
        (
            count("obsolete"),
            "obsolete, until their deployment is committed: `allod deployment list` names those uncommitted".to_owned(),
        ),
        (
            if yields { 0 } else { count("cooling") },
            format!("cooling after release: `allod network update {named} --cooldown-yields=true` lets them be used"),
        ),
        (
            count("declined"),
            format!(
                "declined, because somebody else answers there: `allod history --network {named}` shows which; they come \
                 back by themselves"
            ),
        ),
        (
            count("reserved"),
            format!("reserved, unusable or draining: `allod network get {named}` shows which{unreserve}"),
        ),
    ];
    // These are held as well, so they are shown in addition to that sum: holders without a machine should be checked first.
    let unbound = scopes.iter().fold(0u128, |sum, scope| sum.saturating_add(number(scope, "unbound")));
    let all = format!("held without a claimant, in all pools: `allod ip list --network {named} --bound false`");
    parts.push((unbound, all));
    parts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    parts.retain(|(count, _)| *count > 0);
    parts
}

fn number(of: &Value, name: &str) -> u128 {
    of.get(name).and_then(number_of).unwrap_or(0)
}

fn text(of: &Value, name: &str) -> String {
    of.get(name).map(text_of).unwrap_or_default()
}

/// What is draining in a subnet, with the command that ends it.
fn draining(named: &str, subnet: &Value) -> Vec<String> {
    let is = |of: &Value| of.get("draining") == Some(&Value::Bool(true));
    let line = |what: &str, which: String| {
        format!(
            "- {what} {which} is draining, nothing new is granted there: `allod {what} modify {named} {which} --draining \
             false`"
        )
    };
    if is(subnet) {
        return vec![line("subnet", text(subnet, "cidr"))];
    }
    list(subnet, "pools").filter(|pool| is(pool)).map(|pool| line("pool", text(pool, "range"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fake;

    /// Whatever is free: the counts do not show it.
    #[tokio::test]
    async fn a_network_with_conflicts_is_said_to_grant_nothing_new() {
        let words = async |count: usize| {
            let mut session = fake::session_with(move |method, params| {
                assert_eq!((method, params), ("cluster.conflicts", &json!({"network": "lan"})));
                json!({"conflicts": vec![json!({"address": "10.0.0.2"}); count]})
            })
            .await;
            contested(&mut session, "lan").await
        };
        assert_eq!(words(0).await, None);
        assert!(words(1).await.unwrap().contains(" until 1 conflict of a failover is decided: "));
        let said = words(2).await.unwrap();
        assert!(said.starts_with("nothing new is granted in it, whatever is free, until 2 conflicts"), "{said}");
        assert!(
            said.contains("`allod cluster conflicts lan`") && said.contains("`allod cluster accept lan ADDRESS`"),
            "{said}"
        );
    }

    #[test]
    fn only_what_is_reserved_can_be_freed_by_ending_that() {
        let pool = json!({"range": "10.0.0.0-10.0.0.255", "draining": true});
        let counts =
            json!({"subnets": [{"pools": [{"range": "10.0.0.0-10.0.0.255", "reserved": "256", "free": "0"}]}]});
        let said = |reserved: Value| {
            let config = json!({"subnets": [{"cidr": "10.0.0.0/24", "pools": [pool], "reserved": reserved}]});
            advice("lan", &counts, &config, &[]).join("\n")
        };
        let draining = said(json!([]));
        assert!(!draining.contains("reserved remove"), "{draining}");
        assert!(draining.contains("`allod pool modify lan 10.0.0.0-10.0.0.255 --draining false`"), "{draining}");
        let both = said(json!([{"range": "10.0.0.9"}]));
        assert!(both.contains("`allod reserved remove lan RANGE`"), "{both}");
    }
}
