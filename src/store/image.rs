//! Builds what a store returns when a shard is loaded, record by record. Records that do not belong together are damage.

use std::sync::Arc;

use super::{NetworkImage, ShardImage};
use crate::core::deployment::Deployment;
use crate::core::network::Entries;
use crate::core::state::{Key, NetworkConfig, State, SubnetConfig};
use crate::core::types::NetworkId;
use crate::store::Head;

/// Everything that is stored under one id: a network, or the record of a deployment.
#[derive(Debug)]
pub(super) struct RecordImage {
    pub(super) id: NetworkId,
    pub(super) config: Option<Arc<NetworkConfig>>,
    pub(super) subnets: Vec<Arc<SubnetConfig>>,
    pub(super) entries: Entries,
    pub(super) deployment: Option<Arc<Deployment>>,
}

impl RecordImage {
    pub(super) fn new(id: NetworkId) -> Self {
        Self { id, config: None, subnets: Vec::new(), entries: Entries::default(), deployment: None }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// A sentence: such a state cannot be stored at this key.
    pub(super) fn add(&mut self, key: Key, state: State) -> Result<(), Arc<str>> {
        match (key, state) {
            (Key::Config, State::Config(config)) => self.config = Some(config),
            (Key::Subnet(_), State::Subnet(subnet)) => self.subnets.push(subnet),
            (Key::Deployment, State::Deployment(deployment)) => self.deployment = Some(deployment),
            (Key::Address(address), State::Entry(entry)) => self.entries.push(address, entry),
            (Key::Config | Key::Subnet(_) | Key::Deployment | Key::Address(_), _) => {
                return Err(format!("network {} has a wrong record at {key:?}", self.id).into());
            }
        }
        Ok(())
    }
}

impl ShardImage {
    pub(super) fn new(head: Head) -> Self {
        Self { head, networks: Vec::new(), deployments: Vec::new() }
    }

    /// Adds everything that is stored under one id.
    ///
    /// # Errors
    /// A sentence: the records do not belong together, for example because the configuration of their network is missing.
    pub(super) fn add(&mut self, record: RecordImage) -> Result<(), Arc<str>> {
        let RecordImage { id, config, subnets, entries, deployment } = record;
        let bare = subnets.is_empty() && entries.is_empty();
        match (config, deployment) {
            (Some(config), None) => self.networks.push(NetworkImage { config, subnets, entries }),
            (None, Some(deployment)) if bare => self.deployments.push((id, deployment)),
            (None, None) if bare => {}
            (None, None) => return Err(format!("network {id} has records but no configuration").into()),
            (_, Some(_)) => return Err(format!("network {id} has the record of a deployment").into()),
        }
        Ok(())
    }
}
