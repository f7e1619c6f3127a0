//! Lists of several pages as one answer: all pages are fetched before anything is shown.
//!
//! A list uses the names of the moment at which it began. If the server does not know these any more (another node serves
//! now, or too much was created, removed, renamed or moved since), it refuses the next page and names `after`, rather than
//! leave something out. As nothing was shown by then, the list is started again, a bounded number of times.
//!
//! Before: `perform`, `apply`, `listing`. A caller that shows each page before it has the next one (`archive`) uses
//! [`is_forgotten`] to recognise this error.

use serde_json::{Value, json};

use super::args::Ask;
use super::failure::Failure;
use super::phrase;
use super::progress::Progress;
use super::session::{Done, Session};
use crate::client::{ClientError, RpcError};

/// How often a list is started again before it is given up.
const BEGUN_AGAIN_MAX: usize = 3;

/// Keeps the items of a list until its end is reached.
pub trait Kept {
    /// The list begins, perhaps anew: everything kept so far is dropped.
    fn begin(&mut self);
    /// Keeps the next items, and returns how many there are by now.
    fn keep(&mut self, items: Vec<Value>) -> usize;
    /// The next part of the list was refused. Returns where the list continues, if it should continue without that part.
    fn passes_over(&mut self, _refused: &RpcError) -> Option<Value> {
        None
    }
}

impl Kept for Vec<Value> {
    fn begin(&mut self) {
        self.clear();
    }

    fn keep(&mut self, items: Vec<Value>) -> usize {
        self.extend(items);
        self.len()
    }
}

/// All pages of a list as one answer, with the items in its member `list`.
///
/// # Errors
/// The server refuses, or the list never came to its end.
pub async fn all(session: &mut Session, ask: &Ask, list: &str) -> Done<Value> {
    let mut items = Vec::new();
    let mut whole = keep_all(session, ask, list, &mut items).await?;
    if let Some(there) = whole.get_mut(list) {
        *there = Value::Array(items);
    }
    Ok(whole)
}

/// The same, with the items given to `kept`. The other members come from the first page, with an empty list.
///
/// # Errors
/// The same.
pub async fn keep_all(session: &mut Session, ask: &Ask, list: &str, kept: &mut impl Kept) -> Done<Value> {
    for begun_again in 0..=BEGUN_AGAIN_MAX {
        if begun_again == 1 {
            session.say("networks or subnets changed while they were listed; the list is begun again");
        }
        if let Some(whole) = to_its_end(session, ask, list, kept).await? {
            return Ok(whole);
        }
    }
    Err(never_ends(ask).into())
}

/// Fetches all pages once. None: the server could not continue after a page.
async fn to_its_end(session: &mut Session, ask: &Ask, list: &str, kept: &mut impl Kept) -> Done<Option<Value>> {
    kept.begin();
    let (mut first, mut is_begun) = (json!({list: []}), false);
    let (mut more, mut goes_on, mut progress) = (ask.clone(), false, None);
    loop {
        let after = match session.try_call(more.method, more.params.clone()).await {
            Ok(mut page) => {
                let (count, after) = turn(&mut page, list, kept);
                progress.get_or_insert_with(|| Progress::spinner("listing")).at(count as u64);
                if !std::mem::replace(&mut is_begun, true) {
                    first = page;
                }
                after
            }
            Err(error) if goes_on && is_forgotten(&error) => return Ok(None),
            Err(error) => match error.rpc().and_then(|refused| kept.passes_over(refused)) {
                None => return Err(Failure::of_call(&more, &error).into()),
                after => after,
            },
        };
        match after {
            Some(after) => (more, goes_on) = (ask.clone().with("after", after), true),
            None => return Ok(Some(first)),
        }
    }
}

/// Takes the items out of a page. Returns how many there are by now, and where the next page begins.
fn turn(page: &mut Value, list: &str, kept: &mut impl Kept) -> (usize, Option<Value>) {
    let items = match page.get_mut(list) {
        Some(Value::Array(items)) => std::mem::take(items),
        Some(_) | None => Vec::new(),
    };
    let next = page.as_object_mut().and_then(|members| members.shift_remove("next"));
    (kept.keep(items), next)
}

/// Did the server refuse to continue after the given page?
pub fn is_forgotten(error: &ClientError) -> bool {
    error.rpc().is_some_and(|error| {
        error.kind == "invalid_argument" && error.data.get("field").and_then(Value::as_str) == Some("after")
    })
}

fn never_ends(ask: &Ask) -> Failure {
    let asked = phrase::of(ask.method, &Value::Object(ask.params.clone()));
    let reason = format!(
        "networks or subnets changed each of the {} times that it was begun: what was read is incomplete, and nothing of it is \
         shown",
        BEGUN_AGAIN_MAX + 1
    );
    let hint = if ask.method == "ip.list" && ask.text("network").is_none() {
        "try again in a moment, or list one network at a time, `--network NAME`, which goes on whatever changes elsewhere"
    } else {
        "try again in a moment, when fewer networks and subnets are made, removed, renamed or moved"
    };
    Failure::new(asked, reason, hint)
}
