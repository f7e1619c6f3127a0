//! Deployments against a list of what is held. Plan, apply, commit, revert and delete run over several networks; each
//! answer, and everything held afterwards, is compared. Instances wish for each other's addresses, so addresses are promised
//! and swapped. Plans are ended as a whole, or for some instances at a time, and late.

mod register;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use allod::store::memory::MemoryStore;
use serde_json::{Value, json};

use self::register::{DYNAMIC, INSTANCES, NETWORKS, Place, Register, STATIC, Stage, Wish, Wishes};
use super::{Subject, answer_of};
use crate::model::Dice;

const SEQUENCES: u64 = 60;
const STEPS: usize = 40;
/// How many static addresses of each network the instances wish for: one more than there are instances.
const WISHED: u64 = INSTANCES as u64 + 1;

fn name(network: usize) -> String {
    format!("n{network}")
}

fn id(instance: usize) -> String {
    format!("i{instance}")
}

fn address((network, last): Place) -> String {
    format!("10.{network}.0.{last}")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn addresses(list: &Value) -> Vec<String> {
    let mut all: Vec<String> = list.as_array().unwrap().iter().map(|entry| text(&entry["address"])).collect();
    all.sort();
    all
}

struct World {
    server: Subject,
    register: Register,
    /// The highest plan so far, and the one before it.
    plans: [u64; 2],
    last: Option<Wishes>,
    /// How often each operation was done, and how often it changed something where it may.
    counts: BTreeMap<&'static str, usize>,
}

impl World {
    fn new(shards: u16) -> Self {
        let mut server = Subject::new(Arc::new(MemoryStore::new(shards)));
        for at in 0..NETWORKS {
            let pools = json!([
                {"range": format!("10.{at}.0.1-10.{at}.0.{DYNAMIC}")},
                {"range": format!("10.{at}.0.{STATIC}-10.{at}.0.{}", STATIC + 9), "kind": "static"},
            ]);
            let subnets = json!([{"cidr": format!("10.{at}.0.0/24"), "pools": pools}]);
            server.ask("network.create", &json!({"name": name(at), "subnets": subnets})).unwrap();
        }
        Self { server, register: Register::default(), plans: [0; 2], last: None, counts: BTreeMap::new() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Draws wishes; a static address is mostly wished once.
    fn wishes(dice: &mut Dice) -> Wishes {
        let mut free: Vec<Vec<u8>> = vec![(STATIC..STATIC + WISHED as u8).collect(); NETWORKS];
        let mut wish = |dice: &mut Dice, network: usize| match dice.below(8) {
            0 => Wish::Nothing,
            1..=4 => {
                let free = &mut free[network];
                let at = dice.below(free.len() as u64) as usize;
                Wish::Static(if dice.chance(97) { free.swap_remove(at) } else { free[at] })
            }
            _ => Wish::Automatic,
        };
        let listed = |_: usize| {
            let of_it = (dice.chance(10), std::array::from_fn(|network| wish(dice, network)));
            dice.chance(85).then_some(of_it)
        };
        (0..INSTANCES).map(listed).collect()
    }

    fn params(wishes: &Wishes) -> Value {
        let network = |(at, wish): (usize, &Wish)| match wish {
            Wish::Nothing => None,
            Wish::Automatic => Some(json!({"network": name(at)})),
            Wish::Static(last) => Some(json!({"network": name(at), "address": address((at, *last))})),
        };
        let listed = wishes.iter().enumerate().filter_map(|(at, of_it)| {
            let (fresh, wished) = of_it.as_ref()?;
            let networks: Vec<Value> = wished.iter().enumerate().filter_map(network).collect();
            Some(json!({"id": id(at), "fresh": fresh, "networks": networks}))
        });
        json!({"deployment": "d", "instances": listed.collect::<Vec<_>>()})
    }

    /// What the server says about every wish, in order.
    fn told(result: &Value) -> Vec<(String, String, String)> {
        let slots = result["instances"].as_array().unwrap().iter().flat_map(|one| one["networks"].as_array().unwrap());
        let told = |slot: &Value| {
            let address = &slot["reservation"]["address"];
            (text(&slot["network"]), text(&slot["state"]), text(address))
        };
        slots.map(told).collect()
    }

    fn apply(&mut self, wishes: Wishes, only_plan: bool) {
        let params = Self::params(&wishes);
        let method = if only_plan { "deployment.plan" } else { "deployment.apply" };
        let answer = answer_of(&self.server.ask(method, &params).unwrap());
        let next = self.plans[0] + 1;
        let (result, expected) = match (answer, self.register.apply(&wishes, next)) {
            (Err((kind, _)), Err(expected)) => {
                assert_eq!(kind, expected, "{method} {params}");
                self.check();
                return self.count("refused");
            }
            (Ok(result), Ok(expected)) => (result, expected),
            (answer, expected) => {
                let expected = expected.map(|expected| expected.done);
                panic!("{method} {params}: {answer:?}, and {expected:?} by the list")
            }
        };
        let all: Vec<(String, String, String)> = (expected.done.iter())
            .map(|(network, state, last)| (name(*network), (*state).to_owned(), address((*network, *last))))
            .collect();
        assert_eq!(Self::told(&result), all, "{method} {params}\n{:#?}", self.register);
        let obsolete = expected.register.held.iter().filter(|(_, held)| held.obsolete.is_some());
        let obsolete: Vec<String> = obsolete.map(|(place, _)| address(*place)).collect();
        assert_eq!(addresses(&result["obsolete"]), sorted(obsolete), "{method} {params}");
        if only_plan {
            self.check();
            return self.count("planned");
        }
        let plan = result["plan"].as_u64().unwrap();
        self.register = expected.register;
        if all.iter().any(|(_, state, _)| state == "promised") {
            self.count("promised");
        }
        if expected.again {
            assert_eq!(plan, expected.plan, "the same wishes again: {params}");
            self.check();
            return self.count("the same plan");
        }
        assert!(plan > self.plans[0], "{plan} after {}", self.plans[0]);
        // The server chooses the number.
        self.register.renumber(next, plan);
        self.plans = [plan, self.plans[0]];
        self.last = Some(wishes);
        self.check();
        self.count("applied");
    }

    fn settle(&mut self, some: Option<BTreeSet<usize>>, revert: bool, stale: bool) {
        let method = if revert { "deployment.revert" } else { "deployment.commit" };
        let plan = self.plans[usize::from(stale)];
        let mut params = json!({"deployment": "d", "plan": plan});
        if let Some(some) = &some {
            params["instances"] = some.iter().map(|one| json!(id(*one))).collect();
        }
        let answer = answer_of(&self.server.ask(method, &params).unwrap());
        let before = self.register.clone();
        let expected = self.register.settle(plan, some.as_ref(), revert);
        match (answer, expected) {
            (Ok(result), Ok(expected)) => {
                let expected = sorted(expected.into_iter().map(address).collect());
                assert_eq!(addresses(&result["released"]), expected, "{method} {params}\n{before:#?}");
                let ended = self.register.latest.as_ref().is_some_and(|latest| latest.stage != Stage::Open);
                let changed = self.register.held != before.held;
                self.count(match (changed, some.is_some(), revert) {
                    (false, ..) => "settled",
                    (true, false, false) => "committed",
                    (true, false, true) => "reverted",
                    (true, true, _) if ended => "the last of some settled",
                    (true, true, false) => "some committed",
                    (true, true, true) => "some reverted",
                });
                let handed = self.register.held.iter().any(|(place, held)| {
                    let was = before.held.get(place);
                    was.is_some_and(|was| was.instance != held.instance)
                });
                if handed {
                    self.count("a promise was kept");
                }
            }
            (Err((kind, _)), Err(expected)) => {
                assert_eq!(kind, expected, "{method} {params}");
                self.count("not settled");
            }
            (answer, expected) => panic!("{method} {params}: {answer:?}, and {expected:?} by the list"),
        }
        self.check();
    }

    fn delete(&mut self) {
        let answer = answer_of(&self.server.ask("deployment.delete", &json!({"deployment": "d"})).unwrap());
        let known = self.register.latest.is_some();
        match answer {
            Ok(result) => {
                let held = self.register.held.keys().map(|place| address(*place)).collect();
                assert_eq!(addresses(&result["released"]), sorted(held), "{result}");
            }
            Err((kind, _)) => assert!(!known && kind == "not_found", "{kind}"),
        }
        self.register = Register::default();
        self.last = None;
        self.check();
        self.count("deleted");
    }

    /// Compares everything that is held, as shown by the list and by the deployment.
    fn check(&mut self) {
        self.register.check();
        let listed = self.server.ask("ip.list", &json!({"scope": "d"})).unwrap()["result"].take();
        let mut there = BTreeMap::new();
        for held in listed["reservations"].as_array().unwrap() {
            let obsolete = held["obsolete"]["plan"].as_u64();
            there.insert(text(&held["address"]), (text(&held["owner"]), obsolete));
        }
        let held = self.register.held.iter();
        let expected = held.map(|(place, held)| (address(*place), (id(held.instance), held.obsolete)));
        assert_eq!(there, expected.collect(), "what is held");
        let shown = answer_of(&self.server.ask("deployment.get", &json!({"deployment": "d"})).unwrap());
        let Some(latest) = &mut self.register.latest else {
            return assert_eq!(shown.map_err(|(kind, _)| kind), Err("not_found".to_owned()));
        };
        let shown = shown.unwrap();
        assert_eq!(shown["plan"], latest.plan);
        assert_eq!(!shown["uncommitted_since"].is_null(), latest.uncommitted, "{shown}");
        if let Some(since) = shown["uncommitted_since"].as_str() {
            latest.since = since.parse::<jiff::Timestamp>().unwrap().as_millisecond() as u64;
        }
        let count = |list: &str| {
            let instances = shown["instances"].as_array().unwrap().iter();
            instances.filter_map(|one| one[list].as_array()).map(Vec::len).sum::<usize>()
        };
        let obsolete = self.register.held.values().filter(|held| held.obsolete.is_some()).count();
        let current = self.register.held.len() - obsolete;
        assert_eq!((count("reservations"), count("obsolete")), (current, obsolete), "{shown}");
    }
}

fn sorted(mut all: Vec<String>) -> Vec<String> {
    all.sort();
    all
}

/// Up to three instances.
fn some(dice: &mut Dice) -> BTreeSet<usize> {
    (0..=dice.below(3)).map(|_| dice.below(INSTANCES as u64) as usize).collect()
}

#[test]
fn deployments_come_and_go_as_a_list_of_what_they_hold_says() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 1..=super::number("ALLOD_SEQUENCES").unwrap_or(SEQUENCES) {
        println!("sequence {seed}");
        let (mut world, mut dice) = (World::new(1 + (seed % 3) as u16), Dice(seed));
        for _ in 0..STEPS {
            match dice.below(24) {
                0..7 => world.apply(World::wishes(&mut dice), false),
                7 => world.apply(World::wishes(&mut dice), true),
                8..11 => {
                    if let Some(again) = world.last.clone() {
                        world.apply(again, dice.chance(30));
                    }
                }
                11..14 => world.settle(None, false, false),
                14 | 15 => world.settle(None, true, false),
                16..21 => {
                    let revert = dice.chance(40);
                    world.settle(Some(some(&mut dice)), revert, false);
                }
                21 | 22 => {
                    let (revert, some) = (dice.chance(50), some(&mut dice));
                    world.settle(Some(some).filter(|_| dice.chance(50)), revert, true);
                }
                _ => world.delete(),
            }
        }
        world.counts.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
    }
    println!("{counts:?}");
    let all = [
        "a promise was kept",
        "applied",
        "committed",
        "deleted",
        "not settled",
        "planned",
        "promised",
        "refused",
        "reverted",
        "settled",
        "some committed",
        "some reverted",
        "the last of some settled",
        "the same plan",
    ];
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), all);
}
