//! Connections of the HTTP port: accepts only so many, cuts off those that do not make progress, and finishes those that
//! have asked something when the server stops.
//!
//! ```text
//! open ──the server stops──▶ nothing was asked: closed; else the answer is written to its end ──▶ closed
//!   │                        (events have no end: what the client takes within a moment)
//!   └──head not finished in time (408), answer not taken, end of input, reset──▶ closed
//! ```
//!
//! End of input also ends requests that are not answered yet: no HTTP client that still reads ends its input, and for one
//! that is gone this is often the only sign (`hang_up`).
//!
//! Every connection holds a token of [`Server::tasks`] until it is closed, which is when its answer has left this process,
//! not when the answer is ready. Whoever waits for the tokens limits that time.
//!
//! When there is no more room, a few more connections are accepted for one request each, from whoever monitors the server
//! (`probes`).
//!
//! Before: `serve` opens the port. After: `http` answers requests, and says how long a body may take. Beside: `paced`,
//! `hang_up`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::hang_up::{SharedSocket, UnderWay};
use super::paced::Paced;
use super::plain;
use super::probes::{Probe, Probes};
use crate::limits::{HTTP_CONNECTIONS_ONE_IN, HTTP_HEAD_BYTES_MAX, TURNED_AWAY_MAX};
use crate::metrics::Counted;
use crate::server::Server;
use crate::server::sockets::{Arrivals, TurnedAway, WATCHERS_TAKE_WITHIN, leave_nothing_unread};

/// The paths that monitoring asks for.
const PROBES: [&str; 3] = ["/metrics", "/healthz", "/readyz"];
/// How long such a client may take to ask, when there is no room for others.
const PROBE_WITHIN: Duration = Duration::from_secs(2);
/// The path of the stream of events.
pub(super) const EVENTS: &str = "/events";
/// The answer when there is no room.
const TOO_MANY: &str = "too many connections over HTTP (`server.max_connections`, and at most half of the files that the \
                        process may have open); close some or try again";

/// Serves clients until the server stops, then finishes the requests that were begun.
pub(super) async fn accept(listener: TcpListener, server: Arc<Server>, router: Router) {
    let places = Arc::new(Semaphore::new(connections_max(server.bounds.connections)));
    let probes = Arc::<Probes>::default();
    let open = TaskTracker::new();
    let turned_away = TurnedAway::up_to(TURNED_AWAY_MAX);
    let arrivals = Arrivals::new(listener, server.stop.clone(), "cannot accept over HTTP");
    while let Some((stream, peer)) = arrivals.next().await {
        let place = Arc::clone(&places).try_acquire_owned().ok();
        let probe = if place.is_none() { probes.enter().map(Arc::new) } else { None };
        if place.is_none() && probe.is_none() {
            turn_away(&stream, &server);
            turned_away.leave(stream);
            continue;
        }
        let (task, server, router) = (server.tasks.token(), Arc::clone(&server), router.clone());
        open.spawn(async move {
            let counted = Counted::in_gauge(&server.metrics.clients.http_connections);
            serve(stream, peer, &server, router, probe).await;
            drop((counted, place, task));
        });
    }
    drop(arrivals);
    open.close();
    open.wait().await;
}

/// As many as over TCP, but some of the files that the process may open are left for everything else.
fn connections_max(configured: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let share = usize::try_from(files / HTTP_CONNECTIONS_ONE_IN).unwrap_or(usize::MAX);
    configured.min(share).clamp(1, Semaphore::MAX_PERMITS)
}

/// What has happened on a connection so far.
#[derive(Default)]
struct Course {
    /// The client asked something.
    asked: AtomicBool,
    /// A request was refused: the client may not have sent all of it.
    refused: AtomicBool,
    /// The client watches events.
    watches: AtomicBool,
}

/// Serves one client until it leaves or is cut off. With `probe`, only requests of monitoring are answered.
async fn serve(stream: TcpStream, peer: SocketAddr, server: &Arc<Server>, router: Router, probe: Option<Arc<Probe>>) {
    let only_probes = probe.is_some();
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "TCP_NODELAY");
    }
    let stream = Arc::new(stream);
    let (course, under_way) = (Arc::new(Course::default()), UnderWay::default());
    let (noted, router) = (Arc::clone(&course), TowerToHyperService::new(router));
    let (asked, asking, awaited) = (Arc::clone(server), probe.clone(), under_way.clone());
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        noted.asked.store(true, Ordering::Relaxed);
        if let Some(probe) = &asking {
            probe.asks();
        }
        let is_admitted = !only_probes || PROBES.contains(&request.uri().path());
        let (noted, watches) = (Arc::clone(&noted), request.uri().path() == EVENTS);
        let answer = is_admitted.then(|| router.call(awaited.begin(request)));
        if !is_admitted {
            asked.metrics.refuses_http("connections");
        }
        let awaited = awaited.clone();
        async move {
            let answer = match answer {
                Some(answer) => answer.await?,
                None => plain(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY),
            };
            noted.refused.store(!answer.status().is_success(), Ordering::Relaxed);
            noted.watches.store(watches && answer.status().is_success(), Ordering::Relaxed);
            // A stream of events has no end of its own.
            if !noted.watches.load(Ordering::Relaxed) {
                awaited.end();
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let bounds = &server.bounds;
    let head_within = if only_probes { bounds.partial_line.min(PROBE_WITHIN) } else { bounds.partial_line };
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(!only_probes)
        .header_read_timeout(head_within)
        .max_buf_size(HTTP_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Paced::new(SharedSocket(Arc::clone(&stream)), bounds.slow_client)), service);
    let gives_way = async {
        match &probe {
            Some(probe) => probe.gives_way().await,
            None => std::future::pending().await,
        }
    };
    let hung_up = under_way.hung_up(&stream);
    tokio::pin!(gives_way, hung_up);
    let (mut stopping, mut stays, mut gave_way) = (false, false, false);
    let mut leaves_at = None;
    let served = loop {
        tokio::select! {
            biased;
            // First, because polling it finds out whether a request is under way.
            served = &mut connection => break served,
            () = &mut hung_up => break Ok(()),
            () = &mut gives_way, if !stays => {
                // If it has asked just now, it is answered.
                stays = course.asked.load(Ordering::Relaxed);
                if !stays {
                    gave_way = true;
                    break Ok(());
                }
            }
            () = tokio::time::sleep_until(leaves_at.unwrap_or_else(Instant::now)), if leaves_at.is_some() => break Ok(()),
            () = server.stop.cancelled(), if !stopping => {
                if !course.asked.load(Ordering::Relaxed) {
                    return;
                }
                // Ends at once if it is idle, even in the middle of its next head; else when the answer is written.
                stopping = true;
                let watches = course.watches.load(Ordering::Relaxed);
                leaves_at = watches.then(|| Instant::now() + WATCHERS_TAKE_WITHIN);
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let parts = connection.into_parts();
    let paced = parts.io.into_inner();
    match served {
        Ok(()) if gave_way => return turn_away(&stream, server),
        Ok(()) => {}
        Err(_) if paced.gave_up => return server.metrics.refuses_http("slow"),
        Err(error) if error.is_timeout() && only_probes => turn_away(&stream, server),
        // A client that is idle between two requests has begun nothing.
        Err(error) if error.is_timeout() && parts.read_buf.is_empty() => {}
        Err(error) if error.is_timeout() => {
            server.metrics.refuses_http("unfinished");
            let seconds = bounds.partial_line.as_secs();
            let text = format!("the head was not finished in {seconds} s (`server.partial_line_seconds`)");
            say(&stream, "408 Request Timeout", &text);
        }
        Err(error) => tracing::debug!(%peer, %error, "an HTTP connection ended"),
    }
    leave_nothing_unread(&stream, course.refused.load(Ordering::Relaxed)).await;
}

/// Tells a client that there are too many, if it can be told at once.
fn turn_away(stream: &TcpStream, server: &Server) {
    server.metrics.refuses_http("connections");
    say(stream, "503 Service Unavailable", TOO_MANY);
}

/// Answers a client that has not asked yet. If it does not take the answer at once, it sees the connection close.
fn say(stream: &TcpStream, status: &str, text: &str) {
    let length = text.len() + 1;
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{text}\n"
    );
    let _ = stream.try_write(answer.as_bytes());
}
