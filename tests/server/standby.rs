//! A register that was prepared beside its owner is, after the take-over, the same as one that was loaded.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::System;
use allod::actors::coordinator::{Done, Job};
use allod::actors::outlet;
use allod::actors::service::{self, CannotOwn, Parts};
use allod::actors::standby::Standby;
use allod::core::command::Filter;
use allod::store::Store;
use serde_json::json;

use crate::ended::{ask, parts};
use crate::faulty::FaultyStore;
use crate::redis_server::Server;
use crate::support::{Client, TestServer};

/// Creates networks of every kind and whatever can happen to them; `round` keeps names apart.
fn change(client: &mut Client, round: u32) {
    let name = |text: &str| format!("{text}-{round}");
    let cidr = |part: u32| format!("10.{}.{part}.0/24", 10 + round);
    for (part, text, more) in [
        (0, "lan", json!({"policy": "oldest", "cooldown_seconds": 3_600})),
        (1, "leased", json!({})),
        (2, "moved", json!({})),
        (3, "gone", json!({})),
        (4, "closed", json!({})),
    ] {
        let mut params = json!({"name": name(text), "subnets": [{"cidr": cidr(part), "gateway": null}]});
        params["subnets"][0].as_object_mut().unwrap().remove("gateway");
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.ok("network.create", params);
    }
    for at in 0..40 {
        client.ok("ip.allocate", json!({"network": name("lan"), "owner": format!("vm/{at}"), "scope": "s"}));
        let ttl = 10 + at * 20;
        client.ok("ip.allocate", json!({"network": name("leased"), "owner": format!("vm/{at}"), "ttl_seconds": ttl}));
    }
    for at in 0..9 {
        client.ok("ip.release", json!({"network": name("lan"), "owner": format!("vm/{at}"), "scope": "s"}));
    }
    client.ok("ip.allocate", json!({"network": name("lan"), "owner": "block", "prefix_length": 29}));
    client.ok("ip.claim", json!({"network": name("closed"), "owner": "a", "address": cidr(4).replace("0/24", "77")}));
    client
        .ok("ip.allocate", json!({"network": name("moved"), "owner": "b", "mac": format!("aa:bb:cc:00:00:0{round}")}));
    client.ok("subnet.move", json!({"network": name("moved"), "subnet": cidr(2), "to": name("leased")}));
    client.ok("network.delete", json!({"network": name("closed"), "force": true}));
    client.ok("network.delete", json!({"network": name("gone")}));
    client
        .ok("network.update", json!({"network": name("moved"), "set": {"name": name("renamed"), "description": "x"}}));
    let deployment = |count: usize| {
        let networks = json!([{"network": name("leased")}]);
        let instances: Vec<_> = (0..count).map(|at| json!({"id": format!("i{at}"), "networks": networks})).collect();
        json!({"deployment": name("web"), "instances": instances})
    };
    client.ok("deployment.apply", deployment(3));
    client.ok("deployment.apply", deployment(2));
    client.ok("deployment.apply", json!({"deployment": name("done"), "instances": []}));
    client.ok("deployment.delete", json!({"deployment": name("done")}));
}

/// What a register shows, and what it would grant next.
async fn shown(store: Arc<dyn Store>, standby: Option<Standby>) -> Result<Vec<Done>, CannotOwn> {
    let (fatal, _fatals) = outlet();
    let shared = service::start(Parts { standby, ..parts(Arc::clone(&store), fatal) }).await?;
    let networks = |deleted| {
        let (realm, tag, after) = (None, None, None);
        Job::Networks { realm, tag, usage: true, deleted, after, limit: 1_000 }
    };
    let (filter, limit) = (Box::new(Filter::default()), 10_000);
    let list = Job::List { network: None, realm: None, filter, after: None, limit, count_only: false };
    let mut all = Vec::new();
    let deployments = Job::Deployments { after: None, limit: 1_000 };
    for job in [
        networks(false),
        networks(true),
        list,
        Job::Realms,
        Job::Scopes { network: None, after: None, limit: 1_000 },
        deployments,
    ] {
        all.push(ask(&shared, job).await.unwrap());
    }
    for round in 1..=2 {
        all.push(ask(&shared, Job::Deployment(format!("web-{round}").parse().unwrap())).await.unwrap());
    }
    shared.retire("all was seen");
    store.release().await.unwrap();
    Ok(all)
}

#[test]
fn what_was_followed_beside_the_owner_is_what_loading_it_gives() {
    let Some(redis) = Server::start(&[]) else { return };
    let server = TestServer::over(Arc::new(redis.open().unwrap()), |_| {});
    let mut client = server.client();
    change(&mut client, 1);
    let store = FaultyStore::around(Arc::new(redis.open().unwrap()));
    System::new().block_on(async {
        let mut standby = Standby::load(&*store, store.info().shards, &[]).await.unwrap();
        assert_eq!(standby.follow(&*store).await, Ok(0));
        change(&mut client, 2);
        assert!(standby.follow(&*store).await.unwrap() > 50);
        // A part is left for the take-over.
        client.ok("network.create", json!({"name": "last", "subnets": [{"cidr": "10.99.0.0/24"}]}));
        client.ok("ip.allocate", json!({"network": "last", "owner": "a", "ttl_seconds": 60}));
        drop(client);
        server.running.stop();
        // Nothing is loaded, because a load would fail.
        store.overtaken.store(true, Ordering::SeqCst);
        let ready = shown(Arc::clone(&store) as Arc<dyn Store>, Some(standby)).await.unwrap();
        store.overtaken.store(false, Ordering::SeqCst);
        let loaded = shown(Arc::clone(&store) as Arc<dyn Store>, None).await.unwrap();
        for (ready, loaded) in ready.iter().zip(&loaded) {
            assert_eq!(ready, loaded);
        }
        assert_eq!(ready.len(), loaded.len());
        let Done::Listed { count, .. } = &ready[2] else { panic!("{:?}", ready[2]) };
        assert!(*count > 150, "{count}");
    });
}

#[test]
fn what_cannot_be_followed_is_loaded() {
    let Some(redis) = Server::start(&[]) else { return };
    let server = TestServer::over(Arc::new(redis.open().unwrap()), |_| {});
    let mut client = server.client();
    change(&mut client, 1);
    change(&mut client, 2);
    let store: Arc<dyn Store> = Arc::new(redis.open().unwrap());
    System::new().block_on(async {
        let standby = Standby::load(&*store, store.info().shards, &[]).await.unwrap();
        client.ok("network.create", json!({"name": "last", "subnets": [{"cidr": "10.99.0.0/24"}]}));
        drop(client);
        server.running.stop();
        for shard in 0..store.info().shards {
            // Empties the log.
            let _: u64 = redis.ask(&["XTRIM", &format!("{{allod}}:{shard}:log"), "MAXLEN", "0"]);
        }
        let shown = shown(Arc::clone(&store), Some(standby)).await.unwrap();
        let Done::Networks { networks, .. } = &shown[0] else { panic!("{:?}", shown[0]) };
        assert!(networks.iter().any(|(view, _)| view.config.name.as_str() == "last"));
    });
}

#[test]
fn a_network_that_its_owner_serves_is_not_taken_over_where_it_would_be_stopped() {
    let Some(redis) = Server::start(&[]) else { return };
    let server = TestServer::over(Arc::new(redis.open().unwrap()), |_| {});
    let mut client = server.with_lan();
    client.allocate("torn");
    let lan = client.ok("network.get", json!({"network": "lan"}))["id"].as_str().unwrap().parse().unwrap();
    let store = FaultyStore::around(Arc::new(redis.open().unwrap()));
    *store.reads_as.lock().unwrap() = Some(Box::new(crate::stopped::misaligned));
    System::new().block_on(async {
        let shards = store.info().shards;
        let refused = Standby::load(&*store, shards, &[]).await.unwrap_err();
        assert!(refused.contains(&format!("network {lan} cannot be loaded")), "{refused}");
        let mut standby = Standby::load(&*store, shards, &[lan]).await.unwrap();
        client.ok("network.create", json!({"name": "last", "subnets": [{"cidr": "10.99.0.0/24"}]}));
        assert_eq!(standby.follow(&*store).await, Ok(1));
        // What is changed was served after all.
        client.allocate("b");
        assert!(standby.follow(&*store).await.is_err());
    });
}
