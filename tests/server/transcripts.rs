//! Every method that the server publishes, as it goes over the wire: `tests/golden/methods/METHOD.txt`, and
//! `METHOD-WORD.txt` where another server is needed.
//!
//! Each file is played against a fresh server: its requests are sent as they stand there, and what the server sends is
//! compared with the file, byte for byte, with names in place of what differs from run to run (see `names`). The same files
//! hold over any store. A published method without a file fails, and so does a file without a method.
//!
//! ```text
//! # text          for readers
//! ~ given lan     makes the network `lan`, 10.0.0.0/24 with a gateway at .1
//! ~ pass 60       so many seconds pass
//! ~ set KEY N     a setting of the server, before it starts
//! ~ only redis    the file is played over Redis only; `only memory`: over the memory store, whichever store is tested
//! ~ until 1 wait in lan      waits until so many requests wait in that network
//! ~ …             what another client does: see `Play::act`
//! > LINE          the client sends this
//! < LINE          and is sent that; 2> and 2< are for a second client
//! ```
//!
//! `ALLOD_BLESS=1 cargo test --test server transcripts` writes what is sent into the files, one line for each `<` that
//! stands there; read the difference before you commit it.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allod::store::Store;
use allod::store::memory::MemoryStore;
use allod::wire::openrpc;
use serde_json::{Value, json};

use self::names::Names;
use crate::conflicts;
use crate::stores;
use crate::support::{Client, TestServer, line};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/methods")
}

/// A file that is being played.
struct Play {
    server: TestServer,
    clients: [Option<Client>; 2],
    /// A line that was read from a client's connection and not played yet.
    ahead: [Option<String>; 2],
    names: Names,
    /// Requests without an answer yet: their methods by client and id.
    asked: BTreeMap<(usize, String), String>,
    /// Methods that were answered with a result, and notifications.
    heard: BTreeSet<String>,
    answered: BTreeSet<String>,
    /// How many events were made only to have many.
    many: u64,
}

impl Play {
    fn new(text: &str) -> Self {
        let settings = text.lines().filter_map(|line| line.strip_prefix("~ set "));
        let settings: BTreeMap<&str, u64> = settings
            .map(|setting| setting.split_once(' ').map(|(key, n)| (key, n.parse().unwrap())).unwrap())
            .collect();
        // History with such a bound would differ from store to store.
        let (store, files): (Arc<dyn Store>, _) = match settings.get("history.keep_bytes") {
            Some(bytes) => (Arc::new(MemoryStore::keeping(1, *bytes)), None),
            None if text.lines().any(|line| line == "~ only memory") => (Arc::new(MemoryStore::new(1)), None),
            None => stores::store(1),
        };
        let server = TestServer::over_files(store, files, |options| {
            options.config.server.node = "north".to_owned();
            // On a busy machine a client that reads nothing for a while may do so for long.
            options.config.server.slow_client_seconds = 3_600;
            if let Some(bytes) = settings.get("server.max_behind_bytes") {
                options.config.server.max_behind_bytes = *bytes;
            }
        });
        Self {
            server,
            clients: [None, None],
            ahead: [None, None],
            names: Names::default(),
            asked: BTreeMap::new(),
            heard: BTreeSet::new(),
            answered: BTreeSet::new(),
            many: 0,
        }
    }

    fn client(&mut self, number: usize) -> &mut Client {
        let server = &self.server;
        self.clients[number].get_or_insert_with(|| server.client())
    }

    /// Plays the lines, and returns them as they went.
    fn run(&mut self, text: &str) -> String {
        let mut played = String::new();
        for line in text.lines() {
            let (number, rest) = line.strip_prefix('2').map_or((0, line), |rest| (1, rest));
            let mark = &line[..line.len() - rest.len()];
            if let Some(request) = rest.strip_prefix("> ") {
                self.send(number, request);
                played.push_str(line);
            } else if rest.starts_with('<') {
                let received = self.ahead[number].take().unwrap_or_else(|| self.received(number, is_bookmark(rest)));
                self.hear(number, &received);
                // The document is long, and `src/wire/tests/document.rs` checks its contents.
                let received = received.replace(openrpc::document(), "\"<document>\"");
                played.push_str(&format!("{mark}< {}", self.names.named(&received)));
            } else {
                line.strip_prefix("~ ").into_iter().for_each(|act| self.act(act));
                played.push_str(line);
            }
            played.push('\n');
        }
        played
    }

    /// What a client is sent next. On a slow machine a bookmark may come by itself: it is skipped where the file has none.
    fn received(&mut self, number: usize, with_bookmarks: bool) -> String {
        loop {
            let received = self.client(number).judged_line();
            if with_bookmarks || !is_bookmark(&received) {
                return received;
            }
        }
    }

    fn send(&mut self, number: usize, request: &str) {
        let request = self.names.filled_in(request);
        if let Ok(request) = serde_json::from_str::<Value>(&request) {
            let method = request["method"].as_str().unwrap_or_default().to_owned();
            self.asked.insert((number, request["id"].to_string()), method);
        }
        self.client(number).raw(format!("{request}\n"));
    }

    fn hear(&mut self, number: usize, received: &str) {
        let received: Value = serde_json::from_str(received).unwrap();
        let notification = received["method"].as_str();
        self.heard.extend(notification.map(ToOwned::to_owned));
        if let Some(method) = self.asked.remove(&(number, received["id"].to_string())) {
            if received.get("result").is_some() {
                self.heard.insert(method.clone());
            }
            self.answered.insert(method);
        }
    }

    fn act(&mut self, act: &str) {
        match act.split(' ').collect::<Vec<&str>>()[..] {
            ["given", "lan"] => drop(self.server.with_lan()),
            ["pass", seconds] => self.server.clock.advance_ms(seconds.parse::<u64>().unwrap() * 1_000),
            ["set", ..] | ["only", "memory" | "redis"] => {}
            ["until", count, "wait", "in", network] => self.server.until_waits(network, count.parse().unwrap()),
            ["late", address, "of", owner, "in", network] => {
                let claim = conflicts::Claim { address, owner, generation: 77, mac: None };
                conflicts::find(&self.server, network, &[claim]);
            }
            ["make", "many", "events"] => self.make_many_events(),
            ["2", "reads", "all", "events"] => self.read_all_events(1),
            _ => panic!("nobody knows how to `{act}`"),
        }
    }

    /// Makes more events than the sockets take.
    fn make_many_events(&mut self) {
        let (mut busy, note) = (self.server.client(), "n".repeat(1_000));
        for _ in 0..16 {
            let ask = |n: u64| json!({"network": "wide", "owner": format!("web/{n}"), "note": note, "brief": true});
            let lines: String = (self.many..self.many + 500).map(|n| line(n, "ip.allocate", &ask(n))).collect();
            busy.raw(&lines);
            (0..500).for_each(|_| drop(busy.answer()));
            self.many += 500;
        }
    }

    /// Reads up to the first line that is not an event, and keeps that for the next `<`.
    fn read_all_events(&mut self, number: usize) {
        loop {
            let received = self.received(number, false);
            let is_event = serde_json::from_str::<Value>(&received).unwrap()["method"] == "event";
            if !is_event {
                self.ahead[number] = Some(received);
                return;
            }
        }
    }
}

fn is_bookmark(line: &str) -> bool {
    line.contains("\"method\":\"bookmark\"")
}

/// Plays a file, and returns what is wrong with it.
fn play(path: &Path, text: &str) -> Result<Play, String> {
    // If a client waits in vain, this line shows in which file.
    eprintln!("{}", path.display());
    let mut play = Play::new(text);
    let played = play.run(text);
    if std::env::var_os("ALLOD_BLESS").is_some() {
        std::fs::write(path, played).unwrap();
    } else if let Some((at, (stands, sent))) = text.lines().zip(played.lines()).enumerate().find(|(_, (a, b))| a != b) {
        return Err(format!("{}:{}\n  stands there: {stands}\n  is sent now:  {sent}", path.display(), at + 1));
    }
    Ok(play)
}

/// The methods that must have files.
fn published() -> Vec<String> {
    let document: Value = serde_json::from_str(openrpc::document()).unwrap();
    document["methods"].as_array().unwrap().iter().map(|method| method["name"].as_str().unwrap().to_owned()).collect()
}

fn method_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    stem.split('-').next().unwrap().to_owned()
}

#[test]
fn every_published_method_goes_over_the_wire_as_written_down() {
    let (mut wrong, mut heard, published) = (Vec::new(), BTreeSet::new(), published());
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in &files {
        let name = method_of(path);
        if !published.contains(&name) {
            wrong.push(format!("{} is of no published method", path.display()));
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        if text.lines().any(|line| line == "~ only redis") && !stores::over_redis() {
            continue;
        }
        match play(path, &text) {
            // A method may be refused in all its files: a single node cannot do everything.
            Ok(play) if !play.answered.contains(&name) => wrong.push(format!("{} never asks for it", path.display())),
            Ok(play) => heard.extend(play.heard),
            Err(problem) => wrong.push(problem),
        }
    }
    let is_there = |name: &&String| files.iter().any(|path| method_of(path) == **name);
    wrong.extend(published.iter().filter(|name| !is_there(name)).map(|name| format!("{name} has no transcript")));
    // No file has `cursor_lost`: it takes a failover under a watcher.
    let words: Vec<String> = ["event", "bookmark", "lagged"].map(ToOwned::to_owned).to_vec();
    // A single node is never drained.
    let wanted = published.iter().filter(|name| *name != "cluster.drain").chain(&words);
    if wrong.is_empty() {
        wrong.extend(wanted.filter(|name| !heard.contains(*name)).map(|name| format!("{name} never succeeds")));
    }
    let how = "see `ALLOD_BLESS=1 cargo test --test server transcripts && git diff`";
    assert!(wrong.is_empty(), "{how}\n\n{}", wrong.join("\n"));
}
