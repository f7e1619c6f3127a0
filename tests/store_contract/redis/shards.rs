//! The number of shards: a node that does not set one uses what is there, and creates a register of four where there is
//! none.

use std::thread;

use allod::limits::{SHARDS_MAX, SHARDS_OF_NEW};
use allod::store::redis::{RedisOptions, RedisStore};

use super::*;

fn open(server: &Server, shards: Option<u16>) -> Result<RedisStore, StoreError> {
    RedisStore::open(RedisOptions::new(server.url(), shards))
}

#[test]
fn without_a_number_a_new_register_has_four_shards_and_any_other_what_it_has() {
    let Some(server) = Server::start(&[]) else { return };
    let made = open(&server, None).unwrap();
    assert_eq!(made.info().shards, 4);
    let heads: Vec<String> = server.ask(&["KEYS", "*:head"]);
    assert_eq!(heads.len(), 4, "{heads:?}");
    assert_eq!(open(&server, None).unwrap().info().register, made.info().register);
    for shards in [1, 16, SHARDS_MAX] {
        let _: () = server.ask(&["FLUSHALL"]);
        let made = open(&server, Some(shards)).unwrap();
        let found = open(&server, None).unwrap();
        assert_eq!((found.info().register, found.info().shards), (made.info().register, shards));
    }
}

#[test]
fn another_number_than_the_register_has_is_refused_with_both() {
    let Some(server) = Server::start(&[]) else { return };
    drop(open(&server, Some(16)).unwrap());
    for wanted in [4, 17] {
        let refused = open(&server, Some(wanted)).unwrap_err();
        let StoreError::Foreign(said) = &refused else { panic!("{refused:?}") };
        assert!(said.contains("16 shards") && said.contains(&format!("says {wanted};")), "{said}");
    }
}

/// The first node decides, and the nodes that set nothing go along.
#[test]
fn nodes_that_start_at_once_on_an_empty_redis_agree() {
    let Some(server) = Server::start(&[]) else { return };
    for round in 0..20 {
        let _: () = server.ask(&["FLUSHALL"]);
        let wishes = [None, (round % 2 == 0).then_some(16), None];
        let server = &server;
        let opened: Vec<_> = thread::scope(|scope| {
            let starts = wishes.map(|wish| scope.spawn(move || open(server, wish)));
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        let shards: u16 = server.ask(&["HGET", "{allod}:register", "shards"]);
        assert!([SHARDS_OF_NEW, 16].contains(&shards));
        for (wish, opened) in wishes.into_iter().zip(opened) {
            match opened {
                Ok(store) => assert_eq!(store.info().shards, shards),
                Err(refused) => assert!(wish.is_some_and(|wish| wish != shards), "{refused:?}"),
            }
        }
    }
}

/// A node that does not know how many shards there were takes a Redis that lost keys neither for empty nor for complete.
#[test]
fn heads_that_are_missing_or_left_over_are_found_whatever_their_number() {
    let Some(server) = Server::start(&[]) else { return };
    drop(open(&server, Some(16)).unwrap());
    let _: u64 = server.ask(&["DEL", "{allod}:9:head"]);
    let refused = open(&server, None).unwrap_err();
    assert!(matches!(&refused, StoreError::Damaged(said) if said.contains("1 of the 16 shards")), "{refused:?}");
    let _: u64 = server.ask(&["DEL", "{allod}:register"]);
    for shard in 0..15 {
        let _: u64 = server.ask(&["DEL", &format!("{{allod}}:{shard}:head")]);
    }
    let refused = open(&server, None).unwrap_err();
    assert!(matches!(&refused, StoreError::Damaged(said) if said.contains("{allod}:15:head")), "{refused:?}");
}
