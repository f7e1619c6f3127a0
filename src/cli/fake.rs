//! A server for tests of commands that make several calls: a function answers each of them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::output::{Format, Style};
use super::session::{Options, Session};

/// Starts one; `answer` makes the result of a method and its params. Returns its address.
pub async fn server(answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).await.unwrap_or(0) > 0 {
                    let asked: Value = serde_json::from_str(&line).unwrap();
                    let result = answer(asked["method"].as_str().unwrap(), &asked["params"]);
                    let told = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
                    stream.get_mut().write_all(format!("{told}\n").as_bytes()).await.unwrap();
                    line.clear();
                }
            });
        }
    });
    address
}

/// A session with the server at this address, that prints JSON.
pub fn session_at(server: String) -> Session {
    let style = Style { format: Format::Json, ..Style::default() };
    Session::new(Options { server, is_server_named: true, timeout: Duration::from_secs(600), yes: false, style })
}

/// A session with such a server.
pub async fn session_with(answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Session {
    session_at(server(answer).await)
}
