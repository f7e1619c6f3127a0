//! `allod cluster shards`: how each shard stands, asked of the node that owns the register, wherever that is.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::failure::Failure;
use super::output::table::Table;
use super::output::{Format, list, print, text_of};
use super::session::{Done, Session};

/// Right behind a hand-over not everybody knows the new owner, and it may not say yet what it owns. So often it is asked again.
const ASKED_AGAIN: u32 = 20;
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// What the owner says of its nodes and shards, and its name, as far as either is known.
async fn ask(session: &mut Session) -> Done<(Value, Option<String>)> {
    let mut known = session.call("cluster.nodes", json!({})).await?;
    let owner = list(&known, "nodes").find(|node| node["owner"] == true).cloned();
    let name = owner.as_ref().map(|owner| text_of(&owner["name"]));
    if list(&known, "shards").next().is_none()
        && let Some(address) = owner.as_ref().and_then(|owner| owner.get("address"))
    {
        let mut options = session.options.clone();
        options.server = text_of(address);
        known = Session::new(options).call("cluster.nodes", json!({})).await?;
    }
    Ok((known, name))
}

/// Asks for the nodes, and the owner for what it owns.
pub async fn run(session: &mut Session) -> Done<Exit> {
    let (mut known, mut name) = ask(session).await?;
    for _ in 0..ASKED_AGAIN {
        let is_alone = list(&known, "nodes").count() == 1;
        if name.is_some() && (is_alone || list(&known, "shards").next().is_some()) {
            break;
        }
        tokio::time::sleep(ASKED_EVERY).await;
        (known, name) = ask(session).await?;
    }
    let shards: Vec<Value> = list(&known, "shards").cloned().collect();
    let nodes = list(&known, "nodes").count();
    if let Some(name) = name.as_ref().filter(|_| shards.is_empty() && nodes == 1) {
        // A register in Redis has shards, whoever owns it; one in files or in memory is this server's alone.
        let store = session.call("server.info", json!({})).await?.get("store").map(text_of).unwrap_or_default();
        if !store.is_empty() && store != "redis" {
            if session.options.style.format != Format::Table {
                session.print("shards", &Map::new(), &json!({"owner": name, "shards": []}))?;
            }
            let alone = "this server has its store alone, which no other node could own: it has no shards";
            session.say(&format!("{alone} (store `{store}` of node `{name}`)"));
            return Ok(Exit::Success);
        }
    }
    let Some(name) = name.filter(|_| !shards.is_empty()) else {
        let reason = "no node that was asked owns a register that others could own too";
        let hint = "`allod cluster nodes` shows who does; `GET /readyz` of each says what stands in the way";
        return Err(Failure::new("tell how the shards stand", reason, hint).into());
    };
    if session.options.style.format != Format::Table {
        session.print("shards", &Map::new(), &json!({"owner": name, "shards": shards}))?;
        return Ok(Exit::Success);
    }
    print(&table(&name, &shards).render(session.options.style.width))?;
    Ok(Exit::Success)
}

/// A row for those that follow each other and stand alike.
fn table(owner: &str, shards: &[Value]) -> Table {
    let mut table = Table::new(&["SHARDS", "OWNER", "#EPOCH", "STATE"]);
    let alike = |one: &Value, other: &Value| one["epoch"] == other["epoch"] && one["state"] == other["state"];
    for run in shards.chunk_by(alike) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let (from, to) = (text_of(&first["shard"]), text_of(&last["shard"]));
        let range = if from == to { from } else { format!("{from}-{to}") };
        table.row(vec![range, owner.to_owned(), text_of(&first["epoch"]), text_of(&first["state"])]);
    }
    table
}
