//! Do the data outside the records still say what they said when they were opened or written? `META`, `MARK`, and the
//! headers of the segments and of the snapshot are otherwise read only by a start, which refuses or believes what they say then.
//!
//! Neighbours: `presence` checks `META` and `MARK` once it knows that they exist, `history` the rest; `shared` keeps what
//! was found.

use std::sync::Arc;

use super::disk::read_exact;
use super::meta::{MARK, META, Meta};
use super::problem;
use super::segment::{self, SegmentHeader};
use super::shared::{EmbeddedShared, KeptSegment};
use crate::store::StoreError;

/// What is wrong with `META` or `MARK`, if anything.
///
/// # Errors
/// [`StoreError::Io`] if this cannot be found out.
pub(super) fn first_wrong(shared: &EmbeddedShared) -> Result<Option<Arc<str>>, StoreError> {
    let (meta, mark) = (shared.dir.join(META), shared.dir.join(MARK));
    match Meta::read(&*shared.disk, &shared.dir) {
        Ok(read) if read == shared.meta => {}
        Ok(read) => {
            shared.check_place().map_err(problem::io("looking for", &shared.dir))?;
            let in_words = |meta: &Meta| format!("register {:032x} of {} shards", meta.register, meta.shards);
            let (said, known) = (in_words(&read), in_words(&shared.meta));
            let text =
                format!("{} is not as it was opened: it says {said}, and this server has {known}", meta.display());
            return Ok(Some(text.into()));
        }
        // The advice that a start would give does not apply to a running server.
        Err(StoreError::Foreign(_)) => return Ok(Some(format!("{} is damaged", meta.display()).into())),
        Err(error) => return told(&error),
    }
    match shared.mark.check() {
        Ok(wrong) => Ok(wrong.map(|problem| format!("{} {problem}", mark.display()).into())),
        Err(error) => told(&problem::io("reading", &mark)(error)),
    }
}

/// The fact, if the file is unreadable for good; any other error is passed on.
fn told(error: &StoreError) -> Result<Option<Arc<str>>, StoreError> {
    let unreadable = problem::unreadable(error);
    unreadable.map_or_else(|| Err(error.clone()), |text| Ok(Some(text)))
}

/// Checks the headers of the snapshot and of all open segments. One that has changed is noted as damaged.
///
/// # Errors
/// The first header that has changed or cannot be read.
pub(super) fn check_open(shared: &EmbeddedShared) -> Result<(), StoreError> {
    let (segments, snapshot) = {
        let files = shared.catalog();
        (files.segments.clone(), files.snapshot.clone())
    };
    if let Some(snapshot) = snapshot {
        snapshot.check_header().inspect_err(|error| shared.note_damage(error, None))?;
    }
    segments.iter().try_for_each(|kept| check_segment(shared, kept))
}

/// The same for one segment.
///
/// # Errors
/// Its header has changed or cannot be read.
pub(super) fn check_segment(shared: &EmbeddedShared, kept: &KeptSegment) -> Result<(), StoreError> {
    let KeptSegment { segment, file, .. } = kept;
    let mut bytes = [0; segment::HEADER_BYTES];
    let read = read_exact(&**file, &mut bytes, 0).map_err(problem::io("reading", &segment.path));
    let checked = read.and_then(|()| match SegmentHeader::parse(&bytes) {
        Some(header) if header == segment.header => Ok(()),
        Some(_) => Err(problem::unreadable_at(&segment.path, 0, "its header is that of another one")),
        None => Err(problem::unreadable_at(&segment.path, 0, "its header is unreadable")),
    });
    checked.inspect_err(|error| shared.note_damage(error, Some(segment.header.number)))
}
