//! A server in this process, and a client that speaks lines.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use allod::actors::clock::ManualClock;
use allod::actors::service::Hooks;
use allod::config::Config;
use allod::core::types::WallTime;
use allod::serve::{Options, Running, start};
use allod::store::Store;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clock::RealLeases;
use crate::faulty::FaultyStore;
use crate::published::PUBLISHED;
use crate::stores;

/// Waits for a condition, for at most a minute: a test that waits for ever would delay all others.
#[track_caller]
pub fn wait_for(what: &str, mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Blocks until the store's answer is there.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// How long a server with `patient` hooks waits for what a test holds.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a client waits for an answer: a server that gives up waiting says more than a test that gave up at that moment.
const ANSWERED: Duration = Duration::from_secs(120);

/// Hooks with which no commit and no load of a network is given up while a test holds it, or because the machine is busy.
pub fn patient() -> Hooks {
    let deferred_ms_max = Some(Arc::new(AtomicU64::new(PATIENCE.as_secs() * 1_000)));
    Hooks { commit_deadline: Some(PATIENCE), deferred_ms_max, ..Hooks::default() }
}

pub struct TestServer {
    pub running: Running,
    pub store: Arc<FaultyStore>,
    pub clock: Arc<ManualClock>,
    /// Removed after the server has ended.
    _files: Option<TempDir>,
}

impl TestServer {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Options)) -> Self {
        let (store, files) = stores::store(4);
        Self::over_files(store, files, change)
    }

    pub fn over(inner: Arc<dyn Store>, change: impl FnOnce(&mut Options)) -> Self {
        Self::over_files(inner, None, change)
    }

    /// A server over a store whose files are removed with it.
    pub fn over_files(inner: Arc<dyn Store>, files: Option<TempDir>, change: impl FnOnce(&mut Options)) -> Self {
        let store = FaultyStore::around(inner);
        let clock = Arc::new(ManualClock::new(WallTime(1_772_356_364_031), 7));
        let mut options = Options::new(Config::default(), Arc::clone(&store) as Arc<dyn Store>).on_free_ports();
        options.clock = Arc::new(RealLeases(Arc::clone(&clock)));
        options.hooks = patient();
        options.config.server.threads = 1;
        change(&mut options);
        if let Ok(ms) = std::env::var("ALLOD_TEST_SELF_CHECK_MS") {
            options.hooks.self_check_every.get_or_insert(Duration::from_millis(ms.parse().unwrap()));
        }
        Self { running: start(options).unwrap(), store, clock, _files: files }
    }

    /// A server that gives commits up as soon as the product does.
    pub fn giving_up() -> Self {
        Self::with(|options| options.hooks = Hooks::default())
    }

    pub fn hooked(hooks: Hooks) -> Self {
        Self::with(|options| options.hooks = hooks)
    }

    /// Stops it, and drops its store: files are open as long as anybody has them.
    pub fn stop(self) {
        self.running.stop();
    }

    pub fn client(&self) -> Client {
        Client::to(TcpStream::connect(self.running.tcp).unwrap())
    }

    /// Requests in the queue of a network, as shown by `/metrics`.
    pub fn queued(&self, network: &str) -> usize {
        let metrics = http(self.running.http, "GET /metrics", b"").1;
        let name = format!("allod_network_queue_requests{{network=\"{network}\",realm=\"default\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).expect("the queue is published");
        line.parse().unwrap()
    }

    /// A client, and the network `lan` of 10.0.0.0/24 with a gateway at .1.
    pub fn with_lan(&self) -> Client {
        let mut client = self.client();
        client
            .ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}]}));
        client
    }
}

/// A client that speaks lines. It checks every answer, and every request that was carried out, against the published
/// schemas.
pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
    next: u64,
    /// Method and params by id of every well-formed request that was sent.
    asked: Asked,
}

/// Requests without an answer yet, so that each answer can be checked against the schema of its method.
#[derive(Default)]
struct Asked(HashMap<String, (String, Value)>);

impl Asked {
    /// Notes requests and batches, one per line.
    fn read(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Value::Array(members)) => members.iter().for_each(|member| self.note(member)),
                Ok(member) => self.note(&member),
                Err(_) => {}
            }
        }
    }

    fn note(&mut self, request: &Value) {
        if let (Some(id), Some(method)) = (request.get("id"), request["method"].as_str()) {
            let params = request.get("params").cloned().unwrap_or_else(|| json!({}));
            let before = self.0.insert(id.to_string(), (method.to_owned(), params));
            if before.is_some_and(|(before, _)| before != method) {
                // Several requests with one id: nobody knows which of them is answered.
                self.0.insert(id.to_string(), (String::new(), Value::Null));
            }
        }
    }

    /// Checks an answer against the published schemas.
    fn judge(&mut self, answer: &Value) {
        if let Value::Array(members) = answer {
            return members.iter().for_each(|member| self.judge(member));
        }
        if answer.get("method").is_some() {
            return PUBLISHED.judge_notification(answer).unwrap_or_else(|problem| panic!("{problem}: {answer}"));
        }
        let Some((method, params)) = self.0.remove(&answer["id"].to_string()) else { return };
        let unknown = answer["error"]["data"]["kind"] == "method_not_found";
        if !unknown
            && !method.is_empty()
            && let Err(problem) = PUBLISHED.judge(&method, &params, answer)
        {
            panic!("{method} {params}: {problem}");
        }
    }
}

impl Client {
    pub fn to(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(ANSWERED)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self { stream, reader, next: 0, asked: Asked::default() }
    }

    pub fn raw(&mut self, text: impl AsRef<[u8]>) {
        self.asked.read(text.as_ref());
        self.stream.write_all(text.as_ref()).unwrap();
    }

    /// Sends a request without waiting, and returns its id.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.raw(format!("{line}\n"));
        self.next
    }

    /// The next line as it was sent, without its end.
    pub fn text_line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    /// The next line without its end, after checking it against the published schemas.
    pub fn judged_line(&mut self) -> String {
        let line = self.text_line();
        self.asked.judge(&serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}")));
        line
    }

    pub fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => {
                let answer = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
                self.asked.judge(&answer);
                Some(answer)
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next answer, which must be there.
    pub fn answer(&mut self) -> Value {
        self.line().expect("the connection was closed")
    }

    /// Sends a request, and waits until it was read and handed on; it must not be answered yet.
    pub fn hand_in(&mut self, method: &str, params: Value) -> u64 {
        let id = self.send(method, params);
        assert!(self.has_read_all(), "{method}: it was answered at once");
        id
    }

    /// Sends these requests, and waits until they were read. A ping arrives with them and before them, as some requests let
    /// nothing behind them be answered first.
    pub fn hand_in_raw(&mut self, text: &str) {
        // No test has a request of this id.
        let ping = 1_000_000;
        self.raw(line(ping, "server.ping", &json!({})) + text);
        assert_eq!(self.answer()["id"], ping);
    }

    /// Was everything read that was sent, and did nothing of it get an answer before that of a ping sent afterwards?
    pub fn has_read_all(&mut self) -> bool {
        let ping = self.send("server.ping", json!({}));
        self.answer()["id"] == ping
    }

    /// Was everything read that was sent, and does none of it get an answer within this time?
    pub fn waits_still(&mut self, time: Duration) -> bool {
        self.has_read_all() && self.silent_for(time)
    }

    /// Does nothing arrive within this time? Perhaps what was sent is not even read yet.
    pub fn silent_for(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let silent = self.reader.fill_buf().is_err();
        self.stream.set_read_timeout(Some(ANSWERED)).unwrap();
        silent
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let answer = self.answer();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub fn ok(&mut self, method: &str, params: Value) -> Value {
        let answer = self.call(method, params);
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The result of a call, which is repeated while the server is between two tenures, when it has to take a store of
    /// several nodes anew.
    pub fn ok_soon(&mut self, method: &str, params: Value) -> Value {
        self.ok_after(method, &params, 200, is_between_tenures)
    }

    /// The result of a call, which is repeated while `passes` accepts its answer, twenty times a second, at most `tries`
    /// times.
    pub fn ok_after(&mut self, method: &str, params: &Value, tries: u32, passes: impl Fn(&Value) -> bool) -> Value {
        let mut answer = Value::Null;
        for _ in 0..tries {
            answer = self.call(method, params.clone());
            if !passes(&answer) {
                assert!(answer.get("result").is_some(), "{method}: {answer}");
                return answer["result"].clone();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{method} is still answered: {answer}");
    }

    pub fn kind(&mut self, method: &str, params: Value) -> String {
        let answer = self.call(method, params);
        answer["error"]["data"]["kind"].as_str().unwrap_or_else(|| panic!("{method}: {answer}")).to_owned()
    }

    pub fn allocate(&mut self, owner: &str) -> Value {
        self.ok("ip.allocate", json!({"network": "lan", "owner": owner}))
    }

    pub fn end_input(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Everything until the connection ends.
    pub fn rest(&mut self) -> String {
        let mut text = String::new();
        self.reader.read_to_string(&mut text).unwrap();
        text
    }
}

/// Is this an answer of a server that has lost its register and does not own it again yet? A server over files never says
/// it: it owns them as long as it runs.
pub fn is_between_tenures(answer: &Value) -> bool {
    let error = &answer["error"];
    let moved = error["data"]["kind"] == "not_ready" && error["data"]["reason"] == "moved";
    let over = error["message"].as_str().is_some_and(|message| message.contains("no longer owns the network"));
    moved || over
}

pub fn line(id: u64, method: &str, params: &Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// One HTTP exchange: status and body.
pub fn http(address: std::net::SocketAddr, request: &str, body: &[u8]) -> (u16, String) {
    http_with(address, request, "host: test", body)
}

/// One HTTP exchange with given headers: status and body.
pub fn http_with(address: std::net::SocketAddr, request: &str, headers: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(ANSWERED)).unwrap();
    let head =
        format!("{request} HTTP/1.1\r\n{headers}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses a long body may close before all of it is sent.
    let _ = stream.write_all(body);
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let answer = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    if let (true, Ok(answered)) = (request == "POST /rpc", serde_json::from_str(&answer)) {
        let mut asked = Asked::default();
        // A body is one value, which may span several lines.
        asked.read(&body.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }).collect::<Vec<u8>>());
        asked.judge(&answered);
    }
    (status, answer)
}
