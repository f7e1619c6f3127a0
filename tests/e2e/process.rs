//! The process as its supervisor sees it: flags, the line `ready`, signals, exit codes, and one data directory for one server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::redis::Redis;
use super::server::{Server, Starting, allod};

fn serve(data: &Path, more: &[&str]) -> Child {
    Command::new(allod())
        .args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"])
        .arg(data)
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A process that does not outlive its test, whatever happens to the test.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // Both calls fail only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the line `ready`, and returns the address of the JSON-RPC port and the rest of stdout.
fn ready(child: &mut Child) -> (String, BufReader<std::process::ChildStdout>) {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let (tcp, http) = line.trim_end().strip_prefix("ready tcp=").and_then(|rest| rest.split_once(" http=")).unwrap();
    assert!(http.starts_with("127.0.0.1:"), "{line}");
    (tcp.to_owned(), stdout)
}

fn signal(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn failed(data: &Path, more: &[&str]) -> Output {
    let output = serve(data, more).wait_with_output().unwrap();
    assert_eq!(output.stdout, b"", "nothing is ready");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// In another directory, the server would begin a register in which every address is free.
#[test]
fn a_register_that_cannot_be_opened_now_is_tried_again_and_no_other_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    Server::start(&data).stop();
    // A directory in the place of the lock file cannot be opened for writing.
    std::fs::remove_file(data.join("LOCK")).unwrap();
    std::fs::create_dir(data.join("LOCK")).unwrap();
    let refused = failed(&data, &[]);
    let said = text(&refused.stderr);
    assert!(said.contains("locking") && said.contains("then start it again"), "{said}");
    assert!(!said.contains("--data") && !said.contains("restore"), "{said}");
    assert_eq!(refused.status.code(), Some(i32::from(allod::serve::EXIT_CANNOT_START_NOW)), "{said}");
    // If there is no register yet, another place is a good hint.
    let file = directory.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let refused = failed(&file.join("data"), &[]);
    assert!(text(&refused.stderr).contains("--data DIR"), "{}", text(&refused.stderr));
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn a_directory_is_one_servers_also_when_its_lock_file_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let [data, copy] = ["data", "copy"].map(|name| directory.path().join(name));
    let server = Server::start(&data);
    std::fs::remove_file(data.join("LOCK")).unwrap();
    let refused = failed(&data, &[]);
    let said = text(&refused.stderr);
    assert!(said.contains("is in use by another process"), "{said}");
    assert_eq!(refused.status.code(), Some(i32::from(allod::serve::EXIT_CANNOT_START_NOW)), "{said}");
    let mut backup = Command::new(allod());
    backup.arg("backup").arg(&copy).arg("--data").arg(&data);
    let said = text(&backup.output().unwrap().stderr);
    assert!(said.contains("is in use by another process") && !copy.exists(), "{said}");
    assert!(server.allod_ok(&["network", "list"]).is_empty() && !data.join("LOCK").exists());
    server.stop();
    Server::start(&data).stop();
}

#[test]
fn on_sigterm_every_request_that_was_read_is_answered_and_the_process_ends_well() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let networks = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/first-network.toml");
    let mut child = Guarded(serve(&data, &["--networks", networks.to_str().unwrap()]));
    let (address, mut stdout) = ready(&mut child.0);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut lines = String::new();
    for at in 0..50 {
        let params = json!({"network": "lan", "owner": format!("vm/{at}"), "family": 4, "brief": true});
        lines += &format!("{}\n", json!({"jsonrpc": "2.0", "id": at, "method": "ip.allocate", "params": params}));
    }
    stream.write_all(lines.as_bytes()).unwrap();
    let mut answered = Vec::new();
    let mut line = String::new();
    while answers.read_line(&mut line).unwrap() > 0 {
        let answer: Value = serde_json::from_str(&line).unwrap();
        let address = answer["result"]["address"].as_str();
        answered.push(address.unwrap_or_else(|| panic!("{answer}")).to_owned());
        line.clear();
        if answered.len() == 1 {
            // All requests were sent with one call, and are read with the first.
            signal(&child.0, "-TERM");
        }
    }
    assert_eq!(answered.len(), 50);
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    line.clear();
    assert_eq!(stdout.read_line(&mut line).unwrap(), 0, "one line is all that stdout gets: {line}");

    // A second start with the same network file changes nothing and knows all reservations; so does a third, after the
    // network was changed.
    let mut child = Guarded(serve(&data, &["--networks", networks.to_str().unwrap()]));
    let (address, _stdout) = ready(&mut child.0);
    let cli = |address: &str, args: &[&str]| {
        let ran = Command::new(allod()).args(args).env("ALLOD_SERVER", address).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    cli(&address, &["subnet", "add", "lan", "10.7.7.0/24"]);
    signal(&child.0, "-TERM");
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    let mut child = Guarded(serve(&data, &["--networks", networks.to_str().unwrap()]));
    let (address, _stdout) = ready(&mut child.0);
    assert!(cli(&address, &["network", "get", "lan"]).contains("10.7.7.0/24"));
    let listed = Command::new(allod())
        .args(["ip", "list", "--network", "lan", "--format", "json"])
        .env("ALLOD_SERVER", address)
        .output()
        .unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let held: Vec<&str> =
        listed["reservations"].as_array().unwrap().iter().map(|held| held["address"].as_str().unwrap()).collect();
    assert_eq!(held.len(), 50);
    assert!(answered.iter().all(|address| held.contains(&address.as_str())));
    signal(&child.0, "-INT");
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

/// Whoever reads `ready` may ask the process to stop at once.
#[test]
fn a_sigterm_right_behind_ready_stops_it_as_it_should() {
    let directory = tempfile::tempdir().unwrap();
    for turn in 0..10 {
        let mut child = Guarded(serve(&directory.path().join("data"), &[]));
        let _said = ready(&mut child.0);
        signal(&child.0, "-TERM");
        assert_eq!(child.0.wait().unwrap().code(), Some(0), "start {turn}");
    }
}

#[test]
fn a_second_server_on_a_data_directory_is_refused_and_the_first_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let first = Server::start(&data);
    let second = failed(&data, &[]);
    assert_eq!(second.status.code(), Some(75), "it may be over soon");
    let said = text(&second.stderr);
    assert!(said.contains("data") && !said.contains("--data DIR"), "{said}");
    first.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
}

#[test]
fn a_start_that_cannot_be_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let missing = failed(&data, &["--config", "no-such-file.toml"]);
    let said = text(&missing.stderr);
    assert!(
        said.contains("no-such-file.toml") && said.contains("\nhint: name an existing file with `--config"),
        "{said}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, other, key) in
        [("--listen", "--http", "`server.listen`"), ("--http", "--listen", "`server.http_listen`")]
    {
        let output = Command::new(allod())
            .args(["serve", "--store", "memory", flag, &address, other, "127.0.0.1:0"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains(key) && said.contains(&format!("`{flag} 127.0.0.1:0` takes a free one")), "{said}");
        assert!(said.contains(&format!("process {} (`", std::process::id())) && said.contains(&address), "{said}");
    }
}

#[test]
fn a_redis_that_is_not_there_yet_is_to_be_tried_again_and_one_that_cannot_be_meant_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let Some(mut redis) = Redis::start(directory.path(), &[]) else { return };
    let url = redis.url();
    redis.end();
    let too_early = failed(&data, &["--redis", &url]);
    let said = text(&too_early.stderr);
    assert_eq!(too_early.status.code(), Some(i32::from(allod::serve::EXIT_CANNOT_START_NOW)), "{said}");
    assert!(said.contains("\nhint: make sure that Redis runs"), "{said}");
    redis.begin();
    let mut child = Guarded(serve(&data, &["--redis", &url]));
    ready(&mut child.0);
    drop(child);
    let no_url = failed(&data, &["--redis", "http://127.0.0.1:1"]);
    assert_eq!(no_url.status.code(), Some(1), "{}", text(&no_url.stderr));
}

/// Each of the two registers would grant what the other one has granted.
#[test]
fn neither_is_a_register_in_files_left_behind_for_one_in_redis_nor_a_register_in_redis_for_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let nowhere = "redis://127.0.0.1:1/0";
    let redis = ["--redis", nowhere];
    // A package may have started the server before anybody named Redis; its empty register has nothing to lose, so Redis is
    // tried.
    Server::start(&data).stop();
    assert_eq!(failed(&data, &redis).status.code(), Some(i32::from(allod::serve::EXIT_CANNOT_START_NOW)));
    let server = Server::start(&data);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.stop();
    let doctor = |more: &[&str]| {
        let asked = Command::new(allod()).args(["doctor", "--data"]).arg(&data).args(more).output().unwrap();
        text(&asked.stdout)
    };
    let refused = failed(&data, &redis);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let migrate = format!("`allod migrate {} {nowhere}`", data.display());
    for said in [said, doctor(&redis)] {
        assert!(
            said.contains("holds an embedded register (1 batch) that was not moved") && said.contains(&migrate),
            "{said}"
        );
    }
    // A node of an older release has left such a register behind already: it goes on with its register in Redis, and is told.
    std::fs::write(data.join("REDIS"), noted(7)).unwrap();
    assert_eq!(failed(&data, &redis).status.code(), Some(i32::from(allod::serve::EXIT_CANNOT_START_NOW)));

    for left in ["META", "nothing"] {
        let refused = failed(&data, &[]);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{left}: {said}");
        for said in [said, doctor(&[])] {
            assert!(said.contains("is the directory of a node whose register is in Redis"), "{left}: {said}");
            assert!(said.contains("`--redis URL`") && !said.contains("empty directory"), "{left}: {said}");
            assert!(!said.contains("name another directory"), "{left}: {said}");
        }
        std::fs::remove_dir_all(&data).unwrap();
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("REDIS"), noted(7)).unwrap();
    }
}

/// What a node of an older release noted.
fn noted(register: u128) -> String {
    format!("allod: the register that this server keeps in Redis\nregister {register:032x}\n")
}

#[test]
fn other_than_loopback_is_refused_unless_it_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let refused = Command::new(allod())
        .args(["serve", "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0", "--data"])
        .arg(&data)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("0.0.0.0:0") && said.contains("--insecure-listen"), "{said}");
    assert!(!data.exists(), "nothing was opened");
}

#[test]
fn a_foreign_directory_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::File::create(directory.path().join("letters.txt")).unwrap().write_all(b"dear").unwrap();
    let refused = failed(directory.path(), &[]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("letters.txt") || said.contains("empty"), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// HTTP clients that never finish their requests, far more of them than the process may open files.
#[test]
fn half_requests_over_http_leave_descriptors_for_tcp_clients() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (program, place) = (allod().display().to_string(), data.display().to_string());
    let few = ["-c", "ulimit -n 256 && exec \"$0\" \"$@\"", &program, "serve", "--data", &place];
    let server = Starting::of(Path::new("sh"), &data, &few, Vec::new()).ready();
    let half: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(server.http).unwrap();
            // A client that is turned away is reset, perhaps before this write.
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: te").unwrap_or_default();
            stream
        })
        .collect();
    // Waits until the server has accepted as many of them as it ever will.
    let open = || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    let mut before = 0;
    while open() < 100 || open() != before {
        before = open();
        std::thread::sleep(Duration::from_millis(300));
    }
    // More clients than the descriptors that may become free by chance.
    let clients: Vec<TcpStream> = (0..30)
        .map(|_| {
            let mut client = TcpStream::connect(server.address).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            client.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server.ping\"}\n").unwrap();
            client
        })
        .collect();
    for client in &clients {
        let mut answer = String::new();
        BufReader::new(client).read_line(&mut answer).unwrap();
        assert!(answer.contains("pong"), "{answer}");
    }
    drop((half, clients));
    server.stop();
}
