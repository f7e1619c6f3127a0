//! The client: JSON-RPC 2.0 over TCP, one JSON value a line, any number of calls in flight, over as many connections as it
//! takes.
//!
//! ```text
//!  Client::call ─▶ table (what is not answered, in order) ─▶ connections ─▶ nodes
//!                    └ asked, safety: may it be sent again? ◀─ errors, lost connections, `moved`
//!  Watch::next ──▶ a connection of its own, and the cursor behind the last event
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
//! `examples/first_client.rs` is a program that runs; a test runs it too.
//!
//! # What a call may count on
//!
//! - **Tries.** Within [`Options::timeout`] a call goes on trying: it connects to the first address that answers (of several:
//!   a `server.ping`, which a process that hangs does not), waits a little longer from try to try, and asks again what was
//!   certainly not carried out (`not_ready`, `overloaded`, `rate_limited`, `unavailable` with `applied: false`). Of these no
//!   try begins in the last tenth of that time: the call ends with the refusal, of which everything is known. After a
//!   lost answer, or `applied: "unknown"`, it repeats exactly what PROTOCOL calls safe to repeat; [`safety`] is the table.
//!   Where time is over in the midst of a repeat, it ends with what the try before was refused with, of what may change something
//!   with `applied: "unknown"`; where none was refused, as [`ClientError::TimedOut`].
//!   A call that waits for capacity (`wait_seconds`, on top of that time) is asked again with no more of it than is left.
//!   What is not ends as [`ClientError::Unknown`], which says where to look. So does a repeat that is refused where the
//!   first try may be the reason: `conflict` of what was conditional, `already_exists` of what `must_create`. A result that a
//!   repeat brought is a result; whoever must know whether the first try did what it tells of asks by [`Client::ask`].
//! - **Order.** Calls of one client for one network (named alike) take effect in the order in which they are first polled,
//!   and those for several networks between what is before and behind, as if there were one connection. Over a new
//!   connection too: what is repeated is sent in its old order, before what was polled later. Two exceptions: what was
//!   refused for a moment comes back later than what was polled after it; and what takes effect a second time, because its
//!   answer was lost, does so after what was answered meanwhile. Who needs more waits for the one before asking the next.
//! - **Dead servers.** A connection that says nothing for twice [`Options::silence`] while answers are due is given up. One
//!   over which calls are put off again and again is left for the next address.
//! - **Redirects.** With [`Options::redirect`] nodes answer `moved` instead of forwarding; where it leads is remembered for
//!   each network, and forgotten as soon as nobody answers there.
//! - **Events.** A [`Watch`] hands over each event once and in order, over lost connections and `lagged`; where the history
//!   cannot give that, it says `cursor_lost`.
//!
//! Used by the command line and the tests. Knows of methods only what [`safety`] says; requests and answers are plain JSON.
//!
//! Review notes: is there a way for a call to be sent twice that may not be? For one to be neither sent nor ended?

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

/// How long connecting, and one call without `wait_seconds`, may take where the caller does not say.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Connects to `address` (`host:port`).
async fn open(address: &str, timeout: Duration) -> Result<TcpStream, ClientError> {
    let refused = |cause: String| ClientError::Connect { address: address.to_owned(), cause };
    let stream = match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(refused(plain(&error))),
        Err(_) => return Err(refused(format!("no answer within {} s", seconds(timeout)))),
    };
    // Small requests leave at once; the writer gathers what is there anyway. Failure costs latency only.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Whole seconds of a limit, for people: none is said to be 0.
fn seconds(limit: Duration) -> u128 {
    limit.as_millis().div_ceil(1_000)
}

/// What is said where the other side hung up without an error.
const CLOSED: &str = "the connection was closed";

/// One request as it goes over the wire, its line end included.
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

/// An I/O error without the number that means nothing to people.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}
