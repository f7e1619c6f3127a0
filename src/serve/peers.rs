//! This node among the others that share its register: who it is, where they reach it, and the ways to them.
//!
//! Only with a store that several nodes share, and a secret that they share.

use std::net::SocketAddr;
use std::sync::Arc;

use compact_str::CompactString;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{CannotStart, bind};
use crate::config::Config;
use crate::peer::link::Link;
use crate::peer::listener::{self, Serve};
use crate::peer::secret::Secret;
use crate::peer::{Identity, NodeId};
use crate::store::{NodeCard, StoreInfo, codec};

/// What a node needs to ask others, and to be asked.
pub(super) struct Peers {
    own: Arc<Identity>,
    secret: Secret,
    /// Where the others reach this one.
    address: String,
    listener: Option<std::net::TcpListener>,
}

/// How a node is known: by its card always, and with a secret as one that can be asked.
pub(super) fn introduce(config: &Config, info: &StoreInfo) -> Result<(NodeCard, Option<Peers>), CannotStart> {
    let node = NodeId(rand::random());
    let mut card = NodeCard {
        name: config.node(),
        process: node.0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..NodeCard::default()
    };
    let settings = &config.cluster;
    if info.ownership_is_standing || settings.secret_file.as_os_str().is_empty() {
        return Ok((card, None));
    }
    let secret = Secret::read(&settings.secret_file).map_err(|error| {
        let hint =
            "make one by `head -c 32 /dev/urandom | base64 > FILE`, the same for all nodes (`cluster.secret_file`)";
        CannotStart::new(error.to_string(), hint)
    })?;
    let listener = bind(&settings.listen, "cluster.listen")?;
    let at: SocketAddr = listener.local_addr().map_err(|error| CannotStart::of_machine(error.to_string()))?;
    let address = if settings.advertise.is_empty() { at.to_string() } else { settings.advertise.clone() };
    card.peer_address.clone_from(&address);
    let own = Identity {
        node,
        name: CompactString::from(&card.name),
        register: CompactString::from(format!("{:032x}", info.register)),
        shards: info.shards,
        format: u16::from(codec::FORMAT),
        build: CompactString::from(&card.version),
    };
    Ok((card, Some(Peers { own: Arc::new(own), secret, address, listener: Some(listener) })))
}

impl Peers {
    /// Begins to answer other nodes, until `stop`; then what was read is answered.
    pub(super) fn listen(&mut self, handler: Arc<dyn Serve>, stop: CancellationToken, tasks: &TaskTracker) {
        let Some(listener) = self.listener.take() else { return };
        tracing::info!(address = self.address, "other nodes reach this one");
        let serving = listener::serve(listener, Arc::clone(&self.own), self.secret.clone(), handler, stop);
        // The end of the server waits for it: what other nodes have asked is answered.
        let task = tasks.token();
        actix::spawn(async move {
            let _task = task;
            if let Err(error) = serving.await {
                tracing::error!(%error, "other nodes cannot reach this one");
            }
        });
    }

    /// The way to another node.
    pub(super) fn link(&self, address: &str) -> Arc<Link> {
        let on = tokio::runtime::Handle::current();
        Link::start(&on, address.to_owned(), Arc::clone(&self.own), self.secret.clone())
    }
}
