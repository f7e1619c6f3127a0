//! The server over real sockets: order, bounds, and what happens when the store, a network or the client misbehaves.

mod barrier;
mod faulty;
mod isolation;
mod rate;
mod rules;
mod stop;
mod support;
