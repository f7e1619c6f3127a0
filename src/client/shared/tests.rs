//! The client against listeners that answer as each test says.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::client::{ClientError, Options};

/// What a listener does with a request on its `connection`th connection.
enum Does {
    Answers(Value),
    Refuses(Value),
    /// Says this about the connection, and closes it.
    Ends(Value),
    HangsUp,
    Nothing,
}

/// What a listener was asked: connection, method, params.
type Heard = Arc<Mutex<Vec<(usize, String, Value)>>>;

async fn listener(does: impl Fn(usize, &str, &Value) -> Does + Send + Sync + 'static) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (heard, does) = (Heard::default(), Arc::new(does));
    let said = heard.clone();
    tokio::spawn(async move {
        for connection in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, connection, said.clone(), does.clone()));
        }
    });
    (address, heard)
}

async fn serve(stream: TcpStream, connection: usize, heard: Heard, does: Arc<impl Fn(usize, &str, &Value) -> Does>) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let request: Value = serde_json::from_str(&line).unwrap();
        let method = request["method"].as_str().unwrap().to_owned();
        let what = does(connection, &method, &request["params"]);
        heard.lock().unwrap().push((connection, method, request["params"].clone()));
        let id = &request["id"];
        let (answer, ends) = match what {
            Does::Answers(result) => (json!({"jsonrpc": "2.0", "id": id, "result": result}), false),
            Does::Refuses(error) => (json!({"jsonrpc": "2.0", "id": id, "error": error}), false),
            Does::Ends(error) => (json!({"jsonrpc": "2.0", "id": null, "error": error}), true),
            Does::HangsUp => return,
            Does::Nothing => continue,
        };
        write.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        if ends {
            return;
        }
    }
}

fn refusal(kind: &str, mut data: Value) -> Value {
    data["kind"] = json!(kind);
    json!({"code": -32000, "message": kind, "data": data})
}

fn members(object: Value) -> Map<String, Value> {
    object.as_object().cloned().unwrap()
}

fn methods(heard: &Heard) -> Vec<String> {
    heard.lock().unwrap().iter().map(|(_, method, _)| method.clone()).collect()
}

const RELEASE: &str = r#"{"network": "lan", "owner": "a"}"#;

fn release() -> Map<String, Value> {
    serde_json::from_str(RELEASE).unwrap()
}

fn waiting() -> Map<String, Value> {
    members(json!({"network": "lan", "owner": "a", "wait_seconds": 60}))
}

#[tokio::test]
async fn what_was_put_off_is_asked_again_until_it_is_carried_out() {
    for error in [
        refusal("not_ready", json!({"retry_after_ms": 1})),
        refusal("overloaded", json!({"retry_after_ms": 1})),
        refusal("rate_limited", json!({})),
        refusal("unavailable", json!({"applied": false})),
    ] {
        let tries = AtomicUsize::new(0);
        let (address, heard) = listener(move |_, _, _| match tries.fetch_add(1, Ordering::Relaxed) {
            0..5 => Does::Refuses(error.clone()),
            _ => Does::Answers(json!({"released": []})),
        })
        .await;
        let client = Client::new([address], Options::default());
        client.call("ip.release", release()).await.unwrap();
        assert_eq!(heard.lock().unwrap().len(), 6);
    }
}

#[tokio::test]
async fn a_refusal_is_the_answer_once_no_time_is_left_to_ask_again() {
    let (address, heard) =
        listener(|_, _, _| Does::Refuses(refusal("overloaded", json!({"retry_after_ms": 5_000})))).await;
    let client = Client::new([address], Options { timeout: Duration::from_secs(5), ..Options::default() });
    // Waiting until its time is over would be in vain, and a try just before that would end with an unknown outcome.
    let waited = tokio::time::sleep(Duration::from_secs(4));
    tokio::select! {
        answer = client.call("ip.release", release()) => assert_eq!(answer.unwrap_err().kind(), "overloaded"),
        () = waited => panic!("no answer"),
    }
    assert_eq!(methods(&heard), ["ip.release"]);
}

#[tokio::test]
async fn a_lost_release_is_not_repeated_and_reported_unknown_but_one_by_generation_is_repeated() {
    let (address, heard) = listener(|connection, method, params| match (connection, method) {
        (0, "ip.release") if params.get("if_generation").is_some() => Does::HangsUp,
        (0, _) => Does::Nothing,
        _ => Does::Answers(params.clone()),
    })
    .await;
    let client = Client::new([address], Options::default());
    let guarded = members(json!({"network": "lan", "address": "10.0.0.5", "if_generation": 4}));
    let grant = members(json!({"network": "lan", "owner": "b"}));
    let (plain, grant, guarded) = tokio::join!(
        client.call("ip.release", release()),
        client.call("ip.allocate", grant),
        client.call("ip.release", guarded),
    );
    let Err(ClientError::Unknown { method, look, .. }) = plain else { panic!("{plain:?}") };
    assert_eq!(method, "ip.release");
    assert!(look.contains("ip.get"), "{look}");
    assert_eq!((grant.unwrap()["owner"].clone(), guarded.unwrap()["if_generation"].clone()), (json!("b"), json!(4)));
    assert_eq!(methods(&heard), ["ip.release", "ip.allocate", "ip.release", "ip.allocate", "ip.release"]);
}

#[tokio::test]
async fn an_answer_to_a_repeat_after_doubt_is_told_from_a_first_one() {
    let put_off = AtomicUsize::new(0);
    let (address, _) = listener(move |connection, _, params| match connection {
        0 => Does::HangsUp,
        // The call that was put off was certainly not carried out.
        _ if params["owner"] == "late" && put_off.fetch_add(1, Ordering::SeqCst) == 0 => {
            Does::Refuses(refusal("overloaded", json!({"retry_after_ms": 1})))
        }
        _ => Does::Answers(json!({"created": false})),
    })
    .await;
    let client = Client::new([address], Options::default());
    let grant = |owner: &str| members(json!({"network": "lan", "owner": owner}));
    assert!(client.ask("ip.allocate", grant("a")).await.unwrap().after_doubt, "its first answer was lost");
    for owner in ["a", "late"] {
        assert!(!client.ask("ip.allocate", grant(owner)).await.unwrap().after_doubt, "{owner}");
    }
}

#[tokio::test]
async fn a_refusal_of_a_repeat_that_the_first_try_may_have_caused_is_reported_unknown() {
    let (address, _) = listener(|connection, _, _| match connection {
        0 => Does::HangsUp,
        _ => Does::Refuses(refusal("conflict", json!({}))),
    })
    .await;
    let client = Client::new([address], Options::default());
    let change = members(json!({"network": "lan", "set": {"name": "office"}, "if_version": 4}));
    let error = client.call("network.update", change).await.unwrap_err();
    let ClientError::Unknown { cause, .. } = &error else { panic!("{error:?}") };
    assert_eq!(cause.kind(), "conflict");
    // For the first try, a refusal is an answer.
    let change = members(json!({"network": "lan", "set": {"name": "office"}, "if_version": 4}));
    assert_eq!(client.call("network.update", change).await.unwrap_err().kind(), "conflict");
}

#[tokio::test]
async fn calls_are_sent_in_the_order_first_polled_and_over_a_new_connection_again() {
    let (address, heard) = listener(|connection, _, params| match (connection, params["n"].as_u64().unwrap()) {
        (0, 29) => Does::HangsUp,
        (0, _) => Does::Nothing,
        _ => Does::Answers(params["n"].clone()),
    })
    .await;
    let client = Client::new([address], Options::default());
    let mut calls = tokio::task::JoinSet::new();
    // They are first polled in this order; each notes when.
    for n in 0..60u64 {
        let client = client.clone();
        calls.spawn(async move { client.call("ip.update", members(json!({"network": "lan", "n": n}))).await.unwrap() });
        tokio::task::yield_now().await;
    }
    assert_eq!(calls.join_all().await.len(), 60);
    let heard = heard.lock().unwrap();
    let on = |connection: usize| -> Vec<u64> {
        let there = heard.iter().filter(|(number, _, _)| *number == connection);
        there.map(|(_, _, params)| params["n"].as_u64().unwrap()).collect()
    };
    assert_eq!(on(0), (0..30).collect::<Vec<_>>());
    assert_eq!(on(1), (0..60).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_line_that_is_too_long_ends_only_its_own_call() {
    let (address, _) = listener(|connection, _, params| match (connection, params["note"].as_str().unwrap().len()) {
        (0, 1_000..) => Does::Ends(refusal("line_too_long", json!({}))),
        (0, _) => Does::Nothing,
        _ => Does::Answers(json!({})),
    })
    .await;
    let client = Client::new([address], Options::default());
    let ask = |length: usize| members(json!({"network": "lan", "owner": "a", "note": "x".repeat(length)}));
    let (short, long) = tokio::join!(client.call("ip.allocate", ask(10)), client.call("ip.allocate", ask(2_000)));
    assert_eq!((short.unwrap(), long.unwrap_err().kind()), (json!({}), "line_too_long"));
}

#[tokio::test]
async fn a_client_that_is_turned_away_comes_again_also_with_what_may_not_be_repeated() {
    let (address, _) = listener(|connection, _, _| match connection {
        0..3 => Does::Ends(refusal("overloaded", json!({"retry_after_ms": 1}))),
        _ => Does::Answers(json!({"released": ["10.0.0.5"]})),
    })
    .await;
    let client = Client::new([address], Options::default());
    assert_eq!(client.call("ip.release", release()).await.unwrap()["released"], json!(["10.0.0.5"]));
}

#[tokio::test]
async fn where_nobody_listens_is_told_at_once_if_wished_and_else_the_next_address_is_asked() {
    let (address, _) = listener(|_, _, _| Does::Answers(json!("pong"))).await;
    let options = Options { wait_for_server: false, ..Options::default() };
    let error = Client::new(["127.0.0.1:1"], options.clone()).call("server.ping", Map::new()).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
    let client = Client::new(["127.0.0.1:1".to_owned(), address], options);
    assert_eq!(client.call("server.ping", Map::new()).await.unwrap(), json!("pong"));
    // By default it tries until its time is over, and says why.
    let options = Options { timeout: Duration::from_millis(100), ..Options::default() };
    let error = Client::new(["127.0.0.1:1"], options).call("server.ping", Map::new()).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error:?}");
}

/// The kernel accepts connections for a process that is stopped.
#[tokio::test]
async fn one_of_several_that_accepts_and_says_nothing_is_passed_over_before_anything_is_asked_of_it() {
    let (hung, asked) = listener(|_, _, _| Does::Nothing).await;
    let (address, heard) = listener(|_, _, _| Does::Answers(json!({"released": []}))).await;
    let options = Options { timeout: Duration::from_secs(2), wait_for_server: false, ..Options::default() };
    Client::new([hung, address], options).call("ip.release", release()).await.unwrap();
    assert_eq!(
        (methods(&asked), methods(&heard)),
        (vec!["server.ping".to_owned()], vec!["server.ping".to_owned(), "ip.release".to_owned()])
    );
}

/// The address of a listener that speaks HTTP.
async fn speaks_http() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut reader = BufReader::new(&mut stream);
            reader.read_line(&mut String::new()).await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn one_of_several_that_speaks_something_else_is_passed_over_by_calls_and_by_watches_and_is_named() {
    let (address, _) = listener(|_, method, _| match method {
        "events.watch" => Does::Answers(json!({"subscription": 1})),
        _ => Does::Answers(json!({"cursor": "here"})),
    })
    .await;
    let options = Options { wait_for_server: false, ..Options::default() };
    let several = Client::new([speaks_http().await, address], options.clone());
    several.call("ip.release", release()).await.unwrap();
    // Each watch begins with the first of them.
    assert_eq!(several.watch(Map::new()).await.unwrap().cursor(), "here");
    let other = speaks_http().await;
    let none = Client::new([other.clone(), "127.0.0.1:1".to_owned()], options);
    let said = none.call("ip.release", release()).await.unwrap_err().to_string();
    assert!(said.contains(&format!("{other}: the answer is no JSON-RPC: `HTTP/1.1 400")), "{said}");
}

#[tokio::test]
async fn a_redirect_is_followed_remembered_and_forgotten_when_nobody_answers_there() {
    let owner_asked = Arc::new(AtomicUsize::new(0));
    let counted = owner_asked.clone();
    let (owner, _) = listener(move |_, method, _| {
        let is_call = method != "session.set";
        match if is_call { counted.fetch_add(1, Ordering::Relaxed) } else { 0 } {
            // The third call finds the connection dying.
            2 => Does::HangsUp,
            _ => Does::Answers(json!("owner")),
        }
    })
    .await;
    let first_asked = Arc::new(AtomicUsize::new(0));
    let (counted, there) = (first_asked.clone(), owner.clone());
    let (first, _) = listener(move |_, method, _| match method {
        "session.set" => Does::Answers(json!({"redirect": true})),
        _ => match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Does::Refuses(refusal("moved", json!({"node": "b", "address": there}))),
            _ => Does::Answers(json!("first")),
        },
    })
    .await;
    let client = Client::new([first], Options { redirect: true, ..Options::default() });
    let ask = || members(json!({"network": "lan", "owner": "a"}));
    assert_eq!(client.call("ip.allocate", ask()).await.unwrap(), json!("owner"));
    assert_eq!(client.call("ip.allocate", ask()).await.unwrap(), json!("owner"));
    assert_eq!(first_asked.load(Ordering::Relaxed), 1, "the route is remembered");
    // The call that was lost with the owner is sent home, which serves by now.
    assert_eq!(client.call("ip.allocate", ask()).await.unwrap(), json!("first"));
    assert_eq!(owner_asked.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn nodes_that_send_a_client_in_a_circle_are_asked_until_its_time_is_over() {
    let (first, _) = listener(|_, method, _| match method {
        "session.set" => Does::Answers(json!({})),
        _ => Does::Refuses(refusal("moved", json!({"node": "b"}))),
    })
    .await;
    let options = Options { redirect: true, timeout: Duration::from_secs(1), ..Options::default() };
    let error =
        Client::new([first], options).call("ip.get", members(json!({"address": "10.0.0.1"}))).await.unwrap_err();
    assert_eq!(error.kind(), "moved");
}

#[tokio::test]
async fn a_connection_that_shows_no_sign_of_life_is_given_up() {
    let (address, heard) = listener(|connection, _, _| match connection {
        0 => Does::Nothing,
        _ => Does::Answers(json!("here")),
    })
    .await;
    let client = Client::new([address], Options { silence: Duration::from_millis(40), ..Options::default() });
    assert_eq!(client.call("server.info", Map::new()).await.unwrap(), json!("here"));
    assert_eq!(methods(&heard)[..2], ["server.info", "server.ping"]);
}

#[tokio::test]
async fn a_slow_answer_is_waited_for_as_long_as_the_server_shows_that_it_lives() {
    let pings = Arc::new(AtomicUsize::new(0));
    let counted = pings.clone();
    let (address, heard) = listener(move |_, method, _| match method {
        "server.ping" if counted.fetch_add(1, Ordering::Relaxed) >= 3 => Does::HangsUp,
        "server.ping" => Does::Answers(json!("pong")),
        _ => Does::Nothing,
    })
    .await;
    let client = Client::new([address], Options { silence: Duration::from_millis(500), ..Options::default() });
    let lost = client.call("scope.release", members(json!({"scope": "s"}))).await.unwrap_err();
    // Not before the server has closed the connection.
    assert!(matches!(&lost, ClientError::Unknown { cause, .. } if cause.to_string().contains("closed")), "{lost:?}");
    assert_eq!(methods(&heard), ["scope.release", "server.ping", "server.ping", "server.ping", "server.ping"]);
}

#[tokio::test]
async fn a_call_that_is_given_up_is_forgotten_and_the_next_is_served() {
    let (address, _) = listener(|_, method, _| match method {
        "ip.get" => Does::Nothing,
        _ => Does::Answers(json!("pong")),
    })
    .await;
    let client = Client::new([address], Options { timeout: Duration::from_millis(500), ..Options::default() });
    let error = client.call("ip.get", members(json!({"address": "10.0.0.1"}))).await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error:?}");
    assert!(!client.shared.table().is_needed());
    assert_eq!(client.call("server.ping", Map::new()).await.unwrap(), json!("pong"));
}

/// A refusal that passes, and then no answer.
async fn refused_then_silent(error: Value) -> Client {
    let asked_before = AtomicUsize::new(0);
    let (address, _) = listener(move |_, _, _| match asked_before.fetch_add(1, Ordering::Relaxed) {
        0 => Does::Refuses(error.clone()),
        _ => Does::Nothing,
    })
    .await;
    Client::new([address], Options { timeout: Duration::from_millis(500), ..Options::default() })
}

/// When time runs out is chance; why the try before was refused is not.
#[tokio::test]
async fn a_call_that_is_given_up_in_the_midst_of_a_repeat_ends_with_what_it_was_refused_with() {
    let away = || refusal("unavailable", json!({"applied": false, "retry_after_ms": 1}));
    let read = refused_then_silent(away()).await.call("ip.get", members(json!({"address": "10.0.0.1"}))).await;
    let Err(ClientError::Rpc(refused)) = read else { panic!("{read:?}") };
    assert_eq!((&*refused.kind, &refused.data["applied"]), ("unavailable", &json!(false)));
    // The try under way may take effect nevertheless.
    let grant = members(json!({"network": "lan", "owner": "b"}));
    let changed = refused_then_silent(away()).await.call("ip.allocate", grant.clone()).await.unwrap_err();
    assert!(changed.is_unknown(), "{changed:?}");
    assert_eq!(changed.rpc().map(|it| &it.data["applied"]), Some(&json!("unknown")));
    let released = refused_then_silent(away()).await.call("ip.release", release()).await.unwrap_err();
    let ClientError::Unknown { cause, .. } = &released else { panic!("{released:?}") };
    assert_eq!(cause.kind(), "unavailable");
    // A redirect is not a refusal.
    let moved = refused_then_silent(refusal("moved", json!({"address": "127.0.0.1:1"}))).await;
    assert!(matches!(moved.call("ip.allocate", grant).await, Err(ClientError::TimedOut { .. })));
}

#[tokio::test]
async fn who_only_looks_takes_a_refusal_for_the_answer() {
    let (address, heard) = listener(|_, _, _| Does::Refuses(refusal("unavailable", json!({"applied": false})))).await;
    let client = Client::new([address], Options { asks_again: false, ..Options::default() });
    assert_eq!(client.call("cluster.conflicts", Map::new()).await.unwrap_err().kind(), "unavailable");
    assert_eq!(methods(&heard), ["cluster.conflicts"]);
}

#[tokio::test]
async fn of_several_servers_that_are_not_there_each_is_named_with_its_reason() {
    let options = Options { wait_for_server: false, ..Options::default() };
    let client = Client::new(["127.0.0.1:1", "127.0.0.1:2"], options);
    let said = client.call("server.ping", Map::new()).await.unwrap_err().to_string();
    assert!(said.contains("127.0.0.1:1: ") && said.contains("; 127.0.0.1:2: "), "{said}");
}

#[tokio::test]
async fn a_waiting_call_that_is_asked_again_waits_no_longer_than_its_caller() {
    let asked_before = AtomicUsize::new(0);
    let (address, heard) = listener(move |_, _, params| match asked_before.fetch_add(1, Ordering::Relaxed) {
        // More than is left of the time besides the wait.
        0 => Does::Refuses(refusal("not_ready", json!({"retry_after_ms": 100}))),
        1 => Does::HangsUp,
        _ => Does::Answers(params.clone()),
    })
    .await;
    let client = Client::new([address], Options { timeout: Duration::from_millis(50), ..Options::default() });
    client.call("ip.allocate", waiting()).await.unwrap();
    let waits: Vec<u64> = heard.lock().unwrap().iter().filter_map(|(_, _, it)| it["wait_seconds"].as_u64()).collect();
    assert!(waits.len() == 3 && waits[1..].iter().all(|&wait| wait < 60), "{waits:?}");
}

/// A mere end of input would not do: a server that sees no reset goes on waiting, and grants to nobody.
#[tokio::test]
async fn a_connection_that_ends_behind_a_waiting_call_that_was_given_up_is_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new([listener.local_addr().unwrap().to_string()], Options::default());
    let called = client.clone();
    let call = tokio::spawn(async move { called.call("ip.allocate", waiting()).await });
    let (stream, _) = listener.accept().await.unwrap();
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut String::new()).await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    drop(client);
    let reset = reader.get_ref().ready(tokio::io::Interest::ERROR);
    assert!(tokio::time::timeout(Duration::from_secs(10), reset).await.is_ok(), "no reset");
}

#[tokio::test]
async fn what_is_about_one_connection_is_not_called() {
    let client = Client::new(["127.0.0.1:1"], Options::default());
    for method in ["events.watch", "events.unwatch", "session.set"] {
        let error = client.call(method, Map::new()).await.unwrap_err();
        assert!(matches!(error, ClientError::NotForClient { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_client_that_is_gone_leaves_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new([listener.local_addr().unwrap().to_string()], Options::default());
    let asked = tokio::spawn(async move { client.call("server.ping", Map::new()).await });
    let (stream, _) = listener.accept().await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert!(lines.next_line().await.unwrap().is_some());
    asked.abort();
    // The end of input, or a reset.
    assert!(!matches!(lines.next_line().await, Ok(Some(_))));
}

/// A listener that reads `count` requests of one connection, writes what `answer` makes of them, and closes it.
async fn once(count: usize, answer: impl Fn(Vec<Value>) -> String + Send + 'static) -> Client {
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
    Client::new([address], Options::default())
}

#[tokio::test]
async fn answers_in_another_order_reach_the_calls_that_they_are_for() {
    let client = once(3, |requests| {
        let answer = |request: &Value| {
            let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": request["params"]["n"]});
            format!("{answer}\n")
        };
        requests.iter().rev().map(answer).collect()
    })
    .await;
    let call = |n: u64| client.call("x", members(json!({ "n": n })));
    let (first, second, third) = tokio::join!(call(1), call(2), call(3));
    assert_eq!([first.unwrap(), second.unwrap(), third.unwrap()], [json!(1), json!(2), json!(3)]);
}

#[tokio::test]
async fn a_refusal_keeps_code_kind_message_and_data() {
    let client = once(1, |requests| {
        let error = json!({"code": -32001, "message": "no such network",
            "data": {"kind": "not_found", "retry": "never", "field": "network"}});
        format!("{}\n", json!({"jsonrpc": "2.0", "id": requests[0]["id"], "error": error}))
    })
    .await;
    let error = client.call("x", Map::new()).await.unwrap_err();
    let rpc = error.rpc().unwrap();
    assert_eq!((rpc.code, rpc.kind.as_str(), rpc.message.as_str()), (-32001, "not_found", "no such network"));
    assert_eq!(rpc.data["field"], "network");
}

#[tokio::test]
async fn what_is_no_json_rpc_is_told_from_a_lost_connection() {
    let client = once(1, |_| "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned()).await;
    let error = client.call("ip.get", members(json!({"address": "10.0.0.1"}))).await.unwrap_err();
    assert!(matches!(&error, ClientError::Malformed { cause } if cause.contains("HTTP")), "{error:?}");
}

#[tokio::test]
async fn a_connection_that_ends_wakes_every_call_that_may_not_be_repeated() {
    let client = once(2, |_| String::new()).await;
    let (first, second) =
        tokio::join!(client.call("scope.release", Map::new()), client.call("scope.release", Map::new()));
    for ended in [first, second] {
        let Err(ClientError::Unknown { cause, .. }) = &ended else { panic!("{ended:?}") };
        assert!(matches!(**cause, ClientError::Lost { .. }), "{ended:?}");
    }
}
