//! The server over Redis: what an owner may still say after another one has taken its shards.

use std::sync::Arc;

use allod::actors::clock::{Clock, ManualClock, SystemClock};
use allod::core::address::Address;
use allod::core::state::{Entry, Key, Reservation, State, Step};
use allod::core::types::{Generation, WallTime};
use allod::serve::Ended;
use allod::store::redis::{RedisOptions, RedisStore};
use allod::store::{Act, Batch, Seq, ShardId, Store, Token};
use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::redis_server::Server;
use crate::support::{Client, TestServer, http, line, wait, wait_for};

#[test]
fn what_is_asked_of_the_whole_register_while_redis_is_away_is_not_said_to_be_anothers() {
    let Some(redis) = Server::start(&[]) else { return };
    let server = TestServer::over(Arc::new(redis.open().unwrap()), |_| {});
    let mut client = server.with_lan();
    *server.store.away.lock().unwrap() = Some("as asked".into());
    server.store.unproved.store(true, std::sync::atomic::Ordering::SeqCst);
    let told = client.call("realm.list", json!({}));
    let (kind, message) = (&told["error"]["data"]["kind"], told["error"]["message"].as_str().unwrap());
    assert!(kind == "unavailable" && message.contains("the store cannot be reached: as asked"), "{told}");
}

/// Another server takes every shard, and gives the address to somebody else.
fn taken_over(server: &Server, text: &str) {
    let store = RedisStore::open(server.options()).unwrap();
    // As far as Redis knows, the lease of this server ran out.
    for shard in 0..store.info().shards {
        let _: u64 = server.ask(&["HSET", &format!("{{allod}}:{shard}:head"), "lease", "0"]);
    }
    let address: Address = text.parse().unwrap();
    for shard in 0..store.info().shards {
        let (shard, token) = (ShardId(shard), Token(0x7000 + u128::from(shard)));
        let head = wait(store.take(shard, token)).unwrap();
        for network in wait(store.load(shard, token)).unwrap().networks {
            let Some((_, Entry::Held(held))) = network.entries.into_iter().find(|(at, _)| *at == address) else {
                continue;
            };
            let generation = Generation(head.generation.0 + 1);
            let mut next = Reservation::clone(&held);
            next.holder.owner = "other".parse().unwrap();
            next.generation = generation;
            let state = Some(State::Entry(Entry::Held(Arc::new(next))));
            let step = Step { key: Key::Address(address), expect: Some(held.generation.0), state, event: None };
            let act = Act {
                network: network.config.id,
                wall: held.created_at,
                by: "test".into(),
                reason: None,
                transaction: None,
                steps: vec![step],
            };
            let seq = Seq(head.seq.0 + 1);
            let batch = Batch { shard, epoch: head.epoch, token, seq, time: head.time, generation, acts: vec![act] };
            wait(store.commit([batch].into())).unwrap();
        }
    }
    // The other server ends, so that this one can take the register again.
    wait(store.release()).unwrap();
    wait(store.close());
}

/// A paused owner wakes and is asked again for what it granted. Meanwhile the address was given to somebody else, and the
/// repeat writes nothing that the store could refuse.
#[test]
fn an_owner_that_was_replaced_repeats_no_answer_from_its_memory() {
    let Some(redis) = Server::start(&[]) else { return };
    for method in ["ip.allocate", "ip.get"] {
        let () = redis.ask(&["FLUSHALL"]);
        let server = TestServer::over(Arc::new(redis.open().unwrap()), |_| {});
        let mut client = server.with_lan();
        let allocate = json!({"network": "lan", "owner": "web/1"});
        assert_eq!(client.ok("ip.allocate", allocate.clone())["address"], "10.0.0.2");
        assert_eq!(client.ok("ip.allocate", allocate.clone())["address"], "10.0.0.2");
        taken_over(&redis, "10.0.0.2");
        let ask = if method == "ip.get" { json!({"network": "lan", "address": "10.0.0.2"}) } else { allocate };
        let refused = client.call(method, ask.clone())["error"].clone();
        // Refused by the committer, which proves its answers; or by the keeper, which looks after the lease, if that was
        // faster.
        let kind = refused["data"]["kind"].as_str().unwrap_or_default();
        assert!(kind == "not_ready" || kind == "unavailable" && refused["data"]["applied"] == false, "{refused}");
        // Now it has taken the register anew, and reads what is there.
        let answer = client.ok_soon(method, ask);
        if method == "ip.get" {
            assert_eq!(answer["reservation"]["owner"], "other", "{answer}");
        } else {
            assert_eq!(answer["address"], "10.0.0.3", "{answer}");
        }
        drop(client);
        server.running.stop();
    }
}

#[test]
fn one_act_over_networks_of_several_shards_is_made_whole() {
    let Some(redis) = Server::start(&[]) else { return };
    let server = TestServer::over(Arc::new(redis.open().unwrap()), |_| {});
    let mut client = server.client();
    for n in 0..6 {
        let subnets = json!([{"cidr": format!("10.0.{n}.0/24")}]);
        client.ok("network.create", json!({"name": format!("lan{n}"), "subnets": subnets}));
    }
    let ips: Vec<_> = (0..6).map(|n| json!({"network": format!("lan{n}")})).collect();
    let answer = client.ok("ip.acquire", json!({"owner": "web/1", "ips": ips}));
    assert_eq!(answer["reservations"].as_array().map(Vec::len), Some(6), "{answer}");
    drop(client);
    server.running.stop();
    let server = TestServer::over(Arc::new(redis.open().unwrap()), |_| {});
    let mut client = server.client();
    for n in 0..6 {
        let shown = client.ok("ip.get", json!({"network": format!("lan{n}"), "address": format!("10.0.{n}.1")}));
        assert_eq!(shown["reservation"]["owner"], "web/1", "{shown}");
    }
}

/// From the first change on that found no Redis, a probe must direct the requests of others elsewhere, although the lease
/// lasts for some seconds more.
#[test]
fn a_server_that_did_not_reach_redis_is_not_ready_before_it_has_said_so_to_whoever_asked() {
    let Some(mut redis) = Server::start(&[]) else { return };
    let server = TestServer::over(Arc::new(redis.open().unwrap()), |_| {});
    let mut client = server.with_lan();
    let ready = || http(server.running.http, "GET /readyz", b"");
    assert_eq!(ready(), (200, "ready\n".to_owned()));
    redis.kill();
    assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "a"})), "unavailable");
    let (status, why) = ready();
    assert!(status == 503 && why.starts_with("the store cannot be reached: "), "{status} {why}");
}

/// A move that would block Redis for longer is refused with what it would take; nothing is changed.
#[test]
fn a_subnet_with_more_in_it_than_may_move_at_once_stays_where_it_is() {
    let Some(redis) = Server::start(&[]) else { return };
    let options = RedisOptions { move_bytes_max: 4_096, ..redis.options() };
    let server = TestServer::over(Arc::new(RedisStore::open(options).unwrap()), |_| {});
    let mut client = server.client();
    client.ok("network.create", json!({"name": "from", "subnets": [{"cidr": "10.0.0.0/24"}]}));
    client.ok("network.create", json!({"name": "to"}));
    let ips = vec![json!({"network": "from"}); 200];
    client.ok("ip.acquire", json!({"owner": "web/0", "ips": ips}));
    let moves = json!({"network": "from", "subnet": "10.0.0.0/24", "to": "to"});
    let error = client.call("subnet.move", moves)["error"].clone();
    let said = error["message"].as_str().unwrap();
    assert!(error["data"]["kind"] == "in_use" && said.contains("at most 4096 can move at once"), "{error}");
    assert_eq!(client.ok("ip.list", json!({"network": "from", "count_only": true}))["count"], 200);
}

/// Anything else that can be done in parts must not block Redis for longer either, although a commit of Redis may be much
/// longer.
#[test]
fn what_can_be_asked_for_in_parts_keeps_redis_from_nobody_for_longer_than_a_subnet_that_moves() {
    let Some(redis) = Server::start(&[]) else { return };
    let options = RedisOptions { move_bytes_max: 4_096, ..redis.options() };
    let server = TestServer::over(Arc::new(RedisStore::open(options).unwrap()), |_| {});
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let refused = |client: &mut Client, method: &str, params: Value, field: &str, what_to_do: &str| {
        for dry_run in [false, true] {
            let mut params = params.clone();
            if method != "deployment.plan" {
                params["dry_run"] = json!(dry_run);
            }
            let error = client.call(method, params)["error"].clone();
            assert_eq!((&error["data"]["kind"], &error["data"]["field"]), (&json!("invalid_argument"), &json!(field)));
            let said = error["message"].as_str().unwrap();
            assert!(said.contains("at most 4096 are allowed") && said.contains(what_to_do), "{said}");
        }
    };
    let many: Value = (0..100).map(|at| json!({"id": format!("m{at}"), "networks": [{"network": "lan"}]})).collect();
    for method in ["deployment.plan", "deployment.apply"] {
        let many = json!({"deployment": "many", "instances": many});
        refused(&mut client, method, many, "instances", "make several deployments");
    }
    for at in 0..4 {
        let ips = vec![json!({"network": "lan"}); 50];
        let slots = format!("{at}-");
        client.ok("ip.acquire", json!({"scope": "s", "owner": "web", "slot_prefix": slots, "ips": ips}));
    }
    let exact = json!({"scope": "s", "owner": "web", "exact": true, "ips": [{"network": "lan"}, {"network": "dmz"}]});
    refused(&mut client, "ip.acquire", exact, "exact", "owner.release");
    let none = json!({"deployment": "s", "instances": []});
    refused(&mut client, "deployment.apply", none, "instances", "first release what is no longer listed");
    client.ok("scope.release", json!({"scope": "s"}));

    // What several plans left is released by the commit of the last one, for some instances at a time.
    let mut last = Value::Null;
    for plan in ["a", "b", "c", "d", "e", "f"] {
        let of_plan = |at: u8| json!({"id": format!("{plan}{at}"), "networks": [{"network": "lan"}]});
        let wishes: Value = (0..10).map(of_plan).collect();
        last = client.ok("deployment.apply", json!({"deployment": "shop", "instances": wishes}))["plan"].clone();
    }
    let all = json!({"deployment": "shop", "plan": last});
    refused(&mut client, "deployment.commit", all.clone(), "instances", "name some `instances` at a time");
    for plan in ["a", "b", "c", "d", "e"] {
        let some: Vec<String> = (0..10).map(|at| format!("{plan}{at}")).collect();
        client.ok("deployment.commit", json!({"deployment": "shop", "plan": last, "instances": some}));
    }
    client.ok("deployment.commit", all);
    assert_eq!(client.ok("ip.list", json!({"scope": "shop", "count_only": true}))["count"], 10);
}

/// A complete /16 is still within that bound.
#[test]
fn a_full_subnet_of_16_bits_moves_at_once() {
    let Some(redis) = Server::start(&[]) else { return };
    // No time passes by the server's clock, so its lease does not end while a busy machine keeps it from renewing.
    let server = TestServer::over(Arc::new(redis.open().unwrap()), |options| {
        options.clock = Arc::new(ManualClock::new(WallTime(1_772_356_364_031), 7));
    });
    let mut client = server.client();
    client.ok("network.create", json!({"name": "from", "subnets": [{"cidr": "10.0.0.0/16"}]}));
    client.ok("network.create", json!({"name": "to"}));
    let ips = vec![json!({"network": "from"}); 256];
    let text: String = (0..255)
        .map(|n| line(n, "ip.acquire", &json!({"owner": format!("instance-{n:04}"), "ips": ips, "brief": true})))
        .collect();
    client.raw(text);
    for _ in 0..255 {
        let answer = client.answer();
        assert!(answer.get("result").is_some(), "{answer}");
    }
    client.ok("subnet.move", json!({"network": "from", "subnet": "10.0.0.0/16", "to": "to"}));
    let counted = client.ok("ip.list", json!({"network": "to", "count_only": true}));
    assert_eq!(counted["count"], 255 * 256);
}

/// A client that takes its answers slowly delays nobody: what was read is answered, and the register is free.
#[test]
fn a_stop_lets_the_next_owner_begin_before_slow_clients_have_taken_their_answers() {
    let Some(redis) = Server::start(&[]) else { return };
    let server = TestServer::over(Arc::new(redis.open().unwrap()), |options| {
        options.config.server.shutdown_seconds = 300;
        options.config.server.slow_client_seconds = 3_600;
    });
    let mut client = server.with_lan();
    let mut slow = server.client();
    // More than sockets take; and after that more than is read before the answers are taken.
    let asked = (0..400).map(|id| line(id, "rpc.discover", &json!({})));
    let unread = (400..6_000).map(|id| line(id, "server.ping", &json!({})));
    slow.raw(asked.chain(unread).collect::<String>());
    let lease = || -> String { redis.ask(&["HGET", "{allod}:0:head", "lease"]) };
    assert_eq!(client.allocate("before")["created"], true);
    assert_ne!(lease(), "0");
    server.running.stopper().cancel();
    // While the client does not take its answers.
    wait_for("that the register is free", || lease() == "0");
    let next = TestServer::over(Arc::new(redis.open().unwrap()), |_| {});
    assert_eq!(next.client().allocate("before")["created"], false);
    // Its answers are still available, as many as were asked for before the end, and complete.
    let rest = slow.rest();
    assert!(rest.ends_with("\n") && rest.lines().count() > 10, "{} lines", rest.lines().count());
    assert_eq!(server.running.wait(), Ended::Stopped);
}

/// A clock that distinguishes time that passed from time for which the process stood still, as a machine's clock does.
#[derive(Debug)]
struct Passing(ManualClock);

impl Clock for Passing {
    fn boot_ms(&self) -> u64 {
        self.0.boot_ms()
    }

    fn lease_ms(&self) -> u64 {
        SystemClock.boot_ms()
    }

    fn tells_pauses(&self) -> bool {
        true
    }

    fn wall(&self) -> WallTime {
        self.0.wall()
    }

    fn entropy(&self) -> u128 {
        self.0.entropy()
    }
}

/// Redis is gone, which nobody knows before the first request. Then it cannot be reached for longer than the lease lasts.
/// And then it has everything that was sent again meanwhile.
#[test]
fn a_lease_that_falls_due_when_an_outage_has_just_begun_can_be_renewed_behind_it() {
    let Some(redis) = Server::start(&[]) else { return };
    let clock = Arc::new(Passing(ManualClock::new(WallTime(1_772_356_364_031), 7)));
    let its_own = Arc::clone(&clock);
    let server = TestServer::over(Arc::new(redis.open().unwrap()), |options| options.clock = its_own);
    let mut client = server.with_lan();
    let lease = |owner: &str| json!({"network": "lan", "owner": owner, "ttl_seconds": 10});
    client.ok("ip.allocate", lease("a"));
    let address = client.ok("ip.allocate", lease("b"))["address"].clone();
    for _ in 0..3 {
        clock.0.advance_ms(2_500);
        client.ok("ip.get", json!({"network": "lan", "address": address}));
    }
    server.store.unproved.store(true, std::sync::atomic::Ordering::SeqCst);
    server.store.always(Fault::NotApplied);
    let proofs = || server.store.proofs_begun.load(std::sync::atomic::Ordering::SeqCst);
    let before = proofs();
    clock.0.advance_ms(2_600);
    wait_for("that it is seen what is due", || proofs() > before);
    *server.store.away.lock().unwrap() = Some("as asked".into());
    let mut other = server.client();
    for _ in 0..5 {
        clock.0.advance_ms(2_500);
        let asked = || server.store.commits() + proofs();
        let before = asked();
        other.send("ip.get", json!({"network": "lan", "address": address}));
        wait_for("that it looks what time it is", || asked() >= before + 2);
    }
    *server.store.away.lock().unwrap() = None;
    server.store.always(Fault::None);
    server.store.unproved.store(false, std::sync::atomic::Ordering::SeqCst);
    // Whatever the answers are: the server goes on for longer than it needs to see what is due.
    (0..5).for_each(|_| drop(other.answer()));
    std::thread::sleep(std::time::Duration::from_millis(500));
    for owner in ["a", "b"] {
        client.ok_soon("ip.renew", lease(owner));
    }
    // A lease that is not renewed ends all the same.
    for _ in 0..5 {
        clock.0.advance_ms(2_500);
        client.call("ip.get", json!({"network": "lan", "address": address}));
    }
    let is_held = |answer: &Value| answer["result"]["state"] == "held";
    client.ok_after("ip.get", &json!({"network": "lan", "address": address}), 200, is_held);
}
