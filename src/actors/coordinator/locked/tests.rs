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
