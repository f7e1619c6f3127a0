//! Redis was emptied, and nobody wrote it anew. A node that ends leaves behind what it acknowledged. Otherwise an older
//! copy that is restored before the next start would be served, and what was granted since would be granted once more.

use allod::store::redis::RedisOptions;
use allod::store::redis::examine::examine;

use super::kept::Node;
use super::*;
use crate::crash::until;

/// A node over a Redis that was saved after five of ten grants that it acknowledged.
fn saved_at_five(options: impl Fn(RedisOptions) -> RedisOptions) -> Option<(Server, tempfile::TempDir, Node)> {
    let server = Server::start(&[])?;
    let directory = tempfile::tempdir().unwrap();
    let mut node = Node::new(RedisStore::open(options(its(&server, &directory))).unwrap());
    node.takes(1);
    node.grants(5);
    let () = server.ask(&["SAVE"]);
    node.grants(5);
    Some((server, directory, node))
}

fn its(server: &Server, directory: &tempfile::TempDir) -> RedisOptions {
    RedisOptions { directory: Some(directory.path().to_owned()), ..server.options() }
}

/// Restores the copy, which has what was there when it was saved.
fn brought_back(server: &mut Server) {
    server.kill();
    server.begin();
}

/// Waits until its owner notices.
fn notices(node: &Node) {
    until("it is noticed", || wait(node.store.renew()).is_err() && node.store.was_emptied());
}

fn has_all_ten(server: &Server, directory: &tempfile::TempDir) {
    let mut again = Node::new(RedisStore::open(its(server, directory)).unwrap());
    until("it is given back", || wait(again.store.take(ShardId(0), token(2))).is_ok());
    again.takes(3);
    let image = wait(again.store.load(ShardId(0), token(3))).unwrap();
    assert_eq!(model_of(&image).len(), 1 + 10);
    assert_eq!(again.store.health(), StoreHealth::Ready);
}

/// The node ends; a next one gives back to the copy what that lacks.
fn ends_and_is_given_back(node: Node, server: &mut Server, directory: &tempfile::TempDir) {
    wait(node.store.close());
    drop(node);
    brought_back(server);
    has_all_ten(server, directory);
}

#[test]
fn what_an_owner_acknowledged_whose_redis_was_emptied_is_given_back_to_an_older_copy() {
    let Some((mut server, directory, node)) = saved_at_five(|options| options) else { return };
    let () = server.ask(&["FLUSHALL"]);
    notices(&node);
    assert_eq!(node.store.health(), StoreHealth::Failed);
    ends_and_is_given_back(node, &mut server, &directory);
}

/// Like a node whose lease lapsed while Redis was away: it waits for a node that writes the register anew, and is stopped
/// or ends.
#[test]
fn what_a_node_acknowledged_that_let_go_before_redis_was_emptied_is_given_back_to_an_older_copy() {
    let Some((mut server, directory, node)) = saved_at_five(|options| options) else { return };
    wait(node.store.release()).unwrap();
    let () = server.ask(&["FLUSHALL"]);
    until("it is noticed", || wait(node.store.holder()).is_err() && node.store.was_emptied());
    assert_eq!(node.store.health(), StoreHealth::Hindered);
    // It was the owner, and will not write the register anew itself.
    assert!(node.store.obstacle().contains("nobody does, and every node ends"), "{}", node.store.obstacle());
    ends_and_is_given_back(node, &mut server, &directory);
}

/// Another register is in its place, and the operator is told to restore its data.
#[test]
fn what_an_owner_acknowledged_whose_register_was_replaced_is_given_back_to_an_older_copy() {
    let Some((mut server, directory, node)) = saved_at_five(|options| options) else { return };
    let () = server.ask(&["HSET", "{allod}:register", "register", &format!("{:032x}", 7)]);
    until("it is noticed", || wait(node.store.holder()).is_err() && node.store.health() == StoreHealth::Failed);
    ends_and_is_given_back(node, &mut server, &directory);
}

#[test]
fn an_older_copy_is_refused_where_what_was_acknowledged_is_remembered_no_more() {
    let forgets = |options| RedisOptions { heal_bytes: 0, ..options };
    let Some((mut server, directory, node)) = saved_at_five(forgets) else { return };
    let () = server.ask(&["FLUSHALL"]);
    notices(&node);
    wait(node.store.close());
    drop(node);
    brought_back(&mut server);
    assert_eq!(examine(&its(&server, &directory)).unwrap().behind.unwrap().stands_at, 6);
    let refused = RedisStore::open(its(&server, &directory));
    assert!(matches!(&refused, Err(StoreError::Damaged(text)) if text.contains("--accept-rollback")), "{refused:?}");
    let accepts = RedisOptions { accept_rollback: true, ..its(&server, &directory) };
    wait(RedisStore::open(accepts).unwrap().close());
    drop(RedisStore::open(its(&server, &directory)).unwrap());
}

/// Everything of one shard is remembered, but nothing of the other any more: the copy is refused for that, not taken as
/// something to be completed.
#[test]
fn an_older_copy_is_refused_where_of_one_shard_what_was_acknowledged_is_remembered_no_more() {
    let Some(mut server) = Server::start(&[]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let little = RedisOptions { heal_bytes: 8 << 10, ..its(&server, &directory) };
    let mut node = Node::new(RedisStore::open(little).unwrap());
    node.takes(1);
    let quiet = wait(node.store.take(ShardId(1), token(2))).unwrap();
    let () = server.ask(&["SAVE"]);
    wait(node.store.commit([batch(&quiet, 1, vec![config_step(network(2))])].into())).unwrap();
    let end = wait(node.store.commit([batch(&quiet, 1, vec![config_step(network(2))])].into())).unwrap();
    wait(node.store.confirm(vec![(ShardId(1), token(2), end[0].seq, end[0].digest)])).unwrap();
    node.grants(100);
    let () = server.ask(&["FLUSHALL"]);
    notices(&node);
    wait(node.store.close());
    drop(node);
    brought_back(&mut server);
    let refused = RedisStore::open(its(&server, &directory));
    assert!(
        matches!(&refused, Err(StoreError::Damaged(text)) if text.contains("shard 1 ") && text.contains("--accept-rollback")),
        "{refused:?}"
    );
}

/// Redis goes back under a running node. A copy has all of the shard that is named, and not all of another one.
#[test]
fn a_copy_that_has_what_a_shard_lacked_when_redis_went_back_is_refused_for_what_another_one_lacks() {
    let Some(mut server) = Server::start(&[]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let files: Vec<String> = server.ask(&["CONFIG", "GET", "dir"]);
    let file = |name: &str| std::path::Path::new(&files[1]).join(name);
    let none = RedisOptions { heal_bytes: 0, ..its(&server, &directory) };
    let mut node = Node::new(RedisStore::open(none).unwrap());
    node.takes(1);
    let busy = wait(node.store.take(ShardId(1), token(2))).unwrap();
    let saved_as = |server: &Server, name: &str| {
        let () = server.ask(&["SAVE"]);
        std::fs::copy(file("dump.rdb"), file(name)).unwrap();
    };
    saved_as(&server, "first");
    node.grants(1);
    saved_as(&server, "second");
    wait(node.store.commit([batch(&busy, 1, vec![config_step(network(2))])].into())).unwrap();
    let restored = |server: &mut Server, name: &str| {
        server.kill();
        std::fs::copy(file(name), file("dump.rdb")).unwrap();
        server.begin();
    };
    restored(&mut server, "first");
    until("it stops", || wait(node.store.renew()).is_err() && node.store.health() == StoreHealth::Failed);
    let noted = std::fs::read_to_string(directory.path().join("REDIS")).unwrap();
    assert!(noted.contains("\nbehind 0 "), "{noted}");
    wait(node.store.close());
    drop(node);
    restored(&mut server, "second");
    let refused = RedisStore::open(its(&server, &directory));
    assert!(
        matches!(&refused, Err(StoreError::Damaged(text)) if text.contains("shard 1 ") && text.contains("--accept-rollback")),
        "{refused:?}"
    );
}

/// The register is whole, so nothing is left to be given back. An older copy that is restored later is refused all the same.
#[test]
fn what_was_written_anew_leaves_nothing_but_how_far_it_had_been_acknowledged() {
    let Some((mut server, directory, node)) = saved_at_five(|options| options) else { return };
    let () = server.ask(&["FLUSHALL"]);
    notices(&node);
    let times = vec![ShardTime(1_000); usize::from(node.store.info().shards)];
    let begun = wait(node.store.anew(times)).unwrap();
    let ends = (0..).map(ShardId).zip(&begun.heads).map(|(shard, head)| (shard, head.token, head.seq, head.digest));
    wait(begun.store.post(None, ends.collect())).unwrap();
    node.store.written_anew();
    wait(begun.store.close());
    wait(node.store.close());
    drop(node);
    let left = || std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left().any(|name| name.to_string_lossy().starts_with("REDO-")), "{:?}", left().collect::<Vec<_>>());
    wait(RedisStore::open(its(&server, &directory)).unwrap().close());
    brought_back(&mut server);
    let refused = RedisStore::open(its(&server, &directory));
    assert!(matches!(&refused, Err(StoreError::Damaged(text)) if text.contains("--accept-rollback")), "{refused:?}");
}

/// The program was downgraded, and its operator asks what is wrong.
#[test]
fn a_register_whose_heads_only_a_later_program_reads_is_examined_and_its_format_told() {
    let Some((server, directory, node)) = saved_at_five(|options| options) else { return };
    wait(node.store.close());
    drop(node);
    let _: u64 = server.ask(&["HSET", "{allod}:0:head", "format", "99"]);
    let seen = examine(&its(&server, &directory)).unwrap();
    assert_eq!((seen.held.unwrap().records, seen.behind), (99, None));
}
