//! `allod-load`: how fast a server hands out addresses, and whether it ever hands out one twice.
//!
//! Code map: `driver` (closed loop over epoll) asks a `fill` (what to ask, what the answers mean), which keeps an
//! `audit` (who holds what) and reads answers with `scan`; `report` prints. `echo`, `history` and `isolation` are scenarios of
//! their own; `control` makes networks, `server` starts a server. How to read the figures: README.md beside this.

mod audit;
mod control;
mod driver;
mod echo;
mod fill;
mod history;
mod isolation;
mod report;
mod scan;
mod server;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};

use control::Control;
use driver::{Shape, Stop};
use fill::{Fill, Plan};
use isolation::Isolation;
use report::Report;
use server::{Server, Store};

/// Load for an allod server: throughput, latency percentiles, and an audit of every address handed out.
///
/// Ends with 0, with 1 if the server was found to be wrong (an address handed out twice, an answer that does not
/// fit, a count that differs), and with 2 if the run could not be made.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Subcommand)]
enum Scenario {
    /// Allocates addresses as fast as the server answers; with --hold, releases them too.
    Fill(FillArguments),
    /// The same client against a server that only parses and serialises: the ceiling of this machine.
    Echo(ShapeArguments),
    /// The p99 of network B alone, and beside a flood of network A.
    P99Isolation(IsolationArguments),
    /// How long a page of `events.history` takes over a long history: cold, warm, and to its last page.
    History(history::HistoryArguments),
}

#[derive(Args)]
struct ServerArguments {
    /// Where the server listens.
    #[arg(long, default_value = "127.0.0.1:7400", value_name = "HOST:PORT")]
    server: String,
    /// Start a server for this run, with this store, in a directory that is removed afterwards.
    #[arg(long, conflicts_with = "server", value_name = "STORE")]
    start: Option<Store>,
}

#[derive(Args)]
struct ShapeArguments {
    /// Connections.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Requests outstanding on each connection.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    depth: u16,
    /// Stop after so many answers.
    #[arg(long, conflicts_with = "seconds", value_name = "N")]
    requests: Option<u64>,
    /// Stop after this time.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Drive this long before measuring, in seconds.
    #[arg(long, default_value_t = 0.0, default_missing_value = "1", num_args = 0..=1, value_name = "SECONDS")]
    warmup: f64,
    /// Ask for short answers.
    #[arg(long)]
    brief: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct FillArguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    shape: ShapeArguments,
    /// Networks, `load-00` and on, each in a realm of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    networks: u16,
    /// The networks are there already.
    #[arg(long)]
    no_create: bool,
    /// Remove the networks and what they hold at the end.
    #[arg(long)]
    delete: bool,
    /// Prefix of each network that is made.
    #[arg(long, default_value = "10.0.0.0/8")]
    cidr: String,
    /// Policy of each network that is made: lowest, random or oldest.
    #[arg(long, default_value = "lowest")]
    policy: String,
    /// Allocate so many addresses, unmeasured, before anything else; they stay held.
    #[arg(long, default_value_t = 0, value_name = "N")]
    prefill: u64,
    /// Churn: each outstanding request keeps so many addresses, then releases its oldest before the next.
    #[arg(long, value_name = "N")]
    hold: Option<usize>,
    /// Makes the owners of this run its own. By default taken from the clock.
    #[arg(long)]
    seed: Option<u32>,
}

#[derive(Args)]
struct IsolationArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Connections of the flood.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Requests outstanding on each of them.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    depth: u16,
    /// Time of each of the two measurements.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Prefix of each of the two networks.
    #[arg(long, default_value = "10.0.0.0/8")]
    cidr: String,
    /// Fail (exit code 1) if the ratio is above this.
    #[arg(long, value_name = "RATIO")]
    at_most: Option<f64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    if cfg!(debug_assertions) {
        eprintln!("allod-load: a debug build; its figures say nothing about speed");
    }
    let faulty = match Arguments::parse().scenario {
        Scenario::Fill(arguments) => fill(&arguments),
        Scenario::Echo(arguments) => echo(&arguments),
        Scenario::P99Isolation(arguments) => p99_isolation(&arguments),
        Scenario::History(arguments) => history::run(&arguments),
    };
    match faulty {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("allod-load: {error}");
            ExitCode::from(2)
        }
    }
}

impl ServerArguments {
    /// The server to drive, and the one that was started for it, which lives as long as the value.
    fn find(&self) -> io::Result<(SocketAddr, Option<Server>)> {
        if let Some(store) = self.start {
            let server = Server::start(store)?;
            return Ok((server.address, Some(server)));
        }
        let address = self.server.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other(format!("`{}` has no address", self.server)))?;
        Ok((address, None))
    }
}

impl ShapeArguments {
    fn shape(&self, server: SocketAddr) -> io::Result<Shape> {
        let duration = |seconds| Duration::try_from_secs_f64(seconds).map_err(io::Error::other);
        let stop = match self.requests {
            Some(count) => Stop::Requests(count),
            None => Stop::After(duration(self.seconds)?),
        };
        let (connections, depth) = (usize::from(self.connections), usize::from(self.depth));
        Ok(Shape { server, connections, depth, warmup: duration(self.warmup)?, stop })
    }
}

/// A seed out of the clock: runs against one server should not meet each other's owners.
#[expect(clippy::disallowed_methods, reason = "not a time that anything is measured or decided by")]
fn seed_of_now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos())
}

fn fill(arguments: &FillArguments) -> io::Result<bool> {
    let (server, _started) = arguments.server.find()?;
    let networks: Vec<_> = (0..arguments.networks).map(|number| format!("load-{number:02}")).collect();
    let mut control = Control::connect(server)?;
    let mut held_before = 0;
    for network in &networks {
        if !arguments.no_create {
            control.create_network(network, &arguments.cidr, &arguments.policy)?;
        }
        held_before += control.held(network)?;
    }
    let shape = arguments.shape.shape(server)?;
    let plan =
        Plan { networks, brief: arguments.shape.brief, hold: None, seed: arguments.seed.unwrap_or_else(seed_of_now) };
    let mut fill = Fill::new(plan, shape.lanes());
    if arguments.prefill > 0 {
        let stop = Stop::Requests(arguments.prefill);
        driver::run(Shape { warmup: Duration::ZERO, stop, ..shape }, &mut fill)?;
    }
    fill.churn(arguments.hold);
    let measured = driver::run(shape, &mut fill)?;
    let mut report = Report::new("fill", &shape, fill.networks().len(), &measured, &fill);
    let mut held = 0;
    for network in fill.networks() {
        held += control.held(network)?;
        if arguments.delete {
            control.purge_network(network)?;
        }
    }
    // Owners of an earlier run that are met again hold what was counted before; then the counts say nothing.
    report.held_by_server = (fill.existed == 0).then(|| held.saturating_sub(held_before));
    report.print(arguments.shape.json)?;
    Ok(report.is_faulty())
}

fn echo(arguments: &ShapeArguments) -> io::Result<bool> {
    let shape = arguments.shape(echo::start()?)?;
    let plan = Plan { networks: vec!["load-00".into()], brief: arguments.brief, hold: None, seed: 0 };
    let mut fill = Fill::new(plan, shape.lanes());
    let measured = driver::run(shape, &mut fill)?;
    let report = Report::new("echo", &shape, 1, &measured, &fill);
    report.print(arguments.json)?;
    Ok(report.is_faulty())
}

fn p99_isolation(arguments: &IsolationArguments) -> io::Result<bool> {
    let (server, _started) = arguments.server.find()?;
    let isolation = Isolation {
        server,
        connections: usize::from(arguments.connections),
        depth: usize::from(arguments.depth),
        seconds: arguments.seconds,
        cidr: arguments.cidr.clone(),
        seed: seed_of_now(),
    };
    let found = isolation.run()?;
    found.print(arguments.json)?;
    let too_slow = arguments.at_most.is_some_and(|limit| found.p99_ratio > limit);
    Ok(found.is_faulty() || too_slow)
}
