//! One run of a scenario against a target: networks are made (`prepare`), filled, driven, counted and compared.

mod prepare;

use std::io;
use std::time::Duration;

use serde_json::Value;

pub use prepare::{Place, Prepared, prepare};
use prepare::{check_all_made, check_quiet, one_register};

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

/// Reservations that are listed without being asked to.
const LISTING_MAX: u64 = 1_000_000;
/// More than that is not filled before measuring: it would take longer than anybody waits for, and the audit has no room for it.
const PREFILL_MAX: u64 = 1 << 28;
/// How long a server whose connection was lost may take until it is counted all the same.
const LOST_WAIT_MAX: Duration = Duration::from_secs(5);

/// What a run is, beyond its scenario.
pub struct Session {
    pub name: String,
    pub label: Option<String>,
    /// Its servers are those of the target.
    pub shape: Shape,
    /// `shape.stop` was not asked for: the scenario may know better.
    pub stop_is_default: bool,
    pub create: bool,
    /// Nothing is measured in networks that were there before.
    pub only_made: bool,
    /// Remove the networks that were made and what they hold at the end.
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
            only_made: false,
            delete: false,
            kill: false,
            listing: Listing::Never,
            live: false,
            attended: false,
            fill_level: None,
            settings: None,
        }
    }

    /// Runs it. What is cut off by a signal or a lost connection while it is measured has a report of what was found until then;
    /// and so has whatever ended it, where the server had broken a rule.
    ///
    /// # Errors
    /// A server cannot be reached, or refuses a network; or it was cut off before measuring, or nobody reads that it was.
    pub fn run(&self, scenario: Box<dyn Scenario>, target: &mut Target) -> io::Result<Report> {
        let live = self.live.then(|| Live::start(&self.name, &target.name)).transpose()?;
        let doing = |what: &str| live.iter().for_each(|live| live.doing(what));
        let mut control = Control::connect(&target.servers)?;
        let networks = scenario.networks();
        let (lanes, seed) = (self.shape.lanes(), self.shape.seed);
        let mut prepared = prepare(&mut control, scenario, &networks, lanes, seed, self.create, &doing)?;
        let mut shape = Shape { servers: target.servers.clone(), ..self.shape.clone() };
        let driven = self.drive(&mut control, target, &mut shape, &mut prepared, &networks, live.as_ref());
        drop(live);
        let Prepared { mut audited, places } = prepared;
        let report = |measured: &Measured| Report::measured(&self.name, &target.name, &shape, networks.len(), measured);
        let ended_by = |audited: &mut Audited, measured: &Measured, error| {
            report(measured).ended_by(audited, error).map(|report| self.told_of(report))
        };
        let (measured, redis_took) = match driven {
            Ok(driven) => driven,
            Err(error) => return ended_by(&mut audited, &Measured::nothing(), error),
        };
        if let Some(why) = measured.cut_off.clone().filter(|_| !self.attended) {
            return ended_by(&mut audited, &measured, io::Error::other(why));
        }
        if measured.lost > 0 || measured.cut_off.is_some() {
            // It has had its patience; and a server that is gone is not waited for.
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

    /// Everything between the networks and the report: fills, kills where that was asked for, and measures. Beside what was
    /// measured the processor time that Redis took meanwhile.
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
        let Prepared { audited, places } = prepared;
        if self.only_made {
            check_all_made(control, places)?;
        }
        check_quiet(control, places)?;
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

    /// The report with what the run was told to be.
    fn told_of(&self, mut report: Report) -> Report {
        (report.settings, report.fill_level_asked) = (self.settings.clone(), self.fill_level);
        if let Some(label) = &self.label {
            report.label.clone_from(label);
        }
        report
    }

    /// Removes what the run made, and says what it leaves.
    fn remove(&self, control: &mut Control, places: &[Place]) -> io::Result<()> {
        let found: Vec<&str> = places.iter().filter(|place| !place.is_made).map(|place| place.name.as_str()).collect();
        if let Some(first) = found.first() {
            let more = if found.len() > 1 { format!(", and {} more", found.len() - 1) } else { String::new() };
            eprintln!("allod-load: network `{first}`{more} was there before the run, so --delete leaves it");
        }
        let mut made = places.iter().filter(|place| place.is_made);
        made.try_for_each(|place| control.purge_network(&place.name))
    }

    /// What is held before anything is measured.
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
                "{prefill} addresses are to be held before measuring, and at most {PREFILL_MAX} are: take a smaller --cidr, a \
                 lower --fill-level, or --prefill with a number"
            ));
        }
        if prefill == 0 {
            return Ok(());
        }
        if let Some(live) = live {
            live.doing(&format!("filling, {prefill} addresses before measuring"));
        }
        // None of it is of the measured time: all of it is warm-up.
        let before = Shape { warmup: Duration::ZERO, stop: Stop::Requests(prefill), rate: None, ..shape.clone() };
        let filled = driver::run(&before, audited, Meter::new(None, live.map(Live::sender)))?;
        audited.measuring_begins();
        filled.whole().map(drop)
    }

    /// The server's own counts and listing, beside the audit's.
    fn compare(&self, control: &mut Control, audited: &mut Audited, networks: &[NetworkPlan]) -> io::Result<Compared> {
        let (mut held, mut reservations) = (0, 0);
        for network in networks {
            let usage = control.usage(&network.name)?;
            held += usage.held;
            reservations += usage.reservations;
        }
        let ours = held.saturating_sub(audited.held_before) + audited.audit.taken_over;
        if ours != audited.audit.held() && audited.audit.unknown() == 0 {
            audited.audit.counted_otherwise(ours);
        }
        let lists = match self.listing {
            Listing::Always => true,
            Listing::Never => false,
            // A listing tells whether it was somebody else.
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

/// What the server counts and lists at the end.
struct Compared {
    held: u64,
    listed: Option<u64>,
    listed_before: u64,
}
