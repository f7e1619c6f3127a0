//! The ports: opens them, serves HTTP on a thread of its own, and deals clients over the reactor threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::cannot::CannotStart;
use crate::actors::reactor::Reactor;
use crate::config::Config;
use crate::http;
use crate::server::sockets::Arrivals;
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

/// Listens, without waiting for anybody yet. `key` is the setting that names the address.
pub(super) fn bind(text: &str, key: &str) -> Result<std::net::TcpListener, CannotStart> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| CannotStart::port(format!("`{key}` is {text:?}; allowed is an address and a port"), key, None))?;
    let describe = |error: std::io::Error| {
        CannotStart::port(format!("cannot listen on {address} (`{key}`): {error}"), key, Some(&error))
    };
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).map_err(describe)?;
    socket.set_reuse_address(true).map_err(describe)?;
    socket.bind(&address.into()).map_err(describe)?;
    socket.listen(BACKLOG).map_err(describe)?;
    socket.set_nonblocking(true).map_err(describe)?;
    Ok(socket.into())
}

/// Serves HTTP on a thread of its own, until the server stops and what was asked is answered, or that thread ends.
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
    let arrivals = Arrivals::new(listener, server.stop.clone(), "cannot accept");
    while let Some((stream, peer)) = arrivals.next().await {
        let metrics = &server.metrics;
        metrics.clients.connections_accepted.inc();
        // What else is under way, over HTTP, is bounded by itself.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            metrics.clients.connections_closed.with_label_values(&["limit"]).inc();
            connection::turn_away(&stream);
            continue;
        };
        let Ok(stream) = stream.into_std() else { continue };
        let reactor = next % server.reactors.len();
        next += 1;
        connection::serve(stream, peer, Arc::clone(&server), reactor, (place, server.tasks.token()));
    }
}
