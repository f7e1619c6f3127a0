//! This node among the others that share its register: who it is, where they reach it, and its links to them.
//!
//! Used only with a store that several nodes share, and a secret that they share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use compact_str::CompactString;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::CannotStart;
use super::listening::Port;
use crate::config::Config;
use crate::peer::link::Link;
use crate::peer::listener::{self, Serve};
use crate::peer::secret::Secret;
use crate::peer::{Identity, NodeId, Versions};
use crate::store::{NodeCard, StoreInfo};

/// What a node needs to ask others, and to be asked.
pub(super) struct Peers {
    own: Arc<Identity>,
    speaks: Versions,
    secret: Secret,
    /// Where the others reach this node.
    address: String,
    listener: Option<std::net::TcpListener>,
    /// Links that are still in use: two links to one node would throw each other out.
    links: Mutex<HashMap<String, Weak<Link>>>,
}

/// How others know a node: always by its card, and as one that can be asked if it has a port for other nodes and a secret.
pub(super) fn introduce(
    config: &Config,
    info: &StoreInfo,
    nodes: Option<(Port, Secret)>,
    speaks: Versions,
) -> Result<(NodeCard, Option<Peers>), CannotStart> {
    let node = NodeId(rand::random());
    let mut card = NodeCard {
        name: config.node(),
        process: node.0,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..NodeCard::default()
    };
    let Some((port, secret)) = nodes else { return Ok((card, None)) };
    let advertise = &config.cluster.advertise;
    let address = if advertise.is_empty() { port.address().to_string() } else { advertise.clone() };
    let listener = port.listen()?;
    card.peer_address.clone_from(&address);
    let own = Identity {
        node,
        name: CompactString::from(&card.name),
        register: CompactString::from(format!("{:032x}", info.register)),
        shards: info.shards,
        build: CompactString::from(&card.version),
    };
    let (own, listener, links) = (Arc::new(own), Some(listener), Mutex::default());
    Ok((card, Some(Peers { own, speaks, secret, address, listener, links })))
}

/// The address at which clients reach a node that listens on `listens`. A node that listens on all addresses has none to
/// name: it gives the host at which other nodes reach it.
pub(super) fn reached_at(listens: SocketAddr, advertise: &str) -> String {
    match advertise.rsplit_once(':') {
        Some((host, _)) if listens.ip().is_unspecified() => format!("{host}:{}", listens.port()),
        _ => listens.to_string(),
    }
}

impl Peers {
    /// Starts to answer other nodes, until `stop`; every request that was read by then is still answered.
    pub(super) fn listen(&mut self, handler: Arc<dyn Serve>, stop: CancellationToken, tasks: &TaskTracker) {
        let Some(listener) = self.listener.take() else { return };
        tracing::info!(address = self.address, "other nodes reach this one");
        let serving = listener::serve(listener, self.as_known(), self.secret.clone(), handler, stop);
        // The end of the server waits for this, so that other nodes get their answers.
        let task = tasks.token();
        actix::spawn(async move {
            let _task = task;
            if let Err(error) = serving.await {
                tracing::error!(%error, "other nodes cannot reach this one");
            }
        });
    }

    fn as_known(&self) -> (Arc<Identity>, Versions) {
        (Arc::clone(&self.own), self.speaks)
    }

    /// The link to another node.
    pub(super) fn link(&self, address: &str) -> Arc<Link> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, link| link.strong_count() > 0);
        if let Some(link) = links.get(address).and_then(Weak::upgrade) {
            return link;
        }
        let on = tokio::runtime::Handle::current();
        let link = Link::start(&on, address.to_owned(), self.as_known(), self.secret.clone());
        links.insert(address.to_owned(), Arc::downgrade(&link));
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_an_address_that_leads_to_the_node() {
        for (listens, advertise, told) in [
            ("0.0.0.0:7400", "node-1:7402", "node-1:7400"),
            ("[::]:7400", "[2001:db8::7]:7402", "[2001:db8::7]:7400"),
            ("10.0.0.7:7400", "node-1:7402", "10.0.0.7:7400"),
            ("127.0.0.1:7400", "", "127.0.0.1:7400"),
        ] {
            assert_eq!(reached_at(listens.parse().unwrap(), advertise), told);
        }
    }

    #[test]
    fn a_node_says_which_address_leads_to_it() {
        let store = crate::store::memory::MemoryStore::keeping(1, 0);
        let info = crate::store::Store::info(&store);
        let mut config = Config::default();
        let told = |config: &Config| {
            let port = Port::take("127.0.0.1:0", "cluster.listen").unwrap();
            let (at, secret) = (port.address().to_string(), Secret::new(b"0123456789abcdef").unwrap());
            let (card, _) = introduce(config, &info, Some((port, secret)), Versions::SPOKEN)
                .unwrap_or_else(|refused| panic!("{refused:?}"));
            (card.peer_address, at)
        };
        let (told_by_itself, at) = told(&config);
        assert_eq!(told_by_itself, at);
        config.cluster.advertise = "node-1:7402".to_owned();
        assert_eq!(told(&config).0, "node-1:7402");
    }
}
