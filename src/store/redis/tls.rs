//! TLS to Redis: whom this server trusts, what it shows of itself, and a connection, or in words why there is none.
//!
//! Connections are made every second (sentinels, members of a cluster), on the thread that commits: so files, and the system's
//! roots, are read at the start and again only when a file became another one, and the handshake is done here; the redis crate
//! is given a stream that is encrypted already. Nothing turns the check of a certificate off.
//!
//! *A certificate is exchanged on disk.* Connections that stand go on; the next one shows, and trusts, what lies there now. A
//! certificate and its key are two files: while they do not fit each other what was read before is used. The same where the disk
//! hangs on which they lie: they are looked at on a thread for that, by one at a time, and nobody waits for it for long.
//!
//! Neighbours: `place` reads from the URL whether it is wanted, `connect` calls it; `refusal` has the words.

mod ends;
mod files;

use std::fmt;
use std::io;
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
use self::files::TlsStamps;
pub use self::files::{TlsEnds, TlsFiles};
use super::refusal::{WayRefusal, Whom};
use super::shared::locked;
use crate::telemetry::Seldom;

/// Longest first answer that is read: the line that refuses a connection.
const FIRST_LINE_BYTES_MAX: usize = 512;

/// How long is waited for a look at the files.
const LOOKS_WITHIN: Duration = Duration::from_millis(500);

/// How often it is said that a certificate ends soon.
const SAID_EVERY: std::ops::RangeInclusive<Duration> = Duration::from_hours(6)..=Duration::from_hours(24);

/// How every server of a place is reached over TLS.
pub(super) struct RedisTls {
    files: TlsFiles,
    held: Mutex<Held>,
    /// Whoever has it looks at the files.
    looks: Arc<tokio::sync::Mutex<()>>,
    own_ends: Seldom,
    others_end: Seldom,
}

/// What was read from the files.
struct Held {
    connector: TlsConnector,
    ends: TlsEnds,
    /// As they were then.
    read: TlsStamps,
    /// As they were when they could not be used last.
    unfit: Option<TlsStamps>,
    /// What the server that was reached last shows, if that ends soon.
    others_end: Option<NearEnd>,
}

impl Held {
    /// Reads them. Their stamps are of before: who writes beside it changes them.
    fn of(files: &TlsFiles, read: TlsStamps) -> Result<Self, String> {
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
    /// As of [`TlsFiles::check`]; or the system trusts nobody.
    pub(super) fn new(files: &TlsFiles) -> Result<Self, String> {
        let held = Held::of(files, files.stamps())?;
        let (own_ends, others_end) = (Seldom::new(SAID_EVERY), Seldom::new(SAID_EVERY));
        Ok(Self { files: files.clone(), held: Mutex::new(held), looks: Arc::default(), own_ends, others_end })
    }

    /// When what was read ends.
    pub(super) fn ends(&self) -> TlsEnds {
        locked(&self.held).ends
    }

    /// What the server that was reached last shows, if that ends soon.
    pub(super) fn others_end(&self) -> Option<NearEnd> {
        locked(&self.held).others_end.clone()
    }

    /// Looks whether other files lie there now, and reads those. A disk that hangs is waited for a moment: then what was read before
    /// stays, until it answers.
    pub(super) async fn look(self: &Arc<Self>) {
        let (tls, looks) = (Arc::clone(self), Arc::clone(&self.looks));
        let look = async {
            let turn = looks.lock_owned().await;
            let looking = tokio::task::spawn_blocking(move || {
                tls.look_at_disk();
                drop(turn);
            });
            // Where it crashed what was read before stays, too.
            drop(looking.await);
        };
        // It goes on by itself.
        let _ = tokio::time::timeout(LOOKS_WITHIN, look).await;
    }

    /// Reads what lies in the files now, which may block. Where that cannot be used, what was read of them before stays.
    fn look_at_disk(&self) {
        let stamps = self.files.stamps();
        let is_known = {
            let held = locked(&self.held);
            stamps == held.read || held.unfit.as_ref() == Some(&stamps)
        };
        let read = if is_known { None } else { Some(Held::of(&self.files, stamps.clone())) };
        // Only now: who makes a connection takes it meanwhile.
        let mut held = locked(&self.held);
        if let Some(read) = read {
            match read {
                Ok(read) => {
                    *held = Held { others_end: held.others_end.take(), ..read };
                    tracing::info!(
                        "the files of TLS to Redis are other ones: connections from now on are made by them"
                    );
                }
                Err(problem) => {
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
        self.look().await;
        locked(&self.held).connector.clone()
    }

    /// Looks how long what a server shows will do.
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

    /// A connection that is there by then, and over which one answer came.
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
        // Whether it takes what it was shown it says only after its part of the handshake, and hangs up: what is sent then may
        // fail before that is read.
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
