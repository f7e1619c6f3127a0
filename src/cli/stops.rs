//! Finds out whether a network is stopped although it still shows what it has in memory: answers to reads do not say so. So
//! this asks for a trial release by an owner that nobody is: nothing is released, but a stopped network refuses even that.

use serde_json::{Map, Value, json};

use crate::client::{ClientError, RpcError};

/// The protocol's name for the refusal of a stopped network.
pub const STOPPED: &str = "network_stopped";

/// The method that is called.
pub const METHOD: &str = "ip.release";

/// Its params, for a network by its name or id.
pub fn params(network: &Value) -> Map<String, Value> {
    let pairs = [("network", network.clone()), ("owner", json!("allod-looks")), ("dry_run", json!(true))];
    pairs.map(|(member, value)| (member.to_owned(), value)).into_iter().collect()
}

/// The refusal, if the network is stopped. Any other error says nothing about that.
pub fn refused(answer: Result<Value, ClientError>) -> Option<RpcError> {
    match answer {
        Err(ClientError::Rpc(error)) if error.kind == STOPPED => Some(error),
        Ok(_) | Err(_) => None,
    }
}
