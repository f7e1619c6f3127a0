//! The number of shards: a register keeps the number with which it was begun, whoever serves it without naming one.

use std::path::Path;

use serde_json::Value;

use crate::redis::Redis;
use crate::server::{Server, Starting};

/// Starts a server on this directory, over this Redis if there is one, with this number of shards if there is one.
fn begin(data: &Path, redis: Option<&str>, shards: Option<&str>) -> Starting {
    let note = data.display().to_string();
    let mut arguments = vec!["serve", "--data", &note];
    arguments.extend(redis.iter().flat_map(|url| ["--redis", *url]));
    let set = shards.map(|shards| ("ALLOD_STORE__SHARDS".to_owned(), shards.to_owned()));
    Starting::with_environment(data, &arguments, set.into_iter().collect())
}

fn serve(data: &Path, redis: Option<&str>, shards: Option<&str>) -> Server {
    begin(data, redis, shards).owning()
}

/// What `doctor` says about the register, whatever the configuration says.
fn register(server: &Server, data: &Path, redis: Option<&str>) -> String {
    let data = data.display().to_string();
    let mut arguments = vec!["doctor", "--data", &data, "--format", "json"];
    arguments.extend(redis.iter().flat_map(|url| ["--redis", *url]));
    let found: Value = serde_json::from_slice(&server.allod(&arguments).stdout).unwrap();
    let checks = found["checks"].as_array().unwrap().iter();
    let mut of_register = checks.filter(|check| check["check"] == "register");
    let check = of_register.next().unwrap();
    assert_eq!(check["state"], "ok", "{found}");
    check["seen"].as_str().unwrap().to_owned()
}

/// Makes networks in several shards, each with something in it.
fn fill(server: &Server) {
    for at in 0..12 {
        let name = format!("net-{at}");
        server.allod_ok(&["network", "create", &name, "--subnet", &format!("10.{at}.0.0/24")]);
        server.allod_ok(&["ip", "allocate", &name, "--owner", "web/0"]);
    }
}

/// What is there, without the position in the history.
fn shown(server: &Server) -> [Value; 2] {
    [("network", "networks"), ("ip", "reservations")].map(|(noun, rows)| {
        let list = server.allod_ok(&[noun, "list", "--format", "json"]);
        serde_json::from_str::<Value>(&list).unwrap()[rows].take()
    })
}

fn keeps_what_it_has(data: &Path, elsewhere: &Path, redis: Option<&str>, emptied: impl Fn()) {
    let server = serve(data, redis, Some("16"));
    fill(&server);
    let filled = shown(&server);
    assert!(filled.iter().all(|rows| rows.as_array().unwrap().len() == 12), "{filled:?}");
    let seen = register(&server, data, redis);
    assert!(seen.contains("16 shards"), "{seen}");
    server.stop();

    let server = serve(data, redis, None);
    assert_eq!(shown(&server), filled);
    assert_eq!(register(&server, data, redis), seen);
    server.allod_ok(&["ip", "allocate", "net-0", "--owner", "web/1"]);
    server.stop();
    let said = begin(data, redis, Some("4")).failed();
    assert!(said.contains("16 shards") && said.contains("the configuration says 4"), "{said}");
    assert!(said.contains("leave `store.shards` out"), "{said}");
    serve(data, redis, Some("16")).stop();

    emptied();
    let server = serve(elsewhere, redis, None);
    let seen = register(&server, elsewhere, redis);
    assert!(seen.contains(", 4 shards"), "{seen}");
    server.stop();
}

#[test]
fn files_of_sixteen_shards_go_on_without_a_setting_and_new_ones_have_four() {
    let directory = tempfile::tempdir().unwrap();
    keeps_what_it_has(&directory.path().join("data"), &directory.path().join("new"), None, || ());
}

#[test]
fn over_redis_a_register_of_sixteen_shards_goes_on_without_a_setting_and_a_new_one_has_four() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &["--appendonly", "yes"]) else { return };
    let (data, elsewhere) = (directory.path().join("data"), directory.path().join("new"));
    keeps_what_it_has(&data, &elsewhere, Some(&redis.url()), || drop(redis.text(&["FLUSHALL"])));
}
