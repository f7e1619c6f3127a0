//! The pure core: no async, no clock, no randomness, no I/O, no logging. Time and randomness are arguments.
//!
//! Types that cross from node to node only declare their serde traits: the core knows no format, and `compact` checks what
//! comes back. The JSON of the protocol is made in `wire` and `server`.

pub mod address;
pub mod catalog;
pub mod command;
pub mod compact;
pub mod deployment;
pub(crate) mod disjoint;
pub mod forms;
pub mod network;
pub mod outcome;
pub mod plural;
pub mod refusal;
pub mod space;
pub mod state;
pub mod types;
mod unusable;
pub mod zones;
