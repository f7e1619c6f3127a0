//! Reads requests as nearly every client writes them, in one pass: texts without escapes, whole numbers, and `method` before
//! `params`. Everything else is [`NotPlain`] and is read by serde_json, which also says what is wrong with it.
//!
//! Life of an `ip.allocate`, step 2 of 8, the common case; the other path is `envelope::parse`, then `methods::parse`.
//! Reading was a fifth of what an allocation costs the server. This reader leaves out what makes a JSON reader slow: errors
//! that know their place, numbers of every kind, and texts that may have to be copied.
//!
//! It is a serde deserializer, so the checks of the values are those of the other path: only a part of the grammar is here.
//! Plain requests are read exactly as serde_json reads them; the fuzzing tests of `wire` compare the two. Params have many
//! members, of which few are given: each is read directly into its place ([`ReadPlain`], made by `object!`).
//!
//! Review notes: does it accept anything that serde_json refuses, or read anything differently?

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::envelope::Id;
use super::methods::{self, Request};

/// The request is not plain; it may be valid nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotPlain;

impl fmt::Display for NotPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not plain")
    }
}

impl std::error::Error for NotPlain {}

impl Error for NotPlain {
    // The other path finds the words for it.
    fn custom<T: fmt::Display>(_: T) -> Self {
        NotPlain
    }
}

/// No params are nested as deeply as this.
const DEPTH_MAX: u8 = 16;
/// The lowest bit of each of eight bytes, and the highest bit of each.
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Params that can be read if they are plain.
pub(super) trait ReadPlain: Sized {
    /// Reads the params. They are large, so the box is made here, where they are put together.
    fn read_plain(plain: &mut Plain<'_>) -> Result<Box<Self>, NotPlain>;
}

/// A text, and how far it has been read.
pub(super) struct Plain<'de> {
    text: &'de str,
    at: usize,
    depth: u8,
}

/// Reads one request, including its params.
pub(super) fn request(text: &str) -> Result<(Option<Id>, Request), NotPlain> {
    let mut plain = Plain { text, at: 0, depth: 0 };
    let (mut version, mut id, mut method, mut request) = (false, None, None, None);
    plain.expect(b'{')?;
    loop {
        // Nearly every client writes no blanks: then the member and its name are compared as a whole.
        if !version && plain.skip(r#""jsonrpc":"2.0""#) {
            version = true;
        } else if id.is_none() && plain.skip(r#""id":"#) {
            id = Some(plain.id()?);
        } else if method.is_none() && plain.skip(r#""method":"#) {
            method = Some(plain.string()?);
        } else {
            let member = plain.string()?;
            plain.expect(b':')?;
            match member {
                "jsonrpc" if !version && plain.string()? == "2.0" => version = true,
                "id" if id.is_none() => id = Some(plain.id()?),
                "method" if method.is_none() => method = Some(plain.string()?),
                "params" if request.is_none() => request = Some(methods::read(method.ok_or(NotPlain)?, &mut plain)?),
                _ => return Err(NotPlain),
            }
        }
        match plain.next()? {
            b',' => {}
            b'}' => break,
            _ => return Err(NotPlain),
        }
    }
    match (plain.peek(), request) {
        (None, Some(request)) if version => Ok((id, request)),
        _ => Err(NotPlain),
    }
}

impl<'de> Plain<'de> {
    /// The next byte that is not a blank, without taking it.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        if let Some(byte @ b'!'..) = bytes.get(self.at) {
            return Some(*byte);
        }
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, NotPlain> {
        let next = self.peek().ok_or(NotPlain)?;
        self.at += 1;
        Ok(next)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), NotPlain> {
        if self.next()? == wanted { Ok(()) } else { Err(NotPlain) }
    }

    /// Reads the members of an object: calls `read` with the name of each.
    pub(super) fn members(
        &mut self,
        mut read: impl FnMut(&mut Self, &str) -> Result<(), NotPlain>,
    ) -> Result<(), NotPlain> {
        self.inside(b'{', b'}', |members| {
            while members.another()? {
                let member = members.plain.string()?;
                members.plain.expect(b':')?;
                read(members.plain, member)?;
            }
            Ok(())
        })
    }

    /// Reads the value of a member; a member given twice is not plain.
    pub(super) fn once<T: Deserialize<'de>>(&mut self, member: &mut Option<T>) -> Result<(), NotPlain> {
        if member.is_some() {
            return Err(NotPlain);
        }
        *member = Some(T::deserialize(self)?);
        Ok(())
    }

    /// A text without escapes.
    fn string(&mut self) -> Result<&'de str, NotPlain> {
        self.expect(b'"')?;
        let (bytes, first) = (self.text.as_bytes(), self.at);
        let end = end_of_plain(bytes, first);
        if bytes.get(end) != Some(&b'"') {
            return Err(NotPlain);
        }
        self.at = end + 1;
        self.text.get(first..end).ok_or(NotPlain)
    }

    /// The digits of a whole number that is not negative.
    fn digits(&mut self) -> Result<&'de str, NotPlain> {
        self.peek();
        let (bytes, first) = (self.text.as_bytes(), self.at);
        while bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        let digits = self.text.get(first..self.at).ok_or(NotPlain)?;
        // With one of these the number continues.
        let goes_on = matches!(bytes.get(self.at), Some(b'.' | b'e' | b'E'));
        if digits.is_empty() || goes_on || digits.len() > 1 && digits.starts_with('0') {
            return Err(NotPlain);
        }
        Ok(digits)
    }

    fn number(&mut self) -> Result<u64, NotPlain> {
        // A number beyond 64 bits is a float, or valid nowhere in the protocol.
        self.digits()?.parse().map_err(|_| NotPlain)
    }

    /// Skips this text if it comes next, byte for byte.
    fn skip(&mut self, what: &str) -> bool {
        let is_next = self.text.as_bytes()[self.at..].starts_with(what.as_bytes());
        self.at += if is_next { what.len() } else { 0 };
        is_next
    }

    fn word(&mut self, word: &str) -> Result<(), NotPlain> {
        if self.skip(word) { Ok(()) } else { Err(NotPlain) }
    }

    fn id(&mut self) -> Result<Id, NotPlain> {
        let first = match self.peek() {
            Some(b'"') => {
                let first = self.at;
                self.string()?;
                first
            }
            _ => {
                let digits = self.digits()?;
                self.at - digits.len()
            }
        };
        self.text.get(first..self.at).and_then(Id::of).ok_or(NotPlain)
    }

    /// Enters an object or list, and leaves it.
    fn inside<T>(
        &mut self,
        open: u8,
        close: u8,
        read: impl FnOnce(&mut Entries<'_, 'de>) -> Result<T, NotPlain>,
    ) -> Result<T, NotPlain> {
        self.expect(open)?;
        if self.depth == DEPTH_MAX {
            return Err(NotPlain);
        }
        self.depth += 1;
        let mut entries = Entries { plain: self, close, begun: false };
        let value = read(&mut entries)?;
        // A reader may stop before the end of a list.
        let ended = !entries.another()?;
        self.depth -= 1;
        if ended {
            self.expect(close)?;
            Ok(value)
        } else {
            Err(NotPlain)
        }
    }
}

/// The index of the first byte from `at` on that a plain text does not contain: a quote, a backslash or a control character.
/// The length of `bytes` if there is none.
fn end_of_plain(bytes: &[u8], mut at: usize) -> usize {
    // Eight bytes at a time. The lowest byte whose high bit the subtractions set is such a byte: a borrow could set others,
    // but only above it.
    while let Some((eight, _)) = bytes.get(at..).and_then(<[u8]>::split_first_chunk::<8>) {
        let word = u64::from_le_bytes(*eight);
        let quote = (word ^ (LOW_BITS * 0x22)).wrapping_sub(LOW_BITS);
        let backslash = (word ^ (LOW_BITS * 0x5c)).wrapping_sub(LOW_BITS);
        let control = word.wrapping_sub(LOW_BITS * 0x20);
        let found = (quote | backslash | control) & !word & HIGH_BITS;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|&byte| matches!(byte, b'"' | b'\\' | ..0x20)).unwrap_or(rest.len())
}

/// The members of an object, or the entries of a list.
struct Entries<'a, 'de> {
    plain: &'a mut Plain<'de>,
    close: u8,
    begun: bool,
}

impl Entries<'_, '_> {
    /// Is there another entry? Takes the comma before it.
    fn another(&mut self) -> Result<bool, NotPlain> {
        let next = self.plain.peek().ok_or(NotPlain)?;
        if next == self.close {
            return Ok(false);
        }
        if self.begun {
            self.plain.expect(b',')?;
        }
        self.begun = true;
        Ok(true)
    }
}

impl<'de> MapAccess<'de> for &mut Entries<'_, 'de> {
    type Error = NotPlain;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, NotPlain> {
        if self.another()? { seed.deserialize(Key(self.plain)).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, NotPlain> {
        self.plain.expect(b':')?;
        seed.deserialize(&mut *self.plain)
    }
}

impl<'de> SeqAccess<'de> for &mut Entries<'_, 'de> {
    type Error = NotPlain;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, NotPlain> {
        if self.another()? { seed.deserialize(&mut *self.plain).map(Some) } else { Ok(None) }
    }
}

impl<'de> Deserializer<'de> for &mut Plain<'de> {
    type Error = NotPlain;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        match self.peek() {
            Some(b'"') => visitor.visit_borrowed_str(self.string()?),
            Some(b'0'..=b'9') => visitor.visit_u64(self.number()?),
            Some(b'{') => self.deserialize_map(visitor),
            Some(b'[') => self.deserialize_seq(visitor),
            Some(b't' | b'f') => self.deserialize_bool(visitor),
            Some(b'n') => self.deserialize_unit(visitor),
            Some(_) | None => Err(NotPlain),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        visitor.visit_borrowed_str(self.string()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        self.deserialize_str(visitor)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        visitor.visit_u64(self.number()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        match self.peek() {
            Some(b't') => self.word("true").and_then(|()| visitor.visit_bool(true)),
            Some(_) => self.word("false").and_then(|()| visitor.visit_bool(false)),
            None => Err(NotPlain),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        self.peek();
        self.word("null")?;
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        if self.peek() == Some(b'n') {
            self.word("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, NotPlain> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        self.inside(b'{', b'}', |members| visitor.visit_map(members))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NotPlain> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        self.inside(b'[', b']', |entries| visitor.visit_seq(entries))
    }

    // Nothing in the protocol is written as one of these.
    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u16 u32 u128 f32 f64 char bytes byte_buf unit_struct tuple tuple_struct identifier ignored_any
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, NotPlain> {
        Err(NotPlain)
    }
}

/// The name of a member: always a text, whatever type it is read as.
struct Key<'a, 'de>(&'a mut Plain<'de>);

impl<'de> Deserializer<'de> for Key<'_, 'de> {
    type Error = NotPlain;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotPlain> {
        visitor.visit_borrowed_str(self.0.string()?)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_text_ends_at_the_first_byte_that_is_not_plain_wherever_it_stands() {
        for length in 0..40 {
            for odd in [b'"', b'\\', 0, 0x1f, b'\n'] {
                for at in 0..length {
                    for filler in [b'a', b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                        let mut bytes = vec![filler; length];
                        bytes[at] = odd;
                        for from in 0..=at {
                            assert_eq!(end_of_plain(&bytes, from), at, "{bytes:?} from {from}");
                        }
                        assert_eq!(end_of_plain(&bytes, at + 1), length, "{bytes:?} behind {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_other_way() {
        let line = |id: &str, params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ip.allocate","params":{params}}}"#)
        };
        let plain = r#"{"network":"lan","owner":"a","ttl_seconds":60,"brief":true,"labels":{"k":"v"}}"#;
        assert!(request(&line("7", plain)).is_ok());
        for id in ["-1", "1.0", "1e3", "01", "null", "true", r#""a\n""#, "", "{}"] {
            assert_eq!(request(&line(id, plain)), Err(NotPlain), "{id}");
        }
        for params in [
            r#"{"network":"lan","owner":"a\u0062"}"#,
            r#"{"network":"lan","owner":"a","ttl_seconds":060}"#,
            r#"{"network":"lan","owner":"a","ttl_seconds":6e1}"#,
            r#"{"network":"lan","owner":"a","ttl_seconds":18446744073709551616}"#,
            r#"{"network":"lan","owner":"a","brief":truth}"#,
            r#"{"network":"lan","owner":"a","brief":null}"#,
            r#"{"network":"lan","owner":"a",}"#,
            r#"{,"network":"lan","owner":"a"}"#,
            r#"{"network":"lan" "owner":"a"}"#,
            r#"{"network":"lan","owner":"a"}}"#,
            r#"{"network":"lan","owner":"a""#,
            r#"{"network":"lan","owner":"a","labels":{1:"v"}}"#,
        ] {
            assert_eq!(request(&line("7", params)), Err(NotPlain), "{params}");
        }
    }
}
