//! allod: a register of who holds which address.

pub mod core;
pub mod limits;
pub mod store;
pub mod wire;
