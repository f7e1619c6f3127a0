//! One run of a scenario against a target: its networks are made (`prepare`) and filled, the scenario is driven, and the
//! result is compared with the server's counts and listing.

mod prepare;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

pub use prepare::Prepared;
use prepare::{Place, check_all_made, check_quiet, one_register};

use crate::advice::Advice;
use crate::audit::told;
use crate::audited::Audited;
use crate::control::Control;
use crate::driver::{self, Measured, Shape, Stop};
use crate::interrupt;
use crate::live::Live;
use crate::meter::Meter;
use crate::report::Report;
use crate::scenario::{NetworkPlan, Scenario};
use crate::target::{Redis, Target};

/// How the end is audited, beyond the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Listing {
    /// Compare every reservation, if there are at most a million, or where something differs.
    Auto,
    Always,
    Never,
}

/// The most reservations that are listed without a request for it.
const LISTING_MAX: u64 = 1_000_000;
/// The most addresses that are filled before measuring: more would take too long, and the audit has no room for them.
const PREFILL_MAX: u64 = 1 << 28;
/// After a lost connection: how long the server may take until its counts are read all the same.
const LOST_WAIT_MAX: Duration = Duration::from_secs(5);

/// The parameters of a run, beyond its scenario.
pub struct Session {
    pub name: String,
    pub label: Option<String>,
    /// The servers are replaced by those of the target.
    pub shape: Shape,
    /// `shape.stop` is a default, which the scenario may replace.
    pub stop_is_default: bool,
    pub create: bool,
    /// Refuse to measure in networks that were there before.
    pub only_made: bool,
    /// At the end, remove the networks that this run made, with everything in them.
    pub delete: bool,
    /// Kill the server between the preparation and the measurement.
    pub kill: bool,
    pub listing: Listing,
    /// Show the run on the terminal.
    pub live: bool,
    /// Someone reads the report, so part of a run is better than nothing.
    pub attended: bool,
    /// The requested fill level, and all settings of the run.
    pub fill_level: Option<f64>,
    pub settings: Option<Value>,
    /// What its command advises where networks cannot be used.
    pub advice: Advice,
}

impl Session {
    /// A run that nobody watches, on a server of its own: its networks are created, and disappear with the server.
    pub fn unattended(name: &str, shape: Shape) -> Self {
        Self {
            name: name.to_owned(),
            label: None,
            shape,
            stop_is_default: false,
            create: true,
            only_made: false,
            delete: false,
            kill: false,
            listing: Listing::Never,
            live: false,
            attended: false,
            fill_level: None,
            settings: None,
            advice: Advice::default(),
        }
    }

    /// Runs the scenario. If a signal or a lost connection cuts off the measurement, the report has the findings so far. If
    /// the server had broken a rule, there is a report whatever ended the run.
    ///
    /// # Errors
    /// A server cannot be reached or refuses a network, or the run was cut off before measuring, or it was cut off and
    /// nobody reads a partial report.
    pub fn run(&self, scenario: Box<dyn Scenario>, target: &mut Target) -> io::Result<Report> {
        let live = self.live.then(|| Live::start(&self.name, &target.name)).transpose()?;
        let mut control = Control::connect(&target.servers)?;
        let networks = scenario.networks();
        let mut shape = Shape { servers: target.servers.clone(), ..self.shape.clone() };
        let mut prepared = Prepared::new(scenario, networks.len(), &shape);
        prepared.audited.audit.if_shared(self.advice.shared);
        if target.is_own() {
            prepared.audited.audit.nobody_else();
        }
        let driven = self.drive(&mut control, target, &mut shape, &mut prepared, &networks, live.as_ref());
        drop(live);
        let Prepared { mut audited, places } = prepared;
        let report = |measured: &Measured| Report::measured(&self.name, &target.name, &shape, networks.len(), measured);
        let ended_by = |audited: &mut Audited, measured: &Measured, error| {
            report(measured).ended_by(audited, error).map(|report| self.told_of(report))
        };
        let (measured, redis_took) = match driven {
            Ok(driven) => driven,
            Err(error) => {
                let error = self.removed_after(error, &target.servers, &places);
                return ended_by(&mut audited, &Measured::nothing(), error);
            }
        };
        if let Some(why) = measured.cut_off.clone().filter(|_| !self.attended) {
            return ended_by(&mut audited, &measured, io::Error::other(why));
        }
        if measured.lost > 0 || measured.cut_off.is_some() {
            // The server has had its patience already, and a server that is gone is not waited for as long.
            let is_gone = measured.cut_off.is_some() && interrupt::signal().is_none();
            let wait = if is_gone { shape.patience.min(LOST_WAIT_MAX) } else { shape.patience };
            control = match Control::of_the_end(&target.servers, wait) {
                Ok(control) => control,
                Err(error) => return ended_by(&mut audited, &measured, error),
            };
        }
        control.tolerate_a_signal();
        let compared = self.compare(&mut control, &mut audited, &networks);
        let others = audited.audit.settle();
        let mut report = self.told_of(report(&measured).audited(&audited));
        report.judge();
        report.shared_with(others);
        match compared {
            Ok(compared) => {
                (report.held_by_server, report.listed) = (Some(compared.held), compared.listed);
                report.listed_before = compared.listed_before;
            }
            Err(error) => report.not_made(&format!("the server's own count could not be compared: {error}")),
        }
        if let (Some(took), true) = (redis_took, shape.warmup.is_zero()) {
            report.redis_took(took);
        }
        if self.delete {
            self.remove(&mut control, &places)
                .unwrap_or_else(|error| report.not_made(&format!("the networks could not be removed: {error}")));
        }
        Ok(report)
    }

    /// Everything before the report: makes the networks, fills them, kills the server if that is wanted, and measures.
    /// Returns the measurement and the processor time that Redis used during it.
    fn drive(
        &self,
        control: &mut Control,
        target: &mut Target,
        shape: &mut Shape,
        prepared: &mut Prepared,
        networks: &[NetworkPlan],
        live: Option<&Live>,
    ) -> io::Result<(Measured, Option<Duration>)> {
        let doing = |what: &str| live.iter().for_each(|live| live.doing(what));
        prepared.make(control, networks, self.create, &self.advice, &doing)?;
        let Prepared { audited, places } = prepared;
        if self.only_made {
            check_all_made(places, &self.advice)?;
        }
        check_quiet(control, places, &self.advice)?;
        one_register(&target.servers, networks)?;
        self.fill(shape, audited, live)?;
        if self.kill {
            doing("killing the server, and starting it again");
            target.kill_and_restart()?;
            shape.servers.clone_from(&target.servers);
            *control = Control::connect(&target.servers)?;
        }
        audited.scenario.begin();
        if let Some(requests) = audited.scenario.requests().filter(|_| self.stop_is_default) {
            shape.stop = Stop::Requests(requests);
        }
        doing("");
        let meter = Meter::new(shape.expected(), live.map(Live::sender));
        let before = target.redis.as_ref().map(Redis::processor_time).transpose()?;
        let measured = driver::run(shape, audited, meter)?;
        let after = target.redis.as_ref().map(Redis::processor_time).transpose()?;
        Ok((measured, after.zip(before).map(|(after, before)| after.saturating_sub(before))))
    }

    /// The report with the settings and the label of the run.
    fn told_of(&self, mut report: Report) -> Report {
        (report.settings, report.fill_level_asked) = (self.settings.clone(), self.fill_level);
        if let Some(label) = &self.label {
            report.label.clone_from(label);
        }
        report
    }

    /// Removes the networks that the run made, and reports those that it leaves.
    fn remove(&self, control: &mut Control, places: &[Place]) -> io::Result<()> {
        let found: Vec<&str> = places.iter().filter(|place| !place.is_made).map(|place| place.name.as_str()).collect();
        if let Some(first) = found.first() {
            let more = if found.len() > 1 { format!(", and {} more", found.len() - 1) } else { String::new() };
            say!("allod-load: network `{first}`{more} was there before the run, which leaves it");
        }
        purge(control, places)
    }

    /// After a failure, removes the networks of the run if `delete` is set. Returns the error, extended if the removal fails
    /// as well.
    fn removed_after(&self, error: io::Error, servers: &[SocketAddr], places: &[Place]) -> io::Error {
        if !self.delete {
            return error;
        }
        let removed = Control::of_the_end(servers, LOST_WAIT_MAX).and_then(|mut control| purge(&mut control, places));
        match removed {
            Ok(()) => error,
            Err(left) => io::Error::other(format!("{error}; what was made for it could not be removed: {left}")),
        }
    }

    /// Fills the networks before anything is measured.
    fn fill(&self, shape: &Shape, audited: &mut Audited, live: Option<&Live>) -> io::Result<()> {
        let prefill = audited.scenario.prefill(told(audited.capacity), told(audited.held_before));
        let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if u128::from(prefill) > audited.capacity {
            let capacity = audited.capacity;
            return refused(format!(
                "{prefill} addresses are to be held before measuring, and the pools have {capacity}"
            ));
        }
        if prefill > PREFILL_MAX {
            return refused(format!(
                "{prefill} addresses are to be held before measuring, and at most {PREFILL_MAX} are{}",
                self.advice.too_many
            ));
        }
        if prefill == 0 {
            return Ok(());
        }
        if let Some(live) = live {
            live.doing(&format!("filling, {prefill} addresses before measuring"));
        }
        // Nothing of this belongs to the measured time.
        let before = Shape { warmup: Duration::ZERO, stop: Stop::Requests(prefill), rate: None, ..shape.clone() };
        let filled = driver::run(&before, audited, Meter::new(None, live.map(Live::sender)))?;
        audited.measuring_begins();
        filled.whole().map(drop)
    }

    /// Compares the server's own counts and listing with those of the audit.
    fn compare(&self, control: &mut Control, audited: &mut Audited, networks: &[NetworkPlan]) -> io::Result<Compared> {
        let (mut held, mut reservations) = (0, 0);
        for network in networks {
            let usage = control.usage(&network.name)?;
            held += usage.held;
            reservations += usage.reservations;
        }
        let ours = audited.audit.ours(held, audited.held_before);
        if ours != audited.audit.held() && audited.audit.unknown() == 0 {
            audited.audit.counted_otherwise(ours);
        }
        let lists = match self.listing {
            Listing::Always => true,
            // Only a listing can tell whether another client was at work.
            Listing::Never => audited.audit.needs_a_listing(),
            Listing::Auto => reservations <= LISTING_MAX || audited.audit.has_disputes(),
        };
        let listed = if lists { Some(audited.audit.compare_listing(control)?) } else { None };
        Ok(Compared {
            held: told(ours),
            listed: listed.map(|(all, _)| all),
            listed_before: listed.map_or(0, |(_, before)| before),
        })
    }
}

/// Removes the networks that were made.
fn purge(control: &mut Control, places: &[Place]) -> io::Result<()> {
    places.iter().filter(|place| place.is_made).try_for_each(|place| control.purge_network(&place.name))
}

/// The server's counts and listing at the end.
struct Compared {
    held: u64,
    listed: Option<u64>,
    listed_before: u64,
}
