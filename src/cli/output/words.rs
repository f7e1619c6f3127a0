//! Messages for people on stderr, wrapped to the width of its terminal. Into a pipe or a file they go unchanged, so that a
//! search finds a whole sentence.

use std::io::{self, IsTerminal, Write};

use super::table::{columns, wrapped};
use super::{COLUMNS_PLAIN, columns_of};
use crate::telemetry::journal::{self, Priority};

/// The width of stderr; none if it is not a terminal.
pub fn width() -> Option<usize> {
    io::stderr().is_terminal().then(|| columns_of(io::stderr()).unwrap_or(COLUMNS_PLAIN))
}

/// Prints a message to stderr. Errors are ignored if stderr is gone.
pub fn say(words: &str) {
    let _ = writeln!(anstream::stderr(), "{}", fitted(words, width()));
}

/// Prints a warning to stderr. In a journal it has that priority.
pub fn warn(words: &str) {
    let line = format!("{}\n", fitted(&format!("warning: {words}"), width()));
    let _ = anstream::stderr().write_all(&journal::for_stderr(Priority::Warning, line));
}

/// Prints lines that are not sentences to stderr, such as those of a table.
pub fn show(lines: &str) {
    let _ = writeln!(anstream::stderr(), "{}", lines.trim_end());
}

/// Breaks lines of `words` that are too long at blanks, but never inside backticks, so that a command can be copied whole.
/// Continuation lines are indented by two more than the line.
pub fn fitted(words: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return words.to_owned() };
    let line = |line: &str| {
        let text = line.trim_start();
        let indent = columns(line) - columns(text);
        if columns(line) <= width {
            return line.to_owned();
        }
        // The first line is indented as well, so the indent reduces the room.
        let lines = wrapped(text, width.saturating_sub(indent), 2);
        let blanks = " ".repeat(indent);
        lines.split('\n').map(|line| format!("{blanks}{line}")).collect::<Vec<_>>().join("\n")
    };
    words.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_broken_at_the_width_and_commands_are_not() {
        let name = "a-network-of-a-long-name".repeat(3);
        let words =
            format!("next: `allod ip claim {name} 10.0.0.5 --owner OWNER` takes it, and more words that do not fit");
        let lines = fitted(&words, Some(60));
        assert!(lines.contains(&format!("`allod ip claim {name} 10.0.0.5 --owner OWNER`")), "{lines}");
        let too_long = |line: &&str| columns(line) > 60 && !line.contains('`');
        assert_eq!(lines.lines().find(too_long), None, "{lines}");
        assert!(lines.lines().count() > 2 && lines.lines().skip(1).all(|line| line.starts_with("  ")), "{lines}");
        assert_eq!(lines.split_whitespace().collect::<Vec<_>>(), words.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn lines_that_fit_and_those_that_go_into_a_pipe_stay_as_they_are() {
        let words = "two  blanks\n    set in\n\nand an empty line";
        assert_eq!(fitted(words, Some(20)), words);
        let long = "word ".repeat(40);
        assert_eq!(fitted(&long, None), long);
        assert_eq!(fitted("    one two three", Some(12)), "    one two\n      three");
    }
}
