//! Files of reports: what was run, where, and when.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Report;

/// Incremented when a member changes its meaning.
///
/// 2: `fill_level` is the average of the measured time, no longer the level at its beginning; a window without answers has
/// no latencies.
const FORMAT: u32 = 2;

/// A file of reports. Member names are stable.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    pub format: u32,
    /// Program and version.
    pub made_by: String,
    pub made_at: String,
    pub machine: Machine,
    pub runs: Vec<Report>,
}

/// The machine of the run. Figures of two machines must not be compared.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub memory_bytes: u64,
    pub kernel: String,
}

impl Document {
    /// A document of these runs, with the current time and machine.
    pub fn of(runs: Vec<Report>) -> Self {
        Self {
            format: FORMAT,
            made_by: concat!("allod-load ", env!("CARGO_PKG_VERSION")).to_owned(),
            made_at: now(),
            machine: Machine::here(),
            runs,
        }
    }

    /// Reads a file from [`Document::write`], or the output of `--json`.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub fn read(path: &Path) -> io::Result<Self> {
        let named = |text: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {text}", path.display()));
        let file =
            File::open(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let value: Value = serde_json::from_reader(BufReader::new(file)).map_err(|error| named(error.to_string()))?;
        if value["runs"].is_array() {
            let document: Self = serde_json::from_value(value).map_err(|error| named(error.to_string()))?;
            if document.format > FORMAT {
                return Err(named(format!("format {} is newer than this program's, {FORMAT}", document.format)));
            }
            if document.format < FORMAT {
                let path = path.display();
                say!(
                    "allod-load: {path}: format {}: its fill levels are those at the beginning of each run",
                    document.format
                );
            }
            return Ok(document);
        }
        if value["goals"].is_array() {
            return Err(named(
                "it has goals, which a page does not show: `allod-load goals --json` tells them as a table".to_owned(),
            ));
        }
        let runs = if value.is_array() {
            serde_json::from_value(value)
        } else {
            serde_json::from_value(value).map(|run| vec![run])
        };
        let runs = runs.map_err(|error| named(format!("no report of `allod-load run`: {error}")))?;
        Ok(Self { made_at: String::new(), machine: Machine::default(), ..Self::of(runs) })
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        write_file(path, &text)
    }
}

/// The current time, to the second.
pub fn now() -> String {
    jiff::Timestamp::now().round(jiff::Unit::Second).map_or_else(|_| String::new(), |time| time.to_string())
}

/// Checks that a file can be created there. Checked before a run, whose figures would be lost otherwise.
///
/// # Errors
/// There is no such directory.
pub fn check_place(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if directory.is_dir() {
        return Ok(());
    }
    let text = format!("{}: there is no directory {}", path.display(), directory.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Writes a text of a run. It is not synced, because the run can be repeated.
///
/// # Errors
/// The file cannot be written.
pub fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut file = File::create(path).map_err(named)?;
    file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).map_err(named)
}

impl Machine {
    /// The current machine, as far as it can be described.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory = after(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kibibytes: u64 = memory.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or(0);
        Self {
            processor: after(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_bytes: kibibytes * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}
