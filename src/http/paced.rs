//! A socket whose other end must take what is written: if it takes nothing for too long, the connection ends, as with TCP
//! clients.
//!
//! Reading is limited where the meaning of the bytes is known: heads in `accepting`, bodies in `body`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The socket, and how long the other end has taken nothing.
pub(super) struct Paced<S> {
    pub(super) socket: S,
    /// Whether a write failed because nothing was taken for too long.
    pub(super) gave_up: bool,
    patience: Duration,
    /// Runs while a write waits.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub(super) fn new(socket: S, patience: Duration) -> Self {
        Self { socket, gave_up: false, patience, until: None }
    }

    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.until = None;
            return written;
        }
        let patience = self.patience;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(until.as_mut().poll(cx));
        self.gave_up = true;
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing of its answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, to)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bytes);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is how a test fails")]

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn who_takes_a_little_now_and_then_is_not_cut_off_and_who_takes_nothing_is() {
        let (ours, mut theirs) = duplex(8);
        let mut paced = Paced::new(ours, PATIENCE);
        let begun = tokio::time::Instant::now();
        let taking = tokio::spawn(async move {
            for _ in 0..5 {
                sleep(PATIENCE - Duration::from_secs(1)).await;
                theirs.read_exact(&mut [0; 8]).await.unwrap();
            }
            theirs
        });
        let error = paced.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(paced.gave_up);
        assert_eq!(begun.elapsed().as_secs(), 5 * 29 + 30);
        drop(taking.await.unwrap());
    }
}
