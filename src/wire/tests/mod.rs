//! Tests of the protocol as a whole.

mod envelopes;
mod members;
mod spellings;
