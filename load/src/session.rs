//! One run of a scenario against a target: networks are made, filled, driven, counted and compared.

use std::io;
use std::time::Duration;

use serde_json::json;

use crate::audit::{Auditor, Ground, Rule};
use crate::audited::Audited;
use crate::control::{Control, Usage};
use crate::driver::{self, Shape, Stop};
use crate::live::Live;
use crate::meter::Meter;
use crate::report::Report;
use crate::scenario::{NetworkPlan, Scenario};
use crate::target::{Redis, Target};

/// How the end is audited, beyond the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Listing {
    /// Compare every reservation, if there are at most a million.
    Auto,
    Always,
    Never,
}

/// Reservations that are listed without being asked to.
const LISTING_MAX: u64 = 1_000_000;

/// What a run is, beyond its scenario.
pub struct Session {
    pub name: String,
    pub label: Option<String>,
    /// Its servers are those of the target.
    pub shape: Shape,
    /// `shape.stop` was not asked for: the scenario may know better.
    pub stop_is_default: bool,
    pub create: bool,
    /// Remove the networks and what they hold at the end.
    pub delete: bool,
    /// Kill the server between what comes before and what is measured.
    pub kill: bool,
    pub listing: Listing,
    /// Show it on the terminal while it runs.
    pub live: bool,
}

impl Session {
    /// A run that nobody watches, on a server of its own: its networks are made, and go with the server.
    pub fn unattended(name: &str, shape: Shape) -> Self {
        Self {
            name: name.to_owned(),
            label: None,
            shape,
            stop_is_default: false,
            create: true,
            delete: false,
            kill: false,
            listing: Listing::Never,
            live: false,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// A server cannot be reached, refuses a network, or closes a connection.
    pub fn run(&self, scenario: Box<dyn Scenario>, target: &mut Target) -> io::Result<Report> {
        let mut control = Control::connect(&target.servers, target.token.as_deref())?;
        let networks = scenario.networks();
        let mut audited = prepare(&mut control, scenario, &networks, self.shape.lanes(), self.create)?;
        let mut shape = Shape { servers: target.servers.clone(), token: target.token.clone(), ..self.shape.clone() };
        let prefill = audited.scenario.prefill(audited.capacity.saturating_sub(audited.held_before));
        if prefill > 0 {
            let stop = Stop::Requests(prefill);
            let before = Shape { warmup: Duration::ZERO, stop, rate: None, ..shape.clone() };
            let measured = driver::run(&before, &mut audited, Meter::new(None, None))?;
            note_lost(&mut audited.audit, measured.lost, measured.unexpected);
        }
        if self.kill {
            target.kill_and_restart()?;
            shape.servers.clone_from(&target.servers);
            control = Control::connect(&target.servers, target.token.as_deref())?;
        }
        audited.scenario.begin();
        if let Some(requests) = audited.scenario.requests().filter(|_| self.stop_is_default) {
            shape.stop = Stop::Requests(requests);
        }
        let fill_level = driver::Workload::outside(&audited).held as f64 / audited.capacity.max(1) as f64;
        let live = self.live.then(|| Live::start(&self.name, &target.name)).transpose()?;
        let meter = Meter::new(shape.expected(), live.as_ref().map(Live::sender));
        let before = target.redis.as_ref().map(Redis::processor_time).transpose()?;
        let measured = driver::run(&shape, &mut audited, meter);
        drop(live);
        let measured = measured?;
        let after = target.redis.as_ref().map(Redis::processor_time).transpose()?;
        note_lost(&mut audited.audit, measured.lost, measured.unexpected);
        let (held_by_server, listed) = self.compare(&mut control, &mut audited, &networks)?;
        let mut report =
            Report::measured(&self.name, &target.name, &shape, networks.len(), &measured).audited(&audited);
        (report.held_by_server, report.listed, report.fill_level) = (held_by_server, listed, fill_level);
        if let (Some(before), Some(after), true) = (before, after, shape.warmup.is_zero()) {
            report.redis_took(after.saturating_sub(before));
        }
        if let Some(label) = &self.label {
            report.label.clone_from(label);
        }
        if self.delete {
            for network in &networks {
                control.purge_network(&network.name)?;
            }
        }
        Ok(report)
    }

    /// The server's own counts and listing, beside the audit's.
    fn compare(
        &self,
        control: &mut Control,
        audited: &mut Audited,
        networks: &[NetworkPlan],
    ) -> io::Result<(Option<u64>, Option<u64>)> {
        let mut held = 0u64;
        for network in networks {
            held = held.saturating_add(control.usage(&network.name)?.held);
        }
        let ours = held.saturating_sub(audited.held_before).saturating_add(audited.audit.taken_over);
        if ours != audited.audit.held() && audited.audit.unknown() == 0 {
            let counted = audited.audit.held();
            audited
                .audit
                .faults
                .add(Rule::CountAgrees, || format!("the server counts {ours} held, its answers {counted}"));
        }
        let lists = match self.listing {
            Listing::Always => true,
            Listing::Never => false,
            Listing::Auto => held <= LISTING_MAX,
        };
        let listed = if lists { Some(audited.audit.compare_listing(control)?) } else { None };
        Ok((Some(ours), listed))
    }
}

/// Makes or finds the networks, and reads what they may hand out and hold already.
///
/// # Errors
/// As of [`Control::call`].
pub fn prepare(
    control: &mut Control,
    scenario: Box<dyn Scenario>,
    networks: &[NetworkPlan],
    lanes: usize,
    create: bool,
) -> io::Result<Audited> {
    let mut audit = Auditor::new(lanes, networks.len());
    let (mut capacity, mut held_before) = (0u64, 0u64);
    for (number, network) in networks.iter().enumerate() {
        if create {
            control.call("network.create", &network.params())?;
        }
        let there = control.call("network.get", &json!({"network": network.name}))?;
        let cooldown = Duration::from_secs(there["cooldown_seconds"].as_u64().unwrap_or(0));
        audit.add(&network.name, Ground::read(&there), cooldown, network.blocks);
        let Usage { held, capacity: can_hold } = control.usage(&network.name)?;
        if held > 0 {
            audit.read_before(control, number)?;
        }
        capacity = capacity.saturating_add(can_hold);
        held_before = held_before.saturating_add(held);
    }
    Ok(Audited { scenario, audit, capacity, held_before, refused: Default::default() })
}

/// Requests without an answer, and answers without a request.
pub fn note_lost(audit: &mut Auditor, lost: u64, unexpected: u64) {
    for (count, what) in [(lost, "a request was not answered"), (unexpected, "an answer fits no request that is open")]
    {
        for _ in 0..count {
            audit.faults.add(Rule::AnswersOnce, || what.to_owned());
        }
    }
}
