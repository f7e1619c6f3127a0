//! Somebody deletes the head of one shard, and leaves the rest of the register. No node would write that again, so none
//! waits for it.

use std::net::TcpStream;

use super::run::{Nodes, eventually};

/// Tests the shard by which nodes know the owner of the register, and another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_of_a_register_that_lost_a_head_ends_with_70_and_names_the_key() {
    for key in ["{allod}:0:head", "{allod}:2:head"] {
        let Some(mut nodes) = Nodes::start(3, &[]) else { return };
        eventually("all serve", || (0..3).all(|at| nodes.cluster.is_ready(at))).await;
        nodes.redis.ask(&["DEL", key]);
        let mut owners = 0;
        for at in 0..3 {
            let address = nodes.cluster.address(at);
            eventually("it ends", || TcpStream::connect(address).is_err()).await;
            let (code, log) = nodes.cluster.ends(at);
            assert_eq!(code, Some(70), "node {at} without {key}\n{log}");
            assert!(log.contains(&format!("lost `{key}`")), "node {at}\n{log}");
            let untrue = [
                "the store was emptied",
                "Redis was emptied:",
                "waits 60 s",
                "ends after a minute",
                // Nobody is to leave a process running that ends a moment later, and it tells once why it does.
                "has the register in memory",
                "eave it running",
                "is being written again",
                "the register is not written again",
            ];
            for untrue in untrue {
                assert!(!log.contains(untrue), "node {at} says {untrue:?}\n{log}");
            }
            let told = log.matches("It was not written again from memory").count();
            assert!(told <= 1, "node {at}\n{log}");
            owners += told;
        }
        assert_eq!(owners, 1, "the owner says why it does not write it\n{}", nodes.logs());
        assert!(nodes.cluster.fails(1).contains("1 of the "), "a start says what is missing");
    }
}
