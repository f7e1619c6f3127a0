//! The secret that all nodes of a cluster share, read from a file.
//!
//! It is never printed, logged or sent: `Debug` hides it, and `handshake` only proves knowledge of it.

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

/// Why there is no secret. `Display` names the setting and says what to do.
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
        "`cluster.secret_file` is {path:?}, which has {bytes} bytes without the blanks around them; it must have \
         {CLUSTER_SECRET_BYTES_MIN} to {CLUSTER_SECRET_BYTES_MAX}, {MADE_BY}"
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// How long it is.
        bytes: usize,
    },
}

/// How to make a secret, for messages.
const MADE_BY: &str = "as `head -c 32 /dev/urandom | base64` makes it, and the same at all nodes";

/// What to do if the file cannot be read. If it exists and only permission is missing, making another secret would be wrong.
fn what_helps(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            format!(
                "it must belong to the user of the server, and the directories above it must let that user through: `chown {user} \
                 {path}` \
                 and `chmod 400 {path}` where the server is user {user}, as this process is"
            )
        }
        io::ErrorKind::NotFound => format!("it must be a file with the secret, {MADE_BY}"),
        _ => "it must be a file with the secret, which is the same at all nodes".to_owned(),
    }
}

impl Secret {
    /// The secret in these bytes, without the blanks around it. `None` if it is too short or too long.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let trimmed = bytes.trim_ascii();
        let fits = (CLUSTER_SECRET_BYTES_MIN..=CLUSTER_SECRET_BYTES_MAX).contains(&trimmed.len());
        fits.then(|| Self(trimmed.to_vec()))
    }

    /// Reads a file. If others than its owner can read or write it, the log says so, and the file is left as it is.
    ///
    /// # Errors
    /// The file cannot be read, or the secret is too short or too long.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let (secret, open) = Self::read_with_mode(path)?;
        if let Some(mode) = open {
            tracing::warn!(
                path = %path.display(), mode = format_args!("{mode:03o}"),
                "others than its owner can read the cluster's secret; use chmod 600"
            );
        }
        Ok(secret)
    }

    /// Reads a file, and returns its mode if others than its owner may read or write it.
    ///
    /// # Errors
    /// The file cannot be read, or the secret is too short or too long.
    pub fn read_with_mode(path: &Path) -> Result<(Self, Option<u32>), SecretError> {
        let unreadable = |source| SecretError::Unreadable { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.mode();
        let mut bytes = Vec::new();
        // More than is allowed, so that too long a secret is noticed, but bounded, so that an endless file is not read to
        // its end.
        let most = 2 * CLUSTER_SECRET_BYTES_MAX as u64;
        file.take(most).read_to_end(&mut bytes).map_err(unreadable)?;
        let secret = Self::new(&bytes);
        let secret =
            secret.ok_or_else(|| SecretError::Length { path: path.to_owned(), bytes: bytes.trim_ascii().len() })?;
        Ok((secret, others_may_read(mode).then_some(mode & 0o777)))
    }

    /// For the handshake's proof, and nothing else.
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
            assert!(problem.contains("it must have 16 to 4096") && !problem.contains("hush"), "{problem}");
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
