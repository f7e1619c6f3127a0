//! Lines that go out: answers written by the server and read by the client, requests written by the client.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::envelope::Id;
use super::errors::RpcError;
use super::methods::Method;

/// Appends an answer with a result. No line end.
///
/// # Errors
/// If the result cannot be written as JSON; then nothing was appended.
pub fn write_result(out: &mut Vec<u8>, id: &Id, result: &impl Serialize) -> serde_json::Result<()> {
    let start = out.len();
    open_result(out, id);
    let written = serde_json::to_writer(&mut *out, result);
    match written {
        Ok(()) => close(out),
        Err(_) => out.truncate(start),
    }
    written
}

/// Appends an answer up to where the text of its result goes. [`close`] ends it.
pub fn open_result(out: &mut Vec<u8>, id: &Id) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(b",\"result\":");
}

/// Ends what [`open_result`] began.
pub fn close(out: &mut Vec<u8>) {
    out.push(b'}');
}

/// Appends an answer with an error. No line end.
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

/// Appends a request. Without an id it is a notification. No line end.
///
/// # Errors
/// If the params cannot be written as JSON; then nothing was appended.
pub fn write_request(
    out: &mut Vec<u8>,
    id: Option<&Id>,
    method: Method,
    params: &impl Serialize,
) -> serde_json::Result<()> {
    let start = out.len();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",");
    if let Some(id) = id {
        out.extend_from_slice(b"\"id\":");
        out.extend_from_slice(id.as_json().as_bytes());
        out.push(b',');
    }
    out.extend_from_slice(b"\"method\":\"");
    out.extend_from_slice(method.name().as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    let written = serde_json::to_writer(&mut *out, params);
    match written {
        Ok(()) => close(out),
        Err(_) => out.truncate(start),
    }
    written
}

/// What a client reads: an answer, or (without `id`, with `method`) a notification such as `event`.
#[derive(Debug, Deserialize)]
pub struct Incoming<'a> {
    /// The JSON text of the id.
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    /// The JSON text of the result.
    #[serde(borrow, default)]
    pub result: Option<&'a RawValue>,
    /// The error.
    #[serde(default)]
    pub error: Option<RpcError>,
    /// The method of a notification.
    #[serde(default)]
    pub method: Option<String>,
    /// The JSON text of its params.
    #[serde(borrow, default)]
    pub params: Option<&'a RawValue>,
}

impl<'a> Incoming<'a> {
    /// Reads one answer or notification. Batches are read as a list of these.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(line: &'a str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }

    /// The number of the request that this answers.
    pub fn id_number(&self) -> Option<u64> {
        self.id.and_then(|id| id.get().parse().ok())
    }
}
