//! `ip.allocate`, `ip.claim`, `ip.acquire`: reading requests, several items, answers.

use std::collections::BTreeSet;

use allod::core::address::{Address, Range};
use serde_json::{Value, json};

use super::Model;
use super::args::{Args, is_name, is_owner};
use super::errors::{ModelError, Refusal};
use super::grant::{Granted, Options, Wish};
use super::state::{Key, block};

struct Item {
    network: usize,
    key: Key,
    wish: Wish,
    optional: bool,
}

pub fn read_scope(args: &Args) -> Refusal<String> {
    Ok(args.text("scope", is_owner)?.unwrap_or_else(|| "default".into()))
}

/// Reads `owner, scope?, slot?` with their defaults.
pub fn read_key(args: &Args) -> Refusal<Key> {
    Ok(Key {
        owner: args.need_text("owner", is_owner)?,
        scope: read_scope(args)?,
        slot: args.text("slot", is_owner)?.unwrap_or_else(|| "0".into()),
    })
}

impl Model {
    pub fn ip_allocate(&mut self, args: &Args) -> Refusal<Value> {
        let network = args.need_text("network", is_name)?;
        let (key, wish, options) = (read_key(args)?, Wish::read(args)?, Options::read(args)?);
        args.end()?;
        self.one(&network, &key, &wish, &options)
    }

    pub fn ip_claim(&mut self, args: &Args) -> Refusal<Value> {
        let network = args.need_text("network", is_name)?;
        let (key, options) = (read_key(args)?, Options::read(args)?);
        let wish = Wish {
            address: Some(args.need_address("address")?),
            force: args.on("force")?,
            length: args.number("prefix_length", 1, 128)?.map(|length| length as u8),
            ..Wish::default()
        };
        args.end()?;
        self.one(&network, &key, &wish, &options)
    }

    fn one(&mut self, network: &str, key: &Key, wish: &Wish, options: &Options) -> Refusal<Value> {
        wish.judge()?;
        let n = self.network_named(network)?;
        let hint = self.hinted_address(&["address"]);
        let granted = self.obtain(n, key, wish, options, hint)?;
        self.flush_leaving();
        Ok(self.answer_grant(&granted, options.brief))
    }

    pub fn ip_acquire(&mut self, args: &Args) -> Refusal<Value> {
        let owner = args.need_text("owner", is_owner)?;
        let scope = read_scope(args)?;
        let network = args.text("network", is_name)?;
        let prefix = args.text("slot_prefix", is_owner)?.unwrap_or_default();
        let mut options = Options::read(args)?;
        let exact = args.on("exact")?;
        options.replace |= exact;
        let list = args.list("ips", 256)?.filter(|list| !list.is_empty());
        args.end()?;
        let list = list.ok_or_else(|| ModelError::new("invalid_argument", json!({ "field": "ips" })))?;
        let mut parts = Vec::new();
        for item in list {
            parts.push(read_item(&Args::of(item)?, network.as_deref())?);
        }
        judge_alone(&parts, &prefix)?;
        let items = self.items(parts, &Key { scope, owner, slot: prefix })?;
        self.refuse_twice(&items)?;
        let beside = network.filter(|_| exact).map(|network| self.network_named(&network)).transpose()?;
        let beside = beside.filter(|n| items.iter().all(|item| item.network != *n));
        let released = if exact { self.all_else(&items, beside) } else { Vec::new() };
        self.leaving.extend(released.iter().copied());
        let is_other = |(n, first): &(usize, Address)| {
            let uid = &self.networks[*n].held[first].uid;
            uid.is_some() && options.uid.is_some() && *uid != options.uid
        };
        let other = released.iter().any(is_other).then(|| ModelError::plain("already_in_use"));
        let closed = beside.filter(|n| self.networks[*n].closed).map(|_| ModelError::plain("in_use"));
        let other = closed.or(other);
        let granted = match (self.obtain_all(&items, &options), other) {
            (Err(error), Some(other)) if error.rank() < other.rank() => return Err(error),
            (_, Some(other)) => return Err(other),
            (granted, None) => granted?,
        };
        self.flush_leaving();
        let reservations: Vec<Value> = granted.iter().flatten().map(|g| self.answer_grant(g, options.brief)).collect();
        let mut answer = json!({ "reservations": reservations });
        if exact {
            let name = |n: &usize| &self.networks[*n].name;
            let named = |(n, first): &(usize, Address)| json!({ "network": name(n), "address": first.to_string() });
            answer["released"] = released.iter().map(named).collect();
        }
        Ok(answer)
    }

    /// Resolves networks, and gives slots by position within a network.
    fn items(&self, parts: Vec<(String, Option<String>, Wish, bool)>, owner: &Key) -> Refusal<Vec<Item>> {
        let mut items: Vec<Item> = Vec::new();
        for (index, (network, slot, wish, optional)) in parts.into_iter().enumerate() {
            let found = self.network_named(&network);
            let network = found.map_err(|error| with_index(error, index))?;
            let position = items.iter().filter(|item| item.network == network).count();
            let slot = slot.unwrap_or_else(|| format!("{}{position}", owner.slot));
            items.push(Item { network, key: Key { slot, ..owner.clone() }, wish, optional });
        }
        Ok(items)
    }

    fn refuse_twice(&self, items: &[Item]) -> Refusal<()> {
        let mut slots = BTreeSet::new();
        let mut named: Vec<(usize, Range)> = Vec::new();
        for item in items {
            let slot_is_new = slots.insert((item.network, item.key.slot.clone()));
            let range = item.wish.address.map(|address| {
                let width = if address.to_string().contains(':') { 128 } else { 32 };
                block(address, item.wish.length.unwrap_or(width).min(width))
            });
            let meets = |range: Range| named.iter().any(|(of, other)| *of == item.network && other.overlaps(range));
            if !slot_is_new || range.is_some_and(meets) {
                return Err(ModelError::plain("invalid_argument"));
            }
            named.extend(range.map(|range| (item.network, range)));
        }
        Ok(())
    }

    /// What the owner holds under slots that the items do not name, in their networks and in the one given `beside`.
    fn all_else(&self, items: &[Item], beside: Option<usize>) -> Vec<(usize, Address)> {
        let mut else_held = BTreeSet::new();
        for (n, item) in beside.iter().flat_map(|n| items.first().map(|item| (*n, item))) {
            let own = self.networks[n].held.iter().filter(|(_, held)| held.key.same_owner(&item.key));
            else_held.extend(own.map(|(first, _)| (n, *first)));
        }
        for item in items {
            for (first, held) in &self.networks[item.network].held {
                let named = items.iter().any(|other| other.network == item.network && other.key.slot == held.key.slot);
                if held.key.same_owner(&item.key) && !named {
                    else_held.insert((item.network, *first));
                }
            }
        }
        else_held.into_iter().collect()
    }

    /// Could an automatic item be given anything, regardless of limits?
    fn has_room(&self, item: &Item, options: &Options) -> bool {
        !self.admissible(item.network, &item.key, options.uid.as_deref(), &item.wish).is_empty()
    }

    /// Takes named addresses first, then the automatic ones in order. All are tried; the first error by rank is answered.
    fn obtain_all(&mut self, items: &[Item], options: &Options) -> Refusal<Vec<Option<Granted>>> {
        let mut granted: Vec<Option<Granted>> = vec![None; items.len()];
        let mut errors: Vec<(usize, ModelError)> = Vec::new();
        let mut beyond_limits: Vec<(usize, ModelError)> = Vec::new();
        let (named, automatic): (Vec<usize>, Vec<usize>) =
            (0..items.len()).partition(|i| items[*i].wish.address.is_some());
        for index in named.into_iter().chain(automatic) {
            let item = &items[index];
            let position = granted[..index].iter().flatten().count();
            let hint = self.hinted_address(&["reservations", &position.to_string(), "address"]);
            match self.obtain(item.network, &item.key, &item.wish, options, hint) {
                Ok(one) => granted[index] = Some(one),
                Err(error) if item.optional && error.kind == "not_enough_capacity" => {}
                Err(error) if item.optional && error.kind == "quota_exceeded" => {
                    if item.wish.address.is_some() || self.has_room(item, options) {
                        beyond_limits.push((index, error));
                    }
                }
                Err(error) => errors.push((index, error)),
            }
        }
        errors
            .extend(beyond_limits.into_iter().filter(|(index, _)| !is_repeat(items, &granted, items[*index].network)));
        errors.sort_by_key(|(index, error)| (error.rank(), *index));
        match errors.into_iter().next() {
            Some((index, error)) => Err(with_index(error, index)),
            None => Ok(granted),
        }
    }
}

/// Is everything that the request requires of a network held already, and is it anything at all?
fn is_repeat(items: &[Item], granted: &[Option<Granted>], network: usize) -> bool {
    let here: Vec<_> = items.iter().zip(granted).filter(|(item, _)| item.network == network).collect();
    let held = |one: &Option<Granted>| one.as_ref().is_some_and(|one| !one.created);
    here.iter().any(|(_, one)| held(one)) && here.iter().all(|(item, one)| item.optional || held(one))
}

fn read_item(args: &Args, default_network: Option<&str>) -> Refusal<(String, Option<String>, Wish, bool)> {
    let mut wish = Wish::read(args)?;
    wish.address = args.address("address")?;
    let network = args.text("network", is_name)?;
    let slot = args.text("slot", is_owner)?;
    let optional = args.on("optional")?;
    args.end()?;
    if wish.address.is_some() && wish.pool.is_some() {
        return Err(ModelError::new("invalid_argument", json!({ "field": "pool" })));
    }
    let network = network.or_else(|| default_network.map(str::to_string));
    let network = network.ok_or_else(|| ModelError::new("invalid_argument", json!({ "field": "network" })))?;
    Ok((network, slot, wish, optional))
}

fn with_index(mut error: ModelError, index: usize) -> ModelError {
    error.data["index"] = json!(index);
    error
}

/// Refuses what is wrong whatever networks there are.
fn judge_alone(parts: &[(String, Option<String>, Wish, bool)], prefix: &str) -> Refusal<()> {
    let (mut slots, mut named): (_, Vec<(&str, Range)>) = (BTreeSet::new(), Vec::new());
    for (index, (network, slot, wish, _)) in parts.iter().enumerate() {
        wish.judge()?;
        let position = parts[..index].iter().filter(|(other, ..)| other == network).count();
        let slot = slot.clone().unwrap_or_else(|| format!("{prefix}{position}"));
        let range = wish.address.map(|address| block(address, wish.length.unwrap_or(address.family().width())));
        let meets = |range: Range| named.iter().any(|(of, other)| of == network && other.overlaps(range));
        if !slots.insert((network, slot)) || range.is_some_and(meets) {
            return Err(ModelError::plain("invalid_argument"));
        }
        named.extend(range.map(|range| (network.as_str(), range)));
    }
    Ok(())
}
