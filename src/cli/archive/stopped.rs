//! An export beside networks that are stopped: what of them is in the file, and what is said of them.
//!
//! One that the self-check stopped is in it, as it is in memory, which is gone with the next start. Of one that crashes, or cannot be
//! loaded, nothing is answered: the others are in the file, which says that it is not whole.

use serde_json::Value;

use super::super::args::Ask;
use super::super::failure::Failure;
use super::super::hint;
use super::super::pages::{self, Kept};
use super::super::session::{Done, Session};
use super::super::stops;
use super::claiming::many;
use crate::client::RpcError;

/// Networks of which everything is answered, and why nothing is of the others.
#[derive(Debug, Default)]
pub(super) struct There {
    /// Those that can be had.
    pub(super) networks: Vec<Value>,
    /// What is said of those that cannot.
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
    /// All networks of the server, or of a realm, asked for with these params.
    pub(super) async fn of(session: &mut Session, realm: Option<&str>, params: &Value) -> Done<Self> {
        let ask = Ask::new("network.list", params);
        let ask = realm.map_or_else(|| ask.clone(), |realm| ask.clone().with("realm", realm));
        let mut there = Self::default();
        pages::keep_all(session, &ask, "networks", &mut there).await?;
        Ok(there)
    }

    /// What lists all that they hold: one list, or one for each where one of all would be refused.
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

    /// The file is not whole, if it is not.
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

/// Says which of these are in the file as they are in memory, and not as the store has them.
pub(super) async fn tell_shown(session: &Session, networks: &[Value]) -> Done<()> {
    let asked: Vec<_> = networks.iter().filter_map(|network| network.get("id")).map(stops::params).collect();
    let mut stopped: Vec<RpcError> = Vec::new();
    let ask = |client: crate::client::Client, params| async move {
        // All of it was answered: that is what counts.
        Ok(stops::refused(client.call(stops::METHOD, params).await))
    };
    many(session, "looking", asked.into_iter(), ask, |refused| stopped.extend(refused)).await?;
    stopped.sort_by(|one, other| one.message.cmp(&other.message));
    for refused in &stopped {
        session.say(&format!("{}: the file has it as it is in memory, so keep it", refused.message));
    }
    Ok(())
}
