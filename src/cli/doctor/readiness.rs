//! Whether a server takes changes, by its `/readyz`: a server answers what it is asked also where it grants nothing.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::serve::from_cli::Check;

/// How long the server is waited for.
const WITHIN: Duration = Duration::from_secs(2);

/// What `/readyz` at this address says. None where nothing there speaks of it.
pub fn check(http: &str) -> Option<Check> {
    let (ready, said) = ask(http.parse().ok()?).ok()??;
    Some(if ready {
        Check::ok("ready", "it takes changes")
    } else {
        let hint = format!("nothing is granted while it is so; `curl http://{http}/readyz` says when it is over");
        Check::wrong("ready", said, hint)
    })
}

fn ask(at: SocketAddr) -> std::io::Result<Option<(bool, String)>> {
    let mut stream = TcpStream::connect_timeout(&at, WITHIN)?;
    stream.set_read_timeout(Some(WITHIN))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return Ok(None) };
    Ok(match head.split(' ').nth(1) {
        Some("200") => Some((true, body.to_owned())),
        Some("503") => Some((false, body.trim().to_owned())),
        Some(_) | None => None,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;
    use crate::serve::from_cli::State;

    /// Who answers one request so.
    fn answering(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let asked: Vec<String> = BufReader::new(&stream).lines().map_while(Result::ok).take(1).collect();
            assert_eq!(asked, ["GET /readyz HTTP/1.1"]);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        at
    }

    #[test]
    fn a_server_that_grants_nothing_is_wrong_whatever_else_it_answers() {
        let found = |answer| check(&answering(answer)).map(|check| (check.state, check.seen));
        let ready = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nready";
        assert_eq!(found(ready), Some((State::Ok, "it takes changes".to_owned())));
        let full = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 12\r\n\r\nRedis is full\n";
        assert_eq!(found(full), Some((State::Wrong, "Redis is full".to_owned())));
        assert_eq!(found("HTTP/1.1 404 Not Found\r\n\r\n"), None);
        assert_eq!(check("nowhere"), None);
    }
}
