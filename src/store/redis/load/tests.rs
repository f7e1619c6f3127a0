//! Unit tests of replaying and following a log, with a fake primary that only has a log.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::super::tests::{answer, bulk, command, head_at, link_to, shared};
use super::*;
use crate::store::{Batch, Digest, Seq, Token, fence};

/// The log of this many consecutive batches, and the head of a shard that has them.
fn line_of(count: u64) -> (Vec<(Digest, Vec<u8>)>, Head) {
    let mut head = Head { seq: Seq(0), digest: Digest::default(), ..head_at(0) };
    let mut log = Vec::new();
    for seq in 1..=count {
        let batch = Batch {
            shard: ShardId(0),
            epoch: head.epoch,
            token: Token(9),
            seq: Seq(seq),
            time: head.time,
            generation: head.generation,
            acts: Vec::new(),
        };
        let mut bytes = Vec::new();
        codec::encode_batch(&batch, head.format, &mut bytes).unwrap();
        head = Head { seq: Seq(seq), digest: fence::digest(head.digest, &bytes), ..head };
        log.push((head.digest, bytes));
    }
    (log, head)
}

/// A fake primary with this log, and a count of the requests for its entries.
async fn primary_with(log: Vec<(Digest, Vec<u8>)>, head: Head) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let mut socket = BufReader::new(socket);
        while let Ok(Some(words)) = command(&mut socket).await {
            let answer = match words[0].as_str() {
                "XRANGE" => {
                    counted.fetch_add(1, Ordering::Relaxed);
                    let after: usize = words[2].trim_start_matches('(').trim_end_matches("-0").parse().unwrap();
                    let count: usize = words[5].parse().unwrap();
                    let until = words[3].trim_end_matches("-0").parse().unwrap_or(log.len()).min(log.len());
                    entries(after, log[..until].iter().skip(after).take(count))
                }
                _ => answer(&words, &head).into_bytes(),
            };
            if socket.get_mut().write_all(&answer).await.is_err() {
                return;
            }
        }
    });
    (address, asked)
}

/// The entries of a log after a number, in the form of Redis's answer.
fn entries<'a>(after: usize, log: impl ExactSizeIterator<Item = &'a (Digest, Vec<u8>)>) -> Vec<u8> {
    let mut answer = format!("*{}\r\n", log.len()).into_bytes();
    for (seq, (digest, bytes)) in (after + 1..).zip(log) {
        let fields = [bulk("digest"), bulk(&scripts::hex(digest.0)), bulk("batch")].concat();
        answer.extend(format!("*2\r\n{}*4\r\n{fields}${}\r\n", bulk(&format!("{seq}-0")), bytes.len()).bytes());
        answer.extend(bytes.iter().chain(b"\r\n"));
    }
    answer
}

/// All batches are in memory at once, decoded: a shard that is too far ahead is loaded anew instead.
#[tokio::test]
async fn what_is_followed_at_once_is_bounded_by_its_bytes() {
    let (log, head) = line_of(40);
    let all: usize = log.iter().map(|(_, bytes)| bytes.len()).sum();
    let (address, asked) = primary_with(log.clone(), head).await;
    let (shared, mut link) = (shared(None), link_to(address));
    let begin = Head { seq: Seq(0), digest: Digest::default(), ..head };
    let mut follows = async |batches, bytes| {
        let most = FollowedMax { batches, bytes };
        let followed = follow(&shared, &mut link, ShardId(0), &begin, most).await.unwrap();
        followed.map(|(batches, head)| (batches.len(), head))
    };
    assert_eq!(follows(40, all).await, Some((40, head)));
    assert_eq!(follows(40, all - 1).await, None, "one byte more than is followed");
    let before = asked.load(Ordering::Relaxed);
    assert_eq!(follows(39, all).await, None, "one batch more than is followed");
    assert_eq!(asked.load(Ordering::Relaxed), before, "which the heads say");
}

/// If the line was cut off and written anew after the first head was read, the state that was read belongs to neither line.
#[tokio::test]
async fn what_does_not_follow_the_head_that_was_read_first_is_not_played_over_what_was_read() {
    let (log, head) = line_of(20);
    let at = |seq: usize| Head { seq: Seq(seq as u64), digest: log[seq - 1].0, ..head };
    let (address, _) = primary_with(log.clone(), head).await;
    let (shared, mut link) = (shared(None), link_to(address));
    let mut plays = async |from: Head, to: Head| {
        play(&shared, &mut link, ShardId(0), (&from, &to), &mut BTreeMap::new()).await.unwrap()
    };
    assert!(plays(at(5), at(20)).await);
    assert!(plays(at(5), at(12)).await);
    assert!(!plays(Head { digest: Digest(7), ..at(5) }, at(20)).await);
    assert!(!plays(at(5), Head { digest: Digest(7), ..at(20) }).await);
    assert!(!plays(at(5), Head { seq: Seq(21), ..at(20) }).await, "it ends before that");
}
