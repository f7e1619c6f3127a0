//! `allod history`: past events, page by page.

use std::collections::VecDeque;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::args::params_of;
use super::block;
use super::exit::Exit;
use super::failure::Failure;
use super::output::{Format, events, print};
use super::session::{Done, Session, Stop};
use super::time::{self, Time};

/// Events that are requested at once, and shown in one table.
pub(super) const PAGE: u64 = 1_000;

/// How far back the last events are searched at first, in seconds, and the factor for each further attempt if too few are
/// found.
const BACK_SECONDS: i64 = 10;
const FURTHER: i64 = 2;

/// `allod history`.
#[derive(Debug, Args)]
pub struct History {
    #[command(flatten)]
    #[allow(missing_docs)]
    filter: Filter,
    /// Not before this time (2026-03-01T09:12:44Z, or how long ago: 2h)
    #[arg(long, value_name = "TIME", value_parser = time::parse, allow_hyphen_values = true, conflicts_with = "at")]
    from: Option<Time>,
    /// Not after this time
    #[arg(long, value_name = "TIME", value_parser = time::parse, allow_hyphen_values = true, conflicts_with = "at")]
    to: Option<Time>,
    /// What was held at this time: for each address the event that made it so
    #[arg(long, value_name = "TIME", value_parser = time::parse, allow_hyphen_values = true)]
    at: Option<Time>,
    /// Continue after this cursor, which a list with --limit prints
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// At most this many; all of them by default
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Only the last ones, this many, found from the end backwards. What a network was before the first of them is not known
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(conflicts_with_all = ["limit", "at"])]
    last: Option<u64>,
}

/// What is wanted: all of it must hold.
#[derive(Debug, Args, Serialize)]
struct Filter {
    /// Only of this address (of ADDRESS/LEN the first), and of blocks around it
    address: Option<String>,
    /// Only of this network (name or id), even if it no longer exists
    #[arg(long)]
    network: Option<String>,
    /// Only of networks of this realm
    #[arg(long)]
    realm: Option<String>,
    /// Only of this scope
    #[arg(long)]
    scope: Option<String>,
    /// Only of this owner
    #[arg(long)]
    owner: Option<String>,
}

/// The pages of `events.history`, in order.
#[derive(Debug)]
pub struct Pages {
    params: Map<String, Value>,
    ended: bool,
}

impl Pages {
    /// Starts with the first page.
    pub fn new(params: Map<String, Value>) -> Self {
        Self { params, ended: false }
    }

    /// The next events, at most `most`, from one page or several; empty at the end.
    ///
    /// # Errors
    /// The server refuses.
    pub async fn next(&mut self, session: &mut Session, most: u64) -> Done<Vec<Value>> {
        let mut events = Vec::new();
        while !self.ended && (events.len() as u64) < most {
            self.params.insert("limit".to_owned(), json!(most - events.len() as u64));
            let mut page = session.call("events.history", Value::Object(self.params.clone())).await?;
            if let Some(Value::Array(more)) = page.get_mut("events") {
                events.append(more);
            }
            match page.get("next") {
                Some(next) => drop(self.params.insert("after".to_owned(), next.clone())),
                None => self.ended = true,
            }
        }
        Ok(events)
    }

    /// The cursor at which to go on, if there is more.
    fn after(&self) -> Option<&str> {
        self.params.get("after").and_then(Value::as_str).filter(|_| !self.ended)
    }
}

fn text<'a>(params: &'a Map<String, Value>, member: &str) -> Option<&'a str> {
    params.get(member).and_then(Value::as_str)
}

/// The last `count` events. The server lists events from the first on, so it is asked from a time shortly before the end,
/// and from earlier times while too few are found. Events long before, even unreadable ones, then do not matter.
async fn last_of(
    session: &mut Session,
    params: &Map<String, Value>,
    count: u64,
    earlier: &mut events::Earlier,
) -> Done<Vec<Value>> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let end = match text(params, "to") {
        Some(to) => Some(to.to_owned()),
        // If the server does not tell its time, it is asked for all events.
        None => Time::Ago(SignedDuration::ZERO).text(session).await.ok(),
    };
    let end = end.and_then(|end| end.parse::<Timestamp>().ok());
    let (mut back, mut found) = (BACK_SECONDS, 0);
    loop {
        let from = end.and_then(|end| end.checked_sub(SignedDuration::from_secs(back)).ok()).and_then(time::protocol);
        // None if the requested range begins later, or if the time is out of range.
        let from = from.filter(|from| text(params, "from").is_none_or(|wished| **from > *wished));
        let mut asked = params.clone();
        if let Some(from) = &from {
            asked.insert("from".to_owned(), from.clone().into());
        }
        match last_of_all(session, Pages::new(asked), count).await {
            Ok((last, known)) if last.len() >= count || from.is_none() => {
                *earlier = known;
                return Ok(last);
            }
            Ok((last, _)) => found = last.len(),
            Err(Stop::Failed(mut failure)) if found > 0 => {
                failure.hint = format!("{}; `--last {found}` shows the rest", failure.hint);
                return Err(Stop::Failed(failure));
            }
            Err(stop) => return Err(stop),
        }
        back = back.saturating_mul(FURTHER);
    }
}

/// The last events of these pages, and what the earlier ones say about networks.
async fn last_of_all(session: &mut Session, mut pages: Pages, count: usize) -> Done<(Vec<Value>, events::Earlier)> {
    let (mut last, mut earlier) = (VecDeque::new(), events::Earlier::default());
    loop {
        let found = pages.next(session, PAGE).await?;
        if found.is_empty() {
            return Ok((last.into(), earlier));
        }
        last.extend(found);
        let passed = last.len().saturating_sub(count);
        last.drain(..passed).for_each(|event| drop(earlier.changed(&event)));
    }
}

/// When the first event happened that is kept; none if nothing is.
///
/// # Errors
/// The server refuses.
pub(super) async fn begins(session: &mut Session) -> Done<Option<String>> {
    let first = Pages::new(Map::new()).next(session, 1).await?;
    Ok(first.first().and_then(|event| event.get("time")).and_then(Value::as_str).map(str::to_owned))
}

/// Says that nothing was found, and how far back that is known: what happened earlier is forgotten, or was lost.
fn nothing(asked: &Map<String, Value>, begins: Option<&str>) -> String {
    let (at, from) = (text(asked, "at"), text(asked, "from"));
    match (at, begins) {
        (Some(at), Some(begins)) if at < begins => {
            format!("nobody knows what was held: the history that is kept begins at {begins}")
        }
        (Some(_), Some(_)) => "nothing was held".to_owned(),
        (Some(_), None) => "nobody knows what was held: the history that is kept is empty".to_owned(),
        (None, Some(begins)) if from.is_some_and(|from| from >= begins) => "nothing happened".to_owned(),
        (None, Some(begins)) => format!("nothing happened; the history that is kept begins at {begins}"),
        (None, None) => "nothing happened; the history that is kept is empty".to_owned(),
    }
}

/// Runs the command.
pub async fn run(session: &mut Session, args: &History) -> Done<Exit> {
    let mut params = params_of(&args.filter);
    if let Some(address) = &args.filter.address {
        params.insert("address".to_owned(), block::first(address).into());
    }
    for (member, time) in [("from", args.from), ("to", args.to)] {
        if let Some(time) = time {
            params.insert(member.to_owned(), time.text(session).await?.into());
        }
    }
    if let (Some(from), Some(to)) = (text(&params, "from"), text(&params, "to"))
        && from > to
    {
        let problem = format!("it would end, at {to}, before it begins, at {from}");
        return Err(Failure::usage("tell that history", problem, "exchange `--from` and `--to`").into());
    }
    if let Some(at) = args.at {
        params.insert("at".to_owned(), at.past(session, "tell what was held then").await?.into());
    }
    if let Some(after) = &args.after {
        params.insert("after".to_owned(), after.clone().into());
    }
    let mut heading = String::new();
    let mut earlier = events::Earlier::default();
    let mut last = match args.last {
        Some(count) => Some(last_of(session, &params, count, &mut earlier).await?),
        None => None,
    };
    let (mut pages, mut told, mut all) = (Pages { params, ended: last.is_some() }, 0, Vec::new());
    loop {
        let room = args.limit.map_or(PAGE, |limit| PAGE.min(limit - told));
        let found = match &mut last {
            Some(last) => std::mem::take(last),
            None if room == 0 => Vec::new(),
            None => pages.next(session, room).await?,
        };
        if found.is_empty() {
            break;
        }
        told += found.len() as u64;
        match session.options.style.format {
            // One line for each event, as soon as it arrives: a history may be larger than memory.
            Format::Json | Format::Toml | Format::Yaml => {
                print(&found.iter().map(|event| format!("{event}\n")).collect::<String>())?;
            }
            Format::Table => {
                let table = events::table_after(&found, &mut earlier).render(session.options.style.width);
                let (above, rows) = table.split_once('\n').unwrap_or_default();
                // One heading for all pages whose columns are the same, with the same widths.
                print(if *above == *heading { rows } else { &table })?;
                above.clone_into(&mut heading);
            }
            Format::Env => all.extend(found),
        }
    }
    if session.options.style.format == Format::Env {
        session.print("events.history", &Map::new(), &json!({ "events": all }))?;
    }
    if told == 0 {
        let began = begins(session).await?;
        session.say(&nothing(&pages.params, began.as_deref()));
    }
    if let Some(after) = pages.after() {
        session.say(&format!("\nnext: the same command with `--after {after}`"));
    }
    Ok(Exit::Success)
}
