//! The ports: takes them, opens them, serves HTTP on a thread of its own, and deals clients over the reactor threads.
//!
//! Ports are taken before the store is opened, because opening may begin a register in it: a server that cannot be reached
//! must not be the one that does. They are opened once somebody can answer; until then connections are refused, as if there
//! were no server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::cannot::CannotStart;
use crate::actors::reactor::Reactor;
use crate::config::Config;
use crate::http;
use crate::limits::TURNED_AWAY_MAX;
use crate::peer::secret::Secret;
use crate::server::sockets::{Arrivals, TurnedAway};
use crate::server::{Bounds, Server, connection};

/// Bounds of connections.
pub(super) fn bounds(config: &Config) -> Bounds {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Bounds {
        line_bytes: bytes(config.server.max_line_bytes),
        body_bytes: bytes(config.server.max_body_bytes),
        connections: bytes(config.server.max_connections),
        behind_bytes: bytes(config.server.max_behind_bytes),
        idle: Duration::from_secs(config.server.idle_timeout_seconds),
        slow_client: Duration::from_secs(config.server.slow_client_seconds),
        partial_line: Duration::from_secs(config.server.partial_line_seconds),
    }
}

/// Connections that the kernel keeps until they are accepted: a burst of clients that start at once.
const BACKLOG: i32 = 1_024;

/// A port that this process has bound, but on which it does not listen yet.
#[derive(Debug)]
pub(super) struct Port {
    socket: socket2::Socket,
    address: SocketAddr,
    key: &'static str,
}

impl Port {
    /// Binds it. `key` is the setting that names the address.
    pub(super) fn take(text: &str, key: &'static str) -> Result<Self, CannotStart> {
        let address: SocketAddr = text.parse().map_err(|_| {
            CannotStart::port(format!("`{key}` is {text:?}; it must be an address and a port"), key, None)
        })?;
        let take = || {
            let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
            // Connections of the previous process may linger. A listener still has the port to itself.
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.set_nonblocking(true)?;
            let taken = socket.local_addr()?.as_socket();
            Ok((socket, taken.unwrap_or(address)))
        };
        let (socket, address) = take().map_err(|error| Self::refused(address, key, &error))?;
        Ok(Self { socket, address, key })
    }

    fn refused(address: SocketAddr, key: &str, error: &std::io::Error) -> CannotStart {
        let taken = (error.kind() == std::io::ErrorKind::AddrInUse).then_some(address);
        CannotStart::port(format!("cannot listen on {address} (`{key}`): {error}"), key, taken)
    }

    /// Its address.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to listen, without accepting anybody yet. If two processes bound the port at once only the first one succeeds.
    pub(super) fn listen(self) -> Result<std::net::TcpListener, CannotStart> {
        self.socket.listen(BACKLOG).map_err(|error| Self::refused(self.address, self.key, &error))?;
        Ok(self.socket.into())
    }
}

/// The ports of a server, before it has a register.
#[derive(Debug)]
pub(super) struct Ports {
    /// For JSON-RPC.
    pub tcp: Port,
    /// For HTTP.
    pub http: Port,
    /// For other nodes, if there may be any, with the secret that all share.
    pub nodes: Option<(Port, Secret)>,
}

impl Ports {
    /// Binds them. `is_shared`: whether other nodes may use the store.
    pub(super) fn take(config: &Config, is_shared: bool) -> Result<Self, CannotStart> {
        let settings = &config.cluster;
        let nodes = (is_shared && !settings.secret_file.as_os_str().is_empty()).then(|| {
            let secret =
                Secret::read(&settings.secret_file).map_err(|error| CannotStart::configuration(&error.to_string()))?;
            Ok((Port::take(&settings.listen, "cluster.listen")?, secret))
        });
        Ok(Self {
            nodes: nodes.transpose()?,
            tcp: Port::take(&config.server.listen, "server.listen")?,
            http: Port::take(&config.server.http_listen, "server.http_listen")?,
        })
    }
}

/// Serves HTTP on the given thread, until the server stops and every request is answered, or until that thread ends.
pub(super) fn serve_http(listener: std::net::TcpListener, server: Arc<Server>, thread: &Reactor) {
    thread.spawn(async move {
        match TcpListener::from_std(listener) {
            Ok(listener) => http::serve(listener, server).await,
            Err(error) => tracing::error!(%error, "HTTP cannot listen"),
        }
    });
}

/// Accepts clients and deals them over the reactor threads.
pub(super) async fn accept(listener: TcpListener, server: Arc<Server>) {
    let mut next = 0;
    let places = Arc::new(Semaphore::new(server.bounds.connections.min(Semaphore::MAX_PERMITS)));
    let turned_away = TurnedAway::up_to(TURNED_AWAY_MAX);
    let arrivals = Arrivals::new(listener, server.stop.clone(), "cannot accept");
    while let Some((stream, peer)) = arrivals.next().await {
        let metrics = &server.metrics;
        metrics.clients.connections_accepted.inc();
        // Requests over HTTP have their own bound.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            metrics.clients.connections_closed.with_label_values(&["limit"]).inc();
            connection::turn_away(&stream);
            turned_away.leave(stream);
            continue;
        };
        let Ok(stream) = stream.into_std() else { continue };
        let reactor = next % server.reactors.len();
        next += 1;
        connection::serve(stream, peer, Arc::clone(&server), reactor, (place, server.tasks.token()));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_port_that_was_taken_lets_nobody_in_before_it_listens() {
        let port = Port::take("127.0.0.1:0", "server.listen").unwrap();
        let address = port.address();
        assert!(address.port() > 0);
        assert!(TcpStream::connect(address).is_err(), "it would wait for an answer");
        let listener = port.listen().unwrap();
        TcpStream::connect(address).unwrap();
        let Err(refused) = Port::take(&address.to_string(), "cluster.listen") else { panic!("two listen on one port") };
        assert!(refused.hint.contains("with `--cluster-listen ADDR`"), "{refused:?}");
        // Who has it is told: this very process.
        let told = format!("process {} (`", std::process::id());
        assert!(refused.problem.contains(&told) && refused.problem.contains("`) of user "), "{refused:?}");
        drop(listener);
    }
}
