//! The pure core: no async, no clock, no randomness, no I/O, no logging, no serde. Time and randomness are arguments.

pub mod address;
pub mod catalog;
pub mod command;
pub(crate) mod disjoint;
pub mod network;
pub mod outcome;
pub mod plural;
pub mod refusal;
pub mod space;
pub mod state;
pub mod types;
