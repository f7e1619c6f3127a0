//! The process under systemd's protocol for services (`Type=notify`): a real socket of datagrams takes what it says. And what a
//! supervisor is told by the end of one that was stopped early.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::redis::Redis;
use crate::server::{Server, Starting};

/// Longest wait for a message: a debug build on a busy machine.
const MESSAGE_WAIT_MAX: Duration = Duration::from_secs(60);

struct Supervisor(UnixDatagram);

impl Supervisor {
    fn at(socket: &Path) -> Self {
        let socket = UnixDatagram::bind(socket).unwrap();
        socket.set_read_timeout(Some(MESSAGE_WAIT_MAX)).unwrap();
        Self(socket)
    }

    /// The next message's lines.
    #[track_caller]
    fn hears(&self) -> Vec<String> {
        let mut bytes = [0; 4_096];
        let length = self.0.recv(&mut bytes).expect("a message");
        std::str::from_utf8(&bytes[..length]).unwrap().lines().map(str::to_owned).collect()
    }
}

fn starting(directory: &Path, environment: &[(&str, &str)]) -> Starting {
    let data = directory.join("data");
    let arguments = ["serve".to_owned(), "--data".to_owned(), data.display().to_string()];
    let mut environment: Vec<_> = environment.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    environment.push(("NOTIFY_SOCKET".to_owned(), directory.join("notify").display().to_string()));
    Starting::with_environment(&data, &arguments, environment)
}

#[test]
fn the_supervisor_hears_when_it_is_ready_that_it_lives_and_that_it_stops() {
    let directory = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::at(&directory.path().join("notify"));
    let server = starting(directory.path(), &[("WATCHDOG_USEC", "400000")]).ready();
    let first = supervisor.hears();
    let status = format!("STATUS=serving: JSON-RPC {}, HTTP {}", server.address, server.http);
    assert_eq!(first, ["READY=1", &status]);
    for _ in 0..3 {
        assert_eq!(supervisor.hears(), ["WATCHDOG=1"]);
    }
    server.allod_ok(&["server", "ping"]);
    server.stop();
    let last = loop {
        let heard = supervisor.hears();
        if heard != ["WATCHDOG=1"] {
            break heard;
        }
    };
    assert_eq!(last, ["STOPPING=1", "STATUS=stopping: answers what was read"]);
    supervisor.0.set_nonblocking(true).unwrap();
    assert!(supervisor.0.recv(&mut [0; 64]).is_err(), "nothing is said after the end");
}

/// Who says that he stops is killed after a while, and whoever gives no sign of life, too: it does neither.
#[test]
fn the_supervisor_hears_of_no_stop_where_the_server_begins_once_more_with_what_it_wrote_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (place, data) = (directory.path().join("redis"), directory.path().join("data"));
    std::fs::create_dir(&place).unwrap();
    let Some(redis) = Redis::start(&place, &[]) else { return };
    let supervisor = Supervisor::at(&directory.path().join("notify"));
    let arguments = ["serve", "--redis", &redis.url(), "--data", &data.display().to_string()].map(str::to_owned);
    let environment = [
        ("WATCHDOG_USEC", "400000".to_owned()),
        ("NOTIFY_SOCKET", directory.path().join("notify").display().to_string()),
    ];
    let environment = environment.map(|(key, value)| (key.to_owned(), value)).to_vec();
    let server = Starting::with_environment(&data, &arguments, environment).ready();
    let ready = supervisor.hears();
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    redis.ask(&["FLUSHALL"]);
    let mut said = Vec::new();
    while said.last() != Some(&ready) {
        let heard = supervisor.hears();
        assert!(!heard.iter().any(|line| line == "STOPPING=1"), "{said:?}");
        if heard != ["WATCHDOG=1"] {
            said.push(heard);
        }
    }
    assert_eq!(supervisor.hears(), ["WATCHDOG_USEC=400000"]);
    let begins = "STATUS=beginning once more: Redis was emptied, and the register was written anew";
    assert_eq!(said[..2], [vec![begins.to_owned()], vec!["WATCHDOG_USEC=600000000".to_owned()]]);
    server.allod_ok(&["network", "get", "lan"]);
    server.stop();
}

/// Until it is written it is nowhere but in memory, and what it waits for may come later than a supervisor grants a stop.
#[test]
fn a_stop_waits_until_the_register_is_written_anew_and_the_supervisor_is_asked_for_more_time() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::replicating(directory.path(), "primary", None) else { return };
    let replica = Redis::replicating(directory.path(), "replica", Some(redis.port())).unwrap();
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let end = Instant::now() + MESSAGE_WAIT_MAX;
        while !is_so() {
            assert!(Instant::now() < end, "never: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait("the replica follows", &|| replica.follows());
    let (data, settings) = (directory.path().join("data"), directory.path().join("node.toml"));
    std::fs::write(&settings, "[store]\nredis_replicas = 1\n").unwrap();
    let supervisor = Supervisor::at(&directory.path().join("notify"));
    let [settings, place] = [&settings, &data].map(|path| path.display().to_string());
    let arguments = ["serve", "--config", &settings, "--redis", &redis.url(), "--data", &place].map(str::to_owned);
    let start = || {
        let socket = directory.path().join("notify").display().to_string();
        Starting::with_environment(&data, &arguments, vec![("NOTIFY_SOCKET".to_owned(), socket)]).ready()
    };
    let server = start();
    assert_eq!(supervisor.hears()[0], "READY=1");
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    replica.signal("-STOP");
    redis.ask(&["FLUSHALL"]);
    wait("it begins to write", &|| server.log_text().contains("the register is written anew"));
    let asks_to_stop = || crate::redis::send_signal(server.pid(), "-TERM");
    asks_to_stop();
    assert_eq!(supervisor.hears(), ["STOPPING=1", "STATUS=stopping: answers what was read"]);
    let more = [
        "EXTEND_TIMEOUT_USEC=30000000",
        "STATUS=stopping: first writes the register anew, which Redis lost; killed now, it is gone",
    ];
    assert_eq!(supervisor.hears(), more);
    // Once more, as anywhere, changes nothing.
    asks_to_stop();
    assert_eq!(supervisor.hears(), more);
    let said = "asked to stop while the register is written anew: it ends when that is done, at the latest in 300 s";
    assert!(server.log_text().contains(said), "{}", server.log_text());
    replica.signal("-CONT");
    let last = loop {
        let heard = supervisor.hears();
        if heard != more {
            break heard;
        }
    };
    assert_eq!(last, [more[0], "STATUS=stopping: answers what was read"]);
    let (code, log) = server.ends();
    assert!(code == Some(0) && log.contains("the register is whole again"), "{code:?}: {log}");
    let server = start();
    server.allod_ok(&["network", "get", "lan"]);
    server.stop();
}

#[test]
fn without_a_watchdog_there_are_no_signs_of_life_and_a_foreign_one_is_not_obeyed() {
    for environment in [&[][..], &[("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")][..]] {
        let directory = tempfile::tempdir().unwrap();
        let supervisor = Supervisor::at(&directory.path().join("notify"));
        let server = starting(directory.path(), environment).ready();
        server.allod_ok(&["server", "ping"]);
        server.stop();
        assert_eq!(supervisor.hears()[0], "READY=1");
        assert_eq!(supervisor.hears()[0], "STOPPING=1");
    }
}

#[test]
fn a_start_that_cannot_be_is_never_said_to_be_ready() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("data")).unwrap();
    std::fs::write(directory.path().join("data/letters.txt"), "dear").unwrap();
    let supervisor = Supervisor::at(&directory.path().join("notify"));
    starting(directory.path(), &[]).failed();
    supervisor.0.set_nonblocking(true).unwrap();
    assert!(supervisor.0.recv(&mut [0; 64]).is_err());
}

#[test]
fn a_supervisor_that_is_gone_harms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = starting(directory.path(), &[("WATCHDOG_USEC", "1000000")]).ready();
    server.allod_ok(&["server", "ping"]);
    server.stop();
    let log = std::fs::read_to_string(directory.path().join("data.log")).unwrap();
    assert!(log.contains("the supervisor cannot be told"), "{log}");
}

/// A start reads all of its files, which takes as long as they are large. Here one is, of which nothing is on the disk: a segment
/// that is blank still.
#[test]
fn a_start_that_is_told_to_stop_while_it_reads_its_files_ends_well_and_lets_them_go() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.stop();
    let segments = std::fs::read_dir(data.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let number = |path: PathBuf| path.file_stem()?.to_str()?.parse::<u32>().ok();
    let blank = data.join(format!("log/{:08}.seg", segments.filter_map(number).max().unwrap() + 1));
    std::fs::File::create(&blank).unwrap().set_len(1 << 40).unwrap();

    let holder = || std::fs::read_to_string(data.join("LOCK")).unwrap();
    let before = holder();
    let starting = Starting::new(&data);
    let logged = starting.log_text().len();
    let end = Instant::now() + MESSAGE_WAIT_MAX;
    while [&before, ""].contains(&&*holder()) {
        assert!(Instant::now() < end, "it does not begin: {}", starting.log_text());
        std::thread::sleep(Duration::from_millis(5));
    }
    starting.signal("-TERM");
    let (code, log) = starting.ends();
    assert_eq!(code, Some(0), "{log}");
    assert!(log[logged..].contains("while the store was opened"), "{log}");
    std::fs::remove_file(blank).unwrap();
    let server = Server::start(&data);
    server.allod_ok(&["network", "get", "lan"]);
    server.stop();
}

/// As in `allod serve | head -1`.
#[test]
fn a_server_goes_on_where_nobody_reads_any_more_that_it_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let (place, data) = (directory.path().join("redis"), directory.path().join("data"));
    std::fs::create_dir(&place).unwrap();
    let Some(redis) = Redis::start(&place, &[]) else { return };
    let arguments = ["serve", "--redis", &redis.url(), "--data", &data.display().to_string()].map(str::to_owned);
    let server = Starting::read_once(&data, &arguments).ready();
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    redis.ask(&["FLUSHALL"]);
    let end = Instant::now() + MESSAGE_WAIT_MAX;
    while !server.log_text().contains("nobody reads on stdout") {
        assert!(Instant::now() < end && !server.log_text().contains("panic"), "{}", server.log_text());
        std::thread::sleep(Duration::from_millis(50));
    }
    server.allod_ok(&["network", "get", "lan"]);
    server.stop();
}
