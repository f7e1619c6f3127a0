//! Compares what clients were told with what is there in the end. A holding that a client was told of must still be
//! held by its owner, or be reported as a conflict. If nobody else owned the register since, it must be there without a
//! conflict, and what was let go must not be.
//!
//! Excused is what only a killed process knew. Nobody waits for replicas here, so the owner must remember what Redis
//! forgets. The guardian of a grant is the process that wrote it: later owners remember what they did themselves, and of
//! what they found no more than the last of it.
//!
//! **Known**, and passed over unless [`Plan::passes_known`](super::plan::Plan) says otherwise:
//!
//! - A batch was applied, and its writer does not know that. Another owner found it and told a client of it. That owner then
//!   ended, or wrote nothing before a third one took over, which therefore does not remember the batch.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use allod::core::types::NetworkId;
use serde_json::Value;

use super::world::{Death, World};

/// A client was told that an owner has this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub network: String,
    pub owner: String,
    pub address: String,
    pub generation: u64,
    /// Whether this very request made it.
    pub created: bool,
    /// The process that said so.
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

#[derive(Default)]
pub struct Judge {
    claims: RefCell<Vec<Claim>>,
    /// What was let go: which process said so, and when.
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
    /// What is still put aside: network, address and generation.
    pub late: BTreeSet<(NetworkId, String, u64)>,
}

impl Judge {
    pub fn knows(&self, network: &str, result: &Value) {
        if let Some(id) = result["id"].as_str().and_then(|id| id.parse().ok()) {
            self.ids.borrow_mut().insert(network.to_owned(), id);
        }
    }

    /// A client was told of a holding. Earlier holdings of the owner stay claims, since nobody said that they are over: they
    /// are judged, too. A holding that was let go before is no claim: on another line it may still be held, but in the end
    /// it must be held on none.
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

    /// A release is sent: from now on nothing is certain. Returns the claims that it concerns.
    pub fn lets_go(&self, network: &str, owner: &str) -> Vec<Claim> {
        let mut claims = self.claims.borrow_mut();
        let (gone, stay) = claims.drain(..).partition(|claim| claim.network == network && claim.owner == owner);
        *claims = stay;
        gone
    }

    /// The release was refused.
    pub fn keeps(&self, claims: Vec<Claim>) {
        self.claims.borrow_mut().extend(claims);
    }

    /// The release was done: of these claims, those with the released addresses are gone.
    pub fn gone(&self, claims: Vec<Claim>, released: &[Value], process: u64, told_ms: u64) {
        let is_free = |claim: &Claim| released.iter().any(|address| *address == claim.address.as_str());
        let free = claims.into_iter().filter(is_free).map(|claim| Claim { process, told_ms, ..claim });
        self.gone.borrow_mut().extend(free);
    }

    /// The process that must remember a grant: its writer, if that is known.
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
            // The client asked again at an owner that knew nothing of it, and was given the same address.
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

/// Is this the known gap, and does the plan pass over it?
fn known(world: &World, late: &(NetworkId, String, u64)) -> Option<&'static str> {
    let (network, _, generation) = late;
    let is_known = world.plan.passes_known && !world.told_writer.borrow().contains(&(*network, *generation));
    is_known.then_some("known: its writer was not told, and who found it is gone or was not the last")
}

/// Has no other process owned the register since then, and was no earlier primary put back?
fn alone_since(world: &World, process: u64, since_ms: u64) -> bool {
    world.put_back_ms.get().is_none_or(|back_ms| back_ms < since_ms)
        && !world.written.borrow().iter().any(|(other, at_ms)| *other != process && *at_ms >= since_ms)
}

/// Did this process take the register over from one that is gone, whose take-over nobody can repeat, and was it logged that
/// a late change was put aside and is not repeated?
fn follows_one_that_is_gone(world: &World, process: u64) -> bool {
    let (written, deaths) = (world.written.borrow(), world.deaths.borrow());
    let before = written.iter().take_while(|(writer, _)| *writer != process).last();
    let is_said = world.coverage.borrow().contains_key("late changes not repeated");
    is_said && before.is_some_and(|(writer, _)| deaths.contains_key(writer))
}

/// Has the process ended that must remember this grant? A killed one gives back nothing. Otherwise the grant is excused if
/// it was there when the process ended: then it was lost later.
fn is_excused(world: &World, process: u64, grant: (NetworkId, u64)) -> bool {
    let deaths = world.deaths.borrow();
    let Some(ended) = deaths.get(&process) else { return false };
    match ended.death {
        Death::Killed => true,
        Death::LeftInDebt | Death::Left | Death::WroteAnew | Death::Stopped => ended.there.contains(&grant),
    }
}
