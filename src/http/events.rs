//! `GET /events?network=…&realm=…&scope=…&since=…`: events as server-sent events, for browsers, curl and proxies.
//!
//! Each has its cursor as `id`, so a browser that lost its connection goes on by itself: it sends `Last-Event-ID`, which
//! counts before `since`. `event` names what it is: `event`, `bookmark`, `lagged` or `cursor_lost`, as the notifications of
//! the protocol; `data` is the event, or what the notification carries beside its subscription. After the last two the
//! stream ends; where the server stops, after a `bookmark`.

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

/// Bytes that wait for a client; then nothing more is asked for.
const PIPE_BYTES: usize = 64 << 10;
/// What a browser waits before it connects again, in milliseconds.
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

/// The query as the params of `events.watch`.
fn asked(query: Vec<(String, String)>, headers: &HeaderMap) -> Result<EventsWatch, RpcError> {
    let mut params = Map::new();
    for (name, value) in query {
        if params.insert(name.clone(), Value::String(value)).is_some() {
            return Err(RpcError::invalid(name.clone(), format!("`{name}` is given twice")));
        }
    }
    if let Some(last) = headers.get("last-event-id") {
        let last = last.to_str().map_err(|_| RpcError::invalid("since", "`Last-Event-ID` is no cursor"))?;
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

/// Tells until the client is gone, whether or not there is something to be told; nothing comes any more, or the server stops.
async fn tell_until_left(pages: Pages, to: DuplexStream, stop: &CancellationToken) {
    let (mut from, to) = split(to);
    tokio::select! {
        () = left(&mut from) => {}
        () = tell(pages, to, stop) => {}
    }
}

/// Until whoever reads has taken the other end away; nothing is ever written there.
async fn left(from: &mut ReadHalf<DuplexStream>) {
    while from.read_u8().await.is_ok() {}
}

async fn tell(mut pages: Pages, mut to: WriteHalf<DuplexStream>, stop: &CancellationToken) {
    // Whoever loses the connection before anything happened goes on from here, too. An id alone is no message.
    let mut text = format!("retry: {RETRY_MS}\nid: {}\n\n", pages.cursor()).into_bytes();
    let mut ends = false;
    // A message that is cut off by the stop is none, and its client goes on behind the one before.
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

/// Puts events behind the text. Of a long page others of the thread do not wait for all, and a client that is slow holds a part
/// of it: what fills the pipe goes first. False: it was not taken, and nothing comes any more.
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

/// Is all of it taken, or as much at once as there is room for where the server stops?
async fn takes(to: &mut WriteHalf<DuplexStream>, text: &[u8], stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        taken = to.write_all(text) => taken.is_ok(),
        () = stop.cancelled() => false,
    }
}

/// JSON has no line ends, so one line of data is enough.
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
