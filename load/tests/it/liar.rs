//! A server that lies: between the load and a real server, it hands on what is asked, and changes what is answered.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::program::{Server, report};

/// What becomes of an answer: the request, the true answer, and what is answered in its place; a text is sent as it is.
type Lie = Box<dyn FnMut(&Value, Value) -> Vec<Value> + Send>;
/// What becomes of a request, in its place.
type Alteration = Box<dyn FnMut(&mut Value) + Send>;

/// The liar, and the server behind it.
pub struct Liar {
    pub address: SocketAddr,
    _server: Option<Server>,
}

impl Liar {
    /// A server that answers what this function makes of the truth.
    pub fn who(lie: impl FnMut(&Value, Value) -> Vec<Value> + Send + 'static) -> Self {
        Self::before(Server::start(), lie)
    }

    /// A liar before this server, which ends with it.
    pub fn before(server: Server, lie: impl FnMut(&Value, Value) -> Vec<Value> + Send + 'static) -> Self {
        Self::between(server.address, Some(server), |_| (), lie)
    }

    /// A liar before who listens there, beside others.
    pub fn beside(behind: SocketAddr, lie: impl FnMut(&Value, Value) -> Vec<Value> + Send + 'static) -> Self {
        Self::between(behind, None, |_| (), lie)
    }

    /// A server that is asked something else in place of some requests, and answers those so.
    pub fn altering(
        mut alter: impl FnMut(&mut Value) -> bool + Send + 'static,
        answer: impl Fn(&Value) -> Value + Send + 'static,
    ) -> Self {
        // Ids are those of one connection of several, so the connections' answers are told apart by what they answer.
        let mark = |request: &Value| request.to_string();
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
            for client in listener.incoming() {
                let client = client.unwrap();
                // Where the server has ended, so has the connection.
                let Ok(server) = TcpStream::connect(behind) else { continue };
                hand_on(&client, &server, Arc::clone(&alter), Arc::clone(&lie));
            }
        });
        Self { address, _server: server }
    }

    /// Asks it one thing.
    #[track_caller]
    pub fn call(&self, method: &str, params: &Value) -> Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let request = json!({"jsonrpc": "2.0", "id": "beside", "method": method, "params": params});
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Runs a scenario against it; its exit code and report.
    #[track_caller]
    pub fn reported_by(&self, words: &[&str]) -> (i32, Value) {
        let server = self.address.to_string();
        let shape = ["--connections", "2", "--depth", "2", "--patience", "2", "--server", &server];
        report(&[words, &shape].concat())
    }

    /// Runs a scenario against it; which rules it was found to break, and how often.
    #[track_caller]
    pub fn found_by(&self, words: &[&str]) -> HashMap<String, u64> {
        let (code, report) = self.reported_by(words);
        let faults: HashMap<String, u64> = serde_json::from_value(report["faults"].clone()).unwrap();
        assert_eq!(code, i32::from(!faults.is_empty()), "the exit code tells of faults: {report}");
        assert_eq!(faults.is_empty(), report["fault_examples"].as_array().unwrap().is_empty(), "{report}");
        faults
    }
}

fn hand_on(client: &TcpStream, server: &TcpStream, alter: Arc<Mutex<Alteration>>, lie: Arc<Mutex<Lie>>) {
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
        // The load has gone; so does its connection behind the liar.
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let (mut to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        for line in BufReader::new(from_server).lines() {
            let Ok(line) = line else { break };
            let answer: Value = serde_json::from_str(&line).unwrap();
            let request = asked.lock().unwrap().remove(&answer["id"].to_string()).unwrap_or_default();
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
        // The server has gone; so does the connection before the liar.
        let _ = to_client.shutdown(Shutdown::Both);
    });
}
