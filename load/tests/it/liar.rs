//! A server that lies: it stands between the load program and a real server, forwards the requests, and changes the answers.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::program::{Server, report};

/// Maps the request and the true answer to the answers that are sent instead; a JSON string is sent as raw text. The request
/// also has a member `connection`, a number.
type Lie = Box<dyn FnMut(&Value, Value) -> Vec<Value> + Send>;
/// Changes a request before it is forwarded.
type Alteration = Box<dyn FnMut(&mut Value) + Send>;

/// The liar, and the server behind it.
pub struct Liar {
    pub address: SocketAddr,
    _server: Option<Server>,
}

impl Liar {
    /// A server whose answers this function changes.
    pub fn who(lie: impl FnMut(&Value, Value) -> Vec<Value> + Send + 'static) -> Self {
        Self::before(Server::start(), lie)
    }

    /// A liar before this server; dropping it ends the server.
    pub fn before(server: Server, lie: impl FnMut(&Value, Value) -> Vec<Value> + Send + 'static) -> Self {
        Self::between(server.address, Some(server), |_| (), lie)
    }

    /// A liar before a running server that others use too.
    pub fn beside(behind: SocketAddr, lie: impl FnMut(&Value, Value) -> Vec<Value> + Send + 'static) -> Self {
        Self::between(behind, None, |_| (), lie)
    }

    /// A server for which some requests are changed, and these are answered by `answer`.
    pub fn altering(
        mut alter: impl FnMut(&mut Value) -> bool + Send + 'static,
        answer: impl Fn(&Value) -> Value + Send + 'static,
    ) -> Self {
        // Ids are unique only within one connection, so altered requests are recognised by their content.
        let mark = |request: &Value| format!("{} {} {}", request["id"], request["method"], request["params"]);
        let altered = Arc::new(Mutex::new(HashSet::new()));
        let noted = Arc::clone(&altered);
        let alter = move |request: &mut Value| {
            if alter(request) {
                noted.lock().unwrap().insert(mark(request));
            }
        };
        let lie = move |request: &Value, truth: Value| {
            let is_altered = altered.lock().unwrap().remove(&mark(request));
            vec![if is_altered { answer(&truth) } else { truth }]
        };
        let server = Server::start();
        Self::between(server.address, Some(server), alter, lie)
    }

    fn between(
        behind: SocketAddr,
        server: Option<Server>,
        alter: impl FnMut(&mut Value) + Send + 'static,
        lie: impl FnMut(&Value, Value) -> Vec<Value> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let lie: Arc<Mutex<Lie>> = Arc::new(Mutex::new(Box::new(lie)));
        let alter: Arc<Mutex<Alteration>> = Arc::new(Mutex::new(Box::new(alter)));
        // Ends with the process of the test.
        thread::spawn(move || {
            for (connection, client) in listener.incoming().enumerate() {
                let client = client.unwrap();
                // If the server has ended, the connection is closed.
                let Ok(server) = TcpStream::connect(behind) else { continue };
                hand_on(connection, &client, &server, Arc::clone(&alter), Arc::clone(&lie));
            }
        });
        Self { address, _server: server }
    }

    /// Makes one call.
    #[track_caller]
    pub fn call(&self, method: &str, params: &Value) -> Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let request = json!({"jsonrpc": "2.0", "id": "beside", "method": method, "params": params});
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Runs a scenario against it, over two connections if the words name no number; returns the exit code and the report.
    #[track_caller]
    pub fn reported_by(&self, words: &[&str]) -> (i32, Value) {
        let server = self.address.to_string();
        let shape: &[&str] =
            if words.contains(&"--connections") { &[] } else { &["--connections", "2", "--depth", "2"] };
        report(&[words, shape, &["--patience", "2", "--server", &server]].concat())
    }

    /// Runs a scenario against it; returns the broken rules, and how often each was broken.
    #[track_caller]
    pub fn found_by(&self, words: &[&str]) -> HashMap<String, u64> {
        let (code, report) = self.reported_by(words);
        let faults: HashMap<String, u64> = serde_json::from_value(report["faults"].clone()).unwrap();
        assert_eq!(code, i32::from(!faults.is_empty()), "the exit code tells of faults: {report}");
        assert_eq!(faults.is_empty(), report["fault_examples"].as_array().unwrap().is_empty(), "{report}");
        faults
    }
}

fn hand_on(
    connection: usize,
    client: &TcpStream,
    server: &TcpStream,
    alter: Arc<Mutex<Alteration>>,
    lie: Arc<Mutex<Lie>>,
) {
    for stream in [client, server] {
        stream.set_nodelay(true).unwrap();
    }
    let asked = Arc::new(Mutex::new(HashMap::new()));
    let (from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let noted = Arc::clone(&asked);
    thread::spawn(move || {
        for line in BufReader::new(from_client).lines() {
            let Ok(line) = line else { break };
            let mut request: Value = serde_json::from_str(&line).unwrap();
            alter.lock().unwrap()(&mut request);
            let line = request.to_string();
            noted.lock().unwrap().insert(request["id"].to_string(), request);
            if to_server.write_all(format!("{line}\n").as_bytes()).is_err() {
                break;
            }
        }
        // The load program has closed its connection, so the one behind the liar is closed too.
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let (mut to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        for line in BufReader::new(from_server).lines() {
            let Ok(line) = line else { break };
            let answer: Value = serde_json::from_str(&line).unwrap();
            let mut request = asked.lock().unwrap().remove(&answer["id"].to_string()).unwrap_or_default();
            if request.is_object() {
                request["connection"] = json!(connection);
            }
            let answers = lie.lock().unwrap()(&request, answer);
            let line = |answer: &Value| match answer {
                Value::String(raw) => format!("{raw}\n"),
                answer => format!("{answer}\n"),
            };
            let lines: String = answers.iter().map(line).collect();
            if to_client.write_all(lines.as_bytes()).is_err() {
                break;
            }
        }
        // The server has closed its connection, so the one before the liar is closed too.
        let _ = to_client.shutdown(Shutdown::Both);
    });
}
