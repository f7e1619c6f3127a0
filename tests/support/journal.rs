//! A file in place of the journal of systemd, for a server whose stderr is that file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The environment in which systemd starts a process whose stderr leads to this journal.
pub fn environment(journal: &Path) -> Vec<(String, String)> {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(journal).unwrap();
    let is = file.metadata().unwrap();
    vec![("JOURNAL_STREAM".to_owned(), format!("{}:{}", is.dev(), is.ino()))]
}

/// What `journalctl` shows of a journal with these arguments: all of the unit, or with `-p err` what is of that priority or a
/// worse one. A line has the priority that it begins with, and without one that of the unit.
#[track_caller]
pub fn journalctl(arguments: &[&str], journal: &str) -> String {
    let least = match arguments {
        ["-u", "allod"] => 7,
        ["-u", "allod", "-p", "err"] => 3,
        _ => panic!("`journalctl {}` is not known here", arguments.join(" ")),
    };
    let read = |line: &str| {
        let marked = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let marked = marked.and_then(|(priority, text)| Some((priority.parse::<u8>().ok()?, text.to_owned())));
        marked.unwrap_or_else(|| (6, line.to_owned()))
    };
    let lines = journal.lines().map(read).filter(|(priority, _)| *priority <= least);
    lines.map(|(_, text)| text + "\n").collect()
}
