//! Clients that ask for much with little and do not read it: short requests, long answers.
//!
//! The memory of the process is what the kernel reports as its peak (`VmHWM`).

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Server, Starting, http_post};

/// Enough for a page that is as long as an answer may be.
const RESERVATIONS: usize = 4_200;
const MIB: usize = 1 << 20;
/// The most memory that a client costs if it sends and never reads, as `deploy/README.md` says: requests in flight, what
/// they became, and what is granted in answers that its kernel accepted.
const FLOODING_CLIENT_MAX: usize = 32 * MIB;

struct Client {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Client {
    fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let answers = BufReader::new(stream.try_clone().unwrap());
        Self { stream, answers }
    }

    fn send(&mut self, lines: &str) {
        self.stream.write_all(lines.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.answers.read_line(&mut line).unwrap() > 0, "the connection was closed");
        line
    }

    fn answer(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }
}

fn request(id: usize, method: &str, params: Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// How many members of a batch were refused because there is no room for their answers, and how many were done.
fn refused_and_done(answers: &[Value]) -> (usize, usize) {
    let refused = answers.iter().filter(|answer| answer["error"]["data"]["kind"] == "overloaded").count();
    (refused, answers.iter().filter(|answer| answer.get("result").is_some()).count())
}

fn list(id: usize) -> String {
    request(id, "ip.list", json!({"network": "lan", "limit": 10_000}))
}

/// A server that has nothing yet.
fn empty(directory: &std::path::Path) -> (Server, Client) {
    let server = Starting::with_store(&directory.join("data"), "memory").ready();
    let client = Client::new(&server);
    (server, client)
}

/// A server with a network whose list is as long as an answer may be.
fn full(directory: &std::path::Path, environment: &[(&str, &str)]) -> Server {
    let environment = environment.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let data = directory.join("data");
    let server = Starting::with_environment(&data, &["serve", "--store", "memory"], environment).ready();
    let mut client = Client::new(&server);
    client.send(&request(0, "network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]})));
    assert!(client.answer().get("result").is_some());
    let note = "n".repeat(1_000);
    for from in (0..RESERVATIONS).step_by(500) {
        let ids = from..RESERVATIONS.min(from + 500);
        let grant = |at| {
            let params = json!({"network": "lan", "owner": format!("o{at}"), "note": note, "brief": true});
            request(at, "ip.allocate", params)
        };
        client.send(&ids.clone().map(grant).collect::<String>());
        ids.for_each(|_| assert!(client.answer().get("result").is_some()));
    }
    // Asks for one such answer first, so that the memory that one answer needs is already part of the peak.
    client.send(&list(1));
    let page = client.line();
    assert!((3 * MIB..5 * MIB).contains(&page.len()), "{}", page.len());
    server
}

/// The most memory that the process ever had, in bytes.
fn most(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn long_answers_that_nobody_takes_fill_no_memory_and_all_are_there_in_their_order() {
    const LISTS: usize = 60;
    let directory = tempfile::tempdir().unwrap();
    let server = full(directory.path(), &[]);
    let before = most(&server);
    let mut client = Client::new(&server);
    client.send(&(0..LISTS).map(list).collect::<String>());
    // Time to make all of the answers.
    std::thread::sleep(Duration::from_secs(4));
    let grown = most(&server) - before;
    assert!(grown < 100 * MIB, "{} MiB for {LISTS} answers of 4 MiB", grown / MIB);
    let first = client.answer();
    for at in 1..LISTS {
        let answer = client.answer();
        assert_eq!((&answer["id"], &answer["result"]), (&json!(at), &first["result"]));
    }
    let grown = most(&server) - before;
    assert!(grown < 100 * MIB, "{} MiB in the end", grown / MIB);
}

#[test]
fn answers_that_no_network_is_asked_for_fill_no_memory_either() {
    const DOCUMENTS: usize = 1_000;
    let directory = tempfile::tempdir().unwrap();
    let (server, mut client) = empty(directory.path());
    client.send(&request(0, "rpc.discover", json!({})));
    let document = client.line();
    assert!(document.len() > 200_000);
    let before = most(&server);
    client.send(&(0..DOCUMENTS).map(|at| request(at, "rpc.discover", json!({}))).collect::<String>());
    std::thread::sleep(Duration::from_secs(2));
    let grown = most(&server) - before;
    assert!(grown < 60 * MIB, "{} MiB for {DOCUMENTS} documents", grown / MIB);
    for at in 0..DOCUMENTS {
        let line = client.line();
        assert!(line.len() >= document.len() && line.contains(&format!("\"id\":{at},")), "{at}");
    }
}

/// What is read and not answered is bounded for each client, and so is what is answered and not read; further requests stay
/// with the client. Requests for another network are answered meanwhile.
#[test]
fn clients_that_flood_a_network_and_take_no_answer_stay_within_a_bound() {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 40_000;
    let directory = tempfile::tempdir().unwrap();
    let (server, mut other) = empty(directory.path());
    for (network, cidr) in [("flooded", "10.0.0.0/8"), ("other", "172.16.0.0/16")] {
        other.send(&request(0, "network.create", json!({"name": network, "subnets": [{"cidr": cidr}]})));
        assert!(other.answer().get("result").is_some());
    }
    let before = most(&server);
    let note = "n".repeat(900);
    let floods: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
            let note = note.clone();
            std::thread::spawn(move || {
                let sent = (0..REQUESTS).take_while(|at| {
                    let params = json!({"network": "flooded", "owner": format!("{client}/{at}"), "note": note});
                    stream.write_all(request(*at, "ip.allocate", params).as_bytes()).is_ok()
                });
                // The client keeps the connection, and reads nothing.
                (sent.count(), stream)
            })
        })
        .collect();
    let mut is_answered = |at: usize| {
        other.send(&request(at, "ip.allocate", json!({"network": "other", "owner": format!("o{at}")})));
        assert!(other.answer().get("result").is_some());
    };
    let mut asked = 0;
    while floods.iter().any(|flood| !flood.is_finished()) {
        asked += 1;
        is_answered(asked);
        std::thread::sleep(Duration::from_millis(50));
    }
    let ends: Vec<_> = floods.into_iter().map(|flood| flood.join().unwrap()).collect();
    // No client can send any more, and none has read anything.
    is_answered(asked + 1);
    assert!(ends.iter().all(|(sent, _)| *sent < REQUESTS), "nobody was kept from sending: nothing was tested");
    let grown = most(&server) - before;
    assert!(grown < CLIENTS * FLOODING_CLIENT_MAX, "{} MiB for {CLIENTS} clients", grown / MIB);
}

/// The answers of a batch leave together, so all of them are in memory until the last one is there.
#[test]
fn a_batch_of_long_answers_is_answered_up_to_a_bound_and_the_others_are_told_so() {
    const MEMBERS: usize = 40;
    let directory = tempfile::tempdir().unwrap();
    let server = full(directory.path(), &[]);
    let mut client = Client::new(&server);
    let mut members: Vec<String> = (0..MEMBERS).map(|at| list(at).trim_end().to_owned()).collect();
    // A change is made, whatever happens to the other members.
    let grant = request(MEMBERS, "ip.allocate", json!({"network": "lan", "owner": "last"}));
    members.push(grant.trim_end().to_owned());
    client.send(&format!("[{}]\n", members.join(",")));
    let line = client.line();
    assert!((16 * MIB..40 * MIB).contains(&line.len()), "{}", line.len());
    let answers: Vec<Value> = serde_json::from_str(&line).unwrap();
    assert_eq!(answers.len(), MEMBERS + 1);
    let (refused, granted) = refused_and_done(&answers);
    assert!(refused >= MEMBERS - 10 && refused + granted == MEMBERS + 1, "{refused} refused, {granted} answered");
    let last = answers.iter().find(|answer| answer["id"] == MEMBERS).unwrap();
    assert!(last["result"]["address"].is_string(), "{last}");
    // The next batch has all the room again.
    client.send(&format!("[{}]\n", members[..2].join(",")));
    assert!(client.line().len() > 6 * MIB);
}

/// The server does not read while the client leaves its answers unread; a line that began before that is not late.
#[test]
fn a_line_whose_rest_is_not_read_is_not_called_unfinished() {
    const LISTS: usize = 20;
    let directory = tempfile::tempdir().unwrap();
    let server = full(directory.path(), &[("ALLOD_SERVER__PARTIAL_LINE_SECONDS", "1")]);
    let mut client = Client::new(&server);
    let last = list(LISTS);
    let (begin, end) = last.split_at(20);
    client.send(&((0..LISTS).map(list).collect::<String>() + begin));
    std::thread::sleep(Duration::from_millis(300));
    client.send(end);
    std::thread::sleep(Duration::from_secs(3));
    for at in 0..=LISTS {
        assert_eq!(client.answer()["id"], at);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A change may answer with a whole network. It is refused before it begins, never after.
#[test]
fn a_batch_of_changes_that_answer_whole_networks_is_bounded_as_one_of_reads() {
    const MEMBERS: usize = 120;
    let directory = tempfile::tempdir().unwrap();
    let (_server, mut client) = empty(directory.path());
    let pool = |n: usize| json!({"range": format!("10.0.{}.{}/31", n / 128, n % 128 * 2), "name": format!("pool-{n}")});
    let pools: Vec<Value> = (2..4_000).map(pool).collect();
    let made = json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16", "pools": pools}]});
    client.send(&request(0, "network.create", made));
    let length = client.line().len();
    assert!(length * MEMBERS > 24 * MIB, "{length}");
    let update = |at| {
        let set = json!({"description": format!("the {at}th")});
        let line = request(at, "network.update", json!({"network": "lan", "set": set}));
        line.trim_end().to_owned()
    };
    client.send(&format!("[{}]\n", (0..MEMBERS).map(update).collect::<Vec<_>>().join(",")));
    let line = client.line();
    assert!((16 * MIB..24 * MIB).contains(&line.len()), "{}", line.len());
    let answers: Vec<Value> = serde_json::from_str(&line).unwrap();
    let (refused, made) = refused_and_done(&answers);
    assert!(refused > 0 && refused + made == MEMBERS, "{refused} refused, {made} answered");
    client.send(&request(1, "network.get", json!({"network": "lan"})));
    assert_eq!(client.answer()["result"]["version"], made + 1, "what was refused changed something");
}

/// A repeated request is answered with everything that was granted, in an answer a hundred times as long as the request; and
/// each dry run of a release names everything that it would release.
#[test]
fn a_batch_of_repeats_and_dry_runs_with_long_answers_is_answered_up_to_a_bound() {
    const MEMBERS: usize = 60;
    let directory = tempfile::tempdir().unwrap();
    let (server, mut client) = empty(directory.path());
    client.send(&request(0, "network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]})));
    assert!(client.answer().get("result").is_some());
    let labels: serde_json::Map<String, Value> =
        (0..32).map(|at| (format!("{at:0>128}"), json!("v".repeat(256)))).collect();
    let all = json!({"network": "lan", "owner": "o", "labels": labels, "ips": vec![json!({}); 64]});
    client.send(&request(1, "ip.acquire", all));
    let length = client.line().len();
    assert!(length * MEMBERS > 40 * MIB, "{length}");
    for at in 0..40 {
        let more =
            json!({"network": "lan", "owner": "many", "slot_prefix": format!("{at}-"), "ips": vec![json!({}); 256]});
        client.send(&request(2, "ip.acquire", more));
        assert!(client.answer().get("result").is_some());
    }
    // Answers about a subnet, or about what is reserved in it, are as long.
    let ranges: Vec<Value> = (1..1_500)
        .map(|at| json!({"range": format!("10.1.{}.{}", at / 128, at % 128 * 2), "note": "n".repeat(512)}))
        .collect();
    let noted = json!({"name": "noted", "subnets": [{"cidr": "10.1.0.0/16", "reserved": ranges}]});
    client.send(&request(3, "network.create", noted));
    assert!(client.line().len() * MEMBERS > 40 * MIB);
    let repeat = json!({"network": "lan", "owner": "o", "ips": vec![json!({}); 64]});
    let dry = json!({"owner": "many", "dry_run": true});
    let modify = json!({"network": "noted", "subnet": "10.1.0.0/16", "set": {"draining": true}, "dry_run": true});
    let reserve = json!({"network": "noted", "range": "10.1.200.1", "dry_run": true});
    let before = most(&server);
    let asked = [("ip.acquire", repeat), ("owner.release", dry), ("subnet.modify", modify), ("reserved.add", reserve)];
    for (method, params) in asked {
        let members: Vec<String> = (0..MEMBERS).map(|at| request(at, method, params.clone())).collect();
        client.send(&format!("[{}]\n", members.join(",").replace('\n', "")));
        let line = client.line();
        assert!((16 * MIB..28 * MIB).contains(&line.len()), "{method}: {}", line.len());
        let answers: Vec<Value> = serde_json::from_str(&line).unwrap();
        let (refused, done) = refused_and_done(&answers);
        assert!(refused > 0 && refused + done == MEMBERS, "{method}: {refused} refused, {done} answered");
    }
    let grown = most(&server) - before;
    assert!(grown < 96 * MIB, "{} MiB", grown / MIB);
}

#[test]
fn a_batch_that_waits_with_long_answers_keeps_no_other_from_being_answered() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, mut client) = empty(directory.path());
    client.send(&request(0, "network.create", json!({"name": "full", "subnets": []})));
    client.send(&request(1, "pool.add", json!({"network": "full", "range": "10.0.0.1"})));
    client.send(&request(2, "subnet.add", json!({"network": "full", "cidr": "10.0.0.0/30", "gateway": "10.0.0.2"})));
    client.send(&request(3, "ip.allocate", json!({"network": "full", "owner": "a"})));
    (0..4).for_each(|_| drop(client.line()));
    let waits = json!({"network": "full", "owner": "b", "wait_seconds": 3_600});
    let mut members = vec![request(10, "ip.allocate", waits)];
    members.extend((11..80).map(|at| request(at, "rpc.discover", json!({}))));
    client.send(&format!("[{}]\n", members.join(",").replace('\n', "")));
    client.send(&format!("[{}]\n", request(99, "network.list", json!({})).trim_end()));
    let listed: Vec<Value> = serde_json::from_str(&client.line()).unwrap();
    assert_eq!(listed[0]["result"]["networks"][0]["name"], "full", "{listed:?}");
    client.send(&request(100, "ip.release", json!({"network": "full", "owner": "a"})));
    let lines = [client.line(), client.line()];
    assert!(
        lines.iter().any(|line| line.len() > 15 * MIB),
        "the first batch is answered when what it waits for is there"
    );
}

/// All subscriptions share the room of one, and each gets every event in the end.
#[test]
fn subscriptions_whose_client_takes_nothing_fill_no_memory_however_many_there_are() {
    const WATCHES: usize = 64;
    const EVENTS: usize = 128;
    let directory = tempfile::tempdir().unwrap();
    let (server, mut client) = empty(directory.path());
    client.send(&request(0, "network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]})));
    assert!(client.answer().get("result").is_some());
    let mut watcher = Client::new(&server);
    watcher.send(&(0..WATCHES).map(|at| request(at, "events.watch", json!({"network": "lan"}))).collect::<String>());
    (0..WATCHES).for_each(|_| assert!(watcher.answer().get("result").is_some()));
    let before = most(&server);
    // All of it is one commit, and therefore one page.
    let labels: serde_json::Map<String, Value> =
        (0..32).map(|at| (format!("{at:0>128}"), json!("v".repeat(256)))).collect();
    let all = json!({"network": "lan", "owner": "o", "labels": labels, "ips": vec![json!({}); EVENTS], "brief": true});
    client.send(&request(1, "ip.acquire", all));
    assert!(client.answer().get("result").is_some());
    std::thread::sleep(Duration::from_secs(3));
    let mut length = 0;
    let mut told = vec![0; WATCHES + 1];
    while told.iter().sum::<usize>() < WATCHES * EVENTS {
        let line = watcher.line();
        if let Some((_, rest)) = line.split_once(r#""method":"event","params":{"subscription":"#) {
            told[rest.split(',').next().unwrap().parse::<usize>().unwrap()] += 1;
            length += line.len();
        }
    }
    assert!(told[1..].iter().all(|count| *count == EVENTS), "{told:?}");
    assert!(length > 90 * MIB, "{length}");
    let grown = most(&server) - before;
    assert!(grown < 40 * MIB, "{} MiB for {} MiB of lines", grown / MIB, length / MIB);
}

/// The refusal, and the instance that it names, are found in the bytes that were sent: nothing is built from the rest.
#[test]
fn a_long_body_that_is_refused_costs_a_few_times_its_length() {
    const WISHES: usize = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let (server, _client) = empty(directory.path());
    for (wrong, instance) in [(r#""id":"i""#, Some("i")), (r#""id":5"#, None)] {
        let entry = format!(r#"{{{wrong},"zone":[]}}"#);
        let instances = format!("{entry}{}", r#",{"":0}"#.repeat(WISHES));
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"deployment.plan","params":{{"deployment":"d","instances":[{instances}]}}}}"#
        );
        let before = most(&server);
        let (status, answer) = http_post(server.http, "/rpc", &body);
        let data = &serde_json::from_str::<Value>(&answer).unwrap()["error"]["data"];
        assert_eq!((status, data["kind"].as_str()), (200, Some("invalid_argument")), "{answer}");
        assert_eq!(data["instance"].as_str(), instance, "{answer}");
        let grown = most(&server) - before;
        assert!(grown < 8 * body.len(), "{} MiB for {} MiB", grown / MIB, body.len() / MIB);
    }
}
