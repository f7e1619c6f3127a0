//! Reads the few members that the load needs from an answer line, without building a JSON value.
//!
//! A member name between quotes and colon (`"id":`) cannot occur inside a JSON string, where its quotes would be escaped. So
//! a search for the bytes is exact as long as no nested object has a member of that name. The answers of `ip.allocate` and
//! `ip.release` have none (`network_id` does not match: the quote comes first).
//!
//! Used by `driver` for every answer. Refusals take the slow path through serde_json, in `refusal`.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// A search text, prepared once: preparing it for each answer took a fifth of the client's time.
struct Needle(LazyLock<Finder<'static>>);

impl Needle {
    /// The position of its first occurrence.
    fn at(&self, line: &[u8]) -> Option<usize> {
        self.0.find(line)
    }

    /// The bytes after its first occurrence.
    fn behind<'a>(&self, line: &'a [u8]) -> Option<&'a [u8]> {
        self.at(line).map(|at| &line[at + self.0.needle().len()..])
    }
}

macro_rules! needles {
    ($($name:ident = $text:literal;)*) => {
        $(static $name: Needle = Needle(LazyLock::new(|| Finder::new($text)));)*
    };
}

needles! {
    ID = br#""id":"#;
    ERROR = br#""error":{"#;
    RESULT = br#""result":{"#;
    ADDRESS = br#""address":""#;
    OWNER = br#""owner":""#;
    NETWORK = br#""network":""#;
    CREATED = br#""created":true"#;
    RELEASED = br#""released":["#;
    GENERATION = br#""generation":"#;
    PREFIX_LENGTH = br#""prefix_length":"#;
}

/// What kind of answer a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// A result: a complete object.
    Result,
    /// An error object.
    Refusal,
    /// Neither a result nor an error, or cut off.
    Unreadable,
}

/// The parts of one answer line.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The `id` of the request.
    pub id: usize,
    pub said: Said,
    /// The whole line, for the slow path.
    pub line: &'a [u8],
}

/// The start of an answer in the server's usual order of members; in any other order the members are searched for.
const USUAL_START: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

/// Reads a line; none if it carries no numeric id (a notification, or `id: null` of a parse error).
pub fn answer(line: &[u8]) -> Option<Answer<'_>> {
    let rest = match line.strip_prefix(USUAL_START) {
        Some(rest) => rest,
        None => ID.behind(line)?,
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 9 {
        return None;
    }
    let id = rest[..digits].iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    Some(Answer { id, said: said(line, &rest[digits..]), line })
}

/// `behind_id` is the rest of the line after the id, where a result usually follows.
fn said(line: &[u8], behind_id: &[u8]) -> Said {
    let is_whole = line.trim_ascii_end().ends_with(b"}");
    if is_whole && behind_id.starts_with(br#","result":{"#) {
        return Said::Result;
    }
    if ERROR.at(line).is_some() {
        return Said::Refusal;
    }
    if is_whole && RESULT.at(line).is_some() { Said::Result } else { Said::Unreadable }
}

/// The value of `result.address`.
pub fn address(line: &[u8]) -> Option<&[u8]> {
    text(line, &ADDRESS)
}

/// The value of `owner`, which short answers omit.
pub fn owner(line: &[u8]) -> Option<&[u8]> {
    text(line, &OWNER)
}

/// The value of `network`, which short answers omit.
pub fn network(line: &[u8]) -> Option<&[u8]> {
    text(line, &NETWORK)
}

/// The text from the end of `start`, which ends with a quote, to the next quote.
fn text<'a>(line: &'a [u8], start: &Needle) -> Option<&'a [u8]> {
    let rest = start.behind(line)?;
    Some(&rest[..memchr::memchr(b'"', rest)?])
}

/// Did the grant create a reservation?
pub fn created(line: &[u8]) -> bool {
    CREATED.at(line).is_some()
}

/// All addresses of `released`.
pub fn released(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let rest = RELEASED.behind(line).unwrap_or_default();
    let list = &rest[..memchr::memchr(b']', rest).unwrap_or(rest.len())];
    // Every second part between quotes is a value.
    list.split(|byte| *byte == b'"').skip(1).step_by(2)
}

/// The generation of a grant.
pub fn generation(line: &[u8]) -> Option<u64> {
    number(line, &GENERATION)
}

/// The prefix length of the grant.
pub fn prefix_length(line: &[u8]) -> Option<u8> {
    number(line, &PREFIX_LENGTH).and_then(|length| u8::try_from(length).ok())
}

/// The number after `start`.
fn number(line: &[u8], start: &Needle) -> Option<u64> {
    let digits = start.behind(line)?.iter().take_while(|byte| byte.is_ascii_digit()).take(19);
    let (count, number) = digits.fold((0, 0), |(count, sum), digit| (count + 1, sum * 10 + u64::from(digit - b'0')));
    (count > 0).then_some(number)
}

/// The number of an IPv4 address in canonical text.
pub fn ipv4(text: &[u8]) -> Option<u32> {
    let (mut bits, mut part, mut digits, mut dots) = (0u32, 0u32, 0, 0);
    for &byte in text {
        match byte {
            b'0'..=b'9' if digits < 3 => {
                part = part * 10 + u32::from(byte - b'0');
                digits += 1;
            }
            b'.' if digits > 0 && part < 256 && dots < 3 => {
                bits = bits << 8 | part;
                (part, digits) = (0, 0);
                dots += 1;
            }
            _ => return None,
        }
    }
    (dots == 3 && digits > 0 && part < 256).then_some(bits << 8 | part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANT: &[u8] =
        br#"{"jsonrpc":"2.0","id":17,"result":{"network":"lan","network_id":"x","address":"10.0.0.5","created":true}}"#;

    #[test]
    fn a_grant_is_read_in_any_order_of_members() {
        let read = answer(GRANT).unwrap();
        assert_eq!((read.id, read.said, address(GRANT)), (17, Said::Result, Some(&b"10.0.0.5"[..])));
        assert_eq!((network(GRANT), owner(GRANT), prefix_length(GRANT)), (Some(&b"lan"[..]), None, None));
        assert!(created(GRANT));
        assert_eq!(
            generation(br#"{"id":1,"result":{"generation":1882548449837057,"created":true}}"#),
            Some(1882548449837057)
        );
        assert_eq!(generation(GRANT), None);
        let turned = br#"{"result":{"address":"10.0.0.5"},"id":3,"jsonrpc":"2.0"}"#;
        assert_eq!(answer(turned).unwrap().id, 3);
        assert_eq!(answer(turned).unwrap().said, Said::Result);
    }

    #[test]
    fn an_error_is_no_grant_and_a_text_that_speaks_of_errors_is_no_error() {
        let refused = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"full"}}"#;
        assert_eq!(answer(refused).unwrap().said, Said::Refusal);
        let note = br#"{"id":1,"jsonrpc":"2.0","result":{"note":"\"error\":{"}}"#;
        assert_eq!(answer(note).unwrap().said, Said::Result);
        assert_eq!(answer(br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#), None);
    }

    #[test]
    fn what_is_cut_off_or_neither_result_nor_error_cannot_be_read() {
        for line in [
            &br#"{"jsonrpc":"2.0","id":5,"result":{"addr"#[..],
            br#"{"jsonrpc":"2.0","id":5,"result":null}"#,
            br#"{"jsonrpc":"2.0","id":5}"#,
        ] {
            assert_eq!(answer(line).unwrap().said, Said::Unreadable, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn a_release_names_all_that_it_let_go_or_nothing() {
        let all = |line| released(line).collect::<Vec<&[u8]>>();
        assert_eq!(all(br#"{"id":1,"result":{"released":["10.0.0.5"]}}"#), [b"10.0.0.5"]);
        assert_eq!(
            all(br#"{"id":1,"result":{"released":["10.0.0.5","10.0.0.6"],"note":"x"}}"#),
            [b"10.0.0.5", b"10.0.0.6"]
        );
        assert!(all(br#"{"id":1,"result":{"released":[]}}"#).is_empty() && all(b"{}").is_empty());
    }

    #[test]
    fn addresses_are_read_strictly() {
        assert_eq!(ipv4(b"10.0.0.5"), Some(0x0a00_0005));
        assert_eq!(ipv4(b"255.255.255.255"), Some(u32::MAX));
        for text in ["", "10.0.0", "10.0.0.256", "10.0.0.5.", "10..0.5", "10.0.0.1234", "2001:db8::5"] {
            assert_eq!(ipv4(text.as_bytes()), None, "{text}");
        }
    }
}
