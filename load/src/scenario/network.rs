//! The configuration of a network that a scenario needs.

use serde_json::{Value, json};

use super::Settings;

/// Reserved addresses at the beginning of each IPv4 subnet that has room for them, so that the audit has addresses that must
/// not be handed out.
const RESERVED: u32 = 8;
/// The default prefix of network names.
const NAME_PREFIX: &str = "load-";
/// The longest prefix of a subnet with room for them.
const ROOMY_PREFIX: u8 = 24;
/// The first address of 10.0.0.0/8 that a scenario claims by name; the gateway and the reserved addresses come before it.
pub const FIRST_CLAIMED: u32 = 0x0a00_0100;

/// One network, in a realm of its own, with one subnet.
#[derive(Debug, Clone)]
pub struct NetworkPlan {
    pub name: String,
    pub cidr: String,
    pub policy: String,
    pub cooldown_seconds: u64,
    /// Blocks are allocated in it.
    pub blocks: bool,
}

impl NetworkPlan {
    /// Networks `load-00` and so on, with the given values for missing settings.
    pub fn several(settings: &Settings, count: usize, cidr: &str, policy: &str) -> Vec<Self> {
        let prefix = settings.network_prefix.as_deref().unwrap_or(NAME_PREFIX);
        (0..settings.networks.unwrap_or(count))
            .map(|number| Self {
                name: settings.network_name.clone().unwrap_or_else(|| format!("{prefix}{number:02}")),
                cidr: settings.cidr.clone().unwrap_or_else(|| cidr.to_owned()),
                policy: settings.policy.clone().unwrap_or_else(|| policy.to_owned()),
                cooldown_seconds: settings.cooldown_seconds.unwrap_or(0),
                blocks: false,
            })
            .collect()
    }

    /// Marks that blocks are allocated in it.
    pub fn with_blocks(mut self) -> Self {
        self.blocks = true;
        self
    }

    /// The params of `network.create`.
    pub fn params(&self) -> Value {
        let Self { name, policy, cooldown_seconds, .. } = self;
        json!({
            "name": name, "realm": name, "policy": policy, "cooldown_seconds": cooldown_seconds, "subnets": [self.subnet()],
            "description": "made by allod-load", "if_absent": true,
        })
    }

    /// The subnet; if it is large enough, with a gateway and a reserved range, which must never be granted.
    fn subnet(&self) -> Value {
        let plain = json!({"cidr": self.cidr});
        let Some((first, length)) = self.cidr.split_once('/') else { return plain };
        let (Ok(first), Ok(length)) = (first.parse::<std::net::Ipv4Addr>(), length.parse::<u8>()) else { return plain };
        if length > ROOMY_PREFIX {
            return plain;
        }
        let at = |offset| std::net::Ipv4Addr::from(u32::from(first).saturating_add(offset));
        let reserved = format!("{}-{}", at(2), at(1 + RESERVED));
        json!({"cidr": self.cidr, "gateway": at(1), "reserved": [{"range": reserved, "note": "made by allod-load"}]})
    }
}
