//! Why nobody holds an address, and what to type to get it. Pure.
//!
//! The server only reports a state; the reason (a reserved range and its owner, what is draining, the gateway, where claims
//! are allowed) is in the configuration of the network. Reasons are checked in the order in which the server refuses a
//! claim, so that following the advice does not lead to the next refusal.

use serde_json::Value;

use crate::cli::output::{list, short_range, text_of};
use crate::cli::quote::{option, owner_options, shell};
use crate::core::address::{Address, Cidr, Family, Range};

/// The position of an address in a network.
#[derive(Debug)]
pub struct Place<'a> {
    address: Address,
    network: &'a Value,
    cidr: Cidr,
    subnet: &'a Value,
    pool: Option<&'a Value>,
    reserved: Option<&'a Value>,
    is_deleted: bool,
}

impl<'a> Place<'a> {
    /// The position of an address in a network as the server shows it; the network may be deleted and remembered. None if
    /// the address is in none of its subnets.
    pub fn of(address: &str, network: &'a Value, is_deleted: bool) -> Option<Self> {
        let address: Address = address.parse().ok()?;
        let covers = |of: &&Value| text(of, "range").parse::<Range>().is_ok_and(|range| range.contains(address));
        let (cidr, subnet) = list(network, "subnets").find_map(|subnet| {
            let cidr: Cidr = text(subnet, "cidr").parse().ok()?;
            cidr.contains(address).then_some((cidr, subnet))
        })?;
        let (pool, reserved) = (list(subnet, "pools").find(covers), list(subnet, "reserved").find(covers));
        Some(Self { address, network, cidr, subnet, pool, reserved, is_deleted })
    }

    /// The subnet, pool and reserved range that contain it, as fields.
    pub fn fields(&self) -> [(&'static str, String); 4] {
        let pool = self.pool.map_or_else(
            || "none".to_owned(),
            |pool| {
                let name = Some(text(pool, "name")).filter(|name| !name.is_empty());
                let name = name.map_or_else(String::new, |name| format!(" `{name}`"));
                format!("{}{name} ({})", short_range(&text(pool, "range")), text(pool, "kind"))
            },
        );
        let reserved = self.reserved.map_or_else(String::new, |reserved| {
            let note = Some(text(reserved, "note")).filter(|note| !note.is_empty());
            range_of(reserved) + &note.map_or_else(String::new, |note| format!(" ({note})"))
        });
        let whom = self.reserved.and_then(|reserved| reserved.get("for"));
        let whom = whom.map_or_else(String::new, |whom| {
            let part = |member: &str, plain: &str, word: &str| {
                let part = Some(text(whom, member)).filter(|part| part != plain && !part.is_empty());
                part.map_or_else(String::new, |part| format!("{word} `{part}`"))
            };
            // Without a slot the range is for all slots, so slot `0` is worth showing here.
            let [scope, slot] = [part("scope", "default", " of scope"), part("slot", "", ", slot")];
            format!("`{}`{scope}{slot}", text(whom, "owner"))
        });
        [("subnet", self.cidr.to_string()), ("pool", pool), ("reserved", reserved), ("for", whom)]
    }

    /// Why it has no holder in this state.
    pub fn why(&self, state: &str) -> String {
        let name = text(self.network, "name");
        let only_claims = self.only_static_pools().then(|| format!("`{name}` takes claims in its static pools only"));
        let and_only = |or: &str| only_claims.as_ref().map_or_else(|| or.to_owned(), |only| format!("; {only}"));
        if self.is_deleted {
            return "its network is deleted, and remembered while it holds something".to_owned();
        }
        match state {
            "unusable" => format!("{}: never handed out", self.special()),
            "reserved" if !self.draining().is_empty() => {
                let which: Vec<String> =
                    self.draining().iter().map(|(what, which)| format!("{what} {which}")).collect();
                let are = if which.len() > 1 { "are" } else { "is" };
                format!("{} {are} draining: nothing new is granted there", which.join(" and "))
            }
            "reserved" if self.reserved.is_some_and(|reserved| reserved.get("for").is_some()) => {
                format!("kept for one owner, who claims it as any other address{}", and_only(""))
            }
            "reserved" => format!("kept from automatic allocation{}", and_only("; `--force` claims it nevertheless")),
            "cooling" => format!("released a short time ago; its last owner gets it back at once{}", and_only("")),
            "free" => match (&only_claims, self.kind_of_pool()) {
                (Some(only), _) => format!("nobody holds it; {only}"),
                (None, None) => "nobody holds it; it lies in no pool, so only a claim takes it".to_owned(),
                (None, Some("static")) => "nobody holds it; its pool is static, so only a claim takes it".to_owned(),
                (None, Some(_)) => "nobody holds it".to_owned(),
            },
            state => super::reason(state).to_owned(),
        }
    }

    /// The next command to type.
    pub fn next(&self, state: &str) -> String {
        let (network, address) = (shell(&text(self.network, "name")), self.address);
        if self.is_deleted {
            return format!("`allod network restore {}` brings its network back", text(self.network, "id"));
        }
        match state {
            "unusable" if self.is_gateway() => {
                format!("`allod subnet modify {network} {} --gateway ADDRESS` makes another one the gateway", self.cidr)
            }
            "unusable" => format!("`allod network get {network}` shows which addresses it has besides"),
            "reserved" if !self.draining().is_empty() => {
                let draining = self.draining();
                let end = |(what, which): &(&str, String)| {
                    format!("`allod {what} modify {network} {which} --draining false`")
                };
                let ends = if draining.len() > 1 { "end" } else { "ends" };
                format!("{} {ends} that", draining.iter().map(end).collect::<Vec<_>>().join(" and "))
            }
            "reserved" => {
                let range = format!("`allod reserved remove {network} {address}` ends that it is kept");
                match self.reserved.and_then(|reserved| reserved.get("for")) {
                    _ if self.only_static_pools() => range,
                    None => format!("`allod ip claim {network} {address} --owner OWNER --force` takes it, {range}"),
                    Some(whom) => {
                        let owner = owner_options(&text(whom, "owner"), whom.get("scope").and_then(Value::as_str));
                        let slot = whom.get("slot").and_then(Value::as_str).filter(|&slot| slot != "0");
                        let slot = slot.map_or_else(String::new, |slot| format!(" {}", option("--slot", slot)));
                        format!("`allod ip claim {network} {address} {owner}{slot}` takes it for its owner, {range}")
                    }
                }
            }
            "declined" if self.only_static_pools() => format!("`allod history {address}` shows who declined it"),
            "free" | "cooling" if self.only_static_pools() => match self.kind_of_pool() {
                None => format!("`allod pool add {network} {address} --kind static` lets it be claimed"),
                Some(_) => format!("`allod network update {network} --static-only=false` lets it be claimed"),
            },
            state => super::advice(state, &network, &address.to_string()),
        }
    }

    /// Does its network allow claims only in static pools, and this is not one?
    fn only_static_pools(&self) -> bool {
        self.network.get("static_only") == Some(&Value::Bool(true)) && self.kind_of_pool() != Some("static")
    }

    fn kind_of_pool(&self) -> Option<&'a str> {
        Some(self.pool?.get("kind").and_then(Value::as_str).unwrap_or("dynamic"))
    }

    /// The subnet or pool around it that is draining: the noun, and the name for the command.
    fn draining(&self) -> Vec<(&'static str, String)> {
        let drains = |of: &Value| of.get("draining") == Some(&Value::Bool(true));
        let subnet = drains(self.subnet).then(|| ("subnet", self.cidr.to_string()));
        let pool = self.pool.filter(|pool| drains(pool)).map(|pool| ("pool", text(pool, "range")));
        subnet.into_iter().chain(pool).collect()
    }

    fn is_gateway(&self) -> bool {
        text(self.subnet, "gateway").parse::<Address>().is_ok_and(|gateway| gateway == self.address)
    }

    /// What makes it unusable.
    fn special(&self) -> String {
        let what = match self.cidr.family() {
            _ if self.is_gateway() => "the gateway",
            Family::V6 => "the subnet-router anycast address",
            Family::V4 if self.address == self.cidr.base() => "the network address",
            Family::V4 => "the broadcast address",
        };
        format!("{what} of subnet {}", self.cidr)
    }
}

/// A range in its shortest form, a single address without the repetition.
fn range_of(of: &Value) -> String {
    let range = text(of, "range");
    range.parse::<Range>().map_or(range, Range::as_typed)
}

fn text(of: &Value, name: &str) -> String {
    of.get(name).map(text_of).unwrap_or_default()
}
