//! A sentinel that requires a password.

use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::redis::{Redis, process};
use crate::server::{Server, Starting, allod};

const PASSWORD: &str = "secret";

/// A sentinel that watches a primary and requires a password; killed at the end.
struct Guarded {
    child: Child,
    port: u16,
}

impl Guarded {
    fn watching(redis: &Redis, directory: &std::path::Path) -> Self {
        let (port, file) = (process::ports::free_port(), directory.join("sentinel.conf"));
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {}\nrequirepass {PASSWORD}\nsentinel monitor register 127.0.0.1 {} 1\n\
             sentinel auth-pass register {PASSWORD}\n",
            directory.display(),
            redis.port()
        );
        std::fs::write(&file, text).unwrap();
        let child = process::spawn(Command::new(process::program()).arg(&file).arg("--sentinel"));
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "the sentinel does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, port }
    }

    /// The URL by which this user asks the sentinel for the primary.
    fn url(&self, user: &str) -> String {
        format!("redis+sentinel://{user}127.0.0.1:{}/register", self.port)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        process::kill(&mut self.child);
    }
}

#[test]
fn sentinels_with_a_password_are_asked_with_that_of_the_url_and_where_that_does_not_do_it_is_said_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let [place, sentinels] = ["redis", "sentinel"].map(|name| directory.path().join(name));
    [&place, &sentinels].into_iter().for_each(|place| std::fs::create_dir(place).unwrap());
    let Some(redis) = Redis::start(&place, &[]) else { return };
    redis.ask(&["ACL", "SETUSER", "allod", "on", &format!(">{PASSWORD}"), "~*", "&*", "+@all"]);
    redis.ask(&["ACL", "SETUSER", "other", "on", ">other", "~*", "&*", "+@all"]);
    redis.ask(&["CONFIG", "SET", "requirepass", PASSWORD]);
    let guarded = Guarded::watching(&redis, &sentinels);
    let starting = |user: &str, data: &str| {
        let data = directory.path().join(data);
        let text = data.display().to_string();
        Starting::with_arguments(&data, &["serve", "--redis", &guarded.url(user), "--data", &text])
    };
    // The sentinel knows only the default user.
    for (user, data) in [(":secret@", "a"), ("allod:secret@", "b")] {
        let server: Server = starting(user, data).ready();
        server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24", "--if-absent"]);
        server.stop();
    }
    let wrongs: [(String, Option<i32>, &[&str]); 4] = [
        // Sentinels will not start to watch another name by themselves.
        (
            guarded.url(":secret@").replace("/register", "/other"),
            Some(1),
            &["watches nothing of the name `other`", "SENTINEL MASTERS", "that is a setting: `store.redis`"],
        ),
        // The sentinel that is away may know the name, or may yet be told of it.
        (
            guarded.url(":secret@").replace("/register", &format!(",127.0.0.1:{}/other", process::ports::free_port())),
            Some(75),
            &["watches nothing of the name `other`", "that is a setting: `store.redis`"],
        ),
        (
            format!("redis://:secret@127.0.0.1:{}/0", guarded.port),
            Some(1),
            &["it is a sentinel, which keeps nothing", "that is a setting: `store.redis`"],
        ),
        (
            format!("redis+sentinel://127.0.0.1:{}/register", process::ports::free_port()),
            Some(75),
            &["no sentinel says which Redis is the primary (Connection refused", "hint: see that the sentinels run"],
        ),
    ];
    let cluster = (
        redis.url().replace("redis://", "redis+cluster://:secret@"),
        Some(1),
        &["is in no cluster", "that is a setting"][..],
    );
    for (url, ends, says) in wrongs.into_iter().chain([cluster]) {
        let data = directory.path().join("d");
        let arguments = ["serve", "--redis", &url, "--data", data.to_str().unwrap()];
        let (code, log) = Starting::with_arguments(&data, &arguments).ends();
        assert_eq!(code, ends, "{url}: {log}");
        says.iter().for_each(|says| assert!(log.contains(says), "{url}: {says}: {log}"));
        assert!(!log.contains("make sure that Redis runs"), "{url}: {log}");
    }
    for (user, says) in [("", "the URL names none"), ("other:other@", "takes neither the user of the URL")] {
        let (code, log) = starting(user, "c").ends();
        assert_eq!(code, Some(1), "{log}");
        let at = format!("the sentinel at 127.0.0.1:{} wants a password", guarded.port);
        assert!(log.contains(&at) && log.contains(says), "{user}: {log}");
        assert!(!log.contains("other:other"), "{log}");
        let doctor = Command::new(allod()).args(["doctor", "--redis", &guarded.url(user)]).output().unwrap();
        let told = String::from_utf8_lossy(&doctor.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(&at) && told.contains(says), "{user}: {told}");
    }
}

#[test]
fn a_doctor_names_sentinels_that_do_not_answer_and_warns_where_most_of_them_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let [place, sentinels] = ["redis", "sentinel"].map(|name| directory.path().join(name));
    [&place, &sentinels].into_iter().for_each(|place| std::fs::create_dir(place).unwrap());
    let Some(redis) = Redis::start(&place, &[]) else { return };
    redis.ask(&["CONFIG", "SET", "requirepass", PASSWORD]);
    let guarded = Guarded::watching(&redis, &sentinels);
    let gone = [process::ports::free_port(), process::ports::free_port()];
    let told = |gone: &[u16]| {
        let others: String = gone.iter().map(|port| format!(",127.0.0.1:{port}")).collect();
        let url = guarded.url(":secret@").replace("/register", &format!("{others}/register"));
        let doctor = Command::new(allod()).args(["doctor", "--format", "json", "--redis", &url]).output().unwrap();
        let told: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let of_sentinels =
            |check: &&serde_json::Value| check["seen"].as_str().is_some_and(|seen| seen.contains("sentinels do"));
        let mut checks = told["checks"].as_array().unwrap().iter().filter(of_sentinels);
        let found = checks.next().cloned().unwrap_or_default();
        assert!(checks.next().is_none(), "{told}");
        found
    };
    assert_eq!(told(&[]), serde_json::Value::Null);
    let most = told(&gone);
    let seen = most["seen"].as_str().unwrap();
    assert!(
        seen.starts_with("2 of 3 sentinels do not answer, and without most of them no failover takes place: "),
        "{most}"
    );
    assert!(gone.iter().all(|port| seen.contains(&format!("127.0.0.1:{port} ("))), "{most}");
    assert_eq!(most["state"], "warning");
    assert!(most["hint"].as_str().unwrap().starts_with("start them"), "{most}");
}
