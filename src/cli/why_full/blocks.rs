//! The largest block that still fits into a pool: although addresses are free, there may be no aligned block of the
//! requested length. Pure.

use serde_json::Value;

use crate::cli::output::{list, short_range, text_of};
use crate::core::address::{Address, Cidr, Range};

/// Why a block may not fit although addresses are free.
pub const NEVER: &str = "a block is aligned and free as a whole: one that contains the network or broadcast address of its \
                         subnet, or the gateway, never fits";

/// A line for each pool in an answer to `network.map` in the format `runs` that has a free block of more than one address.
pub fn lines(map: &Value) -> Vec<String> {
    let line = |pool: &Value| {
        let range = pool.get("range").map(text_of)?;
        let block = largest(pool).filter(|block| block.range().size() > 1)?;
        Some(format!("- the largest free block of pool {} is {block}", short_range(&range)))
    };
    list(map, "pools").filter_map(line).collect()
}

/// The largest aligned block whose addresses are all free; of equal ones the first.
fn largest(pool: &Value) -> Option<Cidr> {
    let free = |run: &Value| {
        let [first, last] = [0, 1].map(|at| run.get(at).and_then(Value::as_str)?.parse::<Address>().ok());
        (run.get(2).and_then(Value::as_str) == Some(".")).then_some(())?;
        Range::new(first?, last?)
    };
    let blocks = list(pool, "runs").filter_map(free).filter_map(largest_in);
    blocks.reduce(|best, block| if block.range().size() > best.range().size() { block } else { best })
}

/// The same for one run of free addresses.
fn largest_in(run: Range) -> Option<Cidr> {
    let (family, first, last) = (run.family(), run.first().bits(), run.last().bits());
    let width = u32::from(family.width());
    // From the largest size down: the first block inside the run is the largest.
    (0..=width.min(127)).rev().find_map(|host_bits| {
        let size = 1u128 << host_bits;
        let base = first.checked_next_multiple_of(size)?;
        let ends = base.checked_add(size - 1)? <= last;
        let length = u8::try_from(width - host_bits).ok()?;
        ends.then(|| Cidr::new(Address::new(family, base), length)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_largest_free_block_is_aligned_and_lies_in_one_run() {
        let of = |first: &str, last: &str| {
            let range = Range::new(first.parse().unwrap(), last.parse().unwrap()).unwrap();
            largest_in(range).unwrap().to_string()
        };
        assert_eq!(of("10.0.0.1", "10.0.3.254"), "10.0.1.0/24");
        assert_eq!(of("10.0.0.0", "10.0.3.255"), "10.0.0.0/22");
        assert_eq!(of("10.0.0.1", "10.0.0.2"), "10.0.0.1/32");
        assert_eq!(of("255.255.255.254", "255.255.255.255"), "255.255.255.254/31");
        assert_eq!(of("2001:db8::1", "2001:db8::ffff"), "2001:db8::8000/113");
        assert_eq!(of("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "8000::/1");
    }

    #[test]
    fn taken_runs_count_for_nothing_and_single_addresses_are_no_blocks() {
        let runs = json!([
            ["10.0.0.0", "10.0.0.0", "X"],
            ["10.0.0.1", "10.0.0.7", "."],
            ["10.0.0.8", "10.0.0.9", "X"],
            ["10.0.0.10", "10.0.0.15", "."]
        ]);
        let map = json!({"pools": [{"range": "10.0.0.0-10.0.0.15", "runs": runs},
            {"range": "10.0.1.0-10.0.1.1", "runs": [["10.0.1.1", "10.0.1.1", "."]]}]});
        assert_eq!(lines(&map), ["- the largest free block of pool 10.0.0.0-10.0.0.15 is 10.0.0.4/30"]);
    }
}
