//! Clients that ask for addresses and blocks, transfer them and release them without rest, at any node that answers, and
//! record what they were told. What they ask for is in `asks`.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::asks::{Ask, Asker, OWNERS, Wish, grant, network, number, told_of};
use super::checker::Verdict;
use super::client::{Answer, Client};
use super::record::{Asked, Call, Holder, Record, Told};
use super::run::settled;

/// How many owners of one client have a call under way at once, one each.
const CALLS_AT_ONCE: usize = 8;
/// How long a client waits for an answer before it goes to another node: longer than any node needs to know its answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a client waits after an answer, unless somebody waits for grants or did so just now.
const PAUSE: Duration = Duration::from_millis(60);
/// How long clients go on without pause after somebody waited for grants, so that the next fault meets requests under way.
const HASTE: Duration = Duration::from_secs(1);
/// How often the owner of a lease is left alone, so that some leases end.
const LEFT_ALONE: f64 = 0.95;

/// What the clients of a run share.
pub struct Load {
    pub record: Arc<Record>,
    pub networks: Vec<String>,
    /// Where nodes listen. A client goes to another node when its own is gone.
    nodes: Mutex<Vec<SocketAddr>>,
    pub stop: AtomicBool,
    /// How many grants were acknowledged.
    pub granted: AtomicU64,
    /// How many answers said that the outcome of the request is unknown.
    pub said_unknown: AtomicU64,
    /// For how many milliseconds a lost request may still be carried out: 0 if a request is lost only together with the node
    /// that would carry it out.
    pub lingers_ms: AtomicU64,
    /// How many answers said that nothing can be done at the moment.
    pub put_off: AtomicU64,
    /// Until when clients ask without pause, in nanoseconds of the record.
    haste_until_ns: AtomicU64,
    /// When the last grant was acknowledged, and the longest time without one, in nanoseconds of the record.
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

    /// Counts an answer. Does it say that nothing can be done at the moment?
    fn counts(&self, asked: &Asked, told: &Told, told_ns: u64) -> bool {
        let put_off = matches!(told, Told::Refused(kind) if kind == "unavailable" || kind == "not_ready");
        self.put_off.fetch_add(u64::from(put_off), Ordering::Relaxed);
        if matches!(told, Told::Held { .. }) && *asked == Asked::Grant {
            self.note_grant(told_ns);
        }
        put_off
    }

    /// The longest time without an acknowledged grant since the last call of this function.
    pub fn longest_pause(&self) -> Duration {
        Duration::from_nanos(self.longest_pause_ns.swap(0, Ordering::Relaxed))
    }

    /// A node was started again and now listens elsewhere.
    pub fn moved(&self, node: usize, to: SocketAddr) {
        self.nodes.lock().unwrap()[node] = to;
    }

    /// Adds a node.
    pub fn also_at(&self, node: SocketAddr) {
        self.nodes.lock().unwrap().push(node);
    }

    fn node(&self, number: usize) -> SocketAddr {
        let nodes = self.nodes.lock().unwrap();
        nodes[number % nodes.len()]
    }

    /// Starts this many clients; each draws from a random stream of its own.
    pub fn start(self: &Arc<Self>, clients: usize, seed: u64) -> Vec<tokio::task::JoinHandle<()>> {
        (0..clients).map(|at| tokio::spawn(run(Arc::clone(self), at, seed))).collect()
    }

    /// Waits until this many more grants were acknowledged. False if that takes longer than `within`.
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

    /// Asks again, at any node that answers, for everything that somebody certainly holds: each answer must be the same as
    /// before. Returns how many holders were asked about.
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

    /// Checks that owners who ask for two networks at once hold something in both or in neither. Owners whose later release
    /// may have been carried out only in part are left out, because a release goes network by network.
    pub async fn pairs_are_whole(&self) {
        // By owner: until when a release of unknown outcome may be carried out, and when the last release that certainly was
        // carried out was sent.
        let mut released: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for call in self.record.all().iter().filter(|call| Wish::of(number(&call.holder)) == Wish::Pair) {
            let (doubtful_ns, certain_ns) = released.entry(call.holder.owner.clone()).or_default();
            match (&call.asked, &call.told) {
                (Asked::Release, Told::Released | Told::Nothing) => *certain_ns = call.sent_ns.max(*certain_ns),
                (Asked::Release, _) => *doubtful_ns = call.told_ns.max(*doubtful_ns),
                (Asked::Grant | Asked::Transfer { .. } | Asked::Read, _) => {}
            }
        }
        let is_certain = |(doubtful_ns, certain_ns): &(u64, u64)| *doubtful_ns == 0 || doubtful_ns < certain_ns;
        let mut owners: Vec<String> =
            released.into_iter().filter(|(_, released)| is_certain(released)).map(|(owner, _)| owner).collect();
        assert!(!owners.is_empty(), "nobody asked for two");
        let end = std::time::Instant::now() + Duration::from_secs(60);
        let mut node = 0;
        while let Some(owner) = owners.last() {
            let listed = match Client::connect(self.node(node)).await {
                Ok(mut client) => client.call("ip.list", json!({"owner": owner})).await,
                Err(_) => Answer::Lost,
            };
            // A change that is carried out late may be listed while half of it is done.
            match listed {
                Answer::Result(listed) if [0, 2].contains(&listed["reservations"].as_array().unwrap().len()) => {
                    owners.pop();
                    continue;
                }
                listed => assert!(std::time::Instant::now() < end, "{owner} asked for two: {listed:?}"),
            }
            node += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How many sure holdings began during the last tenth of new grants, and how many grants these are.
    pub fn late_holdings(&self, verdict: &Verdict) -> (usize, usize) {
        let is_new = |call: &Call| matches!(call.told, Told::Held { created: true, .. }) && call.asked == Asked::Grant;
        let mut told_ns: Vec<u64> =
            self.record.all().iter().filter(|call| is_new(call)).map(|call| call.told_ns).collect();
        told_ns.sort_unstable();
        let late = told_ns.split_off(told_ns.len() - told_ns.len() / 10);
        let since_ns = late.first().copied().unwrap_or(u64::MAX);
        (verdict.sure.iter().filter(|sure| sure.from_ns >= since_ns).count(), late.len())
    }

    /// Tells all clients to end, and waits for them.
    pub async fn end(&self, clients: Vec<tokio::task::JoinHandle<()>>) {
        self.stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.unwrap();
        }
    }
}

/// Makes small networks; every fourth one is IPv6.
pub async fn make_networks(client: &mut Client, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|at| format!("net-{at}")).collect();
    for name in &names {
        let made = settled(client, "network.create", &network(name)).await;
        // An earlier try whose outcome was unknown may have made it.
        assert!(matches!(&made, Answer::Result(_)) || made.is("already_exists"), "{made:?}");
    }
    names
}

/// What a client believes that each of its owners has. It only decides what is worth asking for.
type Beliefs = [Option<String>; OWNERS];

/// One client at work.
struct Work<'a> {
    load: &'a Load,
    asker: Asker<'a>,
    has: Beliefs,
    /// Releases under names that owners had before. The first one is repeated until it is certain that nothing is left under
    /// its name; then the next follows. By then an address that was to be transferred has gone to the heir, or never will.
    farewells: VecDeque<Ask>,
}

impl Work<'_> {
    /// What the client asks for next, at most once per owner: mostly the opposite of the last request, now and then a
    /// repeat, a read or a transfer.
    fn asks(&mut self, draws: &mut SmallRng) -> Vec<Ask> {
        let Self { asker, has, .. } = self;
        let first = draws.random_range(0..OWNERS);
        let mut asks: Vec<Ask> = self.farewells.front().cloned().into_iter().collect();
        let mut busy = [false; OWNERS];
        for owner in (first..first + CALLS_AT_ONCE).map(|owner| owner % OWNERS) {
            let repeats = draws.random_bool(0.1);
            let reads = draws.random_bool(0.1);
            let leaves_alone = draws.random_bool(LEFT_ALONE);
            let hands_over = draws.random_bool(0.2);
            if std::mem::replace(&mut busy[owner], true) {
                continue;
            }
            let heir = asker.heir(owner).filter(|heir| hands_over && has[*heir].is_none() && !busy[*heir]);
            match (&has[owner], heir) {
                (None, _) if repeats => asks.push(asker.release(owner)),
                (None, _) => asks.push(asker.grant(owner)),
                // A pair has two addresses, of which the client remembers one.
                (Some(address), _) if reads && !address.is_empty() && Wish::of(owner) != Wish::Pair => {
                    asks.push(asker.read(owner, address));
                }
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

    /// Records the outcome of requests that were sent together; without answers the client gave up. Can nothing be done at
    /// the moment?
    fn learns(&mut self, asks: Vec<Ask>, answers: Option<Vec<Answer>>, (sent_ns, told_ns): (u64, u64)) -> bool {
        let load = self.load;
        // A request is never certainly lost if a node that sleeps may have read it already.
        let lingers_ns = answers.as_ref().map_or(u64::MAX, |_| load.lingers_ms.load(Ordering::Relaxed) * 1_000_000);
        let gave_up = answers.is_none();
        let answers = answers.unwrap_or_else(|| vec![Answer::Lost; asks.len()]);
        let mut refused = false;
        for (ask, answer) in asks.into_iter().zip(answers) {
            let (owner, holder, asked) = &ask.about[0];
            let (owner, is_farewell) = (*owner, holder.owner != self.asker.name(*owner));
            let lets_go = matches!(asked, Asked::Release | Asked::Transfer { .. });
            let mut is_over = true;
            for (owner, holder, asked) in ask.about {
                let (told, address) = told_of((&holder, &asked), sent_ns, &answer);
                let said_unknown = answer != Answer::Lost && told == Told::Unknown;
                load.said_unknown.fetch_add(u64::from(said_unknown), Ordering::Relaxed);
                refused |= load.counts(&asked, &told, told_ns);
                is_over &= matches!(told, Told::Released | Told::Nothing);
                if !is_farewell {
                    believes(&mut self.has, (owner, self.asker.heir(owner)), (&asked, &told), address);
                }
                let lingers_ns = if told == Told::Unknown { lingers_ns } else { 0 };
                let told_ns = told_ns.saturating_add(lingers_ns);
                load.record.note(Call { holder, asked, sent_ns, told_ns, told });
            }
            if is_farewell && is_over {
                self.farewells.pop_front();
            } else if !is_farewell && gave_up && lets_go {
                // The release may take effect at any time from now on, on whatever the owner has then: nothing under this
                // name is sure any more.
                self.farewells.push_back(self.asker.release(owner));
                self.asker.rename(owner);
                self.has[owner] = None;
            }
        }
        refused
    }
}

async fn run(load: Arc<Load>, number: usize, seed: u64) {
    let mut draws = SmallRng::seed_from_u64(seed ^ (number as u64) << 32);
    let asker = Asker::new(number, &load.networks);
    let mut work = Work { load: &load, asker, has: [const { None }; OWNERS], farewells: VecDeque::new() };
    let mut node = number;
    let mut client: Option<Client> = None;
    while !load.stop.load(Ordering::Relaxed) {
        let Some(connected) = &mut client else {
            node += 1;
            client = Client::connect(load.node(node)).await.ok();
            if client.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            continue;
        };
        let asks = work.asks(&mut draws);
        let calls = asks.iter().map(|ask| ask.request.clone()).collect();
        let sent_ns = load.record.now_ns();
        let answers = tokio::time::timeout(PATIENCE, connected.call_all(calls)).await.ok();
        let told_ns = load.record.now_ns();
        if answers.as_ref().is_none_or(|answers| answers.contains(&Answer::Lost)) {
            client = None;
        }
        let refused = work.learns(asks, answers, (sent_ns, told_ns));
        if refused || told_ns > load.haste_until_ns.load(Ordering::Relaxed) {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Updates what the client believes after an answer about an owner and its heir.
fn believes(has: &mut Beliefs, owner: (usize, Option<usize>), (asked, told): (&Asked, &Told), address: Option<String>) {
    match (asked, told, owner) {
        (Asked::Transfer { .. }, Told::Held { .. }, (owner, Some(heir))) => {
            has[owner] = None;
            has[heir] = address;
        }
        // The heir got something by an earlier request.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The release may be carried out at any time, so nothing under the old name would be sure any more.
    #[test]
    fn an_owner_whose_release_was_given_up_has_another_name_when_nothing_is_left_under_the_one_before() {
        let load = Load::new(vec!["net-0".to_owned()], Vec::new());
        let mut draws = SmallRng::seed_from_u64(1);
        let asker = Asker::new(0, &load.networks);
        let mut work = Work { load: &load, asker, has: [const { None }; OWNERS], farewells: VecDeque::new() };
        work.has[0] = Some("10.0.0.2".to_owned());
        let before = work.asker.release(0);
        work.learns(vec![before.clone()], None, (0, 1));
        assert_ne!(work.asker.release(0).request, before.request);
        assert_eq!(work.has[0], None);
        assert_eq!(work.asks(&mut draws)[0].request, before.request);
        // The farewell stays while its release is not answered, or is refused.
        work.learns(vec![before.clone()], None, (2, 3));
        let refused = Answer::Refused("unavailable".to_owned(), json!({"data": {"applied": false}}));
        work.learns(vec![before.clone()], Some(vec![refused]), (4, 5));
        assert_eq!(work.farewells.len(), 1);
        work.learns(vec![before], Some(vec![Answer::Result(json!({"released": []}))]), (6, 7));
        assert!(work.farewells.is_empty());
        // An abandoned grant needs no new name: a repeat shows what was granted.
        let grant = work.asker.grant(1);
        work.learns(vec![grant.clone()], None, (8, 9));
        assert_eq!(work.asker.grant(1).request, grant.request);
    }
}
