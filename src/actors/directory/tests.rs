//! Facts about what the directory lists.

use tokio::sync::oneshot;

use super::*;
use crate::actors::clock::{Clock, ManualClock};
use crate::actors::outlet;
use crate::actors::service::{self, Hooks, Parts};
use crate::core::catalog::Intent;
use crate::core::types::{Generation, WallTime};
use crate::metrics::Metrics;
use crate::store::Store;
use crate::store::chapters::Chapters;
use crate::store::codec::samples::{sample_config, sample_subnet};
use crate::store::memory::MemoryStore;

pub(in crate::actors) async fn service() -> Arc<Shared> {
    let store = Arc::new(MemoryStore::new(1)) as Arc<dyn Store>;
    let register = store.info().register;
    let parts = Parts {
        store,
        clock: Arc::new(ManualClock::new(WallTime(1_772_356_364_031), 7)) as Arc<dyn Clock>,
        metrics: Arc::new(Metrics::new()),
        reactors: vec![Arbiter::current().into()],
        hooks: Hooks { without_index: true, ..Hooks::default() },
        behind_bytes: 1 << 20,
        chapters: Arc::new(Chapters::open(None, register)),
        fatal: outlet().0,
        standby: None,
    };
    service::start(parts).await.unwrap()
}

pub(in crate::actors) async fn settle(
    shared: &Shared,
    intent: Option<NotedIntent>,
    standing: &DurableNetwork,
    created: Option<Generation>,
) {
    let (done, settled) = oneshot::channel();
    let intent = intent.and_then(NotedIntent::hand_over);
    shared.directory().try_send(SettleAct { intent, standing: standing.clone(), created, done }).unwrap();
    settled.await.unwrap();
}

async fn intend(shared: &Shared, network: NetworkId, cidr: Cidr) -> Result<NotedIntent, Refusal> {
    let (decided, answer) = oneshot::channel();
    let subnets = [(SubnetId(99), cidr)].into_iter().collect();
    let intent = Intent { network, realm: Name::default_realm(), name: None, subnets };
    shared.directory().try_send(Intend { check: CatalogCheck::Space(None), intent, decided }).unwrap();
    answer.await.unwrap()
}

/// An act on the network had read it before, and reports it afterwards.
#[actix::test]
async fn what_is_said_of_a_network_when_it_is_gone_lists_it_no_more_and_guards_nothing() {
    let shared = service().await;
    let id = NetworkId(7);
    let subnet = Arc::new(sample_subnet());
    let cidr = subnet.cidr;
    let standing = DurableNetwork { config: Arc::new(sample_config(id)), subnets: vec![subnet] };
    settle(&shared, None, &standing, Some(Generation(1))).await;
    assert!(matches!(intend(&shared, NetworkId(8), cidr).await, Err(Refusal::Overlap { .. })));
    let wider = intend(&shared, id, "10.250.0.0/24".parse().unwrap()).await.unwrap();
    shared.gone(Gone { id });
    for intent in [None, Some(wider)] {
        settle(&shared, intent, &standing, None).await;
        shared.reloaded(&standing.config, &standing.subnets);
    }
    for cidr in [cidr, "10.250.0.0/24".parse().unwrap()] {
        assert!(intend(&shared, NetworkId(8), cidr).await.is_ok(), "a network that is gone keeps {cidr}");
    }
}
