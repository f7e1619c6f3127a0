//! The server against the naive model: generated sequences of requests over a socket. Every answer is compared, and checked
//! against the published schemas.
//!
//! A few hundred sequences run with the suite. To run more of them, or others:
//!
//! ```text
//! ALLOD_SEQUENCES=20000 ALLOD_SEED=7 cargo test --test it sequences
//! ALLOD_SURVEY=1 …      goes on after a difference; at the end each kind of difference once, shrunk
//! ```
//!
//! A failure prints its seed and the shrunk sequence. Each fault found becomes a test of its own, with a name.

mod clock;
mod deployments;
mod published;
mod waits;
mod watcher;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allod::actors::clock::ManualClock;
use allod::actors::shard_of;
use allod::config::Config;
use allod::core::types::{NetworkId, WallTime};
use allod::serve::{Options, Running, start};
use allod::store::Store;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use allod::store::memory::MemoryStore;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config as Cases, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::{Value, json};

use self::clock::RealLeases;
use self::published::PUBLISHED;
use crate::model::{Coverage, Model, Step, sequence};
use crate::redis_server::Server;
use crate::seed::number;

const SEQUENCES: u32 = 240;
const STEPS: usize = 120;
const EPOCH_MS: u64 = 1_772_356_364_031;
/// What there was, and the cursor after it.
type Listed = (watcher::Picture, Value);

/// Prefix of the names of networks that are made when everything else is done.
const LAST: &str = "the-end";

/// A fresh server, one connection to it, and its clock.
struct Subject {
    clock: Arc<ManualClock>,
    /// Closed before the server stops, since that waits for its connections.
    lines: BufReader<TcpStream>,
    /// Another client, which watches.
    watcher: BufReader<TcpStream>,
    asked: u64,
    running: Running,
}

impl Subject {
    fn new(store: Arc<dyn Store>) -> Self {
        let clock = Arc::new(ManualClock::new(WallTime(EPOCH_MS), 7));
        let mut options = Options::new(Config::default(), store).on_free_ports();
        options.clock = Arc::new(RealLeases(Arc::clone(&clock)));
        options.config.server.threads = 1;
        let running = start(options).unwrap();
        let client = || {
            let stream = TcpStream::connect(running.tcp).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            BufReader::new(stream)
        };
        Self { clock, lines: client(), watcher: client(), asked: 0, running }
    }

    /// Makes the other client watch everything from a cursor on. Returns the number of its subscription.
    fn watch(&mut self, since: &Value) -> Result<Value, String> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "events.watch", "params": {"since": since}});
        self.watcher.get_mut().write_all(format!("{request}\n").as_bytes()).map_err(|error| error.to_string())?;
        loop {
            let told = self.told()?;
            if told["method"] != "bookmark" {
                return told["result"].get("subscription").cloned().ok_or(format!("events.watch: {told}"));
            }
        }
    }

    /// The next line that the other client is told.
    fn told(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        self.watcher.read_line(&mut line).map_err(|error| format!("who watches: {error}"))?;
        serde_json::from_str(&line).map_err(|error| format!("who watches: {error}: {line:?}"))
    }

    /// Waits until a line is among the server's metrics.
    fn until_measured(&self, line: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let mut socket = TcpStream::connect(self.running.http).unwrap();
            socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut text = String::new();
            BufReader::new(socket).read_to_string(&mut text).unwrap();
            if text.lines().any(|measured| measured == line) {
                return;
            }
            assert!(Instant::now() < end, "not measured: {line}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// One request, and the envelope of its answer.
    fn ask(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.asked += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params });
        let failed = |error: std::io::Error| format!("{method} {params}: {error}");
        self.lines.get_mut().write_all(format!("{request}\n").as_bytes()).map_err(failed)?;
        let mut line = String::new();
        self.lines.read_line(&mut line).map_err(failed)?;
        let envelope: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line:?}"))?;
        if envelope["id"] != self.asked {
            return Err(format!("{method} {params}: answer to another request: {line}"));
        }
        Ok(envelope)
    }
}

/// Result, or kind and data of the error.
fn answer_of(envelope: &Value) -> Result<Value, (String, Value)> {
    match (&envelope["result"], &envelope["error"]["data"]) {
        (_, data) if data.is_object() => Err((data["kind"].as_str().unwrap_or_default().to_owned(), data.clone())),
        (result, _) => Ok(result.clone()),
    }
}

/// Runs one sequence; the error says at which step server and model, or server and schema, disagree.
fn run(steps: &[Step], coverage: &mut Coverage) -> Result<(), String> {
    run_over(Arc::new(MemoryStore::new(1)), steps, coverage)
}

fn run_over(store: Arc<dyn Store>, steps: &[Step], coverage: &mut Coverage) -> Result<(), String> {
    let shards = store.info().shards;
    let mut server = Subject::new(store);
    let mut model = Model::new();
    let mut now = EPOCH_MS;
    let (picture, cursor) = watcher::list(&mut server)?;
    let begun = (server.watch(&cursor)?, picture);
    let mut half = None;
    for (at, step) in steps.iter().enumerate() {
        if at == steps.len() / 2 {
            half = Some(watcher::list(&mut server)?);
        }
        // Each shard tells its events in its own order, so with several the times must say what came first.
        let advance_ms = step.advance_ms.max(u64::from(shards > 1));
        now += advance_ms;
        server.clock.advance_ms(advance_ms);
        // A network ends its leases when it is asked something, or soon after. It is asked here, so that chance does not
        // decide.
        for id in model.due(now) {
            server.ask("network.get", &json!({ "network": id }))?;
        }
        let params = model.resolve(now, &step.params);
        let envelope = server.ask(step.method, &params)?;
        let told = |problem: String| format!("step {at}: {problem}\nmessage: {}", envelope["error"]["message"]);
        let judged = PUBLISHED.judge(step.method, &params, &envelope);
        judged.map_err(|problem| told(format!("{} {params}: {problem}\nserver: {envelope}", step.method)))?;
        let answer = answer_of(&envelope);
        coverage.record(step.method, &answer);
        model.call_with_answer(now, step.method, &params, &answer).map_err(told)?;
    }
    tell_the_same(&mut server, shards, begun, half)
}

/// Checks that clients that listed at the beginning or half way, and were told what happened since, know what there is; and
/// that history tells the same.
fn tell_the_same(
    server: &mut Subject,
    shards: u16,
    begun: (Value, watcher::Picture),
    half: Option<Listed>,
) -> Result<(), String> {
    let (there, _) = watcher::list(server)?;
    let ends = the_end(server, shards)?;
    let mut pictures = vec![begun];
    watcher::follow(server, ends, &mut pictures)?;
    if let Some((picture, cursor)) = half {
        let mut later = [(server.watch(&cursor)?, picture)];
        watcher::follow(server, ends, &mut later)?;
        pictures.extend(later);
    }
    for (_, picture) in &pictures {
        picture.is_of(&there)?;
    }
    let history = watcher::look_back(server, ends)?;
    history.is_of(&there)?;
    if history.told != pictures[0].1.told {
        return Err("the history tells another story than the one who watched was told".to_owned());
    }
    Ok(())
}

/// Makes networks until every shard has one, after which nothing happens there. Returns how many it took.
fn the_end(server: &mut Subject, shards: u16) -> Result<usize, String> {
    let mut ended = BTreeSet::new();
    for count in 1..1_000 {
        let name = format!("{LAST}-{count}");
        let made = server.ask("network.create", &json!({"name": name, "realm": name}))?["result"].take();
        let id: NetworkId = made["id"].as_str().and_then(|id| id.parse().ok()).ok_or(format!("{made}"))?;
        ended.insert(shard_of(id, shards));
        if ended.len() == usize::from(shards) {
            return Ok(count);
        }
    }
    Err("no network was made in some shard".to_owned())
}

fn runner(sequences: u32, seed: u64) -> TestRunner {
    let cases = Cases { cases: sequences, max_shrink_iters: 400, failure_persistence: None, ..Cases::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(cases, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// The number of sequences and the first seed, unless the environment says otherwise.
fn asked(sequences: u32, seed: u64) -> (u32, u64) {
    let sequences = number("ALLOD_SEQUENCES").map_or(sequences, |count| u32::try_from(count).unwrap());
    (sequences, number("ALLOD_SEED").unwrap_or(seed))
}

/// Checks that so many sequences pass, from this seed on, unless the environment says otherwise.
fn all_pass(sequences: u32, seed: u64, run: impl Fn(&[Step]) -> Result<(), String>) {
    let (sequences, seed) = asked(sequences, seed);
    println!("{sequences} sequences from seed {seed}");
    let ran = runner(sequences, seed).run(&sequence(STEPS), |steps| run(&steps).map_err(TestCaseError::fail));
    if let Err(problem) = ran {
        panic!("{problem}");
    }
}

#[test]
fn the_server_answers_generated_sequences_as_the_model_does() {
    const FIRST: u64 = 1;
    if std::env::var_os("ALLOD_SURVEY").is_some() {
        let (sequences, seed) = asked(SEQUENCES, FIRST);
        return survey(sequences, seed);
    }
    let begun = Instant::now();
    let coverage = RefCell::new(Coverage::default());
    all_pass(SEQUENCES, FIRST, |steps| run(steps, &mut coverage.borrow_mut()));
    let coverage = coverage.into_inner();
    println!("{}in {:?}", coverage.table(), begun.elapsed());
    assert_eq!(coverage.missing(), Vec::<String>::new());
}

/// Fewer sequences, over several shards: lists, cursors, events and history are put together from all of them.
#[test]
fn over_several_shards_the_server_answers_generated_sequences_as_the_model_does() {
    all_pass(SEQUENCES / 6, 3, |steps| {
        let store = Arc::new(MemoryStore::new(2 + (steps.len() % 3) as u16));
        run_over(store, steps, &mut Coverage::default())
    });
}

/// Fewer sequences, over files: what is answered is what the files hold.
#[test]
fn over_files_the_server_answers_generated_sequences_as_the_model_does() {
    all_pass(SEQUENCES / 10, 4, |steps| {
        let directory = tempfile::tempdir().unwrap();
        let options = EmbeddedOptions { segment_bytes: 8 << 20, ..EmbeddedOptions::default() };
        let store = EmbeddedStore::open(directory.path(), 1 + (steps.len() % 3) as u16, options).unwrap();
        run_over(Arc::new(store), steps, &mut Coverage::default())
    });
}

/// Fewer sequences, over Redis, which compares every change with what it holds: it must refuse none that the core decides.
#[test]
fn over_redis_the_server_answers_generated_sequences_as_the_model_does() {
    let Some(redis) = Server::start(&[]) else { return };
    all_pass(SEQUENCES / 10, 2, |steps| {
        let () = redis.ask(&["FLUSHALL"]);
        run_over(Arc::new(redis.open().unwrap()), steps, &mut Coverage::default())
    });
}

/// Collects differences by what they are about, and shrinks one of each.
fn survey(sequences: u32, seed: u64) {
    let mut runner = runner(sequences, seed);
    let mut found: BTreeMap<String, (usize, Vec<Step>, String)> = BTreeMap::new();
    let mut passed = 0;
    for _ in 0..sequences {
        let mut tree = sequence(STEPS).new_tree(&mut runner).unwrap();
        let Err(mut problem) = run(&tree.current(), &mut Coverage::default()) else {
            passed += 1;
            continue;
        };
        let about = kind_of(&problem);
        if let Some((count, _, _)) = found.get_mut(&about) {
            *count += 1;
            continue;
        }
        let mut smallest = tree.current();
        let mut left = 150;
        let mut smaller = tree.simplify();
        while smaller && left > 0 {
            left -= 1;
            let steps = tree.current();
            match run(&steps, &mut Coverage::default()) {
                Err(other) if kind_of(&other) == about => {
                    (smallest, problem) = (steps, other);
                    smaller = tree.simplify();
                }
                _ => smaller = tree.complicate(),
            }
        }
        found.insert(about, (1, smallest, problem));
    }
    for (about, (count, steps, problem)) in &found {
        println!("==== {count} × {about}\n{problem}");
        for step in steps {
            println!("  +{} {} {}", step.advance_ms, step.method, step.params);
        }
    }
    println!("{passed} of {sequences} passed");
    assert!(found.is_empty(), "{} kinds of differences", found.len());
}

/// What a difference is about: the method, and the sentence without its values.
fn kind_of(problem: &str) -> String {
    let first = problem.lines().next().unwrap_or_default();
    let method = first.split(": ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let sentence = first.rsplit("}: ").next().unwrap_or(first);
    let words = sentence.split(' ').filter(|word| !word.chars().any(|c| c.is_ascii_digit()));
    format!("{method}: {}", words.collect::<Vec<_>>().join(" ").chars().take(90).collect::<String>())
}
