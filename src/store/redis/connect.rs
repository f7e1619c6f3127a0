//! How a Redis server is reached: by its address over TCP, with or without TLS, or through a socket of this machine; or by a
//! connection that the caller provides, as a simulation of several nodes in one process does.
//!
//! A caller that provides its own connection also controls the time. So such a store has no threads: its tasks run where it
//! was opened (see `RedisStore::open_over`), and everything else is the same.
//!
//! Neighbours: `place` knows which server, `link` keeps a connection to it.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};

use super::failed::{lets_nobody_in, not_let_in};
use super::refusal::{WayRefusal, without_tls};
use super::tls::RedisTls;
use crate::store::Later;

/// What a server says that has as many clients as it may have.
const NO_ROOM: &str = "max number of clients";
/// How long it may take to say so.
const SAYS_WITHIN: Duration = Duration::from_millis(500);
const LINE_BYTES_MAX: u64 = 512;

/// A stream of bytes to and from a server.
pub trait RedisStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> RedisStream for S {}

/// Connects to the only Redis server there is.
pub trait RedisWay: Debug + Send + Sync + 'static {
    /// The name of the server, for people.
    fn name(&self) -> &str;

    /// A new connection.
    fn connect(&self) -> Later<io::Result<Box<dyn RedisStream>>>;
}

#[derive(Debug, Clone)]
pub(super) enum RedisServer {
    At(Client),
    Secured(Box<ConnectionInfo>, Arc<RedisTls>),
    Over(Arc<dyn RedisWay>),
}

impl RedisServer {
    /// The server at this address, with or without TLS.
    pub(super) fn at(info: ConnectionInfo, tls: Option<&Arc<RedisTls>>) -> Result<Self, RedisError> {
        match tls {
            Some(tls) => Ok(Self::Secured(Box::new(info), Arc::clone(tls))),
            None => Client::open(info).map(Self::At),
        }
    }

    /// A connection that is made within `within`, and whose answers may take `answer_within`. It ends with the runtime on
    /// which this is called.
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

    /// The outcome of asking this server; an error says what stands in the way (`told`).
    pub(super) async fn telling<T>(&self, outcome: Result<T, RedisError>) -> Result<T, RedisError> {
        match outcome {
            Ok(done) => Ok(done),
            Err(error) => Err(self.told(error).await),
        }
    }

    /// Explains an error that came before the first answer of Redis: what it may mean, and what to do if the user is not let in.
    async fn told(&self, error: RedisError) -> RedisError {
        if let Some(full) = self.full(&error).await {
            return full;
        }
        match self.address().filter(|_| lets_nobody_in(&error)) {
            Some(address) => not_let_in(self.named(), address),
            None => self.of_way(error),
        }
    }

    /// As [`RedisServer::told`], for a server that need not know the user of the URL.
    pub(super) async fn told_of_way(&self, error: RedisError) -> RedisError {
        match self.full(&error).await {
            Some(full) => full,
            None => self.of_way(error),
        }
    }

    /// The error if the server has no room for one more client. It says so as the answer to the first command, and hangs up.
    /// The client library keeps nothing of the answer to a password, so that this looks like a wrong one. So a second
    /// connection asks without a password.
    async fn full(&self, error: &RedisError) -> Option<RedisError> {
        let address = self.address()?;
        let is_said = error.to_string().contains(NO_ROOM);
        let may_be = lets_nobody_in(error) || (error.is_connection_dropped() && !error.is_connection_refusal());
        // With TLS it hangs up in the handshake, which is told there.
        let is_full = is_said || (may_be && matches!(self, Self::At(_)) && has_no_room(address).await);
        is_full.then(|| WayRefusal::of_room(address))
    }

    fn of_way(&self, error: RedisError) -> RedisError {
        match self {
            Self::At(client) => without_tls(error, client.get_connection_info().addr()),
            // Errors of these connections are explained where they arise.
            Self::Secured(..) | Self::Over(_) => error,
        }
    }

    pub(super) fn address(&self) -> Option<&ConnectionAddr> {
        match self {
            Self::At(client) => Some(client.get_connection_info().addr()),
            Self::Secured(info, _) => Some(info.addr()),
            Self::Over(_) => None,
        }
    }

    /// The user under whom commands are sent.
    pub(super) fn user(&self) -> &str {
        self.named().unwrap_or("default")
    }

    /// The user in the URL.
    fn named(&self) -> Option<&str> {
        match self {
            Self::At(client) => client.get_connection_info().redis_settings().username(),
            Self::Secured(info, _) => info.redis_settings().username(),
            Self::Over(_) => None,
        }
    }
}

/// Does this server say to a further client that it has too many?
async fn has_no_room(address: &ConnectionAddr) -> bool {
    let said = async {
        match address {
            ConnectionAddr::Tcp(host, port) => says(TcpStream::connect((host.as_str(), *port)).await?).await,
            ConnectionAddr::Unix(path) => says(UnixStream::connect(path).await?).await,
            _ => Ok(String::new()),
        }
    };
    matches!(timeout(SAYS_WITHIN, said).await, Ok(Ok(said)) if said.contains(NO_ROOM))
}

/// The first line that a server says to somebody who names no user.
async fn says(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<String> {
    // Any answer comes at once. One that came before the question is read all the same.
    let _hung_up = stream.write_all(b"PING\r\n").await;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line).await?;
    Ok(line)
}

async fn begin(
    info: &RedisConnectionInfo,
    stream: impl RedisStream + 'static,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let (connection, driver) = MultiplexedConnection::new_with_config(info, stream, config).await?;
    tokio::spawn(driver);
    Ok(connection)
}
