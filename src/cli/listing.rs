//! `allod ip list` without a limit: as answers, all reservations may need more memory than there is, because each takes
//! kilobytes. So only text is kept of them: the cells of a table, or the JSON of each page. It is printed when the last page
//! has arrived, because until then the list may have to be started again.
//!
//! Before: `perform`, which makes the call itself for one page, a count, or shell variables.

use serde_json::Value;

use super::args::Ask;
use super::exit::Exit;
use super::output::table::Table;
use super::output::{Format, add_reservation, json, print, reservation_table, without_plain_columns};
use super::pages::{self, Kept};
use super::session::{Done, Session};
use crate::core::plural::counted;

const LIST: &str = "reservations";

/// Does the call list all reservations, as a table or as JSON?
pub fn is_whole(session: &Session, ask: &Ask) -> bool {
    let is_part = || ask.params.contains_key("limit") || ask.params.contains_key("count_only");
    ask.method == "ip.list" && session.options.style.format != Format::Env && !is_part()
}

/// Fetches the list and prints it.
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

/// The rows of a table.
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
