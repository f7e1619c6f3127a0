//! `pool.add`, `modify`, `remove`; `reserved.add`, `remove`.

use serde_json::{Value, json};

use super::Model;
use super::args::{Args, is_name, is_pool, is_subnet};
use super::errors::{Findings, ModelError, Refusal};
use super::nouns;
use super::spec::{differing, differs, if_version, merge_reserved, read_pool, read_reserved};
use super::state::{Pool, Reserved};

impl Model {
    pub fn pool_add(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let range = args.range("range")?;
        let which = args.text("subnet", is_subnet)?;
        let if_absent = args.on("if_absent")?;
        let expected = if_version(args)?;
        let placeholder = "0.0.0.0".parse().expect("a range");
        let mut pool = read_pool(args, range.unwrap_or(placeholder))?;
        let given: Vec<&str> = ["name", "kind"].into_iter().filter(|member| args.has(member)).collect();
        args.end()?;
        if range.is_some() == which.is_some() {
            return Err(ModelError::plain("invalid_argument"));
        }
        let n = self.network_named(&reference)?;
        let mut findings = Findings::default();
        findings.when(self.networks[n].closed, "in_use");
        self.check_version(n, expected, &mut findings);
        let network = &self.networks[n];
        let s = match &which {
            Some(which) => findings.note(network.subnet_named(which)),
            None => network.subnets.iter().position(|subnet| subnet.cidr.range().covers(pool.range)),
        };
        if let (Some(s), Some(_)) = (s, &which) {
            pool.range = network.subnets[s].cidr.range();
        }
        findings.when(s.is_none(), "out_of_range");
        let there = network.pools().map(|(_, pool)| pool).find(|there| there.range == pool.range);
        if let Some(there) = there.filter(|_| if_absent) {
            let mut noun = nouns::pool(there);
            let members = differing(given, &nouns::pool(&pool), &noun);
            if !members.is_empty() {
                findings.name_taken(differs(members).data);
            }
            findings.verdict()?;
            noun["created"] = json!(false);
            return Ok(noun);
        }
        findings.when(network.pools().any(|(_, other)| other.range.overlaps(pool.range)), "overlap");
        findings.verdict()?;
        let mut noun = nouns::pool(&pool);
        if let Some(s) = s {
            self.networks[n].subnets[s].pools.push(pool);
        }
        if if_absent {
            noun["created"] = json!(true);
        }
        Ok(noun)
    }

    pub fn pool_modify(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let which = args.need_text("pool", is_pool)?;
        let set = args.set()?;
        let expected = if_version(args)?;
        args.end()?;
        let range = set.range("range")?;
        let kind = set.word("kind", &["dynamic", "static"])?;
        let draining = set.flag("draining")?;
        set.patch_text("name", &mut None, is_name)?;
        set.end()?;
        let n = self.network_named(&reference)?;
        let mut findings = Findings::default();
        findings.when(self.networks[n].closed, "in_use");
        self.check_version(n, expected, &mut findings);
        let mut found = Vec::new();
        for (s, subnet) in self.networks[n].subnets.iter().enumerate() {
            found.extend((0..subnet.pools.len()).filter(|p| subnet.pools[*p].is_named(&which)).map(|p| (s, p)));
        }
        findings.when(found.is_empty(), "not_found");
        findings.when(found.len() > 1, "invalid_argument");
        let Some((s, p)) = found.first().copied() else { return findings.verdict().map(|()| Value::Null) };
        let subnet = &self.networks[n].subnets[s];
        let mut pool = subnet.pools[p].clone();
        pool.range = range.unwrap_or(pool.range);
        pool.kind = kind.unwrap_or(pool.kind);
        pool.draining = draining.unwrap_or(pool.draining);
        findings.note(set.patch_text("name", &mut pool.name, is_name));
        findings.when(!subnet.cidr.range().covers(pool.range), "out_of_range");
        let others = subnet.pools.iter().enumerate().filter(|(other, _)| *other != p);
        findings.when(others.into_iter().any(|(_, other)| other.range.overlaps(pool.range)), "overlap");
        findings.verdict()?;
        let noun = nouns::pool(&pool);
        self.networks[n].subnets[s].pools[p] = pool;
        Ok(noun)
    }

    pub fn pool_remove(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let range = args.range("range")?;
        let (named, which) = (args.text("pool", is_pool)?, args.text("subnet", is_subnet)?);
        let expected = if_version(args)?;
        args.end()?;
        if [range.is_some(), named.is_some(), which.is_some()].iter().filter(|given| **given).count() != 1 {
            return Err(ModelError::plain("invalid_argument"));
        }
        let n = self.network_named(&reference)?;
        let mut findings = Findings::default();
        findings.when(self.networks[n].closed, "in_use");
        self.check_version(n, expected, &mut findings);
        let only = which.and_then(|which| findings.note(self.networks[n].subnet_named(&which)));
        let touched = |s: usize, pool: &Pool| {
            range.is_some_and(|range| range.overlaps(pool.range))
                || named.as_ref().is_some_and(|name| pool.is_named(name))
                || only == Some(s)
        };
        let mut touches = false;
        let mut subnets = self.networks[n].subnets.clone();
        for (s, subnet) in subnets.iter_mut().enumerate() {
            let pools = std::mem::take(&mut subnet.pools);
            for pool in pools {
                if !touched(s, &pool) {
                    subnet.pools.push(pool);
                    continue;
                }
                touches = true;
                let parts = range.into_iter().flat_map(|range| pool.range.without(range));
                subnet.pools.extend(parts.map(|part| Pool { range: part, ..pool.clone() }));
            }
        }
        findings.when(!touches, "not_found");
        findings.verdict()?;
        self.networks[n].subnets = subnets;
        Ok(json!({}))
    }

    pub fn reserved_add(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let reserved = read_reserved(args)?;
        let expected = if_version(args)?;
        args.end()?;
        let n = self.network_named(&reference)?;
        let mut findings = Findings::default();
        findings.when(self.networks[n].closed, "in_use");
        self.check_version(n, expected, &mut findings);
        let around = self.networks[n].subnets.iter().position(|subnet| subnet.cidr.range().covers(reserved.range));
        findings.when(around.is_none(), "out_of_range");
        findings.verdict()?;
        let subnet = &mut self.networks[n].subnets[around.expect("just checked")];
        merge_reserved(&mut subnet.reserved, reserved);
        Ok(json!({ "reserved": nouns::reserved_list(subnet) }))
    }

    pub fn reserved_remove(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let Reserved { range, whose, .. } = read_reserved(args)?;
        let expected = if_version(args)?;
        args.end()?;
        let n = self.network_named(&reference)?;
        let mut findings = Findings::default();
        findings.when(self.networks[n].closed, "in_use");
        self.check_version(n, expected, &mut findings);
        let mut left = Vec::new();
        let mut touches = false;
        let mut subnets = self.networks[n].subnets.clone();
        for subnet in &mut subnets {
            let old = std::mem::take(&mut subnet.reserved);
            let goes = |reserved: &Reserved| whose.is_none() || whose == reserved.whose;
            let touched = old.iter().any(|reserved| goes(reserved) && reserved.range.overlaps(range));
            for reserved in old {
                if !goes(&reserved) {
                    subnet.reserved.push(reserved);
                    continue;
                }
                let parts = reserved.range.without(range);
                subnet.reserved.extend(parts.map(|part| Reserved { range: part, ..reserved.clone() }));
            }
            if touched {
                left.extend(nouns::reserved_list(subnet));
            }
            touches |= touched;
        }
        findings.when(!touches, "not_found");
        findings.verdict()?;
        self.networks[n].subnets = subnets;
        Ok(json!({ "reserved": left }))
    }
}
