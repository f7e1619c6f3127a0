//! What is asked: one file a scenario, behind one trait.
//!
//! To add one: a file here with a type that implements [`Scenario`], and a line in [`Name`] and in [`Name::build`]; a test
//! runs every scenario against a server. `exchange` has what most of them do: addresses that lanes take and give back;
//! those that do nothing else are a `steady` with settings of their own.

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

/// What was set for a run; each scenario has defaults of its own for what was not.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Requests outstanding at once.
    pub lanes: usize,
    pub seed: u32,
    pub brief: bool,
    /// What each reservation has beside its owner; of those whose answers are brief, and that are not listed at the end.
    pub record: Record,
    pub networks: Option<usize>,
    /// So many lanes, those of a connection, keep to one network in place of going round them.
    pub lanes_per_network: Option<usize>,
    /// What the names of networks begin with, in place of `load-`.
    pub network_prefix: Option<String>,
    /// In place of `load-00`, where there is one.
    pub network_name: Option<String>,
    pub cidr: Option<String>,
    pub policy: Option<String>,
    pub cooldown_seconds: Option<u64>,
    /// Share of the pools that is held before measuring.
    pub fill_level: Option<f64>,
    /// Addresses that are held before measuring, in place of a share.
    pub prefill: Option<u64>,
    /// Addresses that a lane keeps before it releases its oldest.
    pub hold: Option<usize>,
    /// Of a restart storm.
    pub owners: Option<u64>,
    /// Of a deployment.
    pub instances: Option<usize>,
    /// Of blocks.
    pub prefix_length: Option<u8>,
    /// Of the contended pool: how long to wait for a turn.
    pub wait_seconds: Option<u64>,
}

/// What a scenario works with.
pub struct Desk<'a> {
    pub audit: &'a mut Auditor,
    /// Of the request.
    pub id: usize,
    /// Since the beginning of the run.
    pub now: Duration,
}

/// What is asked, and what the answers mean.
pub trait Scenario {
    /// The networks that it works on.
    fn networks(&self) -> Vec<NetworkPlan>;

    /// So many requests come before measuring, where all pools together can hold so many addresses, and do hold so many already.
    fn prefill(&self, capacity: u64, held: u64) -> u64 {
        let _ = (capacity, held);
        0
    }

    /// What comes before measuring is over; connections are new.
    fn begin(&mut self) {}

    /// It ends by itself after so many requests.
    fn requests(&self) -> Option<u64> {
        None
    }

    /// Appends the next request of this lane, with the desk's id and its line end; none if the lane has nothing more to ask.
    fn request(&mut self, lane: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind>;

    /// Takes the answer to what the lane asked last: its line, or what was refused.
    fn answer(&mut self, lane: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>);
}

impl Name {
    /// The scenario with these settings.
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

    /// As it is typed.
    pub fn text(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
