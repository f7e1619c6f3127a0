//! One run of a scenario against a target: networks are made, filled, driven, counted and compared.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

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

/// A display is told after so many networks.
const TOLD_EACH: usize = 10;
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
    /// Somebody reads its report, so a part of a run is better than nothing.
    pub attended: bool,
    /// The fill level that was asked for, and all that the run was told to be.
    pub fill_level: Option<f64>,
    pub settings: Option<Value>,
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
            attended: false,
            fill_level: None,
            settings: None,
        }
    }

    /// Runs it. What is cut off by a signal or a lost connection while it is measured has a report of what was found until then.
    ///
    /// # Errors
    /// A server cannot be reached, or refuses a network; or it was cut off before measuring, or nobody reads that it was.
    pub fn run(&self, scenario: Box<dyn Scenario>, target: &mut Target) -> io::Result<Report> {
        let live = self.live.then(|| Live::start(&self.name, &target.name)).transpose()?;
        let doing = |what: &str| live.iter().for_each(|live| live.doing(what));
        let mut control = Control::connect(&target.servers)?;
        let networks = scenario.networks();
        let mut audited = prepare(&mut control, scenario, &networks, self.shape.lanes(), self.create, &doing)?;
        one_register(&target.servers, &networks)?;
        let mut shape = Shape { servers: target.servers.clone(), ..self.shape.clone() };
        self.fill(&shape, &mut audited, live.as_ref())?;
        if self.kill {
            doing("killing the server, and starting it again");
            target.kill_and_restart()?;
            shape.servers.clone_from(&target.servers);
            control = Control::connect(&target.servers)?;
        }
        audited.scenario.begin();
        if let Some(requests) = audited.scenario.requests().filter(|_| self.stop_is_default) {
            shape.stop = Stop::Requests(requests);
        }
        doing("");
        let meter = Meter::new(shape.expected(), live.as_ref().map(Live::sender));
        let before = target.redis.as_ref().map(Redis::processor_time).transpose()?;
        let measured = driver::run(&shape, &mut audited, meter);
        drop(live);
        let measured = if self.attended { measured? } else { measured?.whole()? };
        let after = target.redis.as_ref().map(Redis::processor_time).transpose()?;
        if measured.lost > 0 || measured.cut_off.is_some() {
            // It has had its patience; and a server that is gone is not waited for.
            control = Control::unconnected(&target.servers, shape.patience)?;
        }
        control.tolerate_a_signal();
        let compared = self.compare(&mut control, &mut audited, &networks);
        let mut report =
            Report::measured(&self.name, &target.name, &shape, networks.len(), &measured).audited(&audited);
        report.judge();
        match compared {
            Ok(compared) => {
                (report.held_by_server, report.listed) = (Some(compared.held), compared.listed);
                report.listed_before = compared.listed_before;
            }
            Err(error) => report.not_made(&format!("the server's own count could not be compared: {error}")),
        }
        (report.settings, report.fill_level_asked) = (self.settings.clone(), self.fill_level);
        if let (Some(before), Some(after), true) = (before, after, shape.warmup.is_zero()) {
            report.redis_took(after.saturating_sub(before));
        }
        if let Some(label) = &self.label {
            report.label.clone_from(label);
        }
        if self.delete {
            let removed = networks.iter().try_for_each(|network| control.purge_network(&network.name));
            removed.unwrap_or_else(|error| report.not_made(&format!("the networks could not be removed: {error}")));
        }
        Ok(report)
    }

    /// What is held before anything is measured.
    fn fill(&self, shape: &Shape, audited: &mut Audited, live: Option<&Live>) -> io::Result<()> {
        let prefill = audited.scenario.prefill(audited.capacity.saturating_sub(audited.held_before));
        if prefill > audited.capacity {
            let text =
                format!("{prefill} addresses are to be held before measuring, and the pools have {}", audited.capacity);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if prefill == 0 {
            return Ok(());
        }
        if let Some(live) = live {
            live.doing(&format!("filling, {prefill} addresses before measuring"));
        }
        // None of it is of the measured time: all of it is warm-up.
        let before = Shape { warmup: Duration::ZERO, stop: Stop::Requests(prefill), rate: None, ..shape.clone() };
        let measured = driver::run(&before, audited, Meter::new(None, live.map(Live::sender)))?.whole()?;
        drop(measured);
        audited.measuring_begins();
        Ok(())
    }

    /// The server's own counts and listing, beside the audit's.
    fn compare(&self, control: &mut Control, audited: &mut Audited, networks: &[NetworkPlan]) -> io::Result<Compared> {
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
        Ok(Compared {
            held: ours,
            listed: listed.map(|(all, _)| all),
            listed_before: listed.map_or(0, |(_, before)| before),
        })
    }
}

/// What the server counts and lists at the end.
struct Compared {
    held: u64,
    listed: Option<u64>,
    listed_before: u64,
}

/// Makes sure that all servers have the same network, for who has another register refuses, or hands out what is held.
fn one_register(servers: &[SocketAddr], networks: &[NetworkPlan]) -> io::Result<()> {
    let (Some(first), [_, _, ..]) = (networks.first(), servers) else { return Ok(()) };
    let mut known: Option<Value> = None;
    for server in servers {
        let found = Control::connect(&[*server])?.call("network.get", &json!({"network": first.name}));
        let id = found.map_err(|error| named(server, &error))?["id"].take();
        if known.as_ref().is_some_and(|known| *known != id) {
            let text = format!("network `{}` is another one than that of {}", first.name, servers[0]);
            return Err(named(server, &io::Error::other(text)));
        }
        known = Some(id);
    }
    Ok(())
}

fn named(server: &SocketAddr, error: &io::Error) -> io::Error {
    io::Error::other(format!("{server}: {error}; the servers of a run share one register"))
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
    doing: &dyn Fn(&str),
) -> io::Result<Audited> {
    let mut audit = Auditor::new(lanes, networks.len());
    let (mut capacity, mut held_before) = (0u64, 0u64);
    for (number, network) in networks.iter().enumerate() {
        if number % TOLD_EACH == 0 {
            doing(&format!("making networks, {number} of {}", networks.len()));
        }
        if create {
            let made = control.call("network.create", &network.params());
            made.map_err(|error| left_by_another(&network.name, error))?;
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
    Ok(Audited::new(scenario, audit, capacity, held_before))
}

/// Networks are kept after a run, for the next one to find.
fn left_by_another(network: &str, error: io::Error) -> io::Error {
    let text = error.to_string();
    if !text.contains("already exists") {
        return error;
    }
    io::Error::other(format!(
        "{text}\nan earlier run may have left it: `allod network delete {network} --purge` removes it, `--no-create` takes it as it is"
    ))
}
