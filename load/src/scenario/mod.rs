//! The scenarios, which choose the requests: one file for each, behind one trait.
//!
//! To add one, write a file with a type that implements [`Scenario`], and add a line to [`Name`] and to [`Name::build`]; a
//! test runs every scenario against a server. `exchange` has the core of most of them: lanes that allocate and release.
//! Scenarios that do nothing else are a `steady` with its own settings.

mod blocks;
mod churn;
mod claim_and_sweep;
mod claims;
mod contended;
mod deployments;
pub mod exchange;
mod fill;
mod hot_network;
mod ipv6;
mod mixed;
mod network;
mod record;
mod restart_storm;
mod steady;

use std::time::Duration;

pub use network::NetworkPlan;
pub use record::Record;

use crate::audit::Auditor;
use crate::meter::Kind;
use crate::refusal::Refusal;

/// All scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Name {
    /// The canonical load: 64 networks half full; lanes allocate, release, repeat, renew and look up.
    Mixed,
    /// Allocates and keeps, as fast as the server answers; with --hold it releases too.
    Fill,
    /// A pool at a given fill level; every lane exchanges its address.
    Churn,
    /// Many clients, one pool with next to no room: most are refused, or wait with --wait.
    Contended,
    /// Every lane claims its address by name, releases it, and claims it again.
    Claims,
    /// Claims named addresses for machines, and sweeps those whose machine is gone.
    ClaimAndSweep,
    /// Whole deployments: apply, then commit or revert.
    Deployments,
    /// Aligned blocks in place of addresses.
    Blocks,
    /// Addresses out of a /64, which can be neither counted nor filled.
    Ipv6,
    /// A thousand small networks in turn.
    ManyNetworks,
    /// Many networks, and nine of ten requests for one of them.
    HotNetwork,
    /// Every owner holds an address, loses its connection, and asks again.
    RestartStorm,
}

/// The settings of a run; each scenario has its own defaults for those that are missing.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The most requests outstanding at once.
    pub lanes: usize,
    pub seed: u32,
    pub brief: bool,
    /// What a reservation contains besides its owner; only for brief answers, and for runs without a listing at the end.
    pub record: Record,
    pub networks: Option<usize>,
    /// This many lanes, those of one connection, stay in one network instead of cycling through all.
    pub lanes_per_network: Option<usize>,
    /// The prefix of network names, instead of `load-`.
    pub network_prefix: Option<String>,
    /// The name of the only network, instead of `load-00`.
    pub network_name: Option<String>,
    pub cidr: Option<String>,
    pub policy: Option<String>,
    pub cooldown_seconds: Option<u64>,
    /// The share of the pools that is held before measuring.
    pub fill_level: Option<f64>,
    /// The number of addresses to allocate before measuring, instead of a share.
    pub prefill: Option<u64>,
    /// Addresses that a lane keeps before it releases its oldest.
    pub hold: Option<usize>,
    /// For a restart storm.
    pub owners: Option<u64>,
    /// For deployments.
    pub instances: Option<usize>,
    /// For blocks.
    pub prefix_length: Option<u8>,
    /// For a contended pool: how long a request waits for its turn.
    pub wait_seconds: Option<u64>,
}

/// What a scenario gets with each request and answer.
pub struct Desk<'a> {
    pub audit: &'a mut Auditor,
    /// The id of the request.
    pub id: usize,
    /// The time since the beginning of the run.
    pub now: Duration,
}

/// Chooses the requests, and interprets the answers.
pub trait Scenario {
    /// The networks of the scenario.
    fn networks(&self) -> Vec<NetworkPlan>;

    /// The number of requests before measuring, if all pools together can hold `capacity` addresses, and already hold
    /// `held`.
    fn prefill(&self, capacity: u64, held: u64) -> u64 {
        let _ = (capacity, held);
        0
    }

    /// The preparation is over, and connections are new.
    fn begin(&mut self) {}

    /// The number of requests after which the scenario ends by itself.
    fn requests(&self) -> Option<u64> {
        None
    }

    /// Appends the next request of this lane, with the desk's id and a line end. None: the lane has nothing more to ask.
    fn request(&mut self, lane: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind>;

    /// Takes the answer to the lane's latest request: its line, or the refusal.
    fn answer(&mut self, lane: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>);
}

impl Name {
    /// Builds the scenario with these settings.
    pub fn build(self, settings: &Settings) -> Box<dyn Scenario> {
        match self {
            Name::Mixed => Box::new(mixed::Mixed::new(settings)),
            Name::Fill => Box::new(fill::fill(settings)),
            Name::Churn => Box::new(churn::churn(settings)),
            Name::Contended => Box::new(contended::contended(settings)),
            Name::Claims => Box::new(claims::Claims::new(settings)),
            Name::ClaimAndSweep => Box::new(claim_and_sweep::ClaimAndSweep::new(settings)),
            Name::Deployments => Box::new(deployments::Deployments::new(settings)),
            Name::Blocks => Box::new(blocks::Blocks::new(settings)),
            Name::Ipv6 => Box::new(ipv6::ipv6(settings)),
            Name::ManyNetworks => Box::new(churn::many_networks(settings)),
            Name::HotNetwork => Box::new(hot_network::HotNetwork::new(settings)),
            Name::RestartStorm => Box::new(restart_storm::RestartStorm::new(settings)),
        }
    }

    /// The name on the command line.
    pub fn text(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
