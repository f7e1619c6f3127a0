//! `allod doctor`: what a server finds on this machine, and what the one that runs says of itself.
//!
//! The checks of the machine are the server's (`serve::doctor`); here the server is asked, and all of it is printed.

pub(super) mod assumed;
mod readiness;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::output::table::wrapped;
use super::output::{Format, has_owner, print, text_of};
use super::serve_args::{ServeArgs, StoreKind};
use super::session::{Done, Options, Session};
use super::time::lasting;
use crate::client::ClientError;
use crate::core::plural::counted;
use crate::serve::from_cli::{self, Check, CheckState, now_ms};

/// How the state of a shard begins of which nothing is granted.
const GRANTS_NOTHING: &str = "nothing is granted";
/// What it has of networks that are stopped (`server::cluster`).
const STOPS: &str = "; stopped: ";

/// How wide a line is where there is no terminal.
const WIDTH: usize = 100;

/// As long as the longest name of a check, `descriptors`: each is printed before the next is known.
const COLUMN: usize = 11;

/// `allod doctor`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Doctor {
    /// Configuration of the server (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the files are
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the state is kept: embedded, redis or memory
    #[arg(long, value_enum, hide_possible_values = true)]
    store: Option<StoreKind>,
    /// Where Redis is; means --store redis
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

const AFTER_HELP: &str = "\
Say it as the user of the server and with its arguments and environment:
  runuser -u allod -- allod doctor --config /etc/allod/server.toml \\
    --data /var/lib/allod
Without any, and without a register in ./allod-data, these two are assumed where
that file is there. How ready a server is its HTTP port says: that of its
configuration, or else the one above its port (as 7401 is above 7400).

It looks and leaves nothing behind: the disk is timed with a file that has no
name, Redis tries what its user may do on a key that is gone again, and a server
that runs is asked: one that is named (--server) must answer. Ends with 0 where
nothing is `wrong`, warnings or not, and with 1 where something is.";

/// Looks, prints, and says by the exit code whether something is wrong.
pub fn run(args: Doctor, options: Options) -> Done<Exit> {
    let named = ServeArgs {
        config: args.config,
        data: args.data,
        store: args.store,
        redis: args.redis,
        ..ServeArgs::default()
    };
    let (serve, assumed) = assumed::server_here(named);
    serve.check()?;
    super::check_servers(&options.server)?;
    let mut told = Told::new(&options);
    // What all else is about comes first.
    told.tell(assumed)?;
    // Blocks, and has threads of its own: before the runtime of the calls.
    let examined = from_cli::examine(&serve);
    told.tell(examined.checks)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut session = Session::looking(options);
    let (listen, http) = examined.ports.unwrap_or_default();
    let asked = session.options.server.clone();
    let of_server = server(&mut session, examined.in_use, examined.directory.as_deref(), &mut told);
    let answers = runtime.block_on(of_server)?;
    if asked == listen {
        // The ports of one server: what its HTTP says is said of it.
        told.tell(runtime.block_on(readiness::check(&http)))?;
    } else if answers {
        for at in asked.split(',') {
            told.tell([runtime.block_on(readiness::check_beside(at))])?;
        }
    }
    let worst = told.checks.iter().map(|check| check.state).max().unwrap_or(CheckState::Ok);
    if told.width.is_some() {
        print(&sum(&told.checks))?;
    } else {
        let result = json!({"worst": worst, "checks": told.checks});
        session.print("doctor", &Map::new(), &result)?;
    }
    Ok(if worst == CheckState::Wrong { Exit::Failed } else { Exit::Success })
}

/// What was told so far.
struct Told {
    checks: Vec<Check>,
    /// How wide lines are that people read, each as soon as it is known: what comes next may take long. None: all is printed at
    /// the end.
    width: Option<usize>,
}

impl Told {
    fn new(options: &Options) -> Self {
        let is_table = options.style.format == Format::Table;
        Self { checks: Vec::new(), width: is_table.then(|| options.style.width.unwrap_or(WIDTH)) }
    }

    fn tell(&mut self, checks: impl IntoIterator<Item = Check>) -> Done<()> {
        for check in checks {
            if let Some(width) = self.width {
                print(&line(&check, width))?;
            }
            self.checks.push(check);
        }
        Ok(())
    }
}

/// What a server says of itself, if one is there. Is one?
async fn server(session: &mut Session, in_use: bool, directory: Option<&str>, told: &mut Told) -> Done<bool> {
    let at = session.options.server.clone();
    let info = match session.try_call("server.info", Map::new()).await {
        Ok(info) => info,
        Err(error) => {
            told.tell([silent(&at, session.options.is_server_named, in_use, &error)])?;
            return Ok(false);
        }
    };
    let text = |name: &str| info.get(name).map(text_of).unwrap_or_default();
    let uptime = info.get("uptime_seconds").and_then(Value::as_u64).unwrap_or(0);
    let (node, version) = (text("node"), text("version"));
    let seen = format!("{at}: node {node}, allod {version}, store {}, up {}", text("store"), lasting(uptime));
    told.tell([if version == env!("CARGO_PKG_VERSION") {
        Check::ok("server", seen)
    } else {
        let seen = format!("{seen}; this program is {}", env!("CARGO_PKG_VERSION"));
        Check::warning("server", seen, "restart it to finish the upgrade: `systemctl restart allod`")
    }])?;
    if !in_use
        && text("store") == "embedded"
        && let Some(directory) = directory
    {
        let seen = format!(
            "the server at {at} has not {directory} open: what is said above of register and disk is not its own"
        );
        let hint = "name where its files are by `--data DIR`, or its settings by `--config FILE`";
        told.tell([Check::warning("server", seen, hint)])?;
    }
    told.tell(clock(&text("time")))?;
    let result = match session.try_call("cluster.nodes", Map::new()).await {
        Ok(result) => result,
        Err(error) => {
            told.tell([Check::warning("nodes", format!("they cannot be told: {error}"), "see its log")])?;
            return Ok(true);
        }
    };
    told.tell(nodes(&result))?;
    told.tell(shards(&result))?;
    // Only the owner knows of any.
    if has_owner(&result) {
        told.tell(conflicts(session).await)?;
    }
    Ok(true)
}

/// What it means that a server does not say what it is. Who named it counts on it.
fn silent(at: &str, is_named: bool, in_use: bool, error: &ClientError) -> Check {
    let (seen, hint) = match (in_use, is_named) {
        (true, _) => (
            format!("the data directory is in use, and no server answers at {at}: {error}"),
            "is it another address (`--server HOST:PORT`), or does it still start? its log says",
        ),
        (false, true) => (
            format!("asked at {at}: {error}"),
            "does it run, and is that its address (`--server HOST:PORT` or ALLOD_SERVER)? its log says",
        ),
        (false, false) => return Check::ok("server", format!("none answers at {at}")),
    };
    if is_named { Check::wrong("server", seen, hint) } else { Check::warning("server", seen, hint) }
}

fn clock(time: &str) -> Option<Check> {
    let there: jiff::Timestamp = time.parse().ok()?;
    let there_ms = u64::try_from(there.as_millisecond()).ok()?;
    Some(from_cli::clocks("the server's", now_ms(), there_ms, "let a time server keep both"))
}

fn is(node: &Value, name: &str) -> bool {
    node.get(name) == Some(&Value::Bool(true))
}

fn nodes(result: &Value) -> Option<Check> {
    let nodes = result.get("nodes").and_then(Value::as_array)?;
    let text = |node: &Value, name: &str| node.get(name).map(text_of).unwrap_or_default();
    let shown: Vec<String> = nodes
        .iter()
        .map(|node| {
            let owner = if is(node, "owner") { ", owner" } else { "" };
            let draining = if is(node, "draining") { ", draining" } else { "" };
            format!("{} ({}{owner}{draining})", text(node, "name"), text(node, "version"))
        })
        .collect();
    let seen = shown.join(", ");
    let version = nodes.first().map(|node| text(node, "version"));
    if !has_owner(result) {
        let hint = "is the store there? its HTTP port says what it waits for: `curl http://HOST:PORT/readyz`";
        return Some(Check::wrong("nodes", format!("none owns the register: {seen}"), hint));
    }
    if nodes.iter().any(|node| Some(text(node, "version")) != version) {
        return Some(Check::of_several_releases(format!("of several releases: {seen}")));
    }
    Some(Check::ok("nodes", seen))
}

/// What the owner says of the register that it serves; also where its HTTP port is not known.
fn shards(result: &Value) -> Option<Check> {
    // None where another node owns it, or nobody but this server could.
    let shards = result.get("shards").and_then(Value::as_array).filter(|shards| !shards.is_empty())?;
    let states = shards.iter().filter_map(|shard| shard.get("state")?.as_str());
    let is_stopped = |state: &&str| state.contains(STOPS);
    Some(match states.clone().find(|state| state.starts_with(GRANTS_NOTHING)) {
        Some(state) => Check::wrong("shards", state, "it goes on by itself when that is over"),
        None if states.clone().any(|state| is_stopped(&state)) => {
            let seen: Vec<&str> = states.filter(is_stopped).collect();
            Check::wrong(
                "shards",
                seen.join("; "),
                "no restart and no drain before `curl http://HOST:PORT/readyz` was read: it says what is lost by it",
            )
        }
        None => Check::ok("shards", format!("{} served", counted(shards.len() as u64, "shard"))),
    })
}

/// In the order of the runbook (deploy/README.md, "Conflicts after a failover"): two that use one address are not parted by a word.
const CONFLICTS_HINT: &str = "`allod cluster conflicts` lists both claims; of each see first that one of both does not use the \
                              address (to keep the late one: `allod reserved add NETWORK ADDRESS --for-owner LATE`, with \
                              `--for-scope SCOPE` where it has one, and release the present one), then `allod cluster accept NETWORK \
                              ADDRESS --reason TICKET`";

async fn conflicts(session: &mut Session) -> Option<Check> {
    let result = match session.try_call("cluster.conflicts", Map::new()).await {
        Ok(result) => result,
        Err(error) => {
            let hint = "`allod cluster conflicts NETWORK` tells those of one network; its log says what is wrong with the other";
            return Some(Check::warning("conflicts", format!("they cannot be told: {error}"), hint));
        }
    };
    let count = result.get("conflicts").and_then(Value::as_array)?.len() as u64;
    Some(if count > 0 {
        let seen =
            format!("{} with two claims since a failover: their networks grant nothing", counted(count, "address"));
        Check::wrong("conflicts", seen, CONFLICTS_HINT)
    } else {
        Check::ok("conflicts", "none")
    })
}

/// A line for a check, and below it what to do.
fn line(check: &Check, width: usize) -> String {
    // State, check, and two blanks behind each.
    let indent = 7 + 2 + COLUMN + 2;
    let body =
        |text: &str| wrapped(text, width.saturating_sub(indent).max(40), 0).replace('\n', &format!("\n{:indent$}", ""));
    let state = match check.state {
        CheckState::Ok => "ok",
        CheckState::Warning => "warning",
        CheckState::Wrong => "WRONG",
    };
    let mut shown = format!("{state:<7}  {:<COLUMN$}  {}\n", check.check, body(&check.seen));
    if !check.hint.is_empty() {
        shown.push_str(&format!("{:indent$}-> {}\n", "", body(&check.hint)));
    }
    shown
}

/// How many were looked at.
fn sum(checks: &[Check]) -> String {
    let count = |state: CheckState| checks.iter().filter(|check| check.state == state).count() as u64;
    let (wrong, warnings) = (count(CheckState::Wrong), count(CheckState::Warning));
    format!("\n{} looked at: {wrong} wrong, {}\n", counted(checks.len() as u64, "thing"), counted(warnings, "warning"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_a_line_with_what_to_do_below_it() {
        let checks = [
            Check::ok("disk", "fast"),
            Check::warning("clock", "no time server keeps it", "enable one"),
            Check::wrong(
                "redis",
                "a very long sentence that goes on and on, beyond what fits into one line",
                "mend `it now`",
            ),
        ];
        let expected = "\
ok       disk         fast
warning  clock        no time server keeps it
                      -> enable one
WRONG    redis        a very long sentence that goes on and
                      on, beyond what fits into one line
                      -> mend `it now`

3 things looked at: 1 wrong, 1 warning
";
        let lines: String = checks.iter().map(|check| line(check, 62)).collect();
        assert_eq!(lines + &sum(&checks), expected);
    }

    #[test]
    fn a_server_that_nobody_named_need_not_be_there() {
        let error = ClientError::Connect { address: "a:1".to_owned(), cause: "refused".to_owned() };
        let state = |is_named, in_use| silent("a:1", is_named, in_use, &error).state;
        assert_eq!([state(false, false), state(false, true)], [CheckState::Ok, CheckState::Warning]);
        assert_eq!([state(true, false), state(true, true)], [CheckState::Wrong, CheckState::Wrong]);
    }

    #[test]
    fn a_server_of_another_time_is_told() {
        assert_eq!(clock("1999-01-01T00:00:00Z").map(|check| check.state), Some(CheckState::Warning));
        let now = jiff::Timestamp::from_millisecond(i64::try_from(now_ms()).unwrap()).unwrap();
        assert_eq!(clock(&now.to_string()).map(|check| check.state), Some(CheckState::Ok));
        assert_eq!(clock(""), None);
    }
}
