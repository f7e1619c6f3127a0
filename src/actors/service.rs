//! What the actors share, and how they reach each other. `starting` creates them.
//!
//! Nothing here changes a network. Neighbours: `serve` starts it, `server` asks it for routes and hands it jobs.

mod loading;
mod quiet;
mod recall;
mod starting;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

pub(super) use self::loading::{Built, networks_of};
pub use self::recall::RegisterMemory;
pub use self::starting::{CannotOwn, Parts, Unloadable, start};
use super::clock::{Clock, Moment, ShardClock};
use super::committer::{self, Committer, Enqueue, Reload, Staged, Unit, UnitPart};
use super::deployments::Deployments;
use super::directory::{self, Directory, Gone, MovedSubnet, Reloaded};
use super::events::{Feed, held::Walks};
use super::generations::Generations;
use super::macs::Macs;
use super::mailbox;
use super::network::{Birth, DEFERRED_MS_MAX, MAILBOX_MESSAGES, NetworkActor};
use super::places::Places;
use super::published::Published;
use super::reactor::Reactor;
use super::recorded::Recorded;
use super::reserve::{self, Reserve};
use super::routes::{Lane, Permits, Route, Routes};
use super::sweeps::Sweeps;
use super::timers::Timers;
use super::waits::Waits;
use super::{Fatal, Outlet, Reply, StopReason, Stopped, shard_of};
use crate::core::catalog::Intent;
use crate::core::command::Command;
use crate::core::network::Network;
use crate::core::outcome::Outcome;
use crate::core::refusal::Refusal;
use crate::core::state::{NetworkConfig, Step, SubnetConfig};
use crate::core::types::{Name, NetworkId, ShardTime};
use crate::metrics::Metrics;
use crate::store::chapters::Chapters;
use crate::store::{Epoch, ShardId, Store, StoreHealth, StoreInfo, size};

/// Called before each decision. A test panics here, or stops the world.
pub type BeforeDecide = Arc<dyn Fn(&Command) + Send + Sync>;

/// Called before each step of what was decided is carried out. A test panics here, so that memory has a part of it.
pub type BeforeStep = Arc<dyn Fn(&Step) + Send + Sync>;

/// Called before the catalog checks what a network intends. A test panics here.
pub type BeforeIntent = Arc<dyn Fn(&Intent) + Send + Sync>;

/// Called once the store has answered for a network that is created, before the catalog is told. A test panics here.
pub type BehindCommit = Arc<dyn Fn() + Send + Sync>;

/// What tests may hook into the actors.
#[derive(Default, Clone)]
pub struct Hooks {
    /// Before each decision, inside the wall that catches panics.
    pub before_decide: Option<BeforeDecide>,
    /// When requests reach a network, outside that wall.
    pub before_work: Option<BeforeDecide>,
    /// Before each step in memory, inside a wall of its own.
    pub before_step: Option<BeforeStep>,
    /// In the directory, which has no wall.
    pub before_intent: Option<BeforeIntent>,
    /// In the task that creates a network, which its panic ends.
    pub behind_commit: Option<BehindCommit>,
    /// Write no index of the history: its writer has a thread and a time of its own.
    pub without_index: bool,
    /// For how many milliseconds requests wait for a network that is being loaded; none: as in the product.
    pub deferred_ms_max: Option<Arc<AtomicU64>>,
    /// How long a commit is tried; none: as in the product. For tests whose store holds a commit back, independent of any
    /// clock.
    pub commit_deadline: Option<Duration>,
    /// How often the self-check is made; none: as it is configured.
    pub self_check_every: Option<Duration>,
    /// How many differences of a network the self-check looks at; none: as in the product.
    pub odd_max: Option<usize>,
    /// The lowest and the newest version of the protocol between nodes that this node speaks; none: as the product does.
    pub peer_versions: Option<(u16, u16)>,
}

/// What every actor and every connection may reach.
pub struct Shared {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its properties.
    pub info: StoreInfo,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// The routing table.
    pub routes: Routes,
    /// Records of deployments.
    pub deployments: Deployments,
    /// MACs in use, by realm.
    pub macs: Macs,
    /// Addresses that dynamic networks have recorded.
    pub recorded: Recorded,
    /// The random identity of this time of owning the register.
    pub tenure: u128,
    /// Locked for writing while a subnet moves, from before its commit until the catalog knows; locked for reading by jobs
    /// that look at one network after the other and must meet each subnet once, to show or to release what lies in it. Fair:
    /// neither side starves the other.
    pub moving: tokio::sync::RwLock<()>,
    /// What happened, for watchers.
    pub feed: Feed,
    /// Claims on what the store reserves for releases.
    pub reserve: Reserve,
    /// What sweeps remember.
    pub sweeps: Arc<Sweeps>,
    /// Requests that wait.
    pub waits: Arc<Waits>,
    /// The index of the history, for those who ask for it.
    pub chapters: Arc<Chapters>,
    /// Walks that are under way for those who ask what was held at a time.
    pub walks: Walks,
    /// Figures for `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The hooks of tests.
    pub hooks: Hooks,
    shards: Vec<ShardClock>,
    reactors: Vec<Reactor>,
    /// The reactor of each network.
    places: Places,
    /// One for each reactor.
    timers: Vec<Arc<Timers>>,
    committers: OnceLock<Vec<Addr<Committer>>>,
    directory: OnceLock<Addr<Directory>>,
    fatal: mpsc::UnboundedSender<Fatal>,
    over: AtomicBool,
    /// Whether clients are served.
    serves: AtomicBool,
    /// Boot time at which the last successful commit or proof began.
    served_ms: AtomicU64,
    /// It was reported that the directory is gone.
    missed: AtomicBool,
    /// Whether the register is about to be given away, in order.
    given_away: watch::Sender<bool>,
    /// Jobs that are not answered yet.
    pub(super) jobs: TaskTracker,
    /// How often each shard was taken over.
    epochs: Vec<AtomicU64>,
    /// The generations, from which all networks draw.
    pub(super) generations: Generations,
}

impl Shared {
    /// How long a request waits for a network that is being loaded before it is refused.
    pub(super) fn deferred_max(&self) -> Duration {
        let asked = self.hooks.deferred_ms_max.as_deref();
        Duration::from_millis(asked.map_or(DEFERRED_MS_MAX, |ms| ms.load(Ordering::Relaxed)))
    }

    /// How often a shard was taken over, this tenure included.
    pub fn epoch(&self, shard: ShardId) -> u64 {
        self.epochs[usize::from(shard.0)].load(Ordering::Relaxed)
    }

    /// How often each shard was taken over, in order.
    pub fn epochs(&self) -> Vec<u64> {
        self.epochs.iter().map(|epoch| epoch.load(Ordering::Relaxed)).collect()
    }

    /// Notes that a shard was taken again.
    pub(super) fn note_epoch(&self, shard: ShardId, epoch: Epoch) {
        self.epochs[usize::from(shard.0)].store(epoch.0, Ordering::Relaxed);
    }

    /// The present time of a shard. It stands still while the store takes nothing or is not reached, and until clients are
    /// served.
    pub fn shard_time(&self, shard: ShardId) -> ShardTime {
        self.shard_moment(shard).now
    }

    /// The present time of a shard, since when it has not stood still, and the wall time.
    pub fn shard_moment(&self, shard: ShardId) -> Moment {
        let serving = self.serves.load(Ordering::Acquire) && self.takes_changes();
        self.shards[usize::from(shard.0)].now(&*self.clock, serving)
    }

    /// Does the store take changes, as far as is known?
    pub(super) fn takes_changes(&self) -> bool {
        self.store.health() == StoreHealth::Ready && !self.store.is_unreached()
    }

    /// Refuses a list of subnets that takes more than one commit can carry: the committer would only find that out when the
    /// network has changed in memory, which then had to be loaded again. What may share its unit has room beside it.
    pub(super) fn fits_one_commit(&self, field: &str, steps: &[Step]) -> Result<(), Refusal> {
        let bytes_max = (self.info.act_bytes_max - self.info.act_bytes_max / 16) as u64;
        let bytes = size::alone(steps);
        if bytes > bytes_max { Err(Refusal::too_much_configuration(field, bytes, bytes_max)) } else { Ok(()) }
    }

    /// Notes that a commit or a proof that began at this boot time succeeded: a client that asked then was served.
    pub(super) fn was_served(&self, begun_ms: u64) {
        self.served_ms.fetch_max(begun_ms, Ordering::Relaxed);
    }

    /// How long ago, at most, a client was last served, in milliseconds: an outage that nobody has noticed yet is no longer
    /// than that. None: that need not be asked, because having the store open is enough, or because a test moves the time.
    pub(super) fn served_ago_ms(&self) -> Option<u64> {
        let is_asked = !self.info.ownership_is_standing && self.clock.tells_pauses();
        is_asked.then(|| self.clock.boot_ms().saturating_sub(self.served_ms.load(Ordering::Relaxed)))
    }

    /// Why nothing is granted now, if so: the store takes no changes, the last request to it did not reach it, or its contents
    /// were restored and nobody has confirmed yet that they are right.
    pub fn unwilling(&self) -> Option<Arc<str>> {
        match self.store.health() {
            StoreHealth::Ready => {
                self.away().or_else(|| {
                    self.info.restored_from.map(|_| {
                        "the register was restored from a copy: no address is chosen until what is in use has been claimed and \
                         the server was started with --accept-restored"
                            .into()
                    })
                })
            }
            StoreHealth::Full | StoreHealth::Hindered => Some(reserve::obstacle(&*self.store)),
            StoreHealth::Failed => Some(match self.store.failure() {
                Some(why) => format!("the store failed: {why}").into(),
                None => "the store failed".into(),
            }),
        }
    }

    /// The networks that are stopped while the others go on. Those of which a restart loses something come before those that it
    /// mends.
    pub fn stopped(&self) -> Vec<Stopped> {
        let is_stopped = |route: &Arc<Route>| {
            let why = route.published.stopped()?;
            Some(Stopped { network: route.called()?, shard: route.lane.shard, why })
        };
        let mut stopped: Vec<Stopped> = self.routes.all().iter().filter_map(is_stopped).collect();
        stopped.sort_by(|one, other| {
            let key = |of: &Stopped| !of.why.shows_memory();
            key(one).cmp(&key(other)).then_with(|| one.network.cmp(&other.network))
        });
        stopped
    }

    /// Names of the networks that grant nothing, because two claim an address of them since a failover.
    pub fn contested(&self) -> Vec<Name> {
        let is_contested =
            |route: &&Arc<Route>| route.published.figures.load().as_ref().is_some_and(|figures| figures.conflicts > 0);
        let routes = self.routes.all();
        let mut contested: Vec<Name> = routes.iter().filter(is_contested).filter_map(|route| route.called()).collect();
        contested.sort();
        contested
    }

    /// A network that is answered from memory because the store has something else.
    pub fn shows_memory(&self) -> Option<Stopped> {
        self.stopped().into_iter().find(|stopped| stopped.why.shows_memory())
    }

    /// How many networks are being read from the store again: what is asked of them waits.
    pub fn loading(&self) -> usize {
        self.routes.all().iter().filter(|route| route.published.is_loading()).count()
    }

    /// Whether its store is reached and works, though it may take no grants: no other node would do better then.
    pub fn has_store(&self) -> bool {
        self.store.health() != StoreHealth::Failed && self.store.unreached().is_none()
    }

    /// Why it cannot be proved at present that this node owns the register, as far as is known. None: another may own it.
    pub(super) fn unprovable(&self) -> Option<Arc<str>> {
        self.hindrance().or_else(|| self.away().filter(|_| !self.is_over()))
    }

    /// Why the store is not reached, if it is known not to be.
    fn away(&self) -> Option<Arc<str>> {
        self.store.unreached().map(|why| format!("the store cannot be reached: {why}").into())
    }

    /// What is in the way of the store, if something is known to be: then nothing is proved and nothing new is taken.
    pub fn hindrance(&self) -> Option<Arc<str>> {
        (self.store.health() == StoreHealth::Hindered).then(|| self.store.obstacle())
    }

    /// The shard of a network.
    pub fn shard_of(&self, network: NetworkId) -> ShardId {
        shard_of(network, self.info.shards)
    }

    /// The reactor thread on which a network's actor runs.
    fn reactor_of(&self, lane: &Lane) -> &Reactor {
        &self.reactors[lane.place(&self.places)]
    }

    /// The timers that wake a network: those of its reactor thread.
    pub fn timers_of(&self, lane: &Lane) -> &Timers {
        &self.timers[lane.place(&self.places)]
    }

    /// All reactor threads.
    pub fn reactors(&self) -> &[Reactor] {
        &self.reactors
    }

    /// The directory.
    pub fn directory(&self) -> &Addr<Directory> {
        self.directory.get().expect("the directory is started before anybody can ask for it")
    }

    fn committer_of(&self, shard: ShardId) -> &Addr<Committer> {
        let committers = self.committers.get().expect("committers are started before any network");
        if committers.len() == 1 { &committers[0] } else { &committers[usize::from(shard.0)] }
    }

    /// Hands a unit to its committer. All parts of a joint unit go to one committer (see `coordinator`).
    pub fn enqueue(&self, unit: Enqueue) {
        let Some(shard) = unit.0.parts.first().map(|part| part.lane.shard) else { return };
        if self.committer_of(shard).try_send(unit).is_err() {
            self.fatal(Fatal("the committer is no more".to_owned()));
        }
    }

    /// Sends answers that were decided by the catalog or the routing table alone, once it is proved that this node still owns
    /// the register. If having the store open is that proof, at once.
    pub fn answer_proved(&self, outlet: Outlet, replies: Vec<Reply>) {
        self.answer_proved_for(ShardId(0), outlet, replies);
    }

    fn answer_proved_for(&self, shard: ShardId, outlet: Outlet, replies: Vec<Reply>) {
        let answers = replies.into_iter().map(|reply| Staged { reply, wrote: false }).collect();
        self.enqueue(Enqueue(Unit::new(vec![UnitPart::proof(shard)], Some(outlet), answers)));
    }

    /// Is it proved, after this was called, that this node still owns the register?
    pub async fn is_proved_owner(&self) -> bool {
        self.is_proved_owner_of(&[ShardId(0)]).await
    }

    /// Is it proved, after this was called, that this node still owns these shards, each on the line that this node knows?
    pub(super) async fn is_proved_owner_of(&self, shards: &[ShardId]) -> bool {
        if self.info.ownership_is_standing {
            return true;
        }
        let proof = |&shard: &ShardId| {
            let (outlet, told) = super::outlet();
            self.answer_proved_for(shard, outlet, vec![Reply { ticket: 0, answer: Ok(Outcome::Done) }]);
            super::only_answer(told)
        };
        // All proofs are asked for before the first is awaited: one check answers them together.
        let proofs: Vec<_> = shards.iter().map(proof).collect();
        for proof in proofs {
            if proof.await.is_none_or(|answer| answer.is_err()) {
                return false;
            }
        }
        true
    }

    /// Asks a network's committer to load it again.
    pub fn reload(&self, reload: Reload) {
        if self.committer_of(reload.lane.shard).try_send(reload).is_err() {
            self.fatal(Fatal("the committer is no more".to_owned()));
        }
    }

    /// Tells the directory that a network is durably gone.
    pub fn gone(&self, gone: Gone) {
        if self.directory().try_send(gone).is_err() {
            self.fatal(Fatal("the directory is no more".to_owned()));
        }
    }

    /// Tells the catalog that a subnet has durably moved.
    pub fn moved(&self, moved: MovedSubnet) {
        if self.directory().try_send(moved).is_err() {
            self.fatal(Fatal("the directory is no more".to_owned()));
        }
    }

    /// Tells the catalog what a network has that was loaded again.
    pub fn reloaded(&self, config: &Arc<NetworkConfig>, subnets: &[Arc<SubnetConfig>]) {
        let reloaded = Reloaded { config: Arc::clone(config), subnets: subnets.to_vec() };
        if self.directory().try_send(reloaded).is_err() {
            self.fatal(Fatal("the directory is no more".to_owned()));
        }
    }

    /// Reports that the mailbox of a network was found closed: its actor is restarted.
    pub(super) fn found_dead(&self, route: &Arc<Route>) {
        if self.directory().try_send(directory::Dead { route: Arc::clone(route) }).is_err() {
            self.misses_directory();
        }
    }

    /// Reports that the actors cannot go on.
    pub fn fatal(&self, fatal: Fatal) {
        if !self.over.load(Ordering::Acquire) {
            // If the server is stopping already, nobody listens.
            let _ = self.fatal.send(fatal);
        }
    }

    /// Notes that a message for the directory came after its end. If the tenure is over, nobody needs to know.
    pub(super) fn misses_directory(&self) {
        if !self.over.load(Ordering::Acquire) && !self.missed.swap(true, Ordering::AcqRel) {
            tracing::error!("the directory is no more");
        }
    }

    /// Notes that clients are served from now on: those whose leases run can renew them.
    pub fn serves(&self) {
        // Time that passed until now does not count.
        for shard in &self.shards {
            shard.now(&*self.clock, false);
        }
        self.serves.store(true, Ordering::Release);
    }

    /// Are clients served, or were they?
    pub fn is_served(&self) -> bool {
        self.serves.load(Ordering::Acquire)
    }

    /// Is the tenure over?
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends all actors: this node no longer owns the register. Every request that is under way is answered, and nothing is
    /// acknowledged or written from here on. The rest of the memory is freed with its last users.
    pub fn retire(&self, problem: &str) {
        self.end_commits(problem);
        self.end_networks();
    }

    /// Ends all commits: nothing is acknowledged or written from here on; what waits for that is answered.
    fn end_commits(&self, problem: &str) {
        self.over.store(true, Ordering::Release);
        self.feed.close();
        // A closed mailbox belongs to an actor that already ended.
        for committer in self.committers.get().into_iter().flatten() {
            let _ = committer.try_send(committer::Retire(problem.to_owned()));
        }
    }

    fn end_networks(&self) {
        if let Some(directory) = self.directory.get() {
            let _ = directory.try_send(directory::Retire);
        }
    }

    /// Starts the actor of a network on its reactor thread. The route is not published yet.
    pub fn start_network(self: &Arc<Self>, network: Network, lane: Arc<Lane>, published: Arc<Published>) -> Route {
        self.start_born(Birth { network, lane, published, misfit: None })
    }

    /// As [`Shared::start_network`]. What any entry of a network that cannot be served has is its own, so that nobody else is
    /// given that meanwhile, and nobody who looks for it passes it over.
    pub(super) fn start_born(self: &Arc<Self>, birth: Birth) -> Route {
        let Birth { network, lane, published, misfit } = &birth;
        let (config, lane, published) = (Arc::clone(network.config()), Arc::clone(lane), Arc::clone(published));
        // Before anybody can search for holders.
        let of_misfit = misfit.iter().flat_map(|misfit| misfit.scopes());
        published.set_scopes(network.scope_names().into_iter().chain(of_misfit).collect());
        // So that the first scrape that sees the network sees its figures.
        published.publish_figures(network, self.clock.boot_ms());
        self.macs.add(&config.realm, config.id, network.macs());
        self.recorded.add(&config.realm, config.id, network.recorded());
        if let Some(misfit) = misfit {
            self.macs.add(&config.realm, config.id, misfit.macs());
            self.recorded.add(&config.realm, config.id, misfit.recorded());
        }
        let shared = Arc::clone(self);
        let addr = mailbox::start(self.reactor_of(&lane), MAILBOX_MESSAGES, move || NetworkActor::new(shared, birth));
        let name = (!config.closed).then(|| config.name.clone());
        let realm = config.realm.clone();
        Route { id: config.id, name, realm, addr, lane, permits: Arc::new(Permits::default()), published }
    }

    /// The networks that are stopped because they cannot be loaded.
    pub fn unloadable(&self) -> Vec<NetworkId> {
        let is_so = |route: &&Arc<Route>| route.published.stopped() == Some(StopReason::Unloadable);
        self.routes.all().iter().filter(is_so).map(|route| route.id).collect()
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("info", &self.info).finish_non_exhaustive()
    }
}
