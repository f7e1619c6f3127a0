//! TLS to Redis: whom this server trusts, what it shows of itself, and a connection, or in words why there is none.
//!
//! The files are read once, and the system's roots too: connections are made every second (sentinels, members of a cluster),
//! on the thread that commits. So the handshake is done here, and the redis crate is given a stream that is encrypted already.
//! Nothing turns the check of a certificate off.
//!
//! Neighbours: `place` reads from the URL whether it is wanted, `connect` calls it; `refusal` has the words.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redis::io::tcp::TcpSettings;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::refusal::{TlsRefusal, Whom};

/// Longest first answer that is read: the line that refuses a connection.
const FIRST_LINE_BYTES_MAX: usize = 512;

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
        let roots = self.roots()?.unwrap_or_else(RootCertStore::empty);
        self.client(roots).map(drop)
    }

    /// Whom the file names; none where there is none.
    fn roots(&self) -> Result<Option<RootCertStore>, String> {
        if is_none(&self.ca) {
            return Ok(None);
        }
        let setting = Setting { key: "store.redis_ca", path: &self.ca, allowed: "a file of certificates (PEM)" };
        let mut roots = RootCertStore::empty();
        for certificate in setting.certificates()? {
            roots
                .add(certificate)
                .map_err(|_| setting.wrong("which has something else where a certificate is to be"))?;
        }
        Ok(Some(roots))
    }

    fn client(&self, roots: RootCertStore) -> Result<ClientConfig, String> {
        // Named here: no provider is chosen by what other crates of the program happen to bring along.
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = builder.with_root_certificates(roots);
        if is_none(&self.certificate) && is_none(&self.key) {
            return Ok(builder.with_no_client_auth());
        }
        let (certificate, key) = (&self.certificate, &self.key);
        let certificate =
            Setting { key: "store.redis_certificate", path: certificate, allowed: "a file of certificates (PEM)" };
        let allowed = "a file with a private key (PEM) that is not encrypted";
        let key = Setting { key: "store.redis_key", path: key, allowed };
        builder.with_client_auth_cert(certificate.certificates()?, key.private_key()?).map_err(|error| {
            key.wrong(&format!("which does not fit `{}`, {:?} ({error})", certificate.key, certificate.path))
        })
    }
}

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

/// How every server of a place is reached over TLS.
pub(super) struct RedisTls {
    connector: TlsConnector,
    files: TlsFiles,
}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisTls").field(&self.files).finish()
    }
}

impl RedisTls {
    /// Reads the files.
    ///
    /// # Errors
    /// As of [`TlsFiles::check`]; or the system trusts nobody.
    pub(super) fn new(files: &TlsFiles) -> Result<Self, String> {
        let roots = files.roots()?.map_or_else(roots_of_system, Ok)?;
        let client = files.client(roots)?;
        Ok(Self { connector: TlsConnector::from(Arc::new(client)), files: files.clone() })
    }

    /// A connection that is there by then, and over which one answer came.
    pub(super) async fn connect(
        &self,
        (host, port): (&str, u16),
        settings: &TcpSettings,
        end: Instant,
    ) -> io::Result<TlsStream<TcpStream>> {
        let whom = Whom { host, port, files: &self.files };
        let refused = |refusal| io::Error::other::<TlsRefusal>(refusal);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| refused(whom.no_name()))?;
        let socket = timeout_at(end, reach(host, port, settings)).await??;
        let mut stream = match timeout_at(end, self.connector.connect(name, socket)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(whom.in_handshake(&error).map_or(error, refused)),
            Err(_) => return Err(refused(whom.silent())),
        };
        // Whether it takes what it was shown it says only after its part of the handshake, and hangs up: what is sent then may
        // fail before that is read.
        match timeout_at(end, first_line(&mut stream)).await? {
            Ok(line) if ["-ERR", "-DENIED"].iter().any(|begins| line.starts_with(begins)) => {
                Err(io::Error::other(line.trim_start_matches('-').trim_end().to_owned()))
            }
            Ok(_) => Ok(stream),
            Err(error) => Err(whom.behind_handshake(&error).map_or(error, refused)),
        }
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

/// A connection to the first address of a host that takes one; all are tried at once, as the redis crate does.
async fn reach(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let mut trying: JoinSet<_> = lookup_host((host, port)).await?.map(TcpStream::connect).collect();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    while let Some(tried) = trying.join_next().await {
        match tried {
            Ok(Ok(socket)) => {
                set(&socket, settings)?;
                return Ok(socket);
            }
            Ok(Err(error)) => last = error,
            // It crashed: nothing was said.
            Err(_) => {}
        }
    }
    Err(last)
}

/// As the redis crate sets a socket of its own.
fn set(socket: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(settings.nodelay())?;
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    socket.set_tcp_user_timeout(settings.user_timeout())
}

/// Asks for what everybody is answered, if only by a refusal, and reads that.
async fn first_line(stream: &mut TlsStream<TcpStream>) -> io::Result<String> {
    let asked = async {
        stream.write_all(b"*1\r\n$4\r\nPING\r\n").await?;
        stream.flush().await
    };
    let asked = asked.await;
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') && line.len() < FIRST_LINE_BYTES_MAX {
        match stream.read_u8().await {
            Ok(byte) => line.push(byte),
            // What was said before it hung up counts more than that it did.
            Err(error) if asked.is_ok() || error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(_) => break,
        }
    }
    asked.map(|()| String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests;
