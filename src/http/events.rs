//! `GET /events?network=…&realm=…&scope=…&since=…`: events as server-sent events, for browsers, curl and proxies.
//!
//! Each event has its cursor as `id`, so a browser that lost its connection continues by itself: it sends `Last-Event-ID`,
//! which takes precedence over `since`. `event` is the kind of message: `event`, `bookmark`, `lagged` or `cursor_lost`, as
//! with the notifications of the protocol; `data` is the event, or the notification's params without its subscription. After
//! one of the last two the stream ends; if the server stops, it ends after a `bookmark`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;

use super::{App, json as json_body, plain, stopping};
use crate::server::watch::{Next, Pages, ToldEvents};
use crate::wire::params::EventsWatch;
use crate::wire::{self, ErrorKind, Request, RpcError};

/// Bytes that may wait for a client; beyond this, no more events are fetched.
const PIPE_BYTES: usize = 64 << 10;
/// How long a browser waits before it connects again, in milliseconds.
const RETRY_MS: u32 = 1_000;

pub(super) async fn events(
    State(app): State<App>,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    if app.server.stop.is_cancelled() {
        return stopping();
    }
    let Ok(place) = Arc::clone(&app.streams).try_acquire_owned() else {
        app.server.metrics.refuses_http("streams");
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many streams at once; try again");
    };
    let pages = match asked(query, &headers) {
        Ok(ask) => Pages::begin(&app.server, ask).await,
        Err(error) => Err(error),
    };
    let pages = match pages {
        Ok(pages) => pages,
        Err(error) => return refused(&error),
    };
    let (to, from) = duplex(PIPE_BYTES);
    let stop = app.server.stop.clone();
    tokio::spawn(async move {
        tell_until_left(pages, to, &stop).await;
        drop(place);
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (StatusCode::OK, headers, Body::from_stream(ReaderStream::new(from))).into_response()
}

/// Reads the query as the params of `events.watch`.
fn asked(query: Vec<(String, String)>, headers: &HeaderMap) -> Result<EventsWatch, RpcError> {
    let mut params = Map::new();
    for (name, value) in query {
        if params.insert(name.clone(), Value::String(value)).is_some() {
            return Err(RpcError::invalid(name.clone(), format!("`{name}` is given twice")));
        }
    }
    if let Some(last) = headers.get("last-event-id") {
        let last = last.to_str().map_err(|_| RpcError::invalid("since", "`Last-Event-ID` is not a cursor"))?;
        params.insert("since".to_owned(), Value::String(last.to_owned()));
    }
    match wire::parse("events.watch", &Value::Object(params).to_string())? {
        Request::EventsWatch(ask) => Ok(*ask),
        _ => Err(RpcError::new(ErrorKind::Internal, "the params of another method were read")),
    }
}

fn refused(error: &RpcError) -> Response {
    let status = match error.kind() {
        ErrorKind::InvalidArgument => StatusCode::BAD_REQUEST,
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::CursorLost => StatusCode::GONE,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    json_body(status, json!({ "error": error }).to_string().into_bytes())
}

/// Sends events until the client leaves (even if there is nothing to send), the events end, or the server stops.
async fn tell_until_left(pages: Pages, to: DuplexStream, stop: &CancellationToken) {
    let (mut from, to) = split(to);
    tokio::select! {
        () = left(&mut from) => {}
        () = tell(pages, to, stop) => {}
    }
}

/// Waits until the reader has dropped the other end. Nothing is ever written there.
async fn left(from: &mut ReadHalf<DuplexStream>) {
    while from.read_u8().await.is_ok() {}
}

async fn tell(mut pages: Pages, mut to: WriteHalf<DuplexStream>, stop: &CancellationToken) {
    // With this, a client that loses the connection before any event also continues from here. An id alone is not a message.
    let mut text = format!("retry: {RETRY_MS}\nid: {}\n\n", pages.cursor()).into_bytes();
    let mut ends = false;
    // A message that is cut off by the stop does not count, and its client continues after the one before.
    while takes(&mut to, &text, stop).await && !ends {
        text.clear();
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => {
                ends = true;
                Next::Bookmark(pages.cursor())
            }
            next = pages.next() => next,
        };
        ends |= match next {
            Next::Events(events) => !put_all(&mut to, &mut text, events, stop).await,
            Next::Bookmark(cursor) => {
                message(&mut text, "bookmark", Some(cursor.as_str()), &json!({ "cursor": cursor }));
                false
            }
            Next::Lagged(cursor) => {
                message(&mut text, "lagged", Some(cursor.as_str()), &json!({ "cursor": cursor }));
                true
            }
            Next::Lost { problem, last_common } => {
                message(&mut text, "cursor_lost", None, &json!({ "problem": problem, "last_common": last_common }));
                true
            }
        };
    }
}

/// Appends events to the text. So that a long page neither delays the other tasks of the thread nor stays in memory for a
/// slow client, the text is sent as soon as it fills the pipe. Returns false if that failed, and nothing more can be sent.
async fn put_all(
    to: &mut WriteHalf<DuplexStream>,
    text: &mut Vec<u8>,
    events: ToldEvents,
    stop: &CancellationToken,
) -> bool {
    for event in events {
        if text.len() >= PIPE_BYTES {
            if !takes(to, text, stop).await {
                text.clear();
                return false;
            }
            text.clear();
        }
        message(text, "event", Some(event.cursor.as_str()), &json!(event));
    }
    true
}

/// Sends the text. Returns whether all of it was taken; if the server stops, only what fits at once is.
async fn takes(to: &mut WriteHalf<DuplexStream>, text: &[u8], stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        taken = to.write_all(text) => taken.is_ok(),
        () = stop.cancelled() => false,
    }
}

/// Appends a message. JSON has no line ends, so one line of data is enough.
fn message(text: &mut Vec<u8>, name: &str, id: Option<&str>, data: &Value) {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    text.extend_from_slice(format!("{id}event: {name}\ndata: {data}\n\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::actors::{Fault, NotReadyReason};
    use crate::server::role::Role;
    use crate::server::session::idle_server;

    #[tokio::test]
    async fn a_stream_that_is_asked_for_between_two_owners_waits_for_the_next_one() {
        let server = idle_server();
        server.seat.become_role(Role::Between);
        let ask = asked(Vec::new(), &HeaderMap::new()).expect("nothing is wrong with it");
        let mut beginning = std::pin::pin!(Pages::begin(&server, ask));
        assert!(std::future::poll_fn(|cx| Poll::Ready(beginning.as_mut().poll(cx).is_pending())).await);
        let fault = Fault::NotReady { reason: NotReadyReason::NoOwner, retry_after_ms: 100 };
        server.seat.become_role(Role::Waiting { why: "nobody", fault });
        let error = beginning.await.expect_err("nobody owns it");
        assert_eq!(error.data.reason.as_deref(), Some(NotReadyReason::NoOwner.word()));
    }
}
