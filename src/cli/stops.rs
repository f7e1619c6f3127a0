//! Is a network stopped, though it shows what it has in memory? No answer of what only reads says so. Nobody holds anything by the
//! name that is asked for here, and nothing is let go: a network that is stopped refuses it all the same.

use serde_json::{Map, Value, json};

use crate::client::{ClientError, RpcError};

/// The protocol's word for what a network refuses that is stopped.
pub const STOPPED: &str = "network_stopped";

/// What is asked.
pub const METHOD: &str = "ip.release";

/// With these params, of a network by its name or id.
pub fn params(network: &Value) -> Map<String, Value> {
    let pairs = [("network", network.clone()), ("owner", json!("allod-looks")), ("dry_run", json!(true))];
    pairs.map(|(member, value)| (member.to_owned(), value)).into_iter().collect()
}

/// The refusal, if it is. What else may be wrong says nothing of that.
pub fn refused(answer: Result<Value, ClientError>) -> Option<RpcError> {
    match answer {
        Err(ClientError::Rpc(error)) if error.kind == STOPPED => Some(error),
        Ok(_) | Err(_) => None,
    }
}
