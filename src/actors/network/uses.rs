//! The network's part in what is unique beyond it, in the realm: MACs (`actors::macs`), and what a dynamic network has
//! written down (`actors::recorded`).

use super::NetworkActor;
use super::staging::refused_by_store;
use crate::actors::Fault;
use crate::actors::macs::{ClaimedMacs, Leaving, MacAsker};
use crate::actors::reserve::Claimed;
use crate::core::address::Address;
use crate::core::command::{self, Command, MacWish, Patch};
use crate::core::outcome::Decision;
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, Key, NetworkKind, State, Step};
use crate::core::types::Mac;
use crate::limits::PARTED_CHANGE_BYTES;
use crate::store::{StoreHealth, TransactionId, size, step_lets_go};

/// So often is decided again when another network turns out to use a MAC: one that is made up is drawn anew each time.
const ATTEMPTS: usize = 16;

/// MACs that steps begin and end to use.
#[derive(Debug, Default)]
pub(super) struct MacChanges {
    pub(super) gained: Vec<(Mac, Address)>,
    pub(super) lost: Vec<(Mac, Address)>,
}

/// What is claimed for a decision before it is carried out.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub(super) macs: ClaimedMacs,
    /// Of what a full store keeps for what lets go.
    pub(super) room: Claimed,
}

impl NetworkActor {
    fn mac_asker(&self, transaction: Option<TransactionId>) -> MacAsker<'_> {
        MacAsker { realm: &self.network.config().realm, network: self.id(), transaction }
    }

    /// Decides, and claims the MACs that this records and the room that it takes, where the store takes it; a dry run claims none.
    pub(super) fn decide_and_claim(
        &mut self,
        command: &Command,
        moment: command::Context,
        transaction: Option<TransactionId>,
        dry_run: bool,
    ) -> Result<Result<(Decision, Claims), Box<Fault>>, ()> {
        let acquire = if let Command::Acquire(ask) = command { Some(&**ask) } else { None };
        // What is far too much is counted, and nothing is made of it.
        if let Some(ask) = acquire
            && let Err(refusal) = self.little_enough(self.network.lets_go_bytes_least(ask))
        {
            return Ok(Err(refusal.into()));
        }
        let mut moment = command::Context { mac_elsewhere: self.mac_elsewhere(command, transaction), ..moment };
        for _ in 0..ATTEMPTS {
            let decision = match self.decide_wary(command, moment)? {
                Ok(decision) => decision,
                Err(fault) => return Ok(Err(self.naming_where(fault, moment.mac_elsewhere))),
            };
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
            match self.shared.macs.claim(self.mac_asker(transaction), &gained) {
                Ok(claimed) if dry_run => {
                    self.unclaim(claimed);
                    return Ok(Ok((decision, Claims::default())));
                }
                Ok(macs) => return Ok(Ok((decision, Claims { macs, room }))),
                Err(taken) => {
                    moment = command::Context { mac_elsewhere: Some(taken), entropy: self.draws.draw(), ..moment };
                }
            }
        }
        let problem = "no free MAC was found under the network's prefix; set another `l2.mac_prefix`".to_owned();
        Ok(Err(Refusal::Taken { problem, network: None, address: None, held_by: None, used_in: None }.into()))
    }

    /// Refuses an acquire that lets go of more than nobody else need wait for.
    fn little_enough(&self, bytes: usize) -> Result<(), Refusal> {
        let bytes_max = self.shared.info.parted_bytes_max();
        if bytes > bytes_max { Err(Refusal::too_much_at_once(bytes, bytes_max)) } else { Ok(()) }
    }

    /// Where nothing new is taken, what lets go is; but it may grant, as when it keeps a promise. The store would refuse that, and
    /// with it all that is under way beside it. And it may find no room any more: what does is claimed.
    fn taken_by_store(&self, steps: &[Step], dry_run: bool) -> Result<Claimed, Box<Fault>> {
        if steps.iter().all(step_lets_go) {
            let store = &*self.shared.store;
            return if dry_run { Ok(Claimed::default()) } else { self.shared.reserve.claim(steps, store) };
        }
        match self.shared.store.health() {
            StoreHealth::Ready => Ok(Claimed::default()),
            health => Err(Box::new(refused_by_store(health, &*self.shared.store))),
        }
    }

    /// The first MAC that a command names which another network of the realm uses.
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
            // What is granted again carries the MAC that the declined address had.
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

    /// A refusal names the network where its address is; the core knows no other network than its own. Who holds it there is
    /// asked by `actors::mac_holder`.
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
            *network = user.and_then(|id| self.shared.routes.by_id(id)?.name.clone());
            *used_in = user.map(|id| (mac, id));
        }
        fault
    }

    /// What steps change of the MACs in use, compared with what the network holds before them.
    pub(super) fn mac_changes(&self, steps: &[Step]) -> MacChanges {
        let mut changes = MacChanges::default();
        for step in steps {
            let Key::Address(address) = step.key else { continue };
            let after = match &step.state {
                Some(State::Entry(entry)) => mac_of(entry),
                Some(State::Config(_) | State::Subnet(_) | State::Deployment(_)) | None => None,
            };
            // What is put where nothing was, as most grants are, need not be looked up.
            let before = step.expect.and_then(|_| self.network.mac_at(address));
            if before != after {
                changes.lost.extend(before.map(|mac| (mac, address)));
                changes.gained.extend(after.map(|mac| (mac, address)));
            }
        }
        // One that goes from one address of the network to another stays in use.
        let MacChanges { gained, lost } = &mut changes;
        lost.retain(|(mac, _)| !gained.iter().any(|(kept, _)| kept == mac));
        changes
    }

    pub(super) fn unclaim(&self, claimed: ClaimedMacs) {
        self.shared.macs.unclaim(&self.network.config().realm, claimed);
    }

    /// What a joint decision lets go may be claimed by the others that take part in it; by nobody if it came to nothing.
    pub(super) fn offer(&self, steps: &[Step], transaction: Option<TransactionId>) {
        let MacChanges { lost, .. } = self.mac_changes(steps);
        if !lost.is_empty() {
            self.shared.macs.offer(self.mac_asker(transaction), &lost);
        }
    }

    /// What was lost is free when this unit of the network is durable.
    pub(super) fn macs_leave(&self, lost: &[(Mac, Address)], unit: u64) {
        if !lost.is_empty() {
            self.shared.macs.leave(self.mac_asker(None), lost, &self.leaving(unit));
        }
    }

    fn leaving(&self, unit: u64) -> Leaving {
        Leaving { lane: std::sync::Arc::clone(&self.lane), incarnation: self.incarnation, unit }
    }

    /// After loading again.
    pub(super) fn macs_reloaded(&self) {
        let realm = &self.network.config().realm;
        self.shared.macs.replace(realm, self.id(), self.network.macs());
        self.shared.recorded.replace(realm, self.id(), self.network.recorded());
    }

    /// It is no more: what it used is free.
    pub(super) fn uses_nothing(&self) {
        let realm = &self.network.config().realm;
        self.shared.macs.replace(realm, self.id(), std::iter::empty());
        self.shared.recorded.replace(realm, self.id(), std::iter::empty());
    }

    /// Tells what steps of this unit write down of what the infrastructure picked, and what they let go.
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

/// Fewer steps on addresses than these are never too long to become durable at once.
const STEPS_COUNTED: usize = 500;

/// Bytes that an acquire counts for, where it is much: what it lets go, where it is `exact`, has no bound.
fn bytes_of(steps: &[Step]) -> usize {
    if steps.len() < STEPS_COUNTED {
        return 0;
    }
    steps.iter().map(size::step).sum::<usize>().max(steps.len() * PARTED_CHANGE_BYTES)
}
