//! Facts about locks and intents whose acts are given up.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use super::*;
use crate::actors::directory::tests::service;
use crate::actors::directory::{AskCatalog, CatalogQuestion};
use crate::core::types::{Name, SubnetId};

const NETWORK: NetworkId = NetworkId(7);

/// The outcome of a future, if it is there.
async fn at_once<T>(future: &mut Pin<Box<impl Future<Output = T>>>) -> Option<T> {
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        })
    })
    .await
}

/// Waits until the directory has handled everything that was sent to it, and what it sent itself meanwhile.
async fn all_handled(shared: &Shared) {
    for _ in 0..2 {
        let (told, answer) = oneshot::channel();
        shared.directory().try_send(AskCatalog { question: CatalogQuestion::Realms, told }).unwrap();
        answer.await.unwrap();
    }
}

fn intent() -> (CatalogCheck, Intent) {
    let subnets = [(SubnetId(99), "10.250.0.0/24".parse().unwrap())].into_iter().collect();
    (CatalogCheck::Space(None), Intent { network: NETWORK, realm: Name::default_realm(), name: None, subnets })
}

#[actix::test]
async fn who_stops_waiting_for_a_lock_takes_it_from_nobody() {
    let shared = service().await;
    let asker = Coordinator::of_itself(&shared);
    let first = asker.lock(vec![NETWORK]).await.unwrap();
    let mut second = Box::pin(asker.lock(vec![NETWORK]));
    assert!(at_once(&mut second).await.is_none());
    drop(second);
    let mut third = Box::pin(asker.lock(vec![NETWORK]));
    assert!(at_once(&mut third).await.is_none());
    all_handled(&shared).await;
    assert!(at_once(&mut third).await.is_none(), "two have the lock");
    drop(first);
    assert!(third.await.is_ok());
}

#[actix::test]
async fn a_lock_that_arrives_at_nobody_is_given_back() {
    let shared = service().await;
    let asker = Coordinator::of_itself(&shared);
    let first = asker.lock(vec![NETWORK]).await.unwrap();
    let mut second = Box::pin(asker.lock(vec![NETWORK]));
    assert!(at_once(&mut second).await.is_none());
    drop(first);
    // It was granted by now.
    all_handled(&shared).await;
    drop(second);
    let mut third = Box::pin(asker.lock(vec![NETWORK]));
    assert!(at_once(&mut third).await.is_none());
    all_handled(&shared).await;
    assert!(at_once(&mut third).await.is_some_and(|locked| locked.is_ok()), "nobody has the lock");
}

/// The first act waits for what became of its commit, and another one behind what it intends, until the tenure ends.
#[actix::test]
async fn an_act_in_doubt_keeps_nobody_from_recalling_what_is_in_memory() {
    let shared = service().await;
    let asker = Coordinator::of_itself(&shared);
    let mut first = asker.lock(vec![NETWORK]).await.unwrap();
    let (check, intended) = intent();
    first.intend(check, intended).await.unwrap();
    first.begins(&Arc::new(Lane::new(NETWORK, shared.shard_of(NETWORK))), true);
    let waits = shared.jobs.token();
    let behind = Arc::clone(&shared);
    actix::spawn(async move {
        let _waits = waits;
        let asker = Coordinator::of_itself(&behind);
        let mut second = asker.lock(vec![NetworkId(8)]).await.unwrap();
        let (check, intended) = intent();
        // Once the tenure is over it does not matter what it is told.
        let _ = second.intend(check, Intent { network: NetworkId(8), ..intended }).await;
    });
    all_handled(&shared).await;
    let waits = shared.jobs.token();
    actix::spawn(async move {
        let _waits = waits;
        first.settle_as_stored().await;
    });
    shared.recall("the store was emptied").await.unwrap();
}

#[actix::test]
async fn an_intent_that_arrives_at_nobody_is_given_back() {
    let shared = service().await;
    let asker = Coordinator::of_itself(&shared);
    let mut first = asker.lock(vec![NETWORK]).await.unwrap();
    let (check, intended) = intent();
    let mut noted = Box::pin(first.intend(check, intended));
    assert!(at_once(&mut noted).await.is_none());
    all_handled(&shared).await;
    drop(noted);
    let mut other = asker.lock(vec![NetworkId(8)]).await.unwrap();
    let (check, intended) = intent();
    let mut noted = Box::pin(other.intend(check, Intent { network: NetworkId(8), ..intended }));
    assert!(at_once(&mut noted).await.is_none());
    all_handled(&shared).await;
    assert!(at_once(&mut noted).await.is_some_and(|noted| noted.is_ok()), "what nobody intends is in the way");
}
