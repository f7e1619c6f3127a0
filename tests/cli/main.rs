//! The command line as people and scripts meet it: golden texts, exit codes, streams.
//!
//! `ALLOD_BLESS=1 cargo test --test cli` writes the golden files anew; read the difference before you commit it.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed unwrap is how a test fails; tests wait on real processes and files"
)]

mod apply;
mod blocks;
mod commands;
mod cut;
mod doctor;
mod doubted;
mod errors;
mod help;
mod history;
mod losses;
mod outputs;
mod paged;
mod refused;
mod responder;
mod said;
mod settled;
mod terminal;
mod try_out;

use std::io::Write;
use std::path::{Path, PathBuf};

/// Compares a text with a golden file.
#[track_caller]
fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden").join(name);
    if std::env::var_os("ALLOD_BLESS").is_some() {
        write(&path, text.as_bytes());
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{name} differs; see `ALLOD_BLESS=1 cargo test --test cli && git diff`\n--- got ---\n{text}\n--- expected ---\n{expected}"
    );
}

/// Writes a file of a test.
fn write(path: &Path, content: &[u8]) {
    std::fs::File::create(path).unwrap().write_all(content).unwrap();
}
