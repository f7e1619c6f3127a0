//! Whether a client hangs up while what it asked is under way.
//!
//! `hyper` looks for that by itself, but not where something lies unread behind what was asked: a line end behind a body is
//! enough. Then neither the end of input nor a reset is heard, and a request would wait for capacity for nobody. So whoever
//! accepts looks at the socket as well.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::{Bytes, HttpBody};
use axum::http;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Is something under way of which nothing more is read? Before that, whoever reads it finds its end.
#[derive(Debug, Clone, Default)]
pub(super) struct UnderWay(Arc<AtomicBool>);

impl UnderWay {
    /// This is asked; its body is read as what is returned.
    pub(super) fn begin(&self, request: http::Request<Incoming>) -> http::Request<Heard> {
        self.0.store(request.body().is_end_stream(), Ordering::Relaxed);
        request.map(|body| Heard { body, under_way: self.clone() })
    }

    /// It is answered.
    pub(super) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Until the client ends its input or resets the connection, while something is under way. To be polled behind what serves
    /// the connection: the same task is woken by both.
    pub(super) async fn hung_up(&self, stream: &TcpStream) {
        // Urgent bytes are asked of no socket, so what this waits for is the end alone, whatever lies unread before it.
        let mut ended = pin!(stream.ready(Interest::PRIORITY));
        poll_fn(|cx| if self.0.load(Ordering::Relaxed) { ended.as_mut().poll(cx).map(drop) } else { Poll::Pending })
            .await;
    }
}

/// The body of what is asked. Notes when all of it was read.
#[derive(Debug)]
pub(super) struct Heard {
    body: Incoming,
    under_way: UnderWay,
}

impl HttpBody for Heard {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.under_way.0.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket that is read and written here, and looked at elsewhere.
#[derive(Debug)]
pub(super) struct SharedSocket(pub(super) Arc<TcpStream>);

impl AsyncRead for SharedSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            if let Some(read) = unless_early(self.0.try_read_buf(to)) {
                return Poll::Ready(read.map(drop));
            }
        }
    }
}

impl AsyncWrite for SharedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            if let Some(written) = unless_early(self.0.try_write(bytes)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            if let Some(written) = unless_early(self.0.try_write_vectored(bytes)) {
                return Poll::Ready(written);
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}

/// What came of it; nothing where the socket was not ready after all, and now says when it is.
fn unless_early<T>(done: io::Result<T>) -> Option<io::Result<T>> {
    let early = matches!(&done, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    (!early).then_some(done)
}
