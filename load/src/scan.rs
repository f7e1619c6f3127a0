//! Reads the three things that load needs out of an answer line, without building a JSON value.
//!
//! A member name between quotes and colon (`"id":`) cannot occur inside a JSON string, where its quotes would be
//! escaped; so a search for the bytes is exact as long as no nested object has a member of that name. The answers
//! of `ip.allocate` and `ip.release` have none (`network_id` does not match: the quote comes first).
//!
//! Used by `driver` for every answer. Refusals take the slow path through serde_json, in `refusal`.

use memchr::memmem;

/// What one line says.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The `id` of the request.
    pub id: usize,
    /// False for an error object.
    pub ok: bool,
    /// The whole line, for the slow path.
    pub line: &'a [u8],
}

/// How the server begins an answer when it writes members in this order; others are searched for.
const USUAL_START: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

/// Reads a line, or none if it carries no numeric id (a notification, or `id: null` of a parse error).
pub fn answer(line: &[u8]) -> Option<Answer<'_>> {
    let rest = match line.strip_prefix(USUAL_START) {
        Some(rest) => rest,
        None => &line[memmem::find(line, br#""id":"#)? + 5..],
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 9 {
        return None;
    }
    let id = rest[..digits].iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    let ok = rest[digits..].starts_with(br#","result":"#) || memmem::find(line, br#""error":{"#).is_none();
    Some(Answer { id, ok, line })
}

/// The text of `result.address`.
pub fn address(line: &[u8]) -> Option<&[u8]> {
    let start = memmem::find(line, br#""address":""#)? + br#""address":""#.len();
    let end = start + memchr::memchr(b'"', &line[start..])?;
    Some(&line[start..end])
}

/// Did the grant make something new?
pub fn created(line: &[u8]) -> bool {
    memmem::find(line, br#""created":true"#).is_some()
}

/// The only address of `released`, or none if the list is empty.
pub fn released(line: &[u8]) -> Option<&[u8]> {
    let start = memmem::find(line, br#""released":[""#)? + br#""released":[""#.len();
    let end = start + memchr::memchr(b'"', &line[start..])?;
    Some(&line[start..end])
}

/// The generation of a grant.
pub fn generation(line: &[u8]) -> Option<u64> {
    let start = memmem::find(line, br#""generation":"#)? + br#""generation":"#.len();
    let digits = line[start..].iter().take_while(|byte| byte.is_ascii_digit()).take(19);
    Some(digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// An IPv4 address in canonical text as its number.
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
        assert_eq!((read.id, read.ok, address(GRANT)), (17, true, Some(&b"10.0.0.5"[..])));
        assert!(created(GRANT));
        assert_eq!(
            generation(br#"{"id":1,"result":{"generation":1882548449837057,"created":true}}"#),
            Some(1882548449837057)
        );
        assert_eq!(generation(GRANT), None);
        let turned = br#"{"result":{"address":"10.0.0.5"},"id":3,"jsonrpc":"2.0"}"#;
        assert_eq!(answer(turned).unwrap().id, 3);
        assert!(answer(turned).unwrap().ok);
    }

    #[test]
    fn an_error_is_no_grant_and_a_text_that_speaks_of_errors_is_no_error() {
        let refused = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"full"}}"#;
        assert!(!answer(refused).unwrap().ok);
        let note = br#"{"id":1,"jsonrpc":"2.0","result":{"note":"\"error\":{"}}"#;
        assert!(answer(note).unwrap().ok);
        assert_eq!(answer(br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#), None);
    }

    #[test]
    fn a_release_names_what_it_let_go_or_nothing() {
        assert_eq!(released(br#"{"id":1,"result":{"released":["10.0.0.5"]}}"#), Some(&b"10.0.0.5"[..]));
        assert_eq!(released(br#"{"id":1,"result":{"released":[]}}"#), None);
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
