//! `claimant.mark` and `claimant.sweep`: claimants missed by two sweeps, at least the grace apart, are released.

use std::collections::BTreeSet;

use allod::core::address::Address;
use serde_json::{Value, json};

use super::Model;
use super::args::{Args, is_name, is_owner};
use super::errors::{ModelError, Refusal};

/// The first sweep that missed a claimant.
#[derive(Debug, Clone, PartialEq)]
pub struct Missed {
    claimant: String,
    generation: u64,
    since: u64,
}

fn is_sweep(text: &str) -> bool {
    (1..=256).contains(&text.len())
}

fn read_claimants(args: &Args, name: &str) -> Refusal<Option<BTreeSet<String>>> {
    let Some(list) = args.list(name, 10_000)? else { return Ok(None) };
    let claimants = list.iter().map(|value| value.as_str().filter(|text| is_owner(text)).map(str::to_owned));
    let bad = || ModelError::new("invalid_argument", json!({ "field": name }));
    claimants.collect::<Option<_>>().map(Some).ok_or_else(bad)
}

impl Model {
    pub fn claimant_mark(&mut self, args: &Args) -> Refusal<Value> {
        let (scope, sweep) = (args.need_text("scope", is_owner)?, args.need_text("sweep", is_sweep)?);
        let claimants = read_claimants(args, "claimants")?;
        args.end()?;
        let claimants =
            claimants.ok_or_else(|| ModelError::new("invalid_argument", json!({ "field": "claimants" })))?;
        let marked = self.marks.entry((scope, sweep)).or_default();
        marked.extend(claimants);
        Ok(json!({ "marked": marked.len() }))
    }

    pub fn claimant_sweep(&mut self, args: &Args) -> Refusal<Value> {
        let scope = args.need_text("scope", is_owner)?;
        let (alive, sweep) = (read_claimants(args, "alive")?, args.text("sweep", is_sweep)?);
        let network = args.text("network", is_name)?;
        let grace = args.number("grace_seconds", 0, u64::MAX / 1_000_000)?.unwrap_or(60) * 1_000;
        let share = match args.raw("max_share").map(|share| (share.is_number(), share.as_f64())) {
            None => 0.2,
            Some((true, Some(share))) if (0.0..=1.0).contains(&share) => share,
            Some(_) => return Err(ModelError::new("invalid_argument", json!({ "field": "max_share" }))),
        };
        args.end()?;
        if alive.is_some() == sweep.is_some() {
            return Err(ModelError::plain("invalid_argument"));
        }
        let only = network.map(|reference| self.network_named(&reference)).transpose()?;
        let marked = |sweep: String| self.marks.get(&(scope.clone(), sweep)).cloned();
        let alive =
            alive.or_else(|| marked(sweep.unwrap_or_default())).ok_or_else(|| ModelError::plain("not_found"))?;
        let mut places: Vec<usize> = (0..self.networks.len()).filter(|n| only.is_none_or(|only| only == *n)).collect();
        places.sort_by_key(|n| (self.networks[*n].name.clone(), self.networks[*n].id.clone()));
        let all = self.networks.iter().flat_map(|network| network.held.values());
        let reservations = all.filter(|held| held.key.scope == scope).count() as u128;
        let (mut due, mut waiting) = (Vec::new(), Vec::new());
        for n in places {
            for (first, held) in self.networks[n].held.iter().filter(|(_, held)| held.key.scope == scope) {
                let Some(claimant) = held.claimant.as_ref() else { continue };
                let of = |missed: &&Missed| missed.claimant == *claimant && missed.generation == held.generation;
                let known = held.missed.as_ref().filter(of).map(|missed| missed.since);
                match known {
                    _ if alive.contains(claimant) => {}
                    Some(since) if since + grace <= self.clock => due.push((n, *first)),
                    Some(_) | None => waiting.push((n, *first)),
                }
            }
        }
        // The share is a quotient, so it is compared in billionths, rounded up.
        if due.len() as u128 * 1_000_000_000 > (share * 1e9).ceil() as u128 * reservations {
            return Err(ModelError::new("brake", json!({ "would_release": due.len() })));
        }
        let listed = |model: &Self, list: &[(usize, Address)]| -> Vec<Value> {
            let entry = |(n, first): &(usize, Address)| {
                let network = &model.networks[*n];
                let claimant = &network.held[first].claimant;
                json!({ "network": network.name, "address": first.to_string(), "claimant": claimant })
            };
            list.iter().map(entry).collect()
        };
        let leaves = |(n, first): &&(usize, Address)| self.networks[*n].held[first].release_with_claimant;
        let (released, unbound): (Vec<_>, Vec<_>) = due.iter().partition(leaves);
        let answer = json!({
            "unbound": listed(self, &unbound), "released": listed(self, &released), "waiting": listed(self, &waiting),
        });
        self.note_misses(&scope, only, &alive);
        for (n, first) in unbound {
            let held = self.networks[n].held.get_mut(&first).expect("held");
            (held.claimant, held.missed) = (None, None);
        }
        for (n, first) in released {
            self.let_go(n, first, self.clock);
        }
        Ok(answer)
    }

    fn note_misses(&mut self, scope: &str, only: Option<usize>, alive: &BTreeSet<String>) {
        let since = self.clock;
        let networks = self.networks.iter_mut().enumerate().filter(|(n, _)| only.is_none_or(|only| only == *n));
        let held = networks.flat_map(|(_, network)| network.held.values_mut());
        for held in held.filter(|held| held.key.scope == scope) {
            let Some(claimant) = held.claimant.clone() else { continue };
            if alive.contains(&claimant) {
                held.missed = None;
            } else if held.missed.as_ref().is_none_or(|m| m.claimant != claimant || m.generation != held.generation) {
                held.missed = Some(Missed { claimant, generation: held.generation, since });
            }
        }
    }
}
