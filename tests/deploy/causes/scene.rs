//! A Prometheus with the shipped rules over the nodes of a story, clients of these nodes, and the record of what fired and
//! stopped.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::prometheus::Prometheus;
use crate::redis::process::ports::free_port;
use crate::tools::{read, yaml};
use crate::wire::Wire;

/// How often a scene is scraped and judged; the shipped interval is 15 s.
const EVERY: &str = "200ms";
/// The factor by which the durations of the rules are shortened: an hour takes 30 s, in which a register can change hands
/// three times, and five minutes contain twelve scrapes.
const FASTER: u64 = 120;
/// A limit only against hanging.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Exchanges each duration of an expression (`[5m]`, `offset 1h`).
fn with_durations(expression: &str, exchanged: impl Fn(&str) -> String) -> String {
    let (mut text, mut rest) = (String::new(), expression);
    while let Some(begin) = ["[", " offset "].iter().filter_map(|mark| Some(rest.find(mark)? + mark.len())).min() {
        let (before, from) = rest.split_at(begin);
        let (duration, behind) = from.split_at(from.find(|c: char| !c.is_alphanumeric()).unwrap_or(from.len()));
        text += &(before.to_owned() + &exchanged(duration));
        rest = behind;
    }
    text + rest
}

/// The rules with the same expressions and thresholds, but shorter durations and `for:`. Nobody waits an hour for a test,
/// and what matters is which series a rule looks at, not for how long.
fn hurried(rules: &str) -> String {
    let shorter = |duration: &str| {
        let (number, unit) = duration.split_at(duration.len() - 1);
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            _ => panic!("a duration of the rules: {duration}"),
        };
        format!("{}ms", number.parse::<u64>().unwrap() * seconds * 1_000 / FASTER)
    };
    let line = |line: &str| {
        if let Some((before, duration)) = line.split_once(" for: ") {
            return format!("{before} for: {}\n", shorter(duration));
        }
        with_durations(line, shorter) + "\n"
    };
    rules.lines().map(line).collect()
}

#[test]
fn in_a_hurry_nothing_of_a_rule_changes_but_its_durations() {
    let (shipped, hurried) =
        (read("deploy/prometheus/rules/allod.yml"), hurried(&read("deploy/prometheus/rules/allod.yml")));
    let rules = |text: &str| -> Vec<Value> {
        let groups = yaml(text).remove(0)["groups"].as_array().unwrap().clone();
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    };
    let outside = |rule: &Value| with_durations(rule["expr"].as_str().unwrap(), |_| String::new());
    assert_eq!(rules(&shipped).len(), rules(&hurried).len());
    for (shipped, hurried) in rules(&shipped).iter().zip(&rules(&hurried)) {
        assert_eq!((&shipped["alert"], outside(shipped)), (&hurried["alert"], outside(hurried)));
        assert_eq!(shipped["for"].is_string(), hurried["for"].is_string());
        let has_duration = shipped["for"].is_string() || shipped["expr"] != outside(shipped);
        let is_changed = (&shipped["for"], &shipped["expr"]) != (&hurried["for"], &hurried["expr"]);
        assert_eq!(is_changed, has_duration, "{shipped}");
    }
    assert!(hurried.contains("[30000ms]) > 0 or ") && hurried.contains(" offset 30000ms)"), "{hurried}");
    assert!(hurried.contains("[30000ms]) > 0") && hurried.contains(" for: 500ms\n"), "{hurried}");
}

/// A node as Prometheus and its clients see it: at one address, wherever its process listens.
pub struct Seen {
    pub rpc: Wire,
    pub http: Wire,
}

impl Seen {
    pub fn at(rpc: SocketAddr, http: SocketAddr) -> Self {
        Self { rpc: Wire::to(rpc), http: Wire::to(http) }
    }

    /// Leads to no server yet.
    pub fn nowhere() -> Self {
        let nobody = || ([127, 0, 0, 1], free_port()).into();
        Self::at(nobody(), nobody())
    }

    pub fn moved(&self, rpc: SocketAddr, http: SocketAddr) {
        self.rpc.lead_to(rpc);
        self.http.lead_to(http);
    }
}

/// See the module's text.
pub struct Scene {
    prometheus: Prometheus,
    fired: RefCell<BTreeSet<&'static str>>,
    stopped: RefCell<BTreeSet<&'static str>>,
}

/// Waits until something is so.
#[track_caller]
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_MAX;
    while !is() {
        assert!(Instant::now() < end, "it never is so: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Scene {
    /// Starts Prometheus; returns once it has scraped one of the nodes.
    #[track_caller]
    pub fn of(nodes: &[&Seen]) -> Self {
        let targets: Vec<SocketAddr> = nodes.iter().map(|seen| seen.http.address).collect();
        let prometheus = Prometheus::scraping(&targets, EVERY, &hurried(&read("deploy/prometheus/rules/allod.yml")));
        let scene = Self { prometheus, fired: RefCell::default(), stopped: RefCell::default() };
        let scraped = || scene.prometheus.series("allod_owner == 1").is_some_and(|series| !series.is_empty());
        until(&format!("Prometheus scrapes: {}", scene.prometheus.log_text()), scraped);
        scene
    }

    pub fn is_firing(&self, alert: &str, labels: &str) -> bool {
        let query = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\",{labels}}}");
        self.prometheus.series(&query).is_some_and(|series| !series.is_empty())
    }

    /// Waits until an alert fires. The labels select one of several alerts of this name.
    #[track_caller]
    pub fn fires(&self, alert: &'static str, labels: &str) {
        until(&format!("{alert} fires"), || self.is_firing(alert, labels));
        self.fired.borrow_mut().insert(alert);
    }

    /// Checks that an alert does not fire, does something, and waits until it fires.
    #[track_caller]
    pub fn provoked(&self, alert: &'static str, labels: &str, cause: impl FnOnce()) {
        until(&format!("{alert} does not fire"), || !self.is_firing(alert, labels));
        cause();
        self.fires(alert, labels);
    }

    /// Waits until an alert no longer fires.
    #[track_caller]
    pub fn stops(&self, alert: &'static str, labels: &str) {
        until(&format!("{alert} stops"), || !self.is_firing(alert, labels));
        self.stopped.borrow_mut().insert(alert);
    }

    /// The alerts that fired; each must have stopped, too.
    #[track_caller]
    pub fn end(self) -> BTreeSet<&'static str> {
        let fired = self.fired.take();
        assert_eq!(fired, self.stopped.take());
        fired
    }
}

/// A connection on which requests are sent one after the other.
pub struct Caller(BufReader<TcpStream>);

impl Caller {
    pub fn to(server: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT_MAX))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request without waiting for its answer.
    pub fn send(&mut self, method: &str, params: &Value) -> std::io::Result<()> {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.0.get_mut().write_all(format!("{request}\n").as_bytes())
    }

    /// Reads the next answer.
    pub fn heard(&mut self) -> std::io::Result<Value> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        serde_json::from_str(&line).map_err(std::io::Error::from)
    }

    pub fn call(&mut self, method: &str, params: &Value) -> std::io::Result<Value> {
        self.send(method, params)?;
        self.heard()
    }

    /// Makes a grant that must succeed, and returns the address. On a busy machine Redis may answer so late that the node
    /// asks to wait.
    #[track_caller]
    pub fn granted(&mut self, network: &str, owner: &str) -> String {
        let (asked, end) = (json!({"network": network, "owner": owner}), Instant::now() + WAIT_MAX);
        loop {
            let answer = self.call("ip.allocate", &asked).unwrap();
            if let Some(address) = answer["result"]["address"].as_str() {
                return address.to_owned();
            }
            let may_pass = answer["error"]["data"]["kind"] == "unavailable" && Instant::now() < end;
            assert!(may_pass, "{owner}: {answer}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A client that takes an address and gives it back all the time, whatever it is answered. Dropping it ends that.
pub struct Asking {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    pub fn of(server: SocketAddr, network: &'static str, owner: &'static str) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let round = move || -> std::io::Result<()> {
            let (mut caller, asked) = (Caller::to(server)?, json!({"network": network, "owner": owner}));
            while !ended.load(Ordering::Relaxed) {
                for method in ["ip.allocate", "ip.release"] {
                    caller.call(method, &asked)?;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        };
        let again = move || {
            while round().is_err() {
                std::thread::sleep(Duration::from_millis(100));
            }
        };
        Self { ends, thread: Some(std::thread::spawn(again)) }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // The thread ends after the answer that is under way.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
