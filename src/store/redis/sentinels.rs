//! Which server is the primary now, if sentinels decide that.
//!
//! They are asked whenever a connection is made, and once a second by `watch`; a connection to a server that they no longer
//! name is given up. All of them are asked, and the one that knows of the latest failover (by its config-epoch) is believed:
//! another one may not have heard of it yet, and name a server that came back empty. An earlier primary is never followed
//! again. Sentinels that are set up anew count from the beginning: if the followed server says that it is no primary, or
//! most of them name it under a lower epoch than the known one, whichever they name next is followed. Their word is only
//! believed as far as ROLE agrees (`link` asks for it on every connection); and the token, not the sentinels, decides who
//! may write.
//!
//! **Passwords.** Most sentinels ask for no password. One that does is tried as the user of the URL with that user's
//! password, and then with the password alone, because it may have no users. Whatever it accepted last is tried first the
//! next time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError};
use tokio::task::JoinSet;

use super::connect::RedisServer;
use super::failed::{is_denied, is_misnamed, said};
use super::following::{Following, NamedPrimary};
use super::refusal::{Unanswered, WayRefusal};
use super::tls::RedisTls;

/// How long one sentinel may take to be reached, and to answer. All are asked at once, so those that are gone hold up nothing.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);
const SCHEME: &str = "redis+sentinel://";

/// The primary that a sentinel names, if it knows one, and how many replicas of that primary it knows.
type SentinelAnswer = Result<Option<(NamedPrimary, usize)>, RedisError>;

/// One sentinel, and the ways to ask it: without a password, and with the password of the URL.
#[derive(Debug, Clone)]
struct Sentinel {
    ways: Vec<RedisServer>,
    /// Which of the ways it accepted last.
    taken: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(super) struct Sentinels {
    each: Vec<Sentinel>,
    service: String,
    /// How to connect to the primary, except for its address.
    primary: ConnectionInfo,
    /// The TLS settings for the sentinels and the primary, if connections use TLS.
    tls: Option<Arc<RedisTls>>,
    following: Following,
    /// The largest number of replicas that a sentinel reported in the last answers, including replicas that are away.
    replicas: AtomicUsize,
}

impl Sentinels {
    /// Reads `redis+sentinel://[user:password@]host:port[,host:port…]/SERVICE[/database]`; none if it is another kind of URL.
    pub(super) fn of(
        url: &str,
        settings: &TcpSettings,
        tls: Option<&Arc<RedisTls>>,
    ) -> Option<Result<Self, RedisError>> {
        Some(Self::read(url.strip_prefix(SCHEME)?, settings, tls))
    }

    fn read(rest: &str, settings: &TcpSettings, tls: Option<&Arc<RedisTls>>) -> Result<Self, RedisError> {
        let wrong = |what| RedisError::from((ErrorKind::InvalidClientConfig, what));
        let (authority, path) = rest.split_once('/').ok_or_else(|| wrong("it names no service"))?;
        let (service, database) = path.split_once('/').unwrap_or((path, "0"));
        if service.is_empty() {
            return Err(wrong("it names no service"));
        }
        let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
        let at = if user.is_empty() { "" } else { "@" };
        let first = hosts.split(',').next().unwrap_or_default();
        let primary = format!("redis://{user}{at}{first}/{database}").into_connection_info()?;
        let each = hosts.split(',').map(|host| {
            let host = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
                host.to_owned()
            } else {
                format!("{host}:26379")
            };
            let info = format!("redis://{host}/").into_connection_info()?.set_tcp_settings(settings.clone());
            let named = primary.redis_settings();
            let password = named.password().map(|password| info.redis_settings().clone().set_password(password));
            let user = password.clone().zip(named.username()).map(|(settings, user)| settings.set_username(user));
            let with = |settings| RedisServer::at(info.clone().set_redis_settings(settings), tls);
            let others = user.into_iter().chain(password).map(with);
            let ways = std::iter::once(RedisServer::at(info.clone(), tls)).chain(others).collect::<Result<_, _>>()?;
            Ok(Sentinel { ways, taken: Arc::default() })
        });
        Ok(Self {
            each: each.collect::<Result<_, RedisError>>()?,
            service: service.to_owned(),
            primary: primary.set_tcp_settings(settings.clone()),
            tls: tls.cloned(),
            following: Following::default(),
            replicas: AtomicUsize::new(0),
        })
    }

    /// `SERVICE of HOST:PORT,…`.
    pub(super) fn name(&self) -> String {
        let hosts: Vec<String> =
            self.each.iter().filter_map(Sentinel::address).map(ConnectionAddr::to_string).collect();
        format!("{} of {}", self.service, hosts.join(","))
    }

    /// The primary, according to the sentinel that knows of the latest failover.
    pub(super) async fn primary(&self) -> Result<RedisServer, RedisError> {
        let mut unanswered = Unanswered::default();
        let mut named: Vec<NamedPrimary> = Vec::with_capacity(self.each.len());
        let mut replicas = 0;
        let mut asking = self.ask_each();
        while let Some(asked) = asking.join_next().await {
            match asked.map(|(_, answer)| answer) {
                Ok(Ok(Some((one, its)))) => {
                    named.push(one);
                    replicas = replicas.max(its);
                }
                Ok(Ok(None)) => {
                    let text = "a sentinel does not say where the primary is";
                    unanswered.add(RedisError::from((ErrorKind::Client, text)));
                }
                Ok(Err(error)) => unanswered.add(error),
                // The task crashed, so the sentinel said nothing.
                Err(_) => {}
            }
        }
        self.replicas.store(replicas, Ordering::Relaxed);
        let latest = self.following.elect(&named, self.each.len(), &self.service).ok_or_else(|| {
            unanswered.told().map_or_else(|| RedisError::from((ErrorKind::Client, "no sentinel answers")), of_all)
        })?;
        if named.len() * 2 > self.each.len() {
            self.counts_anew(&latest);
        }
        let NamedPrimary { host, port, .. } = self.following.follow(latest, &self.service);
        RedisServer::at(self.primary.clone().set_addr(ConnectionAddr::Tcp(host, port)), self.tls.as_ref())
    }

    /// Asks all sentinels at the same time. Each answer comes with the sentinel's place in `each`.
    fn ask_each(&self) -> JoinSet<(usize, SentinelAnswer)> {
        let mut asking = JoinSet::new();
        for (at, sentinel) in self.each.iter().enumerate() {
            let (sentinel, service) = (sentinel.clone(), self.service.clone());
            asking.spawn(async move { (at, sentinel.ask(&service).await) });
        }
        asking
    }

    /// The sentinels that do not say which server is the primary, each with the reason, and the number of all sentinels.
    pub(super) async fn silent(&self) -> (Vec<String>, usize) {
        let mut asking = self.ask_each();
        let mut silent = BTreeMap::new();
        while let Some(asked) = asking.join_next().await {
            let Ok((at, answer)) = asked else { continue };
            let why = match answer {
                Ok(Some(_)) => continue,
                Ok(None) => "it does not say where the primary is".to_owned(),
                Err(error) => said(&error),
            };
            let address = self.each[at].address().map_or_else(String::new, ConnectionAddr::to_string);
            silent.insert(at, format!("{address} ({why})"));
        }
        (silent.into_values().collect(), self.each.len())
    }

    /// Handles sentinels that name the followed primary, although none of them knows of the failover that made it the
    /// primary.
    fn counts_anew(&self, latest: &NamedPrimary) {
        let is_lower = |last: &NamedPrimary| last.is_at(&latest.host, latest.port) && last.epoch > latest.epoch;
        if self.following.last().as_ref().is_some_and(is_lower) {
            self.following.steps_down(&latest.host, latest.port);
        }
    }

    pub(super) fn following(&self) -> &Following {
        &self.following
    }

    /// The largest number of replicas in the last answers: any of these may be promoted, whether it is up now or not.
    pub(super) fn replicas(&self) -> usize {
        self.replicas.load(Ordering::Relaxed)
    }
}

impl Sentinel {
    fn address(&self) -> Option<&ConnectionAddr> {
        self.ways.first().and_then(RedisServer::address)
    }

    /// Asks it, in all ways.
    async fn ask(&self, service: &str) -> SentinelAnswer {
        let first = self.taken.load(Ordering::Relaxed);
        let mut refused = None;
        for way in (first..self.ways.len()).chain(0..first) {
            match ask(&self.ways[way], service).await {
                Err(error) if is_misnamed(&error) || is_denied(&error) => refused = Some(error),
                answered => {
                    if answered.is_ok() {
                        self.taken.store(way, Ordering::Relaxed);
                    }
                    return answered;
                }
            }
        }
        Err(refused.map_or_else(
            || RedisError::from((ErrorKind::Client, "there is no way to ask it")),
            |error| self.told(&error),
        ))
    }

    /// The error if it lets nobody in, with what to do.
    fn told(&self, error: &RedisError) -> RedisError {
        let at = self.address().map_or_else(String::new, ConnectionAddr::to_string);
        let text = if self.ways.len() == 1 {
            format!(
                "the sentinel at {at} wants a password, and the URL names none: name one before the hosts \
                 (`redis+sentinel://:PASSWORD@HOST:PORT,…`). It is that of Redis, and must be that of the sentinels, too \
                 (`requirepass` of both)"
            )
        } else {
            format!(
                "the sentinel at {at} wants a password, and takes neither the user of the URL with his password nor that password \
                 alone, which are those of Redis: give the sentinel the same (its `requirepass`, or `ACL SETUSER`), or none \
                 ({error})"
            )
        };
        // The same code that Redis uses, so that the caller knows that trying again is useless.
        redis::make_extension_error("NOAUTH".to_owned(), Some(text))
    }
}

/// The error if no sentinel names a primary. An error that somebody must act on is passed on unchanged.
fn of_all(error: RedisError) -> RedisError {
    let is_told = WayRefusal::of(&error).is_some() || is_misnamed(&error) || is_denied(&error);
    if is_told { error } else { WayRefusal::of_sentinels(&error) }
}

/// Explains the error of a sentinel that does not know the service.
fn unknown(error: RedisError, sentinel: &RedisServer, service: &str) -> RedisError {
    if !error.to_string().contains("No such master with that name") {
        return error;
    }
    let at = sentinel.address().map_or_else(String::new, ConnectionAddr::to_string);
    WayRefusal::of_url(format!(
        "the sentinel at {at} watches nothing of the name `{service}`, which the URL names: name what it watches (`redis-cli` there: \
         SENTINEL MASTERS), or have it watched by that name (SENTINEL MONITOR)"
    ))
}

async fn ask(sentinel: &RedisServer, service: &str) -> SentinelAnswer {
    // A refused password is reported by the caller, which tries all ways.
    let mut connection = match sentinel.connect(ANSWER_WITHIN, Some(ANSWER_WITHIN)).await {
        Ok(connection) => connection,
        Err(error) => return Err(sentinel.told_of_way(error).await),
    };
    // The address and the epoch at one instant. While a failover runs, MASTER names the old address under the new epoch.
    let mut both = redis::pipe();
    both.cmd("SENTINEL").arg("get-master-addr-by-name").arg(service).cmd("SENTINEL").arg("MASTER").arg(service);
    type Both = (Option<(String, u16)>, HashMap<String, String>);
    let (address, about) = match both.query_async::<Both>(&mut connection).await {
        Ok(answered) => answered,
        Err(error) => return Err(unknown(sentinel.told_of_way(error).await, sentinel, service)),
    };
    let named = || {
        let (host, port) = address?;
        let replicas = about.get("num-slaves").and_then(|count| count.parse().ok()).unwrap_or(0);
        Some((NamedPrimary { epoch: about.get("config-epoch")?.parse().ok()?, host, port }, replicas))
    };
    Ok(named())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<Sentinels, RedisError> {
        Sentinels::of(url, &TcpSettings::default(), None).unwrap()
    }

    #[test]
    fn sentinels_that_count_anew_are_followed_where_they_name_the_one_that_is_followed() {
        let sentinels = of("redis+sentinel://10.0.0.1:26379/register").unwrap();
        let named = |epoch, port| NamedPrimary { epoch, host: "10.0.0.9".to_owned(), port };
        let follow = |epoch, port| {
            sentinels.counts_anew(&named(epoch, port));
            sentinels.following.follow(named(epoch, port), "register").port
        };
        // An earlier primary is not followed again. The same one under a lower epoch is still the same, and counting goes on
        // from there.
        assert_eq!([follow(7, 1), follow(6, 2), follow(0, 1), follow(1, 2), follow(0, 1)], [1, 1, 1, 2, 2]);
    }

    /// If they were asked one after another, the last of them would get no turn within the second that a connection may take.
    #[tokio::test]
    async fn sentinels_that_say_nothing_do_not_hold_up_the_others() {
        let each: Vec<_> = (0..8).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let hosts: Vec<String> = each.iter().map(|one| one.local_addr().unwrap().to_string()).collect();
        let sentinels = of(&format!("redis+sentinel://{}/register", hosts.join(","))).unwrap();
        let asking = sentinels.primary();
        tokio::pin!(asking);
        for _ in 0..100 {
            tokio::select! {
                biased;
                found = &mut asking => panic!("nobody has answered: {found:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        let is_asked = |one: &std::net::TcpListener| one.set_nonblocking(true).and_then(|()| one.accept()).is_ok();
        assert_eq!(each.iter().filter(|one| is_asked(one)).count(), 8);
    }

    #[test]
    fn a_url_names_sentinels_a_service_and_who_asks() {
        let sentinels = of("redis+sentinel://allod:secret@10.0.0.1:26379,10.0.0.2,10.0.0.3:5/register/2").unwrap();
        assert_eq!(sentinels.name(), "register of 10.0.0.1:26379,10.0.0.2:26379,10.0.0.3:5");
        let settings = sentinels.primary.redis_settings();
        assert_eq!((settings.username(), settings.password(), settings.db()), (Some("allod"), Some("secret"), 2));
        assert_eq!(of("redis+sentinel://10.0.0.1:26379/register").unwrap().primary.redis_settings().db(), 0);
        assert!(of("redis+sentinel://10.0.0.1:26379").is_err());
        assert!(of("redis+sentinel://10.0.0.1:26379/").is_err());
        assert!(Sentinels::of("redis://127.0.0.1/", &TcpSettings::default(), None).is_none());
    }
}
