//! One connection against a listener that answers as it likes.

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::super::ClientError;
use super::*;

/// A listener that reads `count` requests of one connection, writes what `answer` makes of them, and hangs up.
async fn once(count: usize, answer: impl Fn(Vec<Value>) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).lines();
        let mut requests = Vec::new();
        while requests.len() < count {
            requests.push(serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap());
        }
        write.write_all(answer(requests).as_bytes()).await.unwrap();
    });
    address
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

#[tokio::test]
async fn answers_in_another_order_reach_the_calls_that_they_are_for() {
    let address = once(3, |requests| {
        let answer =
            |request: &Value| line(&json!({"jsonrpc": "2.0", "id": request["id"], "result": request["params"]["n"]}));
        requests.iter().rev().map(answer).collect()
    })
    .await;
    let client = Connection::connect(&address).await.unwrap();
    let call = |n: u64| client.call("x", Map::from_iter([("n".to_owned(), json!(n))]));
    let (first, second, third) = tokio::join!(call(1), call(2), call(3));
    assert_eq!([first.unwrap(), second.unwrap(), third.unwrap()], [json!(1), json!(2), json!(3)]);
}

#[tokio::test]
async fn a_refusal_keeps_code_kind_message_and_data() {
    let address = once(1, |requests| {
        line(&json!({"jsonrpc": "2.0", "id": requests[0]["id"], "error": {"code": -32001, "message": "no such network",
            "data": {"kind": "not_found", "retry": "never", "field": "network"}}}))
    })
    .await;
    let error = Connection::connect(&address).await.unwrap().call("x", Map::new()).await.unwrap_err();
    let rpc = error.rpc().unwrap();
    assert_eq!((rpc.code, rpc.kind.as_str(), rpc.message.as_str()), (-32001, "not_found", "no such network"));
    assert_eq!(rpc.data["field"], "network");
}

#[tokio::test]
async fn a_connection_that_ends_wakes_every_call_and_refuses_later_ones() {
    let address = once(2, |_| String::new()).await;
    let client = Connection::connect(&address).await.unwrap();
    let (first, second) = tokio::join!(client.call("x", Map::new()), client.call("x", Map::new()));
    for ended in [first, second, client.call("x", Map::new()).await] {
        assert!(matches!(ended, Err(ClientError::Lost { .. })), "{ended:?}");
    }
}

#[tokio::test]
async fn an_error_without_id_ends_the_connection_with_its_reason() {
    let address = once(1, |_| {
        line(&json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32032, "message": "too long",
            "data": {"kind": "line_too_long"}}}))
    })
    .await;
    let error = Connection::connect(&address).await.unwrap().call("x", Map::new()).await.unwrap_err();
    assert_eq!(error.kind(), "line_too_long");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_forgotten() {
    // Kept open and silent for as long as the test runs.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let client = Connection::connect_with(&address, Duration::from_millis(20)).await.unwrap();
    let error = client.call("x", Map::new()).await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
    assert!(client.inner.waiting.pending.lock().unwrap().calls.is_empty());
}

#[tokio::test]
async fn what_is_no_json_rpc_is_told_from_a_lost_connection() {
    let address = once(1, |_| "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned()).await;
    let error = Connection::connect(&address).await.unwrap().call("x", Map::new()).await.unwrap_err();
    assert!(matches!(&error, ClientError::Malformed { cause } if cause.contains("HTTP")), "{error:?}");
}

#[tokio::test]
async fn notifications_are_handed_over_apart_from_answers() {
    let address = once(1, |requests| {
        let event = line(&json!({"jsonrpc": "2.0", "method": "event", "params": {"subscription": "s"}}));
        event + &line(&json!({"jsonrpc": "2.0", "id": requests[0]["id"], "result": {}}))
    })
    .await;
    let client = Connection::connect(&address).await.unwrap();
    let mut notifications = client.notifications().unwrap();
    client.call("events.watch", Map::new()).await.unwrap();
    assert_eq!(notifications.recv().await.unwrap()["method"], "event");
    assert!(client.notifications().is_none());
}
