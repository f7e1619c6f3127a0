//! Whether a server takes changes, according to its `/readyz`: a server answers reads even if it grants nothing.

use std::time::Duration;

use crate::cli::fetch;
use crate::serve::from_cli::Check;

const CHECK: &str = "ready";
/// How a server says that it waits for an operator (`actors::service`).
const RESTORED: &str = "restored from a copy";
/// How a server says that it takes changes although something is wrong (`http`).
const READY_BUT: &str = "ready, but ";
/// How a server says that some networks are being read from the store again (`server::ready`).
const READY_EXCEPT: &str = "ready, except for ";
/// What to do in that case, if the server does not say.
const EXPORT_HINT: &str = "`allod export > register.jsonl` now, and do not restart it before; then another disk";
/// What to see to if a server that was named does not answer.
pub const IS_IT_THERE: &str =
    "see whether it runs, by its log, and whether that is its address (`--server HOST:PORT` or ALLOD_SERVER)";
/// How long to wait for the server.
const WITHIN: Duration = Duration::from_secs(2);

/// What `/readyz` at this address says. None if nothing there answers it.
pub async fn check(http: &str) -> Option<Check> {
    let answer = fetch::get(http, "/readyz", WITHIN).await.ok()?;
    match answer.code() {
        // The server says on the next line what to do.
        "200" => Some(if let Some(problem) = answer.body.trim().strip_prefix(READY_BUT) {
            let (problem, hint) = problem.split_once('\n').unwrap_or((problem, EXPORT_HINT));
            Check::wrong(CHECK, problem, hint)
        } else if let Some(loading) = answer.body.trim().strip_prefix(READY_EXCEPT) {
            let (loading, hint) = loading.split_once('\n').unwrap_or((loading, ""));
            Check::warning(CHECK, format!("it takes changes, except for {loading}"), hint)
        } else {
            Check::ok(CHECK, "it takes changes")
        }),
        "503" if answer.body.starts_with(RESTORED) => {
            let hint =
                "claim what is in use (`allod ip claim`), which it takes; then start it once with `--accept-restored`";
            Some(Check::wrong(CHECK, answer.body.trim(), hint))
        }
        "503" => {
            let hint = format!("nothing is granted while it is so; `curl http://{http}/readyz` says when it is over");
            Some(Check::wrong(CHECK, answer.body.trim(), hint))
        }
        _ => None,
    }
}

/// The same for a server whose configuration is not known: tries its default HTTP port, one above the other. Of several that
/// were named only one was asked before, so this also says which cannot be reached.
pub async fn check_beside(server: &str) -> Check {
    let found = match beside(server) {
        Some(http) => check(&http).await.map(|found| (found, http)),
        None => None,
    };
    if let Some((Check { state, seen, hint, .. }, http)) = found {
        let seen = format!("{seen}; asked at {http}, assumed to be the HTTP port of {server}");
        return Check { check: CHECK, state, seen, hint };
    }
    let problem = match tokio::time::timeout(WITHIN, tokio::net::TcpStream::connect(server)).await {
        Ok(Ok(_)) => return unknown(server),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", WITHIN.as_secs()),
    };
    Check::wrong("server", format!("asked at {server}: {problem}"), IS_IT_THERE)
}

fn unknown(server: &str) -> Check {
    let seen = format!(
        "whether {server} takes changes is not known, as its HTTP port is not the one above: one that was restored, or whose \
         disk is full, answers all the same"
    );
    Check::warning(CHECK, seen, "name its settings by `--config FILE`, or ask `curl http://HOST:PORT/readyz`")
}

fn beside(server: &str) -> Option<String> {
    let (host, port) = server.rsplit_once(':')?;
    Some(format!("{host}:{}", port.parse::<u16>().ok()?.checked_add(1)?))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::serve::from_cli::CheckState;

    /// A server that answers one request with this.
    fn answering(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Reads the whole request: closing with unread input would cut the answer off.
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
        let loading = "HTTP/1.1 200 OK\r\ncontent-length: 61\r\n\r\nready, except for 2 networks, which are being read\nit ends...";
        let check_of_loading = check(&answering(loading)).await.unwrap();
        assert_eq!(check_of_loading.state, CheckState::Warning);
        assert_eq!(check_of_loading.seen, "it takes changes, except for 2 networks, which are being read");
        let damaged = "HTTP/1.1 200 OK\r\ncontent-length: 31\r\n\r\nready, but a segment is damaged";
        let check_of_damaged = check(&answering(damaged)).await.unwrap();
        assert_eq!((check_of_damaged.state, &*check_of_damaged.seen), (CheckState::Wrong, "a segment is damaged"));
        assert!(check_of_damaged.hint.contains("allod export"), "{}", check_of_damaged.hint);
        let restored = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 29\r\n\r\nrestored from a copy: nothing";
        let hint = check(&answering(restored)).await.unwrap().hint;
        assert!(hint.contains("ip claim") && !hint.contains("nothing is granted"), "{hint}");
        assert_eq!(found("HTTP/1.1 404 Not Found\r\n\r\n").await, None);
        assert_eq!(check("nowhere").await, None);
    }

    #[tokio::test]
    async fn of_a_server_whose_settings_are_not_known_the_port_above_is_asked_and_named() {
        let http = answering("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 12\r\n\r\nRedis is full\n");
        let (host, port) = http.rsplit_once(':').unwrap();
        let server = format!("{host}:{}", port.parse::<u16>().unwrap() - 1);
        let found = check_beside(&server).await;
        let seen = format!("Redis is full; asked at {http}, assumed to be the HTTP port of {server}");
        assert_eq!((found.state, found.seen), (CheckState::Wrong, seen));
    }

    #[tokio::test]
    async fn a_server_without_a_known_http_port_is_told_from_one_that_is_not_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let found = check_beside(&server).await;
        // Whatever listens at the port above speaks for the server; as a rule nothing does.
        if !found.seen.contains("assumed to be the HTTP port") {
            assert_eq!(found.state, CheckState::Warning);
            assert!(found.seen.contains(&format!("whether {server} takes changes is not known")), "{}", found.seen);
        }
        let found = check_beside("127.0.0.1:8").await;
        assert_eq!((found.check, found.state), ("server", CheckState::Wrong));
        assert!(found.seen.starts_with("asked at 127.0.0.1:8: "), "{}", found.seen);
    }
}
