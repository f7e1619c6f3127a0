//! The secret that all nodes of a cluster share, out of a file.
//!
//! It is never printed, logged or sent: `Debug` hides it, and `handshake` proves to know it.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::limits::{CLUSTER_SECRET_BYTES_MAX, CLUSTER_SECRET_BYTES_MIN};

/// The cluster's secret.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Why there is no secret. `Display` says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("the cluster's secret cannot be read from {}: {source}; `--cluster-secret-file` names a file with it", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Too short or too long.
    #[error(
        "the cluster's secret in {} has {bytes} bytes without the blanks around it; allowed is {CLUSTER_SECRET_BYTES_MIN} to \
         {CLUSTER_SECRET_BYTES_MAX}, as `openssl rand -base64 32` makes them", .path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// How long it is.
        bytes: usize,
    },
}

impl Secret {
    /// The secret of these bytes without the blanks around them, or none where it is too short or too long.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let trimmed = bytes.trim_ascii();
        let fits = (CLUSTER_SECRET_BYTES_MIN..=CLUSTER_SECRET_BYTES_MAX).contains(&trimmed.len());
        fits.then(|| Self(trimmed.to_vec()))
    }

    /// Reads a file. Others than its owner may be able to read it too: that is said in the log, and left as it is.
    ///
    /// # Errors
    /// It cannot be read, or is too short or too long.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let (secret, open) = Self::read_with_mode(path)?;
        if let Some(mode) = open {
            tracing::warn!(
                path = %path.display(), mode = format_args!("{mode:03o}"),
                "others than its owner may read the cluster's secret; chmod 600"
            );
        }
        Ok(secret)
    }

    /// Reads a file, and tells its mode where others than its owner may read or write it.
    ///
    /// # Errors
    /// It cannot be read, or is too short or too long.
    pub fn read_with_mode(path: &Path) -> Result<(Self, Option<u32>), SecretError> {
        let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.mode();
        let mut bytes = Vec::new();
        // One byte and some blanks more than may be, so that a file without end is not read to it.
        let most = 2 * CLUSTER_SECRET_BYTES_MAX as u64;
        file.take(most).read_to_end(&mut bytes).map_err(unreadable)?;
        let secret = Self::new(&bytes);
        let secret =
            secret.ok_or_else(|| SecretError::Length { path: path.to_owned(), bytes: bytes.trim_ascii().len() })?;
        Ok((secret, others_may_read(mode).then_some(mode & 0o777)))
    }

    /// For the proof, and nothing else.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn others_may_read(mode: u32) -> bool {
    mode & 0o077 != 0
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_secret_is_what_stands_between_the_blanks() {
        let secret = Secret::read(file(" \n0123456789abcdef\r\n").path()).unwrap();
        assert_eq!(secret.bytes(), b"0123456789abcdef");
        assert!(!format!("{secret:?}").contains("0123"));
    }

    #[test]
    fn a_short_long_or_missing_secret_is_refused_and_not_shown() {
        for text in ["", "hush-hush-hush!", &"hush".repeat(4_000)] {
            let problem = Secret::read(file(text).path()).unwrap_err().to_string();
            assert!(problem.contains("allowed is 16 to 4096") && !problem.contains("hush"), "{problem}");
        }
        let problem = Secret::read(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(problem.contains("/no/such/file") && problem.contains("--cluster-secret-file"), "{problem}");
    }

    #[test]
    fn a_file_that_others_may_read_is_noticed() {
        assert!(others_may_read(0o100_640) && others_may_read(0o100_604) && others_may_read(0o100_620));
        assert!(!others_may_read(0o100_600) && !others_may_read(0o100_400));
    }
}
