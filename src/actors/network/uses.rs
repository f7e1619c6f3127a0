//! The network's part in what is unique in its whole realm: MACs (`actors::macs`), and the addresses that a dynamic network
//! has recorded (`actors::recorded`).

use super::NetworkActor;
use crate::actors::Fault;
use crate::actors::macs::{ClaimedMacs, Leaving, MacAsker};
use crate::actors::reserve::{Claimed, refused_by_store};
use crate::core::address::Address;
use crate::core::command::{self, Command, Configure, MacWish, Patch};
use crate::core::outcome::Decision;
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, Key, NetworkKind, State, Step};
use crate::core::types::Mac;
use crate::limits::PARTED_CHANGE_BYTES;
use crate::store::{StoreHealth, TransactionId, size, step_lets_go};

/// How often a decision is repeated when another network turns out to use a MAC: a generated MAC is drawn anew each time. An
/// acquire keeps those that no other network uses.
const ATTEMPTS: usize = 16;

/// MACs that steps begin or cease to use.
#[derive(Debug, Default)]
pub(super) struct MacChanges {
    pub(super) gained: Vec<(Mac, Address)>,
    pub(super) lost: Vec<(Mac, Address)>,
}

/// What is claimed for a decision before it is carried out.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub(super) macs: ClaimedMacs,
    /// Its share of what a full store reserves for releases.
    pub(super) room: Claimed,
}

impl NetworkActor {
    fn mac_asker(&self, transaction: Option<TransactionId>) -> MacAsker<'_> {
        MacAsker { realm: &self.network.config().realm, network: self.id(), transaction }
    }

    /// Decides, and claims the MACs that the decision records and the room that it takes, if the store takes it; a dry run
    /// claims none.
    pub(super) fn decide_and_claim(
        &mut self,
        command: &Command,
        moment: command::Context,
        transaction: Option<TransactionId>,
        dry_run: bool,
    ) -> Result<Result<(Decision, Claims), Box<Fault>>, ()> {
        let acquire = if let Command::Acquire(ask) = command { Some(&**ask) } else { None };
        // An acquire that is far too large is only counted; no steps are made of it.
        if let Some(ask) = acquire
            && let Err(refusal) = self.little_enough(self.network.lets_go_bytes_least(ask))
        {
            return Ok(Err(refusal.into()));
        }
        let mut moment = command::Context { mac_elsewhere: self.mac_elsewhere(command, transaction), ..moment };
        let mut again: Option<Command> = None;
        for _ in 0..ATTEMPTS {
            let command = again.as_ref().unwrap_or(command);
            let decided = self.decide_wary(command, moment)?;
            if let Some(fault) = self.not_taken_by_store(command, &decided) {
                return Ok(Err(fault));
            }
            let decision = match decided {
                Ok(decision) => decision,
                Err(fault) => return Ok(Err(self.naming_where(fault, moment.mac_elsewhere))),
            };
            // Nothing else of a configuration writes several subnets at once, and one by itself fits.
            if let Command::Configure { change, .. } = command
                && let Configure::Update(_) = &**change
                && let Err(refusal) = self.shared.fits_one_commit("set.subnets", &decision.steps)
            {
                return Ok(Err(refusal.into()));
            }
            if acquire.is_some()
                && let Err(refusal) = self.little_enough(bytes_of(&decision.steps))
            {
                return Ok(Err(refusal.into()));
            }
            let room = match command.lets_go().then(|| self.taken_by_store(&decision.steps, dry_run)).transpose() {
                Ok(room) => room.unwrap_or_default(),
                Err(fault) => return Ok(Err(fault)),
            };
            let MacChanges { gained, .. } = self.mac_changes(&decision.steps);
            if gained.is_empty() {
                return Ok(Ok((decision, Claims { room, ..Claims::default() })));
            }
            let (macs, asker) = (&self.shared.macs, self.mac_asker(transaction));
            let claimed = match dry_run {
                true => macs.would_claim(asker, &gained).map(|()| ClaimedMacs::default()),
                false => macs.claim(asker, &gained),
            };
            match claimed {
                Ok(macs) => return Ok(Ok((decision, Claims { macs, room }))),
                Err(taken) => {
                    moment = command::Context { mac_elsewhere: Some(taken), ..moment };
                    match self.without_those_elsewhere(command, &gained, transaction) {
                        Some(next) => again = Some(next),
                        None => moment.entropy = self.draws.draw(),
                    }
                }
            }
        }
        let problem = "no free MAC was found under the network's prefix; set another `l2.mac_prefix`".to_owned();
        Ok(Err(Refusal::Taken { problem, network: None, address: None, held_by: None, used_in: None }.into()))
    }

    /// The same acquire, which makes none of these MACs that another network uses. With other draws for all of it, many
    /// addresses would hardly ever be free of collisions, even if nearly all of the prefix is unused.
    fn without_those_elsewhere(
        &self,
        command: &Command,
        made: &[(Mac, Address)],
        transaction: Option<TransactionId>,
    ) -> Option<Command> {
        let Command::Acquire(ask) = command else { return None };
        let mut ask = ask.clone();
        let elsewhere = made.iter().map(|(mac, _)| *mac).filter(|mac| self.elsewhere(*mac, transaction).is_some());
        ask.options.macs_elsewhere.extend(elsewhere);
        Some(Command::Acquire(ask))
    }

    /// Refuses an acquire that releases so much that others would have to wait for it.
    fn little_enough(&self, bytes: usize) -> Result<(), Refusal> {
        let bytes_max = self.shared.info.parted_bytes_max();
        if bytes > bytes_max { Err(Refusal::too_much_at_once(bytes, bytes_max)) } else { Ok(()) }
    }

    /// While the store takes nothing new, of a command that lets go of nothing only a repeat is answered: what it asks for is
    /// there, so it changes nothing. All else is refused for that reason, whatever the decision was.
    fn not_taken_by_store(&self, command: &Command, decided: &Result<Decision, Box<Fault>>) -> Option<Box<Fault>> {
        let health = self.shared.store.health();
        if health == StoreHealth::Ready || command.lets_go() || decided.as_ref().is_ok_and(|done| done.steps.is_empty())
        {
            return None;
        }
        Some(Box::new(refused_by_store(health, &*self.shared.store)))
    }

    /// Checks that the store takes these steps. If it takes nothing new, it still takes releases; but a request that releases
    /// may also grant, for example to keep a promise. The store would refuse that, together with everything else under way.
    /// The store may also be out of room: the room that the steps take is claimed.
    fn taken_by_store(&self, steps: &[Step], dry_run: bool) -> Result<Claimed, Box<Fault>> {
        if dry_run && steps.iter().all(step_lets_go) {
            return Ok(Claimed::default());
        }
        self.shared.reserve.claim_if_taken(steps, &*self.shared.store)
    }

    /// Finds the first MAC named by a command that another network of the realm uses.
    fn mac_elsewhere(&self, command: &Command, transaction: Option<TransactionId>) -> Option<(Mac, Address)> {
        let named = |wish: Option<MacWish>| match wish {
            Some(MacWish::Given(mac)) => Some(mac),
            Some(MacWish::Auto) | None => None,
        };
        let mac = match command {
            Command::Allocate(ask) => named(ask.options.mac),
            Command::Claim(ask) => named(ask.options.mac),
            Command::Acquire(ask) => named(ask.options.mac),
            Command::Update(_, set) => match set.mac {
                Patch::Set(wish) => named(Some(wish)),
                Patch::Keep | Patch::Clear => None,
            },
            Command::MoveIn(moved) => {
                let macs = moved.entries.iter().filter_map(|(_, entry)| mac_of(entry));
                return macs.filter_map(|mac| Some((mac, self.elsewhere(mac, transaction)?))).next();
            }
            Command::Heal(ask) => {
                let macs = ask.claims.iter().filter_map(|(_, entry)| mac_of(entry));
                return macs.filter_map(|mac| Some((mac, self.elsewhere(mac, transaction)?))).next();
            }
            // A deployment's grants have no MAC.
            Command::Deploy(_)
            | Command::Settle(_)
            | Command::Release(_)
            | Command::Renew(..)
            | Command::Bind(..)
            | Command::Unbind(..)
            | Command::Transfer(_)
            // A repeated grant carries the MAC that the declined address had.
            | Command::Decline(_)
            | Command::Get(_)
            | Command::List(_)
            | Command::ReleaseOwner { .. }
            | Command::ReleaseScope { .. }
            | Command::SweepLook(_)
            | Command::Sweep(_)
            | Command::Purge { .. }
            | Command::Show
            | Command::Usage
            | Command::Map { .. }
            | Command::Scopes { .. }
            | Command::ZoneTies(_)
            | Command::Hindered(_)
            | Command::Configure { .. }
            | Command::MoveOut { .. }
            | Command::Conflicts
            | Command::Accept(_)
            | Command::Expire => None,
        };
        mac.and_then(|mac| Some((mac, self.elsewhere(mac, transaction)?)))
    }

    fn elsewhere(&self, mac: Mac, transaction: Option<TransactionId>) -> Option<Address> {
        self.shared.macs.elsewhere(self.mac_asker(transaction), mac)
    }

    /// Completes a refusal with the network in which its address is; the core knows no network but its own.
    /// `actors::mac_holder` asks who holds the address there.
    fn naming_where(&self, mut fault: Box<Fault>, elsewhere: Option<(Mac, Address)>) -> Box<Fault> {
        let Some((mac, there)) = elsewhere else { return fault };
        let Fault::Refused(refusal) = &mut *fault else { return fault };
        let inner = match refusal {
            Refusal::OfItem { refusal, .. } | Refusal::OfInstance { refusal, .. } => &mut **refusal,
            refusal => refusal,
        };
        if let Refusal::Taken { network, address: Some(address), held_by: None, used_in, .. } = inner
            && *address == there
        {
            let user = self.shared.macs.user(&self.network.config().realm, mac);
            *network = user.and_then(|(id, _)| self.shared.routes.by_id(id)?.name.clone());
            *used_in = user.map(|(id, _)| (mac, id));
        }
        fault
    }

    /// How steps change the MACs in use, compared with what the network holds before them.
    pub(super) fn mac_changes(&self, steps: &[Step]) -> MacChanges {
        let mut changes = MacChanges::default();
        for step in steps {
            let Key::Address(address) = step.key else { continue };
            let after = match &step.state {
                Some(State::Entry(entry)) => mac_of(entry),
                Some(State::Config(_) | State::Subnet(_) | State::Deployment(_)) | None => None,
            };
            // If nothing was there before, as with most grants, no look-up is needed.
            let before = step.expect.and_then(|_| self.network.mac_at(address));
            if before != after {
                changes.lost.extend(before.map(|mac| (mac, address)));
                changes.gained.extend(after.map(|mac| (mac, address)));
            }
        }
        // A MAC that goes from one address of the network to another stays in use.
        let MacChanges { gained, lost } = &mut changes;
        lost.retain(|(mac, _)| !gained.iter().any(|(kept, _)| kept == mac));
        changes
    }

    pub(super) fn unclaim(&self, claimed: ClaimedMacs) {
        self.shared.macs.unclaim(&self.network.config().realm, claimed);
    }

    /// Offers the MACs that a joint decision releases to its other networks; nobody may claim them if it came to nothing.
    pub(super) fn offer(&self, steps: &[Step], transaction: Option<TransactionId>) {
        let MacChanges { lost, .. } = self.mac_changes(steps);
        if !lost.is_empty() {
            self.shared.macs.offer(self.mac_asker(transaction), &lost);
        }
    }

    /// Frees the lost MACs once this unit of the network is durable.
    pub(super) fn macs_leave(&self, lost: &[(Mac, Address)], unit: u64) {
        if !lost.is_empty() {
            self.shared.macs.leave(self.mac_asker(None), lost, &self.leaving(unit));
        }
    }

    fn leaving(&self, unit: u64) -> Leaving {
        Leaving { lane: std::sync::Arc::clone(&self.lane), incarnation: self.incarnation, unit }
    }

    /// Reports the MACs in use after loading again.
    pub(super) fn macs_reloaded(&self) {
        let realm = &self.network.config().realm;
        self.shared.macs.replace(realm, self.id(), self.network.macs());
        self.shared.recorded.replace(realm, self.id(), self.network.recorded());
    }

    /// Frees everything that a network used that is gone.
    pub(super) fn uses_nothing(&self) {
        let realm = &self.network.config().realm;
        self.shared.macs.replace(realm, self.id(), std::iter::empty());
        self.shared.recorded.replace(realm, self.id(), std::iter::empty());
    }

    /// Reports which addresses picked by the infrastructure the steps of this unit record, and which they release.
    pub(super) fn note_recorded(&self, steps: &[Step], unit: u64) {
        let config = self.network.config();
        if config.kind != NetworkKind::Dynamic {
            return;
        }
        let mut gone = std::collections::BTreeSet::new();
        for step in steps {
            let Key::Address(address) = step.key else { continue };
            if matches!(step.state, Some(State::Entry(Entry::Held(_)))) {
                self.shared.recorded.add(&config.realm, self.id(), [address].into_iter());
                gone.remove(&address);
            } else {
                gone.insert(address);
            }
        }
        if !gone.is_empty() {
            self.shared.recorded.leave(&config.realm, self.id(), gone.into_iter(), &self.leaving(unit));
        }
    }
}

fn mac_of(entry: &Entry) -> Option<Mac> {
    match entry {
        Entry::Held(reservation) => reservation.details.as_ref()?.mac,
        Entry::Released(_) | Entry::Declined(_) => None,
    }
}

/// Fewer address steps than this are never too long to become durable at once.
const STEPS_COUNTED: usize = 500;

/// Bytes that a large acquire counts as: what it releases has no bound if it is `exact`.
fn bytes_of(steps: &[Step]) -> usize {
    if steps.len() < STEPS_COUNTED {
        return 0;
    }
    steps.iter().map(size::step).sum::<usize>().max(steps.len() * PARTED_CHANGE_BYTES)
}
