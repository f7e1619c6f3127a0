//! Finds the server that has the register's slot in a Redis cluster.
//!
//! All keys of a register lie in one slot, so that one script can change all of its shards together. One primary has that
//! slot at a time. Whenever a connection is made, and once a second by `watch`, every server of the cluster is asked who has
//! the slot, all at once, and the claim with the highest config-epoch is believed: a failover and the move of a slot both
//! raise it. A server that comes back and knows of neither claims a lower one.
//!
//! A server that no longer has the slot refuses a call (MOVED) before it does anything. Nothing in this module sends a call
//! again: the committer does that. While the slot is being moved, neither server has all of it; see `commit.lua`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError};
use tokio::task::JoinSet;

use super::connect::RedisServer;
use super::failed::said;
use super::following::{Following, NamedPrimary};
use super::refusal::{Unanswered, WayRefusal, joined};
use super::shared::locked;
use super::tls::RedisTls;

/// How long one server may take to answer; all are asked at once.
const ANSWER_WITHIN: Duration = Duration::from_millis(400);
const SCHEME: &str = "redis+cluster://";

type ServerAddress = (String, u16);

#[derive(Debug)]
pub(super) struct RedisCluster {
    /// The servers in the URL.
    seeds: Vec<ServerAddress>,
    /// How to connect to each server, except for its address.
    info: ConnectionInfo,
    tls: Option<Arc<RedisTls>>,
    key: String,
    following: Following,
    /// The servers that the cluster named last.
    members: Mutex<Vec<ServerAddress>>,
    /// Where the slot is going, while it is being moved.
    moving: Mutex<Option<Arc<str>>>,
    /// How many other servers may get the slot, according to a server that names the present primary.
    replicas: AtomicUsize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ClusterView {
    slot: u16,
    /// The primary that has the slot.
    owner: Option<NamedPrimary>,
    /// All servers that it knows to be there.
    members: Vec<ServerAddress>,
    /// All primaries, those that failed as well.
    primaries: Vec<ClusterPrimary>,
    /// How many servers are replicas of the one that has the slot, or were primaries, failed, and have no slots any more.
    /// One of the latter may have had this slot, and will be a replica when it is back.
    replicas: usize,
    /// The server to which it is giving the slot at the moment; only the owner of the slot says so.
    moves_to: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ClusterPrimary {
    id: String,
    address: ServerAddress,
    /// It failed and has no slots any more: another server has taken its place.
    is_replaced: bool,
}

impl ClusterView {
    /// Reads the answer to CLUSTER NODES of the server at an address. With `by_name`, servers are reached by the names that
    /// they announce, because their certificates are for these.
    fn read(slot: u16, nodes: &str, asked: &ServerAddress, by_name: bool) -> Self {
        let mut view =
            Self { slot, owner: None, members: Vec::new(), primaries: Vec::new(), replicas: 0, moves_to: None };
        let (mut moves_to, mut owner_id) = (None, None);
        let lines: Vec<Vec<&str>> = nodes.lines().map(|line| line.split(' ').collect()).collect();
        let address = |words: &[&str]| {
            let at = words.get(1)?;
            let (host, port) = at.split(['@', ',']).next()?.rsplit_once(':')?;
            let name = at.split(',').nth(1).filter(|name| by_name && !name.is_empty() && !name.contains('='));
            // A server to which nobody has spoken yet does not know its own address.
            let host = name.unwrap_or(if host.is_empty() { &asked.0 } else { host });
            Some((host.to_owned(), port.parse::<u16>().ok().filter(|&port| port > 0)?))
        };
        for words in &lines {
            let [id, _, flags, _, _, _, epoch, _, slots @ ..] = &words[..] else { continue };
            let (Some((host, port)), Ok(epoch)) = (address(words), epoch.parse()) else { continue };
            let has = |flag| flags.split(',').any(|one| one == flag);
            if has("noaddr") || has("handshake") {
                continue;
            }
            if !has("fail") {
                view.members.push((host.clone(), port));
            }
            if has("master") {
                let is_replaced = has("fail") && slots.is_empty();
                view.primaries.push(ClusterPrimary {
                    id: (*id).to_owned(),
                    address: (host.clone(), port),
                    is_replaced,
                });
                if slots.iter().any(|range| contains(range, slot)) {
                    view.owner = Some(NamedPrimary { epoch, host, port });
                    owner_id = Some(*id);
                }
            }
            let given = format!("[{slot}->-");
            moves_to = moves_to.or_else(|| slots.iter().find_map(|one| one.strip_prefix(&given)?.strip_suffix(']')));
        }
        let may_have_it = |words: &&Vec<&str>| {
            let [_, _, flags, of, _, _, _, _, slots @ ..] = &words[..] else { return false };
            let has = |flag| flags.split(',').any(|one| one == flag);
            let has_failed = has("fail") || has("fail?");
            has("slave") && Some(*of) == owner_id || has("master") && has_failed && slots.is_empty()
        };
        view.replicas = lines.iter().filter(may_have_it).count();
        let to = moves_to.map(|id| (id, lines.iter().find(|words| words.first() == Some(&id))));
        view.moves_to = to.map(|(id, words)| match words.and_then(|words| address(words)) {
            Some((host, port)) => format!("{host}:{port}"),
            None => id.to_owned(),
        });
        view
    }
}

/// `5` or `5-9`.
fn contains(range: &str, slot: u16) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
}

impl RedisCluster {
    /// Reads `redis+cluster://[user:password@]host:port[,host:port…][/0]`; none if it is another kind of URL. `key` is one
    /// of the register's.
    pub(super) fn of(
        url: &str,
        settings: &TcpSettings,
        tls: Option<&Arc<RedisTls>>,
        key: String,
    ) -> Option<Result<Self, RedisError>> {
        Some(Self::read(url.strip_prefix(SCHEME)?, settings, tls, key))
    }

    fn read(rest: &str, settings: &TcpSettings, tls: Option<&Arc<RedisTls>>, key: String) -> Result<Self, RedisError> {
        let wrong = |what| RedisError::from((ErrorKind::InvalidClientConfig, what));
        // What is set behind the `?` holds for every server.
        let (rest, settings_of_url) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        if !["", "0"].contains(&database) {
            return Err(wrong("a Redis cluster has database 0 only"));
        }
        let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
        let at = if user.is_empty() { "" } else { "@" };
        let mut infos = Vec::new();
        for host in hosts.split(',') {
            infos.push(format!("redis://{user}{at}{host}/{settings_of_url}").into_connection_info()?);
        }
        let seeds = infos.iter().map(|info| match info.addr() {
            ConnectionAddr::Tcp(host, port) => Ok((host.clone(), *port)),
            _ => Err(wrong("it names no host")),
        });
        let seeds = seeds.collect::<Result<_, _>>()?;
        let info = infos.into_iter().next().ok_or_else(|| wrong("it names no host"))?;
        Ok(Self {
            seeds,
            info: info.set_tcp_settings(settings.clone()),
            tls: tls.cloned(),
            key,
            following: Following::default(),
            members: Mutex::default(),
            moving: Mutex::default(),
            replicas: AtomicUsize::new(0),
        })
    }

    /// `cluster of HOST:PORT,…`.
    pub(super) fn name(&self) -> String {
        let hosts: Vec<String> = self.seeds.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        format!("cluster of {}", hosts.join(","))
    }

    fn server(&self, (host, port): ServerAddress) -> Result<RedisServer, RedisError> {
        RedisServer::at(self.info.clone().set_addr(ConnectionAddr::Tcp(host, port)), self.tls.as_ref())
    }

    /// The primary that has the slot, according to the server that knows of the latest change.
    pub(super) async fn primary(&self) -> Result<RedisServer, RedisError> {
        let (views, asked) = self.views().await?;
        let said = |host: &str, port: u16| views.iter().find(|((other, at), _)| (other.as_str(), *at) == (host, port));
        // A primary that no longer has the slot says so itself, whatever the others have heard so far.
        if let Some(last) = self.following.last()
            && let Some((_, view)) = said(&last.host, last.port)
            && view.owner.as_ref().is_some_and(|owner| !owner.is_at(&last.host, last.port))
        {
            self.following.steps_down(&last.host, last.port);
        }
        let whose = || format!("slot {} of {}", views.first().map_or(0, |(_, view)| view.slot), self.name());
        let named: Vec<NamedPrimary> = views.iter().filter_map(|(_, view)| view.owner.clone()).collect();
        let elected = self.following.elect(&named, asked, &whose());
        let of_view = |latest: &NamedPrimary| views.iter().find(|(_, view)| view.owner.as_ref() == Some(latest));
        let Some((view, latest)) = elected.map(|latest| (of_view(&latest), latest)) else {
            let slots: Vec<String> = views.iter().map(|(_, view)| view.slot.to_string()).take(1).collect();
            let detail = slots.concat();
            return Err(RedisError::from((
                ErrorKind::Client,
                "no server of the cluster has the register's slot,",
                detail,
            )));
        };
        if let Some((_, view)) = view {
            *locked(&self.members) = view.members.clone();
        }
        let NamedPrimary { host, port, .. } = self.following.follow(latest, &whose());
        let names_it = |view: &ClusterView| view.owner.as_ref().is_some_and(|owner| owner.is_at(&host, port));
        let known = views.iter().filter(|(_, view)| names_it(view)).map(|(_, view)| view.replicas).max();
        self.replicas.store(known.unwrap_or(0), Ordering::Relaxed);
        if let Some((_, view)) = said(&host, port) {
            self.moves(view.slot, &host, port, view.moves_to.as_deref());
        }
        self.server((host, port))
    }

    /// Notes whether the slot is being moved.
    fn moves(&self, slot: u16, host: &str, port: u16, to: Option<&str>) {
        let mut moving = locked(&self.moving);
        match (&*moving, to) {
            (None, Some(to)) => {
                let text = format!("slot {slot} of the Redis cluster is being moved from {host}:{port} to {to}");
                tracing::warn!(redis = self.name(), "{text}: nothing changes until that is over");
                *moving = Some(text.into());
            }
            (Some(_), None) => {
                tracing::info!(redis = self.name(), slot, "the slot has come to rest");
                *moving = None;
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    /// Why nothing can change at the moment.
    pub(super) fn moving(&self) -> Option<Arc<str>> {
        locked(&self.moving).clone()
    }

    pub(super) fn following(&self) -> &Following {
        &self.following
    }

    /// How many other servers may get the slot, whether they are up now or not.
    pub(super) fn replicas(&self) -> usize {
        self.replicas.load(Ordering::Relaxed)
    }

    /// What every server says that answers, and how many were asked.
    async fn views(&self) -> Result<(Vec<(ServerAddress, ClusterView)>, usize), RedisError> {
        let mut addresses = locked(&self.members).clone();
        addresses.extend(self.seeds.iter().filter(|seed| !addresses.contains(seed)).cloned().collect::<Vec<_>>());
        let (mut asking, asked) = (JoinSet::new(), addresses.len());
        for address in addresses {
            let (server, key) = (self.server(address.clone())?, self.key.clone());
            asking.spawn(async move {
                let view = tokio::time::timeout(ANSWER_WITHIN, view(&server, &key, &address)).await;
                Ok::<_, RedisError>((address, view.map_err(|_| silent())??))
            });
        }
        let (mut views, mut unanswered) = (Vec::new(), Unanswered::default());
        while let Some(asked) = asking.join_next().await {
            match asked {
                Ok(Ok(view)) => views.push(view),
                Ok(Err(error)) => unanswered.add(error),
                // The task crashed, so the server said nothing.
                Err(_) => {}
            }
        }
        if views.is_empty() { Err(unanswered.told().unwrap_or_else(silent)) } else { Ok((views, asked)) }
    }

    /// A primary other than the owner of the slot that still has keys of it: a move was broken off. Asks all primaries. Whoever
    /// `knows_all` that the register had goes on without the answer of one whose place another server has taken: what that one
    /// still has is older.
    pub(super) async fn stray(&self, knows_all: bool) -> Result<Option<String>, RedisError> {
        let (views, _) = self.views().await?;
        let owner = self.following.last();
        let is_owner = |(host, port): &ServerAddress| owner.as_ref().is_some_and(|owner| owner.is_at(host, *port));
        let Some((_, view)) = views.iter().find(|(address, _)| is_owner(address)) else { return Err(silent()) };
        for primary in view.primaries.iter().filter(|primary| !is_owner(&primary.address)) {
            let (host, port) = &primary.address;
            match self.keys_at(primary, view.slot).await {
                Ok(0) => {}
                Ok(_) => return Ok(Some(format!("{host}:{port} has keys of slot {}", view.slot))),
                Err(_) if knows_all && primary.is_replaced => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// How many keys of a slot a primary has.
    async fn keys_at(&self, primary: &ClusterPrimary, slot: u16) -> Result<u64, RedisError> {
        let server = self.server(primary.address.clone())?;
        let asking = async {
            let mut command = redis::cmd("CLUSTER");
            command.arg("COUNTKEYSINSLOT").arg(slot);
            command.query_async::<u64>(&mut server.connect(ANSWER_WITHIN, Some(ANSWER_WITHIN)).await?).await
        };
        let answered = tokio::time::timeout(ANSWER_WITHIN, asking).await.unwrap_or_else(|_| Err(silent()));
        answered.map_err(|error| primary.unanswered(slot, error))
    }
}

impl ClusterPrimary {
    /// The error of asking it for keys of a slot. If it is away: which server that is, and what to do.
    fn unanswered(&self, slot: u16, error: RedisError) -> RedisError {
        if error.code().is_some() || WayRefusal::of(&error).is_some() {
            return error;
        }
        let (Self { id, address: (host, port), .. }, why) = (self, said(&error));
        let text = format!(
            "{}, a primary in the cluster's table that may have keys of slot {slot} ({why}): start it, or, if it is gone for good, \
             take it out of the table (`CLUSTER FORGET {id}` at every other server, within a minute)",
            joined(host, *port)
        );
        RedisError::from((ErrorKind::Client, "there is no answer from", text))
    }
}

fn silent() -> RedisError {
    RedisError::from((ErrorKind::Client, "a server of the cluster does not answer"))
}

/// A server that is not in a cluster says so in answer to the first CLUSTER command.
fn in_cluster(error: RedisError, (host, port): &ServerAddress) -> RedisError {
    if !error.to_string().contains("cluster support disabled") {
        return error;
    }
    let at = joined(host, port);
    WayRefusal::of_url(format!(
        "{at} is in no cluster: name it by `redis://{at}/0` (over TLS `rediss://`), or start it with `cluster-enabled yes`"
    ))
}

async fn view(server: &RedisServer, key: &str, address: &ServerAddress) -> Result<ClusterView, RedisError> {
    let mut connection = server.telling(server.connect(ANSWER_WITHIN, Some(ANSWER_WITHIN)).await).await?;
    let mut both = redis::pipe();
    both.cmd("CLUSTER").arg("KEYSLOT").arg(key).cmd("CLUSTER").arg("NODES");
    let answered = server.telling(both.query_async(&mut connection).await).await;
    let (slot, nodes): (u16, String) = answered.map_err(|error| in_cluster(error, address))?;
    Ok(ClusterView::read(slot, &nodes, address, matches!(server, RedisServer::Secured(..))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<RedisCluster, RedisError> {
        RedisCluster::of(url, &TcpSettings::default(), None, "{allod}:register".to_owned()).unwrap()
    }

    #[test]
    fn a_url_names_servers_and_who_asks() {
        let cluster = of("redis+cluster://allod:secret@10.0.0.1:7000,10.0.0.2,[fd00::1]:7001/0").unwrap();
        assert_eq!(cluster.name(), "cluster of 10.0.0.1:7000,10.0.0.2:6379,fd00::1:7001");
        let settings = cluster.info.redis_settings();
        assert_eq!((settings.username(), settings.password()), (Some("allod"), Some("secret")));
        assert!(of("redis+cluster://10.0.0.1").is_ok());
        assert!(of("redis+cluster://10.0.0.1/1").is_err(), "there is no other database");
        assert!(of("redis+cluster://").is_err());
        for set in
            ["redis+cluster://10.0.0.1:7000,10.0.0.2/0?protocol=resp2", "redis+cluster://10.0.0.1?protocol=resp2"]
        {
            assert!(of(set).is_ok(), "{set}");
        }
        assert!(RedisCluster::of("redis://127.0.0.1/", &TcpSettings::default(), None, String::new()).is_none());
    }

    #[test]
    fn who_has_the_slot_is_read_as_redis_writes_it() {
        let text = "aa 127.0.0.1:7000@17000 myself,master - 0 0 4 connected 0-99 101 [100->-bb] [5-<-bb]\n\
                    bb 127.0.0.1:7001@17001,host.example master - 0 1 2 connected 100 102-16383\n\
                    cc 127.0.0.1:7002@17002 slave aa 0 1 4 connected\n\
                    dd 127.0.0.1:7003@17003 master,fail - 0 1 1 disconnected\n\
                    ff 127.0.0.1:7004@17004 slave,fail aa 0 1 4 disconnected\n\
                    ee :0@0 master,noaddr - 0 1 1 disconnected 100\n";
        let asked = ("127.0.0.1".to_owned(), 7000);
        let owner = |slot| ClusterView::read(slot, text, &asked, false).owner.map(|owner| (owner.port, owner.epoch));
        assert_eq!(
            [owner(0), owner(99), owner(101), owner(100), owner(16_383)],
            [Some((7000, 4)), Some((7000, 4)), Some((7000, 4)), Some((7001, 2)), Some((7001, 2))]
        );
        let view = ClusterView::read(100, text, &asked, false);
        assert_eq!(view.moves_to.as_deref(), Some("127.0.0.1:7001"));
        assert_eq!(view.members.iter().map(|member| member.1).collect::<Vec<_>>(), [7000, 7001, 7002]);
        let primaries = view.primaries.iter().map(|primary| (primary.address.1, primary.is_replaced));
        assert_eq!(primaries.collect::<Vec<_>>(), [(7000, false), (7001, false), (7003, true)]);
        // This includes servers that are away, and the one that may come back as a replica.
        let may_have = |slot| ClusterView::read(slot, text, &asked, false).replicas;
        assert_eq!([may_have(0), may_have(100)], [3, 1]);
        assert_eq!(ClusterView::read(101, text, &asked, false).moves_to, None);
        // Its certificate is for its name.
        let named = ClusterView::read(102, text, &asked, true);
        assert_eq!(named.owner.map(|owner| owner.host), Some("host.example".to_owned()));
        assert_eq!(named.members[0].0, "127.0.0.1", "it announces none");
        // A single server to which nobody has spoken yet does not know its address.
        let alone = ClusterView::read(3, "aa :7000@17000 myself,master - 0 0 0 connected 0-16383\n", &asked, false);
        assert_eq!(alone.owner, Some(NamedPrimary { epoch: 0, host: "127.0.0.1".to_owned(), port: 7000 }));
    }
}
