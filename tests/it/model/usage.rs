//! `network.usage` and `network.map`.

use allod::core::address::Range;
use serde_json::{Value, json};

use super::Model;
use super::args::{Args, is_name, is_pool, is_subnet};
use super::errors::{Findings, ModelError, Refusal};
use super::state::{Status, each};

impl Model {
    pub fn network_usage(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        args.end()?;
        let n = self.network_named(&reference)?;
        Ok(self.usage(n))
    }

    pub fn usage(&self, n: usize) -> Value {
        let network = &self.networks[n];
        let ranges: Vec<Range> = network.subnets.iter().map(|subnet| subnet.cidr.range()).collect();
        let mut usage = self.count(network, &ranges);
        usage["reservations"] = json!(network.held.len());
        // A block that extends beyond a pool counts where its first address lies.
        let reservations = |range: Range| network.held.keys().filter(|first| range.contains(**first)).count();
        let subnets = network.subnets.iter().map(|subnet| {
            let mut part = self.count(network, &[subnet.cidr.range()]);
            part["reservations"] = json!(reservations(subnet.cidr.range()));
            part["cidr"] = json!(subnet.cidr.to_string());
            if let Some(name) = &subnet.name {
                part["name"] = json!(name);
            }
            let pools = subnet.pools.iter().map(|pool| {
                let mut part = self.count(network, &[pool.range]);
                part["reservations"] = json!(reservations(pool.range));
                part["range"] = json!(pool.range.to_string());
                part["kind"] = json!(pool.kind);
                if let Some(name) = &pool.name {
                    part["name"] = json!(name);
                }
                part
            });
            part["pools"] = pools.collect();
            part
        });
        usage["subnets"] = subnets.collect();
        usage
    }

    pub fn network_map(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let (subnet, pool) = (args.text("subnet", is_subnet)?, args.text("pool", is_pool)?);
        let format = args.word("format", &["text", "runs", "cells"])?.unwrap_or("text");
        let cell = args.number("cell_prefix_length", 1, 128)?;
        args.end()?;
        if format != "cells" && cell.is_some() {
            return Err(ModelError::plain("invalid_argument"));
        }
        let n = self.network_named(&reference)?;
        let network = &self.networks[n];
        let mut findings = Findings::default();
        if let Some(reference) = &subnet {
            findings.note(network.subnet_named(reference));
        }
        if let Some(reference) = &pool {
            findings.when(!network.pools().any(|(_, pool)| pool.is_named(reference)), "not_found");
        }
        findings.verdict()?;
        let mut pools = Vec::new();
        for (of, shown) in network.pools() {
            let wanted = subnet.as_ref().is_none_or(|name| of.is_named(name))
                && pool.as_ref().is_none_or(|name| shown.is_named(name));
            if !wanted {
                continue;
            }
            let mut noun = json!({
                "range": shown.range.to_string(), "first": shown.range.first().to_string(),
                "last": shown.range.last().to_string(),
            });
            if let Some(name) = &shown.name {
                noun["name"] = json!(name);
            }
            let map = self.characters(n, shown.range);
            match format {
                "text" => noun["map"] = json!(map),
                "runs" => noun["runs"] = runs(shown.range, &map),
                _ => {}
            }
            pools.push(noun);
        }
        Ok(json!({ "pools": pools }))
    }

    fn characters(&self, n: usize, range: Range) -> String {
        each(range)
            .map(|address| if self.networks[n].status(address, self.clock) == Status::Free { '.' } else { 'X' })
            .collect()
    }
}

fn runs(range: Range, map: &str) -> Value {
    let mut runs: Vec<(String, String, char)> = Vec::new();
    for (address, mark) in each(range).zip(map.chars()) {
        match runs.last_mut() {
            Some((_, last, same)) if *same == mark => *last = address.to_string(),
            _ => runs.push((address.to_string(), address.to_string(), mark)),
        }
    }
    json!(runs)
}
