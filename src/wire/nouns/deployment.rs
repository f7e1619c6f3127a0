//! The answers of the deployment methods.

use super::network::Reserved;
use super::reservation::Reservation;
use crate::core::address::Address;
use crate::core::types::{Name, Owner, Scope, Slot};
use crate::wire::nouns::HeldAt;
use crate::wire::object::{object, words};
use crate::wire::values::{Cursor, Time};

words! {
    /// What a plan did about a wish.
    WishState {
        /// The present reservation is what is wished.
        Kept = "kept",
        /// Granted by this plan.
        New = "new",
        /// Kept for the instance until its present holder releases it, which a commit does.
        Promised = "promised",
        /// The infrastructure picks the address.
        None = "none",
    }
}

object! { open
    /// A wish, and what a plan did about it.
    PlannedNetwork {
        /// The network.
        network: Name,
        /// The slot.
        slot: Slot,
        /// What the plan did about it.
        state: WishState,
        /// What is held, or will be. A promise has no generation until it is kept.
        reservation?: Box<Reservation>,
        /// The address that the instance held in this slot and is to release.
        replaces?: Address,
        /// The reserved range that a kept address lies in, if the range is not for this instance: `fresh` moves the instance
        /// out of it.
        reserved?: Reserved,
    }
}

object! { open
    /// An instance, and what a plan did about its wishes.
    PlannedInstance {
        /// Its id.
        id: Owner,
        /// In the order of the wishes.
        networks: Vec<PlannedNetwork>,
    }
}

object! { open
    /// Answer of `deployment.plan` and `deployment.apply`.
    DeploymentPlanResult {
        /// For an apply: the number of the plan, for commit and revert.
        plan?: u64,
        /// In the order listed, then in the order of the groups.
        instances: Vec<PlannedInstance>,
        /// What the deployment will release with its commit.
        obsolete: Vec<Reservation>,
    }
}

object! { open
    /// Answer of `deployment.commit` and `deployment.revert`.
    DeploymentSettled {
        /// What was released.
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
        /// What it will release with the commit.
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
        /// Since when it has grants, promises or obsolete reservations that are not committed.
        uncommitted_since?: Time,
        /// Why a commit would be refused at present: what was promised cannot be granted.
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
        /// Since when it has grants, promises or obsolete reservations that are not committed.
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
