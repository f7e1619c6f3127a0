//! Sentences for what is wrong with a data directory: where, what, and what to do.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::Path;

use super::replay::Misfit;
use crate::store::StoreError;
use crate::store::codec::{CodecError, Format};
pub(super) use crate::store::whole::io;

/// What to do about damage that nothing is known to help against. Whoever made the directory may know more of it than it shows:
/// the same is seen where the files were copied one by one beside a server that went on writing.
const ADVICE: &str = "; nothing was changed: restore the data directory from a backup, or look for the missing part before you \
                      start again. A copy that was made of it with anything but `allod backup` while a server had it open looks \
                      just like this, and cannot be used";

/// Something that cannot be trusted, in a file as a whole.
pub(super) fn damaged(path: &Path, problem: impl Display) -> StoreError {
    damaged_so(format_args!("{} {problem}", path.display()))
}

/// Something that cannot be trusted: what, and where.
pub(super) fn damaged_so(problem: impl Display) -> StoreError {
    StoreError::Damaged(format!("{problem}{ADVICE}").into())
}

/// What is read of a file while it is served cannot be trusted. Whoever reads is not who has to do something about it, and what that
/// is depends on more than the file.
pub(super) fn unreadable_at(path: &Path, offset: u64, problem: impl Display) -> StoreError {
    StoreError::Damaged(format!("{} is damaged at offset {offset}: {problem}", path.display()).into())
}

/// What is wrong, without what to do.
pub(super) fn fact(error: &StoreError) -> String {
    match error {
        StoreError::Damaged(text) => text.strip_suffix(ADVICE).unwrap_or(text).to_owned(),
        other => other.to_string(),
    }
}

/// What belongs to a register was not read. It is damage only where it is not there, or not as long as it was: what a disk
/// or a machine refuses now is not lost.
pub(super) fn unread<'a>(path: &'a Path, problem: &'static str) -> impl Fn(std::io::Error) -> StoreError + 'a {
    move |error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::UnexpectedEof => damaged(path, format_args!("{problem} ({error})")),
        _ => io("reading", path)(error),
    }
}

/// Something that cannot be trusted, at a place in a file.
pub(super) fn damaged_at(path: &Path, offset: u64, problem: impl Display) -> StoreError {
    damaged(path, format_args!("is damaged at offset {offset}: {problem}"))
}

/// Something at a place in a file that does not fit there. Records of a later format are not damaged: who is told so would bring a
/// backup back, and lose what was granted since.
pub(super) fn misfit_at(path: &Path, offset: u64, misfit: &Misfit) -> StoreError {
    match misfit {
        Misfit::Codec(error) => unread_at(path, offset, "a record", error),
        Misfit::Other(text) => damaged_at(path, offset, text),
    }
}

/// The same of something that cannot be decoded.
pub(super) fn unread_at(path: &Path, offset: u64, what: &str, error: &CodecError) -> StoreError {
    match error {
        CodecError::Version(format) => foreign(
            path,
            format_args!(
                "has records in format {format}, and this version of allod reads formats up to {}; start a newer one",
                Format::NEWEST
            ),
        ),
        error => damaged_at(path, offset, format_args!("{what} {error}")),
    }
}

/// Data of somebody else, or of a newer version.
pub(super) fn foreign(path: &Path, problem: impl Display) -> StoreError {
    StoreError::Foreign(format!("{} {problem}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_later_format_are_no_damage() {
        let newer = unread_at(Path::new("log/1"), 7, "a record", &CodecError::Version(Format::NEWEST.number() + 1));
        assert!(matches!(&newer, StoreError::Foreign(said) if said.contains("start a newer one")), "{newer}");
        let wrong = unread_at(Path::new("log/1"), 7, "a record", &CodecError::Short("key"));
        assert!(matches!(&wrong, StoreError::Damaged(said) if said.contains("at offset 7")), "{wrong}");
    }
}
