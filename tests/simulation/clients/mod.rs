//! The clients of a schedule, and how they take the answers: few holders in tiny networks, so that everything collides.
//!
//! A client has some requests under way, each for another holder, and goes on when all are answered or it loses patience. It
//! mostly asks the node that believes to own the register, but also any other one, even a sleeping one. Everything that it
//! is told goes into the record of the interval checker, and is compared with what it may believe, and in the end also with
//! what really happened (`truth`).
//!
//! `runs` deploy, the `sweeper` lets go of what the dead left, `waiters` wait for room, and each `watcher` keeps a picture
//! of a network.

mod asks;
mod end;
mod holdings;
mod networks;
mod params;
mod runs;
mod sweeper;
mod told;
mod waiters;
mod watcher;

use std::collections::{BTreeMap, HashMap};

use allod::core::types::NetworkId;
use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub use self::runs::DEPLOYMENT;
use self::runs::Runs;
use self::watcher::Watcher;
use super::belief::Belief;
use super::record::{Call, Holder, Span};
use super::truth::{Full, Listed, Shown, Truth, Waited};
use super::world::{Cast, World};

/// For how many thousandths of its length a lease is sure: clocks drift.
const LEASE_SURE_PERMILLE: u64 = 980;
/// Names of networks that come and go; they compete for one prefix.
const EXTRAS: [&str; 2] = ["extra-a", "extra-b"];
const EXTRA_CIDR: &str = "10.200.0.0/29";

/// A network that is always there.
#[derive(Debug, Clone)]
pub struct Base {
    pub name: String,
    first: u32,
    size: u32,
    policy: &'static str,
    cooldown_seconds: u64,
    made: bool,
    id: Option<String>,
    /// Of the subnet that comes and goes: may it be present, and may it be absent?
    extra: (bool, bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Every request for it has this `ttl_seconds`.
    Lease(u64),
    /// A block of this prefix length.
    Block(u8),
    /// One of two that are acquired together; this is the other one.
    Pair(usize),
    /// Where there is no room it waits for so many seconds.
    Wait(u64),
    /// One of two that are acquired together, waiting for room for both: the other one, and for how many seconds.
    PairWaits {
        other: usize,
        seconds: u64,
    },
    /// A claimant uses it; a sweep lets it go when the claimant is dead.
    Used,
}

#[derive(Debug, Clone)]
struct Slot {
    holder: Holder,
    base: usize,
    kind: Kind,
    belief: Belief,
    /// What it let go last.
    dead: Option<(u64, Span)>,
    /// Whether the fate of an acquire is unknown: it took effect for both slots or for neither.
    joint_doubt: bool,
    /// Requests for which no client waits any more, and that a node may still carry out.
    lingering: Vec<Lingering>,
    /// For a used slot: is its user dead, and when was the first sweep sent that missed the user?
    dead_user: bool,
    missed_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Lingering {
    id: u64,
    node: usize,
    grants: bool,
    releases: bool,
    /// By then it is carried out, or never will be. Requests that were sent before may still not see its effect.
    over_ns: u64,
}

impl Slot {
    fn new(holder: Holder, base: usize, kind: Kind) -> Self {
        Self {
            holder,
            base,
            kind,
            belief: Belief::default(),
            dead: None,
            joint_doubt: false,
            lingering: Vec::new(),
            dead_user: false,
            missed_ns: None,
        }
    }

    /// Takes into account that lingering requests may take effect after the answer to a request sent at `sent_ns`.
    fn linger(&mut self, sent_ns: u64, now_ns: u64) {
        self.lingering.retain(|lingering| lingering.over_ns > sent_ns);
        for lingering in &self.lingering {
            if lingering.releases {
                self.belief.doubtful_release();
            }
            if lingering.grants {
                self.belief.doubtful_grant(now_ns, lingering.releases);
            }
        }
        if !self.lingering.is_empty() {
            self.joint_doubt = false;
        }
    }
}

#[derive(Debug, Clone)]
enum Ask {
    Allocate(usize),
    Claim {
        slot: usize,
        address: u32,
        replace: bool,
    },
    Release(usize),
    ReleaseDead(usize),
    Renew(usize),
    Transfer {
        from: usize,
        to: usize,
    },
    Acquire([usize; 2]),
    Look {
        base: usize,
        address: u32,
    },
    List(usize),
    /// Asks for some instances: the number of one of the wishes.
    Apply(usize),
    Settle {
        plan: u64,
        revert: bool,
    },
    Deployment,
    /// Names the dead, by slot.
    Sweep {
        dead: Vec<usize>,
        grace_seconds: u64,
        by_mark: Option<String>,
    },
    /// Names the living, in two halves.
    Mark {
        name: String,
        half: usize,
        alive: Vec<usize>,
    },
    Networks,
    Make(usize),
    Create(usize),
    Delete(usize),
    Rename {
        extra: usize,
        back: bool,
    },
    AddSubnet(usize),
    RemoveSubnet(usize),
}

struct Open {
    id: u64,
    ask: Ask,
    sent_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Trade {
    /// Manages networks, and holds no addresses.
    Admin,
    #[default]
    Holder,
    /// Deploys, while others do the same; it knows the number of its last plan.
    Run(Option<u64>),
    Waiter,
    /// Sweeps; the number says how many halves of the living it has marked for its next sweep.
    Sweeper(usize),
}

#[derive(Default)]
struct Client {
    slots: Vec<Slot>,
    trade: Trade,
    route: Option<Route>,
    /// Connections that it no longer uses; it still hears their last answers.
    ghosts: Vec<Route>,
    open: Vec<Open>,
    /// Whether the node that it asked turned out not to own the register.
    turned_away: bool,
    /// Counts its turns: an answer or event that belongs to an earlier turn comes too late.
    turn: u64,
    ended: bool,
}

struct Route {
    node: usize,
    connection: u64,
    lines: mpsc::UnboundedSender<Vec<u8>>,
}

/// A network of [`EXTRAS`].
#[derive(Debug, Clone, Default)]
struct Extra {
    belief: Belief,
    id: Option<String>,
    renamed: bool,
}

/// All clients, and what they were told.
pub struct Clients {
    pub bases: Vec<Base>,
    all: Vec<Client>,
    extras: Vec<Extra>,
    pub calls: Vec<Call>,
    /// Addresses that were looked at, and under which generation each was held then.
    looks: Vec<Shown>,
    /// Addresses that were granted, and under which generation each was held then.
    shown: Vec<Shown>,
    lists: Vec<Listed>,
    refusals: Vec<Full>,
    /// Waits for two networks by clients that held nothing before.
    waits: Vec<Waited>,
    runs: Runs,
    /// How many sweeps by marks there were.
    sweeps: u64,
    watchers: Vec<Watcher>,
    pub problems: Vec<String>,
    /// Who was told of which generation.
    generations: HashMap<(String, u64), (Holder, Span)>,
    next_id: u64,
    next_connection: u64,
    /// The request that is being given up, with its node, which may still carry it out.
    given_up: Option<(u64, usize)>,
    /// Requests that may still be carried out: number, node, and place in the record.
    under_way: Vec<(u64, usize, usize)>,
    /// The request that is asked at the end of the schedule, with its answer.
    audit: Option<(u64, Option<Value>)>,
}

impl Clients {
    pub fn new(cast: Cast, draws: &mut SmallRng) -> Self {
        let bases: Vec<Base> = (0..draws.random_range(2..=3))
            .map(|at: usize| Base {
                name: format!("net-{at}"),
                first: u32::from_be_bytes([10, at as u8, 0, 4]),
                size: draws.random_range(2..=if cast.runs { 8 } else { 6 }),
                policy: ["lowest", "random", "oldest"][draws.random_range(0..3)],
                cooldown_seconds: if draws.random_bool(0.2) { 1 } else { 0 },
                made: false,
                id: None,
                extra: (false, true),
            })
            .collect();
        let mut all = vec![Client { trade: Trade::Admin, ..Client::default() }];
        for number in 0..draws.random_range(2..=3) {
            all.push(Client { slots: asks::slots_of(number, bases.len(), draws), ..Client::default() });
        }
        let runs = if cast.runs { 2 } else { 0 };
        all.extend((0..runs).map(|_| Client { trade: Trade::Run(None), ..Client::default() }));
        all.extend((0..cast.waiters).map(|number| waiters::new(number, bases.len(), draws)));
        all.extend((0..cast.waiters_for_two).map(|number| waiters::for_two(number, draws)));
        all.extend((0..usize::from(cast.sweeper)).map(|_| sweeper::new(bases.len(), draws)));
        let watchers = (0..usize::from(cast.watcher)).map(|_| Watcher::new(draws.random_range(0..2))).collect();
        Self {
            bases,
            all,
            extras: vec![Extra::default(); EXTRAS.len()],
            calls: Vec::new(),
            looks: Vec::new(),
            shown: Vec::new(),
            lists: Vec::new(),
            refusals: Vec::new(),
            waits: Vec::new(),
            runs: Runs::default(),
            sweeps: 0,
            watchers,
            problems: Vec::new(),
            generations: HashMap::new(),
            next_id: 0,
            next_connection: 0,
            given_up: None,
            under_way: Vec::new(),
            audit: None,
        }
    }

    pub fn all_made(&self) -> bool {
        self.bases.iter().all(|base| base.made)
    }

    pub fn is_in_turn(&self, client: usize, turn: u64) -> bool {
        self.all[client].turn == turn
    }

    pub fn all_ended(&self) -> bool {
        self.all.iter().all(|client| client.ended)
    }

    /// The networks that are always there: names and ids.
    pub fn networks(&self) -> BTreeMap<String, NetworkId> {
        let id = |base: &Base| Some((base.name.clone(), base.id.as_ref()?.parse().ok()?));
        self.bases.iter().filter_map(id).collect()
    }

    /// Compares everything that was shown with what happened.
    pub fn judge_by(&self, truth: &Truth<'_>, problems: &mut Vec<String>) {
        truth.judge_shown(&self.looks, problems);
        truth.judge_shown(&self.shown, problems);
        truth.judge_lists(&self.lists, problems);
        truth.judge_full(&self.refusals, problems);
        truth.judge_waits(&self.waits, problems);
    }

    fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    // ---- asking ----

    /// Every client but the admin begins; the admin, who made the networks, goes on.
    pub fn begin(world: &mut World) {
        for at in 0..world.clients.watchers.len() {
            let think = world.draws.random_range(0..2_000);
            world.after(think, move |world| Self::watch(world, at));
        }
        for at in 1..world.clients.all.len() {
            let think = world.draws.random_range(0..300);
            world.after(think, move |world| Self::turn(world, at));
        }
    }

    /// The client asks something, or ends.
    pub fn turn(world: &mut World, at: usize) {
        // No client ends before the networks are made, however long that takes.
        let is_over = world.calm && world.clients.all_made() && world.now_ms >= world.plan.ends_ms;
        let client = &mut world.clients.all[at];
        client.turn += 1;
        if is_over {
            client.ended = true;
            client.route = None;
            return;
        }
        let turn = client.turn;
        if !Self::route(world, at) {
            return world.after(150, move |world| Self::turn(world, at));
        }
        let asks = match world.clients.all[at].trade {
            Trade::Admin => Self::admin_asks(world),
            Trade::Holder => Self::asks(world, at),
            Trade::Run(plan) => Self::run_asks(world, plan),
            Trade::Waiter => Self::waiter_asks(world, at),
            Trade::Sweeper(marked) => Self::sweeper_asks(world, at, marked),
        };
        if asks.is_empty() {
            return world.after(200, move |world| Self::turn(world, at));
        }
        let mut text = Vec::new();
        for ask in asks {
            let (method, params) = Self::params(world, at, &ask);
            world.clients.next_id += 1;
            let id = world.clients.next_id;
            let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
            world.note(|| format!("client {at} asks {line}"));
            text.extend_from_slice(line.as_bytes());
            text.push(b'\n');
            let sent_ns = world.stamp_ns();
            world.clients.all[at].open.push(Open { id, ask, sent_ns });
        }
        let Some(route) = &world.clients.all[at].route else { return };
        let (connection, node) = (route.connection, route.node);
        world.note(|| format!("client {at} sends to node-{node}"));
        let latency = world.draws.random_range(1..4);
        world.after(latency, move |world| {
            if let Some(route) = world.clients.all[at].route.as_ref().filter(|route| route.connection == connection) {
                // If the node is gone, the line is lost.
                let _ = route.lines.send(text);
            }
        });
        let mut patience = world.draws.random_range(300..4_000);
        if world.clients.all[at].trade == Trade::Waiter && world.draws.random_bool(0.85) {
            // A request that waits is answered sooner or later, unless its node is gone.
            patience = u64::MAX / 2;
        }
        let ends_ms = world.now_ms + patience;
        world.at_in_turn(ends_ms, Some((at, turn)), move |world| Self::lose_patience(world, at));
    }

    /// Finds a node to ask. False if there is none now.
    fn route(world: &mut World, at: usize) -> bool {
        let owners: Vec<usize> = (0..world.nodes.len()).filter(|&n| world.nodes[n].believes()).collect();
        let draw = world.draws.random_range(0..100);
        let present = world.clients.all[at].route.as_ref().map(|route| route.node);
        let wanted = match (draw, present) {
            (0..15, Some(present)) => present,
            (0..88, _) if !owners.is_empty() => owners[world.draws.random_range(0..owners.len())],
            _ => world.draws.random_range(0..world.nodes.len()),
        };
        if present == Some(wanted) && world.nodes[wanted].process.is_some() {
            return true;
        }
        world.clients.all[at].route = None;
        world.clients.next_connection += 1;
        let connection = world.clients.next_connection;
        let Some(lines) = world.connect(wanted, connection) else { return false };
        world.clients.all[at].route = Some(Route { node: wanted, connection, lines });
        true
    }
}
