//! The checksum of an export: the CRC-32 of all lines before the last one, which contains it.
//!
//! It covers the text of the lines, each with one line feed: an editor that changed the line ends, or added a byte order
//! mark, leaves it valid.

/// The member of the last line that contains it.
pub const MEMBER: &str = "crc32";

/// The checksum of the lines so far.
#[derive(Debug, Clone, Default)]
pub struct LinesSum(crc32fast::Hasher);

impl LinesSum {
    /// Adds a line, given without its end.
    pub fn add(&mut self, line: &str) {
        self.0.update(line.as_bytes());
        self.0.update(b"\n");
    }

    /// As the last line contains it.
    pub fn text(&self) -> String {
        format!("{:08x}", self.0.clone().finalize())
    }
}
