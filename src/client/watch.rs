//! Events as they happen, over as many connections as needed: in order, none missing, none twice.
//!
//! A watch has a connection of its own and reads it only when asked for the next event, so a slow reader slows the socket
//! and not the process. When the server says `lagged`, the watch continues after the last event that it handed over. It
//! always knows the cursor of that place, even before the first event, because it takes one before it subscribes.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::options::Options;
use super::way::{self, Made};
use super::{Client, ClientError, RpcError, backoff, line};
use crate::limits::BOOKMARK_EVERY_MS;
use crate::wire::ErrorKind;

/// The longest silence: the server sends at least a bookmark every [`BOOKMARK_EVERY_MS`], which may be late.
const SILENCE_MAX: Duration = Duration::from_millis(4 * BOOKMARK_EVERY_MS);

/// A scope that holds nothing.
const NOBODYS: &str = "allod: nobody's, to learn a cursor";

/// What a [`Watch`] hands over.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// Something happened: the protocol's `event`. Its `cursor` is the place after it.
    Event(Value),
    /// Nothing else happened up to this cursor. Only handed over if asked for.
    Bookmark(String),
}

/// A subscription to events that outlives its connections. It ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    addresses: Vec<String>,
    options: Options,
    filter: Map<String, Value>,
    cursor: String,
    bookmarks: bool,
    /// The connection, and the part of a line that has been read.
    made: Option<(Made, Vec<u8>)>,
    /// Which of the addresses is tried next.
    at: usize,
    tries: u32,
    ended: Option<ClientError>,
}

impl Client {
    /// Watches events. `network`, `realm`, `scope` and `since` are those of `events.watch`; without `since` it watches from
    /// now on. A named network is watched by its id, so that neither a new name nor its end stops the watch.
    ///
    /// # Errors
    /// The server's refusal, including `cursor_lost`; or the server could not be reached within the time of a call.
    pub async fn watch(&self, params: Map<String, Value>) -> Result<Watch, ClientError> {
        let mut filter = params;
        let since = filter.shift_remove("since").filter(|since| !since.is_null());
        let known = self.place(&mut filter, since.is_some()).await?;
        let cursor = match since.as_ref().unwrap_or(&known) {
            Value::String(cursor) => cursor.clone(),
            // The server says what is wrong with it.
            other => other.to_string(),
        };
        // A watch needs forwarding: it then continues over every change of the owner.
        let options = Options { redirect: false, ..self.options().clone() };
        let limit = options.timeout;
        let (addresses, made) = (self.addresses().to_vec(), None);
        let mut watch =
            Watch { addresses, options, filter, cursor, bookmarks: false, made, at: 0, tries: 0, ended: None };
        match tokio::time::timeout(limit, watch.resume()).await {
            Ok(begun) => begun.map(|()| watch),
            Err(_) => Err(ClientError::TimedOut { method: "events.watch".to_owned(), seconds: limit.as_secs() }),
        }
    }

    /// The present cursor for a filter. Replaces the network in the filter by its id.
    async fn place(&self, filter: &mut Map<String, Value>, has_since: bool) -> Result<Value, ClientError> {
        let answer = match (filter.get("network"), has_since) {
            (Some(network), _) => {
                let asked = Map::from_iter([("network".to_owned(), network.clone())]);
                match self.call("network.get", asked).await {
                    Ok(found) => {
                        if let Some(id) = found.get("id") {
                            filter.insert("network".to_owned(), id.clone());
                        }
                        found
                    }
                    // A network that no longer exists still has a history, and perhaps only its id is known.
                    Err(error) if has_since && error.kind() == "not_found" => return Ok(Value::Null),
                    Err(error) => return Err(error),
                }
            }
            (None, false) => {
                let realm = filter.get("realm").map(|realm| ("realm".to_owned(), realm.clone()));
                // Networks that hold nothing of the scope are not asked, so none that is stopped refuses.
                let asked = [("scope".to_owned(), json!(NOBODYS)), ("count_only".to_owned(), json!(true))];
                self.call("ip.list", realm.into_iter().chain(asked).collect()).await?
            }
            // There is nothing to learn, except whether a server is there.
            (None, true) => self.call("server.ping", Map::new()).await?,
        };
        match answer.get("cursor") {
            Some(cursor) => Ok(cursor.clone()),
            None if has_since => Ok(Value::Null),
            None => Err(ClientError::Malformed { cause: "an answer without `cursor`".to_owned() }),
        }
    }
}

impl Watch {
    /// Makes the watch hand over bookmarks, too, for callers who store the cursor.
    #[must_use]
    pub fn with_bookmarks(mut self) -> Self {
        self.bookmarks = true;
        self
    }

    /// The cursor after the last event that was handed over: `since` of a watch that continues from here.
    pub fn cursor(&self) -> &str {
        &self.cursor
    }

    /// Continues from another cursor: after `cursor_lost`, from the last common one or that of a list.
    pub fn go_on_from(&mut self, cursor: impl Into<String>) {
        self.cursor = cursor.into();
        (self.made, self.ended) = (None, None);
    }

    /// The next event or bookmark. Connects again as often as needed and waits as long as it takes. Nothing is lost if the
    /// future is dropped.
    ///
    /// # Errors
    /// The kind `cursor_lost`, with `data.last_common`, if the next events are no longer there: the history was cut off by a
    /// failover, or is not kept for so long. Or any other refusal of the subscription. Either ends the watch, and is
    /// returned again and again until [`Watch::go_on_from`].
    pub async fn next(&mut self) -> Result<Told, ClientError> {
        loop {
            if let Some(ended) = &self.ended {
                return Err(ended.clone());
            }
            let Some((made, line)) = &mut self.made else {
                self.resume().await?;
                continue;
            };
            let message = match tokio::time::timeout(SILENCE_MAX, line::next(&mut made.reader, line)).await {
                Ok(Ok(message)) => {
                    line.clear();
                    message
                }
                Ok(Err(error)) => {
                    self.lost(&error);
                    continue;
                }
                Err(_) => {
                    let cause = format!("no sign of life for {} s", SILENCE_MAX.as_secs());
                    self.lost(&ClientError::Lost { cause });
                    continue;
                }
            };
            if let Some(told) = self.heard(message)? {
                return Ok(told);
            }
        }
    }

    /// Reads a message.
    fn heard(&mut self, mut message: Value) -> Result<Option<Told>, ClientError> {
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut params = message.get_mut("params").map(Value::take).unwrap_or_default();
        let text = |of: &Value, member: &str| of.get(member).and_then(Value::as_str).map(str::to_owned);
        match method.as_str() {
            "event" => {
                let event = params.get_mut("event").map(Value::take).unwrap_or_default();
                let Some(cursor) = text(&event, "cursor") else {
                    self.lost(&ClientError::Malformed { cause: "an event without `cursor`".to_owned() });
                    return Ok(None);
                };
                (self.cursor, self.tries) = (cursor, 0);
                Ok(Some(Told::Event(event)))
            }
            "bookmark" => {
                self.cursor = text(&params, "cursor").unwrap_or_else(|| self.cursor.clone());
                self.tries = 0;
                Ok(self.bookmarks.then(|| Told::Bookmark(self.cursor.clone())))
            }
            // The subscription ended after the last event that was sent, and all of those were read.
            "lagged" => {
                self.lost(&ClientError::Lost { cause: "too far behind (`lagged`)".to_owned() });
                Ok(None)
            }
            "cursor_lost" => {
                let message = text(&params, "problem").unwrap_or_default();
                let last_common = params.get("last_common").cloned().unwrap_or_default();
                let kind = ErrorKind::CursorLost;
                let data = json!({"kind": kind, "retry": kind.retry(), "last_common": last_common});
                let error = RpcError { code: kind.code().into(), kind: kind.as_str().to_owned(), message, data };
                let error = ClientError::Rpc(error);
                (self.made, self.ended) = (None, Some(error.clone()));
                Err(error)
            }
            // The server refuses the connection as a whole: it has too many.
            _ if message.get("error").is_some() => {
                self.lost(&ClientError::Lost { cause: "the server ended the connection".to_owned() });
                Ok(None)
            }
            // A message of a later version.
            _ => Ok(None),
        }
    }

    fn lost(&mut self, error: &ClientError) {
        self.made = None;
        self.at = self.at.wrapping_add(1);
        self.tell(error);
    }

    fn tell(&self, error: &ClientError) {
        if let Some(trouble) = &self.options.trouble {
            trouble.tell(error);
        }
    }

    /// Subscribes at the first address that can be reached, for as long as it takes.
    async fn resume(&mut self) -> Result<(), ClientError> {
        loop {
            if self.tries > 0 {
                tokio::time::sleep(backoff::wait(self.tries - 1)).await;
            }
            self.tries = self.tries.saturating_add(1);
            match self.subscribe().await {
                Ok(made) => {
                    self.made = Some((made, Vec::new()));
                    return Ok(());
                }
                Err(error) if way::is_passing(&error) => {
                    self.at = self.at.wrapping_add(1);
                    self.tell(&error);
                }
                Err(error) => {
                    self.ended = Some(error.clone());
                    return Err(error);
                }
            }
        }
    }

    async fn subscribe(&self) -> Result<Made, ClientError> {
        let count = self.addresses.len();
        let address = self.addresses.get(self.at % count.max(1)).map_or("", String::as_str);
        let mut made = way::make(address, count, &self.options).await?;
        let mut params = self.filter.clone();
        params.insert("since".to_owned(), Value::String(self.cursor.clone()));
        match tokio::time::timeout(self.options.timeout, made.ask(2, "events.watch", &params)).await {
            Ok(answer) => answer.map(|_| made),
            Err(_) => Err(ClientError::Lost { cause: "no answer to `events.watch`".to_owned() }),
        }
    }
}
