//! Three networks with a store beside each, time, and the deployment that spans them.

use super::asks::{Dice, everything};
use super::desk::Desk;
use super::side::{Side, held_of};
use crate::core::address::Address;
use crate::core::command::*;
use crate::core::outcome::Outcome;
use crate::core::types::*;

/// How many networks there are.
pub(super) const NETWORKS: usize = 3;

/// The networks, time, and the deployment.
pub(super) struct World {
    pub(super) sides: Vec<Side>,
    pub(super) desk: Desk,
    now: u64,
    draws: u128,
    /// The latest plan of a deployment in one network.
    plan: u64,
}

impl World {
    pub(super) fn new(beginnings: &[Vec<u16>; NETWORKS]) -> Self {
        let named = beginnings.iter().zip(["lan", "wan", "dmz"]);
        let side = |(numbers, name): (&Vec<u16>, &str)| Side::create(Dice::new(numbers).network(name), Generation(100));
        let mut world = Self::of(named.map(side).collect());
        for (at, numbers) in beginnings.iter().enumerate() {
            for first in 0..8 {
                let input = Box::new(Dice::new(&numbers[first * 2 + 12..]).subnet());
                let change = Box::new(Configure::SubnetAdd { input, if_absent: false });
                world.run(at, &Command::Configure { change, if_version: None });
            }
        }
        world
    }

    /// A world that mostly has room for a deployment: static and dynamic pools, and few rules that refuse anything.
    pub(super) fn roomy(beginnings: &[Vec<u16>; NETWORKS]) -> Self {
        let named = beginnings.iter().zip(["lan", "wan", "dmz"]);
        let side =
            |(numbers, name): (&Vec<u16>, &str)| Side::create(Dice::new(numbers).roomy_network(name), Generation(100));
        Self::of(named.map(side).collect())
    }

    fn of(sides: Vec<Side>) -> Self {
        // The second network's shard stood still for days while no server ran.
        let ahead = [3_000_000, 0, 900_000_000];
        let sides = sides.into_iter().zip(ahead).map(|(side, ahead)| side.ahead_by(ahead)).collect();
        Self { sides, desk: Desk::default(), now: 1_000_000, draws: 1, plan: 1 }
    }

    pub(super) fn context(&mut self) -> Context {
        self.draws = self.draws.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645).wrapping_add(0x5851_F42D);
        Context {
            now: ShardTime(self.now),
            wall: WallTime(self.now + 1_700_000_000_000),
            entropy: self.draws,
            mac_elsewhere: None,
            generations: Generation::default(),
        }
    }

    pub(super) fn act(&mut self, numbers: &[u16]) {
        let mut dice = Dice::new(numbers);
        let at = usize::from(dice.once_in(4));
        self.time_goes_by(&mut dice);
        match dice.below(50) {
            35 => self.machines_go(at, &mut dice),
            36..=39 => {
                let plan = self.plan + usize::from(!dice.once_in(5)) as u64;
                let ask = dice.deploy(&self.sides[at].network, plan);
                if self.run(at, &Command::Deploy(Box::new(ask))).is_some() {
                    self.plan = plan;
                }
            }
            40..=42 => {
                let ask = dice.settle(self.plan);
                self.run(at, &Command::Settle(Box::new(ask)));
            }
            43 => self.move_subnet(at, &mut dice),
            44..=47 => self.plan(&mut dice),
            48 | 49 => self.end_plan(&mut dice),
            _ => {
                let command = dice.command(&self.sides[at].network);
                self.run(at, &command);
            }
        }
    }

    /// Mostly an act of the deployment that spans the networks; now and then something else in one of them.
    pub(super) fn act_of_a_deployment(&mut self, numbers: &[u16]) {
        let mut dice = Dice::new(numbers);
        self.time_goes_by(&mut dice);
        match dice.below(12) {
            0..=4 => self.plan(&mut dice),
            5..=10 => self.end_plan(&mut dice),
            _ => {
                let at = dice.below(NETWORKS);
                let command = dice.command(&self.sides[at].network);
                self.run(at, &command);
            }
        }
    }

    /// Machines come to use whatever a network holds, and some of them are gone at once: a sweep then meets every kind of
    /// holding, and several at a time that have to do with each other.
    fn machines_go(&mut self, at: usize, dice: &mut Dice<'_>) {
        for (address, held) in everything(&self.sides[at].network).into_iter().filter_map(held_of) {
            if held.claimant.is_none() {
                let target = Target { address: Some(address), ..Target::default() };
                self.run(at, &Command::Bind(Box::new(target), "vm-1".parse().unwrap()));
            }
        }
        let sweep = dice.sweep(&self.sides[at].network);
        self.run(at, &sweep);
    }

    fn time_goes_by(&mut self, dice: &mut Dice<'_>) {
        self.now += [0, 0, 0, 0, 0, 400, 1_000, 1_000, 3_000, 6_000, 30_000][dice.below(11)];
    }

    /// Ends what is due, as an actor does before each request.
    pub(super) fn expire(&mut self, at: usize) {
        let context = self.context();
        for _ in 0..1_000 {
            let side = &mut self.sides[at];
            if side.network.next_due().is_none_or(|due| due > side.here(context).now) {
                return;
            }
            let decision = side.decide(&Command::Expire, context).expect("nothing refuses to expire");
            assert!(!decision.steps.is_empty(), "what is due ends");
            side.take(&Command::Expire, &decision, context);
            side.again_if_gone();
        }
        panic!("what is due never ends");
    }

    fn run(&mut self, at: usize, command: &Command) -> Option<Outcome> {
        self.expire(at);
        let context = self.context();
        let side = &mut self.sides[at];
        match side.decide(command, context) {
            Ok(decision) => {
                assert!(!command.is_read() || decision.steps.is_empty());
                side.take(command, &decision, context);
                if !side.network.is_gone() {
                    super::deploys::check(&side.network, command, &decision.outcome);
                    super::repeats::check(side, command, &decision, context);
                }
                side.again_if_gone();
                Some(decision.outcome)
            }
            Err(refusal) => {
                assert!(!refusal.to_string().is_empty());
                None
            }
        }
    }

    /// `subnet.move`: both networks agree, or nothing moves.
    fn move_subnet(&mut self, from: usize, dice: &mut Dice<'_>) {
        let to = (from + 1 + dice.below(NETWORKS - 1)) % NETWORKS;
        self.expire(from);
        self.expire(to);
        let context = self.context();
        let out = dice.move_out(&self.sides[from].network);
        let Ok(left) = self.sides[from].decide(&out, context) else { return };
        let Outcome::MovedOut(moved) = &left.outcome else { panic!("{:?}", left.outcome) };
        let into = Command::MoveIn(moved.clone());
        let Ok(arrived) = self.sides[to].decide(&into, context) else { return };
        let addresses: Vec<Address> = moved.entries.iter().map(|(address, _)| *address).collect();
        let before = self.sides[from].times(&addresses, context);
        self.sides[from].take(&out, &left, context);
        self.sides[to].take(&into, &arrived, context);
        let after = self.sides[to].times(&addresses, context);
        assert_eq!(before, after, "leases, cooldowns and probations go along with a subnet");
        let highest = self.sides[from].highest.max(self.sides[to].highest);
        self.sides[to].highest = highest;
        assert!(self.sides[to].network.next_generation() > highest, "generations go along with a subnet");
    }

    /// Once everything is released and has cooled, each address that the pools offer is given once, and no other.
    pub(super) fn every_address_is_given_exactly_once_in_the_end(&mut self) {
        for at in 0..NETWORKS {
            let open = NetworkPatch { limits: Patch::Clear, protected: Patch::Set(false), ..NetworkPatch::default() };
            let configure = |change| Command::Configure { change: Box::new(change), if_version: None };
            self.run(at, &configure(Configure::Restore));
            self.run(at, &configure(Configure::Update(Box::new(open))));
            for (_, held) in everything(&self.sides[at].network).into_iter().filter_map(held_of) {
                self.run(at, &Command::ReleaseScope { scope: held.holder.scope.clone(), limit: 1_000 });
            }
            self.now += 100_000;
            self.expire(at);
            assert_eq!(self.sides[at].network.entries(), 0);
            let mut offered = self.sides[at].offered();
            let mut number = 0;
            self.sides[at].checked_of = 8;
            while let Some(outcome) = self.run(at, &allocate(number)) {
                let Outcome::Granted(grant) = outcome else { panic!("{outcome:?}") };
                assert!(offered.remove(&grant.view.address), "{} is not offered, or was given", grant.view.address);
                number += 1;
            }
            assert!(offered.is_empty(), "never given: {offered:?}");
            self.sides[at].checked_of = 1;
            self.run(at, &Command::ReleaseScope { scope: Scope::default(), limit: 1_000 });
        }
    }
}

fn allocate(number: usize) -> Command {
    let holder = SlotKey { owner: format!("end-{number}").parse().unwrap(), ..slot_of_nobody() };
    Command::Allocate(Box::new(Allocate { holder, wish: Wish::default(), options: GrantOptions::default() }))
}

fn slot_of_nobody() -> SlotKey {
    SlotKey { scope: Scope::default(), owner: "nobody".parse().unwrap(), slot: Slot::default() }
}
