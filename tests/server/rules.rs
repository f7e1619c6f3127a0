//! The rules of the transport, as stated by the protocol.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allod::actors::service::Hooks;
use allod::core::command::Command;
use allod::limits::IN_FLIGHT_REQUESTS_MAX;
use serde_json::{Value, json};

use crate::support::{TestServer, http, http_with, line, patient, wait_for};

#[test]
fn requests_for_one_network_take_effect_in_the_order_sent() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut text = String::new();
    for at in 0..300 {
        text += &line(at, "ip.allocate", &json!({"network": "lan", "owner": "web/0"}));
        text += &line(1_000 + at, "ip.release", &json!({"network": "lan", "owner": "web/0"}));
    }
    client.raw(text);
    for _ in 0..600 {
        let answer = client.answer();
        if answer["id"].as_u64().unwrap() < 1_000 {
            assert_eq!(answer["result"]["created"], true, "{answer}");
        } else {
            assert_eq!(answer["result"]["released"], json!(["10.0.0.2"]), "{answer}");
        }
    }
}

#[test]
fn a_request_waits_for_the_creation_of_the_network_that_it_names() {
    let server = TestServer::new();
    let mut client = server.client();
    let mut text = String::new();
    for at in 0..20 {
        let name = format!("net-{at}");
        let subnets = json!([{"cidr": format!("10.{at}.0.0/24")}]);
        text += &line(at, "network.create", &json!({"name": name, "subnets": subnets}));
        text += &line(100 + at, "ip.allocate", &json!({"network": name, "owner": "a"}));
        text += &line(200 + at, "network.update", &json!({"network": name, "set": {"name": format!("{name}-new")}}));
        text += &line(300 + at, "ip.allocate", &json!({"network": format!("{name}-new"), "owner": "b"}));
        text += &line(400 + at, "ip.allocate", &json!({"network": name, "owner": "c"}));
    }
    client.raw(text);
    for _ in 0..100 {
        let answer = client.answer();
        let gone = answer["id"].as_u64().unwrap() >= 400;
        assert_eq!(answer["error"]["data"]["kind"] == "not_found", gone, "{answer}");
    }
}

#[test]
fn a_method_over_several_networks_stands_between_what_is_before_and_behind() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let mut text = String::new();
    for round in 0..20 {
        let owner = json!("web/0");
        let ips = json!([{"network": "lan"}, {"network": "dmz"}]);
        text += &line(round * 10, "ip.acquire", &json!({"owner": owner, "ips": ips}));
        text += &line(round * 10 + 1, "ip.release", &json!({"network": "lan", "owner": owner}));
        text += &line(round * 10 + 2, "owner.release", &json!({"owner": owner}));
        text += &line(round * 10 + 3, "ip.allocate", &json!({"network": "dmz", "owner": owner, "must_create": true}));
        text += &line(round * 10 + 4, "ip.release", &json!({"network": "dmz", "owner": owner}));
    }
    client.raw(text);
    for _ in 0..100 {
        let answer = client.answer();
        let result = &answer["result"];
        match answer["id"].as_u64().unwrap() % 10 {
            0 => assert_eq!(result["reservations"].as_array().unwrap().len(), 2, "{answer}"),
            2 => assert_eq!(result["released"], json!([{"network": "dmz", "address": "10.1.0.1"}]), "{answer}"),
            3 => assert_eq!(result["created"], true, "{answer}"),
            _ => assert_eq!(result["released"].as_array().unwrap().len(), 1, "{answer}"),
        }
    }
}

#[test]
fn a_batch_is_answered_by_one_array_and_notifications_by_nothing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.raw(
        r#"[{"jsonrpc":"2.0","id":"a","method":"ip.allocate","params":{"network":"lan","owner":"x"}},
            {"jsonrpc":"2.0","method":"ip.allocate","params":{"network":"lan","owner":"y"}},
            7, {"jsonrpc":"2.0","id":2,"method":"ip.find","params":{"address":"10.0.0.3"}}]"#
            .replace('\n', " "),
    );
    client.raw("\n");
    let answer = client.answer();
    let members = answer.as_array().unwrap();
    assert_eq!(members.len(), 3, "{answer}");
    let by_id = |id: &serde_json::Value| members.iter().find(|member| member["id"] == *id).unwrap().clone();
    assert_eq!(by_id(&json!("a"))["result"]["address"], "10.0.0.2");
    assert_eq!(by_id(&json!(null))["error"]["code"], -32600);
    // The notification was carried out before the barrier behind it.
    assert_eq!(by_id(&json!(2))["result"]["found"][0]["reservation"]["owner"], "y");
    client.raw("[{\"jsonrpc\":\"2.0\",\"method\":\"server.ping\"}]\n[]\n");
    assert_eq!(client.answer()["error"]["code"], -32600);
    let many = vec![r#"{"jsonrpc":"2.0","id":1,"method":"server.ping"}"#; 1_001].join(",");
    client.raw(format!("[{many}]\n"));
    assert_eq!(client.answer()["error"]["code"], -32600);
    let most =
        vec![r#"{"jsonrpc":"2.0","id":1,"method":"ip.get","params":{"network":"lan","address":"10.0.0.9"}}"#; 1_000];
    client.raw(format!("[{}]\n", most.join(",")));
    assert_eq!(client.answer().as_array().unwrap().len(), 1_000);
}

#[test]
fn blank_lines_are_nothing_and_what_is_no_json_keeps_the_connection() {
    let server = TestServer::new();
    let mut client = server.client();
    client.raw("\n\r\n   \n\t\r\n");
    client.raw("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server.ping\"}\r\n");
    assert_eq!(client.answer()["result"], "pong");
    client.raw("nonsense\n");
    let answer = client.answer();
    assert_eq!((answer["error"]["code"].as_i64(), answer["id"].is_null()), (Some(-32700), true));
    client.raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}\n");
    let answer = client.answer();
    assert_eq!((answer["error"]["code"].as_i64(), answer["id"].is_null()), (Some(-32700), true));
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    client.raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"server.ping\",\"params\":{{\"x\":{deep}}}}}\n"));
    assert!(client.answer()["error"]["code"].as_i64().is_some());
    client.raw(format!("{deep}\n"));
    // A batch whose one member is not a request.
    assert_eq!(client.answer()[0]["error"]["code"], -32600);
    assert_eq!(client.ok("server.ping", json!({})), "pong");
}

#[test]
fn a_line_too_long_is_refused_and_ends_the_connection_after_what_came_before() {
    let server = TestServer::with(|options| options.config.server.max_line_bytes = 4_096);
    for ended in [true, false] {
        let mut client = server.client();
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"server.ping"}"#;
        let fits = format!("{ping:<4096}\r\n");
        client.raw(&fits);
        assert_eq!(client.answer()["result"], "pong");
        client.raw(" ".repeat(4_098));
        if ended {
            client.raw("\n");
        }
        let answer = client.answer();
        assert_eq!((answer["error"]["data"]["kind"].as_str(), answer["id"].is_null()), (Some("line_too_long"), true));
        assert_eq!(client.line(), None);
    }
}

#[test]
fn what_waits_ends_with_a_connection_that_was_said_to_be_closed_and_the_metrics_tell_why() {
    let server = TestServer::with(|options| options.config.server.max_line_bytes = 4_096);
    let mut other = server.client();
    other.ok(
        "network.create",
        json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/32", "pools": [{"range": "10.0.0.0/32"}]}]}),
    );
    other.allocate("a");
    let mut client = server.client();
    client.send("ip.allocate", json!({"network": "lan", "owner": "w", "wait_seconds": 3_600}));
    server.until_waits("lan", 1);
    client.raw(" ".repeat(4_098));
    assert_eq!(client.answer()["error"]["data"]["kind"], "line_too_long");
    assert_eq!(client.answer()["error"]["data"]["kind"], "not_ready", "nothing was granted");
    assert_eq!(client.line(), None);
    let metrics = http(server.running.http, "GET /metrics", b"").1;
    for row in [
        "allod_requests_total{method=\"none\",outcome=\"line_too_long\"} 1",
        "allod_connections_closed_total{reason=\"line_too_long\"} 1",
        "allod_connections_closed_total{reason=\"done\"} 0",
    ] {
        assert!(metrics.lines().any(|line| line == row), "{row}: {metrics}");
    }
}

/// Otherwise it would stay open for as long as its client likes.
#[test]
fn no_subscription_begins_on_a_connection_that_was_said_to_be_closed() {
    let server = TestServer::with(|options| options.config.server.max_line_bytes = 4_096);
    let mut client = server.with_lan();
    server.store.hold();
    client.raw(line(1, "ip.allocate", &json!({"network": "lan", "owner": "a"})));
    client.raw(line(2, "events.watch", &json!({})));
    client.raw(" ".repeat(4_098));
    assert_eq!(client.answer()["error"]["data"]["kind"], "line_too_long");
    server.store.let_go();
    assert_eq!(client.answer()["result"]["address"], "10.0.0.2");
    let refused = client.answer();
    assert_eq!(refused["error"]["data"]["kind"], "not_ready", "{refused}");
    assert_eq!(client.line(), None);
}

#[test]
fn the_end_of_input_is_no_hang_up_and_a_last_line_without_its_end_is_not_carried_out() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    server.store.hold();
    client.raw(line(1, "ip.allocate", &json!({"network": "lan", "owner": "a"})));
    client.raw(line(2, "ip.allocate", &json!({"network": "lan", "owner": "b"})).trim_end());
    client.end_input();
    assert!(client.silent_for(Duration::from_millis(100)));
    server.store.let_go();
    assert_eq!(client.answer()["result"]["address"], "10.0.0.2");
    assert_eq!(client.rest(), "");
    assert_eq!(server.client().ok("network.usage", json!({"network": "lan"}))["held"], "1");
}

#[test]
fn the_first_scrape_after_a_network_exists_shows_its_addresses() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let metrics = http(server.running.http, "GET /metrics", b"").1;
    for line in [
        "allod_network_addresses_size{family=\"4\",network=\"dmz\",realm=\"default\"} 256",
        "allod_network_addresses_held{family=\"4\",network=\"dmz\",realm=\"default\"} 0",
        "allod_network_reservations{network=\"dmz\",realm=\"default\"} 0",
        "# TYPE allod_store_flushes_total counter",
        "# TYPE allod_store_compactions_total counter",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
}

#[test]
fn beyond_the_bound_in_flight_nothing_more_is_read() {
    let decided = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&decided);
    let before_decide = move |command: &Command| {
        counted.fetch_add(usize::from(matches!(command, Command::Allocate(_))), Ordering::SeqCst);
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() });
    let mut client = server.with_lan();
    server.store.hold();
    let before = server.store.commits();
    let mut text = String::new();
    for at in 0..5_000 {
        text += &line(at, "ip.allocate", &json!({"network": "lan", "owner": format!("o{}", at % 200), "brief": true}));
    }
    let mut writer = client.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || std::io::Write::write_all(&mut writer, text.as_bytes()).unwrap());
    wait_for("the decision of all that may be in flight", || decided.load(Ordering::SeqCst) == IN_FLIGHT_REQUESTS_MAX);
    assert!(client.silent_for(Duration::from_millis(200)));
    assert_eq!((decided.load(Ordering::SeqCst), server.queued("lan")), (IN_FLIGHT_REQUESTS_MAX, 0));
    assert!(server.store.commits() - before <= 2, "two groups are under way at most");
    server.store.let_go();
    for _ in 0..5_000 {
        assert!(client.answer()["result"]["address"].is_string());
    }
    writing.join().unwrap();
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_others_do_not_notice() {
    let server = TestServer::with(|options| options.config.server.slow_client_seconds = 1);
    let mut slow = server.with_lan();
    for at in 0..200 {
        slow.allocate(&format!("o{at}"));
    }
    let mut other = server.client();
    let request = line(1, "ip.list", &json!({"network": "lan"}));
    let mut writer = slow.stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        // Until the server closes.
        while std::io::Write::write_all(&mut writer, request.as_bytes()).is_ok() {}
    });
    for _ in 0..30 {
        other.ok("server.ping", json!({}));
        std::thread::sleep(Duration::from_millis(100));
        if writing.is_finished() {
            break;
        }
    }
    writing.join().unwrap();
    let metrics = http(server.running.http, "GET /metrics", b"").1;
    assert!(metrics.contains("allod_connections_closed_total{reason=\"slow\"} 1"), "{metrics}");
}

#[test]
fn an_unfinished_line_and_idleness_have_their_limits() {
    let server = TestServer::with(|options| {
        options.config.server.partial_line_seconds = 1;
        options.config.server.idle_timeout_seconds = 3;
    });
    let mut unfinished = server.client();
    let mut idle = server.client();
    unfinished.raw("{\"jsonrpc\"");
    assert_eq!(unfinished.line(), None);
    assert_eq!(idle.ok("server.ping", json!({})), "pong");
    assert_eq!(idle.line(), None);
}

#[test]
fn who_was_answered_after_a_long_wait_is_idle_from_then_on() {
    const IDLE: u64 = 3;
    let server = TestServer::with(|options| options.config.server.idle_timeout_seconds = IDLE);
    let mut other = server.client();
    other.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/30"}], "cooldown_seconds": 0}));
    other.allocate("a");
    other.allocate("b");
    let mut client = server.client();
    client.send("ip.allocate", json!({"network": "lan", "owner": "w", "wait_seconds": 3_600}));
    // Longer than an idle connection is kept.
    assert!(client.waits_still(Duration::from_secs(IDLE + 1)));
    let before = std::time::Instant::now();
    server.client().ok("ip.release", json!({"network": "lan", "owner": "a"}));
    assert_eq!(client.answer()["result"]["address"], "10.0.0.1");
    assert_eq!(client.line(), None);
    assert!(before.elapsed() >= Duration::from_secs(IDLE), "{:?}", before.elapsed());
}

#[test]
fn what_a_vanished_client_asked_is_carried_out() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    server.store.hold();
    client.hand_in("ip.allocate", json!({"network": "lan", "owner": "a"}));
    drop(client);
    server.store.let_go();
    let mut other = server.client();
    let found = other.ok("ip.list", json!({"network": "lan"}));
    assert_eq!(found["reservations"][0]["owner"], "a");
}

#[test]
fn too_many_connections_are_told_so() {
    let server = TestServer::with(|options| options.config.server.max_connections = 2);
    let (mut one, mut two) = (server.client(), server.client());
    one.ok("server.ping", json!({}));
    two.ok("server.ping", json!({}));
    let mut three = server.client();
    assert_eq!(three.answer()["error"]["data"]["kind"], "overloaded");
    assert_eq!(three.line(), None);
    drop(one);
    wait_for("that there is room for another one", || {
        let mut next = server.client();
        next.send("server.ping", json!({}));
        next.answer().get("result").is_some()
    });
}

#[test]
fn http_answers_the_same_and_says_in_its_status_what_cannot_be_json() {
    let server = TestServer::with(|options| options.config.server.max_body_bytes = 4_096);
    server.with_lan();
    let at = server.running.http;
    let (status, body) =
        http(at, "POST /rpc", line(1, "ip.allocate", &json!({"network": "lan", "owner": "a"})).as_bytes());
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap()["result"]["address"], "10.0.0.2");
    assert_eq!(http(at, "POST /rpc", b"nonsense").0, 200);
    assert_eq!(http(at, "POST /rpc", b" ").0, 200);
    assert_eq!(http(at, "POST /rpc", b"{\"jsonrpc\":\"2.0\",\"method\":\"server.ping\"}").0, 204);
    assert_eq!(http(at, "POST /rpc", &[b' '; 5_000]).0, 413);
    assert_eq!(http(at, "GET /healthz", b""), (200, "ok\n".to_owned()));
    assert_eq!(http(at, "GET /readyz", b""), (200, "ready\n".to_owned()));
    let (status, document) = http(at, "GET /openrpc.json", b"");
    assert_eq!(status, 200);
    assert!(document.contains("\"openrpc\""));
}

/// Many libraries send like this, and say "broken pipe" if they cannot send everything. The server discards the excess for a
/// second. On a machine that needs longer a try shows nothing, so it is repeated.
#[test]
fn who_sends_a_body_that_is_a_little_too_long_and_reads_only_then_is_told_so() {
    let server = TestServer::new();
    let length = allod::limits::BODY_BYTES_MAX + 10;
    let text = format!("POST /rpc HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{}", " ".repeat(length));
    let told = || {
        let mut stream = std::net::TcpStream::connect(server.running.http).unwrap();
        let (begun, mut answer) = (Instant::now(), [0; 12]);
        let told = stream.write_all(text.as_bytes()).and_then(|()| stream.read_exact(&mut answer));
        let had_time = begun.elapsed() < Duration::from_secs(1);
        assert!(told.is_ok() || !had_time, "{told:?}");
        told.is_ok().then(|| String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = std::iter::repeat_with(told).take(100).find_map(|told| told);
    assert_eq!(answer.as_deref(), Some("HTTP/1.1 413"));
}

/// Clients are not authenticated, so a web page that somebody opens could release addresses.
#[test]
fn what_a_page_from_elsewhere_asks_through_a_browser_is_refused() {
    let server = TestServer::new();
    server.with_lan();
    let at = server.running.http;
    let ask = line(1, "ip.allocate", &json!({"network": "lan", "owner": "a"}));
    let status = |host: &str, origin: &str| {
        let headers = format!("host: {host}\r\norigin: {origin}\r\ncontent-type: text/plain");
        http_with(at, "POST /rpc", &headers, ask.as_bytes()).0
    };
    let own = at.to_string();
    assert_eq!(status(&own, "http://evil.example"), 403);
    assert_eq!(status(&own, "null"), 403);
    // The page's own name leads to this server.
    assert_eq!(status("evil.example:7401", "http://evil.example:7401"), 403);
    let headers = format!("host: {own}\r\norigin: http://evil.example");
    assert_eq!(http_with(at, "GET /events", &headers, b"").0, 403);
    // When a browser takes this server for the page's own, it sends reads without an origin.
    for path in ["/metrics", "/openrpc.json", "/events"] {
        let ask = |host: &str| http_with(at, &format!("GET {path}"), &format!("host: {host}"), b"").0;
        assert_eq!((ask("evil.example:7401"), ask("evil.example.")), (403, 403), "{path}");
    }
    for host in [own.as_str(), "localhost:7401", "allod.localhost", "prometheus-target", "[::1]:7401"] {
        assert_eq!(http_with(at, "GET /metrics", &format!("host: {host}"), b"").0, 200, "{host}");
    }
    assert_eq!(http_with(at, "GET /healthz", "host: lb.example", b"").0, 200, "there is nothing to read");
    assert_eq!(server.client().ok("ip.list", json!({"network": "lan"}))["reservations"], json!([]));
    for own in [&own, &format!("localhost:{}", at.port()), &format!("[::1]:{}", at.port())] {
        assert_eq!(status(own, &format!("http://{own}")), 200, "{own}");
    }
}

/// No line of a head is JSON, which alone would leave the connection open, and the body is a request like any other.
#[test]
fn what_a_browser_posts_to_the_port_of_lines_is_not_carried_out() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let body = line(1, "ip.allocate", &json!({"network": "lan", "owner": "a"}));
    for head in ["POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: text/plain", "GET /x HTTP/1.0"] {
        let mut page = server.client();
        page.raw(format!("{head}\r\n\r\n{body}"));
        let told: Value = serde_json::from_str(&page.text_line()).unwrap();
        assert_eq!((&told["error"]["code"], &told["id"]), (&json!(-32700), &Value::Null), "{told}");
        assert!(told["error"]["message"].as_str().unwrap().contains("HTTP"), "{told}");
        assert_eq!(page.rest(), "", "nothing more is answered, and the connection ends");
    }
    // A request may mention HTTP.
    let note = json!({"network": "lan", "owner": "b", "note": "speaks HTTP/", "dry_run": true});
    assert!(server.client().ok("ip.allocate", note)["address"].is_string());
    // After a request, the head is only a line that is not JSON.
    client.raw("POST / HTTP/1.1\n");
    assert_eq!(client.answer()["error"]["code"], -32700);
    assert_eq!(client.ok("ip.list", json!({"network": "lan"}))["reservations"], json!([]));
}

#[test]
fn what_comes_later_is_refused_clearly() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    for method in ["auth.login", "inventory.compare"] {
        assert_eq!(client.kind(method, json!({})), "method_not_found");
    }
}

/// No other node would serve, so nothing changes, and other requests on this connection go on.
#[test]
fn the_only_node_is_not_taken_out_of_service() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let name = client.ok("server.info", json!({}))["node"].clone();
    let drain = client.send("cluster.drain", json!({"reason": "upgrade"}));
    client.send("ip.allocate", json!({"network": "lan", "owner": "a"}));
    let answers = [client.answer(), client.answer()];
    let (refused, granted) =
        if answers[0]["id"] == drain { (&answers[0], &answers[1]) } else { (&answers[1], &answers[0]) };
    assert_eq!(refused["error"]["data"]["kind"], "in_use", "{refused}");
    assert_eq!(granted["result"]["created"], true, "{granted}");
    for ask in [json!({"dry_run": true}), json!({"node": name})] {
        assert_eq!(client.kind("cluster.drain", ask), "in_use");
    }
    assert_eq!(client.kind("cluster.drain", json!({"node": "elsewhere"})), "not_found");
    assert_eq!(client.kind("cluster.drain", json!({"node": ""})), "invalid_argument");
    let back = client.ok("cluster.drain", json!({"drain": false}));
    assert_eq!(back, json!({"node": name, "draining": false, "owner": name}));
    assert_eq!(client.allocate("a")["created"], false);
}

/// A search for an unknown node asks the store; the store of a single server knows no nodes.
#[test]
fn the_only_node_stays_known_whichever_node_is_asked_for() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let name = client.ok("server.info", json!({}))["node"].clone();
    for ask in [json!({"node": "elsewhere"}), json!({"drain": false})] {
        client.call("cluster.drain", ask.clone());
        let nodes = client.ok("cluster.nodes", json!({}))["nodes"].clone();
        let told = nodes.as_array().unwrap().iter().map(|node| (&node["name"], &node["draining"], &node["owner"]));
        assert_eq!(told.collect::<Vec<_>>(), [(&name, &json!(false), &json!(true))], "{ask}");
        assert_eq!(client.ok("cluster.locate", json!({"network": "lan"}))["node"], name, "{ask}");
    }
}

/// Every answer that the server writes by hand parses as the published noun.
#[test]
fn grants_written_by_hand_are_the_published_noun() {
    use allod::wire::nouns;
    let server = TestServer::new();
    let mut client = server.client();
    client.ok(
        "network.create",
        json!({"name": "lan", "l2": {"mode": "bridged", "link": "br0", "mac_prefix": "aa:00:00"}, "subnets": [{
            "cidr": "2001:db8::/64", "name": "s", "gateway": "fe80::1", "dhcp": true, "zones": ["z\"1"],
            "dns": {"servers": ["2001:db8::53"], "search": ["example.org"]},
            "pools": [{"range": "2001:db8::10-2001:db8::ff", "name": "p"}]}]}),
    );
    let asked = json!({"network": "lan", "owner": "w\"eb\\0", "claimant": "vm-1", "labels": {"k\"": "v"}, "note": "n",
        "hostname": "web.example.org", "mac": "auto", "owner_uid": "u", "ttl_seconds": 60, "transient": true,
        "release_with_claimant": true});
    let answer = client.ok("ip.allocate", asked);
    let noun: nouns::Granted = serde_json::from_value(answer.clone()).unwrap();
    assert_eq!(serde_json::to_value(&noun).unwrap(), answer, "nothing is lost or added on the way through the noun");
    assert_eq!(answer["dns"]["search"], json!(["example.org"]));
    assert_eq!(answer["interface"], "2001:db8::10/64");
    assert_eq!(answer["expires_in_seconds"], 60);
    let brief = client.ok("ip.allocate", json!({"network": "lan", "owner": "x", "brief": true}));
    let noun: nouns::BriefGrant = serde_json::from_value(brief.clone()).unwrap();
    assert_eq!(serde_json::to_value(&noun).unwrap(), brief);
    let unbound = client.ok("ip.unbind", json!({"network": "lan", "owner": "w\"eb\\0", "claimant": "vm-1"}));
    let noun: nouns::Unbound = serde_json::from_value(unbound.clone()).unwrap();
    assert_eq!(serde_json::to_value(&noun).unwrap(), unbound);
    assert_eq!(unbound["released"], true);
}

/// `false` is a value: only null, empty lists and empty objects are left out.
#[test]
fn what_a_reservation_is_not_is_said_as_false_and_not_left_out() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let granted = client.allocate("plain");
    let listed = client.ok("ip.list", json!({"network": "lan"}))["reservations"][0].clone();
    for reservation in [&granted, &listed] {
        for member in ["dhcp", "release_with_claimant", "transient"] {
            assert_eq!(reservation[member], false, "{member} of {reservation}");
        }
    }
    serde_json::from_value::<allod::wire::nouns::Granted>(granted).unwrap();
    serde_json::from_value::<allod::wire::nouns::Reservation>(listed).unwrap();
}

#[test]
fn lists_are_paged_by_network_and_address_and_show_each_once() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    for at in 0..7 {
        client.ok("ip.allocate", json!({"network": "lan", "owner": format!("o{at}")}));
        client.ok("ip.allocate", json!({"network": "dmz", "owner": format!("o{at}")}));
    }
    let mut seen = Vec::new();
    let mut ask = json!({"limit": 3});
    loop {
        let page = client.ok("ip.list", ask.clone());
        for entry in page["reservations"].as_array().unwrap() {
            seen.push((entry["network"].as_str().unwrap().to_owned(), entry["address"].as_str().unwrap().to_owned()));
        }
        match page.get("next") {
            Some(next) => ask["after"] = next.clone(),
            None => break,
        }
    }
    assert_eq!(seen.len(), 14);
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(seen, sorted);
    assert_eq!(client.ok("ip.list", json!({"count_only": true}))["count"], 14);
    assert_eq!(client.ok("network.list", json!({"limit": 1}))["networks"][0]["name"], "dmz");
}

#[test]
fn a_dry_run_answers_and_changes_nothing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let commits = server.store.commits();
    assert_eq!(client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "dry_run": true}))["created"], true);
    client.ok("network.create", json!({"name": "x", "subnets": [{"cidr": "10.9.0.0/24"}], "dry_run": true}));
    client.ok("network.delete", json!({"network": "lan", "dry_run": true}));
    client.ok("subnet.add", json!({"network": "lan", "cidr": "10.9.0.0/24", "dry_run": true}));
    assert_eq!(client.kind("network.get", json!({"network": "x"})), "not_found");
    assert_eq!(client.ok("network.usage", json!({"network": "lan"}))["held"], "0");
    assert_eq!(server.store.commits(), commits);
}
