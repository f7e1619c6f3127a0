//! The example of the client library does what it says, against the real program.

use serde_json::json;

use crate::client::Client;
use crate::server::Server;

#[path = "../../examples/first_client.rs"]
mod first_client;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_of_the_client_takes_addresses_and_gives_them_back() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let readme = include_str!("../../README.md");
    let (_, shown) = readme.split_once("$ cargo run --release --example first_client\n").unwrap();
    let (shown, _) = shown.split_once("```").unwrap();
    // The example can be run as often as one likes.
    for _ in 0..2 {
        let mut said = String::new();
        first_client::tour(&server.address.to_string(), |line| said += &(line + "\n")).await.unwrap();
        assert_eq!(said, shown);
    }
    let mut raw = Client::connect(server.address).await.unwrap();
    assert_eq!(raw.networks().await.len(), 1);
    assert_eq!(raw.list_all().await.len(), 0);
    let told = raw.call("events.history", json!({"network": "example"})).await.ok();
    let told: Vec<&str> = told["events"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
    let tour = ["granted", "granted", "released", "released"];
    assert_eq!(told, [&["network_created"][..], &tour[..], &tour[..]].concat());
}
