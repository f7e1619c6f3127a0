//! Which part of the history is worth reading: an index over what a store keeps, beside it, that can always be made anew.
//!
//! The history is cut into *chapters*, some thousand steps each, of all shards together, in the order of commits. Of each
//! is noted: which batches, from when to when, and which networks, addresses, owners and scopes occur in it (filters, see
//! `filter`). Who looks for something reads only the chapters that may have it. What came after the last chapter has no
//! index, and is read.
//!
//! Chapters are written down in one file where the store has a directory for it, so that a restart need not read the whole
//! history again; also what networks were called, for those whose configuration is older than the history that is kept. The
//! file is appended to without being flushed, and each record has a checksum: whatever is not readable is cut off and made
//! again. What cannot be made again are the names of networks that are gone, from before the history that is kept.
//!
//! ```text
//! file   = title, register (16)  record…
//! record = payload bytes (4)  crc32 (4)  payload
//! ```
//!
//! Why not a table of keys, as redb would keep one: it costs a lookup and a write for each event where a filter costs some
//! bits, and the machine that commits 300 000 changes a second has two processors. Ten million events are 2 500 chapters
//! whose filters have 30 MB; asking all of them takes some milliseconds.
//!
//! Neighbours: `actors::events` adds chapters behind the commits, and asks. `codec` has the batches that go in.

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

/// What is looked for; what is not given excludes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sought<'a> {
    /// Something of one of these networks.
    pub networks: Option<&'a [NetworkId]>,
    /// A holding of this address, or of a block around it.
    pub address: Option<Address>,
    /// A holding of this owner.
    pub owner: Option<&'a Owner>,
    /// A holding in this scope.
    pub scope: Option<&'a Scope>,
    /// Not before.
    pub from: Option<WallTime>,
    /// Not after.
    pub to: Option<WallTime>,
}

#[derive(Debug)]
struct Inner {
    chapters: Arc<Vec<Arc<Chapter>>>,
    names: Called,
    shelf: Option<Shelf>,
    /// Who adds.
    pen: Pen,
    /// The shelf takes more. One that failed once is only read from: what comes then is kept in memory.
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

    /// The shelf, if it takes more.
    fn writable(&mut self) -> Option<&mut Shelf> {
        self.shelf.as_mut().filter(|_| self.is_written)
    }
}

/// Adds chapters, until somebody else takes one: of two tenures that run into each other the later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pen(u64);

/// What networks were called, in order, each name once for as long as it lasts: every change of a configuration tells it
/// again.
#[derive(Debug, Default)]
struct Called {
    notes: Vec<NameNote>,
    /// Which of them is the last of a network.
    last: HashMap<NetworkId, usize>,
}

impl Called {
    fn of(notes: Vec<NameNote>) -> Self {
        let last = notes.iter().enumerate().map(|(at, note)| (note.network, at)).collect();
        Self { notes, last }
    }

    /// One more; true if it tells something new.
    fn note(&mut self, note: &NameNote) -> bool {
        let last = self.last.get(&note.network).map(|&at| &self.notes[at]);
        // One of a line that was cut off may be of a later batch.
        let tells =
            |last: &NameNote| (&last.name, &last.realm) == (&note.name, &note.realm) && last.since <= note.since;
        if last.is_some_and(tells) {
            return false;
        }
        self.last.insert(note.network, self.notes.len());
        self.notes.push(note.clone());
        true
    }

    /// Forgets the others.
    fn retain(&mut self, keep: impl Fn(&NameNote) -> bool) {
        self.notes.retain(keep);
        *self = Self::of(std::mem::take(&mut self.notes));
    }
}

/// The chapters of a register, in order. Made once for a process.
#[derive(Debug)]
pub struct Chapters(Mutex<Inner>);

impl Chapters {
    /// Those that were written down in a directory; without one they are kept in memory. What cannot be read is left out, and
    /// what cannot be written is said in the log: the history itself is the store's.
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
        // A panic inside leaves chapters that are all readable: each is added by one statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, in order.
    pub fn all(&self) -> Arc<Vec<Arc<Chapter>>> {
        Arc::clone(&self.inner().chapters)
    }

    /// What networks were called, as far as it was written down.
    pub fn names(&self) -> Vec<NameNote> {
        self.inner().names.notes.clone()
    }

    /// Where the chapters of a shard end.
    pub fn end(&self, shard: ShardId) -> Option<BatchRange> {
        self.inner().chapters.iter().rev().find_map(|chapter| chapter.range(shard)).copied()
    }

    /// From now on nobody adds anything by another pen.
    pub fn take_pen(&self) -> Pen {
        let mut inner = self.inner();
        inner.pen.0 += 1;
        inner.pen
    }

    /// One more, unless somebody else took the pen: then it is of a tenure that is over, and of a line that may be cut off.
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

    /// Forgets all but the first so many: what comes behind is of a line that was cut off. So are the names that networks got
    /// there; those of shards that were not cut off are met again with their batches. `shard_of` tells where a network is.
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

    /// Those of these networks that certainly occur in none of them.
    pub fn lacking(&self, mut networks: Vec<NetworkId>) -> Vec<NetworkId> {
        for chapter in self.all().iter() {
            if networks.is_empty() {
                break;
            }
            match filter(chapter, Sort::Network) {
                Some(bits) => networks.retain(|&network| !may_have(&bits, network_key(network))),
                // It cannot be read: then all of them may.
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

    /// Forgets what these networks were called before a batch of their shard.
    pub fn forget_names_before(&self, networks: &HashMap<NetworkId, u64>) {
        let mut inner = self.inner();
        let before = inner.names.notes.len();
        inner.names.retain(|note| networks.get(&note.network).is_none_or(|batch| note.since.0 >= *batch));
        if inner.names.notes.len() < before {
            Self::write_anew(&mut inner);
        }
    }

    /// Notes what networks are called from a batch on that does not say so, and forgets what they were called before. Of the next
    /// start, too: by then it may not be seen any more that they were renamed in what nobody read here.
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

    /// Forgets the first so many: the history does not reach back to them any more.
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

    /// Where it cannot be written anew, what is in the file stays there, also what is forgotten here: the next start looks again what
    /// of it is good. Until then all chapters stay, those of the file as they are in it.
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

    /// May there be something wanted in a chapter? A no is certain.
    pub fn may_have(&self, chapter: &Chapter, wanted: &Sought<'_>) -> bool {
        if wanted.from.is_some_and(|from| chapter.wall.1 < from) || wanted.to.is_some_and(|to| chapter.wall.0 > to) {
            return false;
        }
        let any = |sort: Sort, keys: &[u64]| match filter(chapter, sort) {
            Some(bits) => keys.iter().any(|&key| may_have(&bits, key)),
            // It cannot be read: then the chapter is.
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

/// None where it cannot be read, or is not what was written.
fn filter(chapter: &Chapter, sort: Sort) -> Option<Vec<u8>> {
    match &chapter.filters {
        Filters::Kept(kept) => Some(kept[sort as usize].clone()),
        Filters::Written(written) => written.read(sort),
    }
}

fn keys_of(networks: &[NetworkId]) -> Vec<u64> {
    networks.iter().map(|&network| network_key(network)).collect()
}
