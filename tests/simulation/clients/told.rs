//! What clients make of answers: the record of the checker, and what they may believe.

use std::net::IpAddr;

use rand::Rng;
use serde_json::{Value, json};

use super::{Ask, Client, Clients, EXTRAS, Kind, LEASE_SURE_PERMILLE, Lingering, Open, Trade};
use crate::belief::{Belief, Held};
use crate::record::{Asked, Call, Holder, Span, Told};
use crate::truth::Shown;
use crate::world::{Flaw, World};

/// What came back.
pub(super) enum Answer {
    Result(Value),
    Refused(String, Value),
    /// Nobody knows.
    Lost,
}

impl Clients {
    /// Lines of a node are here.
    pub fn receive(world: &mut World, connection: u64, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let answer: Value = match serde_json::from_slice(line) {
                Ok(answer) => answer,
                Err(error) => {
                    let text = String::from_utf8_lossy(line).into_owned();
                    world.clients.problem(format!("no JSON: {error}: {text}"));
                    continue;
                }
            };
            if let Some((awaited, told)) = &mut world.clients.audit
                && *awaited == connection
            {
                *told = Some(answer);
                continue;
            }
            if Self::watched(world, connection, &answer) {
                continue;
            }
            let id = answer["id"].as_u64();
            let of = |client: &Client| client.route.as_ref().is_some_and(|route| route.connection == connection);
            let Some(at) = world.clients.all.iter().position(of) else {
                // Nobody waits for it, but it is over now.
                let now_ns = world.stamp_ns();
                world.clients.over(now_ns, |lingers, _| Some(lingers) == id);
                continue;
            };
            let (flaw, now_ms, is_waiter) =
                (world.plan.flaw, world.now_ms, world.clients.all[at].trade == Trade::Waiter);
            let open = &mut world.clients.all[at].open;
            let Some(place) = open.iter().position(|open| Some(open.id) == id) else {
                world.clients.problem(format!("an answer that nobody asked for: {answer}"));
                continue;
            };
            let waits = matches!(&open[place].ask, Ask::Allocate(_))
                && is_waiter
                && now_ms > open[place].sent_ns / 1_000_000 + 300;
            if waits && flaw == Some(Flaw::WaiterForgotten) {
                continue;
            }
            let open = open.remove(place);
            world.note(|| format!("client {at} is told {}", String::from_utf8_lossy(line)));
            let answer = match answer.get("error") {
                None => Answer::Result(answer["result"].clone()),
                Some(error) => {
                    let kind = error["data"]["kind"].as_str().unwrap_or_default().to_owned();
                    let unknown = kind == "unavailable" && error["data"]["applied"] == "unknown";
                    if kind == "internal" {
                        world.clients.problem(format!("a bug: {error}"));
                    }
                    if unknown { Answer::Lost } else { Answer::Refused(kind, error.clone()) }
                }
            };
            Self::told(world, at, open, answer);
            Self::go_on(world, at);
        }
    }

    /// All is answered: the next turn comes after a while.
    fn go_on(world: &mut World, at: usize) {
        if world.clients.all[at].open.is_empty() {
            let client = &mut world.clients.all[at];
            client.turn += 1;
            let turned_away = std::mem::take(&mut client.turned_away);
            let think = match world.clients.all_made() {
                false => 20,
                true if turned_away => world.draws.random_range(200..800),
                true => [5, 60, 250, 700][world.draws.random_range(0..4)],
            };
            world.after(think, move |world| Self::turn(world, at));
        }
    }

    pub(super) fn lose_patience(world: &mut World, at: usize, turn: u64) {
        let client = &mut world.clients.all[at];
        if client.turn != turn || client.open.is_empty() {
            return;
        }
        let node = client.route.as_ref().map(|route| route.node);
        client.ghosts.extend(client.route.take());
        let open = std::mem::take(&mut client.open);
        world.hit("client lost patience");
        world.note(|| format!("client {at} loses patience"));
        for open in open {
            if let Some(node) = node {
                world.clients.lingers(at, node, &open);
            }
            world.clients.given_up = node.map(|node| (open.id, node));
            Self::told(world, at, open, Answer::Lost);
            world.clients.given_up = None;
        }
        Self::go_on(world, at);
    }

    /// A node may still carry out what nobody waits for.
    fn lingers(&mut self, at: usize, node: usize, open: &Open) {
        let (slots, grants, releases): (Vec<usize>, bool, bool) = match &open.ask {
            Ask::Allocate(slot) | Ask::Renew(slot) => (vec![*slot], true, false),
            Ask::Claim { slot, replace, .. } => (vec![*slot], true, *replace),
            Ask::Release(slot) => (vec![*slot], false, true),
            Ask::Transfer { from, to } => {
                let over_ns = u64::MAX;
                let of = |grants, releases| Lingering { id: open.id, node, grants, releases, over_ns };
                self.all[at].slots[*from].lingering.push(of(false, true));
                self.all[at].slots[*to].lingering.push(of(true, false));
                return;
            }
            Ask::Acquire(pair) => (pair.to_vec(), true, false),
            Ask::Sweep { dead, .. } => (dead.clone(), false, true),
            _ => return,
        };
        for slot in slots {
            let lingering = Lingering { id: open.id, node, grants, releases, over_ns: u64::MAX };
            self.all[at].slots[slot].lingering.push(lingering);
        }
    }

    /// These, by number and node, are carried out by now, or never will be.
    fn over(&mut self, now_ns: u64, is_over: impl Fn(u64, usize) -> bool) {
        let slots = self.all.iter_mut().flat_map(|client| &mut client.slots);
        for lingering in slots.flat_map(|slot| &mut slot.lingering) {
            if is_over(lingering.id, lingering.node) {
                lingering.over_ns = lingering.over_ns.min(now_ns);
            }
        }
        for (id, node, place) in std::mem::take(&mut self.under_way) {
            if is_over(id, node) {
                self.calls[place].told_ns = now_ns;
            } else {
                self.under_way.push((id, node, place));
            }
        }
    }

    /// A node is no more: who waited for it learns nothing.
    pub fn node_gone(world: &mut World, node: usize) {
        let now_ns = world.stamp_ns();
        world.clients.watchers.iter_mut().for_each(|watcher| watcher.node_gone(node));
        world.clients.over(now_ns, |_, at| at == node);
        for at in 0..world.clients.all.len() {
            let client = &mut world.clients.all[at];
            if client.route.as_ref().is_none_or(|route| route.node != node) {
                continue;
            }
            client.route = None;
            let open = std::mem::take(&mut client.open);
            if open.is_empty() {
                continue; // Its next turn is on its way.
            }
            world.hit("connection broke");
            for open in open {
                Self::told(world, at, open, Answer::Lost);
            }
            Self::go_on(world, at);
        }
    }

    pub(super) fn told(world: &mut World, at: usize, open: Open, answer: Answer) {
        let told_ns = world.stamp_ns();
        let Open { ask, sent_ns, .. } = open;
        let waited = world.clients.all[at].trade == Trade::Waiter && told_ns > sent_ns + 400_000_000;
        world.hit(match &answer {
            Answer::Result(_) if waited && matches!(ask, Ask::Allocate(_)) => "served after a wait",
            Answer::Result(result) if matches!(ask, Ask::Sweep { .. }) && result["released"] != json!([]) => "swept",
            Answer::Result(_) => name_of(&ask),
            Answer::Refused(kind, error) => match kind.as_str() {
                "unavailable" => "refused: unavailable",
                "not_ready" => "refused: not ready",
                "not_enough_capacity" if error["data"]["waited_ms"].is_u64() => "refused: waited in vain",
                "not_enough_capacity" => "refused: full",
                "already_in_use" | "already_exists" | "overlap" | "in_use" => "refused: taken",
                "conflict" | "not_owner" => "refused: stale",
                "brake" => "refused: brake",
                _ => "refused otherwise",
            },
            Answer::Lost => "outcome unknown",
        });
        if let Answer::Refused(kind, error) = &answer {
            let about_network = error["message"].as_str().is_some_and(|message| message.starts_with("network "));
            let extra = matches!(ask, Ask::Create(_) | Ask::Delete(_) | Ask::Rename { .. });
            if kind == "not_found" && about_network && !extra {
                world.clients.problem(format!("a network is gone: {ask:?}: {error}"));
                return;
            }
            if matches!(kind.as_str(), "unavailable" | "not_ready" | "overloaded") {
                // Certainly nothing was changed, and nothing was said.
                world.clients.all[at].turned_away = true;
                return;
            }
        }
        let clients = &mut world.clients;
        clients.understand(at, ask, (sent_ns, told_ns), &answer);
        for slot in &mut clients.all[at].slots {
            slot.linger(sent_ns, told_ns);
        }
    }

    fn understand(&mut self, at: usize, ask: Ask, (sent_ns, told_ns): (u64, u64), answer: &Answer) {
        let clients = self;
        match ask {
            Ask::Allocate(slot) => clients.told_grant(at, slot, (sent_ns, told_ns), None, answer),
            Ask::Claim { slot, address, replace } => {
                clients.told_grant(at, slot, (sent_ns, told_ns), Some((address, replace)), answer);
            }
            Ask::Release(slot) => clients.told_release(at, slot, (sent_ns, told_ns), answer),
            Ask::ReleaseDead(slot) => {
                if let Answer::Result(result) = answer
                    && result["released"].as_array().is_some_and(|released| !released.is_empty())
                {
                    let slot = &clients.all[at].slots[slot];
                    let problem = format!("a release of what was over let go of another's: {slot:?}: {result}");
                    clients.problem(problem);
                }
            }
            Ask::Renew(slot) => clients.told_renewal(at, slot, (sent_ns, told_ns), answer),
            Ask::Transfer { from, to } => clients.told_transfer(at, (from, to), (sent_ns, told_ns), answer),
            Ask::Acquire(pair) => clients.told_acquire(at, pair, (sent_ns, told_ns), answer),
            Ask::Look { base, address } => {
                if let Answer::Result(result) = answer {
                    let network = clients.bases[base].name.clone();
                    let generation = result["reservation"]["generation"].as_u64();
                    let address = u128::from(address);
                    clients.looks.push(Shown { network, address, sent_ns, told_ns, generation });
                }
            }
            Ask::List(base) => {
                if let Answer::Result(result) = answer {
                    clients.listed(base, (sent_ns, told_ns), result);
                }
            }
            Ask::Apply(variant) => clients.told_apply(at, variant, (sent_ns, told_ns), answer),
            Ask::Settle { plan, revert } => clients.told_settle(at, (plan, revert), (sent_ns, told_ns), answer),
            Ask::Deployment => {
                if let Answer::Result(result) = answer {
                    clients.told_deployment(result, (sent_ns, told_ns));
                }
            }
            Ask::Mark { half, .. } => clients.told_mark(at, half, answer),
            Ask::Sweep { dead, grace_seconds, by_mark } => {
                clients.told_sweep(at, (&dead, by_mark.is_some()), grace_seconds, (sent_ns, told_ns), answer);
            }
            Ask::Networks => {
                if let Answer::Result(result) = answer {
                    clients.told_networks(result);
                }
            }
            Ask::Make(base) => {
                if let Answer::Result(result) = answer {
                    clients.bases[base].made = true;
                    clients.bases[base].id = result["id"].as_str().map(str::to_owned);
                }
            }
            Ask::Create(extra) => clients.told_create(extra, (sent_ns, told_ns), answer),
            Ask::Delete(extra) => clients.told_delete(extra, (sent_ns, told_ns), answer),
            Ask::Rename { extra, back } => clients.told_rename(extra, back, told_ns, answer),
            Ask::AddSubnet(base) => clients.told_subnet(base, true, answer),
            Ask::RemoveSubnet(base) => clients.told_subnet(base, false, answer),
        }
    }

    pub(super) fn record(&mut self, holder: Holder, asked: Asked, (sent_ns, told_ns): (u64, u64), told: Told) {
        let told_ns = match self.given_up {
            Some((id, node)) => {
                self.under_way.push((id, node, self.calls.len()));
                u64::MAX
            }
            None => told_ns,
        };
        self.calls.push(Call { holder, asked, sent_ns, told_ns, told });
    }

    /// A slot is shown with what it holds.
    fn shown(&mut self, at: usize, slot: usize, times: (u64, u64), result: &Value, created: bool, replaces: bool) {
        let Some((span, generation)) = span_of(result) else {
            return self.problem(format!("no reservation: {result}"));
        };
        let one = &mut self.all[at].slots[slot];
        let until_ns = match one.kind {
            Kind::Lease(seconds) => Some(times.0 + seconds * 1_000_000 * LEASE_SURE_PERMILLE),
            Kind::Plain | Kind::Block(_) | Kind::Pair(_) | Kind::Wait(_) | Kind::Used => None,
        };
        // Whoever uses it was heard of.
        one.missed_ns = None;
        let holder = one.holder.clone();
        let (network, address, (sent_ns, told_ns)) = (holder.network.clone(), span.0, times);
        self.shown.push(Shown { network, address, sent_ns, told_ns, generation: Some(generation) });
        let held = Held { generation, span, until_ns };
        let before = one.belief.held.filter(|before| before.generation != generation);
        if replaces && created {
            one.belief.absent = true;
        }
        let wrong = one.belief.told_held(times.1, held, created);
        if let Some(before) = before {
            one.dead = Some((before.generation, before.span));
        }
        if let Some(wrong) = wrong {
            self.problem(format!("{holder:?} holds {wrong}"));
        }
        if before.is_some() && replaces && created {
            self.record(holder.clone(), Asked::Release, times, Told::Released);
        }
        let key = (holder.network.clone(), generation);
        let known = self.generations.insert(key, (holder.clone(), span));
        if known.is_some_and(|known| known != (holder.clone(), span) || created) {
            self.problem(format!("generation {generation} was given before {holder:?} got it for {span:?}"));
        }
        self.record(holder, Asked::Grant, times, Told::Held { span, generation, created, until_ns });
    }

    fn told_grant(&mut self, at: usize, slot: usize, times: (u64, u64), claim: Option<(u32, bool)>, answer: &Answer) {
        let replace = claim.is_some_and(|(_, replace)| replace);
        let one = &mut self.all[at].slots[slot];
        let holder = one.holder.clone();
        match answer {
            Answer::Result(result) => {
                self.shown(at, slot, times, result, result["created"] == true, replace);
            }
            Answer::Lost => {
                one.belief.doubtful_grant(times.1, replace);
                if replace {
                    one.belief.doubtful_release();
                    // It may have lost what it had, in favour of the new one.
                    self.record(holder.clone(), Asked::Release, times, Told::Unknown);
                }
                self.record(holder, Asked::Grant, times, Told::Unknown);
            }
            Answer::Refused(kind, error) => {
                let sure = one.belief.surely(times.1);
                let wrong = match (kind.as_str(), sure, claim) {
                    ("not_enough_capacity", Some(held), _) => Some(format!("it held {held:?}")),
                    ("already_in_use", Some(held), Some((address, _))) if held.span.0 == u128::from(address) => {
                        Some(format!("it held {held:?} itself"))
                    }
                    ("already_exists", _, _) if !one.belief.may_hold() => Some("it held nothing".to_owned()),
                    _ => None,
                };
                if kind == "not_enough_capacity" {
                    one.belief = Belief::default();
                    if claim.is_none() {
                        self.told_full(at, slot, times, error);
                    }
                }
                if let Some(wrong) = wrong {
                    self.problem(format!("{holder:?} was refused {error}, but {wrong}"));
                }
                self.record(holder, Asked::Grant, times, Told::Refused(kind.clone()));
            }
        }
    }

    fn told_release(&mut self, at: usize, slot: usize, times: (u64, u64), answer: &Answer) {
        if let (Kind::Pair(other), Answer::Result(_) | Answer::Lost) = (self.all[at].slots[slot].kind, answer) {
            self.all[at].slots[slot].joint_doubt = false;
            self.all[at].slots[other].joint_doubt = false;
        }
        let one = &mut self.all[at].slots[slot];
        let holder = one.holder.clone();
        let told = match answer {
            Answer::Result(result) => {
                let released = result["released"].as_array().is_some_and(|released| !released.is_empty());
                one.dead = one.belief.held.map(|held| (held.generation, held.span)).or(one.dead);
                if let Some(wrong) = one.belief.told_absent(times.1, released) {
                    self.problem(format!("{holder:?} {wrong}"));
                }
                if released { Told::Released } else { Told::Nothing }
            }
            Answer::Lost => {
                one.belief.doubtful_release();
                Told::Unknown
            }
            Answer::Refused(kind, _) => Told::Refused(kind.clone()),
        };
        self.record(holder, Asked::Release, times, told);
    }

    fn told_renewal(&mut self, at: usize, slot: usize, times: (u64, u64), answer: &Answer) {
        match answer {
            Answer::Result(result) => self.shown(at, slot, times, result, false, false),
            // It may only last longer.
            Answer::Lost => {}
            Answer::Refused(kind, error) => {
                let one = &mut self.all[at].slots[slot];
                if kind == "not_found" {
                    let holder = one.holder.clone();
                    if let Some(wrong) = one.belief.told_absent(times.1, false) {
                        self.problem(format!("{holder:?} was refused {error}: {wrong}"));
                    }
                }
            }
        }
    }

    fn told_transfer(&mut self, at: usize, (from, to): (usize, usize), times: (u64, u64), answer: &Answer) {
        match answer {
            Answer::Result(result) => {
                let shown = &result["reservations"][0];
                let already = (self.all[at].slots[to].belief.held)
                    .is_some_and(|held| Some(held.generation) == shown["generation"].as_u64());
                let source = &mut self.all[at].slots[from];
                let holder = source.holder.clone();
                source.dead = source.belief.held.map(|held| (held.generation, held.span)).or(source.dead);
                let wrong = source.belief.told_absent(times.1, !already);
                if let Some(wrong) = wrong {
                    self.problem(format!("{holder:?} {wrong}"));
                }
                self.record(holder, Asked::Release, times, Told::Released);
                self.shown(at, to, times, shown, !already, false);
            }
            Answer::Lost => {
                let slots = &mut self.all[at].slots;
                slots[from].belief.doubtful_release();
                slots[to].belief.doubtful_grant(times.1, false);
                let (one, other) = (slots[from].holder.clone(), slots[to].holder.clone());
                self.record(one, Asked::Release, times, Told::Unknown);
                self.record(other, Asked::Grant, times, Told::Unknown);
            }
            Answer::Refused(..) => {}
        }
    }

    fn told_acquire(&mut self, at: usize, pair: [usize; 2], times: (u64, u64), answer: &Answer) {
        match answer {
            Answer::Result(result) => {
                let shown = result["reservations"].as_array().cloned().unwrap_or_default();
                if shown.len() != 2 {
                    return self.problem(format!("half of an acquire: {result}"));
                }
                let created = [shown[0]["created"] == true, shown[1]["created"] == true];
                if self.all[at].slots[pair[0]].joint_doubt && created[0] != created[1] {
                    self.problem(format!("half of an acquire of unknown fate took effect: {result}"));
                }
                for (place, slot) in pair.into_iter().enumerate() {
                    self.all[at].slots[slot].joint_doubt = false;
                    self.shown(at, slot, times, &shown[place], created[place], false);
                }
            }
            Answer::Lost => {
                let slots = &mut self.all[at].slots;
                let joint = pair.iter().all(|slot| slots[*slot].belief.is_absent() || slots[*slot].joint_doubt);
                for slot in pair {
                    let slots = &mut self.all[at].slots;
                    slots[slot].joint_doubt = joint;
                    slots[slot].belief.doubtful_grant(times.1, false);
                    let holder = slots[slot].holder.clone();
                    self.record(holder, Asked::Grant, times, Told::Unknown);
                }
            }
            Answer::Refused(kind, error) => {
                let slots = &self.all[at].slots;
                if pair.iter().all(|slot| slots[*slot].belief.surely(times.1).is_some()) && kind != "invalid_argument" {
                    let holder = slots[pair[0]].holder.clone();
                    self.problem(format!("{holder:?} holds both that it acquires, and was refused {error}"));
                }
            }
        }
    }

    pub(super) fn told_networks(&mut self, result: &Value) {
        let empty = Vec::new();
        let networks = result["networks"].as_array().unwrap_or(&empty);
        for at in 0..self.bases.len() {
            if self.bases[at].made && !networks.iter().any(|network| network["name"] == self.bases[at].name.as_str()) {
                let problem = format!("{} is not in the list of networks: {result}", self.bases[at].name);
                self.problem(problem);
            }
        }
    }

    fn told_create(&mut self, extra: usize, times: (u64, u64), answer: &Answer) {
        let holder = extra_holder(extra);
        match answer {
            Answer::Result(result) => {
                let id = result["id"].as_str().unwrap_or_default().to_owned();
                let (created, held) = (result["created"] == true, extra_held(&id));
                let one = &mut self.extras[extra];
                let wrong = one.belief.told_held(times.1, held, created);
                one.id = Some(id);
                if let Some(wrong) = wrong {
                    self.problem(format!("network {holder:?}: {wrong}"));
                }
                let (span, generation) = (held.span, held.generation);
                self.record(holder, Asked::Grant, times, Told::Held { span, generation, created, until_ns: None });
            }
            Answer::Lost => {
                self.extras[extra].belief.doubtful_grant(times.1, false);
                self.record(holder, Asked::Grant, times, Told::Unknown);
            }
            Answer::Refused(kind, error) => {
                let others = self.extras.iter().enumerate();
                // A rename that nobody waits for may put it in its own way.
                let itself = error["data"]["with"]["network"].as_str().is_some_and(|it| it.starts_with(EXTRAS[extra]));
                let in_the_way =
                    others.filter(|(at, _)| *at != extra).any(|(_, other)| other.belief.may_hold()) || itself;
                if kind == "overlap" && !in_the_way {
                    self.problem(format!("nothing was in the way of {}: {error}", EXTRAS[extra]));
                }
            }
        }
    }

    fn told_delete(&mut self, extra: usize, times: (u64, u64), answer: &Answer) {
        let holder = extra_holder(extra);
        let one = &mut self.extras[extra];
        let (told, wrong) = match answer {
            Answer::Result(_) => (Told::Released, one.belief.told_absent(times.1, true)),
            Answer::Lost => {
                one.belief.doubtful_release();
                (Told::Unknown, None)
            }
            Answer::Refused(kind, _) if kind == "not_found" => {
                // By its id: under its name there may be another one by now, of which nobody was told.
                let wrong = one.belief.surely(times.1).map(|held| format!("is not found: {held:?}"));
                (one.belief.held, one.belief.absent) = (None, true);
                (Told::Nothing, wrong)
            }
            Answer::Refused(kind, _) => (Told::Refused(kind.clone()), None),
        };
        if matches!(told, Told::Released | Told::Nothing) {
            (one.id, one.renamed) = (None, false);
        }
        if let Some(wrong) = wrong {
            self.problem(format!("network {holder:?} {wrong}"));
        }
        self.record(holder, Asked::Release, times, told);
    }

    fn told_rename(&mut self, extra: usize, back: bool, told_ns: u64, answer: &Answer) {
        let one = &mut self.extras[extra];
        match answer {
            Answer::Result(_) => one.renamed = !back,
            Answer::Lost => one.renamed = true,
            Answer::Refused(kind, error) if kind == "not_found" => {
                let wrong = one.belief.surely(told_ns).map(|held| format!("network {extra} {held:?}: {error}"));
                one.belief.told_absent(told_ns, false);
                (one.id, one.renamed) = (None, false);
                if let Some(wrong) = wrong {
                    self.problem(wrong);
                }
            }
            Answer::Refused(..) => {}
        }
    }

    fn told_subnet(&mut self, base: usize, added: bool, answer: &Answer) {
        let (present, absent) = self.bases[base].extra;
        let wrong = match answer {
            Answer::Result(result) if added => {
                self.bases[base].extra = (true, false);
                let possible = if result["created"] == true { absent } else { present };
                (!possible).then(|| format!("added: {result}"))
            }
            Answer::Result(_) => {
                self.bases[base].extra = (false, true);
                (!present).then(|| "removed, and was not there".to_owned())
            }
            Answer::Lost => {
                self.bases[base].extra = (present || added, absent || !added);
                None
            }
            Answer::Refused(kind, error) if kind == "not_found" => {
                self.bases[base].extra = (false, true);
                (!absent).then(|| format!("{error}"))
            }
            Answer::Refused(..) => None,
        };
        if let Some(wrong) = wrong {
            let problem = format!("the extra subnet of {}: {wrong}", self.bases[base].name);
            self.problem(problem);
        }
    }
}

fn name_of(ask: &Ask) -> &'static str {
    match ask {
        Ask::Allocate(_) => "allocate",
        Ask::Claim { replace: true, .. } => "claim with replace",
        Ask::Claim { .. } => "claim",
        Ask::Release(_) => "release",
        Ask::ReleaseDead(_) => "release of what is over",
        Ask::Renew(_) => "renew",
        Ask::Transfer { .. } => "transfer",
        Ask::Acquire(_) => "acquire over two networks",
        Ask::Look { .. } => "get",
        Ask::List(_) => "list",
        Ask::Apply(_) => "apply",
        Ask::Settle { revert: false, .. } => "deployment commit",
        Ask::Settle { revert: true, .. } => "deployment revert",
        Ask::Deployment => "deployment get",
        Ask::Mark { .. } => "mark",
        Ask::Sweep { by_mark: Some(_), .. } => "sweep by marks",
        Ask::Sweep { .. } => "sweep",
        Ask::Networks => "network list",
        Ask::Make(_) | Ask::Create(_) => "network create",
        Ask::Delete(_) => "network delete",
        Ask::Rename { .. } => "network rename",
        Ask::AddSubnet(_) => "subnet add",
        Ask::RemoveSubnet(_) => "subnet remove",
    }
}

/// Networks compete for space as holders do for addresses.
fn extra_holder(extra: usize) -> Holder {
    Holder { network: "(space)".to_owned(), owner: EXTRAS[extra].to_owned(), slot: "0".to_owned() }
}

fn extra_held(id: &str) -> Held {
    let hash = xxhash_rust::xxh3::xxh3_64(id.as_bytes());
    let first = u128::from(u32::from_be_bytes([10, 200, 0, 0]));
    Held { generation: hash, span: (first, first + 7), until_ns: None }
}

pub(super) fn span_of(reservation: &Value) -> Option<(Span, u64)> {
    let address: IpAddr = reservation["address"].as_str()?.parse().ok()?;
    let IpAddr::V4(address) = address else { return None };
    let first = u128::from(u32::from(address));
    let length = reservation["prefix_length"].as_u64()?;
    let generation = reservation["generation"].as_u64()?;
    Some(((first, first + (1 << (32 - length)) - 1), generation))
}
