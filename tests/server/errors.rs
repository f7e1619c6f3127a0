//! Every kind of error that can occur, produced by a real server: the lines on the wire, and what the command line prints.
//!
//! `ALLOD_BLESS=1 cargo test --test server errors` rewrites `tests/golden/errors/`; read the difference before you commit
//! it. The test owns clock and randomness, so times and generations are the same in each run.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use allod::actors::service::Hooks;
use allod::core::command::Command as Asked;
use allod::store::StoreHealth;
use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::stores;
use crate::support::{Client, TestServer, patient};

/// How the error is provoked.
enum Ask {
    /// A request, and the arguments of the command that sends it.
    Call(&'static str, Value, &'static [&'static str]),
    /// A line that the command line never sends.
    Line(&'static str),
    /// By connecting alone, with a command that meets the same error.
    Connect(&'static [&'static str]),
}

struct Scene {
    /// Why the request is refused.
    title: &'static str,
    /// Prepares the server.
    given: fn(&TestServer, &mut Client),
    ask: Ask,
}

fn scene(title: &'static str, ask: Ask) -> Scene {
    Scene { title, given: |_, _| {}, ask }
}

impl Scene {
    fn given(mut self, given: fn(&TestServer, &mut Client)) -> Self {
        self.given = given;
        self
    }
}

/// The ways to an error of this kind; none if nothing refuses so yet.
fn scenes(kind: ErrorKind) -> Vec<Scene> {
    use Ask::{Call, Connect, Line};
    let allocate = |owner: &str| json!({"network": "lan", "owner": owner});
    let claim = |address: &str| json!({"network": "lan", "address": address, "owner": "db/0"});
    match kind {
        ErrorKind::ParseError => vec![scene(
            "a line that is no JSON",
            Line(r#"{"jsonrpc":"2.0","id":1,"method":"ip.allocate","params":{"network":"lan",}}"#),
        )],
        ErrorKind::InvalidRequest => {
            vec![scene("JSON that is no request", Line(r#"{"jsonrpc":"2.0","id":1,"params":{"network":"lan"}}"#))]
        }
        ErrorKind::MethodNotFound => vec![
            scene(
                "a method that does not exist",
                Call("ip.alocate", allocate("web/0"), &["call", "ip.alocate", "network=lan", "owner=web/0"]),
            ),
            scene(
                "a method that is not served yet",
                Call("inventory.compare", json!({}), &["call", "inventory.compare"]),
            ),
        ],
        ErrorKind::InvalidArgument => vec![
            scene(
                "host bits in a prefix",
                Call(
                    "subnet.add",
                    json!({"network": "lan", "cidr": "10.1.0.5/24"}),
                    &["call", "subnet.add", "network=lan", "cidr=10.1.0.5/24"],
                ),
            ),
            scene(
                "a member that is misspelt",
                Call(
                    "ip.allocate",
                    json!({"network": "lan", "owner": "web/0", "pol": "front"}),
                    &["call", "ip.allocate", "network=lan", "owner=web/0", "pol=front"],
                ),
            ),
            scene(
                "a group with fewer static addresses than instances",
                Call(
                    "deployment.apply",
                    json!({"deployment": "shop", "groups": [{"name": "web", "instances": ["web/0", "web/1"],
                        "networks": [{"network": "lan", "static_ips": ["10.0.0.20"]}]}]}),
                    &["call", "deployment.apply", "deployment=shop", GROUP],
                ),
            ),
        ],
        ErrorKind::Internal => vec![scene(
            "a bug: the decision panics",
            Call("ip.allocate", allocate("bomb"), &["ip", "allocate", "lan", "--owner", "bomb"]),
        )],
        ErrorKind::NotFound => vec![
            scene(
                "a network that does not exist",
                Call(
                    "ip.allocate",
                    json!({"network": "lam", "owner": "web/0"}),
                    &["ip", "allocate", "lam", "--owner", "web/0"],
                ),
            ),
            scene(
                "a reservation that does not exist",
                Call(
                    "ip.renew",
                    json!({"network": "lan", "owner": "web/9", "ttl_seconds": null}),
                    &["ip", "renew", "lan", "--owner", "web/9", "--permanent"],
                ),
            ),
            scene(
                "a deployment that does not exist",
                Call("deployment.get", json!({"deployment": "shop"}), &["deployment", "get", "shop"]),
            ),
        ],
        ErrorKind::AlreadyExists => vec![
            scene(
                "a name that is taken",
                Call("network.create", json!({"name": "lan"}), &["network", "create", "lan"]),
            ),
            scene(
                "a slot that holds another address",
                Call(
                    "ip.claim",
                    json!({"network": "lan", "address": "10.0.0.7", "owner": "web/0"}),
                    &["ip", "claim", "lan", "10.0.0.7", "--owner", "web/0"],
                ),
            ),
            wish(
                "two wishes of an instance for one slot",
                json!([{"network": "lan"}, {"network": "lan"}]),
                r#"instances=[{"id":"web/0","networks":[{"network":"lan"},{"network":"lan"}]}]"#,
            ),
        ],
        ErrorKind::AlreadyInUse => vec![
            scene(
                "an address that somebody else holds",
                Call("ip.claim", claim("10.0.0.2"), &["ip", "claim", "lan", "10.0.0.2", "--owner", "db/0"]),
            ),
            wish(
                "an address that an instance wishes and somebody else holds",
                json!([{"network": "lan", "address": "10.0.0.2"}]),
                r#"instances=[{"id":"web/0","networks":[{"network":"lan","address":"10.0.0.2"}]}]"#,
            ),
        ],
        ErrorKind::NotEnoughCapacity => vec![
            scene(
                "a network that is full",
                Call(
                    "ip.allocate",
                    json!({"network": "tiny", "owner": "web/1"}),
                    &["ip", "allocate", "tiny", "--owner", "web/1"],
                ),
            ),
            wish(
                "a deployment of which an instance finds no room",
                json!([{"network": "lan"}, {"network": "tiny"}]),
                r#"instances=[{"id":"web/0","networks":[{"network":"lan"},{"network":"tiny"}]}]"#,
            ),
        ],
        ErrorKind::OutOfRange => vec![scene(
            "an address outside every subnet",
            Call("ip.claim", claim("10.9.0.7"), &["ip", "claim", "lan", "10.9.0.7", "--owner", "db/0"]),
        )],
        ErrorKind::Reserved => vec![
            scene(
                "an address inside a reserved range",
                Call("ip.claim", claim("10.0.0.200"), &["ip", "claim", "lan", "10.0.0.200", "--owner", "db/0"]),
            ),
            scene(
                "the gateway",
                Call("ip.claim", claim("10.0.0.1"), &["ip", "claim", "lan", "10.0.0.1", "--owner", "db/0"]),
            ),
            scene(
                "the network address, by force",
                Call(
                    "ip.claim",
                    json!({"network": "lan", "address": "10.0.0.0", "owner": "db/0", "force": true}),
                    &["ip", "claim", "lan", "10.0.0.0", "--owner", "db/0", "--force"],
                ),
            ),
            wish(
                "an address inside a reserved range that an instance wishes",
                json!([{"network": "lan", "address": "10.0.0.200"}]),
                r#"instances=[{"id":"web/0","networks":[{"network":"lan","address":"10.0.0.200"}]}]"#,
            ),
        ],
        ErrorKind::Overlap => vec![scene(
            "a subnet over another network of the realm",
            Call(
                "subnet.add",
                json!({"network": "tiny", "cidr": "10.0.0.0/16"}),
                &["subnet", "add", "tiny", "10.0.0.0/16"],
            ),
        )],
        ErrorKind::InUse => vec![scene(
            "a subnet in which something is held",
            Call(
                "subnet.remove",
                json!({"network": "lan", "subnet": "10.0.0.0/24"}),
                &["subnet", "remove", "lan", "10.0.0.0/24", "--yes"],
            ),
        )],
        ErrorKind::NotOwner => vec![scene(
            "the release of somebody else's address",
            Call("ip.release", claim("10.0.0.2"), &["ip", "release", "lan", "10.0.0.2", "--owner", "db/0"]),
        )],
        ErrorKind::WrongKind => vec![scene(
            "an address claimed in a network that carries none",
            Call(
                "ip.claim",
                json!({"network": "cloud", "address": "10.0.0.7", "owner": "db/0"}),
                &["ip", "claim", "cloud", "10.0.0.7", "--owner", "db/0"],
            ),
        )],
        ErrorKind::Conflict => vec![
            scene(
                "a release that speaks of an earlier holding",
                Call(
                    "ip.release",
                    json!({"network": "lan", "address": "10.0.0.2", "owner": "web/0", "if_generation": 4}),
                    &["ip", "release", "lan", "10.0.0.2", "--owner", "web/0", "--if-generation", "4"],
                ),
            ),
            scene(
                "a change of a configuration that has moved on",
                Call(
                    "network.update",
                    json!({"network": "lan", "set": {"protected": true}, "if_version": 7}),
                    &["call", "network.update", "network=lan", "set={\"protected\":true}", "if_version=7"],
                ),
            ),
            scene(
                "a commit of another plan than the latest",
                Call(
                    "deployment.commit",
                    json!({"deployment": "shop", "plan": 4}),
                    &["deployment", "commit", "shop", "--plan", "4"],
                ),
            )
            .given(|_, client| {
                client.ok("deployment.apply", json!({"deployment": "shop", "instances": []}));
            }),
            scene(
                "a revert of a plan that is committed",
                Call(
                    "deployment.revert",
                    json!({"deployment": "shop", "plan": PLAN}),
                    &["deployment", "revert", "shop", "--plan", "1772356364031", "--yes"],
                ),
            )
            .given(|_, client| {
                client.ok("deployment.apply", json!({"deployment": "shop", "instances": []}));
                client.ok("deployment.commit", json!({"deployment": "shop", "plan": PLAN}));
            }),
        ],
        ErrorKind::QuotaExceeded => vec![scene(
            "one more than an owner may hold",
            Call(
                "ip.allocate",
                json!({"network": "tiny", "owner": "web/0", "slot": "1"}),
                &["ip", "allocate", "tiny", "--owner", "web/0", "--slot", "1"],
            ),
        )],
        ErrorKind::Unavailable => vec![
            scene(
                "a full disk",
                Call("ip.allocate", allocate("web/1"), &["ip", "allocate", "lan", "--owner", "web/1"]),
            )
            .given(|server, _| server.store.health_is(StoreHealth::Full)),
            scene(
                "a commit of which nobody knows what became of it",
                Call("ip.release", allocate("web/0"), &["ip", "release", "lan", "--owner", "web/0"]),
            )
            .given(|server, _| {
                server.store.health_is(StoreHealth::Ready);
                server.store.next([Fault::Fenced]);
            }),
        ],
        ErrorKind::Overloaded => vec![scene("one connection too many", Connect(&["server", "ping"]))],
        ErrorKind::NotReady => vec![
            scene(
                "a network that is being loaded",
                Call("ip.get", json!({"network": "lan", "address": "10.0.0.2"}), &["who", "10.0.0.2"]),
            )
            .given(|server, client| {
                server.store.hold_loads();
                client.call("ip.allocate", json!({"network": "lan", "owner": "bomb"}));
            }),
        ],
        ErrorKind::NetworkStopped => vec![
            scene(
                "a network that crashed three times in a minute",
                Call("ip.allocate", allocate("web/1"), &["ip", "allocate", "lan", "--owner", "web/1"]),
            )
            .given(|_, client| {
                for _ in 0..3 {
                    client.call("ip.allocate", json!({"network": "lan", "owner": "bomb"}));
                }
            }),
        ],
        ErrorKind::Brake => vec![
            scene(
                "a sweep that would let go of more than a fifth",
                Call(
                    "claimant.sweep",
                    json!({"scope": "default", "alive": [], "grace_seconds": 0}),
                    &["claimant", "sweep", "default", "--none-alive", "--grace", "0s"],
                ),
            )
            .given(|_, client| {
                client.ok("ip.allocate", json!({"network": "lan", "owner": "web/0", "claimant": "vm-1"}));
                client.ok("claimant.sweep", json!({"scope": "default", "alive": []}));
            }),
        ],
        ErrorKind::LineTooLong => vec![scene(
            "a line beyond server.max_line_bytes",
            Call("ip.get", json!({"address": "1".repeat(1_100)}), LONG),
        )],
        ErrorKind::CursorLost => vec![
            scene(
                "a subscription from a cursor that is no place of the history",
                Call("events.watch", json!({"since": NOWHERE}), &["watch", "--since", NOWHERE]),
            ),
            scene(
                "a page of the history behind it",
                Call("events.history", json!({"after": NOWHERE}), &["history", "--after", NOWHERE]),
            ),
        ],
        // Needs two nodes: see `moved`. Rate limits and permissions: nothing refuses so yet.
        ErrorKind::Moved | ErrorKind::RateLimited | ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => {
            Vec::new()
        }
    }
}

/// A cursor over all networks, in shard 0 after batch 9999 of some other register.
const NOWHERE: &str = "AQEBAAGPTgAAAAAAAAAAAAAAAAAAAAAA";

/// The number of the first plan: the time of the test's clock.
const PLAN: u64 = 1_772_356_364_031;

/// Two instances, but only one address for them.
const GROUP: &str = r#"groups=[{"name":"web","instances":["web/0","web/1"],"networks":[{"network":"lan","static_ips":["10.0.0.20"]}]}]"#;

/// A wish of instance `web/0` of deployment `shop` for these networks, and the argument for the same.
fn wish(title: &'static str, networks: Value, argument: &'static str) -> Scene {
    let params = json!({"deployment": "shop", "instances": [{"id": "web/0", "networks": networks}]});
    let arguments: &'static [&'static str] =
        Box::leak(Box::new(["call", "deployment.apply", "deployment=shop", argument]));
    scene(title, Ask::Call("deployment.apply", params, arguments))
}

/// A command whose request is too long for a line: its last argument is repeated.
const LONG: &[&str] = &["call", "ip.get", "address=1"];

/// A server with `lan` (10.0.0.2 held by web/0, the end reserved), `tiny` (full) and `cloud` (dynamic).
fn server(kind: ErrorKind) -> (TestServer, Client) {
    let before_decide = |command: &Asked| {
        if let Asked::Allocate(ask) = command
            && ask.holder.owner.as_str() == "bomb"
        {
            panic!("as asked");
        }
    };
    let server = TestServer::with(|options| {
        options.hooks = Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() };
        if kind == ErrorKind::NotReady {
            // What is asked while a network is loaded is to be refused, after no longer than the product waits.
            options.hooks.deferred_ms_max = None;
        }
        options.config.server.max_line_bytes = 1_024;
        if kind == ErrorKind::Overloaded {
            options.config.server.max_connections = 1;
        }
    });
    let mut client = server.with_lan();
    client.allocate("web/0");
    client.ok("reserved.add", json!({"network": "lan", "range": "10.0.0.200/29", "note": "the old DHCP server"}));
    let (subnets, limits) = (json!([{"cidr": "192.0.2.0/30"}]), json!({"per_owner": 1}));
    client.ok("network.create", json!({"name": "tiny", "subnets": subnets, "limits": limits}));
    for owner in ["web/0", "db/0"] {
        client.ok("ip.allocate", json!({"network": "tiny", "owner": owner}));
    }
    client.ok("network.create", json!({"name": "cloud", "kind": "dynamic"}));
    (server, client)
}

fn wire(server: &TestServer, client: &mut Client, ask: &Ask) -> String {
    let (sent, received) = match ask {
        Ask::Call(method, params, _) => {
            let line = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
            (line.clone(), answer(client, &line))
        }
        Ask::Line(line) => ((*line).to_owned(), answer(client, line)),
        Ask::Connect(_) => (String::new(), server.client().text_line()),
    };
    let sent = if sent.is_empty() { "(a connection)".to_owned() } else { sent };
    format!("> {}\n< {received}", shortened(&sent))
}

fn answer(client: &mut Client, line: &str) -> String {
    client.raw(format!("{line}\n"));
    client.text_line()
}

/// What the command line prints for it; nothing if it never sends such a request.
fn printed(server: &TestServer, ask: &Ask) -> Option<String> {
    let (Ask::Call(_, _, arguments) | Ask::Connect(arguments)) = ask else { return None };
    let mut arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    if arguments == LONG {
        arguments[2] = format!("address={}", "1".repeat(1_100));
    }
    let output = |seconds: u32| {
        Command::new(env!("CARGO_BIN_EXE_allod"))
            .args(&arguments)
            // Errors that may pass are retried until then.
            .args(["--timeout", &format!("{seconds}s")])
            .env("ALLOD_SERVER", server.running.tcp.to_string())
            .output()
            .unwrap()
    };
    // Long enough for the command to say why it takes so long: after two seconds, with two more before the next try. On a
    // slow machine the last try may find no answer in the remaining time; outputs that say so are not used.
    let came = |output: &Output| !String::from_utf8_lossy(&output.stderr).contains("no answer within");
    let mut outputs = [9, 18, 36].into_iter().map(|seconds| (seconds, output(seconds)));
    let (seconds, output) = outputs.find(|(_, output)| came(output)).expect("an answer comes");
    let text = String::from_utf8(output.stderr).unwrap();
    let text = text.replace(&format!("for {seconds} s at most"), "for 30 s at most");
    let hint = text.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
    let remedy = ["`allod ", "`--", "setting `"].iter().any(|remedy| hint.contains(remedy));
    assert!(hint.starts_with("hint: ") && remedy, "{arguments:?} ends without a remedy:\n{text}");
    let command = arguments.iter().map(|argument| quoted(argument)).collect::<Vec<_>>().join(" ");
    let code = output.status.code().unwrap();
    Some(shortened(&format!("$ allod {command}\n{text}# exit code {code}\n")))
}

fn quoted(argument: &str) -> String {
    if argument.contains('"') { format!("'{argument}'") } else { argument.to_owned() }
}

/// Shortens a line that is too long to be read: it is also too long to be shown.
fn shortened(text: &str) -> String {
    text.replace(&"1".repeat(1_100), "111…")
}

/// Replaces what no seed of the test determines: the id of an internal error, and the port.
fn normalised(text: &str, tcp: std::net::SocketAddr) -> String {
    let mut text = text.replace(&tcp.to_string(), "127.0.0.1:7400");
    let id_of = |rest: &str| rest.chars().take_while(char::is_ascii_hexdigit).collect::<String>();
    let ids: Vec<String> = text.split("under ").skip(1).map(id_of).filter(|id| id.len() >= 16).collect();
    for id in ids {
        text = text.replace(&id, "ID");
    }
    let cursors = text.split("\"last_common\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let cursors: Vec<String> = cursors.map(ToOwned::to_owned).collect();
    cursors.iter().fold(text, |text, cursor| text.replace(cursor, "CURSOR"))
}

fn transcript(kind: ErrorKind) -> String {
    let mut text = String::new();
    for scene in scenes(kind) {
        let (server, mut client) = server(kind);
        (scene.given)(&server, &mut client);
        let lines = wire(&server, &mut client, &scene.ask);
        let received: Value = serde_json::from_str(lines.rsplit_once("\n< ").unwrap().1).unwrap();
        assert_eq!(received["error"]["data"]["kind"], kind.as_str(), "{}: {lines}", scene.title);
        assert_eq!(received["error"]["code"], kind.code(), "{}: {lines}", scene.title);
        text.push_str(&format!("# {}\n{lines}\n", scene.title));
        if kind == ErrorKind::Unavailable {
            // The commit that is to fail was used up by the request above.
            (scene.given)(&server, &mut client);
        }
        text.push_str(&printed(&server, &scene.ask).unwrap_or_default());
        text.push('\n');
        text = normalised(&text, server.running.tcp);
        server.store.let_loads_go();
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

#[test]
fn every_kind_of_error_is_sent_and_printed_as_written_down() {
    let mut wrong = Vec::new();
    for &kind in ErrorKind::ALL {
        let path = path_of(kind.as_str());
        if kind == ErrorKind::Unavailable
            && stores::not_over_redis(
                "a commit that is fenced ends the tenure, and the next command says so: `not_ready`",
            )
        {
            continue;
        }
        if kind == ErrorKind::Moved {
            continue;
        }
        if scenes(kind).is_empty() {
            assert!(!path.exists(), "{} is of a kind that cannot occur", path.display());
            continue;
        }
        wrong.extend(compare(kind.as_str(), &transcript(kind)));
    }
    assert!(
        wrong.is_empty(),
        "see `ALLOD_BLESS=1 cargo test --test server errors && git diff`\n\n{}",
        wrong.join("\n")
    );
}

fn path_of(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/errors").join(format!("{kind}.txt"))
}

/// Compares the file of a kind, and returns what is wrong, if anything; or rewrites it.
pub fn compare(kind: &str, text: &str) -> Option<String> {
    let path = path_of(kind);
    if std::env::var_os("ALLOD_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return None;
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    (stands != text).then(|| format!("{} differs; it is now:\n{text}", path.display()))
}
