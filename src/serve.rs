//! Starts and stops a server: store, actors, ports, signals, and the order in which things end.
//!
//! ```text
//! check configuration ▶ take ports ▶ open store ▶ listen for nodes ▶ take and load shards ▶ start actors
//!         ▶ make the networks of the network file ▶ listen for clients ▶ `ready …` ▶ tell the supervisor
//! SIGTERM while the store is being opened ▶ leave it as it is
//! SIGTERM before `ready` ▶ give up what was taken ▶ close store
//! SIGTERM ▶ accept nothing ▶ read nothing ▶ answer what was read ▶ drain commits ▶ let the next owner begin
//!         ▶ wait for clients that are slow to take their answers ▶ close connections ▶ close store
//! Redis was emptied ▶ recall what is in memory ▶ end ▶ write it there (`anew`) ▶ start once more (`process`)
//! SIGHUP ▶ read the configuration again, and apply its log level (`signals`)
//! ```
//!
//! [`run`], in `process`, is the process. [`start`] runs a server inside another process, for tests and `allod try`, with
//! any store and clock.
//!
//! Review notes: is every step of the stop bounded? Is the only line on stdout `ready`?

mod anew;
mod apart;
mod beginning;
mod cannot;
mod company;
mod contention;
pub mod doctor;
mod draining;
mod filling;
mod following;
pub mod from_cli;
mod handover;
pub mod keeper;
mod late;
mod lease;
mod listening;
mod meeting;
pub mod migrate;
mod networks;
mod occupant;
mod opened;
mod opening;
mod peers;
mod process;
mod reactors;
mod signals;
pub mod sizing;
mod supervisor;
mod unspoken;
mod warm;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

pub use cannot::CannotStart;
pub use opening::open_store;
pub use process::{Unserved, run};

pub use crate::store::redis::commands_for as redis_commands_for;

use actix::System;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::keeper::Keeper;
use self::listening::{Port, Ports, accept, bounds, serve_http};
use crate::actors::clock::{Clock, SystemClock};
use crate::actors::figures;
use crate::actors::reactor::Reactor;
use crate::actors::service::Hooks;
use crate::config::{Config, Once};
use crate::core::command::NetworkInput;
use crate::metrics::Metrics;
use crate::peer::Versions;
use crate::server::balance::Balance;
use crate::server::cluster::Nodes;
use crate::server::forwarded::Forwarded;
use crate::server::role::Seat;
use crate::server::steward::Steward;
use crate::server::tally::begin_at_zero;
use crate::server::{Durability, Server};
use crate::store::{NodeCard, Store, chain};

/// How long the store may take to close, however short the time for a stop: a missing Redis is given two seconds, and then
/// flushing what only this process remembers takes ten seconds at most.
const STORE_CLOSES_WITHIN: Duration = Duration::from_secs(13);

/// The arguments of `allod serve`.
#[derive(Debug, Clone, Default)]
pub struct ServeArgs {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// Keys and values that override the file.
    pub flags: Vec<(String, String)>,
    /// Networks that must exist once the server is ready; absent ones are made.
    pub networks: Vec<NetworkInput>,
    /// The flags for this start only.
    pub once: Once,
}

/// Exit code after the store failed: a supervisor should start the process again.
pub const EXIT_STORE_FAILED: u8 = 70;
/// Exit code if the configuration is wrong, or a start is impossible however often it is tried.
pub const EXIT_CANNOT_START: u8 = 1;
/// Exit code if a start is impossible now, but may succeed soon: a supervisor should try again.
pub const EXIT_CANNOT_START_NOW: u8 = 75;

/// The parts of a server to start.
pub struct Options {
    /// Ports and bounds, already checked.
    pub config: Config,
    /// The store, open.
    pub store: Arc<dyn Store>,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// Hooks for tests.
    pub hooks: Hooks,
    /// Networks that must exist once it is ready.
    pub networks: Vec<NetworkInput>,
    /// How many batches this process gave back to an emptied store before opening it again.
    pub healed_before: u64,
}

impl Options {
    /// The machine's clock, no hooks, no networks.
    pub fn new(config: Config, store: Arc<dyn Store>) -> Self {
        let (clock, hooks) = (Arc::new(SystemClock), Hooks::default());
        Self { config, store, clock, hooks, networks: Vec::new(), healed_before: 0 }
    }

    /// Listens on free ports of the loopback address.
    #[must_use]
    pub fn on_free_ports(mut self) -> Self {
        "127.0.0.1:0".clone_into(&mut self.config.server.listen);
        "127.0.0.1:0".clone_into(&mut self.config.server.http_listen);
        self
    }
}

/// Why a server ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to.
    Stopped,
    /// It could not go on.
    Failed(String),
    /// The store was emptied, and this process wrote back what it had in memory, in this many batches: the server must be
    /// started again.
    WrittenAnew(u64),
}

/// A server that runs in threads of this process.
#[derive(Debug)]
pub struct Running {
    /// The address of JSON-RPC.
    pub tcp: SocketAddr,
    /// The address of HTTP.
    pub http: SocketAddr,
    /// The threads that the server cannot do without.
    pub reactors: Vec<Reactor>,
    /// The thread that speaks HTTP.
    pub http_thread: Reactor,
    /// Whether the register is being written anew, which a stop must wait for.
    writes_anew: watch::Receiver<bool>,
    /// The longest that an orderly stop takes, unless the register is written anew meanwhile.
    stops_within: Duration,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<Ended>>,
}

impl Running {
    /// Asks it to stop, and waits until it has.
    pub fn stop(mut self) -> Ended {
        self.stop.cancel();
        self.join()
    }

    /// A handle that asks it to stop.
    pub fn stopper(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until it ends by itself, or after somebody asked it to stop.
    pub fn wait(mut self) -> Ended {
        self.join()
    }

    fn join(&mut self) -> Ended {
        match self.thread.take().map(std::thread::JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Ended::Failed("the server's main thread crashed".to_owned()),
            None => Ended::Stopped,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
        self.join();
    }
}

/// Starts a server in threads of this process; returns when it is ready.
///
/// # Errors
/// The reason why it cannot start.
pub fn start(options: Options) -> Result<Running, CannotStart> {
    start_until(options, None, CancellationToken::new())
}

/// Like [`start`], on ports that were taken before the store was opened, or else on those of the options. If it is asked to
/// stop before it is ready, it gives up what it took, and returns that as the reason.
fn start_until(options: Options, ports: Option<Ports>, stop: CancellationToken) -> Result<Running, CannotStart> {
    let (told, ready) = std::sync::mpsc::sync_channel(1);
    let answers = Duration::from_secs(options.config.server.shutdown_seconds);
    let stops_within = answers + Duration::from_millis(crate::limits::NODE_LEASE_MS) + answers.max(STORE_CLOSES_WITHIN);
    let stop_inside = stop.clone();
    let thread = std::thread::Builder::new()
        .name("allod".to_owned())
        .spawn(move || {
            let system = System::new();
            system.block_on(live((options, ports), stop_inside, told))
        })
        .map_err(|error| CannotStart::of_machine(format!("no thread for the server: {error}")))?;
    match ready.recv() {
        Ok(Ok(Up { tcp, http, reactors, http_thread, writes_anew })) => {
            Ok(Running { tcp, http, reactors, http_thread, writes_anew, stops_within, stop, thread: Some(thread) })
        }
        Ok(Err(cannot)) => Err(cannot),
        Err(_) => {
            let problem = "the server's main thread crashed while it started";
            Err(CannotStart::new(problem, "report this, with the log and the output of `allod --version`"))
        }
    }
}

/// A server that is ready.
struct Up {
    tcp: SocketAddr,
    http: SocketAddr,
    reactors: Vec<Reactor>,
    http_thread: Reactor,
    writes_anew: watch::Receiver<bool>,
}

type Ready = std::sync::mpsc::SyncSender<Result<Up, CannotStart>>;

async fn live((options, ports): (Options, Option<Ports>), stop: CancellationToken, ready: Ready) -> Ended {
    // A reactor thread runs connections and a share of the networks.
    let arbiters: Vec<actix::Arbiter> = (0..options.config.threads()).map(|_| actix::Arbiter::new()).collect();
    // HTTP has a thread of its own, so that scrapes and bulk do not disturb connections.
    let http_arbiter = actix::Arbiter::new();
    let http_thread = Reactor::from(http_arbiter.handle());
    let store = Arc::clone(&options.store);
    let shutdown = Duration::from_secs(options.config.server.shutdown_seconds);
    let mut reactors: Vec<_> = arbiters.iter().map(|arbiter| Reactor::from(arbiter.handle())).collect();
    let asked = stop;
    // The server may stop itself, which must be told from being asked to.
    let stop = asked.child_token();
    let brought_up = tokio::select! {
        biased;
        brought_up = bring_up((options, ports), stop.clone(), reactors.clone(), http_thread.clone()) => brought_up,
        () = asked.cancelled() => {
            lease::leave(&*store).await;
            Err(CannotStart::new("it was asked to stop", "start it again"))
        }
    };
    let ended = match brought_up {
        Err(cannot) => {
            // The receiver is gone only if the caller died.
            let _ = ready.send(Err(cannot.clone()));
            Ended::Failed(cannot.problem)
        }
        Ok((server, mut keeper, tcp, http)) => {
            // This thread keeps the node's role.
            reactors.push(System::current().arbiter().clone().into());
            let _ =
                ready.send(Ok(Up { tcp, http, reactors, http_thread, writes_anew: keeper.writes_anew.subscribe() }));
            let ended = keeper.keep(&stop).await;
            // Whatever the reason for the end, the tasks that report to the supervisor hear of it.
            asked.cancel();
            let written = take_down(&server, &mut keeper, &stop, shutdown).await;
            match written.unwrap_or(ended) {
                Ended::Stopped => keeper.end().await,
                ended @ (Ended::Failed(_) | Ended::WrittenAnew(_)) => ended,
            }
        }
    };
    for arbiter in arbiters.into_iter().chain([http_arbiter]) {
        arbiter.stop();
        if arbiter.join().is_err() {
            tracing::error!("a reactor thread crashed");
        }
    }
    if tokio::time::timeout(shutdown.max(STORE_CLOSES_WITHIN), store.close()).await.is_err() {
        tracing::error!("the store did not close in time");
    }
    ended
}

async fn bring_up(
    (options, ports): (Options, Option<Ports>),
    stop: CancellationToken,
    reactors: Vec<Reactor>,
    http_thread: Reactor,
) -> Result<(Arc<Server>, Keeper, SocketAddr, SocketAddr), CannotStart> {
    let Options { config, store, clock, hooks, networks, healed_before } = options;
    let node = config.node();
    let info = store.info();
    let Ports { tcp, http, nodes } = match ports {
        Some(ports) => ports,
        None => Ports::take(&config, !info.ownership_is_standing)?,
    };
    let speaks = hooks.peer_versions.map_or(Versions::SPOKEN, |(lowest, newest)| Versions { lowest, newest });
    let (card, mut peers) = peers::introduce(&config, &info, nodes, speaks)?;
    let server = Arc::new(Server {
        seat: Seat::default(),
        steward: Steward::default(),
        store: info.kind,
        // Weak, because the server may outlive its store.
        durability: Durability(Box::new({
            let (store, first) = (Arc::downgrade(&store), info.durability);
            move || store.upgrade().map_or_else(|| first.clone(), |store| store.info().durability)
        })),
        clock,
        metrics: Arc::new(Metrics::new()),
        balance: Balance::of(&reactors),
        session_threads: reactors.iter().cloned().chain([http_thread.clone()]).collect(),
        reactors,
        bounds: bounds(&config),
        node,
        started: Instant::now(),
        stop,
        tasks: TaskTracker::new(),
        asking: TaskTracker::new(),
        peers: TaskTracker::new(),
        nodes: Nodes::default(),
        sessions: AtomicU64::new(0),
        fairness: Default::default(),
    });
    begin_at_zero(&server.metrics);
    let present = Arc::downgrade(&server);
    let present = Box::new(move || present.upgrade()?.seat.role().actors().cloned());
    figures::watch(&server.metrics, present, config.metrics.networks_max);
    figures::watch_store(&server.metrics, &store, healed_before);
    if let Some(peers) = &mut peers {
        peers.listen(Forwarded::of(&server), server.stop.clone(), &server.peers);
    }
    let mut keeper = Keeper::new(Arc::clone(&server), store, hooks, peers);
    keeper.place = opening::place(&config);
    keeper.self_check = Some(Duration::from_secs(config.store.self_check_seconds)).filter(|every| !every.is_zero());
    keeper.introduce(card.clone());
    keeper.begin().await.map_err(|cannot| CannotStart::register(cannot, config.store.kind))?;
    match open(&server, &mut keeper, (card, &config), networks, (tcp, http), &http_thread).await {
        Ok((tcp, http)) => Ok((server, keeper, tcp, http)),
        Err(cannot) => {
            // Another owner need not wait for the lease to run out.
            server.stop.cancel();
            keeper.lay_down(Duration::from_secs(config.server.shutdown_seconds)).await;
            keeper.end().await;
            Err(cannot)
        }
    }
}

/// Makes the networks of the network file, as far as somebody can be asked, and listens.
async fn open(
    server: &Arc<Server>,
    keeper: &mut Keeper,
    (mut card, config): (NodeCard, &Config),
    networks: Vec<NetworkInput>,
    (tcp, http): (Port, Port),
    http_thread: &Reactor,
) -> Result<(SocketAddr, SocketAddr), CannotStart> {
    keeper.networks_left = networks::make_all(server, keeper, networks, config.store.kind).await?;
    let (tcp_at, http_at) = (tcp.address(), http.address());
    let (tcp, http) = (tcp.listen()?, http.listen()?);
    card.address = peers::reached_at(tcp_at, &config.cluster.advertise);
    keeper.introduce(card);
    serve_http(http, Arc::clone(server), http_thread);
    let accepting = Arc::clone(server);
    let listener = TcpListener::from_std(tcp)
        .map_err(|error| CannotStart::of_machine(format!("cannot listen on {tcp_at}: {error}")))?;
    actix::spawn(accept(listener, accepting));
    Ok((tcp_at, http_at))
}

/// Stops accepting and reading, answers what was read, gives the register up, and only then waits for sockets. Returns how the
/// server ends, if that was settled on the way.
async fn take_down(
    server: &Arc<Server>,
    keeper: &mut Keeper,
    stop: &CancellationToken,
    bound: Duration,
) -> Option<Ended> {
    let begun = Instant::now();
    stop.cancel();
    server.tasks.close();
    server.peers.close();
    if let Some(shared) = server.seat.role().actors() {
        // Nobody is kept waiting for events.
        shared.feed.close();
    }
    let ended = keeper.lay_down(bound).await;
    let left = bound.saturating_sub(begun.elapsed());
    let all = async { tokio::join!(server.tasks.wait(), server.peers.wait()) };
    if tokio::time::timeout(left, all).await.is_err() {
        tracing::warn!(left = server.tasks.len(), "stopping without waiting longer for connections");
    }
    tracing::info!(took_ms = begun.elapsed().as_millis() as u64, "stopped");
    ended
}
