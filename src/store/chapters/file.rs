//! The file of chapters. Its content can be made again, so additions are not flushed. Whatever cannot be read is cut off,
//! and the server's log says so.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chapter::{Chapter, FilterSpot, Filters, NameNote, ShelfRecord, WrittenFilters, read};
use super::filter::Sort;

/// Its name in the directory of the store.
pub(crate) const FILE: &str = "HISTORY";
const TITLE: &[u8; 16] = b"allod chapters 1";
const HEAD_BYTES: u64 = 32;
/// Longest record: a chapter of the longest possible batches takes some hundred kilobytes.
const RECORD_BYTES_MAX: usize = 16 << 20;
const PIECE_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Shelf {
    path: PathBuf,
    register: u128,
    file: Arc<File>,
    end: u64,
    /// How many of its chapters are forgotten, and how many there are.
    forgotten: usize,
    count: usize,
    /// How many of its names are forgotten, and how many there are.
    names_forgotten: usize,
    names: usize,
}

type Opened = (Shelf, Vec<Arc<Chapter>>, Vec<NameNote>);

impl Shelf {
    fn empty(path: PathBuf, register: u128, file: File) -> Self {
        let file = Arc::new(file);
        Self { path, register, file, end: HEAD_BYTES, forgotten: 0, count: 0, names_forgotten: 0, names: 0 }
    }

    /// Opens the file, or creates it. A file of another register, or of another version, is replaced by an empty one.
    pub(super) fn open(directory: &Path, register: u128) -> io::Result<Opened> {
        let path = directory.join(FILE);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        let ours = is_of(register, &file)?;
        let length = file.metadata()?.len();
        let mut shelf = Self::empty(path, register, file);
        if !ours {
            if length > 0 {
                tracing::warn!(
                    path = %shelf.path.display(), bytes = length,
                    "the index of the history is damaged, or of another register: it is made again from the log"
                );
            }
            shelf.file.set_len(0)?;
            shelf.file.write_all_at(&head_of(register), 0)?;
            return Ok((shelf, Vec::new(), Vec::new()));
        }
        let (mut chapters, mut names) = (Vec::new(), Vec::new());
        let mut pieces = Pieces { file: &shelf.file, buffer: Vec::new(), start: 0, at: HEAD_BYTES };
        while let Some((record, next)) = pieces.next()? {
            match record {
                ShelfRecord::Chapter(chapter) => chapters.push(Arc::new(chapter)),
                ShelfRecord::Name(name) => names.push(name),
            }
            shelf.end = next;
        }
        (shelf.count, shelf.names) = (chapters.len(), names.len());
        // The rest is a record that was cut short, or damage: nobody can tell which.
        if length > shelf.end {
            tracing::warn!(
                path = %shelf.path.display(), offset = shelf.end, bytes = length - shelf.end,
                "the index of the history cannot be read from here on: the rest is made again from the log"
            );
        }
        shelf.file.set_len(shelf.end)?;
        Ok((shelf, chapters, names))
    }

    /// Appends a chapter and the new names in it.
    pub(super) fn add(&mut self, chapter: &mut Chapter, filters: &[Vec<u8>; 4], names: &[NameNote]) -> io::Result<()> {
        let mut bytes = Vec::new();
        names.iter().for_each(|name| record(&mut bytes, |out| name.write(out)));
        let mut spots = [FilterSpot::default(); 4];
        let begin = bytes.len();
        record(&mut bytes, |out| spots = chapter.write(filters, out));
        self.file.write_all_at(&bytes, self.end)?;
        let payload = self.end + (begin + RECORD_HEAD) as u64;
        let spots = spots.map(|spot| spot.from(payload));
        chapter.filters = Filters::Written(WrittenFilters { file: Arc::clone(&self.file), spots });
        self.end += bytes.len() as u64;
        self.count += 1;
        self.names += names.len();
        Ok(())
    }

    /// Counts `more` forgotten chapters. Is most of the file wasted now?
    pub(super) fn wastes(&mut self, more: usize) -> bool {
        self.forgotten += more;
        self.forgotten * 2 > self.count
    }

    /// Counts `more` forgotten names. Are most of the names in the file forgotten now?
    pub(super) fn wastes_names(&mut self, more: usize) -> bool {
        self.names_forgotten += more;
        self.names_forgotten * 2 > self.names
    }

    /// Replaces the file by one with these chapters and names only.
    pub(super) fn write_anew(
        &mut self,
        chapters: &[Arc<Chapter>],
        names: &[NameNote],
    ) -> io::Result<Vec<Arc<Chapter>>> {
        let new = self.path.with_extension("tmp");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&new)?;
        file.write_all_at(&head_of(self.register), 0)?;
        let mut shelf = Self { names: names.len(), ..Self::empty(self.path.clone(), self.register, file) };
        let mut bytes = Vec::new();
        names.iter().for_each(|name| record(&mut bytes, |out| name.write(out)));
        shelf.file.write_all_at(&bytes, shelf.end)?;
        shelf.end += bytes.len() as u64;
        let mut written = Vec::with_capacity(chapters.len());
        for chapter in chapters {
            let filters = match &chapter.filters {
                Filters::Kept(kept) => kept.clone(),
                Filters::Written(written) => {
                    let lost = || io::Error::other("a filter cannot be read");
                    let read = |sort: Sort| written.read(sort).ok_or_else(lost);
                    let [one, two, three, four] = Sort::ALL;
                    [read(one)?, read(two)?, read(three)?, read(four)?]
                }
            };
            let mut chapter = Chapter::clone(chapter);
            shelf.add(&mut chapter, &filters, &[])?;
            written.push(Arc::new(chapter));
        }
        // Some names of networks are stored nowhere else: the good file must not be replaced by one that may be lost.
        shelf.file.sync_data()?;
        std::fs::rename(&new, &self.path)?;
        *self = shelf;
        Ok(written)
    }
}

/// Is it a file of this register?
///
/// # Errors
/// The disk does not say. The content may be good, and some names in it are nowhere else.
fn is_of(register: u128, file: &impl FileExt) -> io::Result<bool> {
    let mut head = [0; HEAD_BYTES as usize];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => Ok(head == head_of(register)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn head_of(register: u128) -> [u8; HEAD_BYTES as usize] {
    let mut head = [0; HEAD_BYTES as usize];
    head[..16].copy_from_slice(TITLE);
    head[16..].copy_from_slice(&register.to_be_bytes());
    head
}

/// Bytes before a payload: its length and its checksum.
const RECORD_HEAD: usize = 8;

fn record(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut payload = Vec::new();
    fill(&mut payload);
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(&crc32fast::hash(&payload).to_be_bytes());
    out.append(&mut payload);
}

struct Pieces<'a> {
    file: &'a Arc<File>,
    buffer: Vec<u8>,
    /// Where in the buffer the next record begins.
    start: usize,
    /// Where in the file the next record begins.
    at: u64,
}

impl Pieces<'_> {
    /// The next record and where it ends; none at the first record that is incomplete or damaged.
    fn next(&mut self) -> io::Result<Option<(ShelfRecord, u64)>> {
        if !self.has(RECORD_HEAD)? {
            return Ok(None);
        }
        let number = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|n| self.buffer[self.start + at + n]));
        let (length, crc) = (number(0) as usize, number(4));
        if length > RECORD_BYTES_MAX || !self.has(RECORD_HEAD + length)? {
            return Ok(None);
        }
        let payload = &self.buffer[self.start + RECORD_HEAD..self.start + RECORD_HEAD + length];
        if crc32fast::hash(payload) != crc {
            return Ok(None);
        }
        let Ok(record) = read(payload, self.file, self.at + RECORD_HEAD as u64) else { return Ok(None) };
        self.start += RECORD_HEAD + length;
        self.at += (RECORD_HEAD + length) as u64;
        Ok(Some((record, self.at)))
    }

    /// Are this many bytes available? Reads more if they are not in the buffer.
    fn has(&mut self, bytes: usize) -> io::Result<bool> {
        while self.buffer.len() - self.start < bytes {
            self.buffer.drain(..self.start);
            self.start = 0;
            let begin = self.buffer.len();
            self.buffer.resize(begin + PIECE_BYTES, 0);
            let read = self.file.read_at(&mut self.buffer[begin..], self.at + begin as u64)?;
            self.buffer.truncate(begin + read);
            if read == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that can read nothing now.
    struct OutOfReach;

    impl FileExt for OutOfReach {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::HostUnreachable.into())
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            unreachable!("nothing is written to it")
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_now_is_not_taken_for_another_registers() {
        let file = tempfile::tempfile().unwrap();
        assert!(!is_of(7, &file).unwrap(), "an empty one");
        file.write_all_at(&head_of(7), 0).unwrap();
        assert!(is_of(7, &file).unwrap() && !is_of(8, &file).unwrap());
        assert_eq!(is_of(7, &OutOfReach).unwrap_err().kind(), io::ErrorKind::HostUnreachable);
    }
}
