//! The files that TLS to Redis needs: what they must contain, and whether they have changed.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use x509_parser::x509::X509Version;

use super::ends::{CertificateEnd, NearEnd, end_of, version_of};

/// The files that TLS to Redis needs. An empty path means none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates (PEM) of the authorities that sign for Redis. None: those that the system trusts.
    pub ca: PathBuf,
    /// The certificate (PEM) that Redis is shown, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its key (PEM).
    pub key: PathBuf,
}

impl TlsFiles {
    /// Do these files contain what they must?
    ///
    /// # Errors
    /// A sentence that names the setting, its value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let Found { roots, shown, .. } = self.found()?;
        self.client(roots.unwrap_or_else(RootCertStore::empty), shown)?;
        Ok(())
    }

    /// When the certificates in them expire.
    ///
    /// # Errors
    /// As for [`TlsFiles::check`].
    pub fn ends(&self) -> Result<TlsEnds, String> {
        Ok(self.found()?.ends)
    }

    /// What a handshake needs, and when it expires.
    ///
    /// # Errors
    /// As for [`TlsFiles::check`]; or the system trusts nobody.
    pub(super) fn read(&self) -> Result<(ClientConfig, TlsEnds), TlsProblem> {
        let Found { roots, shown, ends } = self.found()?;
        Ok((self.client(roots.map_or_else(roots_of_system, Ok)?, shown)?, ends))
    }

    pub(super) fn stamps(&self) -> TlsStamps {
        TlsStamps([&self.ca, &self.certificate, &self.key].map(|path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec()))
        }))
    }

    fn ca(&self) -> Setting<'_> {
        Setting { key: "store.redis_ca", path: &self.ca, allowed: "a file of certificates (PEM)" }
    }

    fn certificate(&self) -> Setting<'_> {
        let path = &self.certificate;
        Setting { key: "store.redis_certificate", path, allowed: "a file of certificates (PEM)" }
    }

    /// Reads the certificates, each file once.
    pub(super) fn found(&self) -> Result<Found, TlsProblem> {
        let mut found = Found::default();
        let signers = self.ca();
        if !is_none(signers.path) {
            let mut roots = RootCertStore::empty();
            for certificate in signers.certificates()? {
                // Of several authorities one may have expired long ago: the last to expire counts.
                found.ends.ca = found.ends.ca.max(end_of(&certificate));
                roots
                    .add(certificate)
                    .map_err(|_| signers.wrong("which has something else where a certificate is to be"))?;
            }
            found.roots = Some(roots);
        }
        if self.shows() {
            found.shown = self.certificate().certificates()?;
            if found.shown.first().and_then(version_of).is_some_and(|version| version != X509Version::V3) {
                let what = "which has a certificate of version 1 of X.509, and TLS takes none but of version 3: sign it with \
                            extensions (`openssl x509 -req … -extfile FILE`)";
                return Err(self.certificate().wrong(what).into());
            }
            // The first one is this server's own.
            found.ends.certificate = found.shown.first().and_then(end_of);
        }
        Ok(found)
    }

    fn shows(&self) -> bool {
        !(is_none(&self.certificate) && is_none(&self.key))
    }

    fn client(&self, roots: RootCertStore, shown: Vec<CertificateDer<'static>>) -> Result<ClientConfig, TlsProblem> {
        // Named here, so that other crates of the program do not determine the provider.
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = builder.with_root_certificates(roots);
        if !self.shows() {
            return Ok(whole_handshakes(builder.with_no_client_auth()));
        }
        let certificate = self.certificate();
        let allowed = "a file with a private key (PEM) that is not encrypted";
        let key = Setting { key: "store.redis_key", path: &self.key, allowed };
        let client = builder.with_client_auth_cert(shown, key.private_key()?).map_err(|error| {
            key.wrong(&format!("which does not fit `{}`, {:?} ({error})", certificate.key, certificate.path))
        })?;
        Ok(whole_handshakes(client))
    }
}

/// A resumed session shows no certificate: one that has expired since, or whose authority is no longer trusted, would be
/// accepted for as long as Redis knows the session.
fn whole_handshakes(mut client: ClientConfig) -> ClientConfig {
    client.resumption = Resumption::disabled();
    client
}

#[derive(Default)]
pub(super) struct Found {
    /// The authorities in the file; none if there is no file.
    pub(super) roots: Option<RootCertStore>,
    shown: Vec<CertificateDer<'static>>,
    ends: TlsEnds,
}

/// When the certificates of the files expire; none if there is no file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TlsEnds {
    /// When the last authority expires: after that nobody is trusted.
    pub ca: Option<CertificateEnd>,
    /// The certificate that Redis is shown.
    pub certificate: Option<CertificateEnd>,
}

impl TlsEnds {
    /// Those that have expired, or will soon.
    pub fn near(&self) -> Vec<NearEnd> {
        let ends = [("store.redis_ca", self.ca), ("store.redis_certificate", self.certificate)];
        let near = ends.into_iter().filter_map(|(key, end)| Some((key, end?.near()?)));
        let hint = "put another one into the file, which is read again by itself";
        near.map(|(key, ends)| NearEnd { seen: format!("the certificate of `{key}` {ends}"), hint }).collect()
    }
}

/// Why the files cannot be used.
#[derive(Debug)]
pub(super) struct TlsProblem {
    pub(super) text: String,
    /// It is not the content of these very files: another attempt may succeed with them, as when too many files were open.
    pub(super) may_pass: bool,
}

impl From<String> for TlsProblem {
    fn from(text: String) -> Self {
        Self { text, may_pass: false }
    }
}

impl From<TlsProblem> for String {
    fn from(problem: TlsProblem) -> Self {
        problem.text
    }
}

/// Which files they are, and since when, including changes of rights; none for a file that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TlsStamps([Option<TlsStamp>; 3]);

/// Device, inode number, length, and last change in seconds and nanoseconds.
type TlsStamp = (u64, u64, u64, i64, i64);

fn is_none(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// A setting that names a file. The content of a file is never shown: it may be a key.
struct Setting<'a> {
    key: &'static str,
    path: &'a Path,
    allowed: &'static str,
}

impl Setting<'_> {
    fn wrong(&self, what: &str) -> String {
        format!("`{}` is {:?}, {what}; it must be {}", self.key, self.path, self.allowed)
    }

    fn bytes(&self) -> Result<Vec<u8>, TlsProblem> {
        std::fs::read(self.path).map_err(|error| TlsProblem {
            text: self.wrong(&format!("which cannot be read: {error}")),
            // A file that is missing has other stamps once it is there.
            may_pass: error.kind() != ErrorKind::NotFound,
        })
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes()?).collect();
        let certificates = certificates.map_err(|_| self.wrong("which is broken off, or no PEM"))?;
        if certificates.is_empty() { Err(self.wrong("which has no certificate").into()) } else { Ok(certificates) }
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsProblem> {
        Ok(PrivateKeyDer::from_pem_slice(&self.bytes()?).map_err(|_| self.wrong("which has none"))?)
    }
}

fn roots_of_system() -> Result<RootCertStore, TlsProblem> {
    let (mut roots, found) = (RootCertStore::empty(), rustls_native_certs::load_native_certs());
    // One odd certificate must not prevent trust in the others.
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        let text = format!(
            "this system has no certificates that it trusts{why}; name the file of who signs for Redis by `store.redis_ca`"
        );
        // No stamps are taken of where the system has them.
        return Err(TlsProblem { text, may_pass: true });
    }
    Ok(roots)
}
