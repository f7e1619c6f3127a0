//! How a network is named, and whether it is closed: deleted with `force`, and remembered for what it holds.

use serde_json::{Map, Value};

use crate::cli::output::text_of;
use crate::cli::session::Session;
use crate::client::ClientError;

/// A network and its name.
#[derive(Debug, PartialEq, Eq)]
pub enum Named {
    /// Its name leads to it.
    Open(String),
    /// Its name leads to another network, or to none: only its id names it.
    Closed {
        /// Its id.
        id: String,
        /// Its former name.
        name: String,
    },
}

impl Named {
    /// For the network that was requested as `asked`, with `found` as the answer of `network.get`. The answer is the same
    /// for an open and a closed network; they differ in where the name leads.
    pub async fn of(session: &mut Session, asked: &str, found: &Value) -> Result<Self, ClientError> {
        let text = |of: &Value, member: &str| of.get(member).map(text_of);
        let name = text(found, "name").unwrap_or_else(|| asked.to_owned());
        // If it was requested by its name, the name leads to it.
        let Some(id) = text(found, "id").filter(|_| name != asked) else { return Ok(Self::Open(name)) };
        match session.try_call("network.get", Map::from_iter([("network".to_owned(), name.as_str().into())])).await {
            Ok(there) if text(&there, "id").as_ref() == Some(&id) => Ok(Self::Open(name)),
            Ok(_) => Ok(Self::Closed { id, name }),
            Err(error) if error.rpc().is_some_and(|error| error.kind == "not_found") => Ok(Self::Closed { id, name }),
            Err(error) => Err(error),
        }
    }
}
