//! Records to bytes and back, versioned. What is written today can be read for ever.
//!
//! Every record begins with the number of its [`Format`]. Unknown versions, kinds and flags, left-over bytes, bad UTF-8,
//! numbers out of range and texts that their type refuses are errors, never panics. A length that exceeds the bytes at hand
//! causes no allocation. There is one way to write a value: whatever decodes encodes to the same bytes.
//!
//! The encoder refuses the same numbers, counts and pairs of key and state as the decoder, so that nothing becomes durable
//! that a restart cannot read. Free texts (notes, labels, reasons) are checked where they enter the server. Here they need
//! only be UTF-8, so that a later, stricter rule never makes an old record unreadable.
//!
//! Neighbours: `embedded` frames these bytes; `core::state` says what the fields mean.
//!
//! Review notes: does a change of a record raise [`Format::NEWEST`], keep the old decoder, and add golden files, both of
//! records (here) and of a whole register (`tests/e2e/formats`)?

mod batch;
mod bytes;
mod config;
mod deployment;
mod entry;
mod format;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use batch::{BatchHeader, RawStep, batch_header, check_pair, head, key, put_key, walk_acts, walk_batch};
pub use batch::{decode_batch, decode_head, encode_batch, encode_head};
pub use bytes::CodecError;
pub(crate) use bytes::{Reader, Write};
pub use format::Format;

use bytes::Result;
use format::{header, put_header};

use crate::core::state::State;

const NETWORK: u8 = 4;
const SUBNET: u8 = 5;
const DEPLOYMENT: u8 = 6;

/// Appends the record of a state.
///
/// # Errors
/// [`CodecError::Range`] if it has a value that could not be read back.
pub fn encode_state(state: &State, format: Format, out: &mut Vec<u8>) -> Result<()> {
    match state {
        State::Config(config) => {
            put_header(out, format, NETWORK, state.mark())?;
            config::put_network(out, config)
        }
        State::Subnet(subnet) => {
            put_header(out, format, SUBNET, state.mark())?;
            config::put_subnet(out, subnet)
        }
        State::Deployment(deployment) => {
            put_header(out, format, DEPLOYMENT, state.mark())?;
            deployment::put(out, deployment)
        }
        State::Entry(entry) => {
            put_header(out, format, entry::kind_of(entry), state.mark())?;
            entry::put_entry(out, format, entry)
        }
    }
}

/// Reads the record of a state.
///
/// # Errors
/// [`CodecError`] for anything but the bytes that [`encode_state`] writes.
pub fn decode_state(bytes: &[u8]) -> Result<State> {
    let mut reader = Reader::new(bytes);
    let header = header(&mut reader)?;
    let mark = header.mark;
    let state = match header.kind {
        NETWORK => State::Config(Arc::new(config::network(mark, &mut reader)?)),
        SUBNET => State::Subnet(Arc::new(config::subnet(mark, &mut reader)?)),
        DEPLOYMENT => State::Deployment(Arc::new(deployment::read(mark, &mut reader)?)),
        _ => State::Entry(entry::entry(&header, &mut reader)?),
    };
    reader.finish()?;
    Ok(state)
}

/// The mark of a state's record, without decoding the rest.
pub(crate) fn mark_of(bytes: &[u8]) -> Result<u64> {
    header(&mut Reader::new(bytes)).map(|header| header.mark)
}

/// Reads prefix length, scope and owner from the record of a holding, without decoding the rest. None for any other record.
pub(crate) fn held_of(bytes: &[u8]) -> Result<Option<(u8, &str, &str)>> {
    let Some((length, scope, owner)) = held_bytes_of(bytes)? else { return Ok(None) };
    Ok(Some((length, str_of(scope, "scope")?, str_of(owner, "owner")?)))
}

/// Length of the prefix, scope, owner.
type HeldBytes<'a> = (u8, &'a [u8], &'a [u8]);

/// Reads the same as [`held_of`], as bytes: does not check that scope and owner are UTF-8.
pub(crate) fn held_bytes_of(bytes: &[u8]) -> Result<Option<HeldBytes<'_>>> {
    let mut reader = Reader::new(bytes);
    let header = header(&mut reader)?;
    if header.kind != entry::HELD {
        return Ok(None);
    }
    let length = reader.u8("prefix length")?;
    reader.u8("flags")?;
    let (first, second) = (reader.sized("holder")?, reader.sized("holder")?);
    let (scope, owner) = if header.format.has_owner_first() { (second, first) } else { (first, second) };
    Ok(Some((length, scope, owner)))
}

fn str_of<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|_| CodecError::Utf8(what))
}

/// The length of the prefix in the record of an entry, without decoding the rest.
pub(crate) fn length_of(bytes: &[u8]) -> Result<u8> {
    let mut reader = Reader::new(bytes);
    header(&mut reader)?;
    reader.u8("prefix length")
}
