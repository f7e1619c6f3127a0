//! Finds the requests in one line or body. Does no I/O, and copies nothing but the ids.
//!
//! Life of an `ip.allocate`, step 2 of 8. Before: the connection, which cut a line. After: `methods::parse`, which reads the
//! params.
//!
//! The common case is one pass over the text, [`read`] (`plain`), which knows the method when it comes to the params.
//! Everything else goes to [`parse`], which finds the `params` and leaves them as text. If that fails, `diagnose` reads the
//! text again, slowly, to say why and to find the id to answer with.
//!
//! Deep nesting is harmless: members that are not part of the envelope are skipped without recursion, and params are read
//! into structs of fixed depth.

use std::borrow::Cow;
use std::fmt;

use compact_str::CompactString;
use serde::Deserialize;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::errors::{ErrorKind, RpcError};
use super::methods::Request;
use super::plain;
use super::values::text::shortened;
use crate::limits;

/// Id of a request as it was written: a JSON number, string or null. Echoed byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(CompactString);

impl Id {
    /// The id of answers to requests without a readable id.
    pub const NULL: Id = Id(CompactString::const_new("null"));

    /// An id that is a number.
    pub fn number(number: u64) -> Self {
        Id(compact_str::format_compact!("{number}"))
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// Keeps the JSON text of an id if it is a number, a string or null.
    pub(super) fn of(json: &str) -> Option<Self> {
        match json.as_bytes().first() {
            Some(b'"' | b'-' | b'0'..=b'9') => Some(Id(CompactString::from(json))),
            Some(b'n') => Some(Id::NULL),
            _ => None,
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A request with a valid envelope. Its params were found, but not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<'a> {
    /// Id to answer with. `None` for a notification, which is carried out and not answered.
    pub id: Option<Id>,
    /// The method, as the client wrote it.
    pub method: Cow<'a, str>,
    /// The JSON text of the params, an object; `{}` if there were none.
    pub params: &'a str,
}

/// Something that is not a request, and the answer to it. Without an id (a notification with wrong params) there is no
/// answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// Id to answer with.
    pub id: Option<Id>,
    /// Why.
    pub error: RpcError,
}

/// A request, or why it is not one.
pub type CallOrRefused<'a> = Result<Call<'a>, Refused>;

/// What a line or body contains.
#[derive(Debug, Clone, PartialEq)]
pub enum Message<'a> {
    /// Nothing but blanks: ignored.
    Blank,
    /// One request.
    Single(CallOrRefused<'a>),
    /// A batch of 1 to 1 000 requests, answered by one array (or by nothing, if all are notifications).
    Batch(Vec<CallOrRefused<'a>>),
}

/// Reads a line (without its line end) or body that is one valid request, including its params, in one pass. Returns `None`
/// for everything else, which [`parse`] handles: also for requests whose `params` come before their `method`, and for texts
/// with escapes.
pub fn read(bytes: &[u8]) -> Option<(Option<Id>, Request)> {
    let text = bytes.first().filter(|first| **first == b'{').and_then(|_| std::str::from_utf8(bytes).ok())?;
    plain::request(text).ok()
}

/// Finds the requests in a line (without its line end) or body.
pub fn parse(bytes: &[u8]) -> Message<'_> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Message::Single(Err(no_json("the text is not UTF-8")));
    };
    // The blanks of JSON, not those of Unicode.
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    match text.as_bytes().first() {
        None => Message::Blank,
        Some(b'[') => batch(text),
        Some(_) => Message::Single(entry(text)),
    }
}

fn no_json(why: impl fmt::Display) -> Refused {
    let message = format!("this is no JSON: {why}");
    Refused { id: Some(Id::NULL), error: RpcError::new(ErrorKind::ParseError, message) }
}

fn no_request(id: Id, why: impl fmt::Display) -> Refused {
    let message = format!("this is no JSON-RPC 2.0 request: {why}");
    Refused { id: Some(id), error: RpcError::new(ErrorKind::InvalidRequest, message) }
}

fn entry(text: &str) -> CallOrRefused<'_> {
    match serde_json::from_str::<Envelope<'_>>(text) {
        Ok(envelope) => call(envelope),
        Err(_) => Err(diagnose(text)),
    }
}

fn call(envelope: Envelope<'_>) -> CallOrRefused<'_> {
    let id = match envelope.id {
        None => None,
        Some(raw) => match Id::of(raw.get()) {
            Some(id) => Some(id),
            None => return Err(no_request(Id::NULL, "`id` must be a number, a string or null")),
        },
    };
    let params = match envelope.params {
        None => "{}",
        Some(raw) if raw.get().starts_with('{') => raw.get(),
        Some(_) => {
            let message = format!("{}: `params` must be an object of named members", shortened(&envelope.method));
            return Err(Refused { id, error: RpcError::invalid("params", message) });
        }
    };
    Ok(Call { id, method: envelope.method, params })
}

fn batch(text: &str) -> Message<'_> {
    const MAX: usize = limits::RPC_BATCH_MEMBERS_MAX;
    let members = match serde_json::from_str::<Members<'_>>(text) {
        Ok(members) => members,
        Err(error) => return Message::Single(Err(no_json(error))),
    };
    if members.count == 0 {
        return Message::Single(Err(no_request(Id::NULL, "the batch is empty")));
    }
    if members.count > MAX {
        let why = format!("the batch has {} members, at most {MAX} are allowed", members.count);
        return Message::Single(Err(no_request(Id::NULL, why)));
    }
    Message::Batch(members.first.into_iter().map(|raw| entry(raw.get())).collect())
}

/// The members of an envelope. Any other member is an error.
struct Envelope<'a> {
    /// The JSON text of the id; `None` if there is no such member.
    id: Option<&'a RawValue>,
    method: Cow<'a, str>,
    params: Option<&'a RawValue>,
}

/// A text that is borrowed if it has no escapes.
struct Borrowed<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Borrowed<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Borrowed<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Borrowed<'de>, E> {
                Ok(Borrowed(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Borrowed<'de>, E> {
                Ok(Borrowed(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Which member of an envelope a key names.
enum Member {
    Version,
    Id,
    Method,
    Params,
    Unknown,
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Member;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: Error>(self, key: &str) -> Result<Member, E> {
                Ok(match key {
                    "jsonrpc" => Member::Version,
                    "id" => Member::Id,
                    "method" => Member::Method,
                    "params" => Member::Params,
                    _ => Member::Unknown,
                })
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Envelope<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EnvelopeVisitor;
        impl<'de> Visitor<'de> for EnvelopeVisitor {
            type Value = Envelope<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
                let (mut version, mut id, mut method, mut params) = (false, None, None, None);
                while let Some(member) = map.next_key()? {
                    match member {
                        Member::Version if !version && map.next_value::<Borrowed<'_>>()?.0 == "2.0" => version = true,
                        Member::Id if id.is_none() => id = Some(map.next_value::<&RawValue>()?),
                        Member::Method if method.is_none() => method = Some(map.next_value::<Borrowed<'_>>()?.0),
                        Member::Params if params.is_none() => params = Some(map.next_value::<&RawValue>()?),
                        // `diagnose` finds out what is wrong.
                        Member::Version | Member::Id | Member::Method | Member::Params | Member::Unknown => {
                            return Err(A::Error::custom("no request"));
                        }
                    }
                }
                match method {
                    Some(method) if version => Ok(Envelope { id, method, params }),
                    _ => Err(A::Error::custom("no request")),
                }
            }
        }
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

/// The members of a batch: all are counted, but no more are kept than a batch may have.
struct Members<'a> {
    first: Vec<&'a RawValue>,
    count: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Members<'de>, A::Error> {
                let mut first = Vec::new();
                while first.len() < limits::RPC_BATCH_MEMBERS_MAX {
                    match entries.next_element::<&RawValue>()? {
                        Some(raw) => first.push(raw),
                        None => return Ok(Members { count: first.len(), first }),
                    }
                }
                let mut count = first.len();
                while entries.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Members { first, count })
            }
        }
        deserializer.deserialize_seq(MembersVisitor)
    }
}

/// All members of an object in the order in which they were written, including those given twice.
struct AllMembers<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// Members beyond this number need not be read: by then one is unknown or given twice.
const MEMBERS_LOOKED_AT_MAX: usize = 16;

impl<'de: 'a, 'a> Deserialize<'de> for AllMembers<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = AllMembers<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AllMembers<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(Borrowed(key)) = map.next_key()? {
                    if members.len() < MEMBERS_LOOKED_AT_MAX || key == "id" && members.len() < 2 * MEMBERS_LOOKED_AT_MAX
                    {
                        members.push((key, map.next_value()?));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(AllMembers(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// Says why a text is not a valid envelope, and under which id to answer so.
fn diagnose(text: &str) -> Refused {
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return no_json(error);
    }
    if !text.starts_with('{') {
        return no_request(Id::NULL, "a request is an object");
    }
    let members = match serde_json::from_str::<AllMembers<'_>>(text) {
        Ok(AllMembers(members)) => members,
        // Valid JSON by its grammar, and yet a member's name is not a valid text: it has half of a surrogate pair.
        Err(error) => return no_json(error),
    };
    let mut ids = members.iter().filter(|(key, _)| key == "id");
    let id = match (ids.next(), ids.next()) {
        (Some((_, raw)), None) => Id::of(raw.get()).unwrap_or(Id::NULL),
        // Of two ids, neither is the right one.
        _ => Id::NULL,
    };
    no_request(id, why_no_envelope(&members))
}

fn why_no_envelope(members: &[(Cow<'_, str>, &RawValue)]) -> String {
    for (at, (key, raw)) in members.iter().enumerate() {
        if members[..at].iter().any(|(earlier, _)| earlier == key) {
            return format!("`{}` is given twice", shortened(key));
        }
        let text = || serde_json::from_str::<String>(raw.get()).ok();
        match key.as_ref() {
            "jsonrpc" if text().as_deref() != Some("2.0") => return "`jsonrpc` must be \"2.0\"".to_owned(),
            "id" if Id::of(raw.get()).is_none() => return "`id` must be a number, a string or null".to_owned(),
            "method" if text().is_none() => return "`method` must be a string".to_owned(),
            "jsonrpc" | "id" | "method" | "params" => {}
            _ => return format!("`{}` is not a member of a request", shortened(key)),
        }
    }
    for wanted in ["jsonrpc", "method"] {
        if !members.iter().any(|(key, _)| key == wanted) {
            return format!("`{wanted}` is missing");
        }
    }
    "its members cannot be read".to_owned()
}
