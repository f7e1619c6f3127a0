//! Unit tests of code that the tasks of the store share, and helpers for the other tests of a store without a Redis.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::journal::{Move, Point};
use super::replicas::ReplicaWait;
use super::scripts::Shas;
use super::server::ServerFacts;
use super::*;
use crate::store::history::Stretch;
use crate::store::{Batch, Digest, Epoch, Head, Seq, ShardId, Store, StoreHealth, Token};

/// The shared state of a store that waits for one replica, with a register of four shards.
pub(super) fn shared(redo: Option<Redo>) -> RedisShared {
    let info = StoreInfo {
        kind: "redis",
        durability: String::new(),
        full: "",
        act_bytes_max: 0,
        move_bytes_max: 0,
        register: 7,
        shards: 4,
        commits_shards_together: true,
        ownership_is_standing: false,
        may_be_emptied: true,
        restored_from: None,
    };
    RedisShared::new(StoreParts {
        keys: Keys::new("allod").unwrap(),
        shas: Arc::new(Shas::default()),
        info,
        place: "a test".into(),
        card: NodeCard::default(),
        keep_seconds: 0,
        keep_bytes: 0,
        replicas: 1,
        waiting: ReplicaWait::Memory,
        flushes_in_a_moment: false,
        appends: None,
        heal_bytes: 1 << 20,
        record_format: None,
        lates: Lates::default(),
        redo,
        identity: None,
        serves: true,
        in_cluster: false,
        tls: None,
        blocking: Blocking::Threads,
    })
}

#[tokio::test]
async fn a_task_that_crashes_is_the_end_of_the_store_and_one_that_ends_or_is_put_off_is_not() {
    let shared = Arc::new(shared(None));
    tokio::spawn(missed(&shared, "ends", async {})).await.unwrap();
    let waits = tokio::spawn(missed(&shared, "waits", std::future::pending()));
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    assert_eq!(shared.health(), StoreHealth::Ready);
    let crashes = async {
        tokio::task::yield_now().await;
        panic!("as a test does");
    };
    assert!(tokio::spawn(missed(&shared, "crashes", crashes)).await.unwrap_err().is_panic());
    assert_eq!(shared.health(), StoreHealth::Failed);
    let failure = shared.failed_of().unwrap();
    assert!(failure.contains("the task of the store that crashes crashed"), "{failure}");
}

/// The head of every shard on a server that has this many batches.
pub(super) fn head_at(seq: u64) -> Head {
    let digest = Digest(u128::from(seq) * 7);
    Head { epoch: Epoch(2), token: Token(9), parent: Token(1), seq: Seq(seq), digest, ..Head::default() }
}

/// A fake primary that answers with the heads of its shards and accepts scripts.
async fn primary_at(seq: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // The server does not care how a connection ends.
            tokio::spawn(async move { answer_all(socket, &head_at(seq)).await.unwrap_or_default() });
        }
    });
    address
}

/// The words of the next command, in capitals; none if the connection ended.
pub(super) async fn command(socket: &mut BufReader<TcpStream>) -> std::io::Result<Option<Vec<String>>> {
    let mut line = String::new();
    if socket.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut words = Vec::new();
    for _ in 0..line.trim_start_matches('*').trim().parse::<usize>().unwrap() {
        let mut length = String::new();
        socket.read_line(&mut length).await?;
        let mut word = vec![0; length.trim_start_matches('$').trim().parse::<usize>().unwrap() + 2];
        socket.read_exact(&mut word).await?;
        words.push(String::from_utf8_lossy(&word).trim_end().to_uppercase());
    }
    Ok(Some(words))
}

pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The fields of a head, as scripts and commands return them.
fn fields(head: &Head) -> String {
    let Head { epoch, token, parent, seq, digest, time, generation, format } = *head;
    let hex = [token.0, parent.0, digest.0].map(scripts::hex);
    let number = [epoch.0, seq.0, time.0, generation.0, format.number().into()].map(|n| n.to_string());
    let fields = [&number[0], &hex[0], &hex[1], &number[1], &hex[2], &number[2], &number[3], &number[4]];
    fields.map(|field| bulk(field)).concat()
}

async fn answer_all(socket: TcpStream, head: &Head) -> std::io::Result<()> {
    let mut socket = BufReader::new(socket);
    while let Some(words) = command(&mut socket).await? {
        socket.get_mut().write_all(answer(&words, head).as_bytes()).await?;
    }
    Ok(())
}

/// The answer of a primary with this head.
pub(super) fn answer(words: &[String], head: &Head) -> String {
    match words[0].as_str() {
        "ROLE" => format!("*1\r\n{}", bulk("master")),
        "SCRIPT" => bulk(&"0".repeat(40)),
        // The identity of the register, and no move.
        "HMGET" if words[1].ends_with(":REGISTER") => format!("*2\r\n{}$-1\r\n", bulk(&scripts::hex(7))),
        "HMGET" => format!("*8\r\n{}", fields(head)),
        // The log does not reach back so far.
        "XRANGE" | "XREVRANGE" => "*0\r\n".to_owned(),
        "HGET" => "$-1\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}

/// A fake sentinel that names the last of these as the primary; the number of primaries is the config epoch.
async fn sentinel(primaries: Arc<Mutex<Vec<SocketAddr>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let named = move || {
        let primaries = primaries.lock().unwrap();
        (primaries.len().to_string(), primaries.last().unwrap().port().to_string())
    };
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let named = named.clone();
            tokio::spawn(async move {
                let mut socket = BufReader::new(socket);
                while let Ok(Some(words)) = command(&mut socket).await {
                    let (epoch, port) = named();
                    let answer = match words.get(1).map(String::as_str) {
                        Some("GET-MASTER-ADDR-BY-NAME") => format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port)),
                        Some("MASTER") => format!("*2\r\n{}{}", bulk("config-epoch"), bulk(&epoch)),
                        _ => "+OK\r\n".to_owned(),
                    };
                    if socket.get_mut().write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

pub(super) fn place_of(url: &str) -> RedisPlace {
    RedisPlace::new(url, &TlsFiles::default(), &Keys::new("allod").unwrap()).unwrap()
}

pub(super) fn link_to(address: SocketAddr) -> Link {
    Link::new(place_of(&format!("redis://{address}/0")), None)
}

/// During a failover, existing connections lead to the old primary and a new one to the new primary, which lacks a batch
/// that a client was told of. Both connections are checked, the old one first.
#[tokio::test]
async fn a_connection_to_a_server_that_lacks_something_is_not_settled_over_one_to_a_server_that_has_it() {
    let (has, lacks) = (primary_at(5).await, primary_at(3).await);
    let shared = Arc::new(shared(None));
    let told = head_at(5);
    shared.line(ShardId(0), |line| line.take(&told)).unwrap().unwrap();
    assert!(shared.line(ShardId(0), |line| line.tells(Point::of(&told))).unwrap());
    let ready = |mut link: Link| {
        let shared = Arc::clone(&shared);
        async move { (heal::ready(&shared, &mut link).await.is_ok(), link) }
    };
    let (is_ready, before) = ready(link_to(has)).await;
    assert!(is_ready);
    let looks = shared.healing.lock().await;
    shared.doubt();
    let first = tokio::spawn(ready(before));
    tokio::task::yield_now().await;
    let doubts = shared.doubts();
    let second = tokio::spawn(ready(link_to(lacks)));
    while shared.doubts() == doubts {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(looks);
    assert!(first.await.unwrap().0);
    assert!(!second.await.unwrap().0, "what it lacks was not looked for");
}

/// A failover during the check: the check reaches the new primary, while the earlier connection leads to the old one.
#[tokio::test]
async fn a_connection_that_was_replaced_while_it_was_looked_over_is_not_the_one_that_is_ready() {
    let primaries = Arc::new(Mutex::new(vec![primary_at(5).await]));
    let sentinel = sentinel(Arc::clone(&primaries)).await;
    let shared = Arc::new(shared(None));
    let place = place_of(&format!("redis+sentinel://{sentinel}/register"));
    let told = head_at(5);
    shared.line(ShardId(0), |line| line.take(&told)).unwrap().unwrap();
    assert!(shared.line(ShardId(0), |line| line.tells(Point::of(&told))).unwrap());
    let mut link = Link::new(place.clone(), None);
    let looks = shared.healing.lock().await;
    let is_ready = async {
        let (_, number) = heal::ready(&shared, &mut link).await.map_err(|failed| failed.into_error()).unwrap();
        (number, link.number())
    };
    let fails_over = async {
        while shared.doubts() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let next = primary_at(5).await;
        primaries.lock().unwrap().push(next);
        place.look().await;
        assert_eq!(place.changes(), 1);
        drop(looks);
    };
    let ((number, last), ()) = tokio::join!(is_ready, fails_over);
    assert_eq!((number, last), (2, 2));
    assert!(!link.is_unseen());
}

/// Takes every shard with this token, from the point where token 1 left it, and lets go of all of them.
fn taken_and_left(shared: &RedisShared, token: u128, epoch: u64) {
    for shard in (0..4).map(ShardId) {
        let head = Head { epoch: Epoch(epoch), token: Token(token), ..head_at(5) };
        let after = Point::of(&head);
        let before = Point { token: head.parent, ..after };
        shared.line(shard, |line| line.take(&head)).unwrap().unwrap();
        shared.line(shard, |line| line.counts(head.token)).unwrap();
        shared.journal().took(Move { shard, before, after }, head.epoch);
    }
    shared.let_go();
}

/// Before each shard is taken, the lines of all shards that were left are reviewed, and the journal may be long.
#[tokio::test]
async fn the_journal_is_asked_once_of_a_head_that_is_looked_over_before_each_of_many_take_overs() {
    let mut link = link_to(primary_at(5).await);
    assert!(link.connected().await.is_ok() && link.is_new());
    // The shard is where this process left it; or another owner has taken it since.
    for (token, epoch) in [(9, 2), (8, 1)] {
        let shared = shared(None);
        taken_and_left(&shared, token, epoch);
        let mut looked = Vec::new();
        for _ in 0..3 {
            let before = shared.journal().looked();
            late::review(&shared, &mut link).await.unwrap();
            looked.push(shared.journal().looked() - before);
        }
        assert!(looked[0] >= 4, "{looked:?}");
        assert_eq!(looked[1..], [0, 0], "token {token}");
    }
}

/// A fake primary whose first shard is held by another node for this many attempts, and can then be taken. Also returns the
/// commands that it gets.
async fn held_for(mut times: usize) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&asked);
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut socket = BufReader::new(socket);
        while let Ok(Some(words)) = command(&mut socket).await {
            let is_left = words.get(3).is_some_and(|key| key.ends_with(":LOG"));
            noted.lock().unwrap().push(if is_left { "LEFT".to_owned() } else { words[0].clone() });
            let answer = match words[0].as_str() {
                "EVALSHA" if is_left => "*0\r\n".to_owned(),
                "EVALSHA" if times > 0 => {
                    times -= 1;
                    format!("*4\r\n{}", ["held", "another", "", "3000"].map(bulk).concat())
                }
                "EVALSHA" => format!("*10\r\n{}{}{}", bulk("taken"), fields(&head_at(5)), bulk("")),
                _ => answer(&words, &head_at(5)),
            };
            if socket.get_mut().write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    (address, asked)
}

/// A batch may contain a thousand changes, and every follower contends twice a second.
#[tokio::test]
async fn what_the_owner_before_left_is_asked_for_by_who_took_the_register_and_not_by_who_contends() {
    let (address, asked) = held_for(3).await;
    let (shared, mut link) = (shared(None), link_to(address));
    let asked = || asked.lock().unwrap().iter().filter(|word| *word == "LEFT").count();
    for _ in 0..3 {
        let held = take::take_once(&shared, &mut link, ShardId(0), Token(9)).await;
        assert!(matches!(held, Err(StoreError::Held { .. })), "{held:?}");
    }
    assert_eq!(asked(), 0);
    let taken = take::take_once(&shared, &mut link, ShardId(0), Token(9)).await.unwrap();
    assert_eq!((taken, asked()), (Some(head_at(5)), 1));
    // Nobody contends for the other shards, so the request is sent along.
    assert!(take::take_once(&shared, &mut link, ShardId(1), Token(9)).await.unwrap().is_some());
    assert_eq!(asked(), 2);
}

/// The batches may be long, and Redis far away. The take-over is valid: a caller that did not believe it would draw another
/// token, for ever.
#[tokio::test]
async fn a_take_over_stands_although_what_the_owner_before_left_does_not_come() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut socket = BufReader::new(socket);
                while let Ok(Some(words)) = command(&mut socket).await {
                    let is_left = words.iter().any(|word| word.ends_with(":LOG"));
                    let answer = match words[0].as_str() {
                        _ if is_left => std::future::pending().await,
                        "EVALSHA" => format!("*10\r\n{}{}{}", bulk("taken"), fields(&head_at(5)), bulk("")),
                        _ => answer(&words, &head_at(5)),
                    };
                    if socket.get_mut().write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let (shared, mut link) = (shared(None), link_to(address));
    for shard in [0, 1].map(ShardId) {
        let taken = take::take_once(&shared, &mut link, shard, Token(9)).await.unwrap();
        assert_eq!(taken, Some(head_at(5)), "shard {}", shard.0);
    }
}

/// Files of a register, some of which are missing.
#[test]
fn whatever_became_of_files_that_a_node_left_behind_long_ago_it_is_not_kept_from_its_register() {
    for gone in ["META", "MARK", "log"] {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let store = embedded::EmbeddedStore::open(dir, 1, embedded::EmbeddedOptions::default()).unwrap();
        let batch = |head: Head| Batch {
            shard: ShardId(0),
            epoch: head.epoch,
            token: head.token,
            seq: Seq(head.seq.0 + 1),
            time: head.time,
            generation: head.generation,
            acts: Vec::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let head = store.take(ShardId(0), Token(7)).await.unwrap();
            store.commit([batch(head)].into()).await.unwrap();
            store.close().await;
        });
        drop(store);
        let path = dir.join(gone);
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.unwrap();
        let begins = || leaves_nothing_behind(dir, &IdentityFile::read(dir).unwrap());
        assert!(begins().is_err(), "without {gone} nobody knows what would be left behind");
        IdentityFile::read(dir).unwrap().remember(7, false, &[]).unwrap();
        begins().unwrap();
        assert_eq!(nameplate::stands_beside(dir), gone != "META", "{gone}");
    }
}

/// A store over a fake primary whose heads are at 5 and which has no networks. It answers about the networks of shard 1 only
/// after `may_tell`. Also returns how often its log was read.
async fn store_of_slow_shard(may_tell: Arc<Notify>) -> (RedisStore, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (counted, may_tell) = (Arc::clone(&counted), Arc::clone(&may_tell));
            tokio::spawn(async move {
                let mut socket = BufReader::new(socket);
                while let Ok(Some(words)) = command(&mut socket).await {
                    let answer = match words[0].as_str() {
                        "HGETALL" if words[1].ends_with(":1:NETWORKS") => {
                            may_tell.notified().await;
                            "*0\r\n".to_owned()
                        }
                        "HGETALL" => "*0\r\n".to_owned(),
                        "EVALSHA" => format!("*2\r\n{}{}", bulk("gone"), bulk("0")),
                        _ => answer(&words, &head_at(5)),
                    };
                    counted.fetch_add(usize::from(words[0] == "XRANGE"), Ordering::Relaxed);
                    if socket.get_mut().write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let shared = Arc::new(shared(None));
    for shard in (0..4).map(ShardId) {
        shared.line(shard, |line| line.take(&head_at(5))).unwrap().unwrap();
    }
    let options = RedisOptions::new(format!("redis://{address}/0"), None);
    let (place, ground) = (place_of(&options.url), Ground::Here(Handle::current()));
    let link = Link::new(place.clone(), None);
    let (url, notice, lock) = (options.url.clone(), Arc::default(), None);
    let store =
        RedisStore::start(StoreStart { shared, options, place, url, notice, ground, lock, is_compact: true }, link);
    (store, asked)
}

/// *The self-check reads a shard of a million records, which takes three seconds. Meanwhile a commit is in doubt, and a
/// client of a network that is loaded for it is refused after two.*
#[tokio::test]
async fn what_an_owner_loads_does_not_wait_for_what_is_read_beside() {
    let may_tell = Arc::new(Notify::new());
    let (store, _) = store_of_slow_shard(Arc::clone(&may_tell)).await;
    let beside = store.beside(ShardId(1));
    assert_eq!(store.load(ShardId(0), Token(9)).await.unwrap().head, head_at(5));
    may_tell.notify_one();
    assert_eq!(beside.await.unwrap().head, head_at(5), "it was not waited for until it was given up");
}

/// *Clients start to read the history and hang up: whole chapters are read for nobody.*
#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_read() {
    let may_tell = Arc::new(Notify::new());
    let (store, asked) = store_of_slow_shard(Arc::clone(&may_tell)).await;
    let beside = store.beside(ShardId(1));
    let recorded = || store.recorded(vec![Stretch { shard: ShardId(0), after: Seq(0), until: Seq(5) }], 1);
    for _ in 0..3 {
        drop((recorded(), store.beside(ShardId(0)), store.follow(ShardId(0), head_at(4))));
    }
    let last = recorded();
    may_tell.notify_one();
    beside.await.unwrap();
    assert_eq!(last.await.unwrap(), []);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// A fake primary that flushes each change, has WAITAOF and one replica. It answers the first question that begins with these
/// words like this; with nothing means that it hangs up.
async fn primary_that_answers_once(question: &'static str, like_this: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut is_over = false;
        while let Ok((socket, _)) = listener.accept().await {
            let mut socket = BufReader::new(socket);
            while let Ok(Some(words)) = command(&mut socket).await {
                let asks = |first: &str| words.join(" ").starts_with(first);
                let answer = if asks(question) && !std::mem::replace(&mut is_over, true) {
                    like_this.to_owned()
                } else if asks("INFO") {
                    bulk("aof_enabled:1\r\nconnected_slaves:1\r\nslave0:ip=10.0.0.2,port=6379,state=online\r\n")
                } else if asks("CONFIG GET APPENDFSYNC") {
                    format!("*2\r\n{}{}", bulk("appendfsync"), bulk("always"))
                } else if asks("CONFIG GET") {
                    "*0\r\n".to_owned()
                } else if asks("COMMAND INFO WAITAOF") {
                    "*1\r\n*0\r\n".to_owned()
                } else {
                    answer(&words, &head_at(5))
                };
                if answer.is_empty() || socket.get_mut().write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    address
}

/// *A node is started while Redis fails over: the connection breaks on which it asks how Redis keeps what it is given. From then
/// on it waited for replicas to have changes in memory, and not on their disks, as long as it ran.*
#[tokio::test]
async fn a_question_of_a_start_that_got_no_answer_does_not_pass_for_one_that_is_not_permitted() {
    let following = RedisOptions { replicas_that_follow: true, ..RedisOptions::new("redis://h/0", None) };
    for question in ["INFO", "CONFIG GET APPENDFSYNC", "COMMAND INFO WAITAOF"] {
        for like_this in ["", "-LOADING Redis is loading the dataset in memory\r\n", "-BUSY Redis is busy\r\n"] {
            let mut link = link_to(primary_that_answers_once(question, like_this).await);
            let failed = ServerFacts::facts(&mut link).await;
            assert!(matches!(failed, Err(StoreError::Io { .. })), "{question}: {like_this}: {failed:?}");
            let again = ServerFacts::facts(&mut link).await.unwrap();
            assert_eq!(again.waiting(), ReplicaWait::Disk, "{question}: {like_this}");
            assert_eq!(again.wanted_replicas(link.name(), &following).unwrap(), 1);
        }
        for like_this in ["-NOPERM User allod has no permissions to run it\r\n", "-ERR unknown command\r\n"] {
            let mut link = link_to(primary_that_answers_once(question, like_this).await);
            let permitted = ServerFacts::facts(&mut link).await.unwrap();
            assert_eq!((permitted.is_known(), permitted.waiting()), (question != "INFO", ReplicaWait::Memory));
            let wanted = permitted.wanted_replicas(link.name(), &following);
            assert_eq!(wanted.is_ok(), question != "INFO", "{wanted:?}");
            let told = RedisOptions { replicas: 2, ..RedisOptions::new("redis://h/0", None) };
            assert_eq!(permitted.wanted_replicas(link.name(), &told).unwrap(), 2);
        }
    }
}
