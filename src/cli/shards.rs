//! `allod cluster shards`: the state of each shard, asked from the node that owns the register, wherever that is.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::failure::Failure;
use super::output::table::Table;
use super::output::{Format, list, print, text_of};
use super::session::{Done, Options, Session};
use crate::client::ClientError;

/// Right after a hand-over not all nodes know the new owner, and the owner may not report its shards yet. So the question is
/// repeated this often.
const ASKED_AGAIN: u32 = 20;
const ASKED_EVERY: Duration = Duration::from_millis(100);
/// How long the owner may take to answer. Another node has answered already, and the user should learn that the owner does not.
const OWNER_WITHIN: Duration = Duration::from_secs(3);

const ASKED: &str = "tell how the shards stand";

/// What is known of the owner and its shards.
struct Known {
    /// The answer of the node that was asked, about all nodes.
    nodes: Value,
    /// The name of the owner, as that one knows it.
    owner: Option<String>,
    /// The answer of the owner about its shards.
    shards: Vec<Value>,
    /// Where the owner was asked in vain, and the error.
    silent: Option<(String, ClientError)>,
}

impl Known {
    /// Asks for the nodes, and the owner, if that is another node, for its shards.
    async fn ask(session: &mut Session) -> Done<Self> {
        let nodes = session.call("cluster.nodes", json!({})).await?;
        let shards: Vec<Value> = list(&nodes, "shards").cloned().collect();
        let owner = list(&nodes, "nodes").find(|node| node["owner"] == true).cloned();
        let mut known =
            Self { owner: owner.as_ref().map(|owner| text_of(&owner["name"])), nodes, shards, silent: None };
        if known.shards.is_empty()
            && let Some(address) = owner.as_ref().and_then(|owner| owner.get("address")).map(text_of)
        {
            let timeout = session.options.timeout.min(OWNER_WITHIN);
            let options = Options { server: address.clone(), timeout, ..session.options.clone() };
            match Session::looking(options).try_call("cluster.nodes", Map::new()).await {
                Ok(told) => known.shards = list(&told, "shards").cloned().collect(),
                Err(error) => known.silent = Some((address, error)),
            }
        }
        Ok(known)
    }

    /// Is this the final answer, or may it change in a moment?
    fn is_settled(&self) -> bool {
        let is_alone = list(&self.nodes, "nodes").count() == 1;
        let hangs = matches!(self.silent, Some((_, ClientError::TimedOut { .. })));
        hangs || (self.owner.is_some() && (is_alone || !self.shards.is_empty()))
    }

    /// Why the state of the shards is unknown.
    fn failure(&self) -> Failure {
        match (&self.owner, &self.silent) {
            (Some(owner), Some((address, error))) => {
                let why = match error {
                    ClientError::Connect { cause, .. } | ClientError::Lost { cause } => cause.clone(),
                    ClientError::TimedOut { seconds, .. } => format!("no answer within {seconds} s"),
                    error => error.to_string(),
                };
                let reason = format!(
                    "node `{owner}`, which owns the register as far as the node that was asked knows, does not answer at {address}: \
                     {why}"
                );
                let hint = "where that node ended or hangs, another one takes over when its lease of 5 s has run out: ask again \
                            then. If it goes on owning the register, it is only this address that leads nowhere from here";
                Failure { exit: Exit::Unreachable, ..Failure::new(ASKED, reason, hint) }
            }
            (Some(owner), None) => Failure::new(
                ASKED,
                format!("node `{owner}` is about to own the register, and does not say yet how its shards stand"),
                "ask again in a moment; `GET /readyz` of that node says what stands in the way",
            ),
            (None, _) => Failure::new(
                ASKED,
                "no node owns the register now, as far as the node that was asked knows, and only its owner knows that",
                "`GET /readyz` of each node says what stands in the way (`curl http://HOST:PORT/readyz`)",
            ),
        }
    }
}

/// Asks for the nodes, and the owner for its shards.
pub async fn run(session: &mut Session) -> Done<Exit> {
    let mut known = Known::ask(session).await?;
    for _ in 0..ASKED_AGAIN {
        if known.is_settled() {
            break;
        }
        tokio::time::sleep(ASKED_EVERY).await;
        known = Known::ask(session).await?;
    }
    let nodes = list(&known.nodes, "nodes").count();
    if let Some(name) = known.owner.as_ref().filter(|_| known.shards.is_empty() && nodes == 1) {
        // A register in Redis has shards, whoever owns it; a register in files or in memory belongs to this server alone.
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
    let Some(name) = known.owner.as_ref().filter(|_| !known.shards.is_empty()) else {
        if session.options.style.format == Format::Table {
            session.show(&session.options.style.render("cluster.nodes", &json!({}), &known.nodes));
        }
        return Err(known.failure().into());
    };
    if session.options.style.format != Format::Table {
        session.print("shards", &Map::new(), &json!({"owner": name, "shards": known.shards}))?;
        return Ok(Exit::Success);
    }
    print(&table(name, &known.shards).render(session.options.style.width))?;
    Ok(Exit::Success)
}

/// A row for each run of consecutive shards with the same state.
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::cli::fake;
    use crate::cli::session::Stop;

    /// How it fails where the owner is said to be there.
    async fn fails_with(owner: Option<&str>) -> Failure {
        let node = |name: &str, address: &str, owner: bool| json!({"name": name, "id": "1", "version": "1", "address": address, "owner": owner, "draining": false, "seen_ms": 1});
        let all = json!([node("a", "127.0.0.1:1", false), node("b", owner.unwrap_or("127.0.0.1:1"), owner.is_some())]);
        let mut session = fake::session_with(move |_, _| json!({"nodes": all, "shards": []})).await;
        match run(&mut session).await {
            Err(Stop::Failed(failure)) => *failure,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_owner_that_hangs_or_is_gone_is_named_and_not_waited_for_as_long_as_the_node_that_was_asked() {
        let hangs = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = hangs.local_addr().unwrap().to_string();
        let failure = fails_with(Some(&at)).await;
        drop(hangs);
        let gone = fails_with(Some(&at)).await;
        for (failure, why) in [(failure, "no answer within 3 s"), (gone, "refused")] {
            assert_eq!((failure.exit, failure.asked.as_str()), (Exit::Unreachable, ASKED));
            let said = format!(
                "node `b`, which owns the register as far as the node that was asked knows, does not answer at {at}: "
            );
            assert!(failure.reason.starts_with(&said) && failure.reason.contains(why), "{}", failure.reason);
            assert!(!failure.hint.contains("--server") && failure.hint.contains("takes over"), "{}", failure.hint);
        }
    }

    #[tokio::test]
    async fn where_nobody_owns_the_register_that_is_what_is_said() {
        let failure = fails_with(None).await;
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.reason.starts_with("no node owns the register now"), "{}", failure.reason);
    }
}
