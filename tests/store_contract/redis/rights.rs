//! A user of Redis loses rights while the store runs, or has fewer of them on the server to which a failover leads.

use std::collections::BTreeMap;

use allod::store::redis::{RedisOptions, RedisStore};

use super::*;

/// All commands that a script may call once it has begun to write.
const LATER: [&str; 12] =
    ["xadd", "xrange", "xtrim", "hset", "hdel", "hincrby", "hlen", "hgetall", "zadd", "zrem", "exists", "del"];

fn user(server: &Server, right: &str) {
    let () = server.ask(&["ACL", "SETUSER", "allod", right]);
}

/// A store with a Redis user of its own, and shards 0 and 1 with something in them.
fn begun() -> Option<(Begun, Head)> {
    let server = Server::start(&[])?;
    let () = server.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all"]);
    let url = server.url().replace("redis://", "redis://allod:secret@");
    let store = RedisStore::open(RedisOptions { url, ..server.options() }).unwrap();
    let head = wait(store.take(ShardId(0), token(1))).unwrap();
    let mut other = wait(store.take(ShardId(1), token(2))).unwrap();
    let mut begun = Begun { server, store, head };
    begun.commit(vec![config_step(network(1)), put("10.0.0.1", 5, None), put("10.0.2.0/28", 6, None)]).unwrap();
    let next = batch(&other, 1, vec![config_step(network(2))]);
    let committed = wait(begun.store.commit([next.clone()].into())).unwrap();
    follow(&mut other, &next, &committed[0]);
    Some((begun, other))
}

/// Everything that is stored there, byte for byte.
pub fn lies(server: &Server) -> BTreeMap<String, Vec<u8>> {
    let mut connection = server.connection();
    let mut dump = |key: String| {
        let bytes = ::redis::cmd("DUMP").arg(&key).query::<Option<Vec<u8>>>(&mut connection).unwrap();
        (key, bytes.unwrap_or_default())
    };
    // Nodes and leases are no part of a change.
    let keys = server.ask::<Vec<String>>(&["KEYS", "{allod}:*"]);
    keys.into_iter().map(&mut dump).collect()
}

/// A script is not rolled back: a refusal in its middle would leave the log ahead of the head, and do half of what belongs
/// together.
#[test]
fn a_right_that_is_taken_away_stops_a_change_before_anything_of_it_is_written() {
    let Some((mut begun, mut other)) = begun() else { return };
    for (n, command) in (0u64..).zip(LATER) {
        // New records and hashes, removed ones, a block: everything that a script does.
        let steps = vec![put(&format!("10.0.9.{n}"), 9, None), put(&format!("10.1.{n}.0/28"), 9, None)];
        let gone = if n == 0 { vec![gone("10.0.0.1", 5)] } else { vec![gone(&format!("10.0.9.{}", n - 1), 9)] };
        let one = batch(&begun.head, 0, [steps, gone].concat());
        let two = batch(&other, 1, vec![put(&format!("10.2.{n}.1"), 9, None)]);
        let before = lies(&begun.server);
        user(&begun.server, &format!("-{command}"));
        let refused = wait(begun.store.commit([one.clone(), two.clone()].into()));
        let Err(CommitError::NotApplied { cause: StoreError::Io { source, .. } }) = refused else {
            panic!("{command}: {refused:?}")
        };
        assert!(source.to_string().to_lowercase().contains(&format!("'{command}'")), "{source}");
        assert_eq!(lies(&begun.server), before, "{command}: something of it was written");
        user(&begun.server, &format!("+{command}"));
        let committed = wait(begun.store.commit([one.clone(), two.clone()].into())).unwrap();
        follow(&mut begun.head, &one, &committed[0]);
        follow(&mut other, &two, &committed[1]);
    }
    assert_eq!(begun.held().len(), 2 + LATER.len());
}

/// The notice of a move is in the register's key and in every head.
#[test]
fn a_right_that_is_taken_away_leaves_no_move_half_noted() {
    use allod::store::moving::{Movable, MoveNotice, Origin};
    let Some((begun, _)) = begun() else { return };
    let notice = Some(MoveNotice::Unfinished { from: Origin::of(7, "elsewhere") });
    for command in ["hset", "hdel"] {
        user(&begun.server, &format!("-{command}"));
        let before = lies(&begun.server);
        assert!(wait(begun.store.post(notice.clone(), Vec::new())).is_err());
        assert_eq!(lies(&begun.server), before, "{command}: half of it was noted");
        user(&begun.server, &format!("+{command}"));
    }
    wait(begun.store.post(notice, Vec::new())).unwrap();
}

/// Redis says neither which user lacks the right nor which command was refused: `The user executing the script can't run
/// this command`.
#[test]
fn a_right_that_is_missing_is_told_with_its_user_its_script_and_all_that_it_needs() {
    let Some((begun, _)) = begun() else { return };
    for (script, command, ask) in [
        ("lease", "time", (|store| wait(store.renew())) as fn(&RedisStore) -> Result<(), StoreError>),
        ("nodes", "hgetall", |store| wait(store.meet(true)).map(drop)),
        ("take", "hset", |store| wait(store.take(ShardId(0), token(7))).map(drop)),
    ] {
        user(&begun.server, &format!("-{command}"));
        let Err(StoreError::Io { source, .. }) = ask(&begun.store) else { panic!("{script}") };
        user(&begun.server, &format!("+{command}"));
        let said = source.to_string();
        for part in
            ["user `allod`", &format!("script `{script}`"), "ACL SETUSER allod ~{allod}:*", &format!("+{command}")]
        {
            assert!(said.contains(part), "{script}: {said}");
        }
    }
    // A command that no script calls.
    user(&begun.server, "-time");
    let Err(StoreError::Io { source, .. }) = wait(begun.store.holder()) else { panic!("it may be asked") };
    let said = source.to_string();
    assert!(said.contains("user `allod` lacks a right") && said.contains("'time'"), "{said}");
}

/// All commands of the script `probe`, by which a start and a doctor try what the others do.
const PROBED: [&str; 20] = [
    "del",
    "exists",
    "hdel",
    "hget",
    "hgetall",
    "hincrby",
    "hkeys",
    "hlen",
    "hmget",
    "hset",
    "object",
    "time",
    "xadd",
    "xrange",
    "xtrim",
    "zadd",
    "zrangebylex",
    "zrem",
    "zrevrangebylex",
    "zscore",
];

/// A script is not rolled back: its key would stay in a Redis that was only looked at, on its replicas and in its file.
#[test]
fn a_right_that_a_start_finds_missing_leaves_nothing_behind() {
    let Some(server) = Server::start(&[]) else { return };
    let () = server.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all"]);
    let url = server.url().replace("redis://", "redis://allod:secret@");
    for command in PROBED {
        user(&server, &format!("-{command}"));
        let refused = RedisStore::open(RedisOptions { url: url.clone(), ..server.options() }).unwrap_err();
        let StoreError::Io { source, .. } = &refused else { panic!("{command}: {refused:?}") };
        let said = source.to_string();
        assert!(said.contains("the script `probe` needs"), "{command}: {said}");
        assert!(said.to_lowercase().contains(&format!("'{command}'")), "{command}: {said}");
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0, "{command}: something is left");
        user(&server, &format!("+{command}"));
    }
    drop(RedisStore::open(RedisOptions { url, ..server.options() }).unwrap());
}

/// The first questions on each connection also need rights, and the server may be another one than was meant.
#[test]
fn what_a_connection_may_not_ask_is_told_once_with_its_user_and_a_sentinel_is_told_for_what_it_is() {
    let Some(server) = Server::start(&[]) else { return };
    let refused = |url: String| {
        let refused = RedisStore::open(RedisOptions { url, ..server.options() }).unwrap_err();
        let StoreError::Io { source, .. } = &refused else { panic!("{refused:?}") };
        source.to_string()
    };
    let () = server.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all", "-script"]);
    let told = refused(server.url().replace("redis://", "redis://allod:secret@"));
    assert!(told.contains("user `allod`") && told.contains("+script|load"), "{told}");
    assert_eq!(told.matches("no permissions").count(), 1, "{told}");
    let directory = tempfile::tempdir().unwrap();
    let (file, port) = (directory.path().join("sentinel.conf"), process::ports::free_port());
    std::fs::write(&file, format!("bind 127.0.0.1\nport {port}\ndir {}\n", directory.path().display())).unwrap();
    let mut sentinel = std::process::Command::new(process::program());
    let mut sentinel = process::spawn(sentinel.arg(&file).arg("--sentinel"));
    process::wait(port);
    let told = refused(format!("redis://127.0.0.1:{port}/"));
    process::kill(&mut sentinel);
    assert!(told.starts_with("it is a sentinel") && told.contains("redis+sentinel://"), "{told}");
}

/// To a client that gives a password, the client library only says that it was refused.
#[test]
fn a_redis_that_has_no_room_for_one_more_client_does_not_pass_for_one_that_takes_no_password() {
    let Some(server) = Server::start(&[]) else { return };
    let () = server.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all"]);
    let mut operator = server.connection();
    let mut sets = |clients: u32| {
        let () = ::redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(clients).query(&mut operator).unwrap();
    };
    for user in ["allod:secret@", ""] {
        let url = server.url().replace("redis://", &format!("redis://{user}"));
        let open = || RedisStore::open(RedisOptions { url: url.clone(), ..server.options() });
        // The operator's connection is the only one.
        sets(1);
        let StoreError::Io { source, .. } = open().unwrap_err() else { panic!("{user}") };
        let told = source.to_string();
        assert!(told.contains("has as many clients as it may have") && told.contains("`maxclients`"), "{user}: {told}");
        assert_ne!(source.kind(), std::io::ErrorKind::PermissionDenied, "it may pass");
        sets(1_000);
        drop(open().unwrap());
    }
}

/// Trying again does not help: whoever starts the server has to look.
#[test]
fn a_url_that_names_user_password_or_database_wrongly_is_refused_for_good_and_a_server_that_is_away_is_not() {
    let Some(server) = Server::start(&[]) else { return };
    let () = server.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all"]);
    let told = |url: String| {
        let refused = RedisStore::open(RedisOptions { url, ..server.options() }).unwrap_err();
        let StoreError::Io { source, .. } = refused else { panic!("{refused:?}") };
        source
    };
    let refused = |url: String| told(url).kind();
    let url = server.url();
    let at = url.trim_start_matches("redis://").trim_end_matches('/');
    let remedy = format!("is not let in at {at}: set the password there, or in `store.redis`");
    let as_user = |user: &str| url.replace("redis://", &format!("redis://{user}@"));
    for wrong in [as_user("allod:other"), as_user("nobody:secret"), format!("{}/99", url.trim_end_matches('/'))] {
        assert_eq!(refused(wrong.clone()), std::io::ErrorKind::PermissionDenied, "{wrong}");
    }
    let () = server.ask(&["ACL", "SETUSER", "default", "resetpass", ">another"]);
    assert_eq!(refused(url.clone()), std::io::ErrorKind::PermissionDenied, "none is named");
    // The message names the user and where it is configured, in our own words.
    assert_eq!(told(as_user("allod:other")).to_string(), format!("user `allod` (of `store.redis`) {remedy}"));
    for unnamed in [url.clone(), as_user(":other")] {
        assert_eq!(told(unnamed).to_string(), format!("user `default` (`store.redis` names none) {remedy}"));
    }
    assert_ne!(
        refused(format!("redis://127.0.0.1:{}/", process::ports::free_port())),
        std::io::ErrorKind::PermissionDenied
    );
}
