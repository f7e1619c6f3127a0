//! How clients take answers: into the checker's record, and into what they may believe.

use std::net::IpAddr;

use rand::Rng;
use serde_json::{Value, json};

use super::{Ask, Client, Clients, Lingering, Open, Trade};
use crate::record::{Asked, Call, Holder, Span, Told};

pub(super) use crate::in_process::Answer;
use crate::truth::Shown;
use crate::world::{Flaw, World};

impl Clients {
    /// Lines from a node arrive at their client.
    pub fn receive(world: &mut World, connection: u64, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let mut answer: Value = match serde_json::from_slice(line) {
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
                // No client waits for this answer, but the request is certainly over now.
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
            let waits = matches!(&open[place].ask, Ask::Allocate(_) | Ask::Acquire(_))
                && is_waiter
                && now_ms > open[place].sent_ns / 1_000_000 + 300;
            if waits && flaw == Some(Flaw::WaiterForgotten) {
                continue;
            }
            let open = open.remove(place);
            world.note(|| format!("client {at} is told {}", String::from_utf8_lossy(line)));
            let answer = Answer::of(&mut answer, |problem| world.clients.problem(problem));
            Self::told(world, at, open, answer);
            Self::go_on(world, at);
        }
    }

    /// If all requests are answered, schedules the next turn.
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

    /// Gives all open requests up before going on, so that the turn does not end with one of them.
    pub(super) fn lose_patience(world: &mut World, at: usize) {
        let client = &mut world.clients.all[at];
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

    /// Notes that a node may still carry out a request for which no client waits.
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

    /// Notes that the chosen requests (by number and node) are carried out by now, or never will be.
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

    /// A node is gone: clients that waited for its answers learn nothing.
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
                continue; // Its next turn is scheduled already.
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
            Answer::Result(_) if waited && matches!(ask, Ask::Acquire(_)) => "served with two after a wait",
            Answer::Result(result) if matches!(ask, Ask::Sweep { .. }) && result["released"] != json!([]) => "swept",
            Answer::Result(_) => name_of(&ask),
            Answer::Refused(kind, error) => match kind.as_str() {
                "unavailable" => "refused: unavailable",
                "not_ready" => "refused: not ready",
                "not_enough_capacity" if error["data"]["waited_ms"].is_u64() => match ask {
                    Ask::Acquire(_) => "refused: waited in vain for two",
                    _ => "refused: waited in vain",
                },
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
                // Nothing was changed, for certain, and nothing was learned.
                world.clients.all[at].turned_away = true;
                return;
            }
        }
        if let (Ask::Allocate(slot) | Ask::Claim { slot, .. }, Answer::Result(result)) = (&ask, &answer)
            && result["created"] == false
        {
            let known = world.clients.all[at].slots[*slot].belief.held.is_some();
            world.hit(if known { "grant repeated" } else { "grant of unknown fate repeated" });
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

pub(super) fn span_of(reservation: &Value) -> Option<(Span, u64)> {
    let address: IpAddr = reservation["address"].as_str()?.parse().ok()?;
    let IpAddr::V4(address) = address else { return None };
    let first = u128::from(u32::from(address));
    let length = reservation["prefix_length"].as_u64()?;
    let generation = reservation["generation"].as_u64()?;
    Some(((first, first + (1 << (32 - length)) - 1), generation))
}
