//! `allod try`: a server with a first network, and a demonstration, in one command.
//!
//! Opens or creates a data directory, serves it in this process, applies `config/first-network.toml`, takes one address of
//! each family, asks again, draws the map, and goes on serving. The lines shown are exactly those on the wire: a connection
//! of its own writes and reads them. If a port is taken, a free one is used instead.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::apply::{diff, file};
use super::exit::Exit;
use super::failure::Failure;
use super::output::{map, print};
use super::quote::shell;
use super::session::{Done, Options, Session, runtime};
use crate::client::request_line;
use crate::serve::from_cli::{self, Ended};

/// The network to try things on. It is included in the program, so that one file is enough.
const FIRST_NETWORK: &str = include_str!("../../config/first-network.toml");
/// The longest wait for an answer; the server is in this process.
const PATIENCE: Duration = Duration::from_secs(30);

/// `allod try`.
#[derive(Debug, Args)]
pub struct Try {
    /// Data directory of the register; created if it does not exist
    #[arg(long, value_name = "DIR", default_value = "allod-data")]
    data: PathBuf,
    /// Where to listen for JSON-RPC; another port if it is taken
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7400")]
    listen: SocketAddr,
    /// Where to listen for HTTP; another port if it is taken
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7401")]
    http: SocketAddr,
}

/// A connection that prints the lines it sends and receives.
struct Shown {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    last_id: u64,
}

impl Shown {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), stream, last_id: 0 })
    }

    /// Sends a request and prints both lines. Returns the result, or null.
    fn exchange(&mut self, method: &str, params: &Value) -> Done<Value> {
        self.last_id += 1;
        let failed =
            |problem: String| Failure::new(format!("call `{method}`"), problem, "see the log of `allod serve`");
        let line = request_line(self.last_id, method, params).map_err(|error| failed(error.to_string()))?;
        self.stream.write_all(&line).map_err(|error| failed(error.to_string()))?;
        let mut answer = String::new();
        let read = self.reader.read_line(&mut answer).map_err(|error| failed(unanswered(&error)))?;
        if read == 0 {
            return Err(failed("the server hung up".to_owned()).into());
        }
        print(&format!("> {}< {answer}", String::from_utf8_lossy(&line)))?;
        let answer: Value = serde_json::from_str(&answer).map_err(|error| failed(error.to_string()))?;
        Ok(answer.get("result").cloned().unwrap_or(Value::Null))
    }
}

/// Why no answer was read. A socket says of a time that is over only that it has nothing now.
fn unanswered(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("no answer within {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    }
}

/// Serves, demonstrates, and goes on serving until a signal to stop.
pub fn run(args: &Try, options: Options) -> Done<Exit> {
    let runtime = runtime()?;
    let (listen, http) = (free(args.listen), free(args.http));
    let running = from_cli::start_here(&args.data, listen, http).map_err(|problem| {
        Failure::new(
            format!("serve `{}`", args.data.display()),
            problem,
            "choose another directory: `allod try --data DIR`",
        )
    })?;
    let (tcp, web) = (running.tcp, running.http);
    let mut session = Session::new(Options { server: tcp.to_string(), ..options });
    for (what, wanted, got) in [("JSON-RPC", args.listen, tcp), ("HTTP", args.http, web)] {
        let taken = wanted.port() != 0 && wanted != got;
        let note = if taken { format!(" ({wanted} is taken)") } else { String::new() };
        session.say(&format!("{what:<9} {got}{note}"));
    }
    session.say(&format!("register  {}", args.data.display()));
    let shown = runtime.block_on(async {
        // Signals are caught from here on: the user may stop the server as soon as the text says how.
        let stopped = stopped();
        show(&mut session, tcp).await?;
        next(&session, tcp, web);
        stopped.await;
        Done::Ok(())
    });
    // Whatever ended it, the register is closed in order.
    session.say("stopping");
    match running.stop() {
        Ended::Stopped | Ended::WrittenAnew(_) => shown.map(|()| Exit::Success),
        Ended::Failed(problem) => {
            Err(Failure::new("stop in order", problem, "`allod try` reads the register again and checks it").into())
        }
    }
}

/// The address, or one with any free port if its port is taken.
fn free(wanted: SocketAddr) -> SocketAddr {
    match TcpListener::bind(wanted) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => SocketAddr::new(wanted.ip(), 0),
        // Any other error is reported by the server.
        Ok(_) | Err(_) => wanted,
    }
}

async fn show(session: &mut Session, tcp: SocketAddr) -> Done<()> {
    let asked = "apply config/first-network.toml";
    let broken = |problem: String| Failure::new(asked, problem, "report this, with the output of `allod --version`");
    let content = toml::from_str(FIRST_NETWORK).map_err(|error| broken(error.to_string()))?;
    let tables = file::tables(content).map_err(broken)?;
    session.say("\n1. A network, from config/first-network.toml (`allod network apply`)");
    let there = super::apply::networks(session, None).await?;
    let network = tables.first().map(|table| table.name.clone()).unwrap_or_default();
    let steps = diff::steps(&tables, &there, false).map_err(broken)?;
    if steps.is_empty() {
        session.say("   it exists already, as in the file");
    } else if there.iter().any(|one| one["name"] == network) {
        // The user's own changes to the network must stay.
        session.say("   it exists already, and differs from the file; it is left as it is");
    } else {
        for step in steps {
            step.words.iter().for_each(|line| session.say(&format!("   {line}")));
            session.call(step.method, Value::Object(step.params)).await?;
        }
    }
    let wishes = [
        json!({"network": network, "owner": "web/0", "family": 4}),
        json!({"network": network, "owner": "web/0", "slot": "v6", "family": 6}),
    ];
    let unconnected = |error: io::Error| {
        Failure::new("show what goes over the wire", error.to_string(), "`allod doctor` looks at this machine")
    };
    let mut wire = Shown::connect(tcp).map_err(unconnected)?;
    session.say("\n2. One address of each family, as it goes over the wire");
    let first = [wire.exchange("ip.allocate", &wishes[0])?, wire.exchange("ip.allocate", &wishes[1])?];
    session.say("\n3. Asked again, as after a lost answer");
    let again = [wire.exchange("ip.allocate", &wishes[0])?, wire.exchange("ip.allocate", &wishes[1])?];
    let same = first.iter().zip(&again).all(|(first, again)| first["address"] == again["address"]);
    session.say(if same {
        "   the same addresses: a request can be repeated blindly"
    } else {
        "   the addresses differ"
    });
    session.say("\n4. What is taken (`allod network map`)");
    let drawn = session.call("network.map", json!({"network": network})).await?;
    let pools = drawn["pools"].as_array().into_iter().flatten().filter_map(map::pool);
    print(&pools.collect::<Vec<_>>().join("\n"))?;
    session.say(map::LEGEND);
    Ok(())
}

/// Commands to type next, in another terminal.
fn next(session: &Session, tcp: SocketAddr, web: SocketAddr) {
    session.say("\nNext, in another terminal:");
    if tcp.to_string() != "127.0.0.1:7400" {
        session.show(&format!("  export ALLOD_SERVER={tcp}"));
    }
    let request =
        json!({"jsonrpc": "2.0", "id": 1, "method": "ip.allocate", "params": {"network": "lan", "owner": "db/0"}});
    for line in [
        "allod ip allocate lan --owner web/1".to_owned(),
        "allod who 10.0.0.64".to_owned(),
        "allod network usage lan".to_owned(),
        format!("curl -s http://{web}/rpc -d {}", shell(&request.to_string())),
    ] {
        // Never wrapped, because each line must be copied as one command.
        session.show(&format!("  {line}"));
    }
    session.say("\nServing until Ctrl-C. `allod try` opens the same register again.");
}

/// Waits for a signal to stop. Signals are caught from the call on, not only from the first poll.
fn stopped() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        match signals {
            (Ok(mut interrupt), Ok(mut terminate)) => {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            }
            // Without signals the process is killed, which the store survives.
            _ => std::future::pending().await,
        }
    }
}
