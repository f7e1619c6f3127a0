//! Waits for capacity against a queue that is a plain list. What becomes free goes to the first waiter whom it fits, and to
//! nobody else; what fits no waiter is for newcomers.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use allod::store::memory::MemoryStore;
use serde_json::{Value, json};

use super::Subject;
use crate::model::Dice;

const SEQUENCES: u64 = 20;
const STEPS: usize = 60;
const OWNERS: u64 = 12;
const WAIT_SECONDS: u64 = 60;

/// The name of the pool that is wished for, if any.
type Wish = Option<&'static str>;

/// A waiter, and the connection on which it is answered.
struct Waiter {
    owner: String,
    wish: Wish,
    since_ms: u64,
    wire: BufReader<TcpStream>,
}

impl Waiter {
    /// The next line that it is told.
    fn told(&mut self) -> Value {
        let mut line = String::new();
        self.wire.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{}: {error}: {line:?}", self.owner))
    }

    fn ask(&mut self, id: u64, method: &str, params: &Value) {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.wire.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
    }
}

/// A pool, its addresses, and who holds them.
struct Place {
    pool: &'static str,
    address: String,
    holder: Option<String>,
}

struct World {
    server: Subject,
    at: std::net::SocketAddr,
    now_ms: u64,
    /// In drawing order.
    places: Vec<Place>,
    waiting: Vec<Waiter>,
    /// How often a client was served, passed by, hung up, or waited in vain.
    counts: [usize; 4],
}

impl World {
    fn new() -> Self {
        let mut server = Subject::new(Arc::new(MemoryStore::new(1)));
        let pools = json!([{"range": "10.0.0.2-10.0.0.4", "name": "a"}, {"range": "10.0.0.8-10.0.0.9", "name": "b"}]);
        let lan = json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/28", "pools": pools}]});
        server.ask("network.create", &lan).unwrap();
        let place = |(pool, last): (&'static str, u8)| Place { pool, address: format!("10.0.0.{last}"), holder: None };
        let places = [("a", 2), ("a", 3), ("a", 4), ("b", 8), ("b", 9)].map(place).into();
        let at = server.running.tcp;
        Self { server, at, now_ms: 0, places, waiting: Vec::new(), counts: [0; 4] }
    }

    fn free_for(&mut self, wish: Wish) -> Option<&mut Place> {
        self.places.iter_mut().find(|place| place.holder.is_none() && wish.is_none_or(|pool| pool == place.pool))
    }

    fn allocate(&mut self, owner: &str, wish: Wish, waits: bool) {
        if self.waiting.iter().any(|waiter| waiter.owner == owner) {
            return;
        }
        let mut ask = json!({"network": "lan", "owner": owner});
        if let Some(pool) = wish {
            ask["pool"] = json!(pool);
        }
        let held = self.places.iter().find(|place| place.holder.as_deref() == Some(owner));
        let expected = match held {
            Some(place) if wish.is_none_or(|pool| pool == place.pool) => Ok(place.address.clone()),
            Some(_) => Err("already_exists"),
            None => match self.free_for(wish) {
                Some(place) => {
                    place.holder = Some(owner.to_owned());
                    Ok(place.address.clone())
                }
                None if waits => return self.wait(owner, wish, ask),
                None => Err("not_enough_capacity"),
            },
        };
        let told = self.server.ask("ip.allocate", &ask).unwrap();
        match expected {
            Ok(address) => {
                assert_eq!(told["result"]["address"], address, "{owner} wishes {wish:?}: {told}");
                // It got what no earlier waiter could use.
                self.counts[1] += usize::from(!self.waiting.is_empty());
            }
            Err(kind) => assert_eq!(told["error"]["data"]["kind"], kind, "{owner} wishes {wish:?}: {told}"),
        }
    }

    fn wait(&mut self, owner: &str, wish: Wish, mut ask: Value) {
        let stream = TcpStream::connect(self.at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (owner, wire) = (owner.to_owned(), BufReader::new(stream));
        let mut waiter = Waiter { owner, wish, since_ms: self.now_ms, wire };
        ask["wait_seconds"] = json!(WAIT_SECONDS);
        waiter.ask(1, "ip.allocate", &ask);
        // A method over all networks is answered once everything sent before it is answered, or waits.
        waiter.ask(2, "network.list", &json!({}));
        let told = waiter.told();
        assert_eq!(told["id"], 2, "there is nothing for {}: {told}", waiter.owner);
        self.waiting.push(waiter);
    }

    /// Serves waiters that what is free fits, first come first.
    fn serve(&mut self) {
        while let Some(first) = (0..self.waiting.len()).find(|at| self.free_for(self.waiting[*at].wish).is_some()) {
            let mut waiter = self.waiting.remove(first);
            let place = self.free_for(waiter.wish).unwrap();
            place.holder = Some(waiter.owner.clone());
            let told = waiter.told();
            assert_eq!((&told["id"], &told["result"]["address"]), (&json!(1), &json!(place.address)), "{told}");
            self.counts[0] += 1;
        }
    }

    fn release(&mut self, owner: &str) {
        let place = self.places.iter_mut().find(|place| place.holder.as_deref() == Some(owner));
        let released: Vec<String> =
            place.into_iter().filter_map(|p| p.holder.take().map(|_| p.address.clone())).collect();
        let told = self.server.ask("ip.release", &json!({"network": "lan", "owner": owner})).unwrap();
        assert_eq!(told["result"]["released"], json!(released), "{owner}: {told}");
        self.serve();
    }

    fn hang_up(&mut self, which: usize) {
        if self.waiting.is_empty() {
            return;
        }
        let waiter = self.waiting.remove(which % self.waiting.len());
        socket2::SockRef::from(waiter.wire.get_ref()).set_linger(Some(Duration::ZERO)).unwrap();
        drop(waiter);
        let count =
            format!("allod_network_waiting_requests{{network=\"lan\",realm=\"default\"}} {}", self.waiting.len());
        self.server.until_measured(&count);
        self.counts[2] += 1;
    }

    fn time_goes_by(&mut self, ms: u64) {
        self.now_ms += ms;
        self.server.clock.advance_ms(ms);
        self.server.ask("network.get", &json!({"network": "lan"})).unwrap();
        let over = |waiter: &Waiter| waiter.since_ms + WAIT_SECONDS * 1_000 <= self.now_ms;
        let (over, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting).into_iter().partition(over);
        self.waiting = left;
        for mut waiter in over {
            let data = waiter.told()["error"]["data"].take();
            assert_eq!(data["kind"], "not_enough_capacity", "{}: {data}", waiter.owner);
            assert_eq!(data["waited_ms"], self.now_ms - waiter.since_ms, "{}", waiter.owner);
            self.counts[3] += 1;
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        let owner = format!("o{}", dice.below(OWNERS));
        match dice.below(20) {
            0..9 => {
                let wish = dice.pick(&[None, None, Some("a"), Some("b")]);
                self.allocate(&owner, wish, dice.chance(80));
            }
            9..16 => self.release(&owner),
            16 => self.hang_up(dice.below(OWNERS) as usize),
            _ => self.time_goes_by(dice.pick(&[1_000, 20_000, 45_000])),
        }
    }
}

#[test]
fn who_waits_is_served_as_a_list_of_all_who_wait_says() {
    let mut counts = [0; 4];
    for seed in 1..=SEQUENCES {
        println!("sequence {seed}");
        let (mut world, mut dice) = (World::new(), Dice(seed));
        for _ in 0..STEPS {
            world.step(&mut dice);
        }
        // The remaining waiters must have heard nothing.
        for mut waiter in std::mem::take(&mut world.waiting) {
            waiter.ask(3, "server.ping", &json!({}));
            assert_eq!(waiter.told()["id"], 3, "{}", waiter.owner);
        }
        counts.iter_mut().zip(world.counts).for_each(|(sum, count)| *sum += count);
    }
    println!("served, passed by, hung up, in vain: {counts:?}");
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
}
