//! A server with canned answers: it records the requests, and looks up the answers by method.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// Answers a request: `Ok` is a result, `Err` is an error object.
pub type Answers = Box<dyn Fn(&str, &Value) -> Result<Value, Value> + Send + Sync>;

/// A listener on a free port. Its threads end with the test's process.
pub struct Responder {
    /// The address on which it listens.
    pub address: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Responder {
    /// Starts to answer.
    pub fn start(answers: impl Fn(&str, &Value) -> Result<Value, Value> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (noted, answers): (_, Arc<Answers>) = (asked.clone(), Arc::new(Box::new(answers)));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (noted, answers) = (noted.clone(), answers.clone());
                std::thread::spawn(move || serve(stream, &noted, &answers));
            }
        });
        Self { address, asked }
    }

    /// The requests so far, in order.
    pub fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().unwrap().clone()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.asked.lock().unwrap().clear();
    }

    /// The methods of the requests so far, in order.
    pub fn methods(&self) -> Vec<String> {
        self.asked().into_iter().map(|(method, _)| method).collect()
    }
}

fn serve(stream: TcpStream, asked: &Mutex<Vec<(String, Value)>>, answers: &Answers) {
    let mut writer = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let request: Value = serde_json::from_str(&line).unwrap();
        let method = request["method"].as_str().unwrap().to_owned();
        asked.lock().unwrap().push((method.clone(), request["params"].clone()));
        let answer = match answers(&method, &request["params"]) {
            Ok(result) => json!({"jsonrpc": "2.0", "id": request["id"], "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": request["id"], "error": error}),
        };
        if writeln!(writer, "{answer}").is_err() {
            return;
        }
    }
}

/// An error object as the server sends it.
pub fn refusal(kind: allod::wire::ErrorKind, message: &str, mut facts: Value) -> Value {
    facts["kind"] = json!(kind.as_str());
    facts["retry"] = json!(kind.retry().as_str());
    json!({"code": kind.code(), "message": message, "data": facts})
}
