//! A raw client: it sends and reads lines, with any number of requests under way. When a connection breaks, it knows which
//! requests were not answered.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::published::PUBLISHED;

/// The longest wait for an answer: a server that takes longer hangs, which is a failure of its own.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

/// The first answers of a connection are all checked against the published schemas.
const JUDGED_ALL: u64 = 1_000;
/// Of the later answers only one in this many is checked: a hundred thousand checks would take longer than the test.
const JUDGED_EVERY: u64 = 16;

/// One connection.
pub struct Client {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    next_id: u64,
}

/// The outcome of one request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Result(Value),
    /// A refusal, by its kind.
    Refused(String, Value),
    /// The connection broke before an answer came: the request may or may not have taken effect.
    Lost,
}

impl Answer {
    /// The answer is moved out of its envelope, not copied: a page of a list has ten thousand reservations.
    fn of(mut envelope: Value) -> Self {
        let mut taken = |member: &str| envelope.as_object_mut().and_then(|members| members.remove(member));
        match (taken("result"), taken("error")) {
            (Some(result), None) => Answer::Result(result),
            (None, Some(error)) => {
                let kind = error["data"]["kind"].as_str().unwrap_or_else(|| panic!("no kind: {error}"));
                Answer::Refused(kind.to_owned(), error)
            }
            (result, error) => panic!("neither result nor error, or both: {result:?}, {error:?}"),
        }
    }

    /// The result; anything else fails the test.
    #[track_caller]
    pub fn ok(self) -> Value {
        match self {
            Answer::Result(result) => result,
            other => panic!("not a result: {other:?}"),
        }
    }

    /// Is it a refusal of this kind?
    #[allow(dead_code, reason = "for tests that ask until it is done")]
    pub fn is(&self, refused: &str) -> bool {
        matches!(self, Answer::Refused(kind, _) if kind == refused)
    }
}

impl Client {
    pub async fn connect(server: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        Ok(Self { reader: BufReader::with_capacity(64 << 10, reader), writer, next_id: 0 })
    }

    /// Makes one call.
    pub async fn call(&mut self, method: &str, params: Value) -> Answer {
        self.call_all(vec![(method.to_owned(), params)]).await.remove(0)
    }

    /// Sends all the calls at once and waits for all the answers, which come in any order.
    pub async fn call_all(&mut self, calls: Vec<(String, Value)>) -> Vec<Answer> {
        let mut answers = vec![Answer::Lost; calls.len()];
        let mut places = HashMap::new();
        let mut lines = String::new();
        for (place, (method, params)) in calls.into_iter().enumerate() {
            self.next_id += 1;
            let (id, name) = (self.next_id, json!(method));
            writeln!(lines, r#"{{"jsonrpc":"2.0","id":{id},"method":{name},"params":{params}}}"#).unwrap();
            places.insert(self.next_id, (place, method, params));
        }
        // A failed write is not the end: answers to what got through may still be there to read.
        let _ = self.writer.write_all(lines.as_bytes()).await;
        let mut line = Vec::new();
        while !places.is_empty() {
            line.clear();
            let read = tokio::time::timeout(ANSWER_WAIT_MAX, self.reader.read_until(b'\n', &mut line)).await;
            let read = read.expect("the server answers in time");
            // A line that was cut off by a kill is no answer.
            if !matches!(read, Ok(length) if length > 0) || !line.ends_with(b"\n") {
                break;
            }
            // The port of a node that ended is free for others: an HTTP server that listens there now knows none of these
            // requests.
            if line.starts_with(b"HTTP/") {
                break;
            }
            let answer: Value = serde_json::from_slice(&line)
                .unwrap_or_else(|problem| panic!("{problem}: {:?}", String::from_utf8_lossy(&line)));
            let id = answer["id"].as_u64().unwrap_or_else(|| panic!("an answer without id: {answer:?}"));
            let (place, method, params) =
                places.remove(&id).unwrap_or_else(|| panic!("answered twice or never asked: {answer:?}"));
            if id <= JUDGED_ALL || id.is_multiple_of(JUDGED_EVERY) {
                let judged = PUBLISHED.judge(&method, &params, &answer);
                judged.unwrap_or_else(|problem| panic!("{method} {params}: {problem}"));
            }
            answers[place] = Answer::of(answer);
        }
        answers
    }

    /// The next line that nobody asked for, a notification. None if the connection broke.
    #[allow(dead_code, reason = "for tests that watch")]
    pub async fn told(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        let read = tokio::time::timeout(ANSWER_WAIT_MAX, self.reader.read_until(b'\n', &mut line)).await;
        let read = read.expect("the server says something in time");
        if !matches!(read, Ok(length) if length > 0) || !line.ends_with(b"\n") {
            return None;
        }
        let told: Value = serde_json::from_slice(&line).unwrap();
        PUBLISHED.judge_notification(&told).unwrap_or_else(|problem| panic!("{problem}: {told}"));
        Some(told)
    }

    /// All reservations, page by page.
    pub async fn list_all(&mut self) -> Vec<Value> {
        self.pages("ip.list", "reservations").await
    }

    /// All networks, page by page.
    pub async fn networks(&mut self) -> Vec<Value> {
        self.pages("network.list", "networks").await
    }

    async fn pages(&mut self, method: &str, member: &str) -> Vec<Value> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let mut params = json!({"limit": 10_000});
            if let Some(after) = after {
                params["after"] = after;
            }
            let mut page = self.call(method, params).await.ok();
            let items = page[member].as_array_mut().unwrap_or_else(|| panic!("{method} has no `{member}`"));
            found.append(items);
            after = page.get("next").cloned();
            if after.is_none() {
                return found;
            }
        }
    }
}
