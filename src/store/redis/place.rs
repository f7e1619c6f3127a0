//! Where Redis is: a fixed server, the server that sentinels name, or the server that has the register's slot of a cluster.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use redis::{ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisError};
use tokio::time::Instant;

use super::cluster::RedisCluster;
use super::connect::{RedisServer, RedisWay};
use super::failed::{said, store_error};
use super::following::Following;
use super::keys::Keys;
use super::sentinels::Sentinels;
use super::tls::{RedisTls, TlsFiles};
use crate::seldom::Seldom;
use crate::store::StoreError;

/// After this much silence the kernel asks whether the other end is still there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
/// How long sent bytes may stay unacknowledged by the kernel of the other end.
const USER_TIMEOUT: Duration = Duration::from_secs(5);
/// How soon, and in the end how seldom, a lasting problem is reported again.
pub(super) const SAID_EVERY: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(60);

/// Beginnings of URLs with TLS, and those of the same place without.
const SECURED: [(&str, &str); 4] = [
    ("rediss://", "redis://"),
    ("valkeys://", "valkey://"),
    ("rediss+sentinel://", "redis+sentinel://"),
    ("rediss+cluster://", "redis+cluster://"),
];

/// Is this a URL of Redis?
///
/// # Errors
/// Why not, without the URL: it may contain a password.
pub fn check_url(url: &str) -> Result<(), String> {
    let keys = Keys::new("allod").map_err(|error| error.to_string())?;
    let read = |plain: Option<String>| RedisPlace::read(plain.as_deref().unwrap_or(url), None, &keys);
    without_tls(url).and_then(read).map(drop).map_err(|error| why_wrong(&error))
}

/// Does the URL say that Redis is reached with TLS?
pub fn is_over_tls(url: &str) -> bool {
    plain(url).is_some()
}

/// The URL of the same place without TLS, if this one is with TLS.
fn plain(url: &str) -> Option<String> {
    SECURED.iter().find_map(|(secured, plain)| Some(format!("{plain}{}", url.strip_prefix(secured)?)))
}

/// As [`plain`], unless the URL asks for something that makes TLS insecure.
fn without_tls(url: &str) -> Result<Option<String>, RedisError> {
    let refused = |why| Err(RedisError::from((ErrorKind::InvalidClientConfig, why)));
    match url.split_once('#') {
        Some((_, "insecure")) if is_over_tls(url) => refused(
            "it asks for `#insecure`, with which any certificate would do, that of a stranger too; leave it out, and name who \
             signs \
             for Redis by `store.redis_ca`",
        ),
        Some(_) if is_over_tls(url) => {
            refused("it has a part behind `#`, which says nothing of Redis; write `%23` for that sign in a password")
        }
        Some(_) | None => Ok(plain(url)),
    }
}

/// What is wrong with a URL, without the name of the error kind.
fn why_wrong(error: &RedisError) -> String {
    let text = error.to_string();
    text.split_once(" - ").map_or(text.as_str(), |(why, _)| why).to_owned()
}

/// Answers are read in the forms of RESP2. In RESP3 some have other forms, and the configuration of Redis would seem to be
/// unavailable.
fn check_protocol(url: &str) -> Result<(), RedisError> {
    let Some((_, settings)) = url.split_once('?') else { return Ok(()) };
    // Parsed as for one server; whatever is invalid is refused later.
    let asked = format!("redis://localhost/?{settings}").into_connection_info();
    match asked.map(|info| info.redis_settings().protocol()) {
        Ok(ProtocolVersion::RESP3) => {
            Err(RedisError::from((ErrorKind::InvalidClientConfig, "it asks for RESP3; leave out `protocol`")))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Where Redis is, without what must not be shown.
#[derive(Debug, Clone)]
pub(super) struct RedisPlace {
    whom: Whom,
    name: Arc<str>,
    tls: Option<Arc<RedisTls>>,
    /// Limits how often it is reported that nobody says who the primary is.
    untold: Arc<Seldom>,
}

#[derive(Debug, Clone)]
enum Whom {
    /// Always the same server.
    One(RedisServer),
    /// The server at the other end of the caller's connection.
    Over(Arc<dyn RedisWay>),
    /// The server that the sentinels name.
    Named(Arc<Sentinels>),
    /// The server that has the register's slot of a cluster.
    Slot(Arc<RedisCluster>),
}

impl RedisPlace {
    pub(super) fn new(url: &str, files: &TlsFiles, keys: &Keys) -> Result<Self, StoreError> {
        let wrong = |error| {
            let why = why_wrong(&error);
            // The URL is not repeated, because it may contain a password.
            StoreError::Invalid(
                format!("the URL of Redis is wrong: {why}; it looks like `redis://127.0.0.1:6379/0`").into(),
            )
        };
        let plain = without_tls(url).map_err(wrong)?;
        let tls = plain.is_some().then(|| RedisTls::new(files).map(Arc::new)).transpose();
        let tls = tls.map_err(|problem| StoreError::Invalid(problem.into()))?;
        Self::read(plain.as_deref().unwrap_or(url), tls.as_ref(), keys).map_err(wrong)
    }

    /// Parses a URL without TLS; connections use TLS all the same if `tls` is given.
    fn read(url: &str, tls: Option<&Arc<RedisTls>>, keys: &Keys) -> Result<Self, RedisError> {
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_AFTER / 5);
        let settings = redis::io::tcp::TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive)
            .set_user_timeout(USER_TIMEOUT);
        check_protocol(url)?;
        if let Some(sentinels) = Sentinels::of(url, &settings, tls) {
            let sentinels = sentinels?;
            let name = sentinels.name().into();
            return Ok(Self::of(Whom::Named(Arc::new(sentinels)), name, tls.cloned()));
        }
        if let Some(cluster) = RedisCluster::of(url, &settings, tls, keys.register()) {
            let cluster = cluster?;
            let name = cluster.name().into();
            return Ok(Self::of(Whom::Slot(Arc::new(cluster)), name, tls.cloned()));
        }
        let info = url.into_connection_info()?;
        let name = info.addr().to_string().into();
        let server = RedisServer::at(info.set_tcp_settings(settings), tls)?;
        Ok(Self::of(Whom::One(server), name, tls.cloned()))
    }

    /// The server to which the caller's connection leads.
    pub(super) fn over(way: Arc<dyn RedisWay>) -> Self {
        let name = way.name().into();
        Self::of(Whom::Over(way), name, None)
    }

    fn of(whom: Whom, name: Arc<str>, tls: Option<Arc<RedisTls>>) -> Self {
        Self { whom, name, tls, untold: Arc::new(Seldom::new(SAID_EVERY)) }
    }

    pub(super) async fn server(&self) -> Result<RedisServer, RedisError> {
        match &self.whom {
            Whom::One(server) => Ok(server.clone()),
            Whom::Over(way) => Ok(RedisServer::Over(Arc::clone(way))),
            Whom::Named(sentinels) => sentinels.primary().await,
            Whom::Slot(cluster) => cluster.primary().await,
        }
    }

    /// Asks who the primary is, if that may change.
    pub(super) async fn look(&self) {
        let (asked, who) = match &self.whom {
            Whom::One(_) | Whom::Over(_) => return,
            Whom::Named(sentinels) => (sentinels.primary().await, "the sentinels do"),
            Whom::Slot(cluster) => (cluster.primary().await, "the cluster does"),
        };
        if let Err(error) = asked
            && let Some(unsaid) = self.untold.turn()
        {
            // If this node is cut off together with the old primary, it goes on with that one, while another may have taken
            // its place.
            tracing::warn!(
                redis = %self.name,
                error = said(&error),
                unsaid,
                "{who} not say who the primary is: the one of before is kept, also if it was replaced meanwhile"
            );
        }
    }

    /// Does a majority answer of those who say who the primary is? Another server may be the primary by now according to the
    /// rest. If nobody decides this, the server is always the same.
    pub(super) async fn is_named_by_most(&self) -> bool {
        let asked = match &self.whom {
            Whom::One(_) | Whom::Over(_) => return true,
            Whom::Named(sentinels) => sentinels.primary().await,
            Whom::Slot(cluster) => cluster.primary().await,
        };
        asked.is_ok() && self.following().is_none_or(Following::hears_most)
    }

    /// Names the sentinels that do not answer, and after a semicolon says what to do. None if all answer, or there are no
    /// sentinels.
    pub(super) async fn silent_sentinels(&self) -> Option<String> {
        let Whom::Named(sentinels) = &self.whom else { return None };
        let (silent, all) = sentinels.silent().await;
        let count = silent.len();
        let fewer = if (all - count) * 2 > all { "" } else { ", and without most of them no failover takes place" };
        (count > 0).then(|| {
            let verb = if count == 1 { "does" } else { "do" };
            format!(
                "{count} of {all} sentinels {verb} not answer{fewer}: {}; start them, or name those that there are in `store.redis`",
                silent.join(", ").replace("; ", ", ")
            )
        })
    }

    /// How many servers may be the next primary, according to the last answers of those who decide, including servers that
    /// are away now. None if nobody decides this.
    pub(super) fn known_replicas(&self) -> Option<usize> {
        match &self.whom {
            Whom::One(_) | Whom::Over(_) => None,
            Whom::Named(sentinels) => Some(sentinels.replicas()),
            Whom::Slot(cluster) => Some(cluster.replicas()),
        }
    }

    /// The server to which a connection was made says itself that it is no primary. (Servers of a cluster are asked
    /// beforehand.)
    pub(super) fn steps_down(&self, gone_to: &RedisServer) {
        if let (Whom::Named(sentinels), Some(ConnectionAddr::Tcp(host, port))) = (&self.whom, gone_to.address()) {
            sentinels.following().steps_down(host, *port);
        }
    }

    /// Notes whether the server to which a connection was tried was reached.
    pub(super) fn was_reached(&self, gone_to: &RedisServer, reached: bool) {
        if let (Some(following), Some(ConnectionAddr::Tcp(host, port))) = (self.following(), gone_to.address()) {
            following.was_reached(host, *port, reached, Instant::now());
        }
    }

    /// Describes an attempt to connect, as a fragment before "Redis": which server it was, and whether another one is named
    /// instead.
    pub(super) fn connecting_to(&self, gone_to: Option<&RedisServer>) -> String {
        let (Some(gone_to), Some(following)) = (gone_to.and_then(RedisServer::address), self.following()) else {
            return "connecting to".to_owned();
        };
        let instead = following.instead().map_or_else(String::new, |named| {
            format!(" (most of those asked name {named} by now, and know of fewer failovers)")
        });
        format!("connecting to {gone_to}{instead}, the primary of")
    }

    pub(super) fn following(&self) -> Option<&Following> {
        match &self.whom {
            Whom::One(_) | Whom::Over(_) => None,
            Whom::Named(sentinels) => Some(sentinels.following()),
            Whom::Slot(cluster) => Some(cluster.following()),
        }
    }

    /// The caller's connection, if that is how the server is reached.
    pub(super) fn way(&self) -> Option<&Arc<dyn RedisWay>> {
        if let Whom::Over(way) = &self.whom { Some(way) } else { None }
    }

    pub(super) fn is_in_cluster(&self) -> bool {
        matches!(self.whom, Whom::Slot(_))
    }

    /// Why nothing can change there at the moment: the slot is being moved.
    pub(super) fn moving(&self) -> Option<Arc<str>> {
        if let Whom::Slot(cluster) = &self.whom { cluster.moving() } else { None }
    }

    /// Another server that has something of the register's slot although the slot is not its own. `knows_all`: the caller
    /// has the whole register in memory.
    pub(super) async fn stray(&self, knows_all: bool) -> Result<Option<String>, StoreError> {
        let Whom::Slot(cluster) = &self.whom else { return Ok(None) };
        cluster.stray(knows_all).await.map_err(|error| store_error("asking every primary of", &self.name, &error))
    }

    /// How often the primary changed.
    pub(super) fn changes(&self) -> u64 {
        self.following().map_or(0, Following::changes)
    }

    /// Waits until the count of changes differs from this one: for ever, if nobody decides who the primary is.
    pub(super) async fn changed_from(&self, changes: u64) {
        match self.following() {
            Some(following) => following.changed_from(changes).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn tls(&self) -> Option<&Arc<RedisTls>> {
        self.tls.as_ref()
    }

    pub(super) fn is_over_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// `host:port`, or the path of a socket.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<RedisPlace, StoreError> {
        RedisPlace::new(url, &TlsFiles::default(), &Keys::new("allod").unwrap())
    }

    #[test]
    fn a_password_is_not_shown() {
        let place = read("redis://user:secret@127.0.0.1:6390/2").unwrap();
        assert_eq!(&**place.name(), "127.0.0.1:6390");
        let place = read("redis+cluster://user:secret@127.0.0.1:6390,127.0.0.2:1").unwrap();
        assert_eq!(&**place.name(), "cluster of 127.0.0.1:6390,127.0.0.2:1");
        let error = read("http://user:secret@127.0.0.1").unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    /// With the newer protocol Redis answers in other forms than those that are read here, also to the question whether it
    /// evicts.
    #[test]
    fn a_url_that_asks_for_the_newer_protocol_is_refused_and_says_what_to_leave_out() {
        for url in [
            "redis://127.0.0.1:6390/0?protocol=resp3",
            "redis://user:secret@127.0.0.1:6390/?protocol=3",
            "redis+unix:///run/redis.sock?user=u&pass=secret&protocol=resp3",
            "redis+unix:///run/redis.sock?p%72otocol=resp3",
            "redis+sentinel://127.0.0.1:26379/register/0?protocol=resp3",
            "redis+cluster://127.0.0.1:6390/0?protocol=resp3",
        ] {
            let error = read(url).unwrap_err().to_string();
            assert!(error.contains("leave out `protocol`") && !error.contains("secret"), "{url}: {error}");
            assert!(check_url(url).is_err());
        }
        read("redis://127.0.0.1:6390/0?protocol=resp2").unwrap();
    }

    #[test]
    fn a_url_over_tls_is_that_of_the_same_place() {
        for (url, name) in [
            ("rediss://user:secret@127.0.0.1:6390/2", "127.0.0.1:6390"),
            ("valkeys://127.0.0.1/", "127.0.0.1:6379"),
            ("rediss+sentinel://10.0.0.1,10.0.0.2:5/register", "register of 10.0.0.1:26379,10.0.0.2:5"),
            ("rediss+cluster://10.0.0.1:1,10.0.0.2:2", "cluster of 10.0.0.1:1,10.0.0.2:2"),
        ] {
            check_url(url).unwrap();
            let place = read(url).unwrap();
            assert!(place.is_over_tls() && is_over_tls(url), "{url}");
            assert_eq!(&**place.name(), name);
        }
        for url in ["redis://127.0.0.1:6390/2", "redis+unix:///run/rediss://s", "redis+cluster://10.0.0.1:1"] {
            assert!(!read(url).unwrap().is_over_tls() && !is_over_tls(url), "{url}");
        }
        assert!(check_url("rediss+unix:///run/redis.sock").is_err());
        assert!(check_url("rediss+sentinel://10.0.0.1").is_err());
    }

    #[test]
    fn a_url_that_wants_no_certificate_looked_at_is_refused_with_the_reason() {
        for url in ["rediss://u:secret@h/0#insecure", "rediss+sentinel://h/s/0#insecure", "rediss+cluster://h#insecure"]
        {
            let why = check_url(url).unwrap_err();
            assert!(why.contains("that of a stranger") && why.contains("`store.redis_ca`"), "{url}: {why}");
            assert!(!read(url).unwrap_err().to_string().contains("secret"));
        }
        let why = check_url("rediss://u:sec#ret@h/0").unwrap_err();
        assert!(why.contains("`%23`") && !why.contains("ret"), "{why}");
    }
}
