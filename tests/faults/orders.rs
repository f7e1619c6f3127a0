//! Clients send orders to nodes without end; that must cost nobody the register.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::client::Client;
use super::run::{Nodes, Setting, eventually};

/// An order that changes nothing: it is about a node that does not exist.
fn order() -> Value {
    json!({"node": "nobody", "dry_run": true})
}

/// Sends this many orders at once, again and again, with a pause after the answers. Counts the answers.
fn orders(mut client: Client, at_once: usize, pause: Duration) -> (Arc<AtomicUsize>, JoinHandle<()>) {
    let answered = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&answered);
    let ordering = tokio::spawn(async move {
        loop {
            let calls = (0..at_once).map(|_| ("cluster.drain".to_owned(), order())).collect();
            count.fetch_add(client.call_all(calls).await.len(), Ordering::Relaxed);
            tokio::time::sleep(pause).await;
        }
    });
    (answered, ordering)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_is_ordered_about_takes_over_when_the_owner_is_killed() {
    let Some(mut nodes) = Nodes::start(2, &[]) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    let (answered, ordering) = orders(nodes.client(1 - owner).await, 1, Duration::from_millis(200));
    eventually("orders are answered", || answered.load(Ordering::Relaxed) > 3).await;
    nodes.cluster.kill(owner);
    let before = answered.load(Ordering::Relaxed);
    assert_eq!(nodes.cluster.owner_but(None).await, 1 - owner);
    assert!(answered.load(Ordering::Relaxed) > before + 3, "it was not ordered about meanwhile");
    ordering.abort();
}

/// With Redis some way off, there is always an order waiting before the answer to a renewal of the lease arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_is_ordered_about_keeps_its_lease() {
    let setting = Setting { redis: &[], wired: true, ..Setting::default() };
    let Some(nodes) = Nodes::set(setting) else { return };
    let owner = nodes.cluster.owner_but(None).await;
    nodes.to_redis(owner).delay(Duration::from_millis(50));
    let floods: Vec<_> = (0..2).map(|_| async { orders(nodes.client(owner).await, 24, Duration::ZERO) }).collect();
    let mut answered = Vec::new();
    for flood in floods {
        answered.push(flood.await);
    }
    // This is three leases long.
    tokio::time::sleep(Duration::from_secs(15)).await;
    for (answered, ordering) in answered {
        assert!(answered.load(Ordering::Relaxed) >= 48, "nothing was tested");
        ordering.abort();
    }
    assert_eq!(nodes.cluster.figure(owner, "allod_tenures_total"), 1.0, "{}", nodes.cluster.log(owner));
    assert_eq!(nodes.cluster.owner_but(None).await, owner);
}
