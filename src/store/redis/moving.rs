//! Moving a register in Redis: how an existing register is opened to be moved, how an empty place is prepared, and how the
//! notice is written.
//!
//! The notice is a field of the register's key. If the register was moved away, the notice is in every head as well, and the
//! heads have no token: so even a server that opened the store earlier can take no shard and write nothing.
//!
//! Neighbours: `mod` opens; `store::moving` has the words and the order.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};

use super::failed::{self, Failed};
use super::keys::Keys;
use super::link::{Answers, Link};
use super::redo::LeftJournal;
use super::scripts::{self, LoadedScript, ScriptCall, Verdict};
use super::shared::RedisShared;
use super::{RedisOptions, RedisStore, checks, confirms, history};
use crate::store::codec::Format;
use crate::store::error::PERHAPS_NEWER;
use crate::store::moving::{EPOCH_OF_FILLING, LastOf, Movable, MoveNotice, Opening, Origin, other_move, removal};
use crate::store::{Epoch, Later, ShardId, StoreError, codec};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long Redis may take to flush a file that it flushes once a second.
const FLUSHED_WITHIN: Duration = Duration::from_secs(2);
/// The refusal of an unfinished register that must not be removed.
const WAS_SERVED: &str = "is the unfinished copy of a register, and was served since: Redis went back to before it was \
 finished. What \
                          was granted there is not removed: bring a newer copy of its data back";
const KEYS_AT_ONCE: usize = 1_000;
/// The refusal where it cannot be read whether an unfinished register was served.
const MAY_HAVE_BEEN_SERVED: &str = "is the unfinished copy of a register, and may have been served since, so nothing of it is \
                                    removed";

/// The register that is there before anything is made or opened.
pub(super) struct FoundRegister {
    pub(super) register: u128,
    pub(super) shards: u16,
    pub(super) notice: Option<MoveNotice>,
}

/// Reads the register's key. None if it does not exist.
pub(super) async fn look(link: &mut Link, keys: &Keys) -> Result<Option<FoundRegister>, StoreError> {
    let mut command = Cmd::new();
    command.arg("HMGET").arg(keys.register()).arg(&["register", "shards", "moved"]);
    let strange = |link: &Link| failed::strange(link.name(), "its register's key is none");
    let Value::Array(values) = link.ask(command, ANSWER_WITHIN).await? else { return Err(strange(link)) };
    let mut texts = values.into_iter().map(|value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    });
    let mut next = || texts.next().flatten();
    let Some(register) = next() else { return Ok(None) };
    let shards = next().and_then(|text| text.parse().ok());
    let (Some(shards), Ok(register)) = (shards, u128::from_str_radix(&register, 16)) else { return Err(strange(link)) };
    let notice = match next() {
        Some(text) => Some(MoveNotice::parse(&text).ok_or_else(|| strange(link))?),
        None => None,
    };
    Ok(Some(FoundRegister { register, shards, notice }))
}

fn refused(place: &Arc<str>, keys: &Keys, problem: impl std::fmt::Display) -> StoreError {
    StoreError::Foreign(format!("Redis at {place}, `{{{}}}:…`, {problem}", keys.prefix()).into())
}

/// Refuses a register that does not fit the purpose, and empties a target of what a broken move left. Returns the number of
/// shards to open, if it must be a certain one, and the notice that a register made now gets.
pub(super) async fn prepare(
    link: &mut Link,
    keys: &Keys,
    options: &RedisOptions,
) -> Result<(Option<u16>, Option<MoveNotice>), StoreError> {
    if options.opening == Opening::Serve {
        return Ok((options.shards, None));
    }
    let place = Arc::clone(link.name());
    let found = look(link, keys).await?;
    match (&options.opening, found) {
        (Opening::Serve, _) => Ok((options.shards, None)),
        (Opening::Source | Opening::Unfinished(_), None) => Err(refused(&place, keys, "holds no register")),
        (Opening::Source, Some(FoundRegister { shards, notice, .. })) => match notice {
            None | Some(MoveNotice::Moved { .. }) => Ok((Some(shards), None)),
            Some(
                notice @ (MoveNotice::Unfinished { .. }
                | MoveNotice::Copying { .. }
                | MoveNotice::Anew { .. }
                | MoveNotice::Begun),
            ) => Err(refused(&place, keys, notice.refusal())),
        },
        (Opening::Unfinished(wanted), Some(FoundRegister { shards, register, notice })) => match notice {
            Some(MoveNotice::Unfinished { .. } | MoveNotice::Anew { .. }) if register == *wanted => {
                Ok((Some(shards), None))
            }
            _ => Err(refused(&place, keys, "does not hold the unfinished copy of this register")),
        },
        (Opening::Target { from }, found) => {
            let shards = found.as_ref().map_or(0, |found| found.shards);
            if empty_but_for_a_broken_move(&place, keys, found, from)? {
                if was_served(link, keys, shards).await? {
                    return Err(refused(&place, keys, WAS_SERVED));
                }
                clear(link, keys, shards).await?;
            }
            Ok((options.shards, Some(MoveNotice::Unfinished { from: from.clone() })))
        }
    }
}

/// Was an unfinished register served? Then it had been finished, and Redis went back to before that; what was changed there
/// since is nowhere else. The process that fills a register is the first to take its shards, so batches of a later take-over
/// come from a server.
///
/// # Errors
/// It cannot be read: then it may have been served.
async fn was_served(link: &mut Link, keys: &Keys, shards: u16) -> Result<bool, StoreError> {
    let mut pipeline = Pipeline::with_capacity(2 * usize::from(shards));
    for shard in (0..shards).map(ShardId) {
        pipeline.cmd("HMGET").arg(keys.head(shard)).arg(&scripts::HEAD_FIELDS[..]);
        pipeline.cmd("XREVRANGE").arg(keys.log(shard)).arg("+").arg("-").arg("COUNT").arg(1);
    }
    let mut answers = link.read(&pipeline, ANSWER_WITHIN).await?.into_iter();
    let mut epochs = Vec::with_capacity(shards.into());
    for shard in (0..shards).map(ShardId) {
        let (Some(head), Some(end)) = (answers.next(), answers.next()) else {
            return Err(failed::strange(link.name(), "an answer is missing"));
        };
        epochs.push(last_epoch(head, end).map_err(|problem| {
            let remove = removal(keys.prefix());
            let text = format!(
                "{MAY_HAVE_BEEN_SERVED}: shard {} {problem}. Bring a newer copy of its data back, or remove it yourself ({remove}) \
                 if no server ever said `ready` with it",
                shard.0
            );
            refused(link.name(), keys, text)
        })?);
    }
    Ok(epochs.into_iter().any(|epoch| epoch > EPOCH_OF_FILLING))
}

/// The epoch of the last batch in a shard's log, given its head and the end of its log; 0 if it never had a batch. Otherwise
/// what is wrong with them: a log always keeps the last batches.
fn last_epoch(head: Value, end: Value) -> Result<Epoch, String> {
    let head = scripts::head(head).ok_or_else(|| format!("has a head that cannot be read ({PERHAPS_NEWER})"))?;
    let seq = head.map_or(0, |head| head.seq.0);
    let Value::Array(mut entries) = end else { return Err("has no log".to_owned()) };
    let Some(last) = entries.pop() else {
        // Without a head, too, it is what a removal that broke off left.
        return if seq == 0 { Ok(Epoch(0)) } else { Err(format!("stands at batch {seq}, and its log has none")) };
    };
    let last = history::entry_of(last).ok_or("has an entry that is no batch at the end of its log")?;
    if last.seq < seq {
        return Err(format!("stands at batch {seq}, and its log ends with batch {}", last.seq));
    }
    // A batch begins in the same way whatever follows, so its acts need not be known.
    let batch = codec::batch_header(&mut codec::Reader::new(&last.bytes));
    Ok(batch.map_err(|error| format!("has a last batch that {error} ({PERHAPS_NEWER})"))?.epoch)
}

/// Refuses a target that holds a register. Returns whether an earlier move from there was broken off in it.
fn empty_but_for_a_broken_move(
    place: &Arc<str>,
    keys: &Keys,
    found: Option<FoundRegister>,
    from: &Origin,
) -> Result<bool, StoreError> {
    match found.map(|found| found.notice) {
        None => Ok(false),
        Some(Some(MoveNotice::Unfinished { from: begun })) if !begun.is(from) => {
            Err(refused(place, keys, other_move(&begun, from)))
        }
        Some(Some(MoveNotice::Unfinished { .. })) => Ok(true),
        Some(Some(
            notice @ (MoveNotice::Moved { .. }
            | MoveNotice::Copying { .. }
            | MoveNotice::Anew { .. }
            | MoveNotice::Begun),
        )) => Err(refused(place, keys, notice.refusal())),
        Some(None) => Err(refused(place, keys, "holds a register already; choose another database or prefix")),
    }
}

/// As [`super::examine::look_at_target`].
pub(super) async fn look_at_target(link: &mut Link, keys: &Keys, from: &Origin) -> Result<bool, StoreError> {
    let found = look(link, keys).await?;
    empty_but_for_a_broken_move(link.name(), keys, found, from)
}

/// Removes an unfinished register: its heads first, so that a removal that breaks off does not look like a register that lost
/// something ([`was_served`]), and its own key last, so that the rest is never taken for anything else.
async fn clear(link: &mut Link, keys: &Keys, shards: u16) -> Result<(), StoreError> {
    if shards > 0 {
        let heads: Vec<String> = (0..shards).map(|shard| keys.head(ShardId(shard))).collect();
        let mut unlink = Cmd::new();
        unlink.arg("UNLINK").arg(heads);
        link.ask(unlink, ANSWER_WITHIN).await?;
    }
    let mut cursor = String::from("0");
    loop {
        let (next, found) = keys_of_shards(link, keys, &cursor).await?;
        if !found.is_empty() {
            let mut unlink = Cmd::new();
            unlink.arg("UNLINK").arg(found);
            link.ask(unlink, ANSWER_WITHIN).await?;
        }
        if next == "0" {
            break;
        }
        cursor = next;
    }
    let mut unlink = Cmd::new();
    unlink.arg("UNLINK").arg(keys.nodes()).arg(keys.register());
    link.ask(unlink, ANSWER_WITHIN).await.map(drop)
}

/// Some names of keys of shards, and the cursor for the next ones; `0` means that there are no more.
pub(super) async fn keys_of_shards(
    link: &mut Link,
    keys: &Keys,
    cursor: &str,
) -> Result<(String, Vec<Vec<u8>>), StoreError> {
    let mut scan = Cmd::new();
    scan.arg("SCAN").arg(cursor).arg("MATCH").arg(keys.of_shards()).arg("COUNT").arg(KEYS_AT_ONCE);
    let answer = link.ask(scan, ANSWER_WITHIN).await?;
    redis::from_redis_value(answer).map_err(|_| failed::strange(link.name(), "an answer is not a list of keys"))
}

/// Checks the notice of a register, as `init` found it.
pub(super) fn check_notice(
    place: &Arc<str>,
    keys: &Keys,
    options: &RedisOptions,
    notice: &str,
) -> Result<Option<MoveNotice>, StoreError> {
    match (&options.opening, notice) {
        (_, "") => Ok(None),
        // This process has nothing of it in memory, and no other node has this name: nobody is writing it any more.
        (Opening::Serve, notice) if MoveNotice::parse(notice).is_some_and(|notice| notice.is_by(&options.owner)) => {
            Err(refused(place, keys, MoveNotice::refusal_of_own(keys.prefix())))
        }
        (Opening::Serve, notice) => Err(moved(place, keys.prefix(), notice)),
        (Opening::Source | Opening::Target { .. } | Opening::Unfinished(_), notice) => Ok(MoveNotice::parse(notice)),
    }
}

/// The refusal of a register with this notice. A register that is being rewritten may be served in a moment.
pub(super) fn moved(place: &Arc<str>, prefix: &str, notice: &str) -> StoreError {
    if let Some(notice @ MoveNotice::Anew { .. }) = MoveNotice::parse(notice) {
        let source = std::io::Error::other(notice.refusal());
        return StoreError::Io {
            context: format!("the register in Redis at {place}").into(),
            source: Arc::new(source),
        };
    }
    let why = match MoveNotice::parse(notice) {
        Some(notice @ MoveNotice::Unfinished { .. }) => format!("{} ({})", notice.refusal(), removal(prefix)),
        Some(notice) => notice.refusal(),
        None => format!("says of its move `{notice}`"),
    };
    StoreError::Foreign(format!("Redis at {place}, `{{{prefix}}}:…`, {why}").into())
}

/// Replaces the notice, if every shard is where it is expected, and waits until it is on as many replicas and disks as
/// anything that is acknowledged: a source that forgot that it was moved would be served beside the new register.
pub(super) async fn post(
    shared: &RedisShared,
    link: &mut Link,
    notice: Option<&MoveNotice>,
    shards: &[LastOf],
) -> Result<(), StoreError> {
    let mut waits = shared.waiting().map_or_else(Vec::new, |waiting| confirms::waits_of(waiting, shared.replicas));
    let of_replicas = waits.len();
    if shared.flushes_in_a_moment {
        let mut own = Cmd::new();
        own.arg("WAITAOF").arg(1).arg(0).arg(FLUSHED_WITHIN.as_millis() as u64);
        waits.push(own);
    }
    let waited = say_and(shared, link, (notice, shards), &waits).await?;
    let (replicas, own) = waited.split_at(of_replicas.min(waited.len()));
    if of_replicas > 0 {
        let counted = confirms::counted(replicas, &shared.place).map_err(Failed::into_error)?;
        shared.replicas_answer(&counted)?;
    }
    match own.first() {
        Some(Ok(Value::Array(flushed))) if flushed.first() == Some(&Value::Int(0)) => {
            let context = format!("waiting for the disk of Redis at {}", shared.place).into();
            let source = std::io::Error::other("its append-only file is not flushed");
            Err(StoreError::Io { context, source: Arc::new(source) })
        }
        // An error as well: Redis refuses WAITAOF if its append-only file was switched off meanwhile.
        Some(_) | None => Ok(()),
    }
}

/// As [`post`], without waiting: the next acknowledgement waits for this as well.
pub(super) async fn say(
    shared: &RedisShared,
    link: &mut Link,
    notice: Option<&MoveNotice>,
    shards: &[LastOf],
) -> Result<(), StoreError> {
    say_and(shared, link, (notice, shards), &[]).await.map(drop)
}

/// Replaces the notice, and returns the answers to commands sent after that on the same connection.
async fn say_and(
    shared: &RedisShared,
    link: &mut Link,
    (notice, shards): (Option<&MoveNotice>, &[LastOf]),
    then: &[Cmd],
) -> Result<Answers, StoreError> {
    shared.sound()?;
    let all = (0..shared.info.shards).map(ShardId);
    let names: Vec<String> =
        std::iter::once(shared.keys.register()).chain(all.clone().map(|shard| shared.keys.head(shard))).collect();
    let mut call = ScriptCall::new(&shared.shas, LoadedScript::Post, &names);
    call.arg(notice.map_or_else(String::new, MoveNotice::text));
    call.arg(if matches!(notice, Some(MoveNotice::Moved { .. })) { "1" } else { "0" });
    call.arg(scripts::hex(shared.info.register));
    for shard in all {
        match shards.iter().find(|last| last.0 == shard) {
            Some((_, token, seq, digest)) => call.arg(scripts::hex(token.0)).number(seq.0).arg(scripts::hex(digest.0)),
            None => call.arg("").arg("").arg(""),
        };
    }
    let (answer, answers) = link.call_then(&call, then, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
    let strange = || failed::strange_script(&shared.place);
    let of = |at: usize| u16::try_from(at).map(ShardId).map_err(|_| strange());
    match scripts::verdict(answer).ok_or_else(strange)? {
        Verdict::Done => Ok(answers),
        Verdict::Absent(at) => Err(shared.absent(of(at)?)),
        Verdict::Fenced(at, current) => Err(StoreError::Fenced { shard: of(at)?, current }),
        Verdict::Foreign(found) => Err(shared.foreign(found)),
        Verdict::Gap(..) | Verdict::Back(_) | Verdict::Lost(_) | Verdict::Mismatch { .. } => Err(strange()),
    }
}

/// A URL that may be shown: without user and password. In the URL of a socket these follow the path; of that part only the
/// database is shown.
pub fn without_secret(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return String::from("Redis") };
    let (rest, settings) = rest.split_once(['?', '#']).unwrap_or((rest, ""));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // What seems to stand behind the host may be the end of a password with one of these characters: nobody can tell where it
    // begins. The path of a socket has no host before it.
    if !authority.is_empty() && (path.contains('@') || settings.contains('@')) {
        return format!("{scheme}://…");
    }
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let database = settings.split(['&', '#']).find(|setting| setting.starts_with("db="));
    let database = database.map_or_else(String::new, |database| format!("?{database}"));
    format!("{scheme}://{host}{path}{database}")
}

/// Does the URL contain a password?
pub fn has_password(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
    // This also works if nobody can tell where the password ends: without one there is no such character.
    let of_user = rest.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    let is_of_user = of_user.is_some_and(|(_, password)| !password.is_empty());
    is_of_user
        || settings.contains('@')
        || settings.split('&').any(|set| set.strip_prefix("pass=").is_some_and(|word| !word.is_empty()))
}

impl Movable for RedisStore {
    fn place(&self) -> String {
        format!("{}, keys `{{{}}}:…`", self.url, self.shared.keys.prefix())
    }

    fn notice(&self) -> Option<MoveNotice> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put_left_aside(&self) -> Result<Vec<PathBuf>, StoreError> {
        self.left_journals.get().into_iter().flatten().map(LeftJournal::put_aside).collect()
    }

    fn write_in(&self, format: Format) {
        self.shared.write_in(format);
    }

    fn post(&self, notice: Option<MoveNotice>, shards: Vec<LastOf>) -> Later<Result<(), StoreError>> {
        let posted =
            self.asked(|reply| checks::CheckJob::Post(notice.clone(), shards, reply), |senders| Ok(&senders.checks));
        let kept = Arc::clone(&self.notice);
        Box::pin(async move {
            posted.await?;
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = notice;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::super::tests::{answer, bulk, command, head_at, link_to};
    use super::*;
    use crate::core::types::{Generation, ShardTime};
    use crate::store::{Batch, Head, Seq, Token, fence};

    /// An entry of a log, as Redis answers: a batch of this epoch, whose first byte, its format, is this.
    fn entry(seq: u64, epoch: u64, format: u8) -> String {
        let (shard, epoch, token, seq) = (ShardId(0), Epoch(epoch), Token(7), Seq(seq));
        let (time, generation) = (ShardTime(1), Generation(1));
        let batch = Batch { shard, epoch, token, seq, time, generation, acts: Vec::new() };
        let mut bytes = Vec::new();
        fence::encode(&batch, Format::FIRST, &mut bytes).unwrap();
        bytes[0] = format;
        let text = String::from_utf8(bytes).unwrap();
        let fields = ["digest", &scripts::hex(1), "batch", &text].map(bulk).concat();
        format!("*1\r\n*2\r\n{}*4\r\n{fields}", bulk(&format!("{}-0", seq.0)))
    }

    /// Whether a register of one shard counts as served, if that has this head and this end of its log.
    async fn counts_as_served(head: Option<Head>, end: String) -> Result<bool, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let mut socket = BufReader::new(socket);
            while let Ok(Some(words)) = command(&mut socket).await {
                let answer = match (words[0].as_str(), &head) {
                    ("XREVRANGE", _) => end.clone(),
                    ("HMGET", None) => format!("*8\r\n{}", "$-1\r\n".repeat(8)),
                    (_, head) => answer(&words, &head.unwrap_or_default()),
                };
                if socket.get_mut().write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let served = was_served(&mut link_to(address), &Keys::new("allod").unwrap(), 1).await;
        served.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_register_of_which_it_cannot_be_read_whether_it_was_served_is_not_taken_for_one_that_was_not() {
        let (none, first) = ("*0\r\n".to_owned(), Format::FIRST.number());
        let head = Some(head_at(5));
        assert_eq!(counts_as_served(head, entry(5, 1, first)).await, Ok(false));
        assert_eq!(counts_as_served(head, entry(5, 2, first)).await, Ok(true));
        // A call that broke off may have left an entry that the head does not have yet.
        assert_eq!(counts_as_served(head, entry(6, 1, first)).await, Ok(false));
        assert_eq!(counts_as_served(Some(head_at(0)), none.clone()).await, Ok(false), "nothing was ever written");
        assert_eq!(counts_as_served(None, none.clone()).await, Ok(false), "a removal broke off");
        let newer = counts_as_served(head, entry(5, 2, Format::NEWEST.number() + 1)).await.unwrap_err();
        assert!(newer.contains("format version") && newer.contains("newer version of allod"), "{newer}");
        for end in [none, entry(4, 1, first), entry(5, 1, first).replace("batch", "other")] {
            let said = counts_as_served(head, end.clone()).await.unwrap_err();
            assert!(said.contains("may have been served"), "{said} at {end}");
        }
    }

    #[test]
    fn a_head_of_a_later_format_is_told_to_be_of_a_newer_version() {
        let text = |text: &str| Value::BulkString(text.into());
        let head = |format: &str| Value::Array(["1", "7", "0", "0", "0", "0", "0", format].map(text).into());
        let said = |format: &str| last_epoch(head(format), Value::Array(Vec::new()));
        assert_eq!(said(&Format::NEWEST.to_string()), Ok(Epoch(0)));
        let newer = said("99").unwrap_err();
        assert!(newer.contains("newer version of allod"), "{newer}");
    }

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://allod:p@ss@host:1/2", "redis://host:1/2"),
            ("redis://:secret@host", "redis://host"),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
            ("redis+unix:///run/redis.sock?user=u&pass=secret", "redis+unix:///run/redis.sock"),
            ("unix:///run/redis.sock?pass=secret&db=2", "unix:///run/redis.sock?db=2"),
            ("redis+unix:///run/redis.sock?p%61ss=secret&db=1#secret", "redis+unix:///run/redis.sock?db=1"),
            ("redis+unix://u:secret@/run/redis.sock", "redis+unix:///run/redis.sock"),
            ("redis://host?x=secret@y/z", "redis://…"),
            ("redis://allod:sec?ret@host/0", "redis://…"),
            ("redis://allod:sec/ret@host:6379/0", "redis://…"),
            ("redis://allod:p@s/s@host/0", "redis://…"),
            ("redis://allod:p@s?s@host/0", "redis://…"),
            ("redis+sentinel://:sec/ret@a:1,b:2/main/0", "redis+sentinel://…"),
            ("redis+unix:///run/a@b.sock?pass=secret", "redis+unix:///run/a@b.sock"),
            ("redis+unix:///run/redis.sock?pass=sec@ret", "redis+unix:///run/redis.sock"),
            ("redis://u:secret@host/3?protocol=resp2", "redis://host/3"),
            ("rubbish", "Redis"),
        ] {
            assert_eq!(without_secret(url), shown);
        }
    }

    #[test]
    fn a_password_is_seen_wherever_it_stands() {
        for url in [
            "redis://:pw@host/0",
            "rediss://u:p/w@host",
            "redis+sentinel://u:pw@a:1,b:2/main/0",
            "redis+unix:///run/redis.sock?user=u&pass=pw",
            "redis://allod:sec?ret@host/0",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in
            ["redis://127.0.0.1:6379/0", "redis://u@h:1", "redis://u:@h", "redis+unix:///s?db=1&pass=", "[::1]:1"]
        {
            assert!(!has_password(url), "{url}");
        }
    }
}
