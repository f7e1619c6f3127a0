//! `allod owner|scope|realm|claimant …`: commands about holders of addresses and their users.

use clap::{ArgGroup, Args, Subcommand};
use serde::Serialize;

use super::args::{Ask, Change, page_limit, seconds};

/// Owners: instances that keep addresses.
#[derive(Debug, Subcommand)]
pub enum OwnerCommand {
    /// Release everything that an owner holds; asks first
    Release(OwnerRelease),
}

/// `owner.release`.
#[derive(Debug, Args, Serialize)]
pub struct OwnerRelease {
    /// The owner
    owner: String,
    /// Scope of the owner [default: default]
    #[arg(long)]
    scope: Option<String>,
    /// Only in this network
    #[arg(long)]
    network: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// Scopes: deployments, tenants, namespaces.
#[derive(Debug, Subcommand)]
pub enum ScopeCommand {
    /// Release everything that a deployment or tenant holds; asks first
    Release(ScopeRelease),
    /// List the scopes and how much they hold
    List(ScopeList),
}

/// `scope.release`.
#[derive(Debug, Args, Serialize)]
pub struct ScopeRelease {
    /// The scope
    scope: String,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// `scope.list`.
#[derive(Debug, Args, Serialize)]
pub struct ScopeList {
    /// Only in this network
    network: Option<String>,
    /// At most this many (1 to 10000); all of them by default
    #[arg(long, value_name = "COUNT", value_parser = page_limit())]
    limit: Option<u64>,
    /// Continue after this (`next` of an earlier answer)
    #[arg(long, value_name = "NEXT")]
    after: Option<String>,
}

/// Realms: inside one, no address belongs to two networks.
#[derive(Debug, Subcommand)]
pub enum RealmCommand {
    /// List the realms
    List,
}

/// Claimants: machines and interfaces that use addresses now.
#[derive(Debug, Subcommand)]
pub enum ClaimantCommand {
    /// Note who is alive, for a later sweep
    Mark(Mark),
    /// Unbind, or release, what dead claimants used
    ///
    /// A sweep unbinds no more than 1000, releases no more than 1000, and lists
    /// no more than 1000 of those that it missed: where there are more,
    /// sweep again.
    #[command(override_usage = "allod claimant sweep [OPTIONS] <SCOPE>\n\
                                \x20                           <--sweep <NAME>|--alive <CLAIMANT>|--none-alive>")]
    Sweep(Sweep),
}

/// `claimant.mark`.
#[derive(Debug, Args, Serialize)]
pub struct Mark {
    /// Scope of the reservations
    scope: String,
    /// Name of the sweep, of your choice; a new one for each, as marks under one name add up for an hour
    #[arg(long, value_name = "NAME")]
    sweep: String,
    /// Who is alive
    #[arg(required = true, value_name = "CLAIMANT")]
    claimants: Vec<String>,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// `claimant.sweep`.
#[derive(Debug, Args, Serialize)]
#[command(group(ArgGroup::new("who").args(["sweep", "alive", "none_alive"]).multiple(true).required(true)))]
pub struct Sweep {
    /// Scope of the reservations
    scope: String,
    /// Sweep for which claimants were marked; who came after the marks is missing from them
    #[arg(long, value_name = "NAME")]
    sweep: Option<String>,
    /// Who is alive; may be repeated
    #[arg(long, value_name = "CLAIMANT", conflicts_with = "sweep")]
    alive: Vec<String>,
    /// Nobody is alive
    #[arg(long, conflicts_with_all = ["sweep", "alive"])]
    #[serde(skip)]
    none_alive: bool,
    /// Only in this network
    #[arg(long)]
    network: Option<String>,
    /// Shortest time between the two sweeps that miss a claimant [default: 60s]
    #[arg(long = "grace", value_name = "DURATION", value_parser = seconds, allow_hyphen_values = true)]
    #[serde(rename = "grace_seconds")]
    grace: Option<u64>,
    /// Do nothing if a larger share would be released [default: 0.2]
    #[arg(long, value_name = "RATIO", value_parser = share, allow_hyphen_values = true)]
    max_share: Option<f64>,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// Parses a share. NaN and infinity are refused: JSON cannot express them, and they would be left out.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share is written as 0.2, from 0 to 1".to_owned())
}

impl OwnerCommand {
    /// The call for the command.
    pub fn ask(self) -> Ask {
        match self {
            Self::Release(args) => Ask::new("owner.release", &args).destructive(true),
        }
    }
}

impl ScopeCommand {
    /// The call for the command.
    pub fn ask(self) -> Ask {
        match self {
            Self::Release(args) => Ask::new("scope.release", &args).destructive(true),
            Self::List(args) => Ask::new("scope.list", &args),
        }
    }
}

impl RealmCommand {
    /// The call for the command.
    pub fn ask(self) -> Ask {
        match self {
            Self::List => Ask::new("realm.list", &()),
        }
    }
}

impl ClaimantCommand {
    /// The call for the command.
    pub fn ask(self) -> Ask {
        match self {
            Self::Mark(args) => Ask::new("claimant.mark", &args),
            Self::Sweep(args) => {
                // The user is not asked: the two misses and `max_share` are the brake, and sweeps run unattended.
                let ask = Ask::new("claimant.sweep", &args);
                if args.none_alive { ask.with("alive", serde_json::json!([])) } else { ask }
            }
        }
    }
}
