//! Tests of the protocol as a whole.
#![allow(clippy::unwrap_used)]

mod answers;
mod document;
mod envelopes;
mod examples;
mod members;
mod round_trips;
mod spellings;
