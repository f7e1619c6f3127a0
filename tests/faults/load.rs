//! Clients that ask for addresses and blocks, hand them over and release them without rest, at whichever node answers, and
//! write down what they were told. What they ask for is in `asks`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::asks::{Ask, Asker, OWNERS, Wish, grant, network, told_of};
use super::checker::Verdict;
use super::client::{Answer, Client};
use super::record::{Asked, Call, Holder, Record, Told};
use super::run::settled;

/// Owners of one client of whom one call each is under way at once.
const CALLS_AT_ONCE: usize = 8;
/// So long a client waits before it goes elsewhere: longer than any node needs to know what it can say.
const PATIENCE: Duration = Duration::from_secs(8);
/// So long a client waits after what it was answered, unless somebody waits for grants or did just now.
const PAUSE: Duration = Duration::from_millis(60);
/// So long after grants were waited for clients go on without pause: whatever happens next meets what is under way.
const HASTE: Duration = Duration::from_secs(1);
/// How often whoever has a lease is left alone, so that some end.
const LEFT_ALONE: f64 = 0.95;

/// What the clients of a run share.
pub struct Load {
    pub record: Arc<Record>,
    pub networks: Vec<String>,
    /// Where nodes listen; a client goes to another one when its own is gone.
    nodes: Mutex<Vec<SocketAddr>>,
    pub stop: AtomicBool,
    /// Grants that were acknowledged.
    pub granted: AtomicU64,
    /// Answers that say that nobody knows what became of the request.
    pub said_unknown: AtomicU64,
    /// For so many milliseconds what was lost may still be carried out: 0 where only whoever carries it out is lost.
    pub lingers_ms: AtomicU64,
    /// Answers that say that nothing can be done just now.
    pub put_off: AtomicU64,
    /// Until then clients ask without pause, in nanoseconds of the record.
    haste_until_ns: AtomicU64,
    /// When a grant was acknowledged last, and the longest time without one, in nanoseconds of the record.
    last_grant_ns: AtomicU64,
    longest_pause_ns: AtomicU64,
}

impl Load {
    pub fn new(networks: Vec<String>, nodes: Vec<SocketAddr>) -> Arc<Self> {
        let [granted, said_unknown, put_off, haste_until_ns, last_grant_ns, longest_pause_ns] =
            [const { AtomicU64::new(0) }; 6];
        let (record, nodes, stop) = (Arc::new(Record::new()), Mutex::new(nodes), AtomicBool::new(false));
        Arc::new(Self {
            record,
            networks,
            nodes,
            stop,
            granted,
            said_unknown,
            put_off,
            haste_until_ns,
            last_grant_ns,
            longest_pause_ns,
            lingers_ms: AtomicU64::new(0),
        })
    }

    fn note_grant(&self, now_ns: u64) {
        self.granted.fetch_add(1, Ordering::Relaxed);
        let before_ns = self.last_grant_ns.fetch_max(now_ns, Ordering::Relaxed);
        self.longest_pause_ns.fetch_max(now_ns.saturating_sub(before_ns), Ordering::Relaxed);
    }

    /// Counts an answer. Does it say that nothing can be done just now?
    fn counts(&self, asked: &Asked, told: &Told, told_ns: u64) -> bool {
        let put_off = matches!(told, Told::Refused(kind) if kind == "unavailable" || kind == "not_ready");
        self.put_off.fetch_add(u64::from(put_off), Ordering::Relaxed);
        if matches!(told, Told::Held { .. }) && *asked == Asked::Grant {
            self.note_grant(told_ns);
        }
        put_off
    }

    /// The longest time in which no grant was acknowledged, since this was asked last.
    pub fn longest_pause(&self) -> Duration {
        Duration::from_nanos(self.longest_pause_ns.swap(0, Ordering::Relaxed))
    }

    /// A node was started again, and listens elsewhere.
    pub fn moved(&self, node: usize, to: SocketAddr) {
        self.nodes.lock().unwrap()[node] = to;
    }

    /// One more node.
    pub fn also_at(&self, node: SocketAddr) {
        self.nodes.lock().unwrap().push(node);
    }

    fn node(&self, number: usize) -> SocketAddr {
        let nodes = self.nodes.lock().unwrap();
        nodes[number % nodes.len()]
    }

    /// Starts so many clients; each draws from a stream of its own.
    pub fn start(self: &Arc<Self>, clients: usize, seed: u64) -> Vec<tokio::task::JoinHandle<()>> {
        (0..clients).map(|at| tokio::spawn(run(Arc::clone(self), at, seed))).collect()
    }

    /// Waits until so many more grants were acknowledged.
    pub async fn more(&self, grants: u64, within: Duration) -> bool {
        let goal = self.granted.load(Ordering::Relaxed) + grants;
        let waited = async {
            while self.granted.load(Ordering::Relaxed) < goal {
                let haste_until_ns = self.record.now_ns() + u64::try_from(HASTE.as_nanos()).unwrap();
                self.haste_until_ns.fetch_max(haste_until_ns, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(within, waited).await.is_ok()
    }

    /// Asks once more for all that somebody holds for certain, at whichever node answers: each must be told of the very
    /// same. How many were asked about.
    pub async fn ask_again(&self, verdict: &Verdict) -> usize {
        let mut held: Vec<&Holder> =
            verdict.sure.iter().filter(|sure| sure.until_ns.is_none()).map(|sure| &sure.holder).collect();
        let mut client: Option<Client> = None;
        let (asked, mut node) = (held.len(), 0);
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while !held.is_empty() {
            assert!(std::time::Instant::now() < end, "nobody tells what {} hold", held.len());
            let Some(connected) = &mut client else {
                node += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
                client = Client::connect(self.node(node)).await.ok();
                continue;
            };
            let some: Vec<&Holder> = held.iter().take(32).copied().collect();
            let sent_ns = self.record.now_ns();
            let answers = connected.call_all(some.iter().map(|holder| grant(holder)).collect()).await;
            let told_ns = self.record.now_ns();
            if answers.contains(&Answer::Lost) || answers.iter().any(|answer| matches!(answer, Answer::Refused(..))) {
                client = None;
            }
            for (holder, answer) in some.into_iter().zip(answers) {
                let (told, _) = told_of((holder, &Asked::Grant), sent_ns, &answer);
                if matches!(told, Told::Held { .. }) {
                    held.retain(|other| *other != holder);
                }
                let holder = holder.clone();
                self.record.note(Call { holder, asked: Asked::Grant, sent_ns, told_ns, told });
            }
        }
        asked
    }

    /// Asks every client to end, and waits for it.
    pub async fn end(&self, clients: Vec<tokio::task::JoinHandle<()>>) {
        self.stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.unwrap();
        }
    }
}

/// Small networks, every fourth one of IPv6.
pub async fn make_networks(client: &mut Client, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|at| format!("net-{at}")).collect();
    for name in &names {
        let made = settled(client, "network.create", &network(name)).await;
        // By a try of which nobody knew what became of it.
        assert!(matches!(&made, Answer::Result(_)) || made.is("already_exists"), "{made:?}");
    }
    names
}

/// What a client believes that each of its owners has: only what is worth asking depends on it.
type Beliefs = [Option<String>; OWNERS];

/// What it asks for next, no owner twice: mostly the other way round, now and then a repeat, now and then something is
/// handed over.
fn asks(draws: &mut SmallRng, asker: &Asker<'_>, has: &Beliefs) -> Vec<Ask> {
    let first = draws.random_range(0..OWNERS);
    let mut asks = Vec::new();
    let mut busy = [false; OWNERS];
    for owner in (first..first + CALLS_AT_ONCE).map(|owner| owner % OWNERS) {
        let repeats = draws.random_bool(0.1);
        let leaves_alone = draws.random_bool(LEFT_ALONE);
        let hands_over = draws.random_bool(0.2);
        if std::mem::replace(&mut busy[owner], true) {
            continue;
        }
        let heir = asker.heir(owner).filter(|heir| hands_over && has[*heir].is_none() && !busy[*heir]);
        match (&has[owner], heir) {
            (None, _) if repeats => asks.push(asker.release(owner)),
            (None, _) => asks.push(asker.grant(owner)),
            (Some(_), _) if Wish::of(owner) == Wish::Lease && leaves_alone => {}
            (Some(_), _) if repeats => asks.push(asker.grant(owner)),
            (Some(address), Some(heir)) if !address.is_empty() => {
                busy[heir] = true;
                asks.push(asker.transfer(owner, address, heir));
            }
            (Some(_), _) => asks.push(asker.release(owner)),
        }
    }
    asks
}

async fn run(load: Arc<Load>, number: usize, seed: u64) {
    let mut draws = SmallRng::seed_from_u64(seed ^ (number as u64) << 32);
    let asker = Asker { client: number, networks: &load.networks };
    let mut node = number;
    let mut client: Option<Client> = None;
    let mut has = [const { None }; OWNERS];
    while !load.stop.load(Ordering::Relaxed) {
        let Some(connected) = &mut client else {
            node += 1;
            client = Client::connect(load.node(node)).await.ok();
            if client.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            continue;
        };
        let asks = asks(&mut draws, &asker, &has);
        let calls = asks.iter().map(|ask| ask.request.clone()).collect();
        let sent_ns = load.record.now_ns();
        let answers = tokio::time::timeout(PATIENCE, connected.call_all(calls)).await;
        let told_ns = load.record.now_ns();
        // Nobody gives up for good what a node that sleeps has read already.
        let lingers_ns = answers.as_ref().map_or(u64::MAX, |_| load.lingers_ms.load(Ordering::Relaxed) * 1_000_000);
        let answers = answers.unwrap_or_else(|_| vec![Answer::Lost; asks.len()]);
        if answers.contains(&Answer::Lost) {
            client = None;
        }
        let mut refused = false;
        for (ask, answer) in asks.into_iter().zip(answers) {
            for (owner, holder, asked) in ask.about {
                let (told, address) = told_of((&holder, &asked), sent_ns, &answer);
                load.said_unknown
                    .fetch_add(u64::from(answer != Answer::Lost && told == Told::Unknown), Ordering::Relaxed);
                refused |= load.counts(&asked, &told, told_ns);
                believes(&mut has, (owner, asker.heir(owner)), (&asked, &told), address);
                let lingers_ns = if told == Told::Unknown { lingers_ns } else { 0 };
                let told_ns = told_ns.saturating_add(lingers_ns);
                load.record.note(Call { holder, asked, sent_ns, told_ns, told });
            }
        }
        if refused || told_ns > load.haste_until_ns.load(Ordering::Relaxed) {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// What it believes after an answer to an owner that may hand over to another.
fn believes(has: &mut Beliefs, owner: (usize, Option<usize>), (asked, told): (&Asked, &Told), address: Option<String>) {
    match (asked, told, owner) {
        (Asked::Transfer { .. }, Told::Held { .. }, (owner, Some(heir))) => {
            has[owner] = None;
            has[heir] = address;
        }
        // By whatever it asked before.
        (Asked::Transfer { .. }, Told::Refused(kind), (_, Some(heir))) if kind == "already_exists" => {
            has[heir] = Some(String::new());
        }
        (_, Told::Held { .. }, (owner, _)) => has[owner] = address,
        (_, Told::Released | Told::Nothing, (owner, _)) => has[owner] = None,
        (_, Told::Refused(kind), (owner, _)) if ["not_found", "not_owner"].contains(&kind.as_str()) => {
            has[owner] = None;
        }
        _ => {}
    }
}
