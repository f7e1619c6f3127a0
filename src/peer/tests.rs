//! Nodes that talk to each other: their bytes, their handshake, and whole conversations over loopback sockets.

mod bytes;
mod conversations;
mod generate;
mod handshakes;
pub(crate) mod nodes;
mod waiting;
