//! The records of deployments in the self-check: which plan is the latest, and how it ended.
//!
//! What is held stands in the reservations, which are compared with their networks, so nothing is given away by a record that differs,
//! and no network is stopped for it. But memory cannot go on from it: over Redis the next change of it would be refused, and over files
//! it would be written, expect what is not there, and no start would load that. So where both differ while nobody acts on the
//! deployment, the log tells what each side has, and it goes by the store from then on, as the next start would.
//!
//! Neighbours: `shard` reads the store; `coordinator::deploy` has the record locked while it is compared.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::actors::coordinator::{ComparedRecord, compare_record};
use crate::actors::deployments::id_of;
use crate::actors::service::Shared;
use crate::core::deployment::{Deployment, Stage};
use crate::core::plural::counted;
use crate::core::types::{NetworkId, Scope};
use crate::store::{ShardId, StoreError};

/// How long a deployment may take to be compared: who acts on it is waited for, and its shard is read once more.
const COMPARED_WITHIN: Duration = Duration::from_secs(60);

/// A record that was another one in memory than in the store, at about one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OddDeployment {
    name: Scope,
    memory: Option<Arc<Deployment>>,
    stored: Option<Arc<Deployment>>,
}

/// Which records of a shard are not what was read of it. What was decided since it was read is among them.
///
/// # Errors
/// [`StoreError::Damaged`]: one is stored where it is not looked for, which no start loads.
pub(super) fn odd(
    shared: &Shared,
    shard: ShardId,
    stored: Vec<(NetworkId, Arc<Deployment>)>,
) -> Result<Vec<OddDeployment>, StoreError> {
    if let Some((_, astray)) = stored.iter().find(|(id, record)| id_of(&record.name) != *id) {
        let text = format!("the record of deployment `{}` is stored under the id of another", astray.name);
        return Err(StoreError::Damaged(text.into()));
    }
    let mut stored: HashMap<NetworkId, Arc<Deployment>> = stored.into_iter().collect();
    let mut odd = Vec::new();
    for (name, known) in shared.deployments.of_shard(shard) {
        let stored = stored.remove(&known.lane.id);
        // What is in doubt is loaded again anyhow.
        if known.stands() && known.record != stored {
            odd.push(OddDeployment { name, memory: known.record, stored });
        }
    }
    let unknown = stored.into_values();
    odd.extend(unknown.map(|stored| OddDeployment { name: stored.name.clone(), memory: None, stored: Some(stored) }));
    Ok(odd)
}

impl OddDeployment {
    /// Compares it once more while nobody acts on it, and has it go by the store where it differs. Does it?
    pub(super) async fn differs(&self, shared: &Arc<Shared>) -> bool {
        let compared = tokio::time::timeout(COMPARED_WITHIN, compare_record(shared, &self.name)).await;
        let ComparedRecord { memory, stored } = match compared {
            Ok(Ok(Some(differing))) => differing,
            Ok(Ok(None)) => return false,
            Ok(Err(fault)) => {
                tracing::debug!(deployment = %self.name, problem = fault.problem(), "self-check: left for the next time");
                return false;
            }
            Err(_) => {
                tracing::debug!(deployment = %self.name, "self-check: left for the next time, as it is not let go of");
                return false;
            }
        };
        let [memory, stored] = [memory, stored].map(|record| in_words(record.as_deref()));
        tracing::error!(deployment = %self.name, memory, stored, "self-check: memory and store differ");
        tracing::error!(
            deployment = %self.name,
            "goes by the store from now on, as the next start would; no network is stopped for it, and what it holds it holds. See \
             `allod deployment get` for both: if what memory had was right, apply the wishes of its last plan again"
        );
        true
    }
}

/// A record, for whoever has to decide between two.
fn in_words(record: Option<&Deployment>) -> String {
    let Some(record) = record else { return "no such deployment".to_owned() };
    let stage = match record.stage {
        Stage::Open => "open",
        Stage::Committed => "committed",
        Stage::Reverted => "reverted",
    };
    let waits = record.uncommitted_since.map_or_else(String::new, |since| format!(", uncommitted since {}", since.0));
    let settled = match record.settled.len() {
        0 => String::new(),
        some => format!(", {} of it ended by themselves", counted(some, "instance")),
    };
    format!("plan {}, {stage}{waits}{settled}, version {}", record.plan, record.version.0)
}
