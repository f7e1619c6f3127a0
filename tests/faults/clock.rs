//! Wall clocks that jump: that of Redis and those of nodes. A small library, compiled here, overrides the C library's clock.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The clock of one process.
pub struct Clock {
    file: std::fs::File,
    environment: [(String, String); 2],
}

/// The library, or none where nothing can be compiled.
fn library() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let made = LIBRARY.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let (source, library) = (directory.path().join("clock.c"), directory.path().join("clock.so"));
        std::fs::write(&source, include_str!("clock.c")).unwrap();
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source).status();
        compiled.is_ok_and(|status| status.success()).then_some((directory, library))
    });
    made.as_ref().map(|(_, library)| library.as_path())
}

impl Clock {
    /// A clock that shows the right time. Without a C compiler there is none, and the test is reported as skipped.
    pub fn new(directory: &Path, name: &str) -> Option<Self> {
        let Some(library) = library() else {
            super::redis::process::skips::skip("there is no C compiler");
            return None;
        };
        let path = directory.join(format!("clock-{name}"));
        let file = std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        let environment = [("LD_PRELOAD", library.display()), ("ALLOD_CLOCK", path.display())];
        let clock = Self { file, environment: environment.map(|(name, value)| (name.to_owned(), value.to_string())) };
        clock.jump(0);
        Some(clock)
    }

    /// The environment with which the process is started.
    pub fn environment(&self) -> Vec<(String, String)> {
        self.environment.to_vec()
    }

    /// Sets the clock this many seconds ahead of the right time.
    pub fn jump(&self, ahead_seconds: i64) {
        self.file.write_all_at(&ahead_seconds.to_ne_bytes(), 0).unwrap();
    }
}
