//! A file system in memory that can fail at the n-th operation, fill up, and lose power.
//!
//! A directory is lost with everything in it unless the directory above it was flushed.
//!
//! After a loss of power a file has what was flushed, and a random part of what was not, sector by sector. A name is as it
//! was when its directory was flushed, or as it was last. A flush that fails forgets what was to be flushed, as kernels do:
//! the cache still shows the bytes, but the disk never gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use allod::store::embedded::disk::{DirectoryLock, Disk, DiskFile, HeldDirectory};
use rand::Rng;

const SECTOR: usize = 512;
/// Linux's number for "Input/output error".
const EIO: i32 = 5;

#[derive(Debug, Clone, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// The disk can no longer read it.
    is_rotten: bool,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    durable_names: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    dirs: BTreeSet<PathBuf>,
    durable_dirs: BTreeSet<PathBuf>,
    operations: u64,
    /// The operation that fails; operations before and after it succeed.
    fail_at: Option<u64>,
    /// The process is killed at this operation: neither it nor later ones do anything.
    killed_at: Option<u64>,
    /// The process is killed when it flushes a directory for the n-th time.
    killed_at_directory: Option<u64>,
    directories_flushed: u64,
    /// The next snapshot reads back as something else than was written.
    spoils_a_snapshot: bool,
    /// Creating a file fails like this.
    refuses: Option<io::ErrorKind>,
    /// This file or directory cannot be opened now; or this file cannot be read.
    out_of_reach: Option<(PathBuf, Reach)>,
    refuses_snapshots: bool,
    /// Creating a file in the directory of this name waits.
    holds: Option<&'static str>,
    /// How many files were to be created, by the name of their directory.
    begun: BTreeMap<String, u64>,
    /// Whether opening a segment waits, and how many do.
    holds_segments: bool,
    segments_waiting: usize,
    segments_opened: u64,
    /// How many files are open, and the most that were open since that was last read.
    open: usize,
    most_open: usize,
    failed: bool,
    capacity: Option<u64>,
    locked: BTreeSet<PathBuf>,
    /// Whether flushes wait, and how many do.
    held: bool,
    waiting: usize,
    /// Bytes of the longest flush since that was last read.
    longest_flush: usize,
}

/// What the disk, or the machine, refuses to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Opening,
    Reading,
    /// Reads that include one of these bytes fail.
    ReadingAt([u64; 2]),
}

#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    content: Arc<Mutex<Content>>,
    reach: Option<Reach>,
}

impl SimDisk {
    pub fn fail_at(&self, operation: u64) {
        self.0.lock().unwrap().fail_at = Some(operation);
    }

    pub fn kill_at(&self, operation: u64) {
        self.0.lock().unwrap().killed_at = Some(operation);
    }

    pub fn kill_at_directory(&self, flush: u64) {
        self.0.lock().unwrap().killed_at_directory = Some(flush);
    }

    pub fn refuse_files(&self, kind: Option<io::ErrorKind>) {
        self.0.lock().unwrap().refuses = kind;
    }

    pub fn put_out_of_reach(&self, what: Option<(PathBuf, Reach)>) {
        self.0.lock().unwrap().out_of_reach = what;
    }

    fn reach(&self, path: &Path) -> Option<Reach> {
        let state = self.0.lock().unwrap();
        state.out_of_reach.as_ref().filter(|(what, _)| what == path).map(|&(_, reach)| reach)
    }

    pub fn spoil_a_snapshot(&self) {
        self.0.lock().unwrap().spoils_a_snapshot = true;
    }

    pub fn refuse_snapshots(&self) {
        self.0.lock().unwrap().refuses_snapshots = true;
    }

    /// From now on creating a file in the directory of this name waits; with `None` nothing waits any longer.
    pub fn hold_files(&self, directory: Option<&'static str>) {
        self.0.lock().unwrap().holds = directory;
    }

    /// How many files were to be created in the directory of this name, successfully or not.
    pub fn begun(&self, directory: &str) -> u64 {
        self.0.lock().unwrap().begun.get(directory).copied().unwrap_or(0)
    }

    /// From now on opening a segment waits, or no longer does.
    pub fn hold_segments(&self, held: bool) {
        self.0.lock().unwrap().holds_segments = held;
    }

    pub fn segments_waiting(&self) -> usize {
        self.0.lock().unwrap().segments_waiting
    }

    pub fn segments_opened(&self) -> u64 {
        self.0.lock().unwrap().segments_opened
    }

    /// How many files are open; one that is opened twice counts twice.
    pub fn open_files(&self) -> usize {
        self.0.lock().unwrap().open
    }

    /// The most files that were open since the last call.
    pub fn take_most_open(&self) -> usize {
        let mut state = self.0.lock().unwrap();
        let open = state.open;
        std::mem::replace(&mut state.most_open, open)
    }

    fn is_killed(&self) -> bool {
        let state = self.0.lock().unwrap();
        state.killed_at.is_some_and(|at| state.operations >= at)
    }

    /// Did the operation happen that was to fail, or at which the process was to be killed?
    pub fn failed(&self) -> bool {
        self.0.lock().unwrap().failed
    }

    pub fn operations(&self) -> u64 {
        self.0.lock().unwrap().operations
    }

    /// From now on flushes wait, or no longer do.
    pub fn hold_flushes(&self, held: bool) {
        self.0.lock().unwrap().held = held;
    }

    /// Bytes of the longest flush since the last call.
    pub fn take_longest_flush(&self) -> usize {
        std::mem::take(&mut self.0.lock().unwrap().longest_flush)
    }

    pub fn waiting(&self) -> usize {
        self.0.lock().unwrap().waiting
    }

    fn wait_while_held(&self) {
        self.0.lock().unwrap().waiting += 1;
        while self.0.lock().unwrap().held {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        self.0.lock().unwrap().waiting -= 1;
    }

    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.0.lock().unwrap().capacity = bytes;
    }

    pub fn used(&self) -> u64 {
        let state = self.0.lock().unwrap();
        state.names.values().map(|content| content.lock().unwrap().now.len() as u64).sum()
    }

    /// What a process sees that starts after this one was killed: everything that was written, flushed or not.
    pub fn after_kill(&self) -> SimDisk {
        let state = self.0.lock().unwrap();
        let copy = |content: &Arc<Mutex<Content>>| Arc::new(Mutex::new(content.lock().unwrap().clone()));
        let names: BTreeMap<_, _> = state.names.iter().map(|(path, content)| (path.clone(), copy(content))).collect();
        let durable_names = state.durable_names.iter().map(|(path, content)| {
            let same = state.names.get(path).is_some_and(|now| Arc::ptr_eq(now, content));
            (path.clone(), if same { names[path].clone() } else { copy(content) })
        });
        let durable_names = durable_names.collect();
        let (dirs, durable_dirs) = (state.dirs.clone(), state.durable_dirs.clone());
        SimDisk(Arc::new(Mutex::new(State { names, durable_names, dirs, durable_dirs, ..State::default() })))
    }

    /// What is there when the power comes back.
    pub fn after_power_loss(&self, rng: &mut impl Rng) -> SimDisk {
        let state = self.0.lock().unwrap();
        // Either all changes of names since the last flush of their directory happened or none: journals keep order.
        let (names, dirs) = if rng.random() {
            (state.names.clone(), state.dirs.clone())
        } else {
            let is_reached = |path: &&PathBuf| {
                let mut above = path.ancestors().skip(1).filter(|dir| !is_root(dir));
                above.all(|dir| state.durable_dirs.contains(dir))
            };
            let names = state.durable_names.iter().filter(|(path, _)| is_reached(path));
            let names = names.map(|(path, content)| (path.clone(), content.clone())).collect();
            (names, state.durable_dirs.iter().filter(is_reached).cloned().collect())
        };
        let survive = |content: &Arc<Mutex<Content>>, rng: &mut dyn rand::RngCore| {
            let content = content.lock().unwrap();
            let mut bytes = content.durable.clone();
            if content.now.len() > bytes.len() && rng.random() {
                bytes.resize(content.now.len(), 0);
            }
            for &sector in &content.dirty {
                let range = sector * SECTOR..((sector + 1) * SECTOR).min(content.now.len()).min(bytes.len());
                if !range.is_empty() && rng.random() {
                    bytes[range.clone()].copy_from_slice(&content.now[range]);
                }
            }
            Arc::new(Mutex::new(Content { now: bytes.clone(), durable: bytes, ..Content::default() }))
        };
        let names: BTreeMap<_, _> = names.iter().map(|(path, content)| (path.clone(), survive(content, rng))).collect();
        let (durable_names, durable_dirs) = (names.clone(), dirs.clone());
        SimDisk(Arc::new(Mutex::new(State { names, durable_names, dirs, durable_dirs, ..State::default() })))
    }

    pub fn files(&self) -> Vec<(PathBuf, usize)> {
        let state = self.0.lock().unwrap();
        state.names.iter().map(|(path, content)| (path.clone(), content.lock().unwrap().now.len())).collect()
    }

    /// The files whose names a flush of their directory has made durable.
    pub fn durable_files(&self) -> Vec<PathBuf> {
        self.0.lock().unwrap().durable_names.keys().cloned().collect()
    }

    /// Changes a file behind the store's back.
    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
        let state = self.0.lock().unwrap();
        edit(&mut state.names[path].lock().unwrap().now);
    }

    /// Changes a file as the disk itself does: the change is also there after a loss of power.
    pub fn edit_for_good(&self, path: &Path, edit: impl Fn(&mut Vec<u8>)) {
        let state = self.0.lock().unwrap();
        let mut content = state.names[path].lock().unwrap();
        edit(&mut content.now);
        edit(&mut content.durable);
    }

    /// From now on the disk cannot read this file, not even for those who have it open.
    pub fn rot(&self, path: &Path) {
        let state = self.0.lock().unwrap();
        if let Some(content) = state.names.get(path) {
            content.lock().unwrap().is_rotten = true;
        }
    }

    /// The disk can read everything again.
    pub fn is_sound_again(&self) {
        self.0.lock().unwrap().names.values().for_each(|content| content.lock().unwrap().is_rotten = false);
    }

    pub fn delete(&self, path: &Path) {
        let mut state = self.0.lock().unwrap();
        state.names.remove(path).unwrap();
        state.durable_names.remove(path);
    }

    pub fn swap(&self, one: &Path, other: &Path) {
        let mut state = self.0.lock().unwrap();
        let (first, second) = (state.names[one].clone(), state.names[other].clone());
        state.names.insert(one.into(), second);
        state.names.insert(other.into(), first);
    }

    /// Counts an operation. Returns an error if it is the one to fail.
    fn count(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.operations += 1;
        if state.killed_at.is_some_and(|at| state.operations >= at) {
            state.failed = true;
            return Err(io::Error::other("killed"));
        }
        if state.fail_at == Some(state.operations) {
            state.failed = true;
            return Err(io::Error::other("injected"));
        }
        Ok(())
    }

    fn room(&self, more: usize) -> io::Result<()> {
        let capacity = self.0.lock().unwrap().capacity;
        match capacity {
            Some(capacity) if self.used() + more as u64 > capacity => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn file(&self, content: Arc<Mutex<Content>>, reach: Option<Reach>) -> Arc<dyn DiskFile> {
        let mut state = self.0.lock().unwrap();
        state.open += 1;
        state.most_open = state.most_open.max(state.open);
        drop(state);
        Arc::new(SimFile { disk: self.clone(), content, reach })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.0.lock().unwrap().open -= 1;
    }
}

/// Directories that always exist.
fn is_root(dir: &Path) -> bool {
    ["/", ".", ""].map(Path::new).contains(&dir)
}

fn lies_in(path: &Path, dir: &Path) -> bool {
    path.parent().is_some_and(|above| above == dir || (above.as_os_str().is_empty() && dir == Path::new(".")))
}

#[derive(Debug)]
struct SimLock(SimDisk, PathBuf);

impl HeldDirectory for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().locked.remove(&self.1);
    }
}

impl Disk for SimDisk {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        if self.reach(dir).is_some() {
            return Err(io::Error::other("out of reach"));
        }
        let state = self.0.lock().unwrap();
        if !state.dirs.contains(dir) && !is_root(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = state.names.keys().chain(&state.dirs).filter(|path| lies_in(path, dir));
        Ok(inside.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.count()?;
        let mut state = self.0.lock().unwrap();
        let is_above = |above: &Path| is_root(above) || state.dirs.contains(above);
        if !dir.parent().is_some_and(is_above) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.dirs.insert(dir.into());
        Ok(())
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if path.extension().is_some_and(|end| end == "seg") {
            self.0.lock().unwrap().segments_waiting += 1;
            while self.0.lock().unwrap().holds_segments {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
            let mut state = self.0.lock().unwrap();
            state.segments_waiting -= 1;
            state.segments_opened += 1;
        }
        let reach = self.reach(path);
        if reach == Some(Reach::Opening) {
            return Err(io::Error::other("out of reach"));
        }
        let mut state = self.0.lock().unwrap();
        let content = state.names.get(path).cloned();
        if let Some(content) = &content
            && path.parent().is_some_and(|dir| dir.ends_with("snap"))
            && std::mem::take(&mut state.spoils_a_snapshot)
        {
            content.lock().unwrap().now[200] ^= 1;
        }
        drop(state);
        let content = content.ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(content, reach))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.count()?;
        let directory = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let is_snapshot = directory == "snap";
        *self.0.lock().unwrap().begun.entry(directory.clone()).or_default() += 1;
        while self.0.lock().unwrap().holds == Some(&directory) {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        if let Some(kind) = self.0.lock().unwrap().refuses {
            return Err(kind.into());
        }
        if is_snapshot && self.0.lock().unwrap().refuses_snapshots {
            return Err(io::Error::other("no snapshots"));
        }
        let content = Arc::new(Mutex::new(Content::default()));
        self.0.lock().unwrap().names.insert(path.into(), content.clone());
        Ok(self.file(content, None))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.count()?;
        let mut state = self.0.lock().unwrap();
        let content = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.into(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.count()?;
        self.0.lock().unwrap().names.remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        {
            let mut state = self.0.lock().unwrap();
            state.directories_flushed += 1;
            if state.killed_at_directory == Some(state.directories_flushed) {
                state.killed_at = Some(state.operations + 1);
            }
        }
        self.count()?;
        let mut state = self.0.lock().unwrap();
        let inside = |path: &Path| lies_in(path, dir);
        let made: Vec<_> = state.dirs.iter().filter(|path| inside(path)).cloned().collect();
        state.durable_dirs.extend(made);
        state.durable_names.retain(|path, _| !inside(path));
        let now: Vec<_> =
            state.names.iter().filter(|(path, _)| inside(path)).map(|(p, c)| (p.clone(), c.clone())).collect();
        state.durable_names.extend(now);
        Ok(())
    }

    fn lock(&self, dir: &Path, _owner: &str) -> io::Result<Result<DirectoryLock, String>> {
        let mut state = self.0.lock().unwrap();
        if !state.locked.insert(dir.into()) {
            return Ok(Err("process 1".into()));
        }
        Ok(Ok(Arc::new(SimLock(self.clone(), dir.into()))))
    }
}

impl SimFile {
    fn put(&self, bytes: &[u8], at: usize) {
        let mut content = self.content.lock().unwrap();
        let end = at + bytes.len();
        if content.now.len() < end {
            content.now.resize(end, 0);
        }
        content.now[at..end].copy_from_slice(bytes);
        content.dirty.extend(at / SECTOR..end.div_ceil(SECTOR));
    }
}

impl DiskFile for SimFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.content.lock().unwrap().now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let is_out_of_reach = match self.reach {
            Some(Reach::Opening | Reach::Reading) => true,
            Some(Reach::ReadingAt(places)) => places.iter().any(|place| (at..at + buffer.len() as u64).contains(place)),
            None => false,
        };
        if is_out_of_reach {
            return Err(io::Error::other("out of reach"));
        }
        let content = self.content.lock().unwrap();
        if content.is_rotten {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let rest = content.now.get(at as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let growth = (at as usize + bytes.len()).saturating_sub(self.content.lock().unwrap().now.len());
        self.disk.room(growth)?;
        if let Err(error) = self.disk.count() {
            if self.disk.is_killed() {
                return Err(error);
            }
            // A short write leaves part of the bytes.
            self.put(&bytes[..bytes.len() / 2], at as usize);
            return Err(error);
        }
        self.put(bytes, at as usize);
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.disk.count()?;
        let growth = (length as usize).saturating_sub(self.content.lock().unwrap().now.len());
        self.disk.room(growth)?;
        self.content.lock().unwrap().now.resize(length as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.wait_while_held();
        let failed = self.disk.count();
        if self.disk.is_killed() {
            // The killed process flushed nothing; the cache is still to be flushed.
            return failed;
        }
        let mut content = self.content.lock().unwrap();
        let dirty = std::mem::take(&mut content.dirty);
        failed?;
        let flushed = dirty.len() * SECTOR;
        let length = content.now.len();
        content.durable.resize(length, 0);
        for sector in dirty {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(length);
            let Content { now, durable, .. } = &mut *content;
            durable[range.clone()].copy_from_slice(&now[range]);
        }
        // Elsewhere the disk is locked before a content, so release the content first.
        drop(content);
        let mut state = self.disk.0.lock().unwrap();
        state.longest_flush = state.longest_flush.max(flushed);
        Ok(())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let state = self.disk.0.lock().unwrap();
        Ok(state.names.get(path).is_some_and(|content| Arc::ptr_eq(content, &self.content)))
    }
}
