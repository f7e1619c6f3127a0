//! Counts the instructions of a server under valgrind.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use memchr::memmem;

use crate::arguments::InstructionsArguments;
use crate::driver::{Shape, Stop};
use crate::interrupt;
use crate::scenario::{Name, Settings};
use crate::session::Session;
use crate::target::{Backend, Flush, Program, Store, Target, processor_time};

/// Outstanding requests, all on one connection: they arrive in one read, so that each committed group has the same size.
const DEPTH: usize = 64;
/// The seed of the owners.
const SEED: u32 = 1;
/// One thread for connections and networks, whatever the number of processors.
const SETTINGS: [(&str, &str); 1] = [("ALLOD_SERVER__THREADS", "1")];
/// Nothing that the server does by itself is less frequent: a server that did nothing for this long is idle.
const REST: Duration = Duration::from_millis(1_500);
/// Processor time that an idle server may use in this time, for its timers.
const REST_TAKES_MAX: Duration = Duration::from_millis(200);
/// How long a server may take to become idle.
const REST_WITHIN: Duration = Duration::from_secs(60);
/// The text before the compiler's version in a binary.
const COMPILER: &[u8] = b"rustc version ";

/// Counts the instructions of one binary.
pub struct Counter {
    program: PathBuf,
    requests: (u64, u64),
    profile: Option<PathBuf>,
}

impl Counter {
    /// A counter for the given program.
    ///
    /// # Errors
    /// There is no such program, or no valgrind.
    pub fn new(arguments: &InstructionsArguments) -> io::Result<Self> {
        let program = match &arguments.program {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("allod"),
        };
        if !program.exists() {
            let text = format!("there is no {}: cargo build --release --bin allod", program.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        let mut version = Command::new("valgrind");
        version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null());
        version.status().map_err(|error| {
            io::Error::new(error.kind(), format!("valgrind cannot be started ({error}); it does the counting"))
        })?;
        if let Some(directory) = &arguments.profile {
            std::fs::create_dir_all(directory)?;
        }
        Ok(Self { program, requests: arguments.requests, profile: arguments.profile.clone() })
    }

    /// The compiler that built the program, as written in its binary.
    ///
    /// # Errors
    /// The binary cannot be read.
    pub fn compiler(&self) -> io::Result<String> {
        let bytes = std::fs::read(&self.program)?;
        Ok(compiler_of(&bytes).unwrap_or_else(|| "an unknown compiler".to_owned()))
    }

    /// Instructions per allocation; none if the server broke a rule, which is reported.
    ///
    /// # Errors
    /// The server or its store cannot be started, or the server did not do what is to be counted.
    pub fn count(&self, store: Store) -> io::Result<Option<u64>> {
        let (fewer, more) = self.requests;
        let Some(before) = self.total(store, fewer)? else { return Ok(None) };
        let after = self.total(store, more)?;
        Ok(after.map(|after| after.saturating_sub(before) / (more - fewer)))
    }

    /// Instructions of a server from its start to its end, with this many allocations between; none if it broke a rule.
    fn total(&self, store: Store, requests: u64) -> io::Result<Option<u64>> {
        let directory = tempfile::tempdir()?;
        let file = match &self.profile {
            Some(profile) => profile.join(format!("{}-{requests}.callgrind", store.name())),
            None => directory.path().join("callgrind"),
        };
        let mut written = OsString::from("--callgrind-out-file=");
        written.push(&file);
        let under = ["valgrind", "--quiet", "--tool=callgrind"].map(OsString::from);
        let under = under.into_iter().chain([written]).collect();
        let program = Program { path: Some(self.program.clone()), under };
        let mut target = Target::start_as(Backend { flush: Flush::Off, ..Backend::of(store) }, &program, &SETTINGS)?;
        if !fill(&mut target, requests)? {
            return Ok(None);
        }
        // The server is ended by a signal, which would cut off work that it does after its answers: the index of the
        // history.
        for server in target.processes() {
            come_to_rest(server)?;
        }
        // Valgrind writes the counts when the server has ended.
        drop(target);
        let text = std::fs::read_to_string(&file)?;
        let total = total_of(&text).ok_or_else(|| io::Error::other(format!("{} has no total", file.display())))?;
        Ok(Some(total))
    }
}

/// Lets a server hand out this many addresses. False: it broke a rule, which is reported.
fn fill(target: &mut Target, requests: u64) -> io::Result<bool> {
    let settings = Settings { lanes: DEPTH, seed: SEED, brief: true, ..Settings::default() };
    let shape = Shape { seed: SEED, ..Shape::closed(1, DEPTH, Stop::Requests(requests)) };
    let session = Session::unattended(&Name::Fill.text(), shape);
    let report = session.run(Name::Fill.build(&settings), target)?;
    let is_done = report.answers == requests && report.refused.is_empty() && report.not_made.is_none();
    if report.is_faulty() || !is_done {
        say!("{}", report.text().trim_end());
    }
    match report.is_faulty() {
        true => Ok(false),
        false if is_done => Ok(true),
        false => Err(io::Error::other("the server did not do what is counted")),
    }
}

/// Waits until a process is idle.
fn come_to_rest(process: u32) -> io::Result<()> {
    let begun = Instant::now();
    let mut before = processor_time(process)?;
    loop {
        interrupt::check(0)?;
        std::thread::park_timeout(REST);
        let now = processor_time(process)?;
        if now.saturating_sub(before) <= REST_TAKES_MAX {
            return Ok(());
        }
        if begun.elapsed() > REST_WITHIN {
            return Err(io::Error::other("the server goes on working, though nobody asks it anything"));
        }
        before = now;
    }
}

/// The total number of instructions in a callgrind file.
fn total_of(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// The compiler in a binary, such as `rustc version 1.91.0 (f8297e351 2025-10-28)`.
fn compiler_of(binary: &[u8]) -> Option<String> {
    memmem::find_iter(binary, COMPILER).find_map(|at| {
        let name = &binary[at..];
        let end = name.iter().take(100).position(|byte| *byte == b')')?;
        let name = str::from_utf8(&name[..=end]).ok()?;
        // Only a version of three parts counts, not other texts that begin in the same way.
        let (version, _) = name[COMPILER.len()..].split_once(" (")?;
        (version.split('.').count() == 3 && !version.contains(' ')).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_profile_is_found() {
        assert_eq!(total_of("events: Ir\nsummary: 5\n\nfn=(1)\n3 4\n\ntotals: 12345\n"), Some(12_345));
        assert_eq!(total_of("events: Ir\n"), None);
    }

    #[test]
    fn a_binary_names_its_compiler() {
        let mine = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(compiler_of(&mine).is_some_and(|name| name.starts_with("rustc version 1.") && name.ends_with(')')));
        assert_eq!(compiler_of(b"rustc version of nothing)"), None);
    }
}
