//! Reads the body of a `POST /rpc` within its bounds: its length, its pace, and what all bodies may take together.
//!
//! The pace is that of a line over TCP: as much of a body as one line may have must come within the time for one line. Only
//! bytes that have come count against other bodies, not the announced length.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::plain;
use crate::limits::{HTTP_BODIES_BYTES_MIN, HTTP_BODIES_LONGEST_MAX};
use crate::server::Bounds;

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is longer than allowed.
    TooLong,
    /// It did not come in time.
    TooSlow,
    /// There is no room for it beside the other bodies.
    NoRoom,
    /// The connection broke, or the body is not valid HTTP.
    Broken,
}

impl Unread {
    /// The reason under which metrics count it, if it says something about all clients of the server together.
    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Self::TooSlow => Some("unfinished"),
            Self::NoRoom => Some("bytes"),
            Self::TooLong | Self::Broken => None,
        }
    }

    /// The answer to the client.
    pub(super) fn answer(self, bounds: &Bounds) -> Response {
        match self {
            Self::TooLong => {
                let text = format!("the body is longer than {} bytes", bounds.body_bytes);
                plain(StatusCode::PAYLOAD_TOO_LARGE, &text)
            }
            Self::TooSlow => {
                let (seconds, bytes) = (bounds.partial_line.as_secs(), bounds.line_bytes);
                let text = format!(
                    "the body did not come in time: each {bytes} bytes of it (`server.max_line_bytes`) have {seconds} s \
                     (`server.partial_line_seconds`)"
                );
                plain(StatusCode::REQUEST_TIMEOUT, &text)
            }
            Self::NoRoom => {
                let text = format!("too many bytes of bodies at once, beyond {}; try again", bytes_max(bounds));
                plain(StatusCode::SERVICE_UNAVAILABLE, &text)
            }
            Self::Broken => plain(StatusCode::BAD_REQUEST, "the body could not be read"),
        }
    }
}

/// How many bytes all bodies may have together.
pub(super) fn bytes_max(bounds: &Bounds) -> usize {
    bounds.body_bytes.saturating_mul(HTTP_BODIES_LONGEST_MAX).clamp(HTTP_BODIES_BYTES_MIN, Semaphore::MAX_PERMITS)
}

/// The whole body, and a permit for its bytes out of `room`.
pub(super) async fn read(
    mut body: Body,
    bounds: &Bounds,
    room: &Arc<Semaphore>,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), Unread> {
    let take = |bytes: usize| {
        let bytes = u32::try_from(bytes).map_err(|_| Unread::NoRoom)?;
        Arc::clone(room).try_acquire_many_owned(bytes).map_err(|_| Unread::NoRoom)
    };
    let (mut bytes, mut taken) = (Vec::new(), take(0)?);
    let (mut due, mut lines) = (Instant::now() + bounds.partial_line, 0);
    loop {
        let frame = timeout_at(due, poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await;
        let Some(frame) = frame.map_err(|_| Unread::TooSlow)? else { return Ok((bytes, taken)) };
        // Trailers are ignored.
        let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
        if data.len() > bounds.body_bytes - bytes.len() {
            return Err(Unread::TooLong);
        }
        taken.merge(take(data.len())?);
        bytes.extend_from_slice(&data);
        if bytes.len() / bounds.line_bytes > lines {
            lines = bytes.len() / bounds.line_bytes;
            due = Instant::now() + bounds.partial_line;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is how a test fails")]

    use std::time::Duration;

    use tokio::io::{AsyncWriteExt, duplex};
    use tokio_util::io::ReaderStream;

    use super::*;

    const BOUNDS: Bounds = Bounds {
        line_bytes: 100,
        body_bytes: 1_000,
        connections: 1,
        behind_bytes: 0,
        idle: Duration::ZERO,
        slow_client: Duration::from_secs(1),
        partial_line: Duration::from_secs(30),
    };

    /// Reads a body that comes in `pieces` pieces of ten bytes, with a pause before each.
    async fn read_dripping(pieces: usize, pause: Duration, room: &Arc<Semaphore>) -> Result<usize, Unread> {
        let (mut to, from) = duplex(64);
        let dripping = tokio::spawn(async move {
            for _ in 0..pieces {
                tokio::time::sleep(pause).await;
                to.write_all(&[b' '; 10]).await.unwrap_or_default();
            }
        });
        let read = read(Body::from_stream(ReaderStream::new(from)), &BOUNDS, room).await;
        dripping.abort();
        read.map(|(bytes, taken)| {
            assert_eq!(taken.num_permits(), bytes.len());
            bytes.len()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_body_has_as_much_time_as_so_many_lines_and_no_more() {
        let room = Arc::new(Semaphore::new(1_000));
        assert_eq!(read_dripping(100, Duration::from_millis(2_900), &room).await, Ok(1_000));
        // Never silent for long, and yet too slow.
        let begun = Instant::now();
        assert_eq!(read_dripping(100, Duration::from_millis(3_100), &room).await, Err(Unread::TooSlow));
        assert_eq!(begun.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_body_took_of_the_room_comes_back_however_it_ends() {
        let room = Arc::new(Semaphore::new(500));
        let pause = Duration::from_millis(1);
        assert_eq!(read_dripping(51, pause, &room).await, Err(Unread::NoRoom));
        assert_eq!(read_dripping(50, pause, &room).await, Ok(500));
        assert_eq!(read_dripping(5, Duration::from_secs(60), &room).await, Err(Unread::TooSlow));
        assert_eq!(room.available_permits(), 500);
        let room = Arc::new(Semaphore::new(5_000));
        assert_eq!(read_dripping(101, pause, &room).await, Err(Unread::TooLong));
        assert_eq!(room.available_permits(), 5_000);
    }

    #[test]
    fn the_longest_body_fits_into_what_all_have_together() {
        for body_bytes in [1 << 10, 64 << 20, 1 << 30, usize::MAX] {
            let bytes_max = bytes_max(&Bounds { body_bytes, ..BOUNDS });
            assert!(bytes_max >= body_bytes.min(Semaphore::MAX_PERMITS) && bytes_max >= HTTP_BODIES_BYTES_MIN);
        }
    }
}
