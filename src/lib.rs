//! allod: a register of who holds which address.

pub mod cli;
pub mod client;
pub mod core;
pub mod limits;
pub mod serve;
pub mod store;
pub mod wire;
