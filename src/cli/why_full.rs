//! `allod network why-full NETWORK`: what takes the space, pool by pool and scope by scope, and what frees it.

use serde_json::{Value, json};

use super::exit::Exit;
use super::output::map::grouped;
use super::output::table::{Table, wrapped};
use super::output::{Format, number_of, print, text_of, usage};
use super::quote::shell;
use super::session::{Done, Session};

/// Scopes that are shown.
const SCOPES_MAX: usize = 10;

/// Asks for counts, configuration and scopes of a network, and explains them.
pub async fn run(session: &mut Session, network: &str) -> Done<Exit> {
    let named = json!({"network": network});
    let counts = session.call("network.usage", named.clone()).await?;
    let config = session.call("network.get", named.clone()).await?;
    let scopes = session.call("scope.list", named).await?;
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
    }
    print(&shown)?;
    let name = config.get("name").and_then(Value::as_str).unwrap_or(network);
    let advice: Vec<String> = advice(name, &counts, &config, &top).iter().map(|line| wrapped(line, 78, 2)).collect();
    session.say(&format!("\n{}", advice.join("\n")));
    Ok(Exit::Success)
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

/// One line for each thing that takes space, the largest first, each with the command that frees it; what makes room
/// comes last.
pub fn advice(network: &str, counts: &Value, config: &Value, scopes: &[Value]) -> Vec<String> {
    let named = shell(network);
    let count = |name: &str| counts.get(name).and_then(number_of).unwrap_or(0);
    let free = count("free");
    let mut lines = Vec::new();
    let pools: Vec<&Value> = list(config, "subnets").flat_map(|subnet| list(subnet, "pools")).collect();
    if pools.is_empty() {
        lines.push(format!("- it has no pool to draw from: `allod pool add {named} RANGE`"));
    } else if pools.iter().all(|pool| pool.get("kind").and_then(Value::as_str) == Some("static")) {
        lines.push(format!("- all its pools are static, for claims only: `allod pool add {named} RANGE`"));
    } else if free == 0 {
        lines.push("no address is free:".to_owned());
    } else {
        let free = grouped(&free.to_string());
        lines.push(format!("{free} free, as counted here; a pool that is full is passed over:"));
    }
    let mut parts: Vec<(u128, String)> = Vec::new();
    let unbound: u128 = scopes.iter().filter_map(|scope| scope.get("unbound").and_then(number_of)).sum();
    if let Some(top) = scopes.iter().find(|scope| scope.get("addresses").and_then(number_of).unwrap_or(0) > 0) {
        let scope = shell(top.get("scope").and_then(Value::as_str).unwrap_or_default());
        parts.push((
            count("held").saturating_sub(count("obsolete")),
            format!("held: `allod ip list --network {named} --scope {scope}` lists those of the largest scope"),
        ));
    }
    parts.push((
        count("obsolete"),
        "obsolete, until their deployment is committed: `allod call deployment.list` names those uncommitted"
            .to_owned(),
    ));
    parts.push((unbound, format!("held without a claimant: `allod ip list --network {named} --bound false`")));
    parts.push((
        count("cooling"),
        format!("cooling after release: `allod network update {named} --cooldown-yields=true` lets them be used"),
    ));
    parts.push((
        count("declined"),
        "declined, as somebody else answers there: find that machine; the probation ends by itself, and \
         `allod network map` shows where they are"
            .to_owned(),
    ));
    parts.push((
        count("reserved"),
        format!(
            "reserved, unusable or draining: `allod network get {named}` shows which, `allod reserved remove` frees"
        ),
    ));
    parts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    lines.extend(parts.map(|(count, what)| format!("- {} {what}", grouped(&count.to_string()))));
    for draining in list(config, "subnets").flat_map(draining) {
        lines.push(format!("- {draining} is draining: nothing new is granted there"));
    }
    lines.push(format!("more room: `allod subnet add {named} CIDR`, or `allod pool add {named} RANGE`"));
    lines
}

/// What of a subnet is draining, in words with the command that ends it.
fn draining(subnet: &Value) -> Vec<String> {
    let is = |of: &Value| of.get("draining") == Some(&Value::Bool(true));
    let text = |of: &Value, name: &str| of.get(name).map(text_of).unwrap_or_default();
    if is(subnet) {
        return vec![format!("subnet {} (`allod subnet modify … --draining false`)", text(subnet, "cidr"))];
    }
    let pools = list(subnet, "pools").filter(|pool| is(pool));
    pools.map(|pool| format!("pool {} (`allod pool modify … --draining false`)", text(pool, "range"))).collect()
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of.get(name).and_then(Value::as_array).into_iter().flatten()
}
