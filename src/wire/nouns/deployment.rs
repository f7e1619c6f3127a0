//! What the methods of deployments answer.

use super::network::Reserved;
use super::reservation::Reservation;
use crate::core::address::Address;
use crate::core::types::{Name, Owner, Scope, Slot};
use crate::wire::nouns::HeldAt;
use crate::wire::object::{object, words};
use crate::wire::values::{Cursor, Time};

words! {
    /// What became of a wish.
    WishState {
        /// What was held is what is wished.
        Kept = "kept",
        /// Granted by this plan.
        New = "new",
        /// Kept for the instance until the commit of who holds it.
        Promised = "promised",
        /// The infrastructure picks the address.
        None = "none",
    }
}

object! { open
    /// What became of a wish.
    PlannedNetwork {
        /// The network.
        network: Name,
        /// The slot.
        slot: Slot,
        /// What became of it.
        state: WishState,
        /// What is held, or will be: a promise has the generation 0 until it is kept.
        reservation?: Box<Reservation>,
        /// The address that the instance held in this slot and lets go.
        replaces?: Address,
        /// The reserved range in which what is kept lies, if that is not for this instance: `fresh` moves it off.
        reserved?: Reserved,
    }
}

object! { open
    /// An instance and what became of its wishes.
    PlannedInstance {
        /// Its id.
        id: Owner,
        /// In the order wished.
        networks: Vec<PlannedNetwork>,
    }
}

object! { open
    /// Answer of `deployment.plan` and `deployment.apply`.
    DeploymentPlanResult {
        /// Of an apply: its number, for commit and revert.
        plan?: u64,
        /// In the order listed, then in the order of the groups.
        instances: Vec<PlannedInstance>,
        /// What the deployment lets go with its commit.
        obsolete: Vec<Reservation>,
    }
}

object! { open
    /// Answer of `deployment.commit` and `deployment.revert`.
    DeploymentSettled {
        /// What was let go.
        released: Vec<HeldAt>,
    }
}

object! { open
    /// An instance and what it holds.
    DeployedInstance {
        /// Its id.
        id: Owner,
        /// What it holds.
        reservations: Vec<Reservation>,
        /// What it lets go with the commit.
        obsolete: Vec<Reservation>,
    }
}

object! { open
    /// Answer of `deployment.get`.
    DeploymentResult {
        /// Its name.
        deployment: Scope,
        /// Its latest plan.
        plan: u64,
        /// Since when something is granted, promised or obsolete that was not committed.
        uncommitted_since?: Time,
        /// Why a commit would be refused as things are: what was promised cannot come.
        hindrance?: String,
        /// By id.
        instances: Vec<DeployedInstance>,
    }
}

object! { open
    /// One deployment of a list.
    DeploymentEntry {
        /// Its name.
        deployment: Scope,
        /// Its latest plan.
        plan: u64,
        /// Since when something is granted, promised or obsolete that was not committed.
        uncommitted_since?: Time,
    }
}

object! { open
    /// Answer of `deployment.list`.
    DeploymentListResult {
        /// The page, by name.
        deployments: Vec<DeploymentEntry>,
        /// `after` of the next page; left out on the last.
        next?: Cursor,
    }
}
