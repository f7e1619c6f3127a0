//! Tests of the protocol as a whole.
#![allow(clippy::unwrap_used)]

mod answers;
mod document;
mod envelopes;
mod examples;
mod fuzzing;
mod members;
pub(crate) mod mutation;
mod round_trips;
mod spellings;
