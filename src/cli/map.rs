//! `allod network map`: asks pool by pool, small ones address by address and large ones in cells.

use serde_json::{Value, json};

use super::exit::Exit;
use super::network::Map;
use super::output::{Format, map, print};
use super::session::{Done, Session};
use crate::core::address::Range;

/// Draws the pools of a network.
pub async fn run(session: &mut Session, args: &Map) -> Done<Exit> {
    let mut params = json!({"network": args.network});
    for (member, value) in [("subnet", &args.subnet), ("pool", &args.pool)] {
        if let Some(value) = value {
            params[member] = json!(value);
        }
    }
    if session.options.style.format != Format::Table {
        // `runs` serves any size, so a program never meets a pool that is too large to be told.
        params["format"] = json!("runs");
        let result = session.call("network.map", params.clone()).await?;
        session.print("network.map", params.as_object().unwrap_or(&serde_json::Map::new()), &result)?;
        return Ok(Exit::Success);
    }
    params["format"] = json!("cells");
    let overview = session.call("network.map", params.clone()).await?;
    let mut drawn = Vec::new();
    let (mut text_seen, mut cells_seen) = (false, false);
    for pool in overview.get("pools").and_then(Value::as_array).into_iter().flatten() {
        let range = pool.get("range").and_then(Value::as_str).unwrap_or_default();
        let small = range.parse::<Range>().is_ok_and(|range| range.size() <= map::TEXT_ADDRESSES_MAX);
        if small {
            let params = json!({"network": args.network, "pool": range, "format": "text"});
            let result = session.call("network.map", params).await?;
            drawn.extend(result.get("pools").and_then(Value::as_array).into_iter().flatten().filter_map(map::pool));
            text_seen = true;
        } else {
            drawn.extend(map::pool(pool));
            cells_seen = true;
        }
    }
    if drawn.is_empty() {
        session.say(&format!(
            "network `{}` has no pools; add one: `allod pool add {} RANGE`",
            args.network,
            super::quote::shell(&args.network)
        ));
        return Ok(Exit::Success);
    }
    print(&drawn.join("\n"))?;
    // The legend explains, it is no data.
    for (seen, legend) in [(text_seen, map::LEGEND), (cells_seen, map::CELL_LEGEND)] {
        if seen {
            session.say(&format!("\n{legend}"));
        }
    }
    Ok(Exit::Success)
}
