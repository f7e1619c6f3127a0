//! One page of a server over HTTP: `/metrics` for `top`, `/readyz` for `doctor`.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer longer than this is not one of ours: 10 000 networks take some 40 MB.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// How every answer begins.
const HTTP: &[u8] = b"HTTP/";
/// So many characters of something else are shown.
const SHOWN_MAX: usize = 80;

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Its first line.
    pub status: String,
    /// What follows the head.
    pub body: String,
}

impl HttpAnswer {
    /// The number in its first line, as text.
    pub fn code(&self) -> &str {
        self.status.split(' ').nth(1).unwrap_or_default()
    }
}

/// Asks `address` (a host and a port) for a page.
///
/// # Errors
/// A sentence: it is not reached, does not answer in time, or answers something else than HTTP.
pub async fn get(address: &str, path: &str, timeout: Duration) -> Result<HttpAnswer, String> {
    let asked = tokio::time::timeout(timeout, get_for_long(address, path));
    asked.await.map_err(|_| format!("no answer within {} s", timeout.as_secs()))?
}

async fn get_for_long(address: &str, path: &str) -> Result<HttpAnswer, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    // 1.0, so that the body is plain and ends with the connection.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: text/plain\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let (mut stream, mut answer) = (stream.take(ANSWER_BYTES_MAX), Vec::new());
    while stream.read_buf(&mut answer).await.map_err(failed)? > 0 {
        // Whoever speaks something else need not hang up: the port for clients waits for more.
        let begun = answer.len().min(HTTP.len());
        if answer[..begun] != HTTP[..begun] {
            return Err(format!("it answers something else than HTTP: `{}`", shown(&answer)));
        }
    }
    let answer = String::from_utf8(answer).map_err(|_| "its answer is no text".to_owned())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("its answer is no HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    Ok(HttpAnswer { status: status.to_owned(), body: body.to_owned() })
}

/// The beginning of what is no answer, for people.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim_end().to_owned()
}
