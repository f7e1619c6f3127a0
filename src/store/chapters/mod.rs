//! Which part of the history is worth reading: an index over the history of a store. It is kept beside the store, and can be
//! made anew.
//!
//! The history is cut into *chapters* of some thousand steps each, over all shards together, in the order of commits. For
//! each chapter the index notes its batches, its time span, and which networks, addresses, owners and scopes occur in it
//! (filters, see `filter`). A search reads only the chapters that may have what it looks for. Whatever came after the last
//! chapter has no index, and is always read.
//!
//! If the store has a directory, chapters are written to one file there, so that a restart need not read the whole history
//! again. The file also has the names of networks, because the configuration of some is older than the history that is kept.
//! The file is appended to without a flush, and each record has a checksum: whatever cannot be read is cut off and made
//! again. Only names that are older than the kept history and belong to deleted networks cannot be made again.
//!
//! ```text
//! file   = title, register (16)  record…
//! record = payload bytes (4)  crc32 (4)  payload
//! ```
//!
//! Why not a table of keys, as redb would keep one? It costs a lookup and a write for each event, where a filter costs some
//! bits, and the machine that commits 300 000 changes a second has two processors. Ten million events make 2 500 chapters
//! whose filters take 30 MB; asking all of them takes some milliseconds.
//!
//! Neighbours: `actors::events` adds chapters as commits go on, and searches. `codec` reads the batches that go in.

mod chapter;
mod file;
mod filter;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::chapter::Filters;
pub use self::chapter::{BatchRange, Chapter, ChapterDraft, NameNote};
use self::file::Shelf;
pub(crate) use self::file::{FILE, head_of};
use self::filter::{Sort, address_key, may_have, network_key, text_key};
use super::{Seq, ShardId};
use crate::core::address::{Address, Cidr};
use crate::core::types::{NetworkId, Owner, Scope, WallTime};

/// What a search looks for. A criterion that is not given excludes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sought<'a> {
    /// Anything in one of these networks.
    pub networks: Option<&'a [NetworkId]>,
    /// A holding of this address, or of a block around it.
    pub address: Option<Address>,
    /// A holding of this owner.
    pub owner: Option<&'a Owner>,
    /// A holding in this scope.
    pub scope: Option<&'a Scope>,
    /// Nothing earlier than this.
    pub from: Option<WallTime>,
    /// Nothing later than this.
    pub to: Option<WallTime>,
}

#[derive(Debug)]
struct Inner {
    chapters: Arc<Vec<Arc<Chapter>>>,
    names: Called,
    shelf: Option<Shelf>,
    pen: Pen,
    /// Can the file be written? After a failure it is only read, and later chapters are kept in memory.
    is_written: bool,
}

impl Inner {
    fn of(chapters: Vec<Arc<Chapter>>) -> Self {
        Self {
            chapters: Arc::new(chapters),
            names: Called::default(),
            shelf: None,
            pen: Pen::default(),
            is_written: true,
        }
    }

    /// The file, if it can be written.
    fn writable(&mut self) -> Option<&mut Shelf> {
        self.shelf.as_mut().filter(|_| self.is_written)
    }
}

/// The right to add chapters, until somebody else takes it. If two tenures overlap, only the later one adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pen(u64);

/// What networks were called, in order. A name is noted once, although every change of a configuration tells it again.
#[derive(Debug, Default)]
struct Called {
    notes: Vec<NameNote>,
    /// For each network, which note is its last.
    last: HashMap<NetworkId, usize>,
}

impl Called {
    fn of(notes: Vec<NameNote>) -> Self {
        let last = notes.iter().enumerate().map(|(at, note)| (note.network, at)).collect();
        Self { notes, last }
    }

    /// Adds a note; true if it tells something new.
    fn note(&mut self, note: &NameNote) -> bool {
        let last = self.last.get(&note.network).map(|&at| &self.notes[at]);
        // A note from a line that was cut off may be of a later batch.
        let tells =
            |last: &NameNote| (&last.name, &last.realm) == (&note.name, &note.realm) && last.since <= note.since;
        if last.is_some_and(tells) {
            return false;
        }
        self.last.insert(note.network, self.notes.len());
        self.notes.push(note.clone());
        true
    }

    fn retain(&mut self, keep: impl Fn(&NameNote) -> bool) {
        self.notes.retain(keep);
        *self = Self::of(std::mem::take(&mut self.notes));
    }
}

/// The chapters of a register, in order. Made once for each process.
#[derive(Debug)]
pub struct Chapters(Mutex<Inner>);

impl Chapters {
    /// Reads the chapters of a directory; without a directory they are kept in memory. Chapters that cannot be read are left
    /// out, and failures to write are only logged, because the history itself is in the store.
    pub fn open(directory: Option<&Path>, register: u128) -> Self {
        let opened = directory.map(|directory| (directory, Shelf::open(directory, register)));
        let inner = match opened {
            Some((_, Ok((shelf, chapters, noted)))) => {
                let mut names = Called::default();
                noted.iter().for_each(|note| _ = names.note(note));
                Inner { names, shelf: Some(shelf), ..Inner::of(chapters) }
            }
            Some((directory, Err(error))) => {
                tracing::warn!(directory = %directory.display(), %error, "the index of the history is kept in memory only");
                Inner::of(Vec::new())
            }
            None => Inner::of(Vec::new()),
        };
        Self(Mutex::new(inner))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic inside leaves only readable chapters: each one is added by a single statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All chapters, in order.
    pub fn all(&self) -> Arc<Vec<Arc<Chapter>>> {
        Arc::clone(&self.inner().chapters)
    }

    /// What networks were called, as far as it was noted.
    pub fn names(&self) -> Vec<NameNote> {
        self.inner().names.notes.clone()
    }

    /// Where the chapters of a shard end.
    pub fn end(&self, shard: ShardId) -> Option<BatchRange> {
        self.inner().chapters.iter().rev().find_map(|chapter| chapter.range(shard)).copied()
    }

    /// Takes the pen. From now on nobody can add anything with an earlier pen.
    pub fn take_pen(&self) -> Pen {
        let mut inner = self.inner();
        inner.pen.0 += 1;
        inner.pen
    }

    /// Adds a chapter, unless somebody else has taken the pen: then the chapter belongs to a tenure that is over, and to a
    /// line that may be cut off.
    pub fn add(&self, pen: Pen, draft: ChapterDraft) {
        let (mut chapter, filters, mut names) = draft.finish();
        let mut inner = self.inner();
        if inner.pen != pen {
            return;
        }
        names.retain(|note| inner.names.note(note));
        let kept = match inner.writable() {
            Some(shelf) => shelf.add(&mut chapter, &filters, &names).map(|()| true),
            None => Ok(false),
        };
        let is_written = kept.unwrap_or_else(|error| {
            tracing::warn!(%error, "the index of the history cannot be written; it is kept in memory from here on");
            inner.is_written = false;
            false
        });
        if !is_written {
            chapter.keep(filters);
        }
        Arc::make_mut(&mut inner.chapters).push(Arc::new(chapter));
    }

    /// Keeps the first `count` chapters and forgets the others, because they belong to a line that was cut off. The same
    /// goes for names that networks got there. Names in shards that were not cut off are noted again when their batches are
    /// read again. `shard_of` tells the shard of a network.
    pub fn truncate(&self, count: usize, shard_of: impl Fn(NetworkId) -> ShardId) {
        let mut inner = self.inner();
        if count < inner.chapters.len() {
            let cut = Arc::make_mut(&mut inner.chapters).split_off(count);
            let mut begins: HashMap<ShardId, Seq> = HashMap::new();
            for range in cut.iter().flat_map(|chapter| &chapter.ranges) {
                let begin = begins.entry(range.shard).or_insert(range.first);
                *begin = range.first.min(*begin);
            }
            let stands =
                |note: &NameNote| begins.get(&shard_of(note.network)).is_none_or(|begin| note.since.0 < begin.0);
            inner.names.retain(stands);
            Self::write_anew(&mut inner);
        }
    }

    /// Which of these networks certainly occur in no chapter.
    pub fn lacking(&self, mut networks: Vec<NetworkId>) -> Vec<NetworkId> {
        for chapter in self.all().iter() {
            if networks.is_empty() {
                break;
            }
            match filter(chapter, Sort::Network) {
                Some(bits) => networks.retain(|&network| !may_have(&bits, network_key(network))),
                // The filter cannot be read, so all of them may occur.
                None => return Vec::new(),
            }
        }
        networks
    }

    /// Forgets what these networks were called.
    pub fn forget_names(&self, networks: &HashSet<NetworkId>) {
        let mut inner = self.inner();
        let before = inner.names.notes.len();
        inner.names.retain(|note| !networks.contains(&note.network));
        let forgotten = before - inner.names.notes.len();
        if forgotten > 0 && inner.writable().is_some_and(|shelf| shelf.wastes_names(forgotten)) {
            Self::write_anew(&mut inner);
        }
    }

    /// Forgets what these networks were called before a given batch of their shard.
    pub fn forget_names_before(&self, networks: &HashMap<NetworkId, u64>) {
        let mut inner = self.inner();
        let before = inner.names.notes.len();
        inner.names.retain(|note| networks.get(&note.network).is_none_or(|batch| note.since.0 >= *batch));
        if inner.names.notes.len() < before {
            Self::write_anew(&mut inner);
        }
    }

    /// Notes what networks are called from a batch that does not say so itself, and forgets their earlier names, in the file
    /// as well: at the next start the kept history may no longer show that they were renamed in batches that nobody read here.
    pub fn begin_names(&self, mut begun: Vec<NameNote>) {
        if begun.is_empty() {
            return;
        }
        let mut inner = self.inner();
        let since: HashMap<NetworkId, (u64, u32)> = begun.iter().map(|note| (note.network, note.since)).collect();
        let known = std::mem::take(&mut inner.names.notes).into_iter();
        begun.extend(known.filter(|note| since.get(&note.network).is_none_or(|since| note.since > *since)));
        inner.names = Called::of(begun);
        Self::write_anew(&mut inner);
    }

    /// Forgets the first `count` chapters: the history no longer reaches back to them.
    pub fn forget(&self, count: usize) {
        let mut inner = self.inner();
        if count > 0 {
            let chapters = Arc::make_mut(&mut inner.chapters);
            chapters.drain(..count.min(chapters.len()));
            let wasted = inner.writable().is_some_and(|shelf| shelf.wastes(count));
            if wasted {
                Self::write_anew(&mut inner);
            }
        }
    }

    /// If this fails, the file keeps its content, including what is forgotten here; the next start checks again which of it
    /// is good. Until then all chapters stay as they are, and those in the old file are still read from there.
    fn write_anew(inner: &mut Inner) {
        let Some(shelf) = inner.shelf.as_mut().filter(|_| inner.is_written) else { return };
        match shelf.write_anew(&inner.chapters, &inner.names.notes) {
            Ok(chapters) => inner.chapters = Arc::new(chapters),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "the index of the history cannot be written anew; what comes from here on is kept in memory, and made again by \
                     the next start"
                );
                inner.is_written = false;
            }
        }
    }

    /// May a chapter have what is wanted? A no is certain.
    pub fn may_have(&self, chapter: &Chapter, wanted: &Sought<'_>) -> bool {
        if wanted.from.is_some_and(|from| chapter.wall.1 < from) || wanted.to.is_some_and(|to| chapter.wall.0 > to) {
            return false;
        }
        let any = |sort: Sort, keys: &[u64]| match filter(chapter, sort) {
            Some(bits) => keys.iter().any(|&key| may_have(&bits, key)),
            // The filter cannot be read, so the chapter must be read.
            None => true,
        };
        let address = |address: Address| {
            let lengths = chapter.lengths_of(address.family());
            let key = |length| address_key(Cidr::containing(address, length).base(), length);
            any(Sort::Address, &lengths.map(key).collect::<Vec<u64>>())
        };
        wanted.address.is_none_or(address)
            && wanted.owner.is_none_or(|owner| any(Sort::Owner, &[text_key(owner.as_str().as_bytes())]))
            && wanted.scope.is_none_or(|scope| any(Sort::Scope, &[text_key(scope.as_str().as_bytes())]))
            && wanted.networks.is_none_or(|networks| any(Sort::Network, &keys_of(networks)))
    }
}

/// None if the filter cannot be read, or has not the bytes that were written.
fn filter(chapter: &Chapter, sort: Sort) -> Option<Vec<u8>> {
    match &chapter.filters {
        Filters::Kept(kept) => Some(kept[sort as usize].clone()),
        Filters::Written(written) => written.read(sort),
    }
}

fn keys_of(networks: &[NetworkId]) -> Vec<u64> {
    networks.iter().map(|&network| network_key(network)).collect()
}
