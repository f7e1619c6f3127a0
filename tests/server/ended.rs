//! Requests to actors whose tenure is over: nothing is begun, and the answer says so.

use std::io::Write;
use std::sync::{Arc, Mutex};

use actix::{Arbiter, System};
use allod::actors::clock::ManualClock;
use allod::actors::coordinator::{self, Done, Job, Order};
use allod::actors::service::{self, CannotOwn, Hooks, Parts, Shared};
use allod::actors::{Fault, NotReadyReason, Told, outlet};
use allod::core::command::{Configure, NetworkInput};
use allod::core::types::WallTime;
use allod::metrics::Metrics;
use allod::store::Store;
use allod::store::chapters::Chapters;
use allod::store::memory::MemoryStore;
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use tracing_subscriber::fmt::MakeWriter;

use crate::faulty::FaultyStore;

pub fn parts(store: Arc<dyn Store>, fatal: UnboundedSender<allod::actors::Fatal>) -> Parts {
    Parts {
        store,
        clock: Arc::new(ManualClock::new(WallTime(1_772_356_364_031), 7)),
        metrics: Arc::new(Metrics::new()),
        reactors: vec![Arbiter::current().into()],
        hooks: Hooks::default(),
        behind_bytes: 1 << 20,
        chapters: Arc::new(Chapters::open(None, 1)),
        fatal,
        standby: None,
    }
}

pub async fn ask(shared: &Arc<Shared>, job: Job) -> Result<Done, Box<Fault>> {
    let order = Order { job, by: "test".into(), reason: None, deadline: None, dry_run: false, wait: None };
    let (outlet, mut answers) = outlet();
    coordinator::spawn(shared, 7, order, outlet);
    match answers.recv().await {
        Some(Told::Job(7, answer)) => answer,
        other => panic!("{other:?}"),
    }
}

fn create(name: &str) -> Job {
    let input: NetworkInput = serde_json::from_value(json!({"name": name, "tags": null})).unwrap();
    Job::Create { input: Box::new(input), if_absent: false }
}

#[test]
fn an_act_that_comes_after_the_end_is_not_ready_and_no_list_is_empty_because_of_it() {
    System::new().block_on(async {
        let (fatal, _fatals) = outlet();
        let shared = service::start(parts(Arc::new(MemoryStore::new(2)), fatal)).await.unwrap();
        ask(&shared, create("lan")).await.unwrap();
        let said = Said::default();
        let _told = tracing::subscriber::set_default(
            tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(said.clone()).finish(),
        );
        shared.retire("the tenure is over");
        while shared.directory().connected() {
            tokio::task::yield_now().await;
        }
        let network = "lan".into();
        let change = Configure::Delete { force: false, purge: false };
        for job in [
            create("dmz"),
            Job::Configure { network, change, if_version: None },
            Job::Realms,
            Job::Scopes { network: None, after: None, limit: 1_000 },
        ] {
            let job_text = format!("{job:?}");
            match ask(&shared, job).await {
                // How often one was brought until all of its claims were answered.
                Err(fault) if matches!(*fault, Fault::NotReady { reason: NotReadyReason::Restarting, .. }) => {}
                other => panic!("{job_text}: {other:?}"),
            }
        }
        assert_eq!(said.text(), "", "an end in order is no error");
    });
}

#[test]
fn a_node_that_was_overtaken_says_so_and_not_that_the_store_is_away() {
    System::new().block_on(async {
        let (fatal, _fatals) = outlet();
        let store = FaultyStore::around(Arc::new(MemoryStore::new(2)));
        store.overtaken.store(true, std::sync::atomic::Ordering::SeqCst);
        match service::start(parts(store, fatal)).await {
            Err(CannotOwn::Overtaken(problem)) => assert!(problem.contains("taken over in epoch 9"), "{problem}"),
            other => panic!("{:?}", other.map(drop)),
        }
    });
}

/// What was logged on this thread.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Said {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
