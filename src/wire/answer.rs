//! Writes answers.

use super::envelope::Id;
use super::errors::RpcError;

/// Appends an answer up to the place for the JSON text of its result. [`close`] ends the answer.
pub fn open_result(out: &mut Vec<u8>, id: &Id) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(b",\"result\":");
}

/// Ends the answer that [`open_result`] began.
pub fn close(out: &mut Vec<u8>) {
    out.push(b'}');
}

/// Appends an answer with an error, without a line end.
///
/// # Errors
/// None that this type can cause; then nothing was appended.
pub fn write_error(out: &mut Vec<u8>, id: &Id, error: &RpcError) -> serde_json::Result<()> {
    let start = out.len();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(b",\"error\":");
    let written = serde_json::to_writer(&mut *out, error);
    match written {
        Ok(()) => close(out),
        Err(_) => out.truncate(start),
    }
    written
}
