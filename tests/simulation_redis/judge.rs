//! Holds what clients were told against what is there in the end: what somebody was told that he has is held by him, or told as
//! a conflict. And where nobody else owned the register since, it is there without a conflict, and what he let go is not.
//!
//! Excused is what only a process knew that was killed: nobody waits for replicas here, so what Redis forgets its owner must
//! remember. The guardian of a grant is the process that wrote it: whoever came later remembers what it did itself, and no more than
//! the last that it found.
//!
//! **Known**, and passed over unless [`Plan::passes_known`](super::plan::Plan) says otherwise:
//!
//! - A batch was applied and its writer does not know that; who found it, and told somebody of it, ended, or wrote nothing before
//!   another one took over, who therefore does not remember it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use allod::core::types::NetworkId;
use serde_json::Value;

use super::world::{Death, World};

/// Somebody was told that he has this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub network: String,
    pub owner: String,
    pub address: String,
    pub generation: u64,
    /// By this very request.
    pub created: bool,
    /// Who told him.
    pub process: u64,
    pub told_ms: u64,
}

impl Claim {
    pub fn of(network: &str, owner: &str, result: &Value, (process, told_ms): (u64, u64)) -> Self {
        Self {
            network: network.to_owned(),
            owner: owner.to_owned(),
            address: result["address"].as_str().unwrap_or_default().to_owned(),
            generation: result["generation"].as_u64().unwrap_or_default(),
            created: result["created"] == true,
            process,
            told_ms,
        }
    }

    fn is(&self, other: &Self) -> bool {
        (&self.network, &self.owner, &self.address, self.generation)
            == (&other.network, &other.owner, &other.address, other.generation)
    }
}

/// See the module.
#[derive(Default)]
pub struct Judge {
    claims: RefCell<Vec<Claim>>,
    /// What was let go: who said so, and when.
    gone: RefCell<Vec<Claim>>,
    ids: RefCell<BTreeMap<String, NetworkId>>,
}

/// What the owner of the register says at the end.
#[derive(Debug, Default)]
pub struct End {
    /// Network, address, owner and generation.
    pub held: BTreeSet<(String, String, String, u64)>,
    /// Network, address, and owner and generation of the late claim.
    pub conflicts: BTreeSet<(String, String, String, u64)>,
    /// What is put aside still: network, address and generation.
    pub late: BTreeSet<(NetworkId, String, u64)>,
}

impl Judge {
    pub fn knows(&self, network: &str, result: &Value) {
        if let Some(id) = result["id"].as_str().and_then(|id| id.parse().ok()) {
            self.ids.borrow_mut().insert(network.to_owned(), id);
        }
    }

    /// Somebody was told that he has something. He may have been told of something else before, and nobody told him that it is
    /// over: that is judged, too. Not what he let go before: on another line he has it still, and he has it on none in the end.
    pub fn claims(&self, world: &World, claim: Claim) {
        if self.gone.borrow().iter().any(|gone| gone.is(&claim)) {
            world.hit("shown what was let go");
            return;
        }
        let mut claims = self.claims.borrow_mut();
        if !claims.iter().any(|known| known.is(&claim)) {
            claims.push(claim);
        }
    }

    /// A release is sent: from now on nothing is sure. What it is about.
    pub fn lets_go(&self, network: &str, owner: &str) -> Vec<Claim> {
        let mut claims = self.claims.borrow_mut();
        let (gone, stay) = claims.drain(..).partition(|claim| claim.network == network && claim.owner == owner);
        *claims = stay;
        gone
    }

    /// It was refused.
    pub fn keeps(&self, claims: Vec<Claim>) {
        self.claims.borrow_mut().extend(claims);
    }

    /// It was done: these addresses are free, of these claims.
    pub fn gone(&self, claims: Vec<Claim>, released: &[Value], process: u64, told_ms: u64) {
        let is_free = |claim: &Claim| released.iter().any(|address| *address == claim.address.as_str());
        let free = claims.into_iter().filter(is_free).map(|claim| Claim { process, told_ms, ..claim });
        self.gone.borrow_mut().extend(free);
    }

    /// The process that must remember a grant: its writer.
    fn guardian(&self, world: &World, claim: &Claim) -> u64 {
        let id = self.ids.borrow().get(&claim.network).copied();
        let writer = id.and_then(|id| world.writers.borrow().get(&(id, claim.generation)).copied());
        writer.unwrap_or(claim.process)
    }

    pub fn judge(&self, world: &World, end: &End) {
        for claim in &*self.claims.borrow() {
            let key = (claim.network.clone(), claim.address.clone(), claim.owner.clone(), claim.generation);
            if end.held.contains(&key) {
                world.hit("held at the end");
                continue;
            }
            // He asked again of whoever knew nothing of it, and was given the same.
            let same = |held: &(String, String, String, u64)| (&held.0, &held.1, &held.2) == (&key.0, &key.1, &key.2);
            if end.held.iter().any(same) {
                world.hit("held under another generation");
                continue;
            }
            let guardian = self.guardian(world, claim);
            if end.conflicts.contains(&key) {
                world.hit("conflict at the end");
                if alone_since(world, guardian, claim.told_ms) {
                    world.problem(format!("a conflict, although nobody else owned the register since: {claim:?}"));
                }
                continue;
            }
            let Some(id) = self.ids.borrow().get(&claim.network).copied() else { continue };
            let (grant, late) = ((id, claim.generation), (id, claim.address.clone(), claim.generation));
            if end.late.contains(&late) {
                world.hit("put aside at the end");
            } else if is_excused(world, guardian, grant) {
                world.hit("lost with the process that knew");
            } else if let Some(known) = known(world, &late) {
                world.hit(known);
            } else {
                let holder = end.held.iter().find(|held| (&held.0, &held.1) == (&key.0, &key.1));
                world.problem(format!(
                    "somebody was told of this and it is gone, and nobody was told so: {claim:?}; guardian {guardian}; there is \
                     {holder:?}"
                ));
            }
        }
        for gone in &*self.gone.borrow() {
            let key = (gone.network.clone(), gone.address.clone(), gone.owner.clone(), gone.generation);
            let lives = !world.deaths.borrow().contains_key(&gone.process);
            let is_alone = lives && alone_since(world, gone.process, gone.told_ms);
            if end.held.contains(&key) && is_alone {
                if follows_one_that_is_gone(world, gone.process) {
                    world.hit("held again, and said so");
                } else {
                    world.problem(format!(
                        "what was let go is held, although nobody else owned the register since: {gone:?}"
                    ));
                }
            }
            world.hit("let go of at the end");
        }
    }
}

/// Is it the gap that is known, and is that passed over?
fn known(world: &World, late: &(NetworkId, String, u64)) -> Option<&'static str> {
    let (network, _, generation) = late;
    let is_known = world.plan.passes_known && !world.told_writer.borrow().contains(&(*network, *generation));
    is_known.then_some("known: its writer was not told, and who found it is gone or was not the last")
}

/// Did nobody but this process own the register since, nor was somebody's line put in the place of its own?
fn alone_since(world: &World, process: u64, since_ms: u64) -> bool {
    world.put_back_ms.get().is_none_or(|back_ms| back_ms < since_ms)
        && !world.written.borrow().iter().any(|(other, at_ms)| *other != process && *at_ms >= since_ms)
}

/// Did this process take the register from one that is no more, whose take-over nobody can repeat, and was it said that a release was
/// put aside and is not repeated?
fn follows_one_that_is_gone(world: &World, process: u64) -> bool {
    let (written, deaths) = (world.written.borrow(), world.deaths.borrow());
    let before = written.iter().take_while(|(writer, _)| *writer != process).last();
    let is_said = world.coverage.borrow().contains_key("late changes not repeated");
    is_said && before.is_some_and(|(writer, _)| deaths.contains_key(writer))
}

/// Is the process no more that must remember this? Killed it gives back nothing. Otherwise what it acknowledged was there when it
/// ended, and was lost later.
fn is_excused(world: &World, process: u64, grant: (NetworkId, u64)) -> bool {
    let deaths = world.deaths.borrow();
    let Some(ended) = deaths.get(&process) else { return false };
    match ended.death {
        Death::Killed => true,
        Death::LeftInDebt | Death::Left | Death::WroteAnew | Death::Stopped => ended.there.contains(&grant),
    }
}
