//! The recorded counts, in a file of the project.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::report::document::write_file;
use crate::target::Store;

/// The count for a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// Per allocation.
    pub instructions: u64,
    /// The compiler that built the server.
    pub compiler: String,
}

/// The counts, by store.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recorded(BTreeMap<String, Count>);

impl Recorded {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub fn read(path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        serde_json::from_slice(&std::fs::read(path).map_err(named)?).map_err(|error| named(error.into()))
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_file(path, &serde_json::to_string_pretty(self)?)
    }

    /// The recorded count for a store.
    pub fn of(&self, store: Store) -> Option<&Count> {
        self.0.get(store.name())
    }

    /// Replaces the count for a store.
    pub fn note(&mut self, store: Store, instructions: u64, compiler: &str) {
        self.0.insert(store.name().to_owned(), Count { instructions, compiler: compiler.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_for_one_store_leaves_the_others() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut recorded = Recorded::default();
        recorded.note(Store::Memory, 1, "a");
        recorded.note(Store::Redis, 2, "a");
        recorded.write(file.path()).unwrap();
        let mut read = Recorded::read(file.path()).unwrap();
        read.note(Store::Memory, 3, "b");
        assert_eq!(read.of(Store::Memory), Some(&Count { instructions: 3, compiler: "b".to_owned() }));
        assert_eq!(read.of(Store::Redis), recorded.of(Store::Redis));
        assert_eq!(read.of(Store::Embedded), None);
    }
}
