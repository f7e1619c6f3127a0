//! `allod top` against a working server: once, as JSON, and live on a terminal.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::server::{Server, allod};

/// Three networks, filled to different degrees; `tiny` is full and has refused once.
fn filled(directory: &std::path::Path) -> Server {
    let server = Server::start(&directory.join("data"));
    for (network, cidr, holders) in [("wide", "10.0.0.0/24", 3), ("half", "10.1.0.0/28", 7), ("tiny", "10.2.0.0/30", 2)]
    {
        server.allod_ok(&["network", "create", network, "--subnet", cidr]);
        for holder in 0..holders {
            let owner = format!("vm/{holder}");
            server.allod_ok(&["ip", "allocate", network, "--owner", &owner, "--scope", network]);
        }
    }
    assert_eq!(server.allod(&["ip", "allocate", "tiny", "--owner", "late"]).status.code(), Some(1));
    server
}

fn json_of(server: &Server, arguments: &[&str]) -> Value {
    let metrics = server.http.to_string();
    let all: Vec<&str> = ["top", "--format", "json", "--metrics", &metrics].iter().chain(arguments).copied().collect();
    serde_json::from_str(&server.allod_ok(&all)).unwrap()
}

fn names(view: &Value) -> Vec<&str> {
    view["networks"].as_array().unwrap().iter().map(|network| network["network"].as_str().unwrap()).collect()
}

#[test]
fn top_tells_fill_rates_and_refusals_of_a_server_that_works() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(directory.path());
    let over = AtomicBool::new(false);
    let view = std::thread::scope(|threads| {
        // Takes and gives back an address for as long as somebody looks.
        threads.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut client = Client::connect(server.address).await.unwrap();
                while !over.load(Ordering::Relaxed) {
                    client.call("ip.allocate", json!({"network": "wide", "owner": "churn"})).await.ok();
                    client.call("ip.release", json!({"network": "wide", "owner": "churn"})).await.ok();
                    let refused = client.call("ip.allocate", json!({"network": "tiny", "owner": "churn"})).await;
                    assert!(matches!(refused, Answer::Refused(..)), "{refused:?}");
                }
            });
        });
        // On a busy machine a second may go by without a round.
        let is_working = |view: &Value| {
            let rates = &view["networks"][2];
            [&rates["granted_per_second"], &rates["released_per_second"]].iter().all(|rate| rate.as_f64() > Some(0.0))
                && view["refused_per_second"]["not_enough_capacity"].as_f64() > Some(0.0)
        };
        let view = (0..30).map(|_| json_of(&server, &["--scopes"])).find(is_working);
        over.store(true, Ordering::Relaxed);
        view.expect("no view tells of what is done all the time")
    });
    assert_eq!(names(&view), ["tiny", "half", "wide"], "the fullest first");
    let (tiny, wide) = (&view["networks"][0], &view["networks"][2]);
    assert_eq!((&tiny["full"], &tiny["ipv4"]["held"], &tiny["reservations"]), (&json!(1.0), &json!(2.0), &json!(2)));
    assert_eq!(tiny["ipv6"], Value::Null);
    let rate = |of: &Value| of.as_f64().unwrap_or_else(|| panic!("{view:#}"));
    assert!(rate(&wide["granted_per_second"]) > 0.0 && rate(&wide["released_per_second"]) > 0.0);
    assert!(rate(&tiny["refused_per_second"]["not_enough_capacity"]) > 0.0);
    assert!(rate(&view["refused_per_second"]["not_enough_capacity"]) > 0.0);
    assert_eq!(view["failed_per_second"], json!({}));
    assert!(rate(&view["grant_seconds"]["p50"]) > 0.0 && rate(&view["commit_seconds"]["p99"]) > 0.0);
    assert!(rate(&view["granted_per_second"]) >= rate(&wide["granted_per_second"]));
    assert_eq!((&view["store_ready"], &view["nodes"][0]["owner"]), (&json!(true), &json!(true)));
    let scope = |name: &str| view["scopes"].as_array().unwrap().iter().find(|scope| scope["scope"] == name).unwrap();
    assert_eq!(scope("half")["addresses"], "7");
    server.stop();
}

#[test]
fn a_table_is_printed_once_where_there_is_no_terminal_and_one_network_is_told_pool_by_pool() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(directory.path());
    let metrics = server.http.to_string();
    let table = server.allod_ok(&["top", "--metrics", &metrics, "--interval", "1s", "--limit", "2", "--sort", "name"]);
    let line = |of: &str| table.lines().find(|line| line.starts_with(of)).unwrap_or_else(|| panic!("{of}: {table}"));
    assert!(line("store").contains("takes changes"));
    assert!(line("half").contains("50 %"), "{table}");
    assert!(line("and 1 network more").starts_with("and") && !table.contains("wide") && !table.contains('\x1b'));
    let one = server.allod_ok(&["top", "--metrics", &metrics, "--interval", "0", "--network", "half"]);
    assert!(one.contains("10.1.0.0-10.1.0.15") && !one.contains("tiny"), "{one}");
    let id = serde_json::from_str::<Value>(&server.allod_ok(&["network", "get", "half", "--format", "json"])).unwrap()
        ["id"]
        .clone();
    let by_id = server.allod_ok(&["top", "--metrics", &metrics, "--interval", "0", "--network", id.as_str().unwrap()]);
    assert!(by_id.contains("\nhalf ") && !by_id.contains("tiny"), "{by_id}");
    let scopes = server.allod_ok(&["top", "--metrics", &metrics, "--interval", "0", "--scopes", "--limit", "1"]);
    assert!(scopes.ends_with("and 2 scopes more\n"), "{scopes}");
    assert_eq!(json_of(&server, &["--interval", "0", "--scopes", "--limit", "1"])["scopes_more"], 2);
    let unknown = server.allod(&["top", "--metrics", &metrics, "--interval", "0", "--network", "nix"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(json_of(&server, &["--interval", "0", "--network", "half"])["usage"]["subnets"][0]["pools"].is_array());

    // A server that is away is named, and the others are shown.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let both = format!("{metrics},{nobody}");
    let shown = server.allod_ok(&["top", "--metrics", &both, "--interval", "0"]);
    assert!(shown.contains(&format!("! {nobody}: ")) && shown.contains("tiny"), "{shown}");
    let refused = server.allod(&["top", "--metrics", &nobody, "--interval", "0"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("hint: name the HTTP port of the server"));
    // The JSON-RPC port does not speak HTTP.
    let wrong = server.allod(&["top", "--metrics", &server.address.to_string(), "--interval", "0", "--timeout", "5s"]);
    assert_eq!(wrong.status.code(), Some(3));
    server.stop();
}

#[test]
fn on_a_terminal_it_goes_on_until_q_or_a_signal_and_gives_the_terminal_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(directory.path());
    let path = |name: &str| directory.path().join(name);
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let top = format!("exec {} top --metrics {} --interval 1s", allod().display(), server.http);
    std::fs::write(path("top"), format!("echo $$ >pid\n{top}\n")).unwrap();
    std::fs::write(path("run"), "stty cols 40 rows 24\nstty -a >before\nsh ./top\necho $? >code\nstty -a >after\n")
        .unwrap();
    for by_key in [true, false] {
        // `script` gives the command a terminal of its own, whose keyboard is our pipe.
        let mut child = Command::new("script")
            .args(["-qfec", "sh ./run", "/dev/null"])
            .current_dir(directory.path())
            .env("ALLOD_SERVER", server.address.to_string())
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut screen, mut keys) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        let (mut seen, mut bytes, mut told) = (String::new(), [0; 4_096], false);
        loop {
            let count = screen.read(&mut bytes).unwrap();
            if count == 0 {
                break;
            }
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
            // Once it is drawn twice, it is known to go on by itself.
            if !told && seen.matches("tiny").count() >= 2 {
                told = true;
                if by_key {
                    keys.write_all(b"sq").unwrap();
                } else {
                    let ended = Command::new("kill").args(["-TERM", read("pid").trim()]).status().unwrap();
                    assert!(ended.success());
                }
            }
        }
        drop(keys);
        child.wait().unwrap();
        assert_eq!(read("code").trim(), "0", "{seen}");
        assert_eq!(read("before"), read("after"), "keys are echoed again");
        let (begin, end) = (seen.find("\x1b[?1049h").unwrap(), seen.rfind("\x1b[?1049l").unwrap());
        assert!(begin < end && seen[begin..end].contains("takes changes"), "{seen:?}");
        // A column that has no room is left out, not cut.
        let headings = seen[begin..end].lines().filter(|line| line.contains("NETWORK"));
        let last = |line: &str| {
            let plain = anstream::adapter::strip_str(line).to_string();
            plain.split_whitespace().next_back().unwrap_or_default().to_owned()
        };
        let mut whole = headings
            .map(last)
            .inspect(|last| assert!(["GRANTED/S", "REFUSED/S", "IN"].contains(&&**last), "{last}: {seen:?}"));
        assert!(whole.next().is_some() && whole.all(|last| last != "RELEASED/S"), "{seen:?}");
    }
    server.stop();
}
