//! The two tasks of a connection: one writes request lines, one reads answers and wakes who waits for them.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::{CLOSED, ClientError, RpcError, Waiting, plain};
use crate::limits;

/// Longest line that is read: as long as what a body may ask for. An answer has at most [`limits::ANSWER_BYTES_MAX`], but
/// for plans, which tell what became of each instance at once. What is longer does not come from our server.
const ANSWER_LINE_BYTES_MAX: u64 = limits::BODY_BYTES_MAX as u64;

/// Writes lines until all clients are gone or the socket fails. What is there already is gathered into one write.
pub(super) async fn write(write: OwnedWriteHalf, mut lines: mpsc::Receiver<Vec<u8>>, waiting: Waiting) {
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
            return end(&waiting, ClientError::Lost { cause: plain(&error) });
        }
    }
}

/// Reads answers until the connection ends, then wakes all that wait with the reason.
pub(super) async fn read(read: OwnedReadHalf, waiting: Waiting, notify: mpsc::Sender<Value>) {
    let mut socket = BufReader::with_capacity(64 << 10, read);
    let mut line = Vec::new();
    let reason = loop {
        line.clear();
        match (&mut socket).take(ANSWER_LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) => break ClientError::Lost { cause: CLOSED.to_owned() },
            Ok(_) if !line.ends_with(b"\n") && line.len() as u64 >= ANSWER_LINE_BYTES_MAX => {
                break ClientError::Malformed { cause: "a line is longer than any answer".to_owned() };
            }
            Ok(_) if !line.ends_with(b"\n") => break ClientError::Lost { cause: CLOSED.to_owned() },
            Ok(_) => {}
            Err(error) => break ClientError::Lost { cause: plain(&error) },
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Value>(&line) {
            Ok(value) => {
                if let Some(reason) = deliver(value, &waiting, &notify) {
                    break reason;
                }
            }
            Err(_) => break ClientError::Malformed { cause: format!("`{}`", excerpt(&line)) },
        }
    };
    end(&waiting, reason);
}

/// Hands one message to whom it concerns. Answers a reason where the connection is of no use any more.
fn deliver(mut message: Value, waiting: &Waiting, notify: &mpsc::Sender<Value>) -> Option<ClientError> {
    if message.get("method").is_some() {
        // A full queue drops the event; the server counts what a slow reader misses and says `lagged`.
        let _ = notify.try_send(message);
        return None;
    }
    let answer = if let Some(error) = message.get("error") {
        Err(ClientError::Rpc(RpcError::from_value(error)))
    } else if let Some(result) = message.get_mut("result") {
        Ok(result.take())
    } else {
        return Some(ClientError::Malformed { cause: "neither `result` nor `error`".to_owned() });
    };
    match (message.get("id").and_then(Value::as_u64), answer) {
        (Some(id), answer) => {
            let call = waiting.lock().ok()?.calls.remove(&id);
            if let Some(call) = call {
                // Nobody waits any more where the call was given up meanwhile.
                let _ = call.send(answer);
            }
            None
        }
        // An error without an id concerns the connection: the line was too long, or no JSON to the server.
        (None, Err(error)) => Some(error),
        (None, Ok(_)) => Some(ClientError::Malformed { cause: "an answer without `id`".to_owned() }),
    }
}

/// Notes why the connection ended and wakes everybody.
fn end(waiting: &Waiting, reason: ClientError) {
    let Ok(mut pending) = waiting.lock() else { return };
    let reason = pending.ended.get_or_insert(reason).clone();
    for (_, call) in pending.calls.drain() {
        let _ = call.send(Err(reason.clone()));
    }
}

/// The beginning of a line, for an error.
fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end().chars().filter(|c| !c.is_control()).take(60).collect()
}
