//! Counts the instructions of a server that valgrind runs.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use memchr::memmem;

use crate::arguments::InstructionsArguments;
use crate::driver::{PATIENCE_DEFAULT, Shape, Stop};
use crate::scenario::{Name, Settings};
use crate::session::Session;
use crate::target::{Backend, Flush, Program, Store, Target, processor_time};

/// Requests outstanding, all on one connection: they come in one read, so that each group that is committed has as many.
const DEPTH: usize = 64;
/// Owners and times of the history are made of it.
const SEED: u32 = 1;
/// One thread for connections and networks, however many processors there are.
const SETTINGS: [(&str, &str); 1] = [("ALLOD_SERVER__THREADS", "1")];
/// Nothing that the server does by itself comes less often: whoever did nothing for so long is at rest.
const REST: Duration = Duration::from_millis(1_500);
/// Processor time that a server which is at rest may have taken in that time, for its timers.
const REST_TAKES_MAX: Duration = Duration::from_millis(200);
/// How long it may take to come to rest.
const REST_WITHIN: Duration = Duration::from_secs(60);
/// Before the name of the compiler in a binary.
const COMPILER: &[u8] = b"rustc version ";

/// Counts, for one binary.
pub struct Counter {
    program: PathBuf,
    requests: (u64, u64),
    profile: Option<PathBuf>,
}

impl Counter {
    /// Of the program that was named.
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

    /// The compiler that the program was built by, as it says itself.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn compiler(&self) -> io::Result<String> {
        let bytes = std::fs::read(&self.program)?;
        Ok(compiler_of(&bytes).unwrap_or_else(|| "an unknown compiler".to_owned()))
    }

    /// Instructions of an allocation.
    ///
    /// # Errors
    /// The server or its store cannot be started, or an answer was wrong.
    pub fn count(&self, store: Store) -> io::Result<u64> {
        let (fewer, more) = self.requests;
        let (before, after) = (self.total(store, fewer)?, self.total(store, more)?);
        Ok(after.saturating_sub(before) / (more - fewer))
    }

    /// Instructions of a server from its start to its end, with so many allocations between.
    fn total(&self, store: Store, requests: u64) -> io::Result<u64> {
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
        fill(&mut target, requests)?;
        // It is ended by a signal, which cuts off what it does behind its answers: the index of the history.
        for server in target.processes() {
            come_to_rest(server)?;
        }
        // Its figures are written when it has ended.
        drop(target);
        let text = std::fs::read_to_string(&file)?;
        total_of(&text).ok_or_else(|| io::Error::other(format!("{} has no total", file.display())))
    }
}

/// Lets a server hand out so many addresses.
fn fill(target: &mut Target, requests: u64) -> io::Result<()> {
    let settings = Settings { lanes: DEPTH, seed: SEED, brief: true, ..Settings::default() };
    let shape = Shape {
        servers: target.servers.clone(),
        connections: 1,
        depth: DEPTH,
        warmup: Duration::ZERO,
        stop: Stop::Requests(requests),
        rate: None,
        seed: SEED,
        patience: PATIENCE_DEFAULT,
    };
    let session = Session::unattended(&Name::Fill.text(), shape);
    let report = session.run(Name::Fill.build(&settings), target)?;
    if report.is_faulty() || report.answers != requests || !report.refused.is_empty() {
        report.print(false)?;
        return Err(io::Error::other("the server did not do what was counted"));
    }
    Ok(())
}

/// Waits until a process does next to nothing.
fn come_to_rest(process: u32) -> io::Result<()> {
    let begun = Instant::now();
    let mut before = processor_time(process)?;
    loop {
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

/// The instructions that a file of callgrind has in all.
fn total_of(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// As a binary names its compiler, as `rustc version 1.91.0 (f8297e351 2025-10-28)`.
fn compiler_of(binary: &[u8]) -> Option<String> {
    memmem::find_iter(binary, COMPILER).find_map(|at| {
        let name = &binary[at..];
        let end = name.iter().take(100).position(|byte| *byte == b')')?;
        let name = str::from_utf8(&name[..=end]).ok()?;
        // A version of three parts, and nothing else that begins so.
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
