//! Lists, one page at a time: as much as fits into one answer, and where the next page begins.
//!
//! Before: `render`. The actors read the records of a page, at most as many as were asked for; here the page ends earlier if
//! its text would become too long.

use super::nouns::{network, scope};
use super::{Renderer, Shape, cursor, event, noun};
use crate::actors::coordinator::{ListOrder, ListPlace};
use crate::actors::events::{Cursor, Happened};
use crate::core::outcome::{NetworkView, ScopeUsage, UsageReport, View};
use crate::limits::ANSWER_BYTES_MAX;
use crate::server::text;

/// Room for what an answer lists: the rest of its bound is for its envelope and last members.
pub(super) const LISTED_BYTES_MAX: usize = ANSWER_BYTES_MAX - (64 << 10);

/// For a list that has no further page.
pub(super) const WHOLE: (Option<&ListPlace>, &ListOrder) = (None, &ListOrder { naming: None, elsewhere: Vec::new() });

impl Renderer {
    pub(super) fn listed(
        &mut self,
        out: &mut Vec<u8>,
        views: &[View],
        count: u64,
        (next, order): (Option<&ListPlace>, &ListOrder),
        at: Option<&Cursor>,
        shape: Shape,
    ) {
        if shape.count_only {
            out.extend_from_slice(b"{\"count\":");
            text::number(out, count);
            event_cursor(out, at);
            out.push(b'}');
            return;
        }
        let begin = out.len();
        out.extend_from_slice(b"{\"reservations\":[");
        let mut next = next.cloned();
        for (at, view) in views.iter().enumerate() {
            if out.len() - begin > LISTED_BYTES_MAX {
                // The page is full before its limit: the next one begins after the last reservation shown.
                let last = &views[at - 1];
                next = Some(order.behind(&last.network, Some(last.address)));
                break;
            }
            if at > 0 {
                out.push(b',');
            }
            self.reservation(out, view);
        }
        out.push(b']');
        if let Some(next) = next {
            text::key!(out, "next");
            text::string(out, &cursor::write(&next));
        }
        event_cursor(out, at);
        out.push(b'}');
    }
}

pub(super) fn networks_page(
    out: &mut Vec<u8>,
    networks: &[(NetworkView, Option<UsageReport>)],
    next: Option<&ListPlace>,
    order: &ListOrder,
) {
    let begin = out.len();
    let mut next = next.cloned();
    out.extend_from_slice(b"{\"networks\":[");
    for (at, (view, report)) in networks.iter().enumerate() {
        let before = out.len();
        if at > 0 {
            out.push(b',');
        }
        noun(out, &network(view, report.as_ref(), None));
        if at > 0 && out.len() - begin > LISTED_BYTES_MAX {
            out.truncate(before);
            next = Some(order.behind(&networks[at - 1].0.config, None));
            break;
        }
    }
    out.push(b']');
    if let Some(next) = next {
        text::key!(out, "next");
        text::string(out, &cursor::write(&next));
    }
    out.push(b'}');
}

pub(super) fn scopes_page(out: &mut Vec<u8>, page: &[ScopeUsage], more: bool) {
    page_by_name(out, ("scopes", page, more), |out, usage| noun(out, &scope(usage)), |usage| usage.scope.as_str());
}

/// Appends a page of what is listed by name: as many entries as fit, and the name with which the next page begins. `more`: is
/// there more than these entries?
pub(super) fn page_by_name<T>(
    out: &mut Vec<u8>,
    (member, page, more): (&str, &[T], bool),
    entry: impl Fn(&mut Vec<u8>, &T),
    name: impl Fn(&T) -> &str,
) {
    let begin = out.len();
    let mut last = page.last().filter(|_| more);
    out.extend_from_slice(b"{");
    text::string(out, member);
    out.extend_from_slice(b":[");
    for (at, one) in page.iter().enumerate() {
        if out.len() - begin > LISTED_BYTES_MAX {
            last = Some(&page[at - 1]);
            break;
        }
        if at > 0 {
            out.push(b',');
        }
        entry(out, one);
    }
    out.push(b']');
    if let Some(last) = last {
        text::key!(out, "next");
        text::string(out, name(last));
    }
    out.push(b'}');
}

/// Appends as many events as fit; `behind` tells where the next page begins if this page ends with a given event.
pub(super) fn events_page(
    out: &mut Vec<u8>,
    events: impl Iterator<Item = (Happened, Cursor)>,
    mut next: Option<String>,
    behind: impl Fn(&Happened, &Cursor) -> String,
) {
    let begin = out.len();
    out.extend_from_slice(b"{\"events\":[");
    let mut last: Option<String> = None;
    for (happened, at) in events {
        let before = out.len();
        if last.is_some() {
            out.push(b',');
        }
        noun(out, &event::event(&happened, &at));
        if last.is_some() && out.len() - begin > LISTED_BYTES_MAX {
            out.truncate(before);
            next = last.take();
            break;
        }
        last = Some(behind(&happened, &at));
    }
    out.push(b']');
    if let Some(next) = next {
        text::key!(out, "next");
        text::string(out, &next);
    }
    out.push(b'}');
}

/// Appends the cursor from which a watcher misses nothing.
fn event_cursor(out: &mut Vec<u8>, at: Option<&Cursor>) {
    if let Some(at) = at {
        text::key!(out, "cursor");
        text::string(out, &crate::server::cursor::write(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_by_name_that_would_be_too_long_ends_earlier_and_tells_where_the_next_one_begins() {
        let page: Vec<String> = (0..6).map(|at| at.to_string().repeat(1 << 20)).collect();
        let of = |page: &[String], more| {
            let mut out = Vec::new();
            let write = |out: &mut Vec<u8>, one: &String| text::string(out, one);
            page_by_name(&mut out, ("many", page, more), write, |one| &one[..1]);
            let answer: serde_json::Value = serde_json::from_slice(&out).unwrap();
            (
                out.len() <= ANSWER_BYTES_MAX + (1 << 20),
                answer["many"].as_array().unwrap().len(),
                answer.get("next").cloned(),
            )
        };
        assert_eq!(of(&page, false), (true, 4, Some("3".into())));
        assert_eq!(of(&page[..3], false), (true, 3, None));
        assert_eq!(of(&page[..3], true), (true, 3, Some("2".into())));
    }
}
