//! The journal of systemd, where stderr leads there. It cannot see the level of an event: it takes each line for one of
//! priority `info`, unless the line begins with another priority (`<3>`, see sd-daemon(3)), which it takes off. Without that
//! `journalctl -p err` would show no ERROR.

use std::io::{self, Write};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The priority of a line, in the numbers of syslog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Of an ERROR, and of the reason for which a command ends.
    Error = 3,
    /// Of a WARN.
    Warning = 4,
    /// Of an INFO.
    Info = 6,
    /// Of everything below.
    Debug = 7,
}

impl Priority {
    fn of(level: Level) -> Self {
        match level {
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warning,
            Level::INFO => Self::Info,
            Level::DEBUG | Level::TRACE => Self::Debug,
        }
    }
}

/// Does stderr lead to the journal? systemd tells a process in `JOURNAL_STREAM` which file that is. A process further down may
/// have inherited the variable and not the file.
fn takes_stderr() -> bool {
    let Ok(journal) = std::env::var("JOURNAL_STREAM") else { return false };
    // Without a stderr there is nothing to tell it.
    let Ok(file) = rustix::fs::fstat(io::stderr()) else { return false };
    journal == format!("{}:{}", file.st_dev, file.st_ino)
}

/// What is to be written to stderr for this text: if the journal takes it, each line begins with the priority.
pub fn for_stderr(priority: Priority, text: String) -> Vec<u8> {
    if takes_stderr() { marked(priority, text.as_bytes()) } else { text.into_bytes() }
}

/// Puts the priority in front of each line: a line is all that the journal reads at once, so that the rest of an event would
/// be of another priority than its first line; or of any, if a text from elsewhere began with one. NUL ends a line, too.
fn marked(priority: Priority, text: &[u8]) -> Vec<u8> {
    let mut marked = Vec::with_capacity(text.len() + 3);
    for line in text.split_inclusive(|&byte| matches!(byte, b'\n' | 0)) {
        marked.extend([b'<', b'0' + priority as u8, b'>']);
        marked.extend(line);
    }
    marked
}

/// Writes events to stderr.
pub struct Stderr {
    is_journal: bool,
}

impl Stderr {
    /// That of this process: finds out whether it leads to the journal.
    pub fn of_process() -> Self {
        Self { is_journal: takes_stderr() }
    }
}

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = Event;

    fn make_writer(&'a self) -> Event {
        Event(self.is_journal.then_some(Priority::Info))
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Event {
        Event(self.is_journal.then(|| Priority::of(*meta.level())))
    }
}

/// Writes one event, which comes as a whole. Lines are marked only if they have a priority.
pub struct Event(Option<Priority>);

impl Write for Event {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match self.0 {
            Some(priority) => io::stderr().write_all(&marked(priority, event))?,
            None => io::stderr().write_all(event)?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_an_event_has_its_priority_whatever_it_begins_with() {
        let of = |priority, text: &str| String::from_utf8(marked(priority, text.as_bytes())).unwrap();
        assert_eq!(of(Priority::Error, "panic\n  0: main\n\n  1: run\n"), "<3>panic\n<3>  0: main\n<3>\n<3>  1: run\n");
        assert_eq!(of(Priority::Debug, "owner\n<0>fire\n"), "<7>owner\n<7><0>fire\n");
        assert_eq!(of(Priority::Warning, "a\0<0>b"), "<4>a\0<4><0>b");
        assert_eq!(of(Priority::Info, ""), "");
    }
}
