//! How a call can end, told apart by what the caller must do.

use serde_json::{Map, Value, json};

/// A refusal by the server: the members of the protocol's errors, unchanged unless another try of the call got no answer.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    /// The stable number.
    pub code: i64,
    /// The stable name, `data.kind`; empty if the server sent none.
    pub kind: String,
    /// The sentence for people.
    pub message: String,
    /// The facts as fields, including `kind` and `retry`; null if there are none.
    pub data: Value,
}

impl RpcError {
    /// Reads the `error` member of an answer.
    pub fn from_value(error: &Value) -> Self {
        let data = error.get("data").cloned().unwrap_or(Value::Null);
        Self {
            code: error.get("code").and_then(Value::as_i64).unwrap_or_default(),
            kind: data.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned(),
            message: error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
            data,
        }
    }

    /// Does it say that the call may have been carried out all the same? The server says so of a commit that it cannot follow
    /// up, and the client of a call with another try that nobody answered.
    pub fn is_in_doubt(&self) -> bool {
        self.data.get("applied").is_some_and(|applied| applied == "unknown")
    }

    /// The same refusal, of a call with another try that nobody answered: what its message says, such as that nothing was
    /// changed, is true of one try only. A refusal that is in doubt by itself says what is unknown, and stays as it is.
    #[must_use]
    pub fn in_doubt(&self) -> Self {
        let mut refused = self.clone();
        if refused.is_in_doubt() {
            return refused;
        }
        let obstacle = if refused.message.is_empty() { &refused.kind } else { &refused.message };
        refused.message = format!("one try got no answer, and another was refused: {obstacle}");
        if !refused.data.is_object() {
            refused.data = Value::Object(Map::new());
        }
        refused.data["applied"] = Value::from("unknown");
        refused
    }

    /// The `error` member that this was read from.
    pub fn to_value(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if !self.data.is_null() {
            error["data"] = self.data.clone();
        }
        error
    }
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.kind.is_empty() { write!(f, "{}", self.message) } else { write!(f, "{} ({})", self.message, self.kind) }
    }
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// Nobody answers there. Nothing was sent.
    #[error("cannot connect to `{address}`: {cause}")]
    Connect {
        /// The address.
        address: String,
        /// The system's reason.
        cause: String,
    },
    /// The request could not be written as JSON. Nothing was sent.
    #[error("cannot send the request: {cause}")]
    NotSent {
        /// Why.
        cause: String,
    },
    /// The connection ended while the call was under way: whether it took effect is unknown.
    #[error("the connection was lost: {cause}")]
    Lost {
        /// What ended it.
        cause: String,
    },
    /// No answer came in time: whether the call takes effect is unknown.
    #[error("no answer to `{method}` within {seconds} s")]
    TimedOut {
        /// The method.
        method: String,
        /// How long the caller waited.
        seconds: u64,
    },
    /// The answer is not JSON-RPC: the other side is not an allod server, or speaks another protocol.
    #[error("the answer is no JSON-RPC: {cause}")]
    Malformed {
        /// What is wrong with it.
        cause: String,
    },
    /// The server refused. Nothing changed, unless `data.applied` says `"unknown"`.
    #[error("{0}")]
    Rpc(RpcError),
    /// The call may have taken effect, and repeating it is not safe: only a look at the server can tell.
    #[error("whether `{method}` took effect is unknown: {cause}; {look}")]
    Unknown {
        /// The method.
        method: String,
        /// What happened: how the answer was lost, or the refusal of a repeat that the first try may have caused.
        cause: Box<ClientError>,
        /// Where to look.
        look: &'static str,
    },
    /// This client does not offer such calls. Nothing was sent.
    #[error("cannot call `{method}`: {hint}")]
    NotForClient {
        /// The method.
        method: String,
        /// What to use instead.
        hint: &'static str,
    },
}

impl ClientError {
    /// The refusal, if the server gave one.
    pub fn rpc(&self) -> Option<&RpcError> {
        match self {
            Self::Rpc(error) => Some(error),
            Self::Connect { .. }
            | Self::NotSent { .. }
            | Self::Lost { .. }
            | Self::TimedOut { .. }
            | Self::Unknown { .. }
            | Self::NotForClient { .. }
            | Self::Malformed { .. } => None,
        }
    }

    /// Whether the call may have taken effect nevertheless. An [`Rpc`](Self::Rpc) refusal changed nothing, unless it says
    /// otherwise.
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::TimedOut { .. } | Self::Malformed { .. } | Self::Unknown { .. } => true,
            Self::Connect { .. } | Self::NotSent { .. } | Self::NotForClient { .. } => false,
            Self::Rpc(error) => error.kind == "internal" || error.is_in_doubt(),
        }
    }

    /// Kind of the refusal; empty if the server gave none.
    pub fn kind(&self) -> &str {
        self.rpc().map_or("", |error| error.kind.as_str())
    }
}
