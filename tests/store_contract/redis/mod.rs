//! What happens to Redis servers, and what the store says then.

mod server;

pub use server::Server;
