//! Columns and fields of text that fit the width of a terminal.
//!
//! Only output for a terminal is shortened (with `…`); output for a pipe or a file is kept whole. Addresses, ranges and
//! numbers are never shortened, because a part of one would be another one. A long range that leaves no room for its row is
//! printed on a line of its own above it.

use clap::builder::styling::Style;

/// The style of headings; removed if the output is not a terminal.
const HEADING: Style = Style::new().bold();
/// The number of blanks between two columns.
const GAP: usize = 2;
/// No column becomes narrower than this.
const COLUMN_MIN: usize = 8;

/// Rows of text under headings.
#[derive(Debug)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    numbers: Vec<bool>,
    whole: Vec<bool>,
}

impl Table {
    /// A table with these headings. `#` in front of a heading marks a column of numbers, aligned to the right; `!` marks a
    /// column of addresses or ranges. Neither is ever shortened.
    pub fn new(headings: &[&'static str]) -> Self {
        Self {
            numbers: headings.iter().map(|heading| heading.starts_with('#')).collect(),
            whole: headings.iter().map(|heading| heading.starts_with(['!', '#'])).collect(),
            headings: headings.iter().map(|heading| heading.trim_start_matches(['#', '!'])).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, with one text per heading.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Leaves out the columns listed in `plain` in which every cell is empty or has the given default.
    pub fn without_plain_columns(mut self, plain: &[(&str, &str)]) -> Self {
        let keep: Vec<bool> = (0..self.headings.len())
            .map(|at| {
                let default = plain.iter().find(|(heading, _)| *heading == self.headings[at]).map(|(_, value)| *value);
                default.is_none_or(|default| self.rows.iter().any(|row| !row[at].is_empty() && row[at] != default))
            })
            .collect();
        self.keep(&keep);
        self
    }

    /// Leaves out these columns, in this order, until the rest fits: numbers are never shortened.
    pub fn fitting(mut self, width: Option<usize>, least_first: &[&str]) -> Self {
        let Some(limit) = width else { return self };
        for heading in least_first {
            let widths = self.widths(width);
            if widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) <= limit {
                break;
            }
            let keep: Vec<bool> = self.headings.iter().map(|other| other != heading).collect();
            self.keep(&keep);
        }
        self
    }

    fn keep(&mut self, keep: &[bool]) {
        let mut flags = keep.iter().copied();
        self.headings.retain(|_| flags.next().unwrap_or(true));
        let mut flags = keep.iter().copied();
        self.numbers.retain(|_| flags.next().unwrap_or(true));
        let mut flags = keep.iter().copied();
        self.whole.retain(|_| flags.next().unwrap_or(true));
        for row in &mut self.rows {
            let mut flags = keep.iter().copied();
            row.retain(|_| flags.next().unwrap_or(true));
        }
    }

    /// The lines of the table, within `width` columns if that is given.
    pub fn render(&self, width: Option<usize>) -> String {
        let widths = self.widths(width);
        let mut text = String::new();
        let headings: Vec<String> = self.headings.iter().map(|heading| (*heading).to_owned()).collect();
        let line = self.line(&headings, &widths);
        text.push_str(&format!("{HEADING}{line}{HEADING:#}\n"));
        for row in &self.rows {
            text.push_str(&self.line(row, &widths));
            text.push('\n');
        }
        text
    }

    fn widths(&self, width: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.headings.len())
            .map(|at| {
                self.rows.iter().map(|row| columns(&row[at])).chain([columns(self.headings[at])]).max().unwrap_or(0)
            })
            .collect();
        let Some(limit) = width else { return widths };
        let gaps = GAP * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > limit {
            // The widest column is narrowed; of equal ones the first stays, because it says what the row is about.
            let may_give_way = widths.iter().enumerate().filter(|(at, _)| !self.whole[*at]);
            let Some((at, &widest)) = may_give_way.max_by_key(|&(_, width)| *width) else { break };
            if widest <= COLUMN_MIN {
                break;
            }
            widths[at] = widest - 1;
        }
        // A range that is too long for the remaining room is printed on a line of its own: see `line`.
        let others: usize = widths.iter().skip(1).sum::<usize>() + gaps;
        if let Some(first) = widths.first_mut().filter(|first| self.folds() && **first + others > limit) {
            *first = limit.saturating_sub(others).clamp(COLUMN_MIN.min(*first), *first);
        }
        widths
    }

    /// Whether a cell of the first column may be printed on a line of its own.
    fn folds(&self) -> bool {
        self.whole.first() == Some(&true) && self.numbers.first() == Some(&false)
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let stands_alone = at == 0 && self.folds() && columns(cell) > widths[0];
            let cell = if stands_alone {
                line.push_str(cell);
                line.push('\n');
                String::new()
            } else {
                shortened(cell, widths[at])
            };
            let padding = " ".repeat(widths[at].saturating_sub(columns(&cell)));
            if at > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            if self.numbers[at] {
                line.push_str(&padding);
                line.push_str(&cell);
            } else {
                line.push_str(&cell);
                line.push_str(&padding);
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Fields, one per line; those without a value are left out.
pub fn fields(fields: &[(&str, String)]) -> String {
    let shown: Vec<_> = fields.iter().filter(|(_, value)| !value.is_empty()).collect();
    let width = shown.iter().map(|(name, _)| columns(name)).max().unwrap_or(0);
    shown.iter().map(|(name, value)| format!("{HEADING}{name:<width$}{HEADING:#}  {value}\n")).collect()
}

/// The width of a text: one column per character, which is right except for wide scripts and combining marks.
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

fn shortened(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['\u{2026}']).collect()
}

/// Breaks `text` into lines of at most `width` columns, at blanks but never inside backticks, so that a command can be
/// copied. Continuation lines are indented by `indent` blanks.
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let (mut lines, mut word, mut used, mut quoted) = (String::new(), String::new(), 0, false);
    for c in text.chars().chain([' ']) {
        quoted ^= c == '`';
        if c != ' ' || quoted {
            word.push(c);
            continue;
        }
        let length = columns(&word);
        if used > 0 && used + 1 + length > width {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            used = indent;
        } else if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(&word);
        used += length;
        word.clear();
    }
    // After a backtick that is never closed, the rest stays together.
    let rest = word.trim_end();
    if used > 0 && !rest.is_empty() {
        lines.push(' ');
    }
    lines.push_str(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_the_width_and_is_whole_without_one() {
        let mut table = Table::new(&["ADDRESS", "OWNER", "#HELD"]);
        table.row(vec!["10.0.0.1".into(), "a-very-long-owner-name-that-goes-on-and-on".into(), "7".into()]);
        let narrow = table.render(Some(30));
        assert!(narrow.lines().all(|line| anstream::adapter::strip_str(line).to_string().chars().count() <= 30));
        assert!(narrow.contains("…"));
        assert!(!table.render(None).contains("…"));
    }

    #[test]
    fn an_address_is_never_shortened_and_the_other_columns_give_way() {
        let mut table = Table::new(&["!ADDRESS", "NETWORK", "OWNER"]);
        let address = "2001:db8:1234:5678:9abc:def0:1234:5678";
        table.row(vec![address.into(), "a-network-of-a-long-name".into(), "an-owner-of-a-long-name".into()]);
        for width in [20, 60, 80] {
            let text = anstream::adapter::strip_str(&table.render(Some(width))).to_string();
            assert!(text.contains(address) && !text.contains('!'), "{width}: {text}");
        }
        let text = anstream::adapter::strip_str(&table.render(Some(60))).to_string();
        assert!(text.lines().all(|line| columns(line) <= 60) && text.contains("a-networ…"), "{text}");
    }

    #[test]
    fn a_command_is_never_broken() {
        assert_eq!(wrapped("say `a b c` twice", 9, 2), "say\n  `a b c`\n  twice");
        assert_eq!(wrapped("an `open one", 40, 2), "an `open one");
    }

    #[test]
    fn a_row_that_has_no_room_beside_its_range_stands_below_it_with_its_numbers_whole() {
        let mut table = Table::new(&["!WHAT", "#SIZE", "#HELD", "#FREE"]);
        let range = "2001:db8:ffff:ffff::2000:0-2001:db8:ffff:ffff::2000:ffe0";
        for what in ["10.0.0.0/16", range] {
            table.row(vec![what.into(), "268 435 456".into(), "1 000".into(), "268 434 456".into()]);
        }
        let text = anstream::adapter::strip_str(&table.render(Some(60))).to_string();
        let row =
            |what: &str, [size, held, free]: [&str; 3]| format!("{what:<27}  {size:>11}  {held:>5}  {free:>11}\n");
        let counts = ["268 435 456", "1 000", "268 434 456"];
        let (heading, plain) = (row("WHAT", ["SIZE", "HELD", "FREE"]), row("10.0.0.0/16", counts));
        assert_eq!(text, format!("{heading}{plain}{range}\n{}", row("", counts)));
        let whole = anstream::adapter::strip_str(&table.render(None)).to_string();
        assert_eq!(whole.lines().count(), 3, "{whole}");
    }

    #[test]
    fn what_does_not_fit_is_left_out_column_by_column_and_numbers_stay_whole() {
        let table = || {
            let mut table = Table::new(&["NAME", "#FREE", "#RATE", "#FULL IN"]);
            table.row(vec!["a-network-of-a-long-name".into(), "18 446 744".into(), "12 345".into(), "8 min".into()]);
            table
        };
        let at =
            |width| anstream::adapter::strip_str(&table().fitting(width, &["RATE", "FREE"]).render(width)).to_string();
        assert_eq!(
            at(None).lines().next().map(str::trim_end),
            Some("NAME                            FREE    RATE  FULL IN")
        );
        assert!(at(Some(40)).contains("18 446 744  12 345    8 min"), "{}", at(Some(40)));
        assert!(at(Some(36)).contains("18 446 744    8 min") && !at(Some(36)).contains("RATE"), "{}", at(Some(36)));
        assert_eq!(at(Some(18)), "NAME       FULL IN\na-networ…    8 min\n");
    }

    #[test]
    fn columns_that_say_nothing_are_left_out() {
        let mut table = Table::new(&["ADDRESS", "SCOPE", "NOTE"]);
        table.row(vec!["10.0.0.1".into(), "default".into(), String::new()]);
        let text = table.without_plain_columns(&[("SCOPE", "default"), ("NOTE", "")]).render(None);
        assert!(!text.contains("SCOPE") && !text.contains("NOTE") && text.contains("10.0.0.1"), "{text}");
    }
}
