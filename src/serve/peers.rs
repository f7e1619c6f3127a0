//! This node among the others that share its register: who it is, where they reach it, and the ways to them.
//!
//! Only with a store that several nodes share, and a secret that they share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use compact_str::CompactString;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::CannotStart;
use super::listening::bind;
use crate::config::Config;
use crate::peer::link::Link;
use crate::peer::listener::{self, Serve};
use crate::peer::secret::Secret;
use crate::peer::{Identity, NodeId};
use crate::store::{NodeCard, StoreInfo};

/// What a node needs to ask others, and to be asked.
pub(super) struct Peers {
    own: Arc<Identity>,
    secret: Secret,
    /// Where the others reach this one.
    address: String,
    listener: Option<std::net::TcpListener>,
    /// Ways that somebody still uses: two to one node would throw each other out.
    links: Mutex<HashMap<String, Weak<Link>>>,
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
    let everywhere = settings.listen.parse().is_ok_and(|at: SocketAddr| at.ip().is_unspecified());
    if everywhere && settings.advertise.is_empty() {
        let problem =
            format!("`cluster.listen` is {}, which tells other nodes no address of this one", settings.listen);
        let hint = "say where they reach it, as `--advertise 10.0.0.7:7402` (`cluster.advertise`)";
        return Err(CannotStart::new(problem, hint));
    }
    let listener = bind(&settings.listen, "cluster.listen")?;
    let at: SocketAddr = listener.local_addr().map_err(|error| CannotStart::of_machine(error.to_string()))?;
    let address = if settings.advertise.is_empty() { at.to_string() } else { settings.advertise.clone() };
    card.peer_address.clone_from(&address);
    let own = Identity {
        node,
        name: CompactString::from(&card.name),
        register: CompactString::from(format!("{:032x}", info.register)),
        shards: info.shards,
        build: CompactString::from(&card.version),
    };
    Ok((card, Some(Peers { own: Arc::new(own), secret, address, listener: Some(listener), links: Mutex::default() })))
}

/// Where clients reach a node that listens here. One that listens on all addresses names none of them: then it is the host
/// that other nodes reach it at.
pub(super) fn reached_at(listens: SocketAddr, advertise: &str) -> String {
    match advertise.rsplit_once(':') {
        Some((host, _)) if listens.ip().is_unspecified() => format!("{host}:{}", listens.port()),
        _ => listens.to_string(),
    }
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
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, link| link.strong_count() > 0);
        if let Some(link) = links.get(address).and_then(Weak::upgrade) {
            return link;
        }
        let on = tokio::runtime::Handle::current();
        let link = Link::start(&on, address.to_owned(), Arc::clone(&self.own), self.secret.clone());
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
    fn a_node_says_what_stands_in_the_way_of_other_nodes_and_which_address_leads_to_it() {
        use std::io::Write;
        let mut secret = tempfile::NamedTempFile::new().unwrap();
        secret.write_all(b"0123456789abcdef").unwrap();
        let store = crate::store::memory::MemoryStore::keeping(1, 0);
        let info = StoreInfo { ownership_is_standing: false, ..crate::store::Store::info(&store) };
        let mut config = Config::default();
        config.cluster.listen = "0.0.0.0:7402".to_owned();
        config.cluster.secret_file = secret.path().to_owned();
        let Err(refused) = introduce(&config, &info) else { panic!("no address leads to it") };
        assert!(refused.problem.contains("`cluster.listen` is 0.0.0.0:7402,"), "{refused:?}");
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        config.cluster.listen = taken.local_addr().unwrap().to_string();
        let Err(refused) = introduce(&config, &info) else { panic!("two listen on one port") };
        assert!(refused.hint.contains("with `--cluster-listen ADDR`"), "{refused:?}");
        config.cluster.listen = "127.0.0.1:0".to_owned();
        config.cluster.advertise = "node-1:7402".to_owned();
        let (card, _) = introduce(&config, &info).unwrap_or_else(|refused| panic!("{refused:?}"));
        assert_eq!(card.peer_address, "node-1:7402");
    }
}
