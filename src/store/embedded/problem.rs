//! Sentences for what is wrong with a data directory: where, what, and what to do.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::replay::Misfit;
use crate::store::StoreError;
use crate::store::codec::{CodecError, Format};
pub(super) use crate::store::whole::io;

/// What to do about damage for which no remedy is known. Whoever made the directory may know more about it than the files
/// show: copying the files one by one while a server goes on writing leaves the same picture.
const ADVICE: &str = "; nothing was changed: restore the data directory from a backup, or look for the missing part before you \
                      start again. A copy that was made of it with anything but `allod backup` while a server had it open looks \
                      just like this, and cannot be used";

/// A file as a whole cannot be trusted.
pub(super) fn damaged(path: &Path, problem: impl Display) -> StoreError {
    damaged_so(format_args!("{} {problem}", path.display()))
}

/// Something cannot be trusted: what, and where.
pub(super) fn damaged_so(problem: impl Display) -> StoreError {
    StoreError::Damaged(format!("{problem}{ADVICE}").into())
}

/// Data that was read from a file of a running server cannot be trusted. Gives no advice: the caller that reads cannot act
/// on it, and the right advice depends on more than the file.
pub(super) fn unreadable_at(path: &Path, offset: u64, problem: impl Display) -> StoreError {
    StoreError::Damaged(format!("{} is damaged at offset {offset}: {problem}", path.display()).into())
}

/// The fact without the advice.
pub(super) fn fact(error: &StoreError) -> String {
    match error {
        StoreError::Damaged(text) => text.strip_suffix(ADVICE).unwrap_or(text).to_owned(),
        other => other.to_string(),
    }
}

/// The fact, if something is unreadable for good. A disk that cannot read a sector now cannot read it at the next start
/// either; other errors of the disk or the machine may pass.
pub(super) fn unreadable(error: &StoreError) -> Option<Arc<str>> {
    match error {
        // The advice of a start does not apply now.
        StoreError::Damaged(_) | StoreError::Newer(_) => Some(fact(error).into()),
        StoreError::Io { context, .. } if error.is_unreadable() => {
            let what = context.split_once(' ').map_or(&**context, |(_, path)| path);
            Some(format!("{what} cannot be read (Input/output error)").into())
        }
        _ => None,
    }
}

/// A part of the register could not be read. It is damaged only if it is missing or shorter than it was: data that a disk or
/// a machine cannot give just now is not lost.
pub(super) fn unread<'a>(path: &'a Path, problem: &'static str) -> impl Fn(std::io::Error) -> StoreError + 'a {
    move |error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::UnexpectedEof => damaged(path, format_args!("{problem} ({error})")),
        _ => io("reading", path)(error),
    }
}

/// Something at a place in a file cannot be trusted.
pub(super) fn damaged_at(path: &Path, offset: u64, problem: impl Display) -> StoreError {
    damaged(path, format_args!("is damaged at offset {offset}: {problem}"))
}

/// An entry at a place in a file does not fit.
pub(super) fn misfit_at(path: &Path, offset: u64, misfit: &Misfit) -> StoreError {
    match misfit {
        Misfit::Codec(error) => unread_at(path, offset, "a record", error),
        Misfit::Other(text) => damaged_at(path, offset, text),
    }
}

/// Something at a place in a file has the right checksum and cannot be decoded.
pub(super) fn unread_at(path: &Path, offset: u64, what: &str, error: &CodecError) -> StoreError {
    undecoded(path, format_args!("at offset {offset} {what}"), error)
}

/// Something in a file has the right checksum and cannot be decoded: a newer version may have written it.
pub(super) fn undecoded(path: &Path, what: impl Display, error: &CodecError) -> StoreError {
    let path = path.display();
    match error {
        CodecError::Version(format) => {
            let newest = Format::NEWEST;
            let text = format!(
                "{path} has records in format {format}, and this version of allod reads formats up to {newest}; start a newer one"
            );
            StoreError::Newer(text.into())
        }
        error => StoreError::newer(format_args!("{path} has {what} that {error}, though its checksum is right")),
    }
}

/// The data belongs to something else, or to a newer version.
pub(super) fn foreign(path: &Path, problem: impl Display) -> StoreError {
    StoreError::Foreign(format!("{} {problem}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_whole_and_only_a_newer_version_reads_is_no_damage() {
        let newer = unread_at(Path::new("log/1"), 7, "a record", &CodecError::Version(Format::NEWEST.number() + 1));
        assert!(newer.to_string().contains("start a newer one"), "{newer}");
        let tag = CodecError::Tag { what: "flags", tag: 32 };
        for unknown in [tag, CodecError::Trailing(3), CodecError::Range("mark"), CodecError::Short("key")] {
            let said = misfit_at(Path::new("log/1"), 7, &Misfit::Codec(unknown));
            assert!(!matches!(said, StoreError::Damaged(_)), "{said}");
            let said = said.to_string();
            assert!(said.contains("log/1 has at offset 7 a record that"), "{said}");
            assert!(said.contains("newer version of allod: start that one") && !said.contains("backup"), "{said}");
        }
    }
}
