//! Connections of the HTTP port: accepts so many and no more, cuts off those that do not get on, and brings those that have
//! asked something to their end when the server stops.
//!
//! ```text
//! open ──the server stops──▶ nothing was asked: closed; else the answer is written to its end ──▶ closed
//!   └──head not finished in time (408), answer not taken, end of input, reset──▶ closed
//! ```
//!
//! Every connection has its token of [`Server::tasks`] until it is closed: that is when its answer is out of this process, and
//! not when the answer is made. Whoever waits for the tokens bounds that.
//!
//! Before: `serve` opens the port. After: `http` answers requests, which says how long a body may take. Beside: `paced`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::paced::Paced;
use crate::limits::{HTTP_CONNECTIONS_ONE_IN, HTTP_HEAD_BYTES_MAX};
use crate::server::Server;
use crate::server::sockets::{Arrivals, leave_nothing_unread};

/// Serves whoever connects until the server stops, then finishes what was begun.
pub(super) async fn accept(listener: TcpListener, server: Arc<Server>, router: Router) {
    let places = Arc::new(Semaphore::new(connections_max(server.bounds.connections)));
    let open = TaskTracker::new();
    let arrivals = Arrivals::new(listener, server.stop.clone(), "cannot accept over HTTP");
    while let Some((stream, peer)) = arrivals.next().await {
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            server.metrics.http_refused.with_label_values(&["connections"]).inc();
            turn_away(&stream);
            continue;
        };
        let (task, server, router) = (server.tasks.token(), Arc::clone(&server), router.clone());
        open.spawn(async move {
            server.metrics.http_connections.inc();
            serve(stream, peer, &server, router).await;
            server.metrics.http_connections.dec();
            drop((place, task));
        });
    }
    drop(arrivals);
    open.close();
    open.wait().await;
}

/// As many as over TCP; but some of the files that the process may have open are left to everything else.
fn connections_max(configured: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let share = usize::try_from(files / HTTP_CONNECTIONS_ONE_IN).unwrap_or(usize::MAX);
    configured.min(share).clamp(1, Semaphore::MAX_PERMITS)
}

/// What became of a connection so far.
#[derive(Default)]
struct Course {
    /// Something was asked.
    asked: AtomicBool,
    /// It was refused: the client may not have sent all of it.
    refused: AtomicBool,
}

/// Serves one client until it is gone, or is cut off.
async fn serve(stream: TcpStream, peer: SocketAddr, server: &Server, router: Router) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "TCP_NODELAY");
    }
    let course = Arc::new(Course::default());
    let (noted, router) = (Arc::clone(&course), TowerToHyperService::new(router));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        noted.asked.store(true, Ordering::Relaxed);
        let (noted, answer) = (Arc::clone(&noted), router.call(request));
        async move {
            let answer = answer.await?;
            noted.refused.store(!answer.status().is_success(), Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        }
    });
    let bounds = &server.bounds;
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.partial_line)
        .max_buf_size(HTTP_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Paced::new(stream, bounds.slow_client)), service);
    let mut stopping = false;
    let served = loop {
        tokio::select! {
            served = &mut connection => break served,
            () = server.stop.cancelled(), if !stopping => {
                if !course.asked.load(Ordering::Relaxed) {
                    return;
                }
                // Ends at once if it is idle, also in the middle of its next head; else when the answer is written.
                stopping = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let parts = connection.into_parts();
    let paced = parts.io.into_inner();
    let cut_off = |reason| server.metrics.http_refused.with_label_values(&[reason]).inc();
    let stream = paced.socket;
    match served {
        Ok(()) => {}
        Err(_) if paced.gave_up => return cut_off("slow"),
        // Who is idle between two requests has begun nothing.
        Err(error) if error.is_timeout() && parts.read_buf.is_empty() => {}
        Err(error) if error.is_timeout() => {
            cut_off("unfinished");
            let seconds = bounds.partial_line.as_secs();
            let text = format!("the head was not finished in {seconds} s (`server.partial_line_seconds`)");
            say(&stream, "408 Request Timeout", &text);
        }
        Err(error) => tracing::debug!(%peer, %error, "an HTTP connection ended"),
    }
    leave_nothing_unread(&stream, course.refused.load(Ordering::Relaxed)).await;
}

/// Tells a client that there are too many, if it can be told at once.
fn turn_away(stream: &TcpStream) {
    let text = "too many connections over HTTP (`server.max_connections`, and at most half of the files that the process \
                may have open); close some or try again";
    say(stream, "503 Service Unavailable", text);
}

/// An answer to whoever has not asked yet; who does not take it at once sees the connection close.
fn say(stream: &TcpStream, status: &str, text: &str) {
    let length = text.len() + 1;
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{text}\n"
    );
    let _ = stream.try_write(answer.as_bytes());
}
