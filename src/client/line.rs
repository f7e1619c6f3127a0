//! The two tasks of a connection: one writes request lines, the other reads answers and hands them to a [`Hearer`].

use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::{CLOSED, ClientError, RpcError, plain};
use crate::limits;

/// The answer to a request.
pub(super) type Answer = Result<Value, ClientError>;

/// Receives what comes over a connection.
pub(super) trait Hearer: Send + Sync + 'static {
    /// The request of this number was answered.
    fn answered(&self, id: u64, answer: Answer);
    /// A message came that answers no request.
    fn notified(&self, notification: Value);
    /// Nothing more will come, for this reason. Both tasks may call this; the first call counts.
    fn ended(&self, reason: ClientError);
}

/// The longest line that is read: as long as the longest body. Most answers have at most [`limits::ANSWER_BYTES_MAX`]; only
/// plans, which report about all instances at once, are longer. A longer line does not come from our server.
const ANSWER_LINE_BYTES_MAX: u64 = limits::BODY_BYTES_MAX as u64;

/// Writes lines until there are no more or the socket fails. Lines that are ready are gathered into one write.
pub(super) async fn write(write: OwnedWriteHalf, mut lines: mpsc::Receiver<Vec<u8>>, hearer: Arc<impl Hearer>) {
    let mut socket = BufWriter::with_capacity(64 << 10, write);
    while let Some(first) = lines.recv().await {
        let mut line = Some(first);
        let mut result = Ok(());
        while let (Some(bytes), Ok(())) = (&line, &result) {
            result = socket.write_all(bytes).await;
            line = lines.try_recv().ok();
        }
        if result.is_ok() {
            result = socket.flush().await;
        }
        if let Err(error) = result {
            return hearer.ended(ClientError::Lost { cause: plain(&error) });
        }
    }
}

/// Reads answers until the connection ends, and reports why it did.
pub(super) async fn read(mut socket: BufReader<OwnedReadHalf>, hearer: Arc<impl Hearer>) {
    let mut line = Vec::new();
    let reason = loop {
        line.clear();
        match next(&mut socket, &mut line).await {
            Ok(message) => {
                if let Some(reason) = deliver(message, &*hearer) {
                    break reason;
                }
            }
            Err(reason) => break reason,
        }
    };
    hearer.ended(reason);
}

/// Wraps the reading half of a connection in a buffer.
pub(super) fn reader(read: OwnedReadHalf) -> BufReader<OwnedReadHalf> {
    BufReader::with_capacity(64 << 10, read)
}

/// Reads one message. If the future is dropped, calling again with the same `line` continues without loss.
pub(super) async fn next(socket: &mut BufReader<OwnedReadHalf>, line: &mut Vec<u8>) -> Answer {
    loop {
        let most = ANSWER_LINE_BYTES_MAX.saturating_sub(line.len() as u64);
        let lost = |cause: String| Err(ClientError::Lost { cause });
        match (&mut *socket).take(most).read_until(b'\n', line).await {
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(_) if line.len() as u64 >= ANSWER_LINE_BYTES_MAX => {
                return Err(ClientError::Malformed { cause: "a line is longer than any answer".to_owned() });
            }
            Ok(_) => return lost(CLOSED.to_owned()),
            Err(error) => return lost(plain(&error)),
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            line.clear();
            continue;
        }
        let message = serde_json::from_slice::<Value>(line);
        let malformed = || ClientError::Malformed { cause: format!("`{}`", excerpt(line)) };
        return message.map_err(|_| malformed());
    }
}

/// Hands one message to the [`Hearer`]. Returns a reason if the connection is of no more use.
fn deliver(mut message: Value, hearer: &impl Hearer) -> Option<ClientError> {
    if message.get("method").is_some() {
        hearer.notified(message);
        return None;
    }
    match (message.get("id").and_then(Value::as_u64), answer_of(&mut message)) {
        (_, None) => Some(ClientError::Malformed { cause: "neither `result` nor `error`".to_owned() }),
        (Some(id), Some(answer)) => {
            hearer.answered(id, answer);
            None
        }
        // An error without an id concerns the connection: for example, the line was too long, or the server could not read
        // it as JSON.
        (None, Some(Err(error))) => Some(error),
        (None, Some(Ok(_))) => Some(ClientError::Malformed { cause: "an answer without `id`".to_owned() }),
    }
}

/// Takes the result or the refusal out of an answer.
pub(super) fn answer_of(message: &mut Value) -> Option<Answer> {
    match message.get("error") {
        Some(error) => Some(Err(ClientError::Rpc(RpcError::from_value(error)))),
        None => message.get_mut("result").map(|result| Ok(result.take())),
    }
}

/// The beginning of a line, for an error message.
fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end().chars().filter(|c| !c.is_control()).take(60).collect()
}
