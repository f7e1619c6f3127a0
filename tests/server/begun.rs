//! Messages that reach actors before their thread runs them, and starts that fail.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use actix::{Arbiter, System};
use allod::actors::coordinator::Job;
use allod::actors::service::{self, Parts};
use allod::actors::{Item, Reply, Told, outlet, sending};
use allod::config::Config;
use allod::core::command::{Command, NetworkInput};
use allod::core::outcome::Outcome;
use allod::serve::{self, CannotStart, Options};
use allod::store::Store;
use allod::store::memory::MemoryStore;
use serde_json::json;

use crate::ended::{ask, parts};
use crate::faulty::FaultyStore;

/// Messages of each kind: more than actix itself has room for.
const MANY: u32 = 100;

/// A backup would lack everything that was granted since.
#[test]
fn a_start_for_which_there_is_no_room_asks_for_room_and_not_for_a_backup() {
    let store = FaultyStore::around(Arc::new(MemoryStore::new(2)));
    store.no_room_to_take.store(true, Ordering::SeqCst);
    let cannot = serve::start(Options::new(Config::default(), store).on_free_ports()).unwrap_err();
    let CannotStart { problem, hint, may_pass } = cannot;
    assert!(hint.starts_with("make room") && !hint.contains("restore") && !hint.contains("--data"), "{hint}");
    assert!(may_pass && problem.starts_with("shard 0 cannot be taken: "), "{problem}");
}

/// There may be enough room.
#[test]
fn a_start_that_its_disk_refuses_for_another_reason_does_not_ask_for_room() {
    let store = FaultyStore::around(Arc::new(MemoryStore::new(2)));
    store.no_room_to_take.store(true, Ordering::SeqCst);
    *store.obstacle.lock().unwrap() = Some("the log cannot be continued (Too many open files (os error 24))".into());
    let cannot = serve::start(Options::new(Config::default(), store).on_free_ports()).unwrap_err();
    let CannotStart { problem, hint, may_pass } = cannot;
    assert!(hint.contains("`ulimit -n`") && !hint.contains("room") && !hint.contains("--data"), "{hint}");
    assert!(may_pass && problem.ends_with("(Too many open files (os error 24))"), "{problem}");
}

/// The text is for people and may change.
#[test]
fn whether_a_start_lacks_room_does_not_depend_on_the_words_in_which_its_store_says_so() {
    let store = FaultyStore::around(Arc::new(MemoryStore::new(2)));
    store.no_room_to_take.store(true, Ordering::SeqCst);
    let words = format!("{} of files that nobody may read", store.info().full);
    *store.obstacle.lock().unwrap() = Some(words.into());
    let cannot = serve::start(Options::new(Config::default(), store).on_free_ports()).unwrap_err();
    assert!(!cannot.hint.contains("room"), "{}", cannot.hint);
}

#[test]
fn what_comes_before_the_actors_run_waits_for_them() {
    System::new().block_on(async {
        let store = Arc::new(MemoryStore::new(2));
        let (fatal, _fatals) = outlet();
        let shared = service::start(parts(store.clone(), fatal)).await.unwrap();
        let input: NetworkInput = serde_json::from_value(json!({"name": "lan", "tags": null})).unwrap();
        ask(&shared, Job::Create { input: Box::new(input), if_absent: false }).await.unwrap();
        shared.retire("another tenure begins");

        let reactor = Arbiter::new();
        let (release, stuck) = sync_channel::<()>(1);
        reactor.spawn_fn(move || _ = stuck.recv());
        let (fatal, mut fatals) = outlet();
        let shared =
            service::start(Parts { reactors: vec![reactor.handle().into()], ..parts(store, fatal) }).await.unwrap();
        let (outlet, mut answers) = outlet();
        let route = shared.routes.find("lan").unwrap();
        for ticket in 0..MANY {
            // One for the committer, one for the network.
            shared.answer_proved(outlet.clone(), vec![Reply { ticket, answer: Ok(Outcome::Done) }]);
            let (command, by) = (Command::Show, "test".into());
            let item =
                Item { ticket: MANY + ticket, command, by, reason: None, deadline: None, dry_run: false, wait: None };
            sending::send(&shared, &route, true, vec![item], &outlet, Instant::now());
        }
        drop(release);
        let mut answered: Vec<u32> = Vec::new();
        while answered.len() < 2 * MANY as usize {
            let Some(Told::Replies(replies)) = answers.recv().await else { panic!() };
            for Reply { ticket, answer } in replies {
                answered.push(ticket);
                answer.unwrap_or_else(|fault| panic!("{ticket}: {}", fault.problem()));
            }
        }
        answered.sort_unstable();
        assert!(answered.into_iter().eq(0..2 * MANY));
        assert!(fatals.try_recv().is_err(), "nothing is given up");
        shared.retire("all was seen");
        reactor.stop();
        reactor.join().unwrap();
    });
}
