//! `allod top`: rates, errors and fill, live on a terminal, or once.
//!
//! ```text
//! /metrics of each node ─▶ scrape ─▶ two looks ─▶ view ─▶ screen, or JSON
//! scope.list, network.usage (only if asked for) ───────────▶┘
//! ```
//!
//! The metrics contain what costs the server nothing to report. What it would have to count first (scopes) is requested only
//! with `--scopes`.
//!
//! Whoever is asked is asked in a task of its own (`asked`), and keys and signals are heard while answers are waited for.
//!
//! Review notes: is the terminal restored, whatever ends the program? Does an unreachable node affect only its own figures?

mod asked;
mod scrape;
mod screen;
mod view;

use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::args::Ask;
use super::exit::Exit;
use super::failure::{Failure, of_start};
use super::output::{Format, Unwritten, number_of, print};
use super::phrase::text;
use super::session::{Done, Session};
use super::why_full::Named;
use crate::client::Client;
use asked::{Asked, Problem};
use scrape::Scrape;
use screen::{Beside, Screen};
use view::{Looks, Sort, View};

/// How long the screen waits for who was not slow the last time; a little longer than a node may be silent before that is an
/// error.
const PATIENCE: Duration = Duration::from_secs(6);

/// Counting scopes reads every reservation, so the screen does not ask for it more often.
const SCOPES_EVERY: Duration = Duration::from_secs(10);

/// `allod top`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Top {
    /// Addresses of the metrics [default: the port after that of each --server]
    #[arg(long, value_name = "HOST:PORT,…")]
    metrics: Option<String>,
    /// Only this network, with its subnets and pools
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Scopes too; the server counts all reservations for it
    #[arg(long)]
    scopes: bool,
    /// Print once and end (the default if stdout is not a terminal)
    #[arg(long)]
    once: bool,
    /// Over how long rates are measured
    #[arg(long, value_name = "DURATION", value_parser = super::args::seconds, allow_hyphen_values = true, default_value = "2s")]
    interval: u64,
    /// By fill, rate, refused or name
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    sort: Sort,
    /// At most this many networks, and scopes
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,
}

const AFTER_HELP: &str = "\
On a terminal: q ends it, s sorts by something else, and networks and scopes for
which there are no rows are counted. IPV4 and IPV6 show how much is taken of
what can be granted; FULL IN, for networks that fill up, is estimated from the
last minute or more.

Networks come from the node that owns the register, requests from the node that
is asked; with several nodes, name all: --metrics a:7401,b:7401. `refused` are
answers such as not_enough_capacity; `failed` are overloaded, unavailable and
the like, which clients repeat.";

/// Shows the figures until the user ends it, or once.
pub async fn run(session: &mut Session, args: &Top) -> Done<Exit> {
    let nodes = addresses(args.metrics.as_deref(), &session.options.server)?;
    let only = only(session, args.network.as_deref()).await?;
    let timeout = session.options.timeout;
    let mut watched = Watched { nodes, only, timeout, asked: BTreeMap::new(), looks: BTreeMap::new() };
    if args.once || session.options.style.format != Format::Table || !Screen::is_there() {
        return once(session, args, &mut watched).await;
    }
    // The first errors are printed before the screen is taken, so that they stay visible.
    let problems = watched.look(watched.patience()).await;
    watched.must_answer(&problems)?;
    live(session, args, &mut watched).await
}

/// Which networks to show for the one that the user named.
async fn only(session: &mut Session, asked: Option<&str>) -> Done<Only> {
    let Some(asked) = asked else { return Ok(Only::All) };
    match session.try_call("network.get", named(asked)).await {
        // The metrics may be available although nobody can tell whose name it is.
        Ok(found) => Ok(match Named::of(session, asked, &found).await {
            Ok(Named::Closed { id, name }) => Only::Closed { id, name },
            Ok(Named::Open(name)) => Only::Named(name),
            Err(_) => Only::Named(text(&found, "name").unwrap_or(asked).to_owned()),
        }),
        Err(error) if error.rpc().is_some_and(|error| error.kind == "not_found") => {
            Err(Failure::of_method("network.get", &Value::Object(named(asked)), &error).into())
        }
        // Likewise.
        Err(_) => Ok(Only::Named(asked.to_owned())),
    }
}

async fn once(session: &mut Session, args: &Top, watched: &mut Watched) -> Done<Exit> {
    let patience = watched.patience();
    let problems = watched.look(patience).await;
    watched.must_answer(&problems)?;
    tokio::time::sleep(Duration::from_secs(args.interval)).await;
    // A node that did not answer has no rates at the second look either, and is not waited for again.
    let problems = watched.look(patience).await;
    watched.must_answer(&problems)?;
    let mut beside = Beside { problems, width: session.options.style.width, ..Beside::default() };
    let mut view = watched.view();
    if view.store_ready.is_none() {
        beside.problems.push(OWNER_MISSING.to_owned());
    }
    beside.problems.extend(watched.only.problem());
    if let Some(network) = &args.network {
        let usage = session.call("network.usage", json!({"network": network})).await?;
        beside.usage = Some(usage);
    }
    if args.scopes {
        beside.scopes = Some(scopes(session, args.network.as_deref()).await?);
    }
    args.sort.sort(&mut view.networks);
    keep(&mut view, args.limit);
    if session.options.style.format == Format::Table {
        print(&screen::text(&view, &beside, args.limit))?;
        return Ok(Exit::Success);
    }
    let mut result = serde_json::to_value(&view).unwrap_or_default();
    result["problems"] = json!(beside.problems);
    if let Some(Value::Array(scopes)) = &mut beside.scopes {
        result["scopes_more"] = json!(scopes.len().saturating_sub(args.limit));
        scopes.truncate(args.limit);
    }
    for (name, of) in [("usage", beside.usage), ("scopes", beside.scopes)] {
        if let Some(value) = of {
            result[name] = value;
        }
    }
    session.print("top", &Map::new(), &result)?;
    Ok(Exit::Success)
}

const OWNER_MISSING: &str = "no node that was asked owns the register, so nothing is known of networks: `allod cluster nodes` \
                             says whether another one does, whose HTTP port --metrics names then";

async fn live(session: &mut Session, args: &Top, watched: &mut Watched) -> Done<Exit> {
    let mut ends = Ends::new().map_err(|error| of_start(&error))?;
    let screen = Screen::enter().map_err(|error| {
        Failure::new("take the terminal", error.to_string(), "`allod top --once` prints the figures and ends")
    })?;
    let mut sort = args.sort;
    let mut beside = Aside::default();
    let mut shown: Option<(View, Beside)> = None;
    'looks: loop {
        let gathered = unless_ended(gather(session, args, watched, &mut beside), &mut ends, |key| {
            if key == b's' {
                sort = sort.next();
                // If that cannot be drawn, neither can what comes next, which tells.
                let _ = shown.as_ref().map(|(view, beside)| draw(view, beside, sort, args.limit));
            }
        });
        let Some((view, beside)) = gathered.await else { break };
        let tick = tokio::time::sleep(Duration::from_secs(args.interval.max(1)));
        tokio::pin!(tick);
        // A key redraws the same looks.
        loop {
            draw(&view, &beside, sort, args.limit)?;
            tokio::select! {
                () = &mut tick => break,
                key = ends.next() => match key {
                    Some(b's') => sort = sort.next(),
                    Some(b'q') | None => break 'looks,
                    Some(_) => {}
                },
            }
        }
        shown = Some((view, beside));
    }
    drop(screen);
    Ok(Exit::Success)
}

/// Waits for what is gathered, and meanwhile takes keys. None: the user ends it, and nothing more is waited for.
async fn unless_ended<T>(gathering: impl Future<Output = T>, ends: &mut Ends, mut press: impl FnMut(u8)) -> Option<T> {
    tokio::pin!(gathering);
    loop {
        tokio::select! {
            gathered = &mut gathering => return Some(gathered),
            key = ends.next() => match key {
                Some(b'q') | None => return None,
                Some(key) => press(key),
            },
        }
    }
}

/// What the server is asked beside the metrics, and what it said the last time.
#[derive(Default)]
struct Aside {
    usage: Asked<Value>,
    used: Option<Value>,
    scopes: Asked<Value>,
    counted: Option<Value>,
    /// When they were counted last, and when that was begun.
    counted_to: Option<Instant>,
    counted_at: Option<Instant>,
}

impl Aside {
    async fn begin(&mut self, session: &Session, args: &Top) {
        if let Some(network) = &args.network {
            let client = session.client();
            self.usage.begin(PATIENCE, || used(client, named(network))).await;
        }
        if args.scopes && self.counted_at.is_none_or(|at| at.elapsed() >= SCOPES_EVERY) {
            self.counted_at = Some(Instant::now());
            // Only a session of its own can go on while others are asked.
            let (mut session, network) = (Session::looking(session.options.clone()), args.network.clone());
            let counting = || async move {
                let counted = scopes(&mut session, network.as_deref()).await;
                counted.map_err(|_| "scopes cannot be counted now".to_owned())
            };
            self.scopes.begin(PATIENCE, counting).await;
            // The figures of a few seconds ago do.
            if self.counted_to.is_some_and(|at| at.elapsed() <= 2 * SCOPES_EVERY) {
                self.scopes.hold_nobody_up();
            }
        }
    }

    /// Adds what is known to a look.
    async fn take(&mut self, beside: &mut Beside) {
        if let Some(usage) = self.usage.take().await {
            self.used = usage.ok();
        }
        if let Some(Ok(counted)) = self.scopes.take().await {
            (self.counted, self.counted_to) = (Some(counted), Some(Instant::now()));
        }
        beside.usage.clone_from(&self.used);
        beside.scopes.clone_from(&self.counted);
        beside.problems.extend(self.problems());
    }

    /// What is wrong, a line each that says with what.
    fn problems(&self) -> impl Iterator<Item = String> {
        let usage = self.usage.problem().map(|problem| format!("the server: {problem}"));
        let scopes = self.scopes.problem().map(|problem| match problem {
            Problem::Silent(_) => "scopes are still being counted".to_owned(),
            Problem::Said(problem) => problem.clone(),
        });
        usage.into_iter().chain(scopes)
    }
}

async fn used(client: Client, network: Map<String, Value>) -> Result<Value, String> {
    client.call("network.usage", network).await.map_err(|error| error.to_string())
}

/// Everything that a screen shows.
async fn gather(session: &Session, args: &Top, watched: &mut Watched, aside: &mut Aside) -> (View, Beside) {
    let mut beside = Beside { width: Some(Screen::size().0), ..Beside::default() };
    aside.begin(session, args).await;
    beside.problems = watched.look(PATIENCE).await;
    aside.take(&mut beside).await;
    let view = watched.view();
    if view.store_ready.is_none() && beside.problems.is_empty() {
        beside.problems.push(OWNER_MISSING.to_owned());
    }
    beside.problems.extend(watched.only.problem());
    (view, beside)
}

fn draw(view: &View, beside: &Beside, sort: Sort, limit: usize) -> Result<(), Unwritten> {
    Screen::show(&fitted(view, beside, sort, limit, Screen::size().1))
}

fn named(network: &str) -> Map<String, Value> {
    Map::from_iter([("network".to_owned(), network.into())])
}

/// The view with as many networks and scopes as fit into the rows, but at least one of each.
fn fitted(view: &View, beside: &Beside, sort: Sort, most: usize, rows: usize) -> String {
    let (mut shown, mut limit) = (view.clone(), most.min(rows));
    sort.sort(&mut shown.networks);
    loop {
        keep(&mut shown, limit);
        let text = screen::text(&shown, beside, limit);
        if limit <= 1 || text.lines().count() <= rows {
            return text;
        }
        limit -= 1;
    }
}

/// Keeps that many networks, and counts the others.
fn keep(view: &mut View, limit: usize) {
    view.networks_more += view.networks.len().saturating_sub(limit);
    view.networks.truncate(limit);
}

/// All scopes as in the protocol, those with the most addresses first.
async fn scopes(session: &mut Session, network: Option<&str>) -> Done<Value> {
    let asked = network.map_or_else(Map::new, named);
    let answer = super::pages::all(session, &Ask::new("scope.list", &asked), "scopes").await?;
    let mut scopes = answer.get("scopes").and_then(Value::as_array).cloned().unwrap_or_default();
    scopes.sort_by_key(|scope| std::cmp::Reverse(scope.get("addresses").and_then(number_of).unwrap_or(0)));
    Ok(Value::Array(scopes))
}

/// Where the metrics of these servers are: the given addresses, or the port after each server's, as by default (7401 after
/// 7400).
fn addresses(metrics: Option<&str>, servers: &str) -> Result<Vec<String>, Failure> {
    if let Some(metrics) = metrics {
        // Also accepts the URL that Prometheus uses.
        let plain = |url: &str| url.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
        let nodes: Vec<String> = metrics.split(',').map(plain).collect();
        return match nodes.iter().find(|node| super::check_server(node).is_err()) {
            None => Ok(nodes),
            Some(wrong) => Err(Failure::usage(
                "read the metrics",
                format!("`{wrong}` is not a host and port"),
                "name HTTP ports: `--metrics 127.0.0.1:7401`",
            )),
        };
    }
    let next = |server: &str| {
        let (host, port) = server.rsplit_once(':')?;
        Some(format!("{host}:{}", port.parse::<u16>().ok()?.checked_add(1)?))
    };
    servers
        .split(',')
        .map(|server| next(server).ok_or_else(|| no_metrics(format!("{server} has no port after it"))))
        .collect()
}

fn no_metrics(reason: String) -> Failure {
    Failure {
        exit: Exit::Unreachable,
        ..Failure::new(
            "read the metrics",
            reason,
            "name the HTTP port of the server, as `ready` tells it: `--metrics HOST:PORT`",
        )
    }
}

/// Which networks are shown. Metrics use their names, even if the user named one by its id.
enum Only {
    All,
    Named(String),
    /// A deleted network. Metrics do not contain it, but may contain another one that has its name by now.
    Closed {
        id: String,
        name: String,
    },
}

impl Only {
    fn shows(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(wanted) => wanted == name,
            Self::Closed { .. } => false,
        }
    }

    /// Why only the pools are shown, if that is so.
    fn problem(&self) -> Option<String> {
        let Self::Closed { id, name } = self else { return None };
        Some(format!(
            "network `{name}` was deleted, and is remembered for what it holds: metrics do not show it; `allod network \
             restore {id}` brings it back"
        ))
    }
}

/// The nodes that are asked, with their last two answers.
struct Watched {
    nodes: Vec<String>,
    only: Only,
    timeout: Duration,
    asked: BTreeMap<String, Asked<Scrape>>,
    looks: BTreeMap<String, (Option<Scrape>, Scrape)>,
}

impl Watched {
    /// Asks all nodes at once, and waits so long for all but those that were slow the last time. Returns what is wrong with
    /// those that did not answer, a line each.
    async fn look(&mut self, patience: Duration) -> Vec<String> {
        for node in &self.nodes {
            let (timeout, node) = (self.timeout, node.clone());
            let asked = self.asked.entry(node.clone()).or_default();
            asked.begin(patience, || async move { scrape::ask(&node, timeout).await }).await;
        }
        let mut problems = Vec::new();
        for (node, asked) in &mut self.asked {
            match asked.take().await {
                Some(Ok(now)) => {
                    let before = self.looks.remove(node).map(|(_, before)| before);
                    self.looks.insert(node.clone(), (before, now));
                }
                Some(Err(_)) => drop(self.looks.remove(node)),
                None => {}
            }
            problems.extend(asked.problem().map(|problem| format!("{node}: {problem}")));
        }
        problems
    }

    /// Enough for any answer that comes in time, or the error that it does not.
    fn patience(&self) -> Duration {
        self.timeout.saturating_add(Duration::from_secs(1))
    }

    /// Fails unless at least one of them has answered.
    fn must_answer(&self, problems: &[String]) -> Result<(), Failure> {
        if self.looks.is_empty() { Err(no_metrics(problems.join("; "))) } else { Ok(()) }
    }

    #[expect(clippy::disallowed_methods, reason = "how long a node runs, for people; a node tells only when it began")]
    fn view(&self) -> View {
        let looks =
            self.looks.iter().map(|(node, (before, now))| Looks { address: node, before: before.as_ref(), now });
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut view = View::of(&looks.collect::<Vec<_>>(), now.as_secs_f64());
        view.networks.retain(|network| self.only.shows(&network.network));
        view
    }
}

/// Keys, and signals that end the program.
struct Ends {
    keys: mpsc::Receiver<u8>,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Ends {
    fn new() -> std::io::Result<Self> {
        let (pressed, keys) = mpsc::channel(16);
        // It ends with the process: nothing else reads stdin.
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            let mut keys = [0; 16];
            while let Ok(count @ 1..) = std::io::stdin().read(&mut keys) {
                if keys[..count].iter().any(|key| pressed.blocking_send(*key).is_err()) {
                    return;
                }
            }
        })?;
        Ok(Self {
            keys,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next key; none if the program should end.
    async fn next(&mut self) -> Option<u8> {
        tokio::select! {
            key = self.keys.recv() => key,
            _ = self.interrupt.recv() => None,
            _ = self.terminate.recv() => None,
            _ = self.hangup.recv() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_for_want_of_rows_is_counted_and_scopes_are_among_what_is_shown() {
        let network = |at: usize| view::Network { network: format!("n{at}"), ..view::Network::default() };
        let view = View { networks: (0..50).map(network).collect(), ..View::default() };
        let scope = |at: usize| json!({"scope": format!("s{at}"), "addresses": "1"});
        let scopes = Some((0..50).map(scope).collect());
        let text = fitted(&view, &Beside { scopes, ..Beside::default() }, Sort::Name, 20, 24);
        let count = text.lines().count();
        assert!((22..=24).contains(&count), "{count}: {text}");
        let shown = text.lines().filter(|line| line.starts_with('n')).count();
        assert!(text.contains(&format!("and {} networks more", 50 - shown)), "{text}");
        assert!(shown > 3 && text.ends_with(&format!("and {} scopes more\n", 50 - shown)), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn each_problem_says_with_what() {
        let mut aside = Aside::default();
        aside.usage.begin(PATIENCE, std::future::pending).await;
        aside.scopes.begin(PATIENCE, std::future::pending).await;
        let mut beside = Beside::default();
        aside.take(&mut beside).await;
        assert_eq!(beside.problems, ["the server: no answer for 6 s", "scopes are still being counted"]);
    }

    /// For minutes nobody may answer, and the terminal is taken.
    #[tokio::test]
    async fn a_key_is_heard_while_nobody_answers() {
        let (pressed, keys) = mpsc::channel(16);
        let signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = signals.map(|kind| signal(kind).unwrap());
        let mut ends = Ends { keys, interrupt, terminate, hangup };
        for key in *b"sxq" {
            pressed.send(key).await.unwrap();
        }
        let mut heard = Vec::new();
        let gathered = unless_ended(std::future::pending::<()>(), &mut ends, |key| heard.push(key)).await;
        assert_eq!((gathered, heard), (None, b"sx".to_vec()));
    }

    #[test]
    fn metrics_are_looked_for_behind_each_server_unless_it_is_said_where() {
        assert_eq!(addresses(None, "127.0.0.1:7400,[::1]:7410").unwrap(), ["127.0.0.1:7401", "[::1]:7411"]);
        assert_eq!(addresses(Some("a:1,http://b:2/metrics"), "127.0.0.1:7400").unwrap(), ["a:1", "b:2"]);
        assert!(addresses(None, "127.0.0.1:65535").unwrap_err().hint.contains("--metrics"));
        assert_eq!(addresses(Some("https://a:1/metrics"), "b:1").unwrap_err().exit, Exit::Usage);
    }
}
