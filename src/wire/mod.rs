//! The protocol as types: shared by the server, the client, the command line and the load harness.
//!
//! Parsed here and valid from then on: no later layer asks again what an owner or a range may look like. Nothing here
//! does I/O, reads a clock or knows of actors; of the core it uses addresses and names only.
//!
//! | file | holds |
//! | --- | --- |
//! | `plain` | a line as clients write it → its request, in one pass |
//! | `envelope` | any line or body → requests whose params are found, not read |
//! | `methods` | the table of methods; method and params → [`methods::Request`] |
//! | `params`, `nouns` | one struct for each method's params; what is answered |
//! | `values` | how each value is written, and what is refused |
//! | `errors`, `explain` | kinds, codes, facts; from a refused member to its path and a sentence |
//! | `answer` | answers and requests as they are written |
//! | `openrpc` | all of it as a document |
//! | `object` | the notation in which the structs are written |
//!
//! To add a method: its params in `params`, its result in `nouns`, one line in the table of `methods`; then the
//! compiler asks the server's dispatch for it, and the tests here ask for an example.
//!
//! Review notes: is a new optional member `?` (null refused) or `| null`? Has every new list and text its bound in
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

/// Version of the protocol: the number that `server.info` answers.
pub const PROTOCOL_VERSION: u64 = 1;
