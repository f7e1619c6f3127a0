//! By what a network is asked for, and whether it is closed: deleted with `force`, and remembered for what it holds.

use serde_json::{Map, Value};

use crate::cli::output::text_of;
use crate::cli::session::Session;
use crate::client::ClientError;

/// A network as somebody found it.
#[derive(Debug, PartialEq, Eq)]
pub enum Named {
    /// Its name leads to it.
    Open(String),
    /// Its name leads to another network by now, or to none: nothing but its id names it.
    Closed {
        /// What leads to it.
        id: String,
        /// What it was called.
        name: String,
    },
}

impl Named {
    /// Of the network that was asked for as `asked`, the answer of `network.get`. That is the same for an open and a closed
    /// network; where the name leads is what tells them apart.
    pub async fn of(session: &mut Session, asked: &str, found: &Value) -> Result<Self, ClientError> {
        let text = |of: &Value, member: &str| of.get(member).map(text_of);
        let name = text(found, "name").unwrap_or_else(|| asked.to_owned());
        // Whoever said its name was led to it.
        let Some(id) = text(found, "id").filter(|_| name != asked) else { return Ok(Self::Open(name)) };
        match session.try_call("network.get", Map::from_iter([("network".to_owned(), name.as_str().into())])).await {
            Ok(there) if text(&there, "id").as_ref() == Some(&id) => Ok(Self::Open(name)),
            Ok(_) => Ok(Self::Closed { id, name }),
            Err(error) if error.rpc().is_some_and(|error| error.kind == "not_found") => Ok(Self::Closed { id, name }),
            Err(error) => Err(error),
        }
    }
}
