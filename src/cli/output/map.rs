//! `network.map` drawn for people: 64 addresses per row, with labels and a legend; large pools as cells.
//!
//! ```text
//! pool `web` 10.0.0.2-10.0.0.99: 98 addresses, 3 taken
//!        10.0.0.0   XXX.............................................................
//!       10.0.0.64 ....................................
//! ```
//!
//! Rows begin at multiples of 64, so that the same address is in the same column for every network. 15 columns of label, one
//! blank and 64 addresses make 80.

use serde_json::Value;

use super::number_of;
use crate::core::address::{Address, Range};
use crate::core::plural::plural;

/// Addresses, or cells, per row.
const ROW: usize = 64;
/// The width of a label: that of the longest IPv4 address.
const LABEL: usize = 15;
/// The most rows of a pool in cells; if there are more cells, several are combined.
const CELL_ROWS_MAX: usize = 16;
/// A larger pool is drawn in cells.
pub const TEXT_ADDRESSES_MAX: u128 = 4_096;

/// The legend of a map.
pub const LEGEND: &str = "X taken (held, reserved, cooling or declined)   . free";
/// The legend of cells.
pub const CELL_LEGEND: &str = "1 up to 10 % taken … 9 up to 90 %   X more   . all free";

/// Draws one pool of an answer to `network.map`. None if the answer has another form.
pub fn pool(pool: &Value) -> Option<String> {
    let range: Range = pool.get("range")?.as_str()?.parse().ok()?;
    let name = pool.get("name").and_then(Value::as_str).map_or_else(String::new, |name| format!(" `{name}`"));
    let shown = super::short_range(&range.to_string());
    let (rows, taken) = if let Some(map) = pool.get("map").and_then(Value::as_str) {
        (text_rows(range, map), map.bytes().filter(|&c| c == b'X').count().to_string())
    } else if let Some(cells) = pool.get("cells").and_then(Value::as_array) {
        let length = u8::try_from(pool.get("cell_prefix_length")?.as_u64()?).ok()?;
        cell_rows(range, length, cells)?
    } else {
        return None;
    };
    let size = grouped(&range.size().to_string());
    let addresses = plural(u64::try_from(range.size()).unwrap_or(u64::MAX), "address");
    Some(format!("pool{name} {shown}: {size} {addresses}, {} taken\n{rows}", grouped(&taken)))
}

fn label(address: Address) -> String {
    let text = address.to_string();
    let length = text.chars().count();
    // The end of an IPv6 address distinguishes the rows.
    let text = if length > LABEL { text.chars().skip(length - LABEL + 1).collect() } else { text };
    if length > LABEL { format!("…{text}") } else { format!("{text:>LABEL$}") }
}

fn text_rows(range: Range, map: &str) -> String {
    let (family, first) = (range.family(), range.first().bits());
    let mut rows = String::new();
    let mut base = first - first % ROW as u128;
    let mut rest = map;
    let mut blank = (first - base) as usize;
    while !rest.is_empty() {
        let (row, later) = rest.split_at(rest.len().min(ROW - blank));
        rows.push_str(&format!("{} {}{row}\n", label(Address::new(family, base)), " ".repeat(blank)));
        (rest, blank) = (later, 0);
        base = base.saturating_add(ROW as u128);
    }
    rows
}

/// The prefix length of the smallest cells for which the drawing has room.
pub fn cell_prefix_length(range: Range) -> u8 {
    range.family().width() - u8::try_from(host_bits(range)).unwrap_or(0)
}

/// The host bits of these cells.
fn host_bits(range: Range) -> u32 {
    let (first, last) = (range.first().bits(), range.last().bits());
    let cells = |bits: u32| last.checked_shr(bits).unwrap_or(0) - first.checked_shr(bits).unwrap_or(0);
    (0..u32::from(range.family().width())).find(|&bits| cells(bits) < (ROW * CELL_ROWS_MAX) as u128).unwrap_or(0)
}

/// The cells of the answer, combined until they fit, and the total number of addresses taken.
fn cell_rows(range: Range, length: u8, cells: &[Value]) -> Option<(String, String)> {
    let width = range.family().width();
    let host_bits = host_bits(range).max(u32::from(width.checked_sub(length)?));
    let (first, last) = (range.first().bits(), range.last().bits());
    let cell_count = last.checked_shr(host_bits).unwrap_or(0) - first.checked_shr(host_bits).unwrap_or(0);
    let origin = first.checked_shr(host_bits).unwrap_or(0);
    let mut taken = vec![0u128; usize::try_from(cell_count).ok()? + 1];
    let mut total = 0u128;
    for cell in cells {
        let at: Address = cell.get(0)?.as_str()?.parse().ok()?;
        let sum = number_of(cell.get(1)?)?.saturating_add(number_of(cell.get(2)?)?);
        let place = at.bits().checked_shr(host_bits).unwrap_or(0).saturating_sub(origin);
        *taken.get_mut(usize::try_from(place).ok()?)? += sum;
        total = total.saturating_add(sum);
    }
    let mut rows =
        format!("one character is a /{} of {} addresses\n", u32::from(width) - host_bits, size_of(host_bits));
    for (row, cells) in taken.chunks(ROW).enumerate() {
        let base = (origin + (row * ROW) as u128).checked_shl(host_bits).unwrap_or(0).max(first);
        let at = |column: usize| origin + (row * ROW + column) as u128;
        let drawn: String = cells
            .iter()
            .enumerate()
            .map(|(column, &taken)| fill(taken, within(at(column), host_bits, range)))
            .collect();
        rows.push_str(&format!("{} {drawn}\n", label(Address::new(range.family(), base))));
    }
    Some((rows, total.to_string()))
}

fn size_of(host_bits: u32) -> String {
    1u128.checked_shl(host_bits).map_or_else(|| "2^128".to_owned(), |size| grouped(&size.to_string()))
}

/// How many addresses of the range lie in a cell: the first and the last cell may be only partly in it.
fn within(cell: u128, host_bits: u32, range: Range) -> u128 {
    let first = cell.checked_shl(host_bits).unwrap_or(0);
    let last = first.saturating_add(1u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1));
    let (from, to) = (first.max(range.first().bits()), last.min(range.last().bits()));
    to.saturating_sub(from).saturating_add(1)
}

/// How full a cell of `size` addresses is, in tenths.
fn fill(taken: u128, size: u128) -> char {
    if taken == 0 {
        return '.';
    }
    // Ten times an IPv6 count may overflow; then the size is large enough to be divided first.
    let tenths =
        taken.checked_mul(10).map_or_else(|| taken.div_ceil((size / 10).max(1)), |ten| ten.div_ceil(size.max(1)));
    match tenths {
        tenths @ 1..=9 if taken < size => char::from(b'0' + tenths as u8),
        _ => 'X',
    }
}

/// A count with blanks between groups of three digits; long counts are rounded: `1.8e19`.
pub fn grouped(count: &str) -> String {
    if count.len() > 15 && count.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("{}.{}e{}", &count[..1], &count[1..2], count.len() - 1);
    }
    let mut text = String::new();
    for (at, c) in count.chars().enumerate() {
        if at > 0 && (count.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_begin_at_multiples_of_64_and_fit_80_columns() {
        let map = "X".repeat(3) + &".".repeat(95);
        let text = pool(&json!({"range": "10.0.0.2-10.0.0.99", "name": "web", "map": map})).unwrap();
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "pool `web` 10.0.0.2-10.0.0.99: 98 addresses, 3 taken");
        assert!(rows[1].starts_with("       10.0.0.0   XXX..."), "{text}");
        assert!(rows[2].starts_with("      10.0.0.64 ....") && rows[2].len() == 16 + 36, "{text}");
        let wide = pool(&json!({"range": "255.255.255.0-255.255.255.127", "map": ".".repeat(128)})).unwrap();
        assert!(wide.lines().all(|line| line.chars().count() <= 80), "{wide}");
    }

    #[test]
    fn a_large_pool_is_gathered_into_cells() {
        let cells =
            json!([["2001:db8::", "1", "1", "65534"], ["2001:db8:0:0:8000::", "9223372036854775808", "0", "0"]]);
        let text = pool(&json!({"range": "2001:db8::-2001:db8::ffff:ffff:ffff:ffff", "cell_prefix_length": 80,
            "cells": cells}))
        .unwrap();
        assert!(text.starts_with("pool 2001:db8::/64: 1.8e19 addresses, 9.2e18 taken\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.lines().count(), 2 + 16, "{text}");
    }

    #[test]
    fn a_cell_that_is_a_part_is_full_when_that_part_is() {
        // A cell has 16 addresses, and the last one 4.
        let range: Range = "10.0.0.0-10.0.39.3".parse().unwrap();
        assert_eq!(cell_prefix_length(range), 28);
        let cells = json!([["10.0.0.0", "16", "0", "0"], ["10.0.0.16", "8", "0", "8"], ["10.0.39.0", "4", "0", "0"]]);
        let text = pool(&json!({"range": range.to_string(), "cell_prefix_length": 28, "cells": cells})).unwrap();
        let rows: Vec<&str> = text.lines().collect();
        assert!(rows[2].ends_with(&format!("X5{}", ".".repeat(62))), "{text}");
        assert!(rows.last().unwrap().ends_with(".X"), "{text}");
    }
}
