//! `claimant.sweep`: from its params to its job, and from what came of it to its answer.

use std::collections::BTreeSet;

use super::dispatch::Errand;
use super::input;
use crate::actors::coordinator::Job;
use crate::actors::coordinator::sweep::{Alive, ClaimantAt, Sweep, Swept};
use crate::wire::{RpcError, nouns, params};

/// Default of `grace_seconds`.
const GRACE_SECONDS: u64 = 60;
/// Default of `max_share`.
const MAX_SHARE: f64 = 0.2;

/// Decides what a sweep asks of whom.
///
/// # Errors
/// `invalid_argument` unless exactly one of `alive` and `sweep` is given.
pub(super) fn claimant_sweep(ask: params::ClaimantSweep) -> Result<Errand, RpcError> {
    let alive = match (ask.alive, ask.sweep) {
        (Some(alive), None) => Alive::Listed(alive.into_vec().into_iter().collect::<BTreeSet<_>>()),
        (None, Some(sweep)) => Alive::Marked(sweep.into_inner()),
        (Some(_), Some(_)) => {
            return Err(RpcError::invalid("sweep", "`sweep` and `alive` exclude each other; give only one of them"));
        }
        (None, None) => {
            let problem =
                "`alive` or `sweep` must be given, to say which claimants are alive; `alive: []` says that none is";
            return Err(RpcError::invalid("alive", problem));
        }
    };
    let network = ask.network.as_ref().map(input::network_text);
    let share = ask.max_share.map_or(MAX_SHARE, |share| share.get());
    let sweep = Sweep {
        scope: ask.scope,
        alive,
        network: network.clone(),
        grace_seconds: ask.grace_seconds.map_or(GRACE_SECONDS, |seconds| seconds.get()),
        // Upwards, so that a share written as a quotient, as a third of three, lets that many go.
        max_share_billionths: (share * 1e9).ceil() as u32,
    };
    Ok(Errand::over(network, Job::Sweep(Box::new(sweep))))
}

/// The answer of a sweep.
pub(super) fn sweep_result(swept: &Swept) -> nouns::SweepResult {
    let list = |list: &[ClaimantAt]| list.iter().map(claimant_at).collect();
    nouns::SweepResult {
        unbound: list(&swept.unbound),
        released: list(&swept.released),
        waiting: list(&swept.waiting),
        more: swept.more.then_some(true),
    }
}

fn claimant_at(at: &ClaimantAt) -> nouns::ClaimantAt {
    nouns::ClaimantAt { network: at.network.clone(), address: at.address, claimant: at.claimant.clone() }
}
