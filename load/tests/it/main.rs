//! `allod-load` as people run it: the real program, against real servers and against one that lies.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes and files"
)]

mod auditor;
mod compare;
mod figures;
mod goals;
mod instructions;
mod leases;
mod liar;
mod live;
mod man;
mod page;
mod program;
mod refused;
mod scenarios;
#[path = "../../../tests/support/skips.rs"]
#[allow(dead_code, reason = "shared with the tests of the server")]
mod skips;
mod wrong_and_gone;
