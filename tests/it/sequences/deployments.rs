//! Deployments against a list of what is held: plan, apply, commit, revert and delete over two networks, each answer and
//! all that is held afterwards compared. Wishes are automatic or for an address that no other instance wishes, so nothing
//! is promised here; whole plans are ended, not parts of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use allod::store::memory::MemoryStore;
use serde_json::{Value, json};

use super::{Subject, answer_of};
use crate::model::Dice;

const SEQUENCES: u64 = 40;
const STEPS: usize = 40;
const INSTANCES: usize = 4;
const NETWORKS: [&str; 2] = ["n0", "n1"];
/// Addresses of the dynamic pool of each network: fewer than the instances and what they let go.
const DYNAMIC: u8 = 5;
/// The first of the static ones: two for each instance.
const STATIC: u8 = 20;

/// Network and last byte.
type Place = (usize, u8);

#[derive(Debug, Clone, PartialEq)]
struct Held {
    instance: usize,
    /// The plan that let it go.
    obsolete: Option<u64>,
    /// The plan that granted it.
    granted: u64,
    /// The plan that took it back, and the one that had let it go.
    revived: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Wish {
    Nothing,
    Automatic,
    Static(u8),
}

/// What one apply asks for, by instance: is it listed, is it fresh, and its wish in each network.
type Wishes = Vec<Option<(bool, [Wish; 2])>>;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Open,
    Committed,
    Reverted,
}

#[derive(Debug, Clone, Default)]
struct Register {
    held: BTreeMap<Place, Held>,
    latest: Option<(u64, Stage)>,
}

fn address((network, last): Place) -> String {
    format!("10.{network}.0.{last}")
}

impl Register {
    fn current(&self, instance: usize, network: usize) -> Option<u8> {
        let own = |(place, held): &(&Place, &Held)| {
            place.0 == network && held.instance == instance && held.obsolete.is_none()
        };
        self.held.iter().find(own).map(|(place, _)| place.1)
    }

    /// What would become of each wish: its state, and the address.
    fn apply(&mut self, wishes: &Wishes, plan: u64) -> Result<Vec<(&'static str, u8)>, &'static str> {
        let mut done = Vec::new();
        let mut grants: Vec<(usize, usize, usize, Wish)> = Vec::new();
        for (instance, of_it) in wishes.iter().enumerate() {
            let (fresh, wished) = of_it.unwrap_or((false, [Wish::Nothing; 2]));
            for (network, wish) in wished.into_iter().enumerate() {
                let own = |held: &Held| held.instance == instance;
                let fits = |last: u8| match wish {
                    Wish::Nothing => false,
                    Wish::Automatic => last < STATIC && !fresh,
                    Wish::Static(at) => last == at,
                };
                let current = self.current(instance, network);
                let kept = current.filter(|last| fits(*last));
                let obsolete = self
                    .held
                    .iter()
                    .filter(|((of, last), held)| *of == network && own(held) && held.obsolete.is_some() && fits(*last));
                // The one that was granted last.
                let revived = obsolete.max_by_key(|(_, held)| held.granted).map(|(place, _)| place.1);
                let stays = kept.or(revived);
                if let Some(last) = current.filter(|last| stays != Some(*last)) {
                    self.held.get_mut(&(network, last)).unwrap().obsolete = Some(plan);
                }
                if let Some(last) = stays {
                    let held = self.held.get_mut(&(network, last)).unwrap();
                    held.revived = held.obsolete.take().map(|was| (plan, was));
                    done.push(("kept", last));
                } else if wish != Wish::Nothing {
                    grants.push((done.len(), instance, network, wish));
                    done.push(("new", 0));
                }
            }
        }
        grants.sort_by_key(|(_, _, _, wish)| !matches!(wish, Wish::Static(_)));
        for (at, instance, network, wish) in grants {
            let lowest = || (1..=DYNAMIC).find(|last| !self.held.contains_key(&(network, *last)));
            let last = match wish {
                Wish::Static(last) => Some(last),
                Wish::Automatic | Wish::Nothing => lowest(),
            };
            let last = last.ok_or("not_enough_capacity")?;
            let new = Held { instance, obsolete: None, granted: plan, revived: None };
            assert_eq!(self.held.insert((network, last), new), None);
            done[at].1 = last;
        }
        Ok(done)
    }

    fn release(&mut self, leaves: impl Fn(&Held) -> bool) -> Vec<String> {
        let gone: Vec<Place> = self.held.iter().filter(|(_, held)| leaves(held)).map(|(place, _)| *place).collect();
        self.held.retain(|place, _| !gone.contains(place));
        gone.into_iter().map(address).collect()
    }

    fn commit(&mut self) -> Vec<String> {
        let released = self.release(|held| held.obsolete.is_some());
        self.held.values_mut().for_each(|held| held.revived = None);
        released
    }

    fn revert(&mut self, plan: u64) -> Vec<String> {
        let released = self.release(|held| held.granted == plan);
        for held in self.held.values_mut() {
            match held.revived.take().filter(|(by, _)| *by == plan) {
                Some((_, was)) => held.obsolete = Some(was),
                None => held.obsolete = held.obsolete.filter(|by| *by != plan),
            }
        }
        released
    }
}

struct World {
    server: Subject,
    register: Register,
    /// The highest plan so far.
    plans: u64,
    last: Option<Wishes>,
    /// How often each was done, and changed something where it may.
    counts: BTreeMap<&'static str, usize>,
}

impl World {
    fn new() -> Self {
        let mut server = Subject::new(Arc::new(MemoryStore::new(1)));
        for (at, name) in NETWORKS.iter().enumerate() {
            let pools = json!([
                {"range": format!("10.{at}.0.1-10.{at}.0.{DYNAMIC}")},
                {"range": format!("10.{at}.0.{STATIC}-10.{at}.0.{}", STATIC + 9), "kind": "static"},
            ]);
            let subnets = json!([{"cidr": format!("10.{at}.0.0/24"), "pools": pools}]);
            server.ask("network.create", &json!({"name": name, "subnets": subnets})).unwrap();
        }
        Self { server, register: Register::default(), plans: 0, last: None, counts: BTreeMap::new() }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn wishes(dice: &mut Dice) -> Wishes {
        let wish = |dice: &mut Dice, instance: usize| match dice.below(6) {
            0 => Wish::Nothing,
            1 | 2 => Wish::Static(STATIC + 2 * instance as u8 + dice.below(2) as u8),
            _ => Wish::Automatic,
        };
        let listed = |instance: usize| {
            let of_it = (dice.chance(10), [wish(dice, instance), wish(dice, instance)]);
            dice.chance(80).then_some(of_it)
        };
        (0..INSTANCES).map(listed).collect()
    }

    fn params(wishes: &Wishes) -> Value {
        let network = |(at, wish): (usize, &Wish)| match wish {
            Wish::Nothing => None,
            Wish::Automatic => Some(json!({"network": NETWORKS[at]})),
            Wish::Static(last) => Some(json!({"network": NETWORKS[at], "address": address((at, *last))})),
        };
        let listed = wishes.iter().enumerate().filter_map(|(at, of_it)| {
            let (fresh, wished) = of_it.as_ref()?;
            let networks: Vec<Value> = wished.iter().enumerate().filter_map(network).collect();
            Some(json!({"id": format!("i{at}"), "fresh": fresh, "networks": networks}))
        });
        json!({"deployment": "d", "instances": listed.collect::<Vec<_>>()})
    }

    /// What the server says of every wish, in order.
    fn told(result: &Value) -> Vec<(String, String)> {
        let slots = result["instances"].as_array().unwrap().iter().flat_map(|one| one["networks"].as_array().unwrap());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        slots.map(|slot| (text(&slot["state"]), text(&slot["reservation"]["address"]))).collect()
    }

    fn apply(&mut self, wishes: Wishes, only_plan: bool) {
        let params = Self::params(&wishes);
        let method = if only_plan { "deployment.plan" } else { "deployment.apply" };
        let answer = answer_of(&self.server.ask(method, &params).unwrap());
        let (mut after, next) = (self.register.clone(), self.plans + 1);
        if let (Ok(result), Some((latest, stage))) = (&answer, self.register.latest)
            && result["plan"] == latest
        {
            // The same wishes, and all that they led to stands: nothing is changed by saying so again.
            assert_eq!(self.last.as_ref(), Some(&wishes), "{params}");
            assert_ne!(stage, Stage::Reverted);
            let wished = wishes.iter().enumerate().filter_map(|(at, of_it)| Some((at, of_it.as_ref()?.1)));
            let held = wished.flat_map(|(instance, wished)| {
                let register = &self.register;
                let networks = (0..2).filter(move |network| wished[*network] != Wish::Nothing);
                networks.map(move |network| address((network, register.current(instance, network).unwrap())))
            });
            assert_eq!(Self::told(result).into_iter().map(|(_, at)| at).collect::<Vec<_>>(), held.collect::<Vec<_>>());
            self.check();
            return self.count("the same plan");
        }
        let expected = after.apply(&wishes, next);
        let (result, expected) = match (answer, expected) {
            (Err((kind, _)), Err(expected)) => {
                assert_eq!(kind, expected, "{method} {params}");
                return self.count("refused");
            }
            (Ok(result), Ok(expected)) => (result, expected),
            (answer, expected) => panic!("{method} {params}: {answer:?}, and {expected:?} by the list"),
        };
        let places: Vec<usize> =
            wishes.iter().flatten().flat_map(|(_, wished)| (0..2).filter(|at| wished[*at] != Wish::Nothing)).collect();
        let all: Vec<(String, String)> = expected
            .iter()
            .zip(&places)
            .map(|((state, last), network)| ((*state).to_owned(), address((*network, *last))))
            .collect();
        let addresses =
            |slots: &[(String, String)]| -> Vec<String> { slots.iter().map(|(_, at)| at.clone()).collect() };
        assert_eq!(addresses(&Self::told(&result)), addresses(&all), "{method} {params}");
        if only_plan {
            assert_eq!(Self::told(&result), all, "{method} {params}");
            return self.count("planned");
        }
        let plan = result["plan"].as_u64().unwrap();
        assert_eq!(Self::told(&result), all, "{method} {params}");
        assert!(plan > self.plans, "{plan} after {}", self.plans);
        // The number is the server's.
        let number = |of: &mut u64| *of = if *of == next { plan } else { *of };
        for held in after.held.values_mut() {
            number(&mut held.granted);
            held.obsolete.iter_mut().for_each(number);
            held.revived.iter_mut().for_each(|(by, _)| number(by));
        }
        after.latest = Some((plan, Stage::Open));
        (self.register, self.plans, self.last) = (after, plan, Some(wishes));
        self.check();
        self.count("applied");
    }

    fn settle(&mut self, revert: bool, stale: bool) {
        let method = if revert { "deployment.revert" } else { "deployment.commit" };
        let plan = self.plans.saturating_sub(u64::from(stale));
        let answer = answer_of(&self.server.ask(method, &json!({"deployment": "d", "plan": plan})).unwrap());
        let wanted = if revert { Stage::Reverted } else { Stage::Committed };
        let expected = match self.register.latest {
            None => Err("not_found"),
            Some((latest, _)) if latest != plan => Err("conflict"),
            Some((_, stage)) if stage == wanted => Ok(Vec::new()),
            Some((_, Stage::Open)) => {
                self.register.latest = Some((plan, wanted));
                Ok(if revert { self.register.revert(plan) } else { self.register.commit() })
            }
            Some(_) => Err("conflict"),
        };
        match (answer, expected) {
            (Ok(result), Ok(expected)) => {
                let text = |entry: &Value| entry["address"].as_str().unwrap().to_owned();
                let mut released: Vec<String> = result["released"].as_array().unwrap().iter().map(text).collect();
                let mut expected = expected;
                released.sort();
                expected.sort();
                assert_eq!(released, expected, "{method} {plan}");
                self.count(if released.is_empty() {
                    "settled"
                } else if revert {
                    "reverted"
                } else {
                    "committed"
                });
            }
            (Err((kind, _)), Err(expected)) => {
                assert_eq!(kind, expected, "{method} {plan}");
                self.count("not settled");
            }
            (answer, expected) => panic!("{method} {plan}: {answer:?}, and {expected:?} by the list"),
        }
        self.check();
    }

    fn delete(&mut self) {
        let answer = answer_of(&self.server.ask("deployment.delete", &json!({"deployment": "d"})).unwrap());
        let known = self.register.latest.take().is_some();
        let released = self.register.release(|_| true);
        match answer {
            Ok(result) => assert_eq!(result["released"].as_array().unwrap().len(), released.len(), "{result}"),
            Err((kind, _)) => assert!(!known && kind == "not_found", "{kind}"),
        }
        self.last = None;
        self.check();
        self.count("deleted");
    }

    /// All that is held, as the list and the deployment show it.
    fn check(&mut self) {
        let listed = self.server.ask("ip.list", &json!({"scope": "d"})).unwrap()["result"].take();
        let mut there = BTreeMap::new();
        for held in listed["reservations"].as_array().unwrap() {
            let obsolete = held["obsolete"]["plan"].as_u64();
            there.insert(held["address"].as_str().unwrap().to_owned(), (held["owner"].clone(), obsolete));
        }
        let owner = |held: &Held| json!(format!("i{}", held.instance));
        let expected = self.register.held.iter().map(|(place, held)| (address(*place), (owner(held), held.obsolete)));
        assert_eq!(there, expected.collect(), "what is held");
        let Some((plan, stage)) = self.register.latest else { return };
        let shown = self.server.ask("deployment.get", &json!({"deployment": "d"})).unwrap()["result"].take();
        assert_eq!(shown["plan"], plan);
        if stage != Stage::Open {
            assert!(stage == Stage::Reverted || shown["uncommitted_since"].is_null(), "{shown}");
        }
    }
}

#[test]
fn deployments_come_and_go_as_a_list_of_what_they_hold_says() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 1..=SEQUENCES {
        println!("sequence {seed}");
        let (mut world, mut dice) = (World::new(), Dice(seed));
        for _ in 0..STEPS {
            match dice.below(20) {
                0..8 => world.apply(World::wishes(&mut dice), false),
                8 | 9 => world.apply(World::wishes(&mut dice), true),
                10 | 11 => {
                    if let Some(again) = world.last.clone() {
                        world.apply(again, false);
                    }
                }
                12..15 => world.settle(false, false),
                15..18 => world.settle(true, false),
                18 => world.settle(dice.chance(50), true),
                _ => world.delete(),
            }
        }
        world.counts.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
    }
    println!("{counts:?}");
    let all = [
        "applied",
        "committed",
        "deleted",
        "not settled",
        "planned",
        "refused",
        "reverted",
        "settled",
        "the same plan",
    ];
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), all);
}
