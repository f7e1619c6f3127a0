//! The server over real sockets: order, bounds, and what happens when the store, a network or the client misbehaves.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes and files"
)]

mod barrier;
mod bounds;
mod faulty;
mod isolation;
mod rules;
mod stop;
mod support;
