//! In which format records are written while a node of an earlier program is there. There is only one format so far: the
//! script is asked as a later program will ask it.

use allod::store::*;

use super::*;

const TAKE: &str = include_str!("../../../src/store/redis/scripts/take.lua");
/// The node of the earlier program.
const ELDER: &str = "elder";

/// Shows a node that reads format 1 and was just seen.
fn elder_appears(begun: &Begun) {
    let (seconds, _): (u64, u64) = begun.server.ask(&["TIME"]);
    let process = format!("{:032x}", 9);
    let entry = format!("{process} {} {process} 0.1.0 127.0.0.1:2 127.0.0.1:3 - 1", seconds * 1000);
    let _: u64 = begun.server.ask(&["HSET", "{allod}:nodes", ELDER, &entry]);
}

/// Its owner takes shard 0 once more, as a program that writes and reads format 2. `exactly`: it gives back what Redis lost,
/// from this batch on. Returns the format in which the shard is written from then on.
fn takes_again(begun: &Begun, mine: Token, to: Token, exactly: Option<(Seq, Digest)>) -> String {
    let [head, nodes, register] = ["0:head", "nodes", "register"].map(|key| format!("{{allod}}:{key}"));
    let id: String = begun.server.ask(&["HGET", &register, "register"]);
    let [mine, to, process] = [mine.0, to.0, 7].map(|bits| format!("{bits:032x}"));
    let seq = exactly.map_or(0, |(seq, _)| seq.0).to_string();
    let digest = exactly.map_or_else(String::new, |(_, digest)| format!("{:032x}", digest.0));
    // Nothing here depends on how soon it comes.
    let lease = "600000";
    let [keys, arguments] = [
        &[&*head, &*nodes, &*register][..],
        &[&*to, "later", &*process, "127.0.0.1:1", lease, &*mine, &*mine, &*seq, &*digest, "2", "2", &*id, "1"][..],
    ];
    let answer: Vec<String> = begun.server.ask(&[&["EVAL", TAKE, "3"], keys, arguments].concat());
    assert_eq!(answer[0], "taken", "{answer:?}");
    answer[8].clone()
}

#[test]
fn who_takes_its_own_shard_once_more_raises_no_format_while_a_node_could_not_read_it() {
    let Some(begun) = Begun::new(&[]) else { return };
    elder_appears(&begun);
    assert_eq!(takes_again(&begun, begun.head.token, token(21), None), "1");
    let _: u64 = begun.server.ask(&["HDEL", "{allod}:nodes", ELDER]);
    assert_eq!(takes_again(&begun, token(21), token(22), None), "2");
}

/// They were written in that format: whoever cannot read it could not read them either.
#[test]
fn batches_that_redis_lost_are_given_back_in_their_format_whichever_nodes_are_there() {
    let Some(begun) = Begun::new(&[]) else { return };
    elder_appears(&begun);
    let Head { token: mine, seq, digest, .. } = begun.head;
    assert_eq!(takes_again(&begun, mine, token(21), Some((seq, digest))), "2");
}
