//! Computes what the pools of a subnet lose when its cidr changes: the server trims them, and the user should see it first.
//! Pure.

use serde_json::Value;

use super::phrase::{range, text};
use crate::core::address::Range;

/// What this change takes away, a line each: pools of the server's subnet of which less is left in `after`. With a file, a
/// pool that spans the subnet follows its cidr, so it is only reported if `spanning` is set.
pub fn lost(there: &Value, after: &[Value], spanning: bool) -> Vec<String> {
    let untold = range(there, "cidr").filter(|_| !spanning);
    let pools = there.get("pools").and_then(Value::as_array).into_iter().flatten();
    let line = |pool: &Value| {
        let before = range(pool, "range").filter(|range| Some(*range) != untold)?;
        let left = after.iter().filter_map(|pool| range(pool, "range")?.intersection(before)).next();
        match left {
            None => Some(format!("- remove pool {}", pool_words(pool))),
            Some(left) if left != before => Some(format!("- cut pool {} to {left}", pool_words(pool))),
            Some(_) => None,
        }
    };
    pools.filter_map(line).collect()
}

/// The pool that the server leaves when the cidr of its subnet changes; none if nothing is left.
pub fn trimmed(pool: Range, from: Range, to: Range) -> Option<Range> {
    if pool == from { Some(to) } else { pool.intersection(to) }
}

/// A pool in words: its range, and members that differ from the defaults.
pub fn pool_words(pool: &Value) -> String {
    let name = text(pool, "name").map_or_else(String::new, |name| format!(" `{name}`"));
    let kind = text(pool, "kind").filter(|&kind| kind != "dynamic");
    let kind = kind.map_or_else(String::new, |kind| format!(" {kind}"));
    let draining = if pool.get("draining") == Some(&Value::Bool(true)) { " draining" } else { "" };
    format!("{}{name}{kind}{draining}", text(pool, "range").unwrap_or_default())
}

/// Does `named` refer to this pool? As on the server, a text that can be a range is one.
pub fn is_pool(pool: &Value, named: &str) -> bool {
    match named.parse::<Range>() {
        Ok(named) => range(pool, "range") == Some(named),
        Err(_) => text(pool, "name") == Some(named),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_that_goes_or_is_cut_is_told_and_one_that_spans_the_subnet_is_not() {
        let there = json!({"cidr": "10.0.0.0/24", "pools": [
            {"range": "10.0.0.10-10.0.0.20"},
            {"range": "10.0.0.100-10.0.0.140", "name": "web"},
            {"range": "10.0.0.200-10.0.0.209", "kind": "static"},
        ]});
        let after = [json!({"range": "10.0.0.10-10.0.0.20"}), json!({"range": "10.0.0.100-10.0.0.127"})];
        assert_eq!(
            lost(&there, &after, false),
            [
                "- cut pool 10.0.0.100-10.0.0.140 `web` to 10.0.0.100-10.0.0.127",
                "- remove pool 10.0.0.200-10.0.0.209 static"
            ]
        );
        let spanned = json!({"cidr": "10.0.0.0/24", "pools": [{"range": "10.0.0.0-10.0.0.255"}]});
        assert_eq!(lost(&spanned, &[json!({"range": "10.0.0.0-10.0.0.127"})], false), Vec::<String>::new());
    }
}
