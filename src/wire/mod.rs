//! The protocol as types: shared by the server, the client, the command line and the load harness.
//!
//! Everything is parsed here and valid from then on: no later layer checks again what an owner or a range may look like.
//! Nothing here does I/O, reads a clock or knows actors; of the core it uses addresses and names only.
//!
//! | file | holds |
//! | --- | --- |
//! | `plain` | reads a line as most clients write it into a request, in one pass |
//! | `envelope` | finds the requests in any line or body; their params are found, not read |
//! | `methods` | the table of methods; turns method and params into a [`methods::Request`] |
//! | `params`, `nouns` | one struct for each method's params; the answers |
//! | `values` | how each value is written, and what is refused |
//! | `errors`, `explain` | kinds, codes, facts; from a wrong member to its path and a sentence |
//! | `answer` | writes answers |
//! | `openrpc` | the whole protocol as a document |
//! | `object` | the notation in which the structs are written |
//!
//! To add a method: put its params in `params`, its result in `nouns`, and one line in the table of `methods`. Then the
//! compiler asks for it in the server's dispatch, and the tests here ask for an example.
//!
//! Review notes: is a new optional member `?` (null refused) or `| null`? Does every new list and text have its bound in
//! `limits`? Is a new member of a noun in the order of the protocol's page?

pub mod answer;
pub mod envelope;
pub mod errors;
mod explain;
pub mod methods;
pub mod nouns;
pub(crate) mod object;
pub mod openrpc;
pub mod params;
mod plain;
pub mod values;

#[cfg(test)]
pub(crate) mod tests;

pub use envelope::{Call, Id, Message, Refused};
pub use errors::{ErrorData, ErrorKind, Retry, RpcError};
pub use methods::{Access, Method, Params, Request, Span, parse};
pub use object::{IsEmpty, Nullable};

/// Version of the protocol: the number in the answer of `server.info`.
pub const PROTOCOL_VERSION: u64 = 1;
