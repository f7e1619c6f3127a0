//! A segment that is read from front to end through one small buffer. Data is examined while it is in the processor's cache,
//! and a start needs no memory for the whole log.
//!
//! Neighbours: `recovery` and `replay` read frames, and `recovery` also looks at what follows them.

use std::path::Path;

use super::disk::{DiskFile, read_exact};
use super::frame::{self, Frame};
use super::problem;
use crate::store::StoreError;

/// Bytes that are read at once. A longer frame is read as a whole.
const PIECE_BYTES: usize = 256 << 10;

/// A part of a file in memory, which moves forward.
pub(super) struct Window<'a> {
    path: &'a Path,
    file: &'a dyn DiskFile,
    /// Nothing is read beyond this offset.
    end: u64,
    buffer: &'a mut Vec<u8>,
    /// Where in the file the buffer begins, and how many bytes of it are filled.
    from: u64,
    filled: usize,
    /// Bytes that are read at once unless more are needed.
    piece_bytes: usize,
}

/// Are these bytes all zero? Compares whole pieces, for which the C library uses wide instructions even in a build that is
/// not optimised.
fn is_blank(bytes: &[u8]) -> bool {
    const BLANK: [u8; 4_096] = [0; 4_096];
    bytes.chunks(BLANK.len()).all(|piece| piece == &BLANK[..piece.len()])
}

impl<'a> Window<'a> {
    /// Has read nothing yet, and ends at `end`. The buffer is borrowed, so that many files can share one.
    pub(super) fn new(path: &'a Path, file: &'a dyn DiskFile, end: u64, buffer: &'a mut Vec<u8>) -> Self {
        Self { path, file, end, buffer, from: 0, filled: 0, piece_bytes: PIECE_BYTES }
    }

    /// Bytes from `at` on: at least this many, unless there are fewer. Bytes before `at` are dropped.
    pub(super) fn bytes(&mut self, at: u64, least: usize) -> Result<&[u8], StoreError> {
        let left = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        let place = at.checked_sub(self.from).and_then(|place| usize::try_from(place).ok());
        let place = place.filter(|&place| place <= self.filled);
        if let Some(place) = place
            && self.filled - place >= least.min(left)
        {
            return Ok(&self.buffer[place..self.filled]);
        }
        // Bytes that are in the buffer already are not read again.
        let kept = place.map_or(0, |place| {
            self.buffer.copy_within(place..self.filled, 0);
            self.filled - place
        });
        let wanted = left.min(least.max(self.piece_bytes));
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        (self.from, self.filled) = (at, kept);
        let missing = &mut self.buffer[kept..wanted];
        read_exact(self.file, missing, at + kept as u64).map_err(problem::io("reading", self.path))?;
        self.filled = wanted;
        Ok(&self.buffer[..wanted])
    }

    /// The frame that begins at `at`, if a valid one is there.
    pub(super) fn frame(&mut self, at: u64) -> Result<Option<Frame<'_>>, StoreError> {
        let announced = Frame::announced(self.bytes(at, frame::HEADER_BYTES)?);
        let fits = |&length: &usize| at.checked_add(length as u64).is_some_and(|end| end <= self.end);
        match announced.filter(fits) {
            Some(length) => Ok(Frame::parse(self.bytes(at, length)?)),
            None => Ok(None),
        }
    }

    /// The offset after the last byte from `at` on that is not zero; `at` if there is none.
    pub(super) fn written(&mut self, at: u64) -> Result<u64, StoreError> {
        let (mut place, mut written) = (at, at);
        while place < self.end {
            let piece = self.bytes(place, 1)?;
            if !is_blank(piece) {
                let last = piece.iter().rposition(|&byte| byte != 0).unwrap_or_default();
                written = place + last as u64 + 1;
            }
            place += piece.len() as u64;
        }
        Ok(written)
    }

    /// Offset of the first valid frame that begins at `at` or anywhere after it.
    ///
    /// If nothing is written after `at`, which is how a log should end, it reads nothing. Otherwise it needs memory for
    /// everything up to the end, because a frame may end with zeros.
    pub(super) fn find_frame(&mut self, at: u64, written: u64) -> Result<Option<u64>, StoreError> {
        if written <= at {
            return Ok(None);
        }
        // Up to the end, and not only to the last byte that is not zero: a frame may end with zeros.
        let rest = usize::try_from(self.end - at).unwrap_or(usize::MAX);
        Ok(frame::find(self.bytes(at, rest)?).map(|place| at + place as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    #[derive(Debug)]
    struct Bytes(Vec<u8>);

    impl DiskFile for Bytes {
        fn length(&self) -> std::io::Result<u64> {
            Ok(self.0.len() as u64)
        }
        fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
            let rest = &self.0[at as usize..];
            let count = rest.len().min(buffer.len()).min(7_000);
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
        fn write_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
            unreachable!("it is only read")
        }
        fn allocate(&self, _: u64) -> std::io::Result<()> {
            unreachable!("it is only read")
        }
        fn sync(&self) -> std::io::Result<()> {
            unreachable!("it is only read")
        }
    }

    /// Frames of many lengths, then zeros; returns where each frame begins.
    fn log(random: &mut SmallRng) -> (Bytes, Vec<usize>) {
        let (mut bytes, mut begins) = (Vec::new(), Vec::new());
        for group in 1..60 {
            let length = if random.random_bool(0.1) { 30_000 } else { random.random_range(1..900) };
            let mut frame = vec![0; frame::HEADER_BYTES];
            frame.extend((0..length).map(|_| random.random::<u8>()));
            // A step without an event ends in this way.
            frame.push(0);
            frame::finish(&mut frame, group, 0);
            begins.push(bytes.len());
            bytes.extend(frame);
        }
        begins.push(bytes.len());
        bytes.resize(bytes.len() + random.random_range(1..40_000), 0);
        (Bytes(bytes), begins)
    }

    #[test]
    fn what_is_read_in_pieces_is_what_is_there() {
        for seed in 0..40 {
            let mut random = SmallRng::seed_from_u64(seed);
            let (file, begins) = log(&mut random);
            let (end, mut buffer) = (file.0.len() as u64, vec![0xaa; 100]);
            let mut window = Window::new(Path::new("log"), &file, end, &mut buffer);
            window.piece_bytes = random.random_range(1..20_000);
            for pair in begins.windows(2) {
                let frame = window.frame(pair[0] as u64).unwrap().expect("a frame");
                assert_eq!((frame.length, frame.group > 0), (pair[1] - pair[0], true), "seed {seed}");
            }
            let over = *begins.last().unwrap();
            assert!(window.frame(over as u64).unwrap().is_none());
            assert_eq!(window.written(over as u64).unwrap(), over as u64);
            assert_eq!(window.find_frame(over as u64, over as u64).unwrap(), None);
            // Then back to the front, and to any other place.
            for _ in 0..20 {
                let at = random.random_range(0..=file.0.len());
                let least = random.random_range(0..2_000);
                let read = window.bytes(at as u64, least).unwrap();
                assert!(read.len() >= least.min(file.0.len() - at), "seed {seed}");
                assert_eq!(read, &file.0[at..at + read.len()], "seed {seed}");
            }
            let last = file.0.iter().rposition(|&byte| byte != 0).unwrap();
            assert!(last + 1 < over, "the last frame ends with a zero");
            assert_eq!(window.written(0).unwrap(), last as u64 + 1, "seed {seed}");
        }
    }

    #[test]
    fn the_last_frame_is_found_behind_one_that_is_unreadable_although_it_ends_with_zeros() {
        let mut random = SmallRng::seed_from_u64(7);
        let (mut file, begins) = log(&mut random);
        let [.., broken, last, _] = begins[..] else { panic!("too few") };
        file.0[broken + 20] ^= 1;
        let (end, mut buffer) = (file.0.len() as u64, Vec::new());
        let mut window = Window::new(Path::new("log"), &file, end, &mut buffer);
        assert!(window.frame(broken as u64).unwrap().is_none());
        let written = window.written(broken as u64).unwrap();
        assert_eq!(window.find_frame(broken as u64, written).unwrap(), Some(last as u64));
    }

    #[test]
    fn a_length_that_reaches_over_the_end_is_no_frame() {
        let mut random = SmallRng::seed_from_u64(8);
        let (mut file, begins) = log(&mut random);
        file.0[begins[3] + 4..begins[3] + 8].copy_from_slice(&u32::MAX.to_be_bytes());
        let (end, mut buffer) = (file.0.len() as u64, Vec::new());
        let mut window = Window::new(Path::new("log"), &file, end, &mut buffer);
        assert!(window.frame(begins[3] as u64).unwrap().is_none());
        assert!(window.buffer.len() <= PIECE_BYTES);
    }
}
