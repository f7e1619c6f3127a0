//! Cursors as text: opaque to clients, and checked when they come back.
//!
//! ```text
//! version (1)  whole (0 or 1)  count  place…
//! place = shard  epoch  seq  steps (0: all, else one more)  digest (16)
//! ```
//!
//! Numbers are written as in the records of the store: seven bits a byte, the lowest first. The whole is URL-safe base64.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::actors::events::Cursor;
use crate::core::types::Place;

const VERSION: u8 = 1;

/// Writes a cursor as text.
pub fn write(cursor: &Cursor) -> String {
    let places = cursor.places();
    let mut bytes = Vec::with_capacity(4 + places.len() * 28);
    bytes.extend_from_slice(&[VERSION, u8::from(cursor.whole)]);
    number(&mut bytes, places.len() as u64);
    for place in places {
        number(&mut bytes, place.shard.into());
        number(&mut bytes, place.epoch);
        number(&mut bytes, place.seq);
        number(&mut bytes, place.steps.map_or(0, |steps| u64::from(steps) + 1));
        bytes.extend_from_slice(&place.digest.to_be_bytes());
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a cursor from text; none if the text is not a cursor.
pub fn parse(text: &str) -> Option<Cursor> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (&[version, whole], mut rest) = bytes.split_first_chunk()?;
    if version != VERSION || whole > 1 {
        return None;
    }
    let count = read(&mut rest)?;
    let mut places = Vec::new();
    for _ in 0..count {
        let shard = u16::try_from(read(&mut rest)?).ok()?;
        let (epoch, seq) = (read(&mut rest)?, read(&mut rest)?);
        let steps = match read(&mut rest)? {
            0 => None,
            more => Some(u32::try_from(more - 1).ok()?),
        };
        let (digest, behind) = rest.split_first_chunk::<16>()?;
        rest = behind;
        places.push(Place { shard, epoch, seq, steps, digest: u128::from_be_bytes(*digest) });
    }
    let ascending = places.windows(2).all(|pair| pair[0].shard < pair[1].shard);
    // A text that is written back the same is one that we wrote.
    let cursor = Cursor::new(whole == 1, places);
    (rest.is_empty() && ascending && write(&cursor) == text).then_some(cursor)
}

fn number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift).filter(|part| part >> shift == u64::from(byte & 0x7f))?;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CURSOR_BYTES_MAX;

    fn cursor(whole: bool, shards: u16) -> Cursor {
        let place = |shard: u16| Place {
            shard,
            epoch: u64::MAX >> shard.min(60),
            seq: u64::from(shard) * 1_000 + 1,
            steps: (shard % 2 == 1).then_some(u32::from(shard)),
            digest: u128::MAX / (u128::from(shard) + 1),
        };
        Cursor::new(whole, (0..shards).map(place))
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for cursor in [cursor(true, 0), cursor(true, 16), cursor(false, 1), cursor(true, 1_024)] {
            assert_eq!(parse(&write(&cursor)), Some(cursor));
        }
    }

    #[test]
    fn a_cursor_over_as_many_shards_as_there_may_be_fits_into_its_bound() {
        let longest = Place { shard: 0, epoch: u64::MAX, seq: u64::MAX, steps: Some(u32::MAX), digest: u128::MAX };
        let text = write(&Cursor::new(true, (0..1_024).map(|shard| Place { shard, ..longest })));
        assert!(text.len() <= CURSOR_BYTES_MAX, "{} bytes", text.len());
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        let good = write(&cursor(true, 3));
        for end in 0..good.len() {
            assert_eq!(parse(&good[..end]), None, "{end}");
        }
        for text in ["", "x", "AQI", "AgEA", "AQEAAA", "lan 1", &format!("{good}A"), &good.to_uppercase()] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
