//! HTTP: `POST /rpc` for curl, browsers and bulk; `GET /events` as server-sent events; `/metrics`, `/healthz`, `/readyz`,
//! `/openrpc.json`. It has no logic of its own.
//!
//! Clients are not authenticated, and a browser sends whatever any page tells it to: so requests from foreign pages are
//! refused.
//!
//! HTTP runs on a thread of its own, so that its requests do not disturb connections over TCP; a scrape is rendered on yet
//! another thread (`scrapes`). Each body is a [`Session`] of its own: same order, same bounds, same answers as on TCP. A
//! body of notifications alone is answered 204. A node that hands over the register waits for this thread as for those of
//! connections (`serve::handover`).
//!
//! Every wait for a client is limited: waits for a head and for answers to be taken in `accepting` and `paced`, waits for a
//! body in `body`. A client that is too slow keeps nobody else out.

mod accepting;
mod body;
mod events;
mod hang_up;
mod paced;
mod probes;
mod scrapes;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use compact_str::CompactString;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::accepting::EVENTS;
use self::body::Unread;
use self::scrapes::{Scrapes, Unrendered};
use crate::limits::{HTTP_ANSWERS_BYTES_MAX, HTTP_BODIES_MAX, HTTP_SCRAPES_BYTES_MAX, HTTP_STREAMS_MAX};
use crate::server::Server;
use crate::server::session::{AnswersShare, AnswersTogether, Inlet, Session};
use crate::wire::{ErrorKind, RpcError, openrpc};

#[derive(Clone)]
struct App {
    server: Arc<Server>,
    /// Places for bodies that are being worked on.
    places: Arc<Semaphore>,
    /// Bytes of bodies that are being read or worked on.
    bytes: Arc<Semaphore>,
    /// Answers to bodies that their clients have not taken yet.
    answers: Arc<AnswersTogether>,
    streams: Arc<Semaphore>,
    scrapes: Arc<Scrapes>,
}

/// Serves until the server stops, then finishes the requests that were begun.
pub async fn serve(listener: TcpListener, server: Arc<Server>) {
    let room = |places| Arc::new(Semaphore::new(places));
    let app = App {
        server: Arc::clone(&server),
        places: room(HTTP_BODIES_MAX),
        bytes: room(body::bytes_max(&server.bounds)),
        answers: AnswersTogether::of(HTTP_ANSWERS_BYTES_MAX),
        streams: room(HTTP_STREAMS_MAX),
        scrapes: Scrapes::of(Arc::clone(&server.metrics)),
    };
    let loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let own_pages_only = move |request: Request<Body>, next: Next| async move {
        if is_of_another_page(request.headers(), loopback) {
            return plain(StatusCode::FORBIDDEN, "a page from elsewhere asks through a browser, which is refused");
        }
        if loopback && is_under_another_name(request.headers()) {
            return plain(StatusCode::FORBIDDEN, ANOTHER_NAME);
        }
        next.run(request).await
    };
    let router = Router::new()
        .route("/rpc", post(rpc))
        .route(EVENTS, get(events::events))
        .route("/metrics", get(metrics))
        .route("/openrpc.json", get(|| async { json(StatusCode::OK, openrpc::document().as_bytes().to_vec()) }))
        .route_layer(middleware::from_fn(own_pages_only))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .fallback(|| async { plain(StatusCode::NOT_FOUND, &no_such_path()) })
        .method_not_allowed_fallback(other_method)
        .layer(DefaultBodyLimit::disable())
        .with_state(app);
    accepting::accept(listener, server, router).await;
}

/// The paths, each with its method.
const PATHS: [(&str, &str); 6] = [
    ("POST", "/rpc"),
    ("GET", EVENTS),
    ("GET", "/metrics"),
    ("GET", "/openrpc.json"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
];

fn no_such_path() -> String {
    let there = PATHS.map(|(method, path)| format!("{method} {path}")).join(", ");
    format!("there is nothing at this path; there are {there}")
}

/// Answers a request for a known path with another method. The router adds the `Allow` header.
async fn other_method(method: Method, uri: Uri) -> Response {
    let way = PATHS.iter().find(|(_, path)| *path == uri.path()).map_or("another method", |(way, _)| way);
    plain(StatusCode::METHOD_NOT_ALLOWED, &format!("{} is asked by {way}, not by {method}", uri.path()))
}

/// Whether a browser asks on behalf of a page that neither this server nor a proxy before it served. Browsers name the
/// origin of the page in `Origin`; other clients do not send it. On the loopback the name must also be one of the machine's
/// own, and elsewhere an address or a name without a dot: a page can make its own name resolve to any address that its
/// reader's browser can reach.
fn is_of_another_page(headers: &HeaderMap, loopback: bool) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let page = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let own_name = |host| if loopback { is_this_machine(host) } else { !may_be_of_a_page(host) };
    let own = page.is_some() && page == host && host.is_some_and(own_name);
    !own
}

/// The refusal of a request under a foreign name.
const ANOTHER_NAME: &str = "asked under a name that any page can have lead here; ask 127.0.0.1 or localhost (a proxy on this \
                            machine must say so in `Host`)";

/// Whether the request's `Host` may be the name of a foreign page that made its name resolve to the loopback: the browser
/// then takes this server for the page's own and sends no `Origin` with requests that only read. Nobody can own addresses
/// and names without a dot.
fn is_under_another_name(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return false };
    host.to_str().map_or(true, may_be_of_a_page)
}

/// Is this authority (`HOST[:PORT]`) a name that somebody elsewhere may have registered?
fn may_be_of_a_page(authority: &str) -> bool {
    let name = name_in(authority).trim_end_matches('.');
    address_in(authority).is_none() && name.contains('.') && !name.ends_with(".localhost")
}

/// Does this authority (`HOST[:PORT]`) lead to this machine, whoever resolves it?
fn is_this_machine(authority: &str) -> bool {
    address_in(authority).is_some_and(|ip| ip.is_loopback())
        || name_in(authority) == "localhost"
        || authority == "[::1]"
}

fn name_in(authority: &str) -> &str {
    authority.rsplit_once(':').map_or(authority, |(name, _)| name)
}

fn address_in(authority: &str) -> Option<IpAddr> {
    authority.parse::<SocketAddr>().map(|at| at.ip()).or_else(|_| authority.parse::<IpAddr>()).ok()
}

fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    let body: Body = body.into();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn plain(status: StatusCode, text: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{text}\n")).into_response()
}

fn stopping() -> Response {
    plain(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
}

async fn rpc(State(app): State<App>, request: Request<Body>) -> Response {
    let bounds = &app.server.bounds;
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let read = if announced.is_some_and(|length: usize| length > bounds.body_bytes) {
        Err(Unread::TooLong)
    } else {
        tokio::select! {
            biased;
            // The body is not read any more.
            () = app.server.stop.cancelled() => return stopping(),
            read = body::read(request.into_body(), bounds, &app.bytes) => read,
        }
    };
    let (body, bytes) = match read {
        Ok(read) => read,
        Err(unread) => {
            if let Some(reason) = unread.reason() {
                app.server.metrics.refuses_http(reason);
            }
            return unread.answer(bounds);
        }
    };
    let Ok(place) = Arc::clone(&app.places).try_acquire_owned() else {
        app.server.metrics.refuses_http("bodies");
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many bodies at once; try again");
    };
    let asked = Asked::begin(&app.server, &app.answers, &body);
    drop(body);
    let mut answered = asked.answered(&app.server.stop, (place, bytes)).await;
    if answered.answer.is_empty() {
        return StatusCode::NO_CONTENT.into_response();
    }
    if answered.answer.last() == Some(&b'\n') {
        answered.answer.pop();
    }
    json(StatusCode::OK, Bytes::from_owner(answered))
}

/// The answer to a body. It gives its room back when all of it is written.
struct AnsweredBody<R> {
    answer: Vec<u8>,
    _room: Option<R>,
    _share: Option<AnswersShare>,
}

impl<R> AsRef<[u8]> for AnsweredBody<R> {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

/// The requests of a body, under way.
struct Asked {
    session: Session,
    inlet: Inlet,
    /// Changes when this node takes another role.
    roles: watch::Receiver<()>,
}

impl Asked {
    /// Sends the requests of a body on their way. An empty body is not ignored as an empty line is, because it must get an
    /// answer: it is not JSON.
    fn begin(server: &Arc<Server>, answers: &Arc<AnswersTogether>, body: &[u8]) -> Self {
        // Before everything else, so that a change of role after the session has seen the role wakes it.
        let roles = server.seat.changes();
        let (mut session, inlet) = Session::new(Arc::clone(server), CompactString::const_new("anonymous"));
        session.counts_among(answers);
        session.begin(Instant::now());
        if !session.feed(body) {
            session.refuse(&RpcError::new(ErrorKind::ParseError, "the body is empty; POST a JSON-RPC request"));
        }
        session.flush();
        Self { session, inlet, roles }
    }

    /// Waits for all answers. `room` is what the body takes from others meanwhile.
    async fn answered<R>(self, stop: &CancellationToken, room: R) -> AnsweredBody<R> {
        let Self { mut session, mut inlet, mut roles } = self;
        let (mut stopping, mut room) = (false, Some(room));
        while session.in_flight() > 0 {
            if session.only_waits() && session.leaves_room_for_answers() {
                // Requests that wait for capacity keep no other body out; they are bounded where they wait, and the answers of their
                // batches by what all answers have together.
                room = None;
            }
            let looks = session.looks_at();
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
                    session.looks();
                }
            }
        }
        let share = session.take_share();
        AnsweredBody { answer: std::mem::take(&mut session.out), _room: room, _share: share }
    }
}

async fn metrics(State(app): State<App>) -> Response {
    match app.scrapes.text().await {
        Ok(text) => {
            (StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        Err(Unrendered::NoRoom) => {
            app.server.metrics.refuses_http("bytes");
            let text = format!(
                "more than {HTTP_SCRAPES_BYTES_MAX} bytes of metrics are not taken by those who asked; try again"
            );
            plain(StatusCode::SERVICE_UNAVAILABLE, &text)
        }
        Err(Unrendered::Failed) => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written; the log says why")
        }
    }
}

async fn healthz() -> Response {
    plain(StatusCode::OK, "ok")
}

/// The query of `/readyz` that asks only whether clients may be sent here, not whether changes are accepted.
const ANSWERS: &str = "answers";

async fn readyz(State(app): State<App>, uri: Uri) -> Response {
    let unready = app.server.unready();
    if let Some(problem) = &unready
        && uri.query() == Some(ANSWERS)
        && app.server.unanswering().is_none()
    {
        return plain(StatusCode::OK, &format!("no other node would do better: {problem}"));
    }
    match unready {
        // A probe would send clients elsewhere if this were a failure, but no other node could serve them.
        None => plain(StatusCode::OK, &app.server.ready_text()),
        Some(problem) => plain(StatusCode::SERVICE_UNAVAILABLE, &problem),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::actors::{Fault, NotReadyReason};
    use crate::server::role::Role;
    use crate::server::session::idle_server;

    /// The role changes on another thread: somebody may own the register again before the answer is awaited.
    #[tokio::test]
    async fn a_body_that_is_held_between_two_owners_goes_on_though_that_ended_before_it_was_waited_for() {
        let server = idle_server();
        server.seat.become_role(Role::Between);
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"network.list","params":{}}"#;
        let asked = Asked::begin(&server, &AnswersTogether::of(1), body);
        assert!(asked.session.waits_for_role());
        let fault = Fault::NotReady { reason: NotReadyReason::NoOwner, retry_after_ms: 100 };
        server.seat.become_role(Role::Waiting { why: "nobody", fault });
        let mut answered = std::pin::pin!(asked.answered(&server.stop, ()));
        let answered = std::future::poll_fn(|cx| Poll::Ready(answered.as_mut().poll(cx))).await;
        let Poll::Ready(answered) = answered else { panic!("nobody tells it that the role is another") };
        assert!(answered.answer.starts_with(br#"{"jsonrpc":"2.0","id":1,"error":"#));
    }

    #[tokio::test]
    async fn answers_that_are_not_taken_leave_no_room_for_more_long_ones_and_for_short_ones_all_the_same() {
        let (server, answers) = (idle_server(), AnswersTogether::of(1_000));
        let ask = async |body: &str| Asked::begin(&server, &answers, body.as_bytes()).answered(&server.stop, ()).await;
        let call = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
        let (long, short) = (call("rpc.discover"), call("server.ping"));
        let kinds = |answered: &AnsweredBody<()>| -> Vec<String> {
            let text = String::from_utf8_lossy(&answered.answer);
            let text = if text.starts_with('[') { text.into_owned() } else { format!("[{text}]") };
            let all: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
            all.iter().map(|one| one["error"]["data"]["kind"].as_str().unwrap_or("ok").to_owned()).collect()
        };
        let untaken = ask(&format!("[{long},{long},{short}]")).await;
        assert_eq!(kinds(&untaken), ["ok", "overloaded", "ok"]);
        assert_eq!(kinds(&ask(&long).await), ["overloaded"]);
        assert_eq!(kinds(&ask(&short).await), ["ok"]);
        drop(untaken);
        assert_eq!(kinds(&ask(&long).await), ["ok"]);
    }

    #[test]
    fn a_page_is_the_servers_own_only_under_a_name_that_nobody_elsewhere_can_have_lead_here() {
        let own = |host: &str, loopback: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            headers.insert(header::ORIGIN, format!("http://{host}").parse().unwrap());
            !is_of_another_page(&headers, loopback)
        };
        for host in ["127.0.0.1:7401", "localhost:7401", "[::1]:7401"] {
            assert!(own(host, true) && own(host, false), "{host}");
        }
        // When it listens on a network, these are its own names; on the loopback they belong to others.
        for host in ["10.0.0.5:7401", "allod:7401"] {
            assert!(own(host, false) && !own(host, true), "{host}");
        }
        for host in ["evil.example:7401", "evil.example.:7401", "10.0.0.5.evil.example"] {
            assert!(!own(host, false) && !own(host, true), "{host}");
        }
    }
}
