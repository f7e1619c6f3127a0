//! What is asked of actors whose tenure is over: it is not begun, and the answer says so.

use std::sync::Arc;

use actix::{Arbiter, System};
use allod::actors::clock::ManualClock;
use allod::actors::coordinator::{self, Done, Job, Order};
use allod::actors::service::{self, Hooks, Parts, Shared};
use allod::actors::{Fault, NotReadyReason, Told, outlet};
use allod::core::command::{Configure, NetworkInput};
use allod::core::types::WallTime;
use allod::metrics::Metrics;
use allod::store::memory::MemoryStore;
use serde_json::json;

async fn ask(shared: &Arc<Shared>, job: Job) -> Result<Done, Box<Fault>> {
    let order = Order { job, by: "test".into(), reason: None, deadline: None, dry_run: false };
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
        let parts = Parts {
            store: Arc::new(MemoryStore::new(2)),
            clock: Arc::new(ManualClock::new(WallTime(1_772_356_364_031), 7)),
            metrics: Arc::new(Metrics::new()),
            reactors: vec![Arbiter::current()],
            hooks: Hooks::default(),
            fatal,
        };
        let shared = service::start(parts).await.unwrap();
        ask(&shared, create("lan")).await.unwrap();
        shared.retire("the tenure is over");
        while shared.directory().connected() {
            tokio::task::yield_now().await;
        }
        let network = "lan".into();
        let change = Configure::Delete { force: false, purge: false };
        for job in [create("dmz"), Job::Configure { network, change, if_version: None }, Job::Realms, Job::Scopes] {
            let job_text = format!("{job:?}");
            match ask(&shared, job).await {
                // Holding the memory is the proof of ownership here: it is the process that ends.
                Err(fault) if matches!(*fault, Fault::NotReady { reason: NotReadyReason::Restarting, .. }) => {}
                other => panic!("{job_text}: {other:?}"),
            }
        }
    });
}
