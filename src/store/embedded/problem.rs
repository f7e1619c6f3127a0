//! Sentences for what is wrong with a data directory: where, what, and what to do.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::store::StoreError;

/// A read or write that failed.
pub(super) fn io(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::Io { context: format!("{verb} {}", path.display()).into(), source: Arc::new(error) }
}

/// Something that cannot be trusted, in a file as a whole.
pub(super) fn damaged(path: &Path, problem: impl Display) -> StoreError {
    let text = format!(
        "{} {problem}; nothing was changed: restore the data directory from a backup, or look for the missing part \
         before you start again",
        path.display()
    );
    StoreError::Damaged(text.into())
}

/// Something that cannot be trusted, at a place in a file.
pub(super) fn damaged_at(path: &Path, offset: u64, problem: impl Display) -> StoreError {
    damaged(path, format_args!("is damaged at offset {offset}: {problem}"))
}

/// Data of somebody else, or of a newer version.
pub(super) fn foreign(path: &Path, problem: impl Display) -> StoreError {
    StoreError::Foreign(format!("{} {problem}", path.display()).into())
}
