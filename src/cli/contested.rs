//! What stands in the way of a late claim, in words: whoever has its address, what its own slot has instead, or whoever has its
//! MAC. In the table of `allod cluster conflicts` the last one would look as if somebody had the address.
//!
//! Before: `perform` and `losses`.

use serde_json::Value;

use super::output::{list, text_of};
use crate::core::address::{Address, Cidr, Range};

/// One sentence for each conflict over nothing but a MAC.
pub fn over_macs(result: &Value) -> Vec<String> {
    let alone = list(result, "conflicts").filter_map(|conflict| {
        let mac = is_over_mac(conflict).then(|| text(&conflict["late"], "mac"))?;
        let (address, network, held) = (text(conflict, "address"), text(conflict, "network"), &conflict["present"]);
        let [there, other, whose] = [text(held, "address"), text(held, "network"), whose(held)];
        Some(format!(
            "nobody has {address} of network `{network}`, but its MAC {mac} is that of {there} in network `{other}`, held by {whose}"
        ))
    });
    alone.collect()
}

/// The same for any conflict, as the end of a sentence about the late claim.
pub fn in_the_way(conflict: &Value) -> Option<String> {
    let held = conflict.get("present")?;
    let (address, whose) = (text(held, "address"), whose(held));
    Some(if is_over_mac(conflict) {
        format!("its MAC is that of {address} in network `{}`, held by {whose}", text(held, "network"))
    } else if shares_addresses(conflict, held) {
        format!("{whose} has it now")
    } else {
        format!("{whose} has {address} now")
    })
}

/// The holder in words.
pub fn whose(of: &Value) -> String {
    format!("`{}` (scope `{}`, slot `{}`)", text(of, "owner"), text(of, "scope"), text(of, "slot"))
}

fn is_over_mac(conflict: &Value) -> bool {
    let (late, held) = (&conflict["late"], &conflict["present"]);
    let is_elsewhere = held["network_id"] != conflict["network_id"];
    let is_of_slot = ["scope", "owner", "slot"].iter().all(|member| late[member] == held[member]);
    held.is_object() && late.get("mac").is_some() && (is_elsewhere || !is_of_slot && !shares_addresses(conflict, held))
}

fn shares_addresses(conflict: &Value, held: &Value) -> bool {
    match (range(conflict), range(held)) {
        (Some(one), Some(other)) => one.overlaps(other),
        _ => true,
    }
}

fn range(of: &Value) -> Option<Range> {
    let address: Address = of["address"].as_str()?.parse().ok()?;
    Cidr::new(address, of["prefix_length"].as_u64()?.try_into().ok()?).map(Cidr::range)
}

fn text(of: &Value, member: &str) -> String {
    of.get(member).map(text_of).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn held(network: &str, address: &str, owner: &str) -> Value {
        json!({
            "network": network, "network_id": network, "address": address, "prefix_length": 32, "scope": "s", "owner": owner, "slot": "0",
        })
    }

    fn conflict(present: Option<Value>) -> Value {
        let mut conflict = held("lan", "10.0.0.2", "-");
        conflict["late"] = json!({"scope": "s", "owner": "late", "slot": "0", "mac": "aa:00:00:00:00:01"});
        if let Some(present) = present {
            conflict["present"] = present;
        }
        conflict
    }

    #[test]
    fn what_stands_in_the_way_is_told_whether_it_has_the_address_the_slot_or_the_mac() {
        let said = |present| in_the_way(&conflict(present));
        assert_eq!(said(None), None);
        let by = |network, address, owner| said(Some(held(network, address, owner))).unwrap();
        assert_eq!(by("lan", "10.0.0.2", "new"), "`new` (scope `s`, slot `0`) has it now");
        assert_eq!(by("lan", "10.0.0.9", "late"), "`late` (scope `s`, slot `0`) has 10.0.0.9 now");
        let of_mac = |network| {
            format!("its MAC is that of 10.0.0.9 in network `{network}`, held by `new` (scope `s`, slot `0`)")
        };
        assert_eq!(by("lan", "10.0.0.9", "new"), of_mac("lan"));
        assert_eq!(by("other", "10.0.0.9", "new"), of_mac("other"));
        // The same owner in another network has another slot.
        assert_eq!(by("other", "10.0.0.9", "late"), of_mac("other").replace("new", "late"));
    }

    #[test]
    fn only_a_conflict_over_a_mac_alone_has_a_sentence_of_its_own() {
        let all = [None, Some(held("lan", "10.0.0.2", "new")), Some(held("other", "10.1.0.2", "new"))];
        assert_eq!(
            over_macs(&json!({"conflicts": all.map(conflict)})),
            [
                "nobody has 10.0.0.2 of network `lan`, but its MAC aa:00:00:00:00:01 is that of 10.1.0.2 in network `other`, held by \
              `new` (scope `s`, slot `0`)"
            ]
        );
    }
}
