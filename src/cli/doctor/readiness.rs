//! Whether a server takes changes, by its `/readyz`: a server answers what it is asked also where it grants nothing.

use std::time::Duration;

use crate::cli::fetch;
use crate::serve::from_cli::Check;

/// How long the server is waited for.
const WITHIN: Duration = Duration::from_secs(2);

/// What `/readyz` at this address says. None where nothing there speaks of it.
pub async fn check(http: &str) -> Option<Check> {
    let answer = fetch::get(http, "/readyz", WITHIN).await.ok()?;
    match answer.code() {
        "200" => Some(Check::ok("ready", "it takes changes")),
        "503" => {
            let hint = format!("nothing is granted while it is so; `curl http://{http}/readyz` says when it is over");
            Some(Check::wrong("ready", answer.body.trim(), hint))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::serve::from_cli::CheckState;

    /// Who answers one request so.
    fn answering(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // All of it is read: what is left unread would cut the answer off.
            let asked: Vec<String> =
                BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            assert_eq!(asked[0], "GET /readyz HTTP/1.0");
            stream.write_all(answer.as_bytes()).unwrap();
        });
        at
    }

    #[tokio::test]
    async fn a_server_that_grants_nothing_is_wrong_whatever_else_it_answers() {
        let found = async |answer| check(&answering(answer)).await.map(|check| (check.state, check.seen));
        let ready = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nready";
        assert_eq!(found(ready).await, Some((CheckState::Ok, "it takes changes".to_owned())));
        let full = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 12\r\n\r\nRedis is full\n";
        assert_eq!(found(full).await, Some((CheckState::Wrong, "Redis is full".to_owned())));
        assert_eq!(found("HTTP/1.1 404 Not Found\r\n\r\n").await, None);
        assert_eq!(check("nowhere").await, None);
    }
}
