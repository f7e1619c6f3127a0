//! Methods that concern several networks, or the catalog: one task for each request, which asks actors and answers once.
//!
//! **All or nothing in process.** A task that changes several networks at once (`ip.acquire`, `subnet.move`) holds them in
//! order of their ids (so that no two tasks wait for each other), lets each decide, hands *one joint unit* to the committer,
//! and only then lets the networks apply and go on. Between the first decision and the joint unit it awaits nothing but the
//! actors' answers. All parts are in one group commit, so a crash leaves all of it or none. A refusal ends all holds.
//!
//! **The seam.** This works if all networks concerned belong to one committer, as they do with a store that commits shards
//! together. Across several nodes, or shards that commit separately, a two-phase protocol would replace `joint::commit`:
//! *prepare* where a part is held and decided, *decide* where the joint unit is, *settle* where the holds are finished. Parts
//! carry their transaction's id already.
//!
//! Acts on names and space go through the directory (see there). A task outlives the client that asked: what was begun is
//! completed. A task that panics ends its holds and locks when it is dropped (a lock only after what it began, see `locked`),
//! and answers `internal`.
//!
//! **In time, or not at all.** A job with a deadline checks it until the job begins: when it has its lock and its holds
//! (`begin`), and, in the queue of a network, with the first thing it asks there. After that the deadline no longer counts:
//! what is begun is completed.
//!
//! Review notes: does a new job answer in every path (`Tell`)? Does a job that decides under holds call `begin` before? Are
//! networks held in order of their ids? Does a job under holds wait for networks only? Does a job that goes through networks
//! say so (`Job::goes_through_networks`), and lock none of them?

mod bind;
mod configure;
mod deploy;
mod events;
mod healing;
mod job;
mod joint;
mod lists;
mod locked;
#[cfg(test)]
mod made_macs;
mod maps;
mod moves;
mod proved;
mod release;
mod scopes;
pub mod sweep;
mod waiting;
mod walk;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use compact_str::CompactString;
use tokio::sync::{RwLockReadGuard, oneshot};
use tokio_util::task::task_tracker::TaskTrackerToken;

pub(super) use deploy::record::{ComparedRecord, compare_record};
pub use deploy::{DeployOrder, DeployPart, DeployedAll, DeployedSlot};
pub use job::{AcquirePart, Done, Elsewhere, Job, ListOrder, ListPlace, Located, Order};

use super::directory::{AskCatalog, CatalogQuestion};
use super::network::Work;
use super::routes::Route;
use super::sending::{deliver, send};
use super::service::Shared;
use super::waits::Wait;
use super::{Answer, Applied, BeganToWait, Fault, Item, NotReadyReason, Outlet, Told, directory, mac_holder};
use crate::core::catalog::{ListRow, Listing, Naming};
use crate::core::command::Command;
use crate::core::outcome::Outcome;
use crate::core::refusal::{Missing, Refusal};
use crate::core::types::{Name, NetworkId};

type Outcomes = Result<Done, Box<Fault>>;

/// How long a job that goes through networks waits for moving subnets: longer than the commit of one may take.
const MOVE_WAIT_MAX: Duration = Duration::from_secs(8);

/// The one answer of a job. If it is dropped unused (a panic), it answers `internal`.
#[derive(Debug)]
struct Tell {
    outlet: Outlet,
    ticket: u32,
    told: bool,
    /// The job changes nothing.
    reads: bool,
}

impl Tell {
    fn tell(&mut self, answer: Outcomes) {
        if !self.told {
            self.told = true;
            let answer = if self.reads { answer.map_err(Fault::of_read) } else { answer };
            // A closed outlet is a client that hung up: what was done stands.
            let _ = self.outlet.send(Told::Job(self.ticket, answer));
        }
    }
}

impl Tell {
    /// Reports that the job waits, for these networks: what was asked after it need not wait for it.
    fn waits(&self, networks: Vec<NetworkId>) {
        let waits = BeganToWait { ticket: self.ticket, networks };
        // A closed outlet is a client that hung up: that is reported elsewhere.
        let _ = self.outlet.send(Told::Waits(vec![waits]));
    }
}

impl Drop for Tell {
    fn drop(&mut self) {
        if !self.told {
            let id = format!("{:016x}", rand::random::<u64>());
            tracing::error!(id = %id, "a job over several networks crashed; what it held is let go");
            self.tell(Err(Box::new(Fault::Internal { id })));
        }
    }
}

/// Runs a job to its end on a reactor thread and answers under `ticket`.
pub fn spawn(shared: &Arc<Shared>, ticket: u32, order: Order, outlet: Outlet) {
    let shared = Arc::clone(shared);
    let reactor = shared.reactors()[0].clone();
    let unanswered = token(&shared, &order.job);
    let outlet =
        if shared.info.ownership_is_standing { outlet } else { proved::outlet(&shared, ticket, &order, outlet) };
    reactor.spawn(async move {
        let _unanswered = unanswered;
        let reads = order.dry_run || order.job.is_read();
        let mut tell = Tell { outlet, ticket, told: false, reads };
        let Order { job, by, reason, deadline, dry_run, wait } = order;
        let begins = Begins { deadline, reads, begun: AtomicBool::new(false) };
        let coordinator = Coordinator { shared, by, reason, dry_run, wait, begins };
        match coordinator.in_time() {
            Ok(()) => coordinator.run(job, &mut tell).await,
            Err(fault) => tell.tell(Err(fault)),
        }
    });
}

/// Makes the end of all jobs wait for this one; except for a job that itself waits for events.
fn token(shared: &Shared, job: &Job) -> Option<TaskTrackerToken> {
    (!matches!(job, Job::Events { .. })).then(|| shared.jobs.token())
}

/// Until when a job may begin, and whether it has. A job may wait long for a lock, a hold or a place in a queue, having done
/// nothing: what is begun is completed, however long that takes.
#[derive(Debug, Default)]
struct Begins {
    deadline: Option<Instant>,
    /// The job changes nothing: it has begun once it looked at a network.
    reads: bool,
    begun: AtomicBool,
}

/// One job's view of the actors.
struct Coordinator {
    shared: Arc<Shared>,
    by: CompactString,
    reason: Option<CompactString>,
    dry_run: bool,
    wait: Option<Wait>,
    begins: Begins,
}

impl Coordinator {
    async fn run(&self, job: Job, tell: &mut Tell) {
        let still = if job.goes_through_networks() { self.nothing_moves().await.map(Some) } else { Ok(None) };
        let _nothing_moves = match still {
            Ok(still) => still,
            Err(fault) => return tell.tell(Err(fault)),
        };
        let answer = match job {
            Job::Create { input, if_absent } => return self.create(&input, if_absent, tell).await,
            Job::Configure { network, change, if_version } => match self.lock_named(&network).await {
                Ok((route, act)) => return self.configure(&route, act, change, if_version, tell).await,
                Err(fault) => Err(fault),
            },
            Job::Move { from, subnet, to, if_version } => {
                return self.move_subnet(&from, subnet, &to, if_version, tell).await;
            }
            Job::Bind { network, target } => self.bind(&network, *target).await,
            Job::Acquire { parts, slot_prefix } => match self.acquire(parts, &slot_prefix, tell).await {
                Ok(done) => Ok(done),
                Err(fault) => Err(mac_holder::named(&self.shared, fault, mac_holder::patience(&self.shared)).await),
            },
            Job::ReleaseOwner { scope, owner, network } => {
                let command = |limit| Command::ReleaseOwner { scope: scope.clone(), owner: owner.clone(), limit };
                self.release(network.as_deref(), (&scope, Some(&owner)), command).await
            }
            Job::ReleaseScope(scope) => {
                self.release(None, (&scope, None), |limit| Command::ReleaseScope { scope: scope.clone(), limit }).await
            }
            Job::Deploy(order) => self.deploy(*order).await,
            Job::Settle { deployment, plan, instances, revert } => {
                self.settle_deployment(deployment, plan, instances, revert).await
            }
            Job::Deployment(name) => self.deployment(name).await,
            Job::Deployments { after, limit } => self.deployments(after, limit).await,
            Job::DeleteDeployment(name) => self.delete_deployment(name).await,
            Job::Mark { scope, sweep, claimants } => self.mark(&scope, &sweep, claimants),
            Job::Sweep(ask) => self.sweep(*ask).await,
            Job::List { network, realm, filter, after, limit, count_only } => {
                self.list(network.as_deref(), realm, *filter, after, (limit, count_only)).await
            }
            Job::Find { realm, address } => self.find(realm, address).await,
            Job::Located { address, scope, command } => self.located(address, &scope, command).await,
            Job::Networks { realm, tag, usage, deleted, after, limit } => {
                self.networks(realm.as_ref(), tag.as_ref(), (usage, deleted), after, limit).await
            }
            Job::Map { network, part, size } => self.map_in_cells(&network, &part, size).await,
            Job::Realms => self.realms().await,
            Job::Scopes { network, after, limit } => self.scopes(network.as_deref(), after, limit).await,
            Job::Conflicts => self.conflicts().await,
            Job::Locate(network) => self.locate(&network).await,
            Job::Watch { network, realm, scope, since } => self.watch(network, (realm, scope), since).await,
            Job::Events { filter, cursor, wait_ms } => self.events(&filter, &cursor, wait_ms).await,
            Job::History { network, filter, after, limit } => self.history(network, filter, after, limit).await,
            Job::HeldAt { network, filter, at, after, limit } => {
                self.held_at(network, filter, at, (after, limit)).await
            }
            Job::Heal { network, claims, renewed } => self.heal(network, claims, renewed).await,
            Job::Node(job) => {
                tracing::error!(?job, "an order for the node came to its actors");
                Err(lost())
            }
        };
        tell.tell(answer);
    }

    /// While the returned guard is held, no subnet moves from one network to another. To be taken before anything else that an
    /// act waits for: a move waits for the guard while it holds no network.
    async fn nothing_moves(&self) -> Result<RwLockReadGuard<'_, ()>, Box<Fault>> {
        let still = tokio::time::timeout(MOVE_WAIT_MAX, self.shared.moving.read()).await;
        still.map_err(|_| {
            let problem = "a subnet is moving from one network to another, or about to, and which of them has it is not certain yet";
            Box::new(Fault::Overloaded { problem: problem.to_owned(), retry_after_ms: 500 })
        })
    }

    fn route(&self, text: &str) -> Result<Arc<Route>, Box<Fault>> {
        self.shared.routes.find(text).ok_or_else(|| Refusal::not_found(Missing::Network, text).into())
    }

    async fn locate(&self, network: &str) -> Outcomes {
        let route = self.route(network)?;
        // A deleted network has no name any more, but its configuration has.
        let Outcome::Network(view) = self.ask_item(&route, self.item(Command::Show, false)).await? else {
            return Err(lost());
        };
        let shard = route.lane.shard;
        let located =
            Located { network: view.config.name.clone(), id: route.id, shard, epoch: self.shared.epoch(shard) };
        Ok(Done::Located(located))
    }

    /// The item that asks a network. Until the job has begun, it carries the job's deadline.
    fn item(&self, command: Command, dry_run: bool) -> Item {
        let (by, reason) = (self.by.clone(), self.reason.clone());
        Item { ticket: 0, command, by, reason, deadline: self.deadline(), dry_run, wait: None }
    }

    /// The deadline. None: the job has none, or has begun.
    fn deadline(&self) -> Option<Instant> {
        self.begins.deadline.filter(|_| !self.begins.begun.load(Ordering::Relaxed))
    }

    /// May the job still begin, or has it begun?
    fn in_time(&self) -> Result<(), Box<Fault>> {
        match self.deadline() {
            Some(deadline) if deadline < Instant::now() => Err(Box::new(Fault::too_late())),
            Some(_) | None => Ok(()),
        }
    }

    /// Begins the job, if it may still begin: nothing was done before.
    fn begin(&self) -> Result<(), Box<Fault>> {
        self.in_time()?;
        self.begins.begun.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Asks one network one thing and waits until the answer may leave.
    async fn ask(&self, route: &Arc<Route>, command: Command) -> Answer {
        let dry_run = self.dry_run;
        self.ask_item(route, self.item(command, dry_run)).await
    }

    async fn ask_item(&self, route: &Arc<Route>, item: Item) -> Answer {
        self.ask_and_wait_telling((route, false), item, || {}).await
    }

    /// Asks the network that was found by a client's text: refused if it was renamed by now.
    async fn ask_named(&self, route: &Arc<Route>, text: &str, item: Item) -> Answer {
        self.ask_and_wait_telling((route, route.is_called(text)), item, || {}).await
    }

    /// Asks one network, by its name or not, for something that may wait for capacity, and waits until the answer may leave.
    /// The client is told that it waits.
    async fn ask_and_wait(&self, (route, by_name): (&Arc<Route>, bool), item: Item, tell: &Tell) -> Answer {
        self.ask_and_wait_telling((route, by_name), item, || tell.waits(vec![route.id])).await
    }

    async fn ask_and_wait_telling(
        &self,
        (route, by_name): (&Arc<Route>, bool),
        item: Item,
        waits: impl Fn(),
    ) -> Answer {
        let (outlet, mut answers) = crate::actors::outlet();
        let begins = self.begins.reads || !(item.dry_run || item.command.is_read());
        send(&self.shared, route, by_name, vec![item], &outlet, Instant::now());
        drop(outlet);
        let answer = loop {
            break match answers.recv().await {
                Some(Told::Waits(_)) => {
                    waits();
                    continue;
                }
                Some(Told::Replies(mut replies)) => match replies.pop() {
                    Some(reply) => reply.answer,
                    None => Err(lost()),
                },
                Some(Told::Job(..) | Told::Notice(_)) | None => Err(lost()),
            };
        };
        // If the outcome is in doubt, it may have begun.
        if begins && answer.as_ref().map_or_else(|fault| locked::is_in_doubt(fault), |_| true) {
            self.begins.begun.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Asks one network what an act must know, without a place in its queue: what is durable is listed however many requests
    /// wait there. An act has its network locked, so there is only one such question at a time.
    async fn ask_beside(&self, route: &Arc<Route>, command: Command) -> Answer {
        let (outlet, answer) = crate::actors::outlet();
        let (items, permits) = (vec![self.item(command, false)].into(), route.permits.take(0));
        let (route, received) = (Arc::clone(route), Instant::now());
        deliver(&self.shared, Work { route, by_name: false, items, outlet, permits, received: Some(received) });
        super::only_answer(answer).await.unwrap_or_else(|| Err(lost()))
    }

    async fn question(&self, question: CatalogQuestion) -> Result<directory::CatalogAnswer, Box<Fault>> {
        let (told, answer) = oneshot::channel();
        // A message that cannot be sent is dropped, which ends the wait.
        let _ = self.shared.directory().try_send(AskCatalog { question, told });
        answer.await.map_err(|_| no_directory(&self.shared))
    }

    /// Listings by name, whatever their ids.
    async fn listings(&self, question: CatalogQuestion) -> Result<Vec<Arc<Listing>>, Box<Fault>> {
        match self.question(question).await? {
            directory::CatalogAnswer::Networks(mut listings) => {
                listings.sort_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
                Ok(listings)
            }
            directory::CatalogAnswer::Page(..)
            | directory::CatalogAnswer::Forgotten
            | directory::CatalogAnswer::Realms(_) => Err(lost()),
        }
    }

    /// A page of all networks; none if their names at that moment are no longer known.
    async fn page(
        &self,
        since: Option<Naming>,
        from: Bound<(Name, NetworkId)>,
        limit: usize,
    ) -> Result<Option<(Naming, Vec<ListRow>)>, Box<Fault>> {
        match self.question(CatalogQuestion::Page { since, from, limit }).await? {
            directory::CatalogAnswer::Page(naming, networks) => Ok(Some((naming, networks))),
            directory::CatalogAnswer::Forgotten => Ok(None),
            directory::CatalogAnswer::Networks(_) | directory::CatalogAnswer::Realms(_) => Err(lost()),
        }
    }

    async fn realms(&self) -> Outcomes {
        match self.question(CatalogQuestion::Realms).await? {
            directory::CatalogAnswer::Realms(realms) => Ok(Done::Realms(realms)),
            directory::CatalogAnswer::Networks(_)
            | directory::CatalogAnswer::Page(..)
            | directory::CatalogAnswer::Forgotten => Err(lost()),
        }
    }
}

/// The fault when the tenure has ended: the register is another node's, or the process ends and is restarted. Nothing was
/// begun.
fn no_directory(shared: &Shared) -> Box<Fault> {
    let standing = shared.info.ownership_is_standing;
    let reason = if standing { NotReadyReason::Restarting } else { NotReadyReason::Moved };
    Box::new(Fault::NotReady { reason, retry_after_ms: 500 })
}

fn lost() -> Box<Fault> {
    let problem = "the network's actor died before it answered".to_owned();
    Box::new(Fault::Unavailable { applied: Applied::Unknown, problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::events::Cursor;

    #[test]
    fn of_a_read_it_is_known_that_it_changed_nothing() {
        for (reads, known) in [(true, Applied::No), (false, Applied::Unknown)] {
            let (outlet, mut told) = crate::actors::outlet();
            Tell { outlet, ticket: 7, told: false, reads }.tell(Err(lost()));
            match told.try_recv() {
                Ok(Told::Job(7, Err(fault))) => {
                    assert!(matches!(*fault, Fault::Unavailable { applied, .. } if applied == known), "{fault:?}");
                }
                told => panic!("{told:?}"),
            }
        }
    }

    #[test]
    fn an_owner_of_yesterday_refuses_nothing_and_calls_no_cursor_lost() {
        let lost = || Fault::CursorLost {
            problem: "is of a line that was cut off".to_owned(),
            last_common: Cursor::default(),
        };
        let refused = || Fault::Refused(Refusal::not_found(Missing::Network, "lan"));
        for fault in [lost(), refused()] {
            let told = proved::unproved(Err(Box::new(fault)), true, None);
            assert!(matches!(told.as_ref().map_err(|fault| &**fault), Err(Fault::NotReady { .. })), "{told:?}");
        }
    }

    #[test]
    fn what_cannot_be_proved_for_what_is_known_is_not_said_to_be_anothers() {
        for (reads, known) in [(true, Applied::No), (false, Applied::Unknown)] {
            let told = proved::unproved(Ok(Done::Found(Vec::new())), reads, Some("1 replicas wanted, 0 answer"));
            let told = told.err().map(|fault| *fault);
            let Some(Fault::Unavailable { applied, problem }) = &told else { panic!("{told:?}") };
            assert_eq!(*applied, known);
            assert!(problem.starts_with("1 replicas wanted, 0 answer: "), "{problem}");
        }
    }
}
