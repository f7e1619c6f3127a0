//! `allod migrate` as it is typed: a served register goes to Redis and back, is refused where it was, and a move that is
//! killed at any moment is made again.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Client;
use crate::redis::Redis;
use crate::server::{Server, Starting, allod, http_get};

fn run(arguments: &[&str]) -> Output {
    Command::new(allod()).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    assert_eq!(output.stdout, b"", "words go to stderr");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn migrate(from: &str, to: &str) -> String {
    let output = run(&["migrate", from, to, "--yes"]);
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let words = said(&output);
    assert!(words.contains("\nhint: "), "{words}");
    words
}

/// On files, or over Redis; ready once it owns the register.
fn serve(place: &str, beside: &Path) -> Server {
    let note = beside.display().to_string();
    let server = if place.contains("://") {
        Starting::with_arguments(beside, &["serve", "--redis", place, "--data", &note, "--accept-new-store"]).ready()
    } else {
        Server::start(Path::new(place))
    };
    while !http_get(server.http, "/readyz").starts_with("HTTP/1.1 200") {
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

/// What a register shows of itself: everything but where its clock stands.
fn shown(server: &Server) -> Vec<String> {
    let mut lines: Vec<String> = server.allod_ok(&["export"]).lines().map(str::to_owned).collect();
    lines.push(server.allod_ok(&["network", "list", "--deleted", "--format", "json"]));
    for network in ["lan", "six", "leased"] {
        lines.push(server.allod_ok(&["call", "network.usage", &format!("network={network}")]));
    }
    let list = server.allod_ok(&["ip", "list", "--format", "json"]);
    lines.push(serde_json::from_str::<Value>(&list).unwrap().to_string());
    lines.push(server.allod_ok(&["deployment", "get", "shop", "--format", "json"]));
    lines.push(server.allod_ok(&["deployment", "list", "--format", "json"]));
    lines.into_iter().map(|line| without_times(&line)).collect()
}

#[track_caller]
fn same(now: &[String], before: &[String]) {
    let differs = now.iter().zip(before).find(|(now, before)| now != before);
    assert!(differs.is_none() && now.len() == before.len(), "{differs:#?}");
}

/// Without when a lease ends and what is left of it, which ran while the servers ran, and without where the history stood.
fn without_times(line: &str) -> String {
    let end = |rest: &str| rest.find([',', '}']).unwrap_or(rest.len());
    let mut text = line.to_owned();
    for name in ["\"expires_at\":", "\"expires_in_seconds\":", "\"cursor\":"] {
        let mut parts = text.split(name);
        let first = parts.next().unwrap_or_default().to_owned();
        text = parts.fold(first, |text, part| text + name + &part[end(part)..]);
    }
    text
}

/// Where a register goes from and to: a directory, Redis, another directory.
struct Moving {
    directory: TempDir,
    redis: Redis,
    first: String,
    url: String,
    last: String,
    /// Where a server over Redis keeps its note.
    beside: PathBuf,
}

impl Moving {
    /// The first one was filled, and showed this. None where there is no `redis-server`.
    async fn begin() -> Option<(Self, Server, Vec<String>)> {
        let directory = tempfile::tempdir().unwrap();
        let redis = Redis::start(directory.path(), &[])?;
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (first, url, last) = (path("first"), redis.url(), path("last"));
        let beside = directory.path().join("beside");
        let server = serve(&first, &beside);
        fill(&server).await;
        let before = shown(&server);
        Some((Self { directory, redis, first, url, last, beside }, server, before))
    }

    /// A directory that is not there yet.
    fn elsewhere(&self) -> String {
        self.directory.path().join("elsewhere").display().to_string()
    }
}

/// Networks, subnets, pools, reserved ranges, blocks, both families, leases, cooldowns, MACs, a network that was deleted
/// while it held something, and a deployment of which a plan waits for its commit: promised, obsolete and new addresses.
async fn fill(server: &Server) {
    let mut client = Client::connect(server.address).await.unwrap();
    for network in [
        json!({"name": "lan", "cooldown_seconds": 86_400, "subnets": [{"cidr": "10.0.0.0/16", "gateway": "10.0.0.1",
            "pools": [{"range": "10.0.1.0-10.0.9.255", "name": "machines"}]}, {"cidr": "10.9.0.0/24"}]}),
        json!({"name": "six", "subnets": [{"cidr": "2001:db8::/64", "gateway": "fe80::1"}]}),
        json!({"name": "leased", "policy": "oldest", "subnets": [{"cidr": "10.20.0.0/20"}]}),
        json!({"name": "old", "subnets": [{"cidr": "10.30.0.0/24"}]}),
    ] {
        client.call("network.create", network).await.ok();
    }
    let reserved = json!({"network": "lan", "range": "10.0.2.0/28", "note": "printers"});
    client.call("reserved.add", reserved).await.ok();
    let mut calls = Vec::new();
    for at in 0..200 {
        let owner = format!("vm/{at}");
        calls.push(json!({"network": "lan", "owner": owner, "scope": format!("team-{}", at % 7)}));
        calls.push(json!({"network": "six", "owner": owner}));
        calls.push(json!({"network": "leased", "owner": owner, "ttl_seconds": 86_400}));
    }
    calls.push(json!({"network": "six", "owner": "block", "prefix_length": 112}));
    calls.push(json!({"network": "leased", "owner": "block", "prefix_length": 26}));
    calls.push(json!({"network": "lan", "owner": "nic", "mac": "aa:bb:cc:00:00:01", "note": "the switch"}));
    calls.push(json!({"network": "old", "owner": "still here"}));
    let allocate = |params| ("ip.allocate".to_owned(), params);
    for answer in client.call_all(calls.into_iter().map(allocate).collect()).await {
        answer.ok();
    }
    for at in 0..20 {
        let release = json!({"network": "lan", "owner": format!("vm/{at}"), "scope": format!("team-{}", at % 7)});
        client.call("ip.release", release).await.ok();
    }
    client.call("network.delete", json!({"network": "old", "force": true})).await.ok();
    let first = client.call("deployment.apply", deployment(["10.9.0.10", "10.9.0.20", "10.9.0.30"])).await.ok();
    client.call("deployment.commit", json!({"deployment": "shop", "plan": first["plan"]})).await.ok();
    client.call("deployment.apply", deployment(["10.9.0.20", "10.9.0.10", "10.9.0.40"])).await.ok();
}

/// Three instances with these addresses, and one that is picked.
fn deployment(addresses: [&str; 3]) -> Value {
    let named =
        |(at, address)| json!({"id": format!("web/{at}"), "networks": [{"network": "lan", "address": address}]});
    let picked = json!({"id": "db/0", "networks": [{"network": "six"}]});
    let instances: Vec<Value> = addresses.into_iter().enumerate().map(named).chain([picked]).collect();
    json!({"deployment": "shop", "instances": instances})
}

/// The plan that was not committed is known, and committed now: two swap, and what the third had is let go.
async fn commits_what_was_applied_before(server: &Server) {
    let mut client = Client::connect(server.address).await.unwrap();
    let before = client.call("deployment.get", json!({"deployment": "shop"})).await.ok();
    assert!(before["uncommitted_since"].is_string(), "{before}");
    let again = client.call("deployment.apply", deployment(["10.9.0.20", "10.9.0.10", "10.9.0.40"])).await.ok();
    assert_eq!(again["plan"], before["plan"], "the same wishes are the same plan");
    let commit = json!({"deployment": "shop", "plan": before["plan"]});
    let released = client.call("deployment.commit", commit).await.ok()["released"].clone();
    assert_eq!(released, json!([{"network": "lan", "address": "10.9.0.30"}]));
    let now = client.call("deployment.get", json!({"deployment": "shop"})).await.ok();
    let of = |id: &str| {
        let found = now["instances"].as_array().unwrap().iter().find(|instance| instance["id"] == id).unwrap();
        (found["reservations"][0]["address"].clone(), found["obsolete"].as_array().unwrap().len())
    };
    assert_eq!(["web/0", "web/1", "web/2"].map(of), ["10.9.0.20", "10.9.0.10", "10.9.0.40"].map(|at| (json!(at), 0)));
    assert!(now["uncommitted_since"].is_null(), "{now}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_goes_to_redis_and_back_and_is_served_in_one_place_only() {
    let Some((moving, server, before)) = Moving::begin().await else { return };
    let Moving { first, last, url, beside, .. } = &moving;
    let words = refused(&["migrate", first, url, "--yes"]);
    assert!(words.contains("in use by process") && words.contains("stop the server"), "{words}");
    server.stop();

    // Nobody is there to be asked.
    let words = refused(&["migrate", first, url]);
    assert!(words.contains("--yes") && words.contains("--dry-run"), "{words}");
    let words = said(&run(&["migrate", first, url, "--dry-run"]));
    assert!(words.contains("4 shards") && words.contains("nothing was changed"), "{words}");
    let output = run(&["migrate", first, &moving.elsewhere(), "--shards", "9", "--dry-run"]);
    assert!(said(&output).contains("9 shards"), "{}", said(&output));
    let words = refused(&["migrate", first, first, "--dry-run"]);
    assert!(words.contains("is not empty") && words.contains("hint: name an empty directory"), "{words}");

    let words = migrate(first, url);
    assert!(
        words.contains("moved and compared: 4 networks")
            && words.contains("589 reservations, 20 addresses cooling or declined, 1 deployment"),
        "{words}"
    );
    assert!(words.contains(&format!("allod serve --redis {url}")), "{words}");
    let words = refused(&["serve", "--data", first, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    assert!(
        words.contains("was moved to redis://127.0.0.1:") && words.contains("start the server on that one"),
        "{words}"
    );
    let (_, hint) = words.split_once("\nhint: ").unwrap();
    assert!(hint.starts_with(&format!("start the server there: `allod serve --redis {url}")), "{words}");
    let words = refused(&["migrate", first, url, "--dry-run"]);
    assert!(words.contains("was moved to redis://127.0.0.1:"), "{words}");
    // Who copies it each night must hear of it.
    let words = refused(&["backup", &moving.elsewhere(), "--data", first]);
    assert!(
        words.contains("was moved to redis://127.0.0.1:") && words.contains("back up the register where"),
        "{words}"
    );

    let server = serve(url, beside);
    same(&shown(&server), &before);
    let words = refused(&["migrate", url, last, "--yes"]);
    assert!(words.contains("node ") && words.contains("stop every server"), "{words}");
    let words = refused(&["migrate", first, last, "--yes"]);
    assert!(words.contains("was moved to"), "{words}");
    server.stop();
    // Also with the directory that it was moved from, as that of the node.
    serve(url, Path::new(first)).stop();

    // Also from the directory that noted the register in Redis.
    migrate(url, last);
    // Nor would it be moved to anywhere else, though nothing is in the way there.
    for to in [url, &moving.elsewhere()] {
        for how in ["--dry-run", "--yes"] {
            let words = refused(&["migrate", url, to, how]);
            assert!(words.contains("was moved to the directory"), "{to} {how}: {words}");
        }
    }
    let words = refused(&["serve", "--redis", url, "--data", &moving.elsewhere(), "--listen", "127.0.0.1:0"]);
    assert!(words.contains("was moved to the directory") && words.contains("last"), "{words}");
    let server = serve(last, beside);
    same(&shown(&server), &before);
    commits_what_was_applied_before(&server).await;
    let granted: Value =
        serde_json::from_str(&server.allod_ok(&["ip", "allocate", "lan", "--owner", "new", "--format", "json"]))
            .unwrap();
    let second = granted["generation"].as_u64().unwrap() >> 20;
    assert!(second > 1_700_000_000, "generations go on above all that were given: {granted}");
    server.stop();
}

/// Begins a move, and kills it after so many milliseconds. Did that come before its end?
fn is_killed_after(from: &str, to: &str, ms: u64) -> bool {
    let mut child = Command::new(allod())
        .args(["migrate", from, to, "--yes"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(ms));
    child.kill().unwrap();
    child.wait().unwrap().code().is_none()
}

/// Killed at random moments, the move is made again until it is whole; at no moment both are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_killed_again_and_again_is_whole_in_the_end() {
    let Some((moving, server, before)) = Moving::begin().await else { return };
    let Moving { first, last, url, beside, redis, .. } = &moving;
    server.stop();
    let mut random = SmallRng::seed_from_u64(11);
    for (from, to) in [(first, url), (url, last)] {
        let mut killed = 0;
        for longest in [60, 120, 250, 400, 800, 1_500] {
            killed += u32::from(is_killed_after(from, to, random.random_range(5..longest)));
            // Its lease runs out at once: that it is waited for is shown by another test.
            redis.ask(&["DEL", "{allod}:nodes"]);
            let heads =
                "for _, key in ipairs(redis.call('KEYS', '*:head')) do redis.call('HSET', key, 'lease', '0') end";
            redis.ask(&["EVAL", heads, "0"]);
        }
        assert!(killed > 0, "no kill met the move");
        let output = run(&["migrate", from, to, "--yes"]);
        let words = said(&output);
        assert!(output.status.success() || words.contains("was moved to"), "{words}");
        let server = serve(to, beside);
        same(&shown(&server), &before);
        server.stop();
        let words = refused(&["migrate", from, &moving.elsewhere(), "--yes"]);
        assert!(words.contains("was moved to"), "{words}");
    }
}

/// Nobody is there to end its lease, and it is not renewed: it is waited for, and so is that of a move that was broken off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_whose_last_node_died_is_moved() {
    let Some((moving, server, before)) = Moving::begin().await else { return };
    let Moving { first, last, url, beside, .. } = &moving;
    server.stop();
    migrate(first, url);
    serve(url, beside).kill();
    // Into its copying, or before: it is waited for either way.
    is_killed_after(url, last, 6_000);
    let output = run(&["migrate", url, last, "--yes"]);
    let words = said(&output);
    assert!(output.status.success() || words.contains("was moved to"), "{words}");
    let server = serve(last, beside);
    same(&shown(&server), &before);
    server.stop();
}

/// A server that keeps its register there, with this directory; ready, and nothing was accepted.
fn serve_over(url: &str, data: &str) -> Server {
    Starting::with_arguments(Path::new(data), &["serve", "--redis", url, "--data", data]).ready()
}

/// A register in files of which an address is granted, and the register it became in this database of Redis.
fn moved(directory: &Path, name: &str, url: &str) -> String {
    let data = directory.join(name);
    let server = Server::start(&data);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "a"]);
    server.stop();
    let data = data.display().to_string();
    migrate(&data, url);
    data
}

/// It has started over Redis with this directory never before: what it was moved to is all that it knows.
#[test]
fn a_node_whose_files_were_moved_to_redis_begins_no_register_where_that_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let url = redis.url();
    let other = format!("{}1", url.strip_suffix('0').unwrap());
    let data = moved(directory.path(), "data", &url);
    let is_refused = |url: &str| {
        let arguments = ["serve", "--redis", url, "--data", &data];
        let started = Starting::with_arguments(Path::new(&data), &arguments).ready_or_ended();
        let Err((code, words)) = started else { panic!("it began a register") };
        assert!(code == "code 1" && words.contains("was moved to redis://127.0.0.1:"), "{code}: {words}");
        assert!(words.contains("MOVED says so") && words.contains("has no register under `allod`"), "{words}");
    };
    is_refused(&other);
    redis.ask(&["FLUSHALL"]);
    is_refused(&url);
    let doctor = run(&["doctor", "--redis", &url, "--data", &data, "--format", "json"]);
    let words = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(words.contains("none under `allod`, and ") && words.contains("Redis was emptied"), "{words}");

    let data = moved(directory.path(), "again", &url);
    let server = serve_over(&url, &data);
    assert!(server.allod_ok(&["ip", "list"]).contains("10.0.0.1"));
    server.stop();
    let arguments = ["serve", "--redis", &other, "--data", &data, "--accept-new-store"];
    Starting::with_arguments(Path::new(&data), &arguments).ready().stop();
}

/// A start is refused there, and a move that forgets what the node had noted would be a way around that.
#[test]
fn a_redis_that_went_back_is_not_moved_into_the_directory_that_knows_of_more() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut redis) = Redis::start(directory.path(), &[]) else { return };
    let url = redis.url();
    let [data, elsewhere] = ["data", "elsewhere"].map(|name| directory.path().join(name).display().to_string());
    let server = serve_over(&url, &data);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    redis.ask(&["SAVE"]);
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "b"]);
    server.stop();
    redis.crash();
    let noted = Path::new(&data).join("REDIS");
    for places in [&[&*url, &*data][..], &[&url, &elsewhere, "--node-data", &data]] {
        let words = refused(&[&["migrate", "--yes"], places].concat());
        assert!(words.contains("went back behind") && words.contains("--accept-rollback"), "{words}");
        assert!(words.contains("hint: nothing was changed: bring the data of Redis back"), "{words}");
        assert!(noted.exists() && !Path::new(&elsewhere).exists(), "what tells of it stays");
    }
    let words = refused(&["migrate", &url, &data, "--node-data", &elsewhere, "--yes"]);
    assert!(words.contains("has no file `REDIS`") && words.contains("--node-data DIR"), "{words}");
    let output = run(&["migrate", &url, &data, "--accept-rollback", "--yes"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(!noted.exists());
    Server::start(Path::new(&data)).stop();
}

/// A register in Redis and one in files, each served with what another one acknowledged and nobody brought.
#[test]
fn what_was_acknowledged_in_another_register_and_lies_beside_this_one_is_told_before_anything_is_granted() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let [node, files] = ["node", "files"].map(|name| directory.path().join(name));
    let node_text = node.display().to_string();
    serve_over(&redis.url(), &node_text).stop();
    Server::start(&files).stop();
    let title = "allod: changes that were acknowledged while too few replicas of Redis had them\n";
    let redo = format!("REDO-{:032x}", 15);
    let over = ["serve".to_owned(), "--redis".to_owned(), redis.url(), "--data".to_owned(), node_text];
    let starts = || [Starting::with_arguments(&node, &over), Starting::new(&files)];
    for data in [&node, &files] {
        std::fs::write(data.join(&redo), title).unwrap();
    }
    for start in starts() {
        start.ready().stop();
    }
    for data in [&node, &files] {
        std::fs::write(data.join(&redo), format!("{title}something")).unwrap();
    }
    for start in starts() {
        let Err((code, words)) = start.ready_or_ended() else { panic!("it grants what is in use") };
        assert!(code == "code 1" && words.contains(&redo) && words.contains("were acknowledged in"), "{code}: {words}");
    }
    let hint = std::fs::read_to_string(files.with_extension("log")).unwrap();
    assert!(hint.contains(&format!("move `{redo}` elsewhere first")) && hint.contains("allod ip claim"), "{hint}");
    let doctor = run(&["doctor", "--data", &files.display().to_string(), "--format", "json"]);
    let words = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(words.contains("were acknowledged in a register in Redis"), "{words}");
}

/// The first move broke off, and the register went elsewhere then: nobody says for ever to say again what is refused.
#[test]
fn a_copy_that_broke_off_of_a_register_that_is_elsewhere_by_now_is_told_with_how_it_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let (url, to) = (redis.url(), directory.path().join("last").display().to_string());
    let from = moved(directory.path(), "first", &url);
    let notice = format!("unfinished the directory {}", Path::new(&from).canonicalize().unwrap().display());
    redis.ask(&["HSET", "{allod}:register", "moved", &notice]);
    std::fs::write(Path::new(&from).join("MOVED"), format!("moved {:032x} {:032x} 1 the directory {to}\n", 7, 7))
        .unwrap();
    let words = refused(&["migrate", &from, &url, "--yes"]);
    assert!(words.contains(&format!("was moved to the directory {to}")), "{words}");
    let data = directory.path().join("data").display().to_string();
    let removal = "remove the copy (`redis-cli --scan --pattern '{allod}:*' | xargs redis-cli del`";
    let words =
        refused(&["serve", "--redis", &url, "--data", &data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    assert!(words.contains("moved elsewhere since") && words.contains(removal), "{words}");
    let looked = run(&["doctor", "--redis", &url, "--data", &data, "--format", "json"]);
    assert!(String::from_utf8_lossy(&looked.stdout).contains(removal), "{looked:?}");
}

/// The first one was killed when its old place was closed already: what it left is all that there is.
#[test]
fn a_move_from_elsewhere_removes_nothing_of_what_another_move_left_unfinished() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let path = |name: &str| directory.path().join(name);
    let text = |name: &str| path(name).display().to_string();
    let other = text("other");
    Server::start(&path("other")).stop();
    for (name, to) in [("first", text("last")), ("second", redis.url())] {
        let from = moved(directory.path(), name, &to);
        let notice = format!("unfinished the directory {}", path(name).canonicalize().unwrap().display());
        if to.contains("://") {
            redis.ask(&["HSET", "{allod}:register", "moved", &notice]);
        } else {
            std::fs::write(Path::new(&to).join("MOVED"), format!("{notice}\n")).unwrap();
        }
        for how in ["--dry-run", "--yes"] {
            let words = refused(&["migrate", &other, &to, how]);
            assert!(words.contains(&format!("finish that move first (`allod migrate {from} TO`)")), "{words}");
        }
        let words = migrate(&from, &to);
        assert!(words.contains("finished what was moved"), "{words}");
        let server = if to.contains("://") { serve_over(&to, &from) } else { Server::start(Path::new(&to)) };
        assert!(server.allod_ok(&["ip", "list"]).contains("10.0.0.1"));
        server.stop();
    }
}
