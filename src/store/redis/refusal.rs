//! Why a connection to Redis cannot be made, for people: which server, what stands in the way, what to do. Mostly this
//! concerns TLS, but also a server that may want TLS while the URL has none, a URL that describes something else than what
//! is there, a server that has too many clients, and sentinels that do not say where Redis is.
//!
//! Called by `tls`, `connect`, `sentinels`, `cluster` and `link`; `failed` checks whether an error is one of these.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::sync::Arc;

use redis::{ConnectionAddr, RedisError};
use tokio_rustls::rustls::pki_types::UnixTime;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};

use super::failed::{is_denied, is_misnamed, said};
use super::tls::TlsFiles;

const NO_TLS: &str =
    "speaks no TLS; name its TLS port (`tls-port`), or begin the URL with `redis` if nothing is to be encrypted";

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct WayRefusal {
    text: String,
    about: About,
    /// Is it useless to try again?
    for_good: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Tls,
    Url,
    Sentinels,
    Room,
    User,
}

impl WayRefusal {
    fn for_good(text: String) -> Self {
        Self { text, about: About::Tls, for_good: true }
    }

    fn for_now(text: String) -> Self {
        Self { text, about: About::Tls, for_good: false }
    }

    /// The URL describes something else than what was found.
    pub(super) fn of_url(text: String) -> RedisError {
        io::Error::other(Self { text, about: About::Url, for_good: true }).into()
    }

    /// All sentinels of the URL are away, or say nothing.
    pub(super) fn of_sentinels(error: &RedisError) -> RedisError {
        let text = format!("no sentinel says which Redis is the primary ({error})");
        io::Error::other(Self { text, about: About::Sentinels, for_good: false }).into()
    }

    /// One of several servers wants another user, password or database, or does not give a right.
    fn of_user(error: &RedisError) -> Self {
        Self { text: said(error), about: About::User, for_good: false }
    }

    /// The server has as many clients as it may have.
    pub(super) fn of_room(address: &ConnectionAddr) -> RedisError {
        let text = format!(
            "{address} has as many clients as it may have (`max number of clients reached`): see who is connected (`redis-cli client \
             list`, once one of them is gone), and raise `maxclients` there"
        );
        io::Error::other(Self { text, about: About::Room, for_good: false }).into()
    }

    /// Was the server reached, and has it too many clients?
    pub(super) fn is_of_room(&self) -> bool {
        self.about == About::Room
    }

    /// What to do about it when a server is started: a sentence without its full stop that names a setting.
    pub(crate) fn hint(&self) -> &'static str {
        match self.about {
            About::Tls => {
                "`store.redis` (`--redis URL`) says where Redis is, `store.redis_ca` who signs for it, `store.redis_certificate` and \
                 `store.redis_key` what it is shown (deploy/README.md, under \"Redis over TLS\")"
            }
            About::Url => {
                "that is a setting: `store.redis` (`--redis URL`) says what is there, `redis://HOST:PORT/0` one server, \
                 `redis+sentinel://HOST:PORT,…/NAME` sentinels and what they watch, `redis+cluster://HOST:PORT,…` a cluster"
            }
            About::User => {
                "name the right user, password and database by `--redis URL` (`store.redis`), and give that user the rights it needs \
                 (deploy/README.md has the whole line, under \"Redis\"); one of the other servers may yet let this one in"
            }
            About::Room => {
                "nothing is wrong with `store.redis`: make room there (`maxclients`, in its file and by `redis-cli config set maxclients N`), \
                 then start this server again"
            }
            About::Sentinels => {
                "see that the sentinels run which `store.redis` (`--redis URL`) names, and let this server in: only they say which Redis is \
                 the primary"
            }
        }
    }

    pub(super) fn is_for_good(&self) -> bool {
        self.for_good
    }

    /// The refusal inside an error, if there is one.
    pub(super) fn of(error: &RedisError) -> Option<&Self> {
        // This is how the crate wraps errors that it did not make itself.
        let wrapped = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
        wrapped.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
    }
}

/// Why none of several servers gave an answer.
#[derive(Default)]
pub(super) struct Unanswered {
    told: Option<RedisError>,
    /// One of them may answer in a moment.
    may_pass: bool,
}

impl Unanswered {
    /// An error that somebody must act on takes precedence over one that says that a server is away.
    pub(super) fn add(&mut self, error: RedisError) {
        self.may_pass |= match WayRefusal::of(&error) {
            Some(refusal) => !refusal.for_good,
            None => !is_of_user(&error),
        };
        if self.told.as_ref().is_none_or(|told| WayRefusal::of(told).is_none() && !is_of_user(told)) {
            self.told = Some(error);
        }
    }

    /// The error to report. It is permanent only if all errors are: if several servers start at the same time, one that is
    /// not trusted, or does not let this one in, must not keep the others from being asked again.
    pub(super) fn told(self) -> Option<RedisError> {
        let told = self.told?;
        let told_for_now = match WayRefusal::of(&told) {
            _ if !self.may_pass => None,
            Some(refusal) => Some(WayRefusal { for_good: false, ..refusal.clone() }),
            None => is_of_user(&told).then(|| WayRefusal::of_user(&told)),
        };
        Some(told_for_now.map_or(told, |refusal| io::Error::other(refusal).into()))
    }
}

/// Does it take another user, password, database or right?
fn is_of_user(error: &RedisError) -> bool {
    is_misnamed(error) || is_denied(error)
}

/// Explains an error that came before the first answer of a server that is reached without TLS.
pub(super) fn without_tls(error: RedisError, address: &ConnectionAddr) -> RedisError {
    let closed = error.is_connection_dropped() && !error.is_connection_refusal();
    // The server answers with a TLS record.
    let is_strange = error.kind() == redis::ErrorKind::Parse;
    match address {
        ConnectionAddr::Tcp(host, port) if closed || is_strange => {
            let did = if closed { "hung up before it answered" } else { "answers as no Redis does" };
            let text = format!("{host}:{port} {did} ({error}); where it wants TLS the URL begins with `rediss`");
            io::Error::other(WayRefusal::for_now(text)).into()
        }
        _ => error,
    }
}

pub(super) fn joined(host: &str, port: impl Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A server, as the URL or others name it, and the files by which it is judged.
pub(super) struct Whom<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) files: &'a TlsFiles,
}

impl Whom<'_> {
    pub(super) fn at(&self) -> String {
        let Self { host, port, .. } = self;
        joined(host, port)
    }

    /// No certificate can be issued for such a host.
    pub(super) fn no_name(&self) -> WayRefusal {
        let host = self.host;
        WayRefusal::for_good(format!("no certificate can be for `{host}`, which is neither a name nor an address"))
    }

    /// The server was reached, but said nothing.
    pub(super) fn silent(&self) -> WayRefusal {
        let at = self.at();
        WayRefusal::for_now(format!("{at} does not answer the TLS handshake: it stands still, or {NO_TLS}"))
    }

    /// What an error of the handshake means; none if it means no more than it says.
    pub(super) fn in_handshake(&self, error: &io::Error) -> Option<WayRefusal> {
        let at = self.at();
        let Some(error) = of_rustls(error) else {
            let text =
                || format!("{at} hangs up in the TLS handshake: it stops, has no room (`maxclients`), or {NO_TLS}");
            return hung_up(error).then(|| WayRefusal::for_now(text()));
        };
        Some(match error {
            rustls::Error::InvalidCertificate(wrong) => self.certificate(wrong),
            rustls::Error::AlertReceived(alert) => self.alert(*alert),
            rustls::Error::InvalidMessage(_) => {
                WayRefusal::for_now(format!("{at} answers the TLS handshake with something else: it {NO_TLS}"))
            }
            rustls::Error::PeerIncompatible(_) => WayRefusal::for_good(format!(
                "{at} speaks neither TLS 1.2 nor 1.3 as this server does ({error}); see `tls-protocols` and `tls-ciphers` of Redis"
            )),
            error => WayRefusal::for_good(format!("TLS with {at} fails: {error}")),
        })
    }

    /// What an error of the first answer means.
    pub(super) fn behind_handshake(&self, error: &io::Error) -> Option<WayRefusal> {
        match of_rustls(error) {
            Some(rustls::Error::AlertReceived(alert)) => Some(self.alert(*alert)),
            Some(error) => Some(WayRefusal::for_good(format!("TLS with {} fails: {error}", self.at()))),
            None => hung_up(error).then(|| {
                let text = format!("{} hung up behind the TLS handshake; {}", self.at(), self.shown());
                WayRefusal::for_now(text)
            }),
        }
    }

    /// What to check if the server does not accept this client.
    fn shown(&self) -> String {
        let certificate = &self.files.certificate;
        if certificate.as_os_str().is_empty() {
            return "if it wants a certificate of its clients (`tls-auth-clients`), set `store.redis_certificate` and \
                    `store.redis_key`"
                .to_owned();
        }
        format!(
            "it was shown {certificate:?} (`store.redis_certificate`): see that it has not expired, and that `tls-ca-cert-file` of \
             Redis has who signed it"
        )
    }

    fn alert(&self, alert: AlertDescription) -> WayRefusal {
        let (at, shows) = (self.at(), !self.files.certificate.as_os_str().is_empty());
        WayRefusal::for_good(match alert {
            AlertDescription::CertificateRequired if !shows => {
                format!("{at} wants a certificate of its clients; set `store.redis_certificate` and `store.redis_key`")
            }
            AlertDescription::ProtocolVersion => {
                format!("{at} speaks neither TLS 1.2 nor 1.3; see `tls-protocols` of Redis")
            }
            alert => format!("{at} refuses this server in the TLS handshake ({alert:?}); {}", self.shown()),
        })
    }

    fn certificate(&self, wrong: &CertificateError) -> WayRefusal {
        let (at, host) = (self.at(), self.host);
        // The clock may be set a moment after the machine has started.
        let of_clock = matches!(
            wrong,
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        );
        let text = match wrong {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                let ca = &self.files.ca;
                if ca.as_os_str().is_empty() {
                    format!(
                        "the certificate of {at} is signed by nobody whom this system trusts; name the file of who signed it by \
                         `store.redis_ca` (whom the system trusts is read at the start: if that has changed, start again)"
                    )
                } else {
                    format!(
                        "the certificate of {at} is signed by nobody in {ca:?} (`store.redis_ca`); name the file of who signed it"
                    )
                }
            }
            CertificateError::NotValidForName => {
                format!("the certificate of {at} is not for `{host}`; {}", for_name(host))
            }
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
                let names = if names.is_empty() {
                    "no name (`subjectAltName`; a common name does not count)".to_owned()
                } else {
                    names.join(", ")
                };
                format!("the certificate of {at} is for {names}, not for `{host}`; {}", for_name(host))
            }
            CertificateError::Expired => {
                format!("the certificate of {at} has expired; give Redis a new one, and see the clock of this machine")
            }
            CertificateError::ExpiredContext { not_after, .. } => format!(
                "the certificate of {at} has expired at {}; give Redis a new one, and see the clock of this machine",
                time(*not_after)
            ),
            CertificateError::NotValidYet => {
                format!("the certificate of {at} is not valid yet; see the clock of this machine")
            }
            CertificateError::NotValidYetContext { not_before, .. } => {
                format!("the certificate of {at} is valid from {} on; see the clock of this machine", time(*not_before))
            }
            wrong if wrong.to_string().contains("CaUsedAsEndEntity") => format!(
                "the certificate of {at} is that of a CA (`CA:TRUE`), which is taken for no server's; give Redis one that is signed \
                 by it"
            ),
            wrong if wrong.to_string().contains("UnsupportedCertVersion") => format!(
                "the certificate of {at} is of version 1 of X.509, which has no name that counts; give Redis one of version 3, with a \
                 `subjectAltName` (`openssl x509 -req … -extfile FILE`)"
            ),
            wrong => format!("the certificate of {at} is refused: {wrong}; give Redis another one"),
        };
        if of_clock { WayRefusal::for_now(text) } else { WayRefusal::for_good(text) }
    }
}

fn for_name(host: &str) -> String {
    format!("name Redis as its certificate does, or give it one for `{host}`")
}

/// `redis.example` of `DnsName("redis.example")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"')
}

/// A time for people, UTC.
pub(super) fn time(at: UnixTime) -> String {
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "no time".to_owned(), |at| at.to_string())
}

fn of_rustls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn hung_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::super::failed::store_error;
    use super::*;
    use crate::store::StoreError;

    fn reset() -> RedisError {
        io::Error::from(io::ErrorKind::ConnectionReset).into()
    }

    #[test]
    fn a_refusal_is_found_in_the_error_that_the_redis_crate_made_of_it() {
        let refusal = WayRefusal::for_good("no".to_owned());
        assert_eq!(WayRefusal::of(&io::Error::other(refusal.clone()).into()), Some(&refusal));
        assert_eq!(WayRefusal::of(&reset()), None);
        assert_eq!(WayRefusal::of(&RedisError::from((redis::ErrorKind::Io, "no"))), None);
    }

    #[test]
    fn of_several_that_are_asked_one_that_is_not_trusted_is_told_and_for_good_only_if_all_are() {
        let untrusted = || RedisError::from(io::Error::other(WayRefusal::for_good("untrusted".to_owned())));
        let told = |errors: Vec<RedisError>| {
            let mut all = Unanswered::default();
            errors.into_iter().for_each(|error| all.add(error));
            all.told().and_then(|told| WayRefusal::of(&told).cloned())
        };
        assert_eq!(told(Vec::new()), None);
        assert_eq!(told(vec![reset()]), None);
        assert_eq!(told(vec![untrusted(), untrusted()]), Some(WayRefusal::for_good("untrusted".to_owned())));
        for errors in [vec![untrusted(), reset()], vec![reset(), untrusted()]] {
            assert_eq!(told(errors), Some(WayRefusal::for_now("untrusted".to_owned())));
        }
    }

    /// *Three sentinels, of which one wants a password that the URL lacks, as it always did. The site boots, that one is up first,
    /// and the start ends for good.*
    #[test]
    fn of_several_that_are_asked_one_that_lets_nobody_in_is_told_and_for_good_only_if_none_is_away() {
        let wants = |what: &str| redis::make_extension_error("NOAUTH".to_owned(), Some(format!("the sentinel {what}")));
        let denied = || redis::make_extension_error("NOPERM".to_owned(), Some("no permissions".to_owned()));
        let told = |errors: Vec<RedisError>| {
            let mut all = Unanswered::default();
            errors.into_iter().for_each(|error| all.add(error));
            let StoreError::Io { source, .. } = store_error("asking", &"h".into(), &all.told().unwrap()) else {
                panic!()
            };
            (source.kind() == io::ErrorKind::PermissionDenied, source.to_string())
        };
        let one = "the sentinel one";
        assert_eq!(told(vec![wants("one"), wants("two")]), (true, one.to_owned()));
        for errors in
            [vec![wants("one"), reset()], vec![reset(), wants("one")], vec![reset(), wants("one"), wants("two")]]
        {
            assert_eq!(told(errors), (false, one.to_owned()));
        }
        let untrusted = || RedisError::from(io::Error::other(WayRefusal::for_good("untrusted".to_owned())));
        assert!(told(vec![wants("one"), untrusted()]).0 && told(vec![untrusted(), denied()]).0);
        for errors in [vec![denied(), reset()], vec![reset(), denied()]] {
            let (for_good, said) = told(errors);
            assert!(!for_good && said.contains("no permissions"), "{said}");
        }
    }

    #[test]
    fn a_server_that_hangs_up_may_want_tls_and_one_that_is_away_does_not() {
        let address = ConnectionAddr::Tcp("h".to_owned(), 1);
        let told = without_tls(reset(), &address);
        assert!(told.to_string().contains("h:1 hung up") && told.to_string().contains("`rediss`"), "{told}");
        assert!(WayRefusal::of(&told).is_some_and(|refusal| !refusal.is_for_good()));
        let refused = || RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(without_tls(refused(), &address).to_string(), refused().to_string());
        let socket = ConnectionAddr::Unix("/s".into());
        assert_eq!(without_tls(reset(), &socket).to_string(), reset().to_string());
    }

    #[test]
    fn names_are_told_as_they_stand_in_a_certificate() {
        assert_eq!(bare("DnsName(\"redis.example\")"), "redis.example");
        assert_eq!(bare("IpAddress(10.0.0.1)"), "10.0.0.1");
        assert_eq!(bare("other"), "other");
    }
}
