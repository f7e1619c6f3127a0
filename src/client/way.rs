//! Makes a connection of a client: opens the socket, then does what comes before the first call, such as asking for
//! redirects.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::options::Options;
use super::{ClientError, line, open, request_line};

/// If there are several addresses, one that does not answer within this time is skipped.
const CONNECT_OF_SEVERAL_MAX: Duration = Duration::from_secs(5);

/// A connection that is ready for calls.
#[derive(Debug)]
pub(super) struct Made {
    pub reader: BufReader<OwnedReadHalf>,
    pub writer: OwnedWriteHalf,
    pub socket: Option<socket2::Socket>,
}

/// Connects to `address`, one of `of` addresses. If there are several, the server must show that it is alive: the kernel
/// accepts connections even for a hung server, and calls to such a server would end with an unknown outcome.
///
/// # Errors
/// [`ClientError::Connect`], or the server's refusal.
pub(super) async fn make(address: &str, of: usize, options: &Options) -> Result<Made, ClientError> {
    let share = options.timeout / u32::try_from(of).unwrap_or(u32::MAX).max(1);
    let limit = if of > 1 { share.min(CONNECT_OF_SEVERAL_MAX) } else { options.timeout };
    let stream = open(address, limit).await?;
    let socket = socket2::SockRef::from(&stream).try_clone().ok();
    let (read, writer) = stream.into_split();
    let mut made = Made { reader: line::reader(read), writer, socket };
    let mut asks = Vec::new();
    if options.redirect {
        asks.push(("session.set", json!({ "redirect": true })));
    }
    if of > 1 && asks.is_empty() {
        asks.push(("server.ping", json!({})));
    }
    for (method, params) in asks {
        let params = params.as_object().cloned().unwrap_or_default();
        let cause = match tokio::time::timeout(limit, made.ask(1, method, &params)).await {
            Ok(Ok(_)) => continue,
            // Something else listens there; the server may be at another of the addresses.
            Ok(Err(error @ ClientError::Malformed { .. })) if of > 1 => error.to_string(),
            Ok(Err(error)) => return Err(error),
            Err(_) => format!("no answer to `{method}` within {} s", super::seconds(limit)),
        };
        return Err(ClientError::Connect { address: address.to_owned(), cause });
    }
    Ok(made)
}

/// The error that none of these addresses leads to a server, with the reason for each. `None` if no address was tried.
pub(super) fn nowhere(tried: Vec<(String, ClientError)>) -> Option<ClientError> {
    let (_, last) = tried.last()?.clone();
    let causes: Option<Vec<String>> =
        tried.iter().map(|(address, error)| Some(format!("{address}: {}", in_vain(error)?))).collect();
    match causes.filter(|causes| causes.len() > 1) {
        Some(causes) => {
            let addresses: Vec<String> = tried.into_iter().map(|(address, _)| address).collect();
            Some(ClientError::Connect { address: addresses.join(","), cause: causes.join("; ") })
        }
        // An answer that somebody gave says more.
        None => Some(last),
    }
}

/// Why nobody was reached; `None` if somebody answered.
fn in_vain(error: &ClientError) -> Option<&str> {
    match error {
        ClientError::Connect { cause, .. } | ClientError::Lost { cause } => Some(cause),
        _ => None,
    }
}

impl Made {
    /// Asks, and waits for the next line, which must be the answer.
    ///
    /// # Errors
    /// The refusal; or what ended the connection.
    pub(super) async fn ask(
        &mut self,
        number: u64,
        method: &str,
        params: &Map<String, Value>,
    ) -> Result<Value, ClientError> {
        let line = request_line(number, method, params)?;
        let lost = |error: std::io::Error| ClientError::Lost { cause: super::plain(&error) };
        self.writer.write_all(&line).await.map_err(lost)?;
        let mut message = line::next(&mut self.reader, &mut Vec::new()).await?;
        let no_answer = || ClientError::Malformed { cause: "neither `result` nor `error`".to_owned() };
        line::answer_of(&mut message).ok_or_else(no_answer)?
    }
}

/// Is it worth trying again after this error?
pub(crate) fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Connect { .. } | ClientError::Lost { .. } => true,
        ClientError::Rpc(error) => {
            matches!(error.kind.as_str(), "overloaded" | "not_ready" | "unavailable" | "rate_limited" | "moved")
        }
        ClientError::NotSent { .. }
        | ClientError::TimedOut { .. }
        | ClientError::Malformed { .. }
        | ClientError::Unknown { .. }
        | ClientError::NotForClient { .. } => false,
    }
}
