//! The primitives that every record is made of, and the errors of decoding.
//!
//! Numbers are LEB128 varints in their shortest form, ids and digests are fixed-size big-endian, texts are a length and
//! UTF-8. There is one way to write a value, so equal values have equal bytes. The digest chain needs this.
//!
//! Neighbours: `entry`, `config` and `batch` are written with these primitives. No decoder allocates more than its input
//! justifies.

use compact_str::CompactString;

use crate::core::types::InvalidText;

/// Why bytes are not a valid record. `Display` is a sentence without its subject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes end too early.
    #[error("ends in the middle of {0}")]
    Short(&'static str),
    /// The record is complete, but more bytes follow.
    #[error("goes on for {0} bytes after its end")]
    Trailing(usize),
    /// The record was written by a newer program.
    #[error("has format version {0}, which this version of allod does not know")]
    Version(u8),
    /// A tag that stands for nothing.
    #[error("has the unknown tag {tag} as {what}")]
    Tag {
        /// What the tag chooses.
        what: &'static str,
        /// The tag.
        tag: u8,
    },
    /// An impossible value.
    #[error("has a value out of range as {0}")]
    Range(&'static str),
    /// A text that is not UTF-8.
    #[error("has bytes that are not UTF-8 as {0}")]
    Utf8(&'static str),
    /// A text that its type refuses.
    #[error("has an unusable text as {what}")]
    Text {
        /// Which text.
        what: &'static str,
        /// Why.
        #[source]
        source: InvalidText,
    },
}

/// A result of decoding.
pub type Result<T> = std::result::Result<T, CodecError>;

/// The highest mark, generation or version: every JSON reader can represent it exactly.
pub(super) const MARK_MAX: u64 = (1 << 53) - 1;

const VARINT_BYTES_MAX: usize = 10;

/// How many elements a `Vec` may have room for before any of them is read.
pub(super) fn capacity(count: usize) -> usize {
    count.min(1_024)
}

/// Takes a record apart from the front.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Checks that everything was read.
    pub(crate) fn finish(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(CodecError::Trailing(self.rest.len())) }
    }

    #[inline]
    pub(crate) fn bytes(&mut self, count: usize, what: &'static str) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(CodecError::Short(what))?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8> {
        let (&first, rest) = self.rest.split_first().ok_or(CodecError::Short(what))?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn u128(&mut self, what: &'static str) -> Result<u128> {
        let mut array = [0; 16];
        array.copy_from_slice(self.bytes(16, what)?);
        Ok(u128::from_be_bytes(array))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32> {
        let mut array = [0; 4];
        array.copy_from_slice(self.bytes(4, what)?);
        Ok(u32::from_be_bytes(array))
    }

    /// A varint in its shortest form.
    #[inline]
    pub(crate) fn varint(&mut self, what: &'static str) -> Result<u64> {
        match self.rest.split_first() {
            // Nearly all varints are lengths, counts and differences of one byte.
            Some((&byte, rest)) if byte < 0x80 => {
                self.rest = rest;
                Ok(byte.into())
            }
            _ => self.long_varint(what),
        }
    }

    fn long_varint(&mut self, what: &'static str) -> Result<u64> {
        let mut value = 0u64;
        for (at, &byte) in self.rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit; a zero byte at the end would be a second spelling of the same number.
            if (at + 1 == VARINT_BYTES_MAX && bits > 1) || (byte == 0 && at > 0) {
                return Err(CodecError::Range(what));
            }
            value |= bits << (7 * at);
            if byte < 0x80 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < VARINT_BYTES_MAX { CodecError::Short(what) } else { CodecError::Range(what) })
    }

    #[inline]
    pub(crate) fn varint_to(&mut self, max: u64, what: &'static str) -> Result<u64> {
        let value = self.varint(what)?;
        if value <= max { Ok(value) } else { Err(CodecError::Range(what)) }
    }

    /// How many elements follow. Each takes at least one byte, so a count above the number of bytes left is false.
    #[inline]
    pub(crate) fn count(&mut self, what: &'static str) -> Result<usize> {
        let count = self.varint(what)?;
        match usize::try_from(count) {
            Ok(count) if count <= self.rest.len() => Ok(count),
            _ => Err(CodecError::Short(what)),
        }
    }

    /// Bytes with their length before them.
    #[inline]
    pub(crate) fn sized(&mut self, what: &'static str) -> Result<&'a [u8]> {
        let length = self.count(what)?;
        self.bytes(length, what)
    }

    pub(crate) fn text(&mut self, what: &'static str) -> Result<CompactString> {
        let bytes = self.sized(what)?;
        std::str::from_utf8(bytes).map(CompactString::from).map_err(|_| CodecError::Utf8(what))
    }

    /// A text that the constructor of its type accepts.
    pub(crate) fn checked<T>(
        &mut self,
        what: &'static str,
        make: impl FnOnce(CompactString) -> std::result::Result<T, InvalidText>,
    ) -> Result<T> {
        make(self.text(what)?).map_err(|source| CodecError::Text { what, source })
    }

    /// A byte of flags. Only those in `known` may be set.
    pub(crate) fn flags(&mut self, known: u8, what: &'static str) -> Result<u8> {
        let flags = self.u8(what)?;
        if flags & !known == 0 { Ok(flags) } else { Err(CodecError::Tag { what, tag: flags }) }
    }
}

pub(crate) trait Write {
    fn put_u8(&mut self, value: u8);
    fn put_bytes(&mut self, bytes: &[u8]);

    fn put_u128(&mut self, value: u128) {
        self.put_bytes(&value.to_be_bytes());
    }

    #[inline]
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }

    fn put_sized(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put_bytes(bytes);
    }

    fn put_text(&mut self, text: &str) {
        self.put_sized(text.as_bytes());
    }
}

impl Write for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Appends what `fill` writes, with its length before it.
pub(crate) fn put_nested(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    // Nearly every record is shorter than 128 bytes, so its length fits into the one byte that is reserved here.
    let at = out.len();
    out.push(0);
    fill(out)?;
    let length = out.len() - at - 1;
    if length < 0x80 {
        out[at] = length as u8;
    } else {
        let mut prefix = Vec::with_capacity(4);
        prefix.put_varint(length as u64);
        out.splice(at..=at, prefix);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_spelling() {
        for value in [0, 1, 127, 128, 16_383, 16_384, MARK_MAX, u64::MAX] {
            let mut bytes = Vec::new();
            bytes.put_varint(value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint("value"), Ok(value));
            assert!(reader.is_empty());
        }
        for wrong in [
            &[0x80u8, 0][..],
            &[0xff, 0x80, 0],
            &[0xff; 10],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0],
        ] {
            assert_eq!(Reader::new(wrong).varint("value"), Err(CodecError::Range("value")), "{wrong:x?}");
        }
        for short in [&[][..], &[0x80], &[0xff; 9]] {
            assert_eq!(Reader::new(short).varint("value"), Err(CodecError::Short("value")), "{short:x?}");
        }
    }

    #[test]
    fn a_nested_record_of_any_length_is_read_back() {
        for length in [0, 1, 127, 128, 129, 20_000] {
            let mut bytes = vec![7];
            put_nested(&mut bytes, |out| {
                out.extend(std::iter::repeat_n(9u8, length));
                Ok(())
            })
            .unwrap();
            let mut reader = Reader::new(&bytes[1..]);
            assert_eq!(reader.sized("nested").unwrap().len(), length);
            assert!(reader.is_empty());
        }
    }
}
