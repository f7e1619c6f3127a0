//! A network as a whole: create, update, delete, restore.
//!
//! ```text
//!          delete, nothing held ─────────────────────────────▶ gone
//! open ──┤                                                      ▲
//!   ▲      delete with force or purge ──▶ closed ──emptied──────┘
//!   └──────────── restore ─────────────────┘
//! ```
//!
//! A closed network is emptied in bounded slices by releases; `Delete`, decided again on a closed network that holds
//! nothing, ends it. A network that is closed by `purge` is marked so in its record, so that its remains are let go even if
//! whoever asked for that is gone.

use std::ops::Bound;
use std::sync::Arc;

use compact_str::CompactString;

use super::subnet::{Neighbours, SubnetPlace};
use super::{
    BoundedCounts, ConfigDraft, FORGOTTEN_ENTRIES_MAX, FirstRefusal, empty_set, leaving_step, patch, patch_option,
    patch_tags, subnet, subnet_step, subnets,
};
use crate::core::command::{Context, NetworkInput, NetworkPatch, Patch, SubnetInput, subnet_id};
use crate::core::forms;
use crate::core::network::{Network, Standing};
use crate::core::outcome::{Decision, NetworkView, Outcome};
use crate::core::refusal::Refusal;
use crate::core::state::{
    Event, EventKind, Key, L2, Limits, NetworkConfig, NetworkKind, Policy, State, Step, SubnetConfig,
};
use crate::core::types::{Generation, Name, NetworkId, Version};
use crate::limits;

/// The steps that make a new network: its configuration, then one for each subnet.
///
/// # Errors
/// What is wrong with the input by itself. The catalog checks the name, and other networks of the realm.
pub fn create(input: &NetworkInput, id: NetworkId, ctx: Context) -> Result<Decision, Refusal> {
    let mut verdict = FirstRefusal::default();
    let mut l2 = input.l2.clone().unwrap_or_default();
    normalize_mac_prefix(&mut l2, "l2.mac_prefix", &mut verdict);
    let config = Arc::new(NetworkConfig {
        id,
        name: input.name.clone(),
        realm: input.realm.clone().unwrap_or_else(Name::default_realm),
        kind: input.kind.unwrap_or(NetworkKind::Manual),
        l2,
        policy: input.policy.unwrap_or(Policy::Lowest),
        cooldown_seconds: input.cooldown_seconds.unwrap_or(0),
        cooldown_yields: input.cooldown_yields.unwrap_or(false),
        static_only: input.static_only.unwrap_or(false),
        protected: input.protected.unwrap_or(false),
        limits: input.limits.unwrap_or_default(),
        tags: input.tags.clone().unwrap_or_default(),
        description: input.description.clone().unwrap_or_default(),
        version: Version(1),
        created_at: ctx.wall,
        closed: false,
        purged: false,
        conflicts: Vec::new(),
    });
    check_cooldown(config.cooldown_seconds, "cooldown_seconds", &mut verdict);
    let subnets = new_subnets(input, ctx, &mut verdict);
    verdict.end()?;
    let event = Event { kind: EventKind::NetworkCreated, before: None };
    let state = Some(State::Config(Arc::clone(&config)));
    let mut steps = vec![Step { key: Key::Config, expect: None, state, event: Some(event) }];
    steps.extend(subnets.iter().map(|subnet| subnet_step(subnet.id, None, Some(subnet))));
    Ok(Decision { steps, outcome: Outcome::Network(Box::new(NetworkView { config, subnets, at: None })) })
}

fn new_subnets(input: &NetworkInput, ctx: Context, verdict: &mut FirstRefusal) -> Vec<Arc<SubnetConfig>> {
    let inputs = input.subnets.as_deref().unwrap_or_default();
    let refusal = subnet::takes_no_subnets(&input.name, input.kind.unwrap_or(NetworkKind::Manual));
    if let Some(refusal) = refusal.filter(|_| !inputs.is_empty()) {
        verdict.refuse(refusal);
    }
    let mut beside = Neighbours::of_none(&input.name);
    let mut subnets = Vec::with_capacity(inputs.len().min(limits::SUBNETS_MAX));
    for (position, subnet) in (0..).zip(inputs) {
        let path = format!("subnets[{position}].");
        // Nothing has been granted yet, so the pools are as old as the network.
        let place = SubnetPlace { id: subnet_id(ctx.entropy, position), position, since: Generation(0) };
        let subnet = subnet::build(&input.name, subnet, place, &path, verdict);
        beside.admit(&subnet, Some(&path), verdict);
        subnets.push(Arc::new(subnet));
    }
    BoundedCounts::of(&subnets).check(BoundedCounts::default(), "subnets", verdict);
    subnets
}

/// `network.update`. The catalog checks whether a new name is free.
pub(super) fn update(mut draft: ConfigDraft<'_>, set: &NetworkPatch, ctx: Context) -> Result<Decision, Refusal> {
    if *set == NetworkPatch::default() {
        draft.refuse(empty_set());
    }
    let ConfigDraft { config, verdict, .. } = &mut draft;
    match &set.l2 {
        Patch::Keep => {}
        Patch::Clear => config.l2 = L2::default(),
        Patch::Set(members) => {
            patch_option(&mut config.l2.mode, &members.mode);
            patch_option(&mut config.l2.link, &members.link);
            patch_option(&mut config.l2.mac_prefix, &members.mac_prefix);
            if members.mac_prefix.given().is_some() {
                normalize_mac_prefix(&mut config.l2, "set.l2.mac_prefix", verdict);
            }
        }
    }
    patch(&mut config.policy, &set.policy, Policy::Lowest);
    patch(&mut config.cooldown_seconds, &set.cooldown_seconds, 0);
    check_cooldown(config.cooldown_seconds, "set.cooldown_seconds", verdict);
    patch(&mut config.cooldown_yields, &set.cooldown_yields, false);
    patch(&mut config.static_only, &set.static_only, false);
    patch(&mut config.protected, &set.protected, false);
    match &set.limits {
        Patch::Keep => {}
        Patch::Clear => config.limits = Limits::default(),
        Patch::Set(members) => {
            patch_option(&mut config.limits.per_owner, &members.per_owner);
            patch_option(&mut config.limits.per_scope, &members.per_scope);
        }
    }
    patch_tags(&mut config.tags, &set.tags, "set.tags", verdict);
    patch(&mut config.description, &set.description, CompactString::default());
    if let Some(entries) = &set.subnets {
        subnets::replace(&mut draft, entries, ctx);
    }
    // The name changes last, so that refusals name the network as it is called now.
    if let Some(name) = &set.name {
        draft.config.name = name.clone();
    }
    draft.finish(EventKind::NetworkChanged)?.answer_network()
}

/// `network.delete`. `purge` closes the network like `force`, but for good. Whoever asked for it then releases slice by
/// slice; if that is interrupted, whichever node has the network goes on.
pub(super) fn delete(mut draft: ConfigDraft<'_>, force: bool, purge: bool) -> Result<Decision, Refusal> {
    let network = draft.network;
    let (id, name, was_closed) = (draft.config.id, draft.config.name.clone(), draft.config.closed);
    let holding = network.reservations();
    if draft.config.protected {
        let problem =
            format!("network `{name}` is protected; set `protected: false` with network.update before you delete it");
        let Standing { count, first } = network.all_standing();
        draft.refuse(Refusal::Guarded { problem, count, first });
    } else if holding > 0 && !force && !purge {
        draft.refuse(network.stands_against(format!("network `{name}`"), network.all_standing()));
    }
    let outcome = Outcome::Deleted { id, holding };
    if holding > 0 {
        draft.config.closed = true;
        draft.config.purged |= purge;
        let mut decision = draft.finish(EventKind::NetworkDeleted)?.answer(outcome)?;
        if was_closed {
            // The history records this only once.
            decision.steps.iter_mut().for_each(|step| step.event = None);
        }
        return Ok(decision);
    }
    let remembered = network.holdings.ascending(Bound::Unbounded).take(FORGOTTEN_ENTRIES_MAX + 1);
    draft.leaving = remembered.map(|(address, entry)| leaving_step(address, entry)).collect();
    if draft.leaving.len() > FORGOTTEN_ENTRIES_MAX {
        // Too much for one commit: the network is closed now, and ends when the rest is gone.
        draft.leaving.pop();
        draft.config.closed = true;
        let steps = slice_of_closed(draft)?;
        return Ok(Decision { steps, outcome });
    }
    draft.verdict.end()?;
    let mut steps = draft.leaving;
    steps.extend(network.subnets().iter().map(|gone| subnet_step(gone.id, Some(gone), None)));
    let event = (!was_closed).then_some(Event { kind: EventKind::NetworkDeleted, before: None });
    steps.push(Step { key: Key::Config, expect: Some(network.config().version.0), state: None, event });
    Ok(Decision { steps, outcome })
}

/// Closes a network unless it is closed, and forgets one slice of entries. In a closed network, nothing else changes.
fn slice_of_closed(draft: ConfigDraft<'_>) -> Result<Vec<Step>, Refusal> {
    let was_closed = draft.network.config().closed;
    let mut steps = draft.finish(EventKind::NetworkDeleted)?.steps;
    if was_closed {
        steps.retain(|step| step.key != Key::Config);
    }
    Ok(steps)
}

/// `network.restore`. The catalog checks whether its name is still free. A network that is not closed is answered as it is.
pub(super) fn restore(mut draft: ConfigDraft<'_>) -> Result<Decision, Refusal> {
    (draft.config.closed, draft.config.purged) = (false, false);
    draft.finish(EventKind::NetworkRestored)?.answer_network()
}

impl Network {
    /// Members in which the network differs from what is asked for. What is not said is not compared, and neither is the name.
    pub fn differs_from(&self, input: &NetworkInput) -> Vec<&'static str> {
        let config = self.config();
        let mut differs = Vec::new();
        let mut compare = |member, equal: bool| {
            if !equal {
                differs.push(member);
            }
        };
        compare("realm", input.realm.as_ref().is_none_or(|realm| *realm == config.realm));
        compare("kind", input.kind.is_none_or(|kind| kind == config.kind));
        compare("l2", input.l2.as_ref().is_none_or(|l2| holds_l2(&config.l2, l2)));
        compare("policy", input.policy.is_none_or(|policy| policy == config.policy));
        compare("cooldown_seconds", input.cooldown_seconds.is_none_or(|seconds| seconds == config.cooldown_seconds));
        compare("cooldown_yields", input.cooldown_yields.is_none_or(|yields| yields == config.cooldown_yields));
        compare("static_only", input.static_only.is_none_or(|flag| flag == config.static_only));
        compare("protected", input.protected.is_none_or(|flag| flag == config.protected));
        compare("limits", input.limits.is_none_or(|limits| holds_limits(config.limits, limits)));
        compare("tags", input.tags.as_ref().is_none_or(|tags| *tags == config.tags));
        compare("description", input.description.as_ref().is_none_or(|text| *text == config.description));
        let equal_subnets = input.subnets.as_ref().is_none_or(|inputs| {
            let there = |input: &SubnetInput| self.subnets().iter().find(|subnet| subnet.cidr == input.cidr);
            let equal = |subnet: &Arc<SubnetConfig>, input| subnet::differs_from(subnet, input).is_empty();
            inputs.len() == self.subnets().len()
                && inputs.iter().all(|input| there(input).is_some_and(|subnet| equal(subnet, input)))
        });
        compare("subnets", equal_subnets);
        differs
    }
}

/// Does every given member equal the stored one?
fn holds_l2(stored: &L2, given: &L2) -> bool {
    let mut given = given.clone();
    normalize_mac_prefix(&mut given, "", &mut FirstRefusal::default());
    let holds = |stored: &Option<CompactString>, given: &Option<CompactString>| given.is_none() || stored == given;
    holds(&stored.mode, &given.mode) && holds(&stored.link, &given.link) && holds(&stored.mac_prefix, &given.mac_prefix)
}

fn holds_limits(stored: Limits, given: Limits) -> bool {
    let holds = |stored: Option<u64>, given: Option<u64>| given.is_none() || stored == given;
    holds(stored.per_owner, given.per_owner) && holds(stored.per_scope, given.per_scope)
}

/// Writes a MAC prefix in lower case, so that it has only one spelling. Refuses what is not a MAC prefix.
fn normalize_mac_prefix(l2: &mut L2, field: &str, verdict: &mut FirstRefusal) {
    let Some(prefix) = &mut l2.mac_prefix else { return };
    *prefix = prefix.to_ascii_lowercase();
    if let Err(refusal) = forms::mac_prefix(prefix, field) {
        verdict.refuse(refusal);
    }
}

fn check_cooldown(seconds: u64, field: &str, verdict: &mut FirstRefusal) {
    if seconds > limits::DURATION_SECONDS_MAX {
        let problem = format!("is {seconds}, but at most {} are allowed", limits::DURATION_SECONDS_MAX);
        verdict.refuse(Refusal::invalid(field, problem));
    }
}
