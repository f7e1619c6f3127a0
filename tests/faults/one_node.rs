//! One node: killed and stopped under load, on the embedded store.

use std::time::Duration;

use super::checker::check;
use super::client::Client;
use super::load::{Load, make_networks};
use super::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_address_has_two_holders_while_a_node_is_killed_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = Server::start(&data);
    let networks = make_networks(&mut Client::connect(server.address).await.unwrap(), 4).await;
    let load = Load::new(networks, vec![server.address]);
    let clients = load.start(6, 1);
    for _ in 0..4 {
        assert!(load.more(400, Duration::from_secs(60)).await, "the clients get on");
        server.kill();
        server = Server::start(&data);
        load.moved(0, server.address);
    }
    assert!(load.more(400, Duration::from_secs(60)).await);
    load.end(clients).await;
    let verdict = check(&load.record.all());
    assert!(verdict.problems.is_empty(), "{:#?}", &verdict.problems[..verdict.problems.len().min(5)]);
    assert!(verdict.unknown > 0, "no kill met a request under way: nothing was tested");
    assert!(verdict.sure_holdings > 1_000, "{}", verdict.sure_holdings);
}
