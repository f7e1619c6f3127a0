//! TLS to Redis: whom this server trusts, what it shows of itself, and how a connection is made or, in words, why there is none.
//!
//! Connections are made every second (to sentinels and members of a cluster), on the thread that commits. So the files and
//! the system's roots are read at the start, and again only when a file was replaced. The handshake is done here, and the
//! redis crate gets a stream that is already encrypted. Nothing can turn off the verification of a certificate.
//!
//! *A certificate is replaced on disk.* Existing connections go on; the next one shows, and trusts, what is in the files
//! now. A certificate and its key are two files: while they do not match, what was read before is used. The same is true if
//! the disk with the files hangs: they are checked on a thread of their own, one check at a time, and nobody waits long for it.
//!
//! Neighbours: `place` reads from the URL whether TLS is wanted, `connect` calls this module; `refusal` has the words.

mod ends;
mod files;

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use self::ends::end_of;
pub use self::ends::{CertificateEnd, NearEnd};
pub use self::files::{TlsEnds, TlsFiles};
use self::files::{TlsProblem, TlsStamps};
use super::refusal::{WayRefusal, Whom};
use super::shared::locked;
use crate::seldom::Seldom;

/// The longest first answer that is read: the line that refuses a connection.
const FIRST_LINE_BYTES_MAX: usize = 512;

/// How long to wait for a check of the files.
const LOOKS_WITHIN: Duration = Duration::from_millis(500);
/// How long a new connection waits for one: a small part of the time in which the connection must be made.
const CONNECTION_WAITS: Duration = Duration::from_millis(50);

/// How often it is reported that a certificate expires soon.
const SAID_EVERY: RangeInclusive<Duration> = Duration::from_hours(6)..=Duration::from_hours(24);
/// How often it is reported that the files cannot be read.
const UNREAD_SAID_EVERY: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_mins(10);

/// How every server of a place is reached with TLS.
pub(super) struct RedisTls {
    files: TlsFiles,
    held: Mutex<Held>,
    /// Held while the files are checked.
    looks: Arc<tokio::sync::Mutex<()>>,
    own_ends: Seldom,
    others_end: Seldom,
    unread: Seldom,
}

struct Held {
    connector: TlsConnector,
    ends: TlsEnds,
    /// The stamps of the files when they were read.
    read: TlsStamps,
    /// The stamps of the files when their content last could not be used.
    unfit: Option<TlsStamps>,
    /// The certificate of the last server that was reached, if it expires soon.
    others_end: Option<NearEnd>,
}

impl Held {
    /// Reads the files. The stamps were taken before reading: a write meanwhile changes them.
    fn of(files: &TlsFiles, read: TlsStamps) -> Result<Self, TlsProblem> {
        let (client, ends) = files.read()?;
        Ok(Self { connector: TlsConnector::from(Arc::new(client)), ends, read, unfit: None, others_end: None })
    }
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
    /// As for [`TlsFiles::check`]; or the system trusts nobody.
    pub(super) fn new(files: &TlsFiles) -> Result<Self, String> {
        let held = Held::of(files, files.stamps()).map_err(|problem| problem.text)?;
        let (own_ends, others_end) = (Seldom::new(SAID_EVERY), Seldom::new(SAID_EVERY));
        let (files, held, unread) = (files.clone(), Mutex::new(held), Seldom::new(UNREAD_SAID_EVERY));
        Ok(Self { files, held, looks: Arc::default(), own_ends, others_end, unread })
    }

    pub(super) fn ends(&self) -> TlsEnds {
        locked(&self.held).ends
    }

    /// The certificate of the last server that was reached, if it expires soon.
    pub(super) fn others_end(&self) -> Option<NearEnd> {
        locked(&self.held).others_end.clone()
    }

    /// Checks whether the files were replaced, and reads the new ones. Waits only a moment for a disk that hangs: until it
    /// answers, what was read before is used.
    pub(super) async fn look(self: &Arc<Self>) {
        self.look_within(LOOKS_WITHIN).await;
    }

    async fn look_within(self: &Arc<Self>, within: Duration) {
        let (tls, looks) = (Arc::clone(self), Arc::clone(&self.looks));
        let look = async {
            let turn = looks.lock_owned().await;
            let looking = tokio::task::spawn_blocking(move || {
                tls.look_at_disk();
                drop(turn);
            });
            // If it crashed, what was read before stays as well.
            drop(looking.await);
        };
        // After the time limit the check goes on by itself.
        let _ = tokio::time::timeout(within, look).await;
    }

    /// Reads the files as they are now, which may block. If they cannot be used, what was read before stays.
    fn look_at_disk(&self) {
        self.look_by(Held::of);
    }

    fn look_by(&self, read: impl FnOnce(&TlsFiles, TlsStamps) -> Result<Held, TlsProblem>) {
        let stamps = self.files.stamps();
        let is_known = {
            let held = locked(&self.held);
            stamps == held.read || held.unfit.as_ref() == Some(&stamps)
        };
        let read = if is_known { None } else { Some(read(&self.files, stamps.clone())) };
        // Only now, because connections that are made meanwhile need this lock.
        let mut held = locked(&self.held);
        if let Some(read) = read {
            match read {
                Ok(read) => {
                    *held = Held { others_end: held.others_end.take(), ..read };
                    tracing::info!(
                        "the files of TLS to Redis are other ones: connections from now on are made by them"
                    );
                }
                // Nothing is known of their content, so they are read again at the next look.
                Err(TlsProblem { text: problem, may_pass: true }) => {
                    if let Some(unsaid) = self.unread.turn() {
                        tracing::warn!(
                            problem,
                            unsaid,
                            "the files of TLS to Redis are other ones and cannot be read yet: what was read of them before is used"
                        );
                    }
                }
                Err(TlsProblem { text: problem, may_pass: false }) => {
                    held.unfit = Some(stamps);
                    tracing::warn!(
                        problem,
                        "the files of TLS to Redis are other ones and cannot be used: what was read of them before is"
                    );
                }
            }
        }
        let near = held.ends.near();
        if !near.is_empty() && self.own_ends.turn().is_some() {
            near.iter().for_each(|problem| tracing::warn!("{problem}"));
        }
    }

    async fn connector(self: &Arc<Self>) -> TlsConnector {
        self.look_within(CONNECTION_WAITS).await;
        locked(&self.held).connector.clone()
    }

    /// Checks how long the certificate of a server is still valid.
    fn see(&self, whom: &Whom<'_>, stream: &TlsStream<TcpStream>) {
        let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
        let ends = shown.and_then(end_of).and_then(CertificateEnd::near);
        let near = ends.map(|ends| {
            let seen = format!("the certificate of {} {ends}", whom.at());
            NearEnd { seen, hint: "give Redis a new one" }
        });
        if let Some(near) = &near
            && self.others_end.turn().is_some()
        {
            tracing::warn!("{near}");
        }
        locked(&self.held).others_end = near;
    }

    /// A connection that is made by `end`, and over which one answer has come.
    pub(super) async fn connect(
        self: &Arc<Self>,
        (host, port): (&str, u16),
        settings: &TcpSettings,
        end: Instant,
    ) -> io::Result<TlsStream<TcpStream>> {
        let whom = Whom { host, port, files: &self.files };
        let refused = |refusal| io::Error::other::<WayRefusal>(refusal);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| refused(whom.no_name()))?;
        let socket = timeout_at(end, reach(host, port, settings)).await??;
        let connector = timeout_at(end, self.connector()).await?;
        let mut stream = match timeout_at(end, connector.connect(name, socket)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(whom.in_handshake(&error).map_or(error, refused)),
            Err(_) => return Err(refused(whom.silent())),
        };
        // The server says whether it accepts this client's certificate only after its own part of the handshake, and then
        // hangs up. A write at that time may fail before the server's reason was read.
        match timeout_at(end, first_line(&mut stream)).await? {
            Ok(line) if ["-ERR", "-DENIED"].iter().any(|begins| line.starts_with(begins)) => {
                Err(io::Error::other(line.trim_start_matches('-').trim_end().to_owned()))
            }
            Ok(_) => {
                self.see(&whom, &stream);
                Ok(stream)
            }
            Err(error) => Err(whom.behind_handshake(&error).map_or(error, refused)),
        }
    }
}

/// A connection to the first address of a host that accepts one. All are tried at once, as the redis crate does.
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
            // The task crashed, so it has no result.
            Err(_) => {}
        }
    }
    Err(last)
}

/// Configures a socket as the redis crate does with its own.
fn set(socket: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(settings.nodelay())?;
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    socket.set_tcp_user_timeout(settings.user_timeout())
}

/// Sends a command that every client gets an answer to, if only a refusal, and reads the answer.
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
            // What the server said before it hung up matters more than the fact that it did.
            Err(error) if asked.is_ok() || error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(_) => break,
        }
    }
    asked.map(|()| String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests;
