//! Writes JSON straight into the output buffer: only what the hot path needs.
//!
//! The core's texts are printable, so only quotes and backslashes need an escape; control characters are escaped all the
//! same.

use std::net::Ipv4Addr;

use crate::core::address::Address;
use crate::core::types::WallTime;

/// Appends a JSON string.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    // Without an early exit, so that the compiler can test many bytes at once.
    if bytes.iter().fold(true, |plain, &byte| plain & (byte != b'"') & (byte != b'\\') & (byte >= 0x20)) {
        out.extend_from_slice(bytes);
    } else {
        for &byte in bytes {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                0..0x20 => {
                    const HEX: &[u8; 16] = b"0123456789abcdef";
                    let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                    out.extend_from_slice(b"\\u00");
                    out.extend_from_slice(&digits);
                }
                _ => out.push(byte),
            }
        }
    }
    out.push(b'"');
}

/// Appends `true` or `false`.
pub fn boolean(out: &mut Vec<u8>, flag: bool) {
    out.extend_from_slice(if flag { b"true" } else { b"false" });
}

/// Appends a number.
pub fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Every octet as text with a dot after it.
const OCTETS: [[u8; 4]; 256] = {
    let mut octets = [[b'.'; 4]; 256];
    let mut octet = 0;
    while octet < 256 {
        let digits = [b'0' + (octet / 100) as u8, b'0' + (octet / 10 % 10) as u8, b'0' + (octet % 10) as u8];
        let (mut at, mut from) = (0, 3 - octet_digits(octet as u8));
        while from < 3 {
            octets[octet][at] = digits[from];
            (at, from) = (at + 1, from + 1);
        }
        octet += 1;
    }
    octets
};

const fn octet_digits(octet: u8) -> usize {
    1 + (octet >= 10) as usize + (octet >= 100) as usize
}

/// An IPv4 address as text, and the length of the text.
fn dotted(bits: u32) -> ([u8; 16], usize) {
    let (mut text, mut length) = (*b"255.255.255.255.", 0);
    for octet in Ipv4Addr::from_bits(bits).octets() {
        text[length..length + 4].copy_from_slice(&OCTETS[usize::from(octet)]);
        length += octet_digits(octet) + 1;
    }
    (text, length - 1)
}

/// Appends an address without quotes.
pub fn bare_address(out: &mut Vec<u8>, address: Address) {
    match address {
        Address::V4(bits) => {
            // Built up separately and appended at once: appending it byte by byte takes several times as long.
            let (text, length) = dotted(bits);
            out.extend_from_slice(&text[..length]);
        }
        Address::V6(_) => display(out, address),
    }
}

/// A text of bounded length that is built up piece by piece, and appended at once.
pub struct ShortText {
    bytes: [u8; Self::MAX],
    length: usize,
}

impl Default for ShortText {
    fn default() -> Self {
        Self { bytes: [0; Self::MAX], length: 0 }
    }
}

impl ShortText {
    /// The most bytes it can hold.
    pub const MAX: usize = 160;

    /// Appends a piece.
    ///
    /// # Panics
    /// If it becomes longer than [`Self::MAX`].
    pub fn put(&mut self, piece: &[u8]) {
        self.bytes[self.length..self.length + piece.len()].copy_from_slice(piece);
        self.length += piece.len();
    }

    /// Appends a number.
    pub fn put_number(&mut self, number: u64) {
        self.put(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Appends an address.
    pub fn put_address(&mut self, address: Address) {
        match address {
            Address::V4(bits) => {
                let (text, length) = dotted(bits);
                self.put(&text);
                self.length -= text.len() - length;
            }
            Address::V6(_) => {
                use std::io::Write as _;
                // An address has at most 45 characters, for which there is room.
                let mut rest = &mut self.bytes[self.length..];
                let room = rest.len();
                let _ = write!(rest, "{address}");
                self.length += room - rest.len();
            }
        }
    }

    /// The text so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Appends an address as a JSON string.
pub fn address(out: &mut Vec<u8>, address: Address) {
    out.push(b'"');
    bare_address(out, address);
    out.push(b'"');
}

/// Appends a value by its `Display`; nothing in it needs an escape.
pub fn display(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    use std::io::Write as _;
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{value}");
}

/// Appends a value by its `Display` as a JSON string; nothing in it needs an escape.
pub fn quoted(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    out.push(b'"');
    display(out, value);
    out.push(b'"');
}

/// Appends a member's name, with the comma before it.
pub fn member(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Appends a member's constant name, with the comma before it, in one piece.
macro_rules! key {
    ($out:expr, $name:literal) => {{
        let out: &mut Vec<u8> = $out;
        out.extend_from_slice(concat!(",\"", $name, "\":").as_bytes());
    }};
}
pub(crate) use key;

/// Appends a time as `"2026-03-01T09:12:44.031Z"`.
pub fn time(out: &mut Vec<u8>, time: WallTime) {
    // Converts days to a civil date by Hinnant's algorithm: formatting by jiff takes as long as the rest of an answer.
    const MAX_MS: u64 = 253_402_207_199_999;
    let ms = time.0.min(MAX_MS);
    let (days, of_day) = ((ms / 86_400_000) as i64, ms % 86_400_000);
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z - era * 146_097;
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (seconds, millis) = (of_day / 1_000, of_day % 1_000);
    let mut text = *b"\"0000-00-00T00:00:00.000Z\"";
    let mut put = |at: usize, digits: usize, mut value: u64| {
        for place in (at..at + digits).rev() {
            text[place] = b'0' + (value % 10) as u8;
            value /= 10;
        }
    };
    put(1, 4, year as u64);
    put(6, 2, month as u64);
    put(9, 2, day as u64);
    put(12, 2, seconds / 3_600);
    put(15, 2, seconds / 60 % 60);
    put(18, 2, seconds % 60);
    put(21, 3, millis);
    out.extend_from_slice(&text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::values::text::time_text;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn times_are_written_as_the_protocol_writes_them() {
        for ms in [
            0,
            1,
            951_782_399_999,
            951_782_400_000,
            1_772_356_364_031,
            4_107_542_400_000,
            253_402_207_199_999,
            u64::MAX,
        ] {
            assert_eq!(written(|out| time(out, WallTime(ms))), format!("\"{}\"", time_text(WallTime(ms))), "{ms}");
        }
        for day in (0..60_000).step_by(13) {
            let at = WallTime(day * 86_400_000 + 12_345);
            assert_eq!(written(|out| time(out, at)), format!("\"{}\"", time_text(at)));
        }
    }

    #[test]
    fn strings_read_back_as_they_were() {
        for text in ["", "web/0", "a\"b\\c", "Jörg", "\u{1}\n"] {
            let json = written(|out| string(out, text));
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }

    #[test]
    fn numbers_and_addresses() {
        for value in [0, 7, 10, 4_294_967_296, u64::MAX] {
            assert_eq!(written(|out| number(out, value)), value.to_string());
        }
        for value in ["0.0.0.0", "10.0.0.5", "9.99.100.199", "255.255.255.255", "2001:db8::5"] {
            assert_eq!(written(|out| bare_address(out, value.parse().unwrap())), value);
        }
        for octet in 0..=255 {
            let value = Ipv4Addr::new(octet, 1, 255 - octet, octet);
            assert_eq!(written(|out| bare_address(out, Address::V4(value.to_bits()))), value.to_string());
        }
    }
}
