//! Starts the actors: takes the shards, loads them, starts a committer, the directory and one actor for each network.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use super::loading::{Built, networks_and_records, take_and_load};
use super::{Hooks, Shared};
use crate::actors::clock::{Clock, ShardClock};
use crate::actors::committer::Committer;
use crate::actors::deployments::Deployments;
use crate::actors::directory::Directory;
use crate::actors::events::names::{BEHIND, NamedNetwork};
use crate::actors::events::{Feed, held::Walks, scribe};
use crate::actors::generations::Generations;
use crate::actors::macs::Macs;
use crate::actors::mailbox::{self, BOUNDED_ELSEWHERE};
use crate::actors::network::Birth;
use crate::actors::places::Places;
use crate::actors::published::Published;
use crate::actors::reactor::Reactor;
use crate::actors::recorded::Recorded;
use crate::actors::reserve::Reserve;
use crate::actors::routes::{Lane, Routes};
use crate::actors::standby::Standby;
use crate::actors::sweeps::Sweeps;
use crate::actors::timers::{self, Timers};
use crate::actors::{Fatal, StopReason};
use crate::core::network::{Misfit, Network};
use crate::core::types::NetworkId;
use crate::metrics::Metrics;
use crate::store::chapters::Chapters;
use crate::store::{Head, Seq, ShardId, Store, StoreError, StoreInfo};

/// What is needed to start the actors.
pub struct Parts {
    /// The store, open.
    pub store: Arc<dyn Store>,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// Reactor threads, at least one.
    pub reactors: Vec<Reactor>,
    /// The hooks of tests.
    pub hooks: Hooks,
    /// Bytes of changes that are kept in memory for watchers.
    pub behind_bytes: usize,
    /// The index of the history.
    pub chapters: Arc<Chapters>,
    /// Told when the process cannot go on.
    pub fatal: mpsc::UnboundedSender<Fatal>,
    /// The part of the register that is ready in memory, if any.
    pub standby: Option<Standby>,
}

/// Why the actors cannot be started.
#[derive(Debug, Clone)]
pub enum CannotOwn {
    /// Another node owns the register, and its lease runs.
    Held {
        /// Name of the node.
        owner: Arc<str>,
        /// Where the other nodes reach it.
        address: Arc<str>,
        /// What is left of its lease.
        left_ms: u64,
    },
    /// Another node took the register over while this one did.
    Overtaken(String),
    /// The store can be reached, but this node lets another one go first, which may have owned the register since.
    NotFirst(String),
    /// The store cannot be reached now.
    Unreachable(String),
    /// The store has no room for what an owner writes first.
    Full(String),
    /// What is stored cannot be loaded.
    Damaged(Unloadable),
}

/// What cannot be loaded, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unloadable {
    /// As a sentence.
    pub problem: String,
    /// It is as it was written, and this version cannot read it.
    pub is_newer: bool,
}

impl Unloadable {
    /// The reason is this error, and the sentence has it.
    pub fn because(error: &StoreError, problem: String) -> Self {
        Self { problem, is_newer: matches!(error, StoreError::Newer(_)) }
    }
}

/// Takes and loads every shard and starts the actors. Must run on an actix system's thread.
///
/// # Errors
/// The owner of the register, or what cannot be loaded.
pub async fn start(mut parts: Parts) -> Result<Arc<Shared>, CannotOwn> {
    let info = parts.store.info();
    let taken = take_and_load(&*parts.store, &*parts.clock, info.shards, parts.standby.take()).await?;
    let heads: Vec<(ShardId, Head)> = taken.iter().map(|(shard, taken)| (*shard, taken.head())).collect();
    let shared = shared_of(parts, info, &heads);
    start_committers(&shared, heads);
    let (built, records) = networks_and_records(taken, shared.generations.floor(shared.clock.wall())).await;
    let filled = shared.deployments.fill(records, |id| shared.shard_of(id));
    let built = filled.and(built).and_then(|built| {
        let (networks, misfits) = with_misfits(built);
        Ok((Directory::new(Arc::clone(&shared), &networks)?, networks, misfits))
    });
    let (directory, networks, misfits) = match built {
        Ok(built) => built,
        Err(problem) => {
            shared.retire(&problem);
            return Err(CannotOwn::Damaged(Unloadable { problem, is_newer: false }));
        }
    };
    let directory = mailbox::start(&shared.reactors[0], BOUNDED_ELSEWHERE, move || directory);
    let _ = shared.directory.set(directory);
    start_networks(&shared, networks, &misfits);
    scribe::start(&shared);
    Ok(shared)
}

/// Creates what the actors of a new tenure share, and the timers of its reactor threads. No actor runs yet.
fn shared_of(parts: Parts, info: StoreInfo, heads: &[(ShardId, Head)]) -> Arc<Shared> {
    let Parts { store, clock, metrics, reactors, hooks, behind_bytes, chapters, fatal, standby: _ } = parts;
    let shards = heads.iter().map(|(_, head)| ShardClock::new(head.time, &*clock)).collect();
    let timers: Vec<Arc<Timers>> = reactors.iter().map(|_| Arc::new(Timers::new(Arc::clone(&clock)))).collect();
    for (reactor, timers) in reactors.iter().zip(&timers) {
        reactor.spawn(timers::run(Arc::downgrade(timers)));
    }
    let tenure = clock.entropy();
    // If nothing was ever written, nobody has a claimant that could be swept.
    let is_first = heads.iter().all(|(_, head)| head.seq == Seq(0));
    let sweeps = if is_first { Sweeps::default() } else { Sweeps::behind_another(clock.boot_ms()) };
    Arc::new(Shared {
        info,
        routes: Routes::default(),
        tenure,
        feed: Feed::new(tenure, heads, behind_bytes),
        chapters,
        shards,
        committers: OnceLock::new(),
        directory: OnceLock::new(),
        store,
        clock,
        macs: Macs::default(),
        recorded: Recorded::default(),
        moving: tokio::sync::RwLock::default(),
        deployments: Deployments::default(),
        reserve: Reserve::default(),
        sweeps: Arc::new(sweeps),
        waits: Arc::default(),
        walks: Walks::default(),
        metrics,
        hooks,
        places: Places::new(reactors.len()),
        reactors,
        timers,
        fatal,
        over: AtomicBool::new(false),
        serves: AtomicBool::new(false),
        served_ms: AtomicU64::new(0),
        missed: AtomicBool::new(false),
        given_away: watch::Sender::new(false),
        jobs: TaskTracker::new(),
        epochs: heads.iter().map(|(_, head)| AtomicU64::new(head.epoch.0)).collect(),
        generations: Generations::above(heads.iter().map(|(_, head)| head.generation).max().unwrap_or_default()),
    })
}

/// Starts one committer for all shards if the store commits them together, otherwise one for each; on the reactor threads in
/// turn.
fn start_committers(shared: &Arc<Shared>, heads: Vec<(ShardId, Head)>) {
    let groups: Vec<Vec<(ShardId, Head)>> = if shared.info.commits_shards_together {
        vec![heads]
    } else {
        heads.into_iter().map(|head| vec![head]).collect()
    };
    let committers = groups
        .into_iter()
        .enumerate()
        .map(|(at, heads)| {
            let shared = Arc::clone(shared);
            let reactor = shared.reactors[at % shared.reactors.len()].clone();
            mailbox::start(&reactor, BOUNDED_ELSEWHERE, move || Committer::new(shared, &heads))
        })
        .collect();
    let _ = shared.committers.set(committers); // Set once: `shared` was made just before.
}

/// Networks that cannot be served, by id.
type Misfits = BTreeMap<NetworkId, Arc<Misfit>>;

/// All networks by id: those that cannot be served have what fits together of them.
fn with_misfits(built: Built) -> (Vec<Network>, Misfits) {
    let Built { mut networks, misfits } = built;
    let ids = misfits.iter().map(|(misfit, _)| (misfit.id(), Arc::clone(misfit))).collect();
    networks.extend(misfits.into_iter().map(|(_, in_part)| in_part));
    networks.sort_unstable_by_key(|network| network.config().id);
    (networks, ids)
}

/// Starts an actor for each network, and publishes them all at once: their names are known before anybody can ask.
fn start_networks(shared: &Arc<Shared>, networks: Vec<Network>, misfits: &Misfits) {
    for network in &networks {
        let id = network.config().id;
        let since = (shared.feed.tip(shared.shard_of(id)).seq, BEHIND);
        shared.feed.names.note(id, since, NamedNetwork::of(network.config()));
    }
    let routes = networks
        .into_iter()
        .map(|network| {
            let id = network.config().id;
            let lane = Arc::new(Lane::new(id, shared.shard_of(id)));
            let published = Arc::new(Published::default());
            let misfit = misfits.get(&id).cloned();
            if let Some(misfit) = &misfit {
                // A register is not kept from everybody because of one network.
                tracing::error!(network = %id, problem = misfit.to_string(), "what the store has of it cannot be loaded");
                published.note_stopped(Some(StopReason::Unloadable));
            }
            shared.start_born(Birth { network, lane, published, misfit })
        })
        .collect();
    shared.routes.fill(routes);
}
