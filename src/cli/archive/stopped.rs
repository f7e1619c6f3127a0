//! An export from a server with stopped networks: what the file contains of them, and what the user is told.
//!
//! A network that the self-check stopped is in the file as it is in memory, which is lost at the next start. A network that
//! crashes, or cannot be loaded, answers nothing: the others are in the file, which says that it is incomplete.

use std::collections::HashSet;

use serde_json::Value;

use super::super::args::Ask;
use super::super::failure::Failure;
use super::super::hint;
use super::super::pages::{self, Kept};
use super::super::session::{Done, Session};
use super::super::stops;
use super::claiming::many;
use crate::client::RpcError;

/// Networks that answer everything, and the refusals of the others.
#[derive(Debug, Default)]
pub(super) struct There {
    /// The networks that can be exported.
    pub(super) networks: Vec<Value>,
    /// The refusal of each of those that cannot.
    pub(super) left_out: Vec<RpcError>,
}

impl Kept for There {
    fn begin(&mut self) {
        self.networks.clear();
        self.left_out.clear();
    }

    fn keep(&mut self, items: Vec<Value>) -> usize {
        self.networks.keep(items)
    }

    fn passes_over(&mut self, refused: &RpcError) -> Option<Value> {
        let next = refused.data.get("next").filter(|_| refused.kind == stops::STOPPED)?.clone();
        self.left_out.push(refused.clone());
        Some(next)
    }
}

impl There {
    /// All networks of the server, or of a realm, requested with these params.
    pub(super) async fn of(session: &mut Session, realm: Option<&str>, params: &Value) -> Done<Self> {
        let ask = Ask::new("network.list", params);
        let ask = realm.map_or_else(|| ask.clone(), |realm| ask.clone().with("realm", realm));
        let mut there = Self::default();
        pages::keep_all(session, &ask, "networks", &mut there).await?;
        Ok(there)
    }

    /// The first of these networks that is not as it was: `now` is what is there since.
    pub(super) fn first_changed(&self, now: &Self) -> Option<&Value> {
        let state = |network: &Value| (network["id"].as_str().map(str::to_owned), network["version"].as_u64());
        let now: HashSet<_> = now.networks.iter().map(state).collect();
        self.networks.iter().find(|network| !now.contains(&state(network)))
    }

    /// The params that list everything they hold: one list, or one for each network if a list of all would be refused.
    pub(super) fn lists(&self, filter: &Value) -> Vec<Value> {
        if self.left_out.is_empty() {
            return vec![filter.clone()];
        }
        let of_one = |network: &Value| {
            let mut filter = filter.clone();
            filter["network"] = network["id"].clone();
            filter
        };
        self.networks.iter().map(of_one).collect()
    }

    /// The names of those that are left out.
    pub(super) fn names_left_out(&self) -> Vec<&str> {
        self.left_out.iter().filter_map(|refused| refused.data.get("network")?.as_str()).collect()
    }

    /// Fails if the file is incomplete.
    pub(super) fn missing(&self) -> Done<()> {
        let Some(first) = self.left_out.first() else { return Ok(()) };
        let sentences: Vec<&str> = self.left_out.iter().map(|refused| refused.message.as_str()).collect();
        let reason = format!("the file is not whole: {}. All others are in it", sentences.join(". "));
        let failure = Failure::new("export all of the register", reason, hint::network_stopped(text_of(first)));
        Err(Failure { refused: Some(Box::new(first.clone())), ..failure }.into())
    }
}

fn text_of(refused: &RpcError) -> Option<&str> {
    refused.data.get("reason").and_then(Value::as_str)
}

/// Says which of these networks are in the file as they are in memory, and not as the store has them.
pub(super) async fn tell_shown(session: &Session, networks: &[Value]) -> Done<()> {
    let asked: Vec<_> = networks.iter().filter_map(|network| network.get("id")).map(stops::params).collect();
    let mut stopped: Vec<RpcError> = Vec::new();
    let ask = |client: crate::client::Client, params| async move {
        // Other errors do not matter here: everything for the file was answered.
        Ok(stops::refused(client.call(stops::METHOD, params).await))
    };
    many(session, "looking", asked.into_iter(), ask, |refused| stopped.extend(refused)).await?;
    stopped.sort_by(|one, other| one.message.cmp(&other.message));
    for refused in &stopped {
        session.say(&format!("{}: the file has it as it is in memory, so keep it", refused.message));
    }
    Ok(())
}
