//! `allod ip list` to its end: all that is held may be more than memory has room for as answers, of which one reservation takes
//! kilobytes. Until the last page is there, and nothing can call for the list to be begun again, only text is kept of it: what a
//! table prints, or the JSON of each page.
//!
//! Before: `perform`, which asks for a page, a count, or for shell variables as for any other answer.

use serde_json::Value;

use super::args::Ask;
use super::exit::Exit;
use super::output::table::Table;
use super::output::{Format, add_reservation, json, print, reservation_table, without_plain_columns};
use super::pages::{self, Kept};
use super::session::{Done, Session};
use crate::core::plural::counted;

const LIST: &str = "reservations";

/// Does it list all that is held, as a table or as JSON?
pub fn is_whole(session: &Session, ask: &Ask) -> bool {
    let is_part = || ask.params.contains_key("limit") || ask.params.contains_key("count_only");
    ask.method == "ip.list" && session.options.style.format != Format::Env && !is_part()
}

/// Fetches it and prints it.
pub async fn run(session: &mut Session, ask: &Ask) -> Done<Exit> {
    let count = if session.options.style.format == Format::Table {
        let mut rows = Rows { table: reservation_table(), count: 0 };
        pages::keep_all(session, ask, LIST, &mut rows).await?;
        if rows.count > 0 {
            print(&without_plain_columns(rows.table).render(session.options.style.width))?;
        }
        rows.count
    } else {
        let mut texts = Texts::default();
        let whole = pages::keep_all(session, ask, LIST, &mut texts).await?;
        json::print_with(&whole, LIST, &texts.pages)?;
        texts.count
    };
    session.say(&counted(count, "reservation"));
    Ok(Exit::Success)
}

/// Rows of a table.
struct Rows {
    table: Table,
    count: usize,
}

impl Kept for Rows {
    fn begin(&mut self) {
        *self = Self { table: reservation_table(), count: 0 };
    }

    fn keep(&mut self, items: Vec<Value>) -> usize {
        items.iter().for_each(|held| add_reservation(&mut self.table, held));
        self.count += items.len();
        self.count
    }
}

/// The items of each page as JSON.
#[derive(Default)]
struct Texts {
    pages: Vec<String>,
    count: usize,
}

impl Kept for Texts {
    fn begin(&mut self) {
        *self = Self::default();
    }

    fn keep(&mut self, items: Vec<Value>) -> usize {
        self.count += items.len();
        self.pages.push(Value::Array(items).to_string());
        self.count
    }
}
