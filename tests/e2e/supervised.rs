//! The process under systemd's protocol for services (`Type=notify`): a real datagram socket receives what it says. Also
//! what the end of a process that was stopped early tells its supervisor.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::redis::Redis;
use crate::server::{Server, Starting};

/// The longest wait for a message: a debug build on a busy machine.
const MESSAGE_WAIT_MAX: Duration = Duration::from_secs(60);

struct Supervisor(UnixDatagram);

impl Supervisor {
    fn at(socket: &Path) -> Self {
        let socket = UnixDatagram::bind(socket).unwrap();
        socket.set_read_timeout(Some(MESSAGE_WAIT_MAX)).unwrap();
        Self(socket)
    }

    /// The lines of the next message.
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
    assert_eq!(last, ["STOPPING=1", "STATUS=stopping: answering the requests that were read"]);
    supervisor.0.set_nonblocking(true).unwrap();
    assert!(supervisor.0.recv(&mut [0; 64]).is_err(), "nothing is said after the end");
}

/// A supervisor kills a service some time after it says that it stops, or if it gives no sign of life. The server must do
/// neither.
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
    let begins = "STATUS=starting again: Redis was emptied, and the register was written to it again";
    assert_eq!(said[..2], [vec![begins.to_owned()], vec!["WATCHDOG_USEC=600000000".to_owned()]]);
    server.allod_ok(&["network", "get", "lan"]);
    server.stop();
}

/// Until the register is written it exists only in memory, and what the write waits for may take longer than a supervisor
/// allows.
#[test]
fn a_stop_waits_until_the_register_is_written_anew_and_the_supervisor_is_asked_for_more_time() {
    waits_for_the_register(true);
}

#[test]
fn a_stop_that_finds_redis_emptied_asks_the_supervisor_for_the_time_to_write_the_register_anew() {
    waits_for_the_register(false);
}

/// A stop comes when the server writes the register, or before it knows that it must.
fn waits_for_the_register(writes: bool) {
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
    if writes {
        wait("it begins to write", &|| server.log_text().contains("the register is being written again"));
    }
    let asks_to_stop = || crate::redis::send_signal(server.pid(), "-TERM");
    asks_to_stop();
    assert_eq!(supervisor.hears(), ["STOPPING=1", "STATUS=stopping: answering the requests that were read"]);
    let more = [
        "EXTEND_TIMEOUT_USEC=30000000",
        "STATUS=stopping, but first writing the register again, which Redis lost; if this process is killed now, the register \
         is lost",
    ];
    assert_eq!(supervisor.hears(), more);
    // As always, a second signal changes nothing.
    asks_to_stop();
    assert_eq!(supervisor.hears(), more);
    let said = "asked to stop while it writes the register again: it ends when that is done, in at most 300 s";
    assert!(server.log_text().contains(said), "{}", server.log_text());
    replica.signal("-CONT");
    let last = loop {
        let heard = supervisor.hears();
        if heard != more {
            break heard;
        }
    };
    assert_eq!(last, [more[0], "STATUS=stopping: answering the requests that were read"]);
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

/// The shipped unit allows 30 s, in which 60 s of answers and as long for the store have no room.
#[test]
fn a_stop_that_may_take_longer_than_the_unit_allows_asks_for_that_time() {
    let directory = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::at(&directory.path().join("notify"));
    let server = starting(directory.path(), &[("ALLOD_SERVER__SHUTDOWN_SECONDS", "60")]).ready();
    server.stop();
    assert_eq!(supervisor.hears()[0], "READY=1");
    assert_eq!(supervisor.hears()[0], "STOPPING=1");
    assert_eq!(supervisor.hears(), ["EXTEND_TIMEOUT_USEC=125000000"]);
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

/// A start reads all of its files, which takes the longer the larger they are. Here one is huge, with nothing on the disk: a
/// segment that is still blank.
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
    while !server.log_text().contains("nobody reads stdout") {
        assert!(Instant::now() < end && !server.log_text().contains("panic"), "{}", server.log_text());
        std::thread::sleep(Duration::from_millis(50));
    }
    server.allod_ok(&["network", "get", "lan"]);
    server.stop();
}
