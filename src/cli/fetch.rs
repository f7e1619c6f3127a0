//! Fetches one page of a server over HTTP: `/metrics` for `top`, `/readyz` for `doctor`.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest answer that is read; 10 000 networks take about 40 MB.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// The beginning of every answer.
const HTTP: &[u8] = b"HTTP/";
/// A server that sends nothing for this long hangs: a long answer comes in pieces.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How many characters of any other answer are shown.
const SHOWN_MAX: usize = 80;

/// An HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Its first line.
    pub status: String,
    /// What follows the head.
    pub body: String,
}

impl HttpAnswer {
    /// The status code, as text.
    pub fn code(&self) -> &str {
        self.status.split(' ').nth(1).unwrap_or_default()
    }
}

/// Requests a page from `address` (a host and a port).
///
/// # Errors
/// A message: the server is not reached, does not answer in time, falls silent, or does not speak HTTP.
pub async fn get(address: &str, path: &str, timeout: Duration) -> Result<HttpAnswer, String> {
    let asked = tokio::time::timeout(timeout, get_for_long(address, path));
    asked.await.map_err(|_| format!("no answer within {} s", timeout.as_secs()))?
}

async fn get_for_long(address: &str, path: &str) -> Result<HttpAnswer, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = heard(TcpStream::connect(address)).await?.map_err(failed)?;
    // HTTP 1.0, so that the body is plain and ends with the connection.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: text/plain\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let (mut stream, mut answer) = (stream.take(ANSWER_BYTES_MAX), Vec::new());
    while heard(stream.read_buf(&mut answer)).await?.map_err(failed)? > 0 {
        // A server with another protocol need not hang up: the port for clients would wait for more.
        let begun = answer.len().min(HTTP.len());
        if answer[..begun] != HTTP[..begun] {
            return Err(format!("it answers something else than HTTP: `{}`", shown(&answer)));
        }
    }
    let answer = String::from_utf8(answer).map_err(|_| "its answer is not text".to_owned())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("its answer is no HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    Ok(HttpAnswer { status: status.to_owned(), body: body.to_owned() })
}

/// Waits for the next step, unless the server is silent for too long.
async fn heard<T>(next: impl Future<Output = T>) -> Result<T, String> {
    let heard = tokio::time::timeout(SILENCE_MAX, next).await;
    heard.map_err(|_| format!("nothing was heard of it for {} s", SILENCE_MAX.as_secs()))
}

/// The beginning of an answer that is not HTTP, for people.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// The kernel takes connections for a process that hangs, too.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_hangs_is_given_up_long_before_the_time_for_a_whole_answer_is_over() {
        let hangs = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = hangs.local_addr().unwrap().to_string();
        let refused = get(&address, "/metrics", Duration::from_secs(600)).await.unwrap_err();
        assert_eq!(refused, "nothing was heard of it for 5 s");
    }
}
