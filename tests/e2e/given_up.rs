//! A bit is flipped in history that a snapshot covers, or in a snapshot. The start is refused and names the remedy, the
//! remedy works, and nothing else is given up.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use allod::config::Config;
use allod::serve::{Options, start};
use allod::store::Store;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use serde_json::{Value, json};

use crate::server::{Server, Starting, allod, http_get};

const HOLDERS: usize = 120;

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(BufReader::new(stream))
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        writeln!(self.0.get_mut(), "{request}").unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// A register with a snapshot after several short segments. Returns an early cursor of a client, and what is held.
fn register(data: &Path) -> (Value, Value) {
    let options =
        EmbeddedOptions { segment_bytes: 16 << 10, snapshot_log_bytes: 32 << 10, ..EmbeddedOptions::default() };
    let store = Arc::new(EmbeddedStore::open(data, 1, options).unwrap());
    let running = start(Options::new(Config::default(), store.clone()).on_free_ports()).unwrap();
    let mut client = Client::of(running.tcp);
    client.ask("network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]}));
    let early = client.ask("network.get", &json!({"network": "lan"}))["result"]["cursor"].clone();
    let mut holders = 0;
    while holders < HOLDERS || store.figures().compactions == 0 {
        let note = "n".repeat(1_000);
        let granted =
            client.ask("ip.allocate", &json!({"network": "lan", "owner": format!("o{holders}"), "note": note}));
        assert!(granted["result"].is_object(), "{granted}");
        holders += 1;
        assert!(holders < 100 * HOLDERS, "no snapshot");
    }
    let held = client.ask("ip.list", &json!({"network": "lan", "limit": 10_000}))["result"]["reservations"].clone();
    drop(client);
    running.stop();
    (early, held)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// The segments that have contents.
fn segments(data: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<PathBuf> =
        entries.filter(|path| std::fs::read(path).unwrap().starts_with(b"ALLODSEG")).collect();
    segments.sort();
    segments
}

fn serve(data: &Path, more: &[&str]) -> Starting {
    let text = data.display().to_string();
    Starting::with_arguments(data, &[&["serve", "--store", "embedded", "--data", &text], more].concat())
}

fn refused(starting: Starting) -> String {
    let (code, log) = starting.ends();
    assert_eq!(code, Some(1), "nobody else mends it: {log}");
    log
}

fn doctor(data: &Path) -> String {
    let output = Command::new(allod()).args(["doctor", "--data"]).arg(data).output().unwrap();
    // The table breaks lines as a terminal would.
    String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_flipped_bit_in_history_that_a_snapshot_covers_costs_that_history_and_only_where_somebody_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (early, held) = register(&data);
    let segments = segments(&data);
    assert!(segments.len() > 3, "{segments:?}");
    let damaged = &segments[1];
    flip(damaged, 5_000);

    let log = refused(serve(&data, &[]));
    let name = damaged.display().to_string();
    assert!(log.contains(&format!("{name} is damaged at offset")) && log.contains("no state is lost"), "{log}");
    assert!(log.contains("`allod serve --give-up-history`, once") && log.contains("of shard 0"), "{log}");
    let looked = doctor(&data);
    assert!(looked.contains(&name) && looked.contains("--give-up-history"), "{looked}");

    let server: Server = serve(&data, &["--give-up-history"]).ready();
    let log = server.log_text();
    assert!(log.contains("going on without damaged history") && log.contains(&format!("{name}.given-up")), "{log}");
    let mut client = Client::of(server.address);
    let list = json!({"network": "lan", "limit": 10_000});
    assert_eq!(client.ask("ip.list", &list)["result"]["reservations"], held);
    // This is the answer as for history that was dropped by its bounds.
    let lost = client.ask("events.watch", &json!({"network": "lan", "since": early}));
    assert_eq!(lost["error"]["data"]["kind"], "cursor_lost", "{lost}");
    let told = client.ask("events.history", &json!({"network": "lan", "owner": "o0"}));
    assert_eq!(told["result"]["events"], json!([]), "{told}");
    let last = held[held.as_array().unwrap().len() - 1]["owner"].clone();
    let told = client.ask("events.history", &json!({"network": "lan", "owner": last}));
    assert!(told["result"]["events"].as_array().is_some_and(|events| !events.is_empty()), "{told}");
    assert!(client.ask("ip.allocate", &json!({"network": "lan", "owner": "new"}))["result"].is_object());
    assert!(http_get(server.http, "/metrics").contains("\nallod_store_given_up_segments 2\n"), "two are aside");
    drop(client);
    server.stop();

    // The flag is given once; what was given up stays until somebody removes it.
    assert!(doctor(&data).contains("history that was given up: 2 files of it"), "{}", doctor(&data));
    let server = serve(&data, &[]).ready();
    assert!(segments[..2].iter().all(|path| path.with_extension("seg.given-up").exists() && !path.exists()));
    server.kill();

    // What the snapshot does not cover is state.
    let last = segments.last().unwrap();
    flip(last, 200);
    for more in [&[][..], &["--give-up-history"]] {
        let said = refused(serve(&data, more));
        let last_line = said.lines().rev().take(4).collect::<String>();
        assert!(
            last_line.contains("allod restore") && !last_line.contains("--give-up-history"),
            "{more:?}: {last_line}"
        );
    }
    assert!(!doctor(&data).contains("--give-up-history"));
}

#[test]
fn a_flipped_bit_in_a_snapshot_costs_nothing_while_the_log_has_all_that_led_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (_, held) = register(&data);
    let snapshots = std::fs::read_dir(data.join("snap")).unwrap().map(|entry| entry.unwrap().path());
    let snapshot = snapshots.max().unwrap();
    flip(&snapshot, 70);

    let log = refused(serve(&data, &[]));
    let name = snapshot.display().to_string();
    assert!(log.contains(&format!("{name} is damaged at offset")) && log.contains("no state is lost"), "{log}");
    assert!(log.contains("`allod serve --give-up-snapshot`, once") && !log.contains("allod restore"), "{log}");
    let looked = doctor(&data);
    assert!(looked.contains(&name) && looked.contains("--give-up-snapshot"), "{looked}");

    let server: Server = serve(&data, &["--give-up-snapshot"]).ready();
    let log = server.log_text();
    assert!(log.contains("without a damaged snapshot") && log.contains(&format!("{name}.given-up")), "{log}");
    let mut client = Client::of(server.address);
    let list = json!({"network": "lan", "limit": 10_000});
    assert_eq!(client.ask("ip.list", &list)["result"]["reservations"], held);
    let told = client.ask("events.history", &json!({"network": "lan", "owner": "o0"}));
    assert!(told["result"]["events"].as_array().is_some_and(|events| !events.is_empty()), "{told}");
    drop(client);
    server.stop();
    assert!(doctor(&data).contains("a damaged snapshot was put aside: 1 file of it"), "{}", doctor(&data));
    serve(&data, &[]).ready().stop();
}
