//! How a server of Redis is reached: by its address, over TCP or a socket of this machine; or by a way that the caller has,
//! as a simulation of several nodes in one process does.
//!
//! Whoever brings a way of its own moves time as well, so such a store has no threads: its tasks run where it was opened
//! (see `RedisStore::open_over`), and everything else of it is the same.
//!
//! Neighbours: `place` says which server, `link` keeps a connection to it.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::store::Later;

/// Bytes to and from a server.
pub trait RedisStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> RedisStream for S {}

/// A way to the one server of Redis that there is.
pub trait RedisWay: Debug + Send + Sync + 'static {
    /// Where it leads, for people.
    fn name(&self) -> &str;

    /// A new connection.
    fn connect(&self) -> Later<io::Result<Box<dyn RedisStream>>>;
}

/// A server to connect to.
#[derive(Debug, Clone)]
pub(super) enum RedisServer {
    At(Client),
    Over(Arc<dyn RedisWay>),
}

impl RedisServer {
    /// A connection, which ends with the runtime that this is called on.
    pub(super) async fn connect(&self, config: &AsyncConnectionConfig) -> Result<MultiplexedConnection, RedisError> {
        match self {
            Self::At(client) => client.get_multiplexed_async_connection_with_config(config).await,
            Self::Over(way) => {
                let stream = way.connect().await?;
                let info = RedisConnectionInfo::default();
                let (connection, driver) =
                    MultiplexedConnection::new_with_config(&info, stream, config.clone()).await?;
                tokio::spawn(driver);
                Ok(connection)
            }
        }
    }

    /// Where it is, if it is anywhere.
    pub(super) fn address(&self) -> Option<&ConnectionAddr> {
        match self {
            Self::At(client) => Some(client.get_connection_info().addr()),
            Self::Over(_) => None,
        }
    }

    /// Under which name it is asked.
    pub(super) fn user(&self) -> &str {
        let named = match self {
            Self::At(client) => client.get_connection_info().redis_settings().username(),
            Self::Over(_) => None,
        };
        named.unwrap_or("default")
    }
}
