//! Notices when a client hangs up while its request is under way.
//!
//! `hyper` does so itself, unless there are unread bytes after the request: a line end after a body is enough. Then it sees
//! neither the end of input nor a reset, and a request would wait for capacity on nobody's behalf. So `accepting` watches
//! the socket as well.

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

/// Whether a request is under way and read completely. Until then, reading it finds the end of the connection.
#[derive(Debug, Clone, Default)]
pub(super) struct UnderWay(Arc<AtomicBool>);

impl UnderWay {
    /// Notes a request; its body is read through the returned wrapper.
    pub(super) fn begin(&self, request: http::Request<Incoming>) -> http::Request<Heard> {
        self.0.store(request.body().is_end_stream(), Ordering::Relaxed);
        request.map(|body| Heard { body, under_way: self.clone() })
    }

    /// Notes that the request is answered.
    pub(super) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Waits until the client ends its input or resets the connection while a request is under way. Must be polled after the
    /// future that serves the connection, because both wake the same task.
    pub(super) async fn hung_up(&self, stream: &TcpStream) {
        // No socket is asked for urgent bytes, so this waits for the end alone, whatever unread bytes are before it.
        let mut ended = pin!(stream.ready(Interest::PRIORITY));
        poll_fn(|cx| if self.0.load(Ordering::Relaxed) { ended.as_mut().poll(cx).map(drop) } else { Poll::Pending })
            .await;
    }
}

/// The body of a request. Notes when all of it has been read.
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

/// A socket that is read and written here, and watched elsewhere.
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

/// The outcome of a try; `None` if the socket was not ready after all, and has been asked to report when it is.
fn unless_early<T>(done: io::Result<T>) -> Option<io::Result<T>> {
    let early = matches!(&done, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    (!early).then_some(done)
}
