//! The secret that all nodes of a cluster share, out of a file.
//!
//! It is never printed, logged or sent: `Debug` hides it, and `handshake` proves to know it.

use std::fmt;
use std::io::{self, Read};
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

/// Why there is no secret. `Display` names the setting, and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("`cluster.secret_file` is {path:?}, which cannot be read: {source}; {}", what_helps(path, source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Too short or too long.
    #[error(
        "`cluster.secret_file` is {path:?}, which has {bytes} bytes without the blanks around them; allowed is \
         {CLUSTER_SECRET_BYTES_MIN} to {CLUSTER_SECRET_BYTES_MAX}, {MADE_BY}"
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// How long it is.
        bytes: usize,
    },
}

/// How one is made.
const MADE_BY: &str = "as `head -c 32 /dev/urandom | base64` makes them, the same at all nodes";

/// What to do where it cannot be read. Where it is there and the right to it is missing, another one would be one too many.
fn what_helps(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            format!(
                "it must belong to the user of the server, and the directories above it must let him through: `chown {user} {path}` \
                 and `chmod 400 {path}` where the server is user {user}, as this process is"
            )
        }
        io::ErrorKind::NotFound => format!("allowed is a file with the secret, {MADE_BY}"),
        _ => "allowed is a file with the secret, which is the same at all nodes".to_owned(),
    }
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
        assert!(problem.contains("/no/such/file") && problem.contains("head -c 32"), "{problem}");
    }

    #[test]
    fn a_secret_that_is_there_and_not_ours_to_read_is_not_to_be_made_anew() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = SecretError::Unreadable { path: "/etc/s".into(), source: denied };
        let problem = error.to_string();
        assert!(problem.contains("`chown ") && problem.contains("chmod 400 /etc/s"), "{problem}");
        assert!(!problem.contains("head -c"), "{problem}");
    }

    #[test]
    fn a_file_that_others_may_read_is_noticed() {
        assert!(others_may_read(0o100_640) && others_may_read(0o100_604) && others_may_read(0o100_620));
        assert!(!others_may_read(0o100_600) && !others_may_read(0o100_400));
    }
}
