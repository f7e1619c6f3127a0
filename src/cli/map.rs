//! `allod network map`: draws each pool, small ones address by address and large ones in cells.

use serde_json::{Map as Members, Value, json};

use super::exit::Exit;
use super::network::Map;
use super::output::{Format, map, print};
use super::quote::shell;
use super::session::{Done, Session};
use crate::core::address::Range;

/// Why there is nothing to draw. A pool that does not exist in the network is refused by the server.
fn nothing_to_draw(args: &Map) -> String {
    let (network, named) = (&args.network, shell(&args.network));
    match (&args.subnet, &args.pool) {
        (Some(subnet), Some(pool)) => format!(
            "pool `{pool}` of network `{network}` is not in subnet `{subnet}`; `allod network get {named}` shows which pools are \
             in which"
        ),
        (Some(subnet), None) => {
            format!("subnet `{subnet}` of network `{network}` has no pools; `allod pool add {named} RANGE` makes one")
        }
        (None, _) => format!(
            "network `{network}` has no pools; `allod subnet add {named} CIDR` or `allod pool add {named} RANGE` make some"
        ),
    }
}

/// Draws the pools of a network.
pub async fn run(session: &mut Session, args: &Map) -> Done<Exit> {
    let mut params = json!({"network": args.network});
    for (member, value) in [("subnet", &args.subnet), ("pool", &args.pool)] {
        if let Some(value) = value {
            params[member] = json!(value);
        }
    }
    // The format `runs` works for any size, so no pool is too large for a program.
    params["format"] = json!("runs");
    let overview = session.call("network.map", params.clone()).await?;
    if session.options.style.format != Format::Table {
        session.print("network.map", &Members::new(), &overview)?;
        return Ok(Exit::Success);
    }
    let mut drawn = Vec::new();
    let (mut text_seen, mut cells_seen) = (false, false);
    for pool in overview.get("pools").and_then(Value::as_array).into_iter().flatten() {
        let text = pool.get("range").and_then(Value::as_str).unwrap_or_default();
        let Ok(range) = text.parse::<Range>() else { continue };
        let mut params = json!({"network": args.network, "pool": text});
        if range.size() <= map::TEXT_ADDRESSES_MAX {
            params["format"] = json!("text");
            text_seen = true;
        } else {
            params["format"] = json!("cells");
            params["cell_prefix_length"] = json!(map::cell_prefix_length(range));
            cells_seen = true;
        }
        let result = session.call("network.map", params).await?;
        drawn.extend(result.get("pools").and_then(Value::as_array).into_iter().flatten().filter_map(map::pool));
    }
    if drawn.is_empty() {
        session.say(&nothing_to_draw(args));
        return Ok(Exit::Success);
    }
    print(&drawn.join("\n"))?;
    // The legend is an explanation, not data.
    for (seen, legend) in [(text_seen, map::LEGEND), (cells_seen, map::CELL_LEGEND)] {
        if seen {
            session.say(&format!("\n{legend}"));
        }
    }
    Ok(Exit::Success)
}
