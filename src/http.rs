//! HTTP: `POST /rpc` for curl, browsers and bulk; `GET /events` as server-sent events; `/metrics`, `/healthz`, `/readyz`,
//! `/openrpc.json`. No logic of its own.
//!
//! Nobody is asked who they are, and a browser sends what any page tells it to: what a page from elsewhere asks is refused.
//!
//! Runs on a thread of its own, so that a scrape does not disturb connections. A body is a [`Session`] of its own: same
//! order, same bounds, same answers as on TCP; a body of notifications alone is answered 204.

mod events;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use compact_str::CompactString;
use tokio::net::TcpListener;

use crate::server::Server;
use crate::server::session::Session;
use crate::wire::openrpc;

/// Bodies worked on at once; beyond it 503.
const BODIES_MAX: usize = 256;

#[derive(Clone)]
struct App {
    server: Arc<Server>,
    room: Arc<tokio::sync::Semaphore>,
    streams: Arc<tokio::sync::Semaphore>,
}

/// Serves until the server stops, then finishes what was begun.
pub async fn serve(listener: TcpListener, server: Arc<Server>) {
    let stop = server.stop.clone();
    let room = |places| Arc::new(tokio::sync::Semaphore::new(places));
    let app = App { server, room: room(BODIES_MAX), streams: room(events::STREAMS_MAX) };
    let loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let own_pages_only = move |request: Request<Body>, next: Next| async move {
        if is_of_another_page(request.headers(), loopback) {
            return plain(StatusCode::FORBIDDEN, "a page from elsewhere asks through a browser, which is refused");
        }
        next.run(request).await
    };
    let router = Router::new()
        .route("/rpc", post(rpc))
        .route("/events", get(events::events))
        .route_layer(middleware::from_fn(own_pages_only))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/openrpc.json", get(|| async { json(StatusCode::OK, openrpc::document().as_bytes().to_vec()) }))
        .layer(DefaultBodyLimit::disable())
        .with_state(app);
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
    if let Err(error) = served.await {
        tracing::error!(%error, "HTTP ended");
    }
}

/// Whether a browser asks on behalf of a page that this server, or what stands before it, did not hand out. Browsers say whose
/// page it is in `Origin`; nothing else sends that. On the loopback the name must be the machine's own as well: a page can
/// have its own name lead there.
fn is_of_another_page(headers: &HeaderMap, loopback: bool) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let page = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let own = page.is_some() && page == host && (!loopback || host.is_some_and(is_this_machine));
    !own
}

/// An authority (`HOST[:PORT]`) that leads to this machine whoever resolves it.
fn is_this_machine(authority: &str) -> bool {
    let name = authority.rsplit_once(':').map_or(authority, |(name, _)| name);
    let address = authority.parse::<SocketAddr>().map(|at| at.ip()).or_else(|_| authority.parse::<IpAddr>());
    address.is_ok_and(|ip| ip.is_loopback()) || name == "localhost" || authority == "[::1]"
}

fn json(status: StatusCode, body: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn plain(status: StatusCode, text: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{text}\n")).into_response()
}

async fn rpc(State(app): State<App>, request: Request<Body>) -> Response {
    if app.server.stop.is_cancelled() {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping");
    }
    let mut stopping = false;
    let Ok(room) = app.room.try_acquire() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many bodies at once; try again");
    };
    let max = app.server.bounds.body_bytes;
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let too_large = || plain(StatusCode::PAYLOAD_TOO_LARGE, &format!("the body is longer than {max} bytes"));
    if announced.is_some_and(|length: usize| length > max) {
        return too_large();
    }
    let body = match to_bytes(request.into_body(), max).await {
        Ok(body) => body,
        Err(error) => {
            let mut cause: &dyn std::error::Error = &error;
            while let Some(below) = cause.source() {
                cause = below;
            }
            // axum tells a body beyond its bound by this text only.
            return if cause.to_string().contains("length limit") {
                too_large()
            } else {
                plain(StatusCode::BAD_REQUEST, "the body could not be read")
            };
        }
    };
    if app.server.stop.is_cancelled() {
        // It came in slowly: nothing of it was looked at.
        return plain(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping");
    }
    let task = app.server.tasks.token();
    let (mut session, mut inlet) = Session::new(Arc::clone(&app.server), CompactString::const_new("anonymous"));
    session.begin(Instant::now());
    if !session.feed(&body) {
        return plain(StatusCode::BAD_REQUEST, "the body is empty; POST a JSON-RPC request");
    }
    session.flush();
    let mut roles = app.server.seat.changes();
    let (stop, mut room) = (app.server.stop.clone(), Some(room));
    while session.in_flight() > 0 {
        if session.only_waits() {
            // What waits for capacity keeps no other body out; it is bounded where it waits.
            room = None;
        }
        let looks = session.looks_for_owner_at();
        tokio::select! {
            biased;
            told = inlet.recv() => match told {
                Some(told) => session.absorb(told),
                None => break,
            },
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                session.stop_waiting();
            }
            _ = roles.changed(), if session.waits_for_role() => session.role_changed(),
            () = tokio::time::sleep_until(looks.unwrap_or_else(tokio::time::Instant::now)), if looks.is_some() => {
                session.role_changed();
            }
        }
    }
    drop(room);
    drop(task);
    let mut answer = std::mem::take(&mut session.out);
    if answer.is_empty() {
        return StatusCode::NO_CONTENT.into_response();
    }
    if answer.last() == Some(&b'\n') {
        answer.pop();
    }
    json(StatusCode::OK, answer)
}

async fn metrics(State(app): State<App>) -> Response {
    match app.server.metrics.text() {
        Ok(text) => {
            (StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written; the log says why")
        }
    }
}

async fn healthz() -> Response {
    plain(StatusCode::OK, "ok")
}

async fn readyz(State(app): State<App>) -> Response {
    match app.server.unready() {
        None => plain(StatusCode::OK, "ready"),
        Some(problem) => plain(StatusCode::SERVICE_UNAVAILABLE, &problem),
    }
}
