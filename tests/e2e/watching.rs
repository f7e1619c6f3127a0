//! `allod watch` against the real program: what it prints, what its commands are told, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Server, allod};

/// The longest that a watch may take, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A watch that is ended with its test.
struct Watch {
    child: Child,
    lines: mpsc::Receiver<String>,
    words: mpsc::Receiver<String>,
}

fn lines_of(stream: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

fn command(server: &Server, arguments: &[&str], directory: &Path) -> Command {
    command_to(&server.address.to_string(), arguments, directory)
}

fn command_to(address: &str, arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(allod());
    command.arg("watch").args(arguments).current_dir(directory).env("ALLOD_SERVER", address);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Watch {
    fn start(server: &Server, arguments: &[&str], directory: &Path) -> Self {
        Self::of(command(server, arguments, directory))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (lines, words) = (lines_of(child.stdout.take().unwrap()), lines_of(child.stderr.take().unwrap()));
        Self { child, lines, words }
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line is printed")
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    /// How the watch ended, and what it said.
    fn ended(mut self) -> (Option<i32>, Vec<String>) {
        let words = self.words.iter().collect();
        (self.child.wait().unwrap().code(), words)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Both calls fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a watch that ends by itself.
#[track_caller]
fn watch(server: &Server, arguments: &[&str], directory: &Path) -> Output {
    command(server, arguments, directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server with a network, and the cursor before everything that is granted there.
fn served(directory: &Path) -> (Server, String) {
    let server = Server::start(&directory.join("data"));
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24,gateway=10.0.0.1,dhcp,dns=10.0.0.2"]);
    let listed: Value = serde_json::from_str(&server.allod_ok(&["ip", "list", "--format", "json"])).unwrap();
    (server, listed["cursor"].as_str().unwrap().to_owned())
}

fn allocate(server: &Server, owners: &[&str]) {
    for owner in owners {
        server.allod_ok(&["ip", "allocate", "lan", "--owner", owner]);
    }
}

/// The cursor after `--since` in these words.
fn cursor_in(words: &str) -> String {
    let (_, rest) = words.split_once("--since ").unwrap_or_else(|| panic!("{words}"));
    rest.split([' ', '`']).next().unwrap().trim_matches('\'').to_owned()
}

#[test]
fn events_are_lines_for_people_and_json_for_programs() {
    let directory = tempfile::tempdir().unwrap();
    let (server, since) = served(directory.path());
    allocate(&server, &["web/0", "web/1"]);
    server.allod_ok(&["ip", "release", "lan", "--owner", "web/0", "--reason", "TICKET-1", "--yes"]);
    let printed = watch(&server, &["--network", "lan", "--since", &since, "--count", "3"], directory.path());
    assert_eq!(printed.status.code(), Some(0), "{}", text(&printed.stderr));
    let lines: Vec<String> =
        text(&printed.stdout).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines[0], "TIME EVENT ADDRESS NETWORK OWNER");
    assert!(lines[1].ends_with("Z granted 10.0.0.2 lan web/0"), "{lines:?}");
    assert!(lines[3].ends_with("Z released 10.0.0.2 lan web/0 reason=TICKET-1"), "{lines:?}");
    // The words say where to go on.
    let next = cursor_in(&text(&printed.stderr));
    allocate(&server, &["web/2"]);
    let printed =
        watch(&server, &["--network", "lan", "--since", &next, "--count", "1", "--format", "json"], directory.path());
    let event: Value = serde_json::from_str(text(&printed.stdout).trim_end()).unwrap();
    assert_eq!((&event["type"], &event["owner"]), (&"granted".into(), &"web/2".into()));
    let printed =
        watch(&server, &["--network", "lan", "--since", &next, "--count", "1", "--format", "env"], directory.path());
    assert!(text(&printed.stdout).contains("EVENT_OWNER='web/2'\n"), "{}", text(&printed.stdout));
    assert!(text(&printed.stdout).contains("NETWORK_SUBNET_0='10.0.0.0/24'\n"), "{}", text(&printed.stdout));
}

#[test]
fn a_watch_tells_from_now_on_and_ends_well_when_it_is_asked_to() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = served(directory.path());
    for signal in ["-INT", "-TERM"] {
        let watch = Watch::start(&server, &["--scope", "shop", "--format", "json"], directory.path());
        // The watch may not have begun yet: it tells grants from some owner on.
        let mut first = None;
        for owner in 0..1_000 {
            server.allod_ok(&[
                "ip",
                "allocate",
                "lan",
                "--owner",
                &format!("o{signal}/{}", owner % 100),
                "--scope",
                "shop",
            ]);
            server.allod_ok(&[
                "ip",
                "release",
                "lan",
                "--owner",
                &format!("o{signal}/{}", owner % 100),
                "--scope",
                "shop",
            ]);
            if let Ok(line) = watch.lines.try_recv() {
                first = Some(line);
                break;
            }
        }
        let event: Value = serde_json::from_str(&first.expect("it begins")).unwrap();
        assert_eq!(event["scope"], "shop");
        watch.signal(signal);
        let (code, words) = watch.ended();
        assert_eq!(code, Some(0), "{words:?}");
        assert!(
            words.last().unwrap().starts_with("to go on from here: `allod watch --scope shop --since "),
            "{words:?}"
        );
    }
}

/// By then another network may have the name, or none.
#[test]
fn a_watch_of_a_network_that_was_renamed_says_how_to_go_on_with_that_one() {
    let directory = tempfile::tempdir().unwrap();
    let (server, since) = served(directory.path());
    let watch = Watch::start(&server, &["--network", "lan", "--since", &since, "--count", "2"], directory.path());
    allocate(&server, &["web/0"]);
    assert!(watch.line().contains("OWNER"));
    assert!(watch.line().contains("web/0"));
    server.allod_ok(&["network", "update", "lan", "--name", "old"]);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.1.0.0/24"]);
    let (code, words) = watch.ended();
    assert_eq!(code, Some(0), "{words:?}");
    let again = words.last().unwrap().split('`').nth(1).unwrap().to_owned();
    server.allod_ok(&["ip", "allocate", "old", "--owner", "web/1"]);
    let again: Vec<&str> = again.split(' ').skip(2).chain(["--count", "1"]).collect();
    let next = self::watch(&server, &again, directory.path());
    assert!(text(&next.stdout).contains("web/1"), "{again:?} {next:?}");
}

#[test]
fn a_watch_ends_when_nobody_reads_it_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let (server, since) = served(directory.path());
    allocate(&server, &["web/0"]);
    let mut child = command(&server, &["--since", &since], directory.path()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    // No event comes that the watch could fail to print.
    drop(reader);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_command_is_run_for_each_event_in_order_with_the_event_in_its_environment() {
    let directory = tempfile::tempdir().unwrap();
    let (server, since) = served(directory.path());
    allocate(&server, &["web/0", "web/1"]);
    server.allod_ok(&["subnet", "add", "lan", "10.1.0.0/24"]);
    server.allod_ok(&["ip", "release", "lan", "--owner", "web/1", "--yes"]);
    let script = r#"cat > stdin.$EVENT_TYPE.$EVENT_OWNER_FILE; echo "$EVENT_TYPE $EVENT_OWNER $EVENT_SCOPE $IP_COUNT $INSTANCE_NIC0_IP_0 $INSTANCE_NIC0_NETWORK_SUBNET_0 $INSTANCE_NIC0_NETWORK_GATEWAY_0 $INSTANCE_NIC0_NETWORK_DHCP_0 $INSTANCE_NIC0_INTERFACE_0 $INSTANCE_NIC0_NETWORK_NAME $INSTANCE_NIC0_NETWORK_SUBNET_1" >> told"#;
    let arguments = ["--since", &since, "--count", "4", "--prefix", "INSTANCE_NIC0_", "--exec", script];
    let ran = watch(&server, &arguments, directory.path());
    assert_eq!((ran.status.code(), text(&ran.stdout).as_str()), (Some(0), ""), "{}", text(&ran.stderr));
    let told = std::fs::read_to_string(directory.path().join("told")).unwrap();
    let told: Vec<String> = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        told,
        [
            "granted web/0 default 10.0.0.2 10.0.0.0/24 10.0.0.1 true 10.0.0.2/24",
            "granted web/1 default 10.0.0.3 10.0.0.0/24 10.0.0.1 true 10.0.0.3/24",
            "network_changed 10.0.0.0/24 10.0.0.1 true lan 10.1.0.0/24",
            "released web/1 default 10.0.0.3 10.0.0.0/24 10.0.0.1 true 10.0.0.3/24",
        ]
    );
    let stdin = std::fs::read_to_string(directory.path().join("stdin.released.")).unwrap();
    let event: Value = serde_json::from_str(&stdin).unwrap();
    assert_eq!((&event["type"], &event["address"]), (&"released".into(), &"10.0.0.3".into()));
}

#[test]
fn a_command_that_fails_stops_the_watch_and_its_event_is_the_first_of_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let (server, since) = served(directory.path());
    allocate(&server, &["web/0", "web/1", "web/2"]);
    let run = |since: &str, more: &[&str]| {
        let script = r#"echo $EVENT_OWNER >> told; test $EVENT_OWNER != web/1 -o -e mended || exit 7"#;
        let arguments = [&["--since", since, "--exec", script], more].concat();
        watch(&server, &arguments, directory.path())
    };
    let told = || std::fs::read_to_string(directory.path().join("told")).unwrap().replace('\n', " ");
    let stopped = run(&since, &[]);
    let words = text(&stopped.stderr);
    assert_eq!(stopped.status.code(), Some(1), "{words}");
    assert!(words.contains("the command for `granted` of 10.0.0.3 ended with exit status: 7"), "{words}");
    assert_eq!(told(), "web/0 web/1 ");
    let next = cursor_in(&words);
    let skipped = run(&next, &["--on-failure", "skip", "--count", "2"]);
    assert_eq!(skipped.status.code(), Some(0), "{}", text(&skipped.stderr));
    assert!(text(&skipped.stderr).contains("exit status: 7; skipped"), "{}", text(&skipped.stderr));
    assert_eq!(told(), "web/0 web/1 web/1 web/2 ");
    // The command is retried until somebody mends what is wrong.
    let retried = Watch::start(
        &server,
        &[
            "--since",
            &next,
            "--count",
            "2",
            "--on-failure",
            "retry",
            "--exec",
            r#"echo again $EVENT_OWNER >> told; test $EVENT_OWNER != web/1 -o -e mended"#,
        ],
        directory.path(),
    );
    let word = retried.words.recv_timeout(PATIENCE).unwrap();
    assert!(word.contains("again in 1 s"), "{word}");
    std::fs::File::create(directory.path().join("mended")).unwrap();
    assert_eq!(retried.ended().0, Some(0));
    let told = told();
    assert!(told.ends_with("again web/1 again web/2 "), "{told}");
}

/// The networks of a scope change, and a watch of the scope is not told so.
#[test]
fn a_command_is_told_of_a_subnet_that_was_added_while_its_scope_was_watched() {
    let directory = tempfile::tempdir().unwrap();
    let (server, since) = served(directory.path());
    let script = r#"echo "$IP_0 $NETWORK_SUBNET_0 $NETWORK_GATEWAY_0 $NETWORK_DNS_0" >> told; echo told >&2"#;
    let arguments = ["--scope", "shop", "--since", &since, "--count", "2", "--exec", script];
    let watch = Watch::start(&server, &arguments, directory.path());
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "web/0", "--scope", "shop"]);
    assert_eq!(watch.words.recv_timeout(PATIENCE).unwrap(), "told");
    server.allod_ok(&["subnet", "add", "lan", "10.1.0.0/24", "--gateway", "10.1.0.1", "--dns", "10.1.0.2"]);
    server.allod_ok(&["ip", "claim", "lan", "10.1.0.5", "--owner", "web/1", "--scope", "shop"]);
    let (code, words) = watch.ended();
    assert_eq!(code, Some(0), "{words:?}");
    let told = std::fs::read_to_string(directory.path().join("told")).unwrap();
    assert_eq!(told, "10.0.0.2 10.0.0.0/24 10.0.0.1 10.0.0.2\n10.1.0.5 10.1.0.0/24 10.1.0.1 10.1.0.2\n");
}

/// The event that says so comes after the one whose command fails.
#[test]
fn a_command_that_failed_because_of_the_network_is_run_again_with_what_was_mended() {
    let directory = tempfile::tempdir().unwrap();
    let (server, since) = served(directory.path());
    allocate(&server, &["web/0"]);
    // Without what was mended it fails once, and then ends the watch all the same.
    let script = format!(
        "echo $NETWORK_GATEWAY_0 >> told; test $(wc -l < told) -ge 2 && exit 0; \
         {} subnet modify lan 10.0.0.0/24 --gateway 10.0.0.254; exit 1",
        allod().display()
    );
    let arguments = ["--since", &since, "--count", "1", "--on-failure", "retry", "--exec", &script];
    let ran = watch(&server, &arguments, directory.path());
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let told = std::fs::read_to_string(directory.path().join("told")).unwrap();
    assert_eq!(told, "10.0.0.1\n10.0.0.254\n", "{}", text(&ran.stderr));
}

#[test]
fn a_cursor_that_leads_nowhere_says_where_to_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let (first, _) = served(directory.path());
    allocate(&first, &["web/0"]);
    let listed: Value = serde_json::from_str(&first.allod_ok(&["ip", "list", "--format", "json"])).unwrap();
    let other = tempfile::tempdir().unwrap();
    let (second, _) = served(other.path());
    let lost = watch(&second, &["--since", listed["cursor"].as_str().unwrap()], other.path());
    let words = text(&lost.stderr);
    assert_eq!(lost.status.code(), Some(1), "{words}");
    assert!(words.contains("hint: read the state again, then watch from there: `allod watch --since "), "{words}");
    let nobody = Command::new(allod()).args(["--server", "127.0.0.1:1", "watch"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(3), "{}", text(&nobody.stderr));
}

#[test]
fn a_watch_begins_where_a_line_is_expected() {
    let directory = tempfile::tempdir().unwrap();
    let (server, since) = served(directory.path());
    let watch = Watch::start(&server, &["--since", &since, "--network", "lan"], directory.path());
    assert!(watch.line().starts_with("TIME "));
    allocate(&server, &["web/0"]);
    assert!(watch.line().contains("granted"), "as it happens");
}

/// A server that tells one event and never answers what its network is. The channel says when it was asked that.
fn tells_no_network() -> (String, mpsc::Receiver<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (asked, was_asked) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let asked = asked.clone();
            std::thread::spawn(move || {
                let mut to = stream.try_clone().unwrap();
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let request: Value = serde_json::from_str(&line).unwrap();
                    let mut say = |text: Value| writeln!(to, "{text}").unwrap();
                    if request["method"] == "network.get" {
                        asked.send(()).unwrap();
                        continue;
                    }
                    say(json!({"jsonrpc": "2.0", "id": request["id"], "result": {"subscription": 1}}));
                    if request["method"] == "events.watch" {
                        let event = json!({"cursor": "later", "type": "granted", "network": "lan", "network_id": "7",
                            "address": "10.0.0.5"});
                        say(
                            json!({"jsonrpc": "2.0", "method": "event", "params": {"subscription": 1, "event": event}}),
                        );
                    }
                }
            });
        }
    });
    (address, was_asked)
}

/// A server that tells one event and hangs up, and refuses to go on from there.
fn goes_on_no_more() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let watched = AtomicBool::new(false);
    std::thread::spawn(move || {
        let serve = |stream: std::net::TcpStream| {
            let mut to = stream.try_clone().unwrap();
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let request: Value = serde_json::from_str(&line).unwrap();
                let id = &request["id"];
                let is_watch = request["method"] == "events.watch";
                if is_watch && watched.swap(true, Ordering::SeqCst) {
                    let error = json!({"code": -32603, "message": "see log", "data": {"kind": "internal"}});
                    writeln!(to, "{}", json!({"jsonrpc": "2.0", "id": id, "error": error})).unwrap();
                    continue;
                }
                writeln!(to, "{}", json!({"jsonrpc": "2.0", "id": id, "result": {"subscription": 1}})).unwrap();
                if is_watch {
                    let event = json!({"cursor": "later", "type": "granted", "network": "lan", "address": "10.0.0.5"});
                    let params = json!({"subscription": 1, "event": event});
                    writeln!(to, "{}", json!({"jsonrpc": "2.0", "method": "event", "params": params})).unwrap();
                    return;
                }
            }
        };
        std::thread::scope(|all| listener.incoming().flatten().for_each(|stream| drop(all.spawn(|| serve(stream)))));
    });
    address
}

#[test]
fn a_watch_that_is_refused_to_go_on_says_from_where_another_can() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["--scope", "shop", "--since", "begin"];
    let watch = Watch::of(command_to(&goes_on_no_more(), &arguments, directory.path()));
    let (code, words) = watch.ended();
    let words = words.join(" ");
    assert!(code == Some(1) && words.contains("see log"), "{code:?} {words}");
    assert!(words.contains("`allod watch --scope shop --since later` goes on from here"), "{words}");
}

#[test]
fn a_watch_that_waits_for_what_it_is_to_print_ends_when_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let (address, was_asked) = tells_no_network();
    let arguments = ["--since", "begin", "--format", "env"];
    let watch = Watch::of(command_to(&address, &arguments, directory.path()));
    was_asked.recv_timeout(PATIENCE).expect("it looks up the network");
    watch.signal("-TERM");
    let (code, words) = watch.ended();
    assert_eq!(code, Some(0), "{words:?}");
    // The event was not printed, so the next watch begins with it.
    assert_eq!(cursor_in(words.last().unwrap()), "begin");
}

/// A pager at its first page, or a program that hangs: what was not taken is told again where the watch goes on.
#[test]
fn a_watch_whose_output_nobody_takes_ends_when_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let (server, since) = served(directory.path());
    // An event of some 100 000 bytes: more than a pipe holds.
    let note = "x".repeat(1_000);
    let reserved: Vec<Value> =
        (0..100).map(|at| json!({"range": format!("10.1.0.{}", 2 * at + 2), "note": note})).collect();
    let subnets = json!([{"cidr": "10.1.0.0/24", "reserved": reserved}]);
    server.allod_ok(&["call", "network.create", "name=large", &format!("subnets={subnets}")]);
    for signal in ["-INT", "-TERM"] {
        let mut child = command(&server, &["--since", &since, "--format", "json"], directory.path()).spawn().unwrap();
        let (output, words) = (child.stdout.take().unwrap(), lines_of(child.stderr.take().unwrap()));
        let mut watch = Watch { child, lines: mpsc::channel().1, words };
        let begun = Instant::now();
        // With its first byte the line is under way, and there is no room for its last.
        while rustix::io::ioctl_fionread(&output).unwrap() == 0 {
            assert!(begun.elapsed() < PATIENCE, "nothing is printed");
            std::thread::sleep(Duration::from_millis(10));
        }
        watch.signal(signal);
        while watch.child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < 2 * PATIENCE, "{signal}: it goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (code, words) = watch.ended();
        assert_eq!(code, Some(0), "{words:?}");
        let cursor = cursor_in(words.last().unwrap());
        let again = self::watch(&server, &["--since", &cursor, "--count", "1", "--format", "json"], directory.path());
        let event: Value = serde_json::from_str(&text(&again.stdout)).unwrap();
        assert_eq!((&event["type"], &event["network"]), (&json!("network_created"), &json!("large")), "{words:?}");
    }
}

/// Ctrl-C and a service manager signal the watch and its command alike, in any order.
#[test]
fn a_command_that_was_ended_together_with_the_watch_has_not_handled_its_event() {
    let directory = tempfile::tempdir().unwrap();
    let (server, since) = served(directory.path());
    allocate(&server, &["web/0"]);
    let watch_first = "kill -TERM $PPID; kill -TERM $$; sleep 60";
    // It is gone, and known to be, when the watch is signalled.
    let watch_last = "me=$$; (while kill -0 $me; do :; done; kill -TERM $PPID) 2>&- & kill -TERM $$; sleep 60";
    for command in [watch_first; 8].into_iter().chain([watch_last]) {
        let arguments = ["--network", "lan", "--since", &since, "--exec", command, "--on-failure", "skip"];
        let (code, words) = Watch::start(&server, &arguments, directory.path()).ended();
        assert_eq!((code, words.len()), (Some(0), 1), "{command}: {words:?}");
        let cursor = cursor_in(&words[0]);
        let next = watch(&server, &["--since", &cursor, "--count", "1"], directory.path());
        assert!(text(&next.stdout).contains("web/0"), "{command}: {words:?}");
    }
}
