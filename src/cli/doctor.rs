//! `allod doctor`: what a server would find on this machine, and what the running server says of itself.
//!
//! The server's own code checks the machine (`serve::doctor`); this module asks the running server, and prints everything.

pub(super) mod assumed;
mod readiness;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::output::table::wrapped;
use super::output::{Format, has_owner, print, text_of};
use super::serve_args::{ServeArgs, StoreKind};
use super::session::{Done, Options, Session, runtime};
use super::time::lasting;
use crate::client::ClientError;
use crate::core::plural::counted;
use crate::serve::from_cli::{self, Check, CheckState, now_ms};

/// The start of a shard's state when nothing is granted from it.
const GRANTS_NOTHING: &str = "nothing is granted";
/// What precedes the stopped networks in a shard's state (`server::cluster`).
const STOPS: &str = "; stopped: ";

/// Line width without a terminal.
const WIDTH: usize = 100;

/// The length of the longest name of a check, `descriptors`: each check is printed before the next one is known.
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
    /// Which store keeps the register: embedded, redis or memory
    #[arg(long, value_enum, hide_possible_values = true)]
    store: Option<StoreKind>,
    /// URL of Redis; implies --store redis
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

const AFTER_HELP: &str = "\
Run it as the user of the server, with the server's arguments and environment:
  runuser -u allod -- allod doctor --config /etc/allod/server.toml \\
    --data /var/lib/allod
Without any, and without a register in ./allod-data, these two are assumed if
that file exists. The HTTP port of a server says how ready it is: the port in
its configuration, or else the one above its port (7401 above 7400).

It leaves nothing behind: the disk is timed with a file without a name, what the
user of Redis may do is tried on a key that is removed again, and a running
server is asked; one that is named (--server) must answer. Ends with 0 if
nothing is `wrong`, even with warnings, and otherwise with 1.";

/// Runs the checks, prints them, and says by the exit code whether something is wrong.
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
    // First the assumption on which everything else depends.
    told.tell(assumed)?;
    // It blocks and has threads of its own, so it runs before the runtime of the calls starts.
    let examined = from_cli::examine(serve.config.clone(), serve.flags());
    told.tell(examined.checks)?;
    let runtime = runtime()?;
    let mut session = Session::looking(options);
    let (listen, http) = examined.ports.unwrap_or_default();
    let asked = session.options.server.clone();
    let of_server = server(&mut session, examined.in_use, examined.directory.as_deref(), &mut told);
    let answers = runtime.block_on(of_server)?;
    if asked == listen {
        // Both ports belong to one server, so its HTTP port speaks for it.
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

/// The checks so far.
struct Told {
    checks: Vec<Check>,
    /// The line width for people, who see each check as soon as it is known, because the next one may take long. None:
    /// everything is printed at the end.
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

/// Prints what a running server says of itself. Returns whether there is one.
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
            "the server at {at} does not have {directory} open: what is said above about register and disk is not about it"
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
    // Only the owner knows of conflicts.
    if has_owner(&result) {
        told.tell(conflicts(session).await)?;
    }
    Ok(true)
}

/// What it means that no server answers. A user who named one expects it to.
fn silent(at: &str, is_named: bool, in_use: bool, error: &ClientError) -> Check {
    let (seen, hint) = match (in_use, is_named) {
        (true, _) => (
            format!("the data directory is in use, and no server answers at {at}: {error}"),
            "see whether this is the right address (`--server HOST:PORT`), and by its log whether it is still starting",
        ),
        (false, true) => (format!("asked at {at}: {error}"), readiness::IS_IT_THERE),
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
        let hint =
            "can they reach the store? The HTTP port of each says what it waits for: `curl http://HOST:PORT/readyz`";
        return Some(Check::wrong("nodes", format!("none owns the register: {seen}"), hint));
    }
    if nodes.iter().any(|node| Some(text(node, "version")) != version) {
        return Some(Check::of_several_releases(format!("of several releases: {seen}")));
    }
    Some(Check::ok("nodes", seen))
}

/// What the owner says of the register that it serves; works also if its HTTP port is not known.
fn shards(result: &Value) -> Option<Check> {
    // There are none if another node owns the register, or if only this server could.
    let shards = result.get("shards").and_then(Value::as_array).filter(|shards| !shards.is_empty())?;
    let states = shards.iter().filter_map(|shard| shard.get("state")?.as_str());
    let is_stopped = |state: &&str| state.contains(STOPS);
    Some(match states.clone().find(|state| state.starts_with(GRANTS_NOTHING)) {
        Some(state) => Check::wrong("shards", state, "it resumes by itself when that is over"),
        None if states.clone().any(|state| is_stopped(&state)) => {
            let seen: Vec<&str> = states.filter(is_stopped).collect();
            Check::wrong(
                "shards",
                seen.join("; "),
                "before any restart or drain read `curl http://HOST:PORT/readyz`: it says what would be lost",
            )
        }
        None => Check::ok("shards", format!("{} served", counted(shards.len() as u64, "shard"))),
    })
}

/// In the order of the runbook (deploy/README.md, "Conflicts after a failover"): no command keeps two machines from using
/// one address.
const CONFLICTS_HINT: &str = "`allod cluster conflicts` lists both claims; for each, first make sure that one of the two \
 holders stops using the address (to keep the late one: `allod reserved add NETWORK ADDRESS --for-owner LATE`, with \
                              `--for-scope SCOPE` where it has one, and release the present one), then `allod cluster accept \
                              NETWORK \
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

/// A line for a check, and the hint below it.
fn line(check: &Check, width: usize) -> String {
    // State and check, each followed by two blanks.
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

/// How many checks were made, and how they ended.
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
