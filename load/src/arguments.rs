//! The arguments of the command line.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::arrivals::{Rate, Spread};
use crate::compare::CompareArguments;
use crate::driver::{PATIENCE_DEFAULT, Shape, Stop};
use crate::goals::GoalsArguments;
use crate::history::HistoryArguments;
use crate::scenario::{Name, Record, Settings};
use crate::session::Listing;
use crate::target::{Store, TargetArguments};

/// The longest prefix of network names, in characters.
const NETWORK_PREFIX_MAX: usize = 64;
/// Limits of the server itself.
const WAIT_SECONDS_MAX: u64 = allod::limits::WAIT_SECONDS_MAX;
const INSTANCES_MAX: i64 = allod::limits::INSTANCES_MAX as i64;
/// Length of a run by default.
const SECONDS_DEFAULT: f64 = 3.0;

/// Load for an allod server: throughput, latency percentiles, and an audit of every address handed out.
///
/// Ends with 0, with 1 if the server was found to be wrong (an address handed out twice, an answer that does not
/// fit, a count or a listing that differs), and with 2 if the run could not be made, which is also said of one that was
/// refused nearly everything. Ctrl-C, SIGTERM and SIGHUP end a run early with what it has found, and the code is 130, 143 or 129.
#[derive(Parser)]
#[command(version)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// What is measured in turns, and how much at a time.
#[derive(Args)]
pub struct TurnsArguments {
    /// Each measurement is made so often, in turns; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub rounds: u16,
    /// Connections.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub connections: u16,
    /// Requests outstanding on each connection, where a measurement does not have one only.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub depth: u16,
}

#[derive(Subcommand)]
pub enum Command {
    /// Runs a scenario; without a name the canonical one, `mixed`.
    Run(RunCommand),
    /// Allocates addresses as fast as the server answers; with --hold, releases them too. The same as `run fill`.
    Fill(RunArguments),
    /// The same client against a server that only parses and serialises: the ceiling of this machine.
    Echo(ShapeArguments),
    /// The p99 of network B alone, and beside a flood of network A.
    P99Isolation(IsolationArguments),
    /// How long a page of `events.history` takes over a long history: cold, warm, and to its last page.
    History(HistoryArguments),
    /// How many instructions the server takes for an allocation, compared with what is recorded. Needs valgrind.
    Instructions(InstructionsArguments),
    /// allod beside what people would use instead: Redis scripts, PostgreSQL, Kea; in turns on this machine.
    Compare(CompareArguments),
    /// All goals of speed in one run, in turns: what is wanted, what is measured here, and whether it is met.
    Goals(GoalsArguments),
    /// A page of one or more runs, with plots.
    Report(ReportArguments),
    /// Writes a man page for each command.
    Man(ManArguments),
}

#[derive(Args)]
pub struct ManArguments {
    /// Made if it is not there.
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

#[derive(Args)]
pub struct RunCommand {
    #[arg(value_enum, default_value = "mixed")]
    pub scenario: Name,
    #[command(flatten)]
    pub arguments: RunArguments,
}

#[derive(Args, Clone)]
pub struct ShapeArguments {
    /// Connections.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: u16,
    /// Requests outstanding on each connection.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub depth: u16,
    /// Stop after so many answers.
    #[arg(long, conflicts_with = "seconds", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Stop after this time; 3 by default.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Drive this long before measuring, in seconds.
    #[arg(long, default_value_t = 0.0, default_missing_value = "1", num_args = 0..=1, value_name = "SECONDS")]
    pub warmup: f64,
    /// Open loop: so many requests arrive in a second, and latency counts from their arrival.
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// How the arrivals of --rate are spread.
    #[arg(long, default_value = "poisson", requires = "rate")]
    pub arrivals: Spread,
    /// Requests count as lost when nothing was answered for so many seconds.
    #[arg(long, default_value_t = PATIENCE_DEFAULT.as_secs(), value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub patience: u64,
    /// Ask for short answers.
    #[arg(long)]
    pub brief: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone)]
pub struct RunArguments {
    #[command(flatten)]
    pub target: TargetArguments,
    #[command(flatten)]
    pub shape: ShapeArguments,
    /// Networks, `load-00` and on, each in a realm of its own.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub networks: Option<u16>,
    /// What the names of the networks begin with, in place of `load-`: runs at the same time on one register need networks of
    /// their own.
    #[arg(long, value_name = "TEXT", value_parser = network_prefix)]
    pub network_prefix: Option<String>,
    /// Each connection keeps to one network, in place of asking in another one each time.
    #[arg(long)]
    pub keep_network: bool,
    /// The networks are there already, and stay; at one fill level.
    #[arg(long)]
    pub no_create: bool,
    /// Remove the networks and what they hold at the end; those that were there before the run stay.
    #[arg(long, conflicts_with = "no_create")]
    pub delete: bool,
    /// Prefix of each network that is made.
    #[arg(long)]
    pub cidr: Option<String>,
    /// Policy of each network that is made: lowest, random or oldest.
    #[arg(long)]
    pub policy: Option<String>,
    /// Cooldown of each network that is made; the audit checks that nothing comes back within it.
    #[arg(long, value_name = "SECONDS")]
    pub cooldown: Option<u64>,
    /// Allocate so often, unmeasured, before anything else; what is granted stays held.
    #[arg(long, value_name = "N")]
    pub prefill: Option<u64>,
    /// Fill the pools to this share before measuring, as 0.95; several, with commas, are run one after the other.
    #[arg(long, value_name = "SHARE", value_delimiter = ',', conflicts_with = "prefill")]
    pub fill_level: Vec<f64>,
    /// Churn: each outstanding request keeps so many addresses, then releases its oldest before the next.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub hold: Option<u32>,
    /// Owners of a restart storm.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub owners: Option<u64>,
    /// Instances of a deployment.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=INSTANCES_MAX))]
    pub instances: Option<u16>,
    /// Size of blocks.
    #[arg(long, value_name = "LENGTH")]
    pub prefix_length: Option<u8>,
    /// Of `contended`: who finds no room waits so long for a turn.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=WAIT_SECONDS_MAX))]
    pub wait: Option<u64>,
    /// Kill the server that was started, and start it again, before measuring.
    #[arg(long, requires = "start")]
    pub kill: bool,
    /// Makes the owners of this run its own. By default taken from the clock.
    #[arg(long)]
    pub seed: Option<u32>,
    /// Compare every reservation with the server's listing at the end.
    #[arg(long, default_value = "auto")]
    pub listing: Listing,
    /// What to call this run in a page.
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Write the report to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Write a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Draw nothing while it runs.
    #[arg(long)]
    pub quiet: bool,
}

#[derive(Args)]
pub struct IsolationArguments {
    #[command(flatten)]
    pub target: TargetArguments,
    /// Connections of the flood.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: u16,
    /// Requests outstanding on each of them.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub depth: u16,
    /// Time of each of the two measurements.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Prefix of each of the two networks.
    #[arg(long, default_value = "10.0.0.0/8")]
    pub cidr: String,
    /// Fail (exit code 1) if the ratio is above this.
    #[arg(long, value_name = "RATIO")]
    pub at_most: Option<f64>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct InstructionsArguments {
    /// The server: a release build, whatever this program is; without it, the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Stores that are counted.
    #[arg(long, value_name = "STORE", value_delimiter = ',', default_value = "memory,embedded,redis")]
    pub store: Vec<Store>,
    /// Requests of the two runs whose difference is counted.
    #[arg(long, value_name = "FEWER,MORE", value_parser = fewer_and_more, default_value = "20000,60000")]
    pub requests: (u64, u64),
    /// Count so often, and take the middle.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=99))]
    pub repeat: u16,
    /// What is recorded.
    #[arg(long, value_name = "FILE", default_value = "load/instructions.json")]
    pub file: PathBuf,
    /// Record what is counted; nothing is compared.
    #[arg(long)]
    pub record: bool,
    /// Keep the profiles here, for callgrind_annotate.
    #[arg(long, value_name = "DIRECTORY")]
    pub profile: Option<PathBuf>,
}

#[derive(Args)]
pub struct ReportArguments {
    /// What `--save` wrote, or `--json` printed.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The page.
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

/// Checks a prefix of network names: the measured path writes the names into requests unescaped.
fn network_prefix(text: &str) -> Result<String, String> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    match text.len() {
        1..=NETWORK_PREFIX_MAX if text.chars().all(is_plain) => Ok(text.to_owned()),
        _ => Err(format!("1 to {NETWORK_PREFIX_MAX} letters, digits, `-`, `_` and `.` are wanted")),
    }
}

fn fewer_and_more(text: &str) -> Result<(u64, u64), String> {
    let (fewer, more) = text.split_once(',').ok_or("two numbers are wanted")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let (fewer, more) = (number(fewer)?, number(more)?);
    if fewer < more { Ok((fewer, more)) } else { Err("the second one has to be the larger".to_owned()) }
}

impl ShapeArguments {
    /// The shape of a run; its servers are filled in later.
    ///
    /// # Errors
    /// The time or the rate is out of range.
    pub fn shape(&self, seed: u32) -> io::Result<Shape> {
        let refused = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let duration =
            |seconds| Duration::try_from_secs_f64(seconds).map_err(|error| refused(format!("{seconds} s: {error}")));
        let stop = match self.requests {
            Some(count) => Stop::Requests(count),
            None => match self.seconds.unwrap_or(SECONDS_DEFAULT) {
                0.0 => return Err(refused("--seconds 0: it has to be above 0".to_owned())),
                seconds => Stop::After(duration(seconds)?),
            },
        };
        let rate = match self.rate {
            Some(per_second) if per_second.is_finite() && per_second > 0.0 => {
                Some(Rate { per_second, spread: self.arrivals })
            }
            Some(per_second) => return Err(refused(format!("--rate {per_second}: it has to be above 0"))),
            None => None,
        };
        let (connections, depth) = (usize::from(self.connections), usize::from(self.depth));
        // In an open loop requests arrive whatever is under way.
        let lanes = connections * depth;
        if let (Some(count), None) = (self.requests.filter(|count| *count < lanes as u64), rate)
            && self.warmup > 0.0
        {
            return Err(refused(format!(
                "--requests {count} with --warmup: when measuring begins, a request is under way on each of {connections} \
                 connections x {depth}, and these are the first that are measured. Say at least {lanes}, or fewer --connections, \
                 or a smaller --depth, or leave --warmup out"
            )));
        }
        Ok(Shape {
            warmup: duration(self.warmup)?,
            rate,
            seed,
            patience: Duration::from_secs(self.patience),
            ..Shape::closed(connections, depth, stop)
        })
    }
}

impl RunArguments {
    /// The settings of the scenario; `fill_level` is one of the levels that were given.
    pub fn settings(&self, lanes: usize, seed: u32, fill_level: Option<f64>) -> Settings {
        Settings {
            lanes,
            seed,
            brief: self.shape.brief,
            networks: self.networks.map(usize::from),
            lanes_per_network: self.keep_network.then_some(usize::from(self.shape.depth)),
            network_prefix: self.network_prefix.clone(),
            network_name: None,
            record: Record::default(),
            cidr: self.cidr.clone(),
            policy: self.policy.clone(),
            cooldown_seconds: self.cooldown,
            fill_level,
            prefill: self.prefill,
            hold: self.hold.map(|hold| hold as usize),
            owners: self.owners,
            instances: self.instances.map(usize::from),
            prefix_length: self.prefix_length,
            wait_seconds: self.wait,
        }
    }
}
