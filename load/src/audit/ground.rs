//! What a network may hand out according to its configuration: its pools, except the addresses that are never handed out.

use serde_json::Value;

use super::address;

/// First and last address of a range, as numbers of [`address::number`].
pub type Span = (u128, u128);

/// The pools and exclusions of one network.
#[derive(Debug, Default, Clone)]
pub struct Ground {
    subnets: Vec<Span>,
    dynamic: Vec<Span>,
    /// Reserved ranges, gateways, network, broadcast and anycast addresses.
    never: Vec<Span>,
}

impl Ground {
    /// Reads the answer of `network.get`.
    pub fn read(network: &Value) -> Self {
        let mut ground = Self::default();
        for subnet in list(&network["subnets"]) {
            let Some(span) = text(&subnet["cidr"]).and_then(address::range) else { continue };
            ground.subnets.push(span);
            ground.never.extend(edges(span));
            ground.never.extend(text(&subnet["gateway"]).and_then(address::range));
            for reserved in list(&subnet["reserved"]) {
                ground.never.extend(text(&reserved["range"]).and_then(address::range));
            }
            for pool in list(&subnet["pools"]).iter().filter(|pool| pool["kind"] == "dynamic") {
                ground.dynamic.extend(text(&pool["range"]).and_then(address::range));
            }
        }
        ground.never.sort_unstable();
        ground
    }

    /// Why this span must not be granted, if so. `automatic`: it came from a pool, not by a claim.
    pub fn forbids(&self, (first, last): Span, automatic: bool) -> Option<&'static str> {
        let inside = |spans: &[Span]| spans.iter().any(|&(from, to)| from <= first && last <= to);
        if !inside(&self.subnets) {
            return Some("lies in no subnet");
        }
        if automatic && !inside(&self.dynamic) {
            return Some("lies in no dynamic pool");
        }
        let behind = self.never.partition_point(|&(from, _)| from <= last);
        // Reserved ranges may overlap each other, so checking the nearest one is not enough; there are few.
        let never = self.never[..behind].iter().any(|&(_, to)| to >= first);
        never.then_some("is a gateway, reserved, or the first or last of its subnet")
    }
}

/// The addresses of a subnet that its protocol reserves.
fn edges((first, last): Span) -> Vec<Span> {
    let v4 = address::is_v4(first);
    match last - first {
        0 | 1 => Vec::new(),
        _ if v4 => vec![(first, first), (last, last)],
        _ => vec![(first, first)],
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> Option<&str> {
    value.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_lies_in_a_pool_and_is_kept_from_nobody_may_be_given() {
        let ground = Ground::read(&json!({"subnets": [
            {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "reserved": [{"range": "10.0.0.8-10.0.0.9"}, {"range": "10.0.0.9"}],
             "pools": [{"range": "10.0.0.0-10.0.0.127", "kind": "dynamic"}, {"range": "10.0.0.128-10.0.0.255", "kind": "static"}]},
            {"cidr": "2001:db8::/64", "pools": [{"range": "2001:db8::/64", "kind": "dynamic"}]},
        ]}));
        let may = |text: &str, automatic| ground.forbids(address::range(text).unwrap(), automatic).is_none();
        for good in ["10.0.0.2", "10.0.0.127", "10.0.0.16/28", "2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"] {
            assert!(may(good, true), "{good}");
        }
        for bad in
            ["10.0.0.0", "10.0.0.1", "10.0.0.8", "10.0.0.9", "10.0.0.0/28", "10.0.0.200", "10.0.1.5", "2001:db8::"]
        {
            assert!(!may(bad, true), "{bad}");
        }
        assert!(may("10.0.0.200", false) && !may("10.0.0.255", false) && !may("192.0.2.1", false));
    }
}
