//! How a server of Redis is reached: by its address, over TCP, with TLS or without, or a socket of this machine; or by a way
//! that the caller has, as a simulation of several nodes in one process does.
//!
//! Whoever brings a way of its own moves time as well, so such a store has no threads: its tasks run where it was opened
//! (see `RedisStore::open_over`), and everything else of it is the same.
//!
//! Neighbours: `place` says which server, `link` keeps a connection to it.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};

use super::failed::{lets_nobody_in, not_let_in};
use super::refusal::without_tls;
use super::tls::RedisTls;
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
    /// Over TLS.
    Secured(Box<ConnectionInfo>, Arc<RedisTls>),
    Over(Arc<dyn RedisWay>),
}

impl RedisServer {
    /// The one that this leads to, over TLS or not.
    pub(super) fn at(info: ConnectionInfo, tls: Option<&Arc<RedisTls>>) -> Result<Self, RedisError> {
        match tls {
            Some(tls) => Ok(Self::Secured(Box::new(info), Arc::clone(tls))),
            None => Client::open(info).map(Self::At),
        }
    }

    /// A connection that comes up within that time, and whose answers may take so long. It ends with the runtime that this is
    /// called on.
    pub(super) async fn connect(
        &self,
        within: Duration,
        answer_within: Option<Duration>,
    ) -> Result<MultiplexedConnection, RedisError> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(within)).set_response_timeout(answer_within);
        match self {
            Self::At(client) => client.get_multiplexed_async_connection_with_config(&config).await,
            Self::Secured(info, tls) => {
                let ConnectionAddr::Tcp(host, port) = info.addr() else {
                    return Err(RedisError::from((redis::ErrorKind::InvalidClientConfig, "it names no host")));
                };
                let end = Instant::now() + within;
                let stream = tls.connect((host, *port), info.tcp_settings(), end).await?;
                timeout_at(end, begin(info.redis_settings(), stream, config)).await.map_err(io::Error::from)?
            }
            Self::Over(way) => begin(&RedisConnectionInfo::default(), way.connect().await?, config).await,
        }
    }

    /// An error before the first answer of a Redis, with what it may mean, and what to do where nobody is let in.
    pub(super) fn told(&self, error: RedisError) -> RedisError {
        match self.address().filter(|_| lets_nobody_in(&error)) {
            Some(address) => not_let_in(self.named(), address),
            None => self.told_of_way(error),
        }
    }

    /// As [`RedisServer::told`], of a server that need not have the user of the URL.
    pub(super) fn told_of_way(&self, error: RedisError) -> RedisError {
        match self {
            Self::At(client) => without_tls(error, client.get_connection_info().addr()),
            // What is wrong there is told where it is found.
            Self::Secured(..) | Self::Over(_) => error,
        }
    }

    /// Where it is, if it is anywhere.
    pub(super) fn address(&self) -> Option<&ConnectionAddr> {
        match self {
            Self::At(client) => Some(client.get_connection_info().addr()),
            Self::Secured(info, _) => Some(info.addr()),
            Self::Over(_) => None,
        }
    }

    /// Under which name it is asked.
    pub(super) fn user(&self) -> &str {
        self.named().unwrap_or("default")
    }

    /// The user that the URL names.
    fn named(&self) -> Option<&str> {
        match self {
            Self::At(client) => client.get_connection_info().redis_settings().username(),
            Self::Secured(info, _) => info.redis_settings().username(),
            Self::Over(_) => None,
        }
    }
}

/// A connection over a stream that is there.
async fn begin(
    info: &RedisConnectionInfo,
    stream: impl RedisStream + 'static,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let (connection, driver) = MultiplexedConnection::new_with_config(info, stream, config).await?;
    tokio::spawn(driver);
    Ok(connection)
}
