//! A client that knows which machines are alive, and lets go of what the dead ones left.
//!
//! A sweep never lets go of anything of the living, and of nothing of the dead before two sweeps, far enough apart, missed
//! them. The living are listed, or first marked in two halves. The owner may change between the halves, and then forgets the
//! half that it knew.

use std::net::Ipv4Addr;

use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::told::Answer;
use super::{Ask, Client, Clients, Kind, Slot, Trade};
use crate::record::{Asked, Holder, Told};
use crate::world::World;

/// The scope of everything that is swept.
pub(super) const SCOPE: &str = "swept";
const SLOTS: usize = 3;
const HALVES: usize = 2;

pub(super) fn user(slot: usize) -> String {
    format!("machine-{slot}")
}

pub(super) fn new(bases: usize, draws: &mut SmallRng) -> Client {
    let slot = |number: usize| {
        let base = draws.random_range(0..bases);
        let (network, owner) = (format!("net-{base}"), format!("swept-{number}"));
        Slot::new(Holder { network, owner, slot: "0".to_owned() }, base, Kind::Used)
    };
    Client { slots: (0..SLOTS).map(slot).collect(), trade: Trade::Sweeper(0), ..Client::default() }
}

/// Params of a sweep that forgets so many of the living.
pub(super) fn params(
    slots: &[Slot],
    (dead, forgets): (&[usize], usize),
    grace_seconds: u64,
    by_mark: Option<&str>,
) -> Value {
    let mut params = json!({"scope": SCOPE, "grace_seconds": grace_seconds, "max_share": 1.0});
    let alive = (0..slots.len()).filter(|slot| !dead.contains(slot)).skip(forgets).map(user);
    match by_mark {
        Some(name) => params["sweep"] = json!(name),
        None => params["alive"] = json!(alive.collect::<Vec<_>>()),
    }
    params
}

impl Clients {
    pub(super) fn sweeper_asks(world: &mut World, at: usize, marked: usize) -> Vec<Ask> {
        let draws = &mut world.draws;
        let client = &mut world.clients.all[at];
        let slots = &mut client.slots;
        let dead: Vec<usize> = (0..slots.len()).filter(|slot| slots[*slot].dead_user).collect();
        let grace_seconds = draws.random_range(0..2);
        // Nobody dies or comes to life between the marks and their sweep, and each sweep has a name of its own.
        let name = format!("sweep-{}", world.clients.sweeps);
        if marked == HALVES {
            world.clients.sweeps += 1;
            client.trade = Trade::Sweeper(0);
            return vec![Ask::Sweep { dead, grace_seconds, by_mark: Some(name) }];
        }
        if marked > 0 || draws.random_bool(0.2) {
            let of_half = |slot: &usize| slot % HALVES == marked && !dead.contains(slot);
            let alive = (0..slots.len()).filter(of_half).collect();
            return vec![Ask::Mark { name, half: marked, alive }];
        }
        let one = draws.random_range(0..slots.len());
        let ask = match draws.random_range(0..10) {
            0..3 if !slots[one].dead_user => Ask::Allocate(one),
            3..5 => {
                // A user dies or comes to life.
                slots[one].dead_user = !slots[one].dead_user;
                let base = slots[one].base;
                Ask::List(base)
            }
            _ => Ask::Sweep { dead, grace_seconds, by_mark: None },
        };
        vec![ask]
    }

    /// A half that was not answered is marked again.
    pub(super) fn told_mark(&mut self, at: usize, half: usize, answer: &Answer) {
        if matches!(answer, Answer::Result(_)) {
            self.all[at].trade = Trade::Sweeper(half + 1);
        }
    }

    pub(super) fn told_sweep(
        &mut self,
        at: usize,
        (dead, by_mark): (&[usize], bool),
        grace_seconds: u64,
        (sent_ns, told_ns): (u64, u64),
        answer: &Answer,
    ) {
        let times = (sent_ns, told_ns);
        if by_mark && matches!(answer, Answer::Lost) {
            for slot in &mut self.all[at].slots {
                slot.missed_ns.get_or_insert(sent_ns);
            }
        }
        match answer {
            Answer::Result(result) => {
                for swept in ["released", "unbound", "waiting"] {
                    for one in result[swept].as_array().cloned().unwrap_or_default() {
                        self.told_swept(at, dead, grace_seconds, times, (swept, &one));
                    }
                }
                let waiting = |slot: &usize| {
                    let waiting = result["waiting"].as_array().into_iter().flatten();
                    waiting.into_iter().any(|one| one["claimant"].as_str() == Some(&user(*slot)))
                };
                for slot in (0..SLOTS).filter(|slot| !dead.contains(slot)) {
                    // If half of the marks were forgotten, a living user may now be missed for the first time.
                    let missed_ns = &mut self.all[at].slots[slot].missed_ns;
                    *missed_ns = waiting(&slot).then(|| missed_ns.unwrap_or(sent_ns));
                }
            }
            Answer::Lost => {
                for slot in dead {
                    let one = &mut self.all[at].slots[*slot];
                    one.belief.doubtful_release();
                    let holder = one.holder.clone();
                    self.record(holder, Asked::Release, times, Told::Unknown);
                }
            }
            Answer::Refused(..) => return,
        }
        for slot in dead {
            self.all[at].slots[*slot].missed_ns.get_or_insert(sent_ns);
        }
    }

    fn told_swept(
        &mut self,
        at: usize,
        dead: &[usize],
        grace_seconds: u64,
        times: (u64, u64),
        (swept, one): (&str, &Value),
    ) {
        if swept == "waiting" {
            return; // If half of the marks were forgotten, it may be the living, too.
        }
        let of = |slot: &usize| one["claimant"].as_str() == Some(&user(*slot));
        let Some(slot) = dead.iter().copied().find(of) else {
            return self.problem(format!("somebody alive is {swept}: {one}, and dead are only {dead:?}"));
        };
        let place = &mut self.all[at].slots[slot];
        let missed_ns = place.missed_ns;
        let early = missed_ns.is_none_or(|missed_ns| missed_ns + grace_seconds * 980_000_000 > times.1);
        let address =
            one["address"].as_str().and_then(|text| text.parse().ok()).map(|it: Ipv4Addr| u128::from(u32::from(it)));
        let other = place.belief.surely(times.1).filter(|held| Some(held.span.0) != address);
        let wrong = place.belief.told_absent(times.1, true);
        place.dead = None;
        let holder = place.holder.clone();
        if early || swept != "released" {
            self.problem(format!("{swept} after a first miss at {missed_ns:?}: {one}"));
        }
        if let Some(other) = other {
            self.problem(format!("{holder:?} held {other:?}, and was swept from {one}"));
        }
        if let Some(wrong) = wrong {
            self.problem(format!("{holder:?} was swept: {wrong}"));
        }
        self.record(holder, Asked::Release, times, Told::Released);
    }
}
