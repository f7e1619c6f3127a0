//! `allod migrate` as it is typed: a register moves to Redis and back, is refused in its old place, and a move that is
//! killed at any moment can be made again.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Client;
use crate::redis::Redis;
use crate::server::{Server, Starting, allod};

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

/// A server on files or over Redis; it owns the register when this returns.
fn serve(place: &str, beside: &Path) -> Server {
    let note = beside.display().to_string();
    let starting = if place.contains("://") {
        Starting::with_arguments(beside, &["serve", "--redis", place, "--data", &note, "--accept-new-store"])
    } else {
        Starting::new(Path::new(place))
    };
    starting.owning()
}

/// What a register shows, except the state of its clock.
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

/// Removes what changes while the servers run: the end of a lease, what is left of it, the checksum of the export, and the
/// position in the history.
fn without_times(line: &str) -> String {
    let end = |rest: &str| rest.find([',', '}']).unwrap_or(rest.len());
    let mut text = line.to_owned();
    for name in ["\"expires_at\":", "\"expires_in_seconds\":", "\"crc32\":", "\"cursor\":"] {
        let mut parts = text.split(name);
        let first = parts.next().unwrap_or_default().to_owned();
        text = parts.fold(first, |text, part| text + name + &part[end(part)..]);
    }
    text
}

/// The places between which a register moves: a directory, Redis, another directory.
struct Moving {
    directory: TempDir,
    redis: Redis,
    first: String,
    url: String,
    last: String,
    /// The directory of a server over Redis.
    beside: PathBuf,
}

impl Moving {
    /// Fills a register in the first directory; also returns its server and what it shows. None if there is no `redis-server`.
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

    /// A directory that does not exist yet.
    fn elsewhere(&self) -> String {
        self.directory.path().join("elsewhere").display().to_string()
    }
}

/// Networks, subnets, pools, reserved ranges, blocks, both families, leases, cooldowns, MACs, a network that was deleted
/// while it held something, and a deployment with a plan that waits for its commit: promised, obsolete and new addresses.
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

/// Three instances with these addresses, and one whose address is picked.
fn deployment(addresses: [&str; 3]) -> Value {
    let named =
        |(at, address)| json!({"id": format!("web/{at}"), "networks": [{"network": "lan", "address": address}]});
    let picked = json!({"id": "db/0", "networks": [{"network": "six"}]});
    let instances: Vec<Value> = addresses.into_iter().enumerate().map(named).chain([picked]).collect();
    json!({"deployment": "shop", "instances": instances})
}

/// The plan that was not committed is known, and is committed now: two instances swap, and what the third one had is released.
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

    // There is no terminal on which to ask.
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
    is_said_to_be_there(first, url, &format!("allod serve --redis {url}"));
    // Whoever backs up the old place each night must hear of the move.
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
    // The directory from which the register was moved may be that of the node.
    serve(url, Path::new(first)).stop();

    // Also from the directory that noted the register in Redis.
    let words = migrate(url, last);
    let to = format!("the directory {}", Path::new(last).canonicalize().unwrap().display());
    assert!(words.contains(&format!("from  {url}, keys")) && words.contains(&format!("to    {to}, ")), "{words}");
    is_said_to_be_there(url, last, &format!("allod serve --data {last}"));
    // A register that was moved is not moved again, even to a place where nothing is in the way.
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

/// A move is asked for again after it finished, also as a dry run.
#[track_caller]
fn is_said_to_be_there(from: &str, to: &str, serve: &str) {
    for how in ["--dry-run", "--yes"] {
        let output = run(&["migrate", from, to, how]);
        let words = said(&output);
        assert!(output.status.success() && words.contains("the register was moved before"), "{how}: {words}");
        assert!(words.contains(&format!("Serve it: {serve}")), "{how}: {words}");
    }
}

#[test]
fn a_redis_that_may_throw_records_away_is_to_be_set_right_and_nobody_is_told_to_look_for_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &["--maxmemory-policy", "allkeys-lru"]) else { return };
    let (url, data) = (redis.url(), directory.path().join("data"));
    Server::start(&data).stop();
    for how in ["--dry-run", "--yes"] {
        let words = refused(&["migrate", data.to_str().unwrap(), &url, how]);
        assert!(words.contains("set `maxmemory-policy noeviction`"), "{words}");
        let (_, hint) = words.split_once("\nhint: ").unwrap();
        assert!(hint.starts_with("put that right in Redis") && !hint.contains("empty"), "{words}");
    }
}

/// Starts a move, and kills it after this many milliseconds. Was it still running?
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

/// The move is killed at random moments and made again until it is complete; at no moment can both places be served.
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
            // The leases are ended at once; another test shows that a move waits for them.
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

/// Nobody ends or renews the lease of the dead node: the move waits until it runs out, as it does for the lease of an
/// earlier move that broke off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_whose_last_node_died_is_moved() {
    let Some((moving, server, before)) = Moving::begin().await else { return };
    let Moving { first, last, url, beside, .. } = &moving;
    server.stop();
    migrate(first, url);
    serve(url, beside).kill();
    // Whether the kill comes during the copying or before, the next move waits.
    is_killed_after(url, last, 6_000);
    let output = run(&["migrate", url, last, "--yes"]);
    let words = said(&output);
    assert!(output.status.success() || words.contains("was moved to"), "{words}");
    let server = serve(last, beside);
    same(&shown(&server), &before);
    server.stop();
}

/// A server over this Redis with this directory; it starts without `--accept-new-store`.
fn serve_over(url: &str, data: &str) -> Server {
    Starting::with_arguments(Path::new(data), &["serve", "--redis", url, "--data", data]).ready()
}

/// Makes a register in files, grants an address in it, and moves it to this URL. Returns the old directory.
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

/// The node never started over Redis with this directory: it knows only where the files were moved.
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
    assert!(words.contains("none under `allod`, but ") && words.contains("Redis was emptied"), "{words}");

    let data = moved(directory.path(), "again", &url);
    let server = serve_over(&url, &data);
    assert!(server.allod_ok(&["ip", "list"]).contains("10.0.0.1"));
    server.stop();
    let arguments = ["serve", "--redis", &other, "--data", &data, "--accept-new-store"];
    Starting::with_arguments(Path::new(&data), &arguments).ready().stop();
}

/// A start is refused there. A move that forgot what the node had noted would be a way around that.
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

/// A register in Redis, and one in files. Next to each lie changes that were acknowledged in another register and never
/// brought to it.
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

/// The first move broke off, and then the register was moved elsewhere: nobody must be told for ever to repeat a move that
/// is refused.
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

/// The move was killed before its last step. Who does not reach the new place is told to finish the move there, and not that
/// the register went elsewhere, which would have the unfinished copy removed, or a second register restored.
#[test]
fn a_move_that_broke_off_before_its_last_step_is_not_given_up_while_the_new_place_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut redis) = Redis::start(directory.path(), &[]) else { return };
    let url = redis.url();
    let from = moved(directory.path(), "first", &url);
    let notice = format!("unfinished the directory {}", Path::new(&from).canonicalize().unwrap().display());
    redis.ask(&["HSET", "{allod}:register", "moved", &notice]);
    redis.ask(&["SAVE"]);
    redis.end();
    for how in ["--dry-run", "--yes"] {
        let words = refused(&["migrate", &from, &url, how]);
        let (problem, hint) = words.split_once("\nhint: ").unwrap();
        assert!(problem.contains("whether the move is finished cannot be seen"), "{words}");
        assert!(!problem.contains("start the server on that one"), "{words}");
        assert!(hint.contains("which finishes the move; remove nothing"), "{words}");
    }
    redis.begin();
    let words = migrate(&from, &url);
    assert!(words.contains("finished what was moved"), "{words}");
}

/// The first move was killed after it had closed the old place, so what it left is all that there is.
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
