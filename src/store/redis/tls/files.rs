//! The files that TLS to Redis needs: what they are to be, and whether they are what they were.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use x509_parser::x509::X509Version;

use super::ends::{CertificateEnd, NearEnd, end_of, version_of};

/// The files that TLS to Redis needs. An empty path is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates (PEM) of those who sign for Redis. None: whom the system trusts.
    pub ca: PathBuf,
    /// The certificate (PEM) that Redis is shown, and those between it and its signer.
    pub certificate: PathBuf,
    /// Its key (PEM).
    pub key: PathBuf,
}

impl TlsFiles {
    /// Are these files what they are to be?
    ///
    /// # Errors
    /// A sentence that names the setting, what it is and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let Found { roots, shown, .. } = self.found()?;
        self.client(roots.unwrap_or_else(RootCertStore::empty), shown).map(drop)
    }

    /// When what lies in them ends.
    ///
    /// # Errors
    /// As of [`TlsFiles::check`].
    pub fn ends(&self) -> Result<TlsEnds, String> {
        self.found().map(|found| found.ends)
    }

    /// What a handshake needs, and when that ends.
    ///
    /// # Errors
    /// As of [`TlsFiles::check`]; or the system trusts nobody.
    pub(super) fn read(&self) -> Result<(ClientConfig, TlsEnds), String> {
        let Found { roots, shown, ends } = self.found()?;
        Ok((self.client(roots.map_or_else(roots_of_system, Ok)?, shown)?, ends))
    }

    /// How they stand on disk.
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
    pub(super) fn found(&self) -> Result<Found, String> {
        let mut found = Found::default();
        let signers = self.ca();
        if !is_none(signers.path) {
            let mut roots = RootCertStore::empty();
            for certificate in signers.certificates()? {
                // Of several who sign one may have ended long ago: the last to end counts.
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
                return Err(self.certificate().wrong(
                    "which has a certificate of version 1 of X.509, and TLS takes none but of version 3: sign it with extensions \
                     (`openssl x509 -req … -extfile FILE`)",
                ));
            }
            // The first is this server's own.
            found.ends.certificate = found.shown.first().and_then(end_of);
        }
        Ok(found)
    }

    /// Is Redis shown a certificate?
    fn shows(&self) -> bool {
        !(is_none(&self.certificate) && is_none(&self.key))
    }

    fn client(&self, roots: RootCertStore, shown: Vec<CertificateDer<'static>>) -> Result<ClientConfig, String> {
        // Named here: no provider is chosen by what other crates of the program happen to bring along.
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = builder.with_root_certificates(roots);
        if !self.shows() {
            return Ok(whole_handshakes(builder.with_no_client_auth()));
        }
        let certificate = self.certificate();
        let allowed = "a file with a private key (PEM) that is not encrypted";
        let key = Setting { key: "store.redis_key", path: &self.key, allowed };
        builder.with_client_auth_cert(shown, key.private_key()?).map(whole_handshakes).map_err(|error| {
            key.wrong(&format!("which does not fit `{}`, {:?} ({error})", certificate.key, certificate.path))
        })
    }
}

/// A session that is resumed shows no certificate: one that has expired since, or whose signer is trusted no more, would be accepted
/// for as long as Redis knows the session.
fn whole_handshakes(mut client: ClientConfig) -> ClientConfig {
    client.resumption = Resumption::disabled();
    client
}

/// What was read of the files.
#[derive(Default)]
pub(super) struct Found {
    /// Whom the file names; none where there is none.
    pub(super) roots: Option<RootCertStore>,
    /// What Redis is shown.
    shown: Vec<CertificateDer<'static>>,
    ends: TlsEnds,
}

/// When the certificates of the files end; none where there is no file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TlsEnds {
    /// From then on nobody is trusted: the last of those who sign.
    pub ca: Option<CertificateEnd>,
    /// What Redis is shown.
    pub certificate: Option<CertificateEnd>,
}

impl TlsEnds {
    /// What has ended, or will soon.
    pub fn near(&self) -> Vec<NearEnd> {
        let ends = [("store.redis_ca", self.ca), ("store.redis_certificate", self.certificate)];
        let near = ends.into_iter().filter_map(|(key, end)| Some((key, end?.near()?)));
        let hint = "put another one into the file, which is read again by itself";
        near.map(|(key, ends)| NearEnd { seen: format!("the certificate of `{key}` {ends}"), hint }).collect()
    }
}

/// Which files they are, and since when, rights included; none of what is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TlsStamps([Option<TlsStamp>; 3]);

/// Device, number, length, and when it was changed last, in seconds and nanoseconds.
type TlsStamp = (u64, u64, u64, i64, i64);

fn is_none(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// A setting that names a file. What lies in one is never shown: it may be a key.
struct Setting<'a> {
    key: &'static str,
    path: &'a Path,
    allowed: &'static str,
}

impl Setting<'_> {
    fn wrong(&self, what: &str) -> String {
        format!("`{}` is {:?}, {what}; allowed is {}", self.key, self.path, self.allowed)
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        std::fs::read(self.path).map_err(|error| self.wrong(&format!("which cannot be read: {error}")))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes()?).collect();
        let certificates = certificates.map_err(|_| self.wrong("which is broken off, or no PEM"))?;
        if certificates.is_empty() { Err(self.wrong("which has no certificate")) } else { Ok(certificates) }
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, String> {
        PrivateKeyDer::from_pem_slice(&self.bytes()?).map_err(|_| self.wrong("which has none"))
    }
}

fn roots_of_system() -> Result<RootCertStore, String> {
    let (mut roots, found) = (RootCertStore::empty(), rustls_native_certs::load_native_certs());
    // One that is odd keeps nobody from trusting the others.
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(format!(
            "this system has no certificates that it trusts{why}; name the file of who signs for Redis by `store.redis_ca`"
        ));
    }
    Ok(roots)
}
