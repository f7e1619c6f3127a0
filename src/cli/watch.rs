//! `allod watch`: events as they happen, a line each, or a command for each.
//!
//! The library's watch keeps the order and loses nothing when connections are lost. This module prints events or runs
//! commands, and remembers up to which event everything is done. However a watch ends, the next `allod watch --since` begins
//! with the first event that is not done.

mod hook;
mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::args::params_of;
use super::exit::Exit;
use super::failure::{Failure, of_start};
use super::output::words::say;
use super::output::{Format, Unwritten, print, text_of};
use super::quote::shell;
use super::session::{Done, Session, Stop};
use crate::client::{Client, ClientError, Told, Trouble, Watch as Events};
use crate::wire::ErrorKind;
use hook::Hook;

/// How often the watch checks whether its output still has a reader.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// `allod watch`.
#[derive(Debug, Args, Serialize)]
#[command(after_help = AFTER_HELP)]
pub struct Watch {
    /// Of this network only (name or id)
    #[arg(long)]
    network: Option<String>,
    /// Of networks in this realm only
    #[arg(long)]
    realm: Option<String>,
    /// Of holdings in this scope only
    #[arg(long)]
    scope: Option<String>,
    /// After this cursor, of an event or a list; otherwise from now on
    #[arg(long, value_name = "CURSOR")]
    since: Option<String>,
    /// End after this many events
    #[arg(long, value_name = "COUNT")]
    #[serde(skip)]
    count: Option<u64>,
    /// Run this with `sh -c` for each event, one after the other
    #[arg(long, value_name = "CMD")]
    #[serde(skip)]
    exec: Option<String>,
    /// What to do when it fails: stop, skip the event, or retry
    #[arg(long, value_enum, value_name = "WHAT", default_value_t, hide_possible_values = true, requires = "exec")]
    #[serde(skip)]
    on_failure: OnFailure,
}

/// What a failed command means for its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum OnFailure {
    /// End; the event is the first of the next watch from the cursor that is told.
    #[default]
    Stop,
    /// Go on with the next event.
    Skip,
    /// Run it again until it succeeds.
    Retry,
}

const AFTER_HELP: &str = "\
With --exec nothing is printed. The command gets the event as JSON on stdin, and
in its environment: EVENT_TYPE, EVENT_TIME, EVENT_CURSOR, EVENT_NETWORK,
EVENT_NETWORK_ID, EVENT_SCOPE, EVENT_OWNER, EVENT_SLOT, EVENT_CLAIMANT,
EVENT_GENERATION, EVENT_KIND, EVENT_BY, EVENT_REASON; and Ganeti's variables of
the address: IP_COUNT, IP_0, PREFIX_LENGTH_0, INTERFACE_0, NETWORK_NAME_0,
NETWORK_SUBNET_0, NETWORK_GATEWAY_0, NETWORK_DHCP_0, NETWORK_DNS_0, MAC_0, each
prefixed with --prefix (as INSTANCE_NIC0_). The values of the subnet are the
current ones. For an event of a network there are NETWORK_NAME,
NETWORK_SUBNET_0, ….

If `watch` ends while a command runs, --since tells that event again: a command
must tolerate being run twice for one event.";

/// Watches until it is asked to end, the reader hangs up, or a command fails.
pub async fn run(session: &mut Session, args: &Watch) -> Done<Exit> {
    let params = params_of(args);
    let troubled = Arc::new(AtomicBool::new(false));
    let client = session.options.client(Some(told_once(&troubled)));
    let refused = |error: &ClientError| Stop::from(Failure::of_method("events.watch", &shown(&params), error));
    let mut ends = Ends::new().map_err(|error| of_start(&error))?;
    let begun = tokio::select! {
        begun = client.watch(params.clone()) => begun.map_err(|error| refused(&error))?,
        () = ends.asked() => return Ok(Exit::Success),
    };
    let mut teller = Teller::new(session, args, client)?;
    let mut watch = begun.with_bookmarks();
    // Everything up to this cursor is printed, or its command has succeeded.
    let mut done = watch.cursor().to_owned();
    let mut network = params.get("network").map(text_of);
    let mut left = args.count.unwrap_or(u64::MAX);
    let ended = loop {
        if left == 0 {
            break Ok(());
        }
        let told = tokio::select! {
            told = watch.next() => told,
            () = ends.asked() => break Ok(()),
        };
        if troubled.swap(false, Ordering::Relaxed) {
            session.say("connected again");
        }
        let event = match told {
            Ok(Told::Event(event)) => event,
            Ok(Told::Bookmark(cursor)) => {
                done = cursor;
                continue;
            }
            Err(error) => break Err(refused(&error)),
        };
        network = network.map(|network| still_called(network, &event));
        match teller.tell(&event, &mut ends).await {
            Ok(Handled::Yes) => watch.cursor().clone_into(&mut done),
            Ok(Handled::Last) => {
                watch.cursor().clone_into(&mut done);
                break Ok(());
            }
            Ok(Handled::NotYet) => break Ok(()),
            Err(stop) => break Err(stop),
        }
        left -= 1;
    };
    finish(session, (&params, network), &watch, &done, ended)
}

/// How the next watch names this network: by its name while it has it, then by its id, because the name may belong to
/// another network.
fn still_called(network: String, event: &Value) -> String {
    let text = |name: &str| event.get(name).and_then(Value::as_str);
    match (text("network"), text("network_id")) {
        (Some(name), Some(id)) if name != network => id.to_owned(),
        _ => network,
    }
}

/// Says where the next watch begins.
fn finish(
    session: &Session,
    (params, network): (&Map<String, Value>, Option<String>),
    watch: &Events,
    done: &str,
    ended: Result<(), Stop>,
) -> Done<Exit> {
    let filters = ["network", "realm", "scope"].into_iter().filter_map(|name| {
        let value = params.get(name)?.as_str()?;
        let value = network.as_deref().filter(|_| name == "network").unwrap_or(value);
        Some(format!(" --{name} {}", shell(value)))
    });
    let again = format!("allod watch{} --since {}", filters.collect::<String>(), shell(done));
    match ended {
        Ok(()) => {
            session.say(&format!("to go on from here: `{again}`"));
            Ok(Exit::Success)
        }
        Err(Stop::Failed(mut failure)) => {
            let is_lost =
                failure.refused.as_ref().is_some_and(|refused| refused.kind == ErrorKind::CursorLost.as_str());
            if done != watch.cursor() {
                failure.hint = format!("{}; `{again}` begins with this event", failure.hint);
            } else if !is_lost {
                failure.hint = format!("{}; `{again}` goes on from here", failure.hint);
            }
            Err(Stop::Failed(failure))
        }
        Err(Stop::Quiet) => Err(Stop::Quiet),
    }
}

fn shown(params: &Map<String, Value>) -> Value {
    Value::Object(params.clone())
}

/// Says once that the server is lost, until the caller notes that it is back.
fn told_once(troubled: &Arc<AtomicBool>) -> Trouble {
    let (troubled, connected) = (Arc::clone(troubled), AtomicBool::new(false));
    Trouble::told_to(move |error| {
        // A failure of the first connection is the command's own failure, which is reported as such.
        let is_first = matches!(error, ClientError::Connect { .. }) && !connected.load(Ordering::Relaxed);
        connected.store(!is_first, Ordering::Relaxed);
        if !is_first && !troubled.swap(true, Ordering::Relaxed) {
            say(&format!("{error}; trying again until the server is back"));
        }
    })
}

/// What ends a watch from outside: Ctrl-C, SIGTERM, or a reader of stdout that hung up.
struct Ends {
    interrupt: Signal,
    terminate: Signal,
    look: tokio::time::Interval,
}

impl Ends {
    fn new() -> std::io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut look = tokio::time::interval_at(tokio::time::Instant::now() + LOOK_EVERY, LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { interrupt, terminate, look })
    }

    /// Waits until one of these happens. Safe to cancel.
    async fn asked(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return,
                _ = self.terminate.recv() => return,
                _ = self.look.tick() => {
                    if is_closed() {
                        return;
                    }
                }
            }
        }
    }
}

/// Has the reader of our stdout hung up?
fn is_closed() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = std::io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A file is not closed by its reader, and poll reports no hang-up for it.
    poll(&mut asked, Some(&at_once)).is_ok() && asked[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Whether an event is done.
enum Handled {
    Yes,
    /// It is done, and the watch should end.
    Last,
    /// The watch should end before the event is done.
    NotYet,
}

/// What is done with each event.
enum Teller {
    Run(Box<Hook>),
    Print { format: Format, hook: Box<Hook>, printer: Printer },
}

/// A thread that prints, because whoever reads may stand still, and a signal must end the watch nevertheless. Nothing waits for
/// the thread when the watch ends.
struct Printer {
    texts: SyncSender<(String, oneshot::Sender<Result<(), Unwritten>>)>,
}

impl Printer {
    fn start() -> std::io::Result<Self> {
        // A text is handed on only when the one before it is printed.
        let (texts, handed) = sync_channel::<(String, oneshot::Sender<Result<(), Unwritten>>)>(1);
        let run = move || {
            for (text, printed) in handed {
                // Nobody listens any more if the watch ended meanwhile.
                let _ = printed.send(print(&text));
            }
        };
        std::thread::Builder::new().name("printer".to_owned()).spawn(run)?;
        Ok(Self { texts })
    }

    /// Prints a text, unless the watch is asked to end before all of it is taken.
    async fn print(&self, text: String, ends: &mut Ends) -> Done<Handled> {
        let (printed, is_printed) = oneshot::channel();
        let gone = || Unwritten(std::io::ErrorKind::BrokenPipe.into());
        self.texts.try_send((text, printed)).map_err(|_| gone())?;
        tokio::select! {
            biased;
            printed = is_printed => printed.map_err(|_| gone())??,
            () = ends.asked() => return Ok(Handled::NotYet),
        }
        Ok(Handled::Yes)
    }
}

impl Teller {
    fn new(session: &Session, args: &Watch, client: Client) -> Done<Self> {
        let style = &session.options.style;
        let command = args.exec.clone().unwrap_or_default();
        // A watch of a scope is told of holdings only.
        let is_of_networks = args.scope.is_none();
        let hook = Box::new(Hook::new(client, command, style.prefix.clone(), args.on_failure, is_of_networks));
        if args.exec.is_some() {
            return Ok(Self::Run(hook));
        }
        if style.format == Format::Table {
            print(line::HEAD)?;
        }
        Ok(Self::Print { format: style.format, hook, printer: Printer::start().map_err(|error| of_start(&error))? })
    }

    async fn tell(&mut self, event: &Value, ends: &mut Ends) -> Done<Handled> {
        let (text, printer) = match self {
            Self::Run(hook) => return hook.run(event, ends).await,
            Self::Print { format: Format::Table, printer, .. } => (line::of(event), printer),
            Self::Print { format: Format::Env, hook, printer } => {
                let variables = tokio::select! {
                    variables = hook.variables(event) => variables?,
                    () = ends.asked() => return Ok(Handled::NotYet),
                };
                (super::output::env::assignments(&variables) + "\n", printer)
            }
            Self::Print { printer, .. } => (format!("{event}\n"), printer),
        };
        printer.print(text, ends).await
    }
}
