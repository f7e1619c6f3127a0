//! The client: JSON-RPC 2.0 over TCP, one JSON value per line, any number of calls in flight, over as many connections as
//! needed.
//!
//! ```text
//!  Client::call ─▶ table (unanswered calls, in order) ─▶ connections ─▶ nodes
//!                    └ asked, safety: may it be sent again? ◀─ errors, lost connections, `moved`
//!  Watch::next ──▶ a connection of its own, and the cursor after the last event
//! ```
//!
//! ```no_run
//! use allod::client::{Client, ClientError, Options};
//! use serde_json::{Map, json};
//!
//! # async fn example() -> Result<(), ClientError> {
//! let client = Client::new(["127.0.0.1:7400", "127.0.0.1:7500"], Options::default());
//! let ask = Map::from_iter([("network".to_owned(), json!("lan")), ("owner".to_owned(), json!("web/0"))]);
//! let held = client.call("ip.allocate", ask).await?;
//! println!("{}", held["interface"]);
//! # Ok(())
//! # }
//! ```
//!
//! `examples/first_client.rs` is a complete program; a test runs it.
//!
//! # What a caller can rely on
//!
//! - **Tries.** Within [`Options::timeout`] a call keeps trying. It connects to the first address that answers (if there are
//!   several: that answers a `server.ping`, which a hung process does not), waits a little longer before each try, and
//!   repeats requests that were certainly not carried out (`not_ready`, `overloaded`, `rate_limited`, `unavailable` with
//!   `applied: false`). No such repeat begins in the last tenth of that time: the call ends with the refusal instead, which
//!   leaves nothing in doubt. After a lost answer, or `applied: "unknown"`, it repeats exactly what PROTOCOL calls safe to
//!   repeat; [`safety`] is the table. If time runs out during a repeat, the call ends with the refusal of the try before,
//!   with `applied: "unknown"` if it may change something; if no try was refused, it ends as [`ClientError::TimedOut`]. A
//!   call that waits for capacity (`wait_seconds`, on top of that time) is repeated with no more waiting than is left. A
//!   call that is not safe to repeat ends as [`ClientError::Unknown`], which says where to look. So does a repeat whose
//!   refusal the first try may have caused: `conflict` of a conditional call, `already_exists` of one with `must_create`.
//!   The result of a repeat counts as a result; a caller who must know whether the first try caused what it reports uses
//!   [`Client::ask`].
//! - **Order.** Calls of one client for one network (under the same name) take effect in the order in which they are first
//!   polled. Calls for several networks take effect after the calls before them and before those after them, as if there
//!   were one connection. This holds over a new connection, too: repeats are sent in their old order, before later calls.
//!   There are two exceptions. A call that was refused for the moment is repeated after calls that were polled later. And a
//!   call that takes effect a second time, because its answer was lost, does so after calls that were answered meanwhile. A
//!   caller who needs more waits for one answer before the next call.
//! - **Dead servers.** A connection that says nothing for twice [`Options::silence`] while answers are due is given up. If
//!   calls are put off again and again over one connection, the client turns to the next address.
//! - **Redirects.** With [`Options::redirect`] nodes answer `moved` instead of forwarding. The client remembers for each
//!   network where that leads, and forgets it as soon as nobody answers there.
//! - **Events.** A [`Watch`] hands over each event once and in order, despite lost connections and `lagged`; if the history
//!   no longer allows that, it says `cursor_lost`.
//!
//! Used by the command line and the tests. It knows about methods only what [`safety`] says; requests and answers are plain
//! JSON.
//!
//! Review notes: can a call be sent twice that must not be? Can a call be neither sent nor ended?

mod asked;
mod backoff;
mod error;
mod line;
mod options;
mod routes;
pub mod safety;
mod shared;
mod table;
mod watch;
mod way;

use std::time::Duration;

use tokio::net::TcpStream;

pub use error::{ClientError, RpcError};
pub use options::{Options, Trouble};
pub use shared::{Answered, Client};
pub use watch::{Told, Watch};
pub(crate) use way::is_passing;

/// Time limit for connecting, and for one call without `wait_seconds`, unless the caller sets another.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Connects to `address` (`host:port`).
async fn open(address: &str, timeout: Duration) -> Result<TcpStream, ClientError> {
    let refused = |cause: String| ClientError::Connect { address: address.to_owned(), cause };
    let stream = match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(refused(plain(&error))),
        Err(_) => return Err(refused(format!("no answer within {} s", seconds(timeout)))),
    };
    // So that small requests leave at once; the writer gathers what is ready anyway. If this fails, it only costs latency.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A time limit in whole seconds, for people; rounded up so that it never shows as 0.
fn seconds(limit: Duration) -> u128 {
    limit.as_millis().div_ceil(1_000)
}

/// The cause when the other side closed the connection without an error.
const CLOSED: &str = "the connection was closed";

/// One request as it goes over the wire, with its line end.
pub fn request_line<P: serde::Serialize + ?Sized>(id: u64, method: &str, params: &P) -> Result<Vec<u8>, ClientError> {
    #[derive(serde::Serialize)]
    struct Request<'a, P: ?Sized> {
        jsonrpc: &'static str,
        id: u64,
        method: &'a str,
        params: &'a P,
    }
    let mut line = serde_json::to_vec(&Request { jsonrpc: "2.0", id, method, params })
        .map_err(|error| ClientError::NotSent { cause: error.to_string() })?;
    line.push(b'\n');
    Ok(line)
}

/// An I/O error without its number, which means nothing to people.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::answer;
    use crate::wire::envelope::{self, Id};
    use crate::wire::params::IpRelease;

    #[test]
    fn what_the_client_writes_is_what_the_server_reads_and_the_other_way_round() {
        let params = IpRelease::new("lan".parse().unwrap());
        let line = request_line(9, "ip.release", &params).unwrap();
        let (id, request) = envelope::read(line.trim_ascii_end()).expect("in one pass");
        assert_eq!((id, request), (Some(Id::number(9)), params.into()));
        let mut line = Vec::new();
        answer::open_result(&mut line, &Id::number(9));
        line.extend_from_slice(br#"{"released":[]}"#);
        answer::close(&mut line);
        let mut message: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(message["id"], 9);
        assert_eq!(line::answer_of(&mut message).unwrap().unwrap(), json!({"released": []}));
    }
}
