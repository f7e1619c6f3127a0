//! The ceiling of this machine: a server that only parses each request and serialises an answer.
//!
//! It counts addresses up instead of allocating them, so that the same client with the same audit can drive it. It is built
//! like the edge of the real server: tokio, one thread, serde_json, one write for the answers to one read.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::audit::{Auditor, Ground};
use crate::audited::Audited;
use crate::driver::{self, Shape};
use crate::meter::Meter;
use crate::report::Report;
use crate::scenario::{Name, Scenario, Settings};

/// The members of an `ip.allocate` request. They are borrowed, as in the real server.
#[derive(Deserialize)]
struct Request<'a> {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: &'a str,
    id: u64,
    #[serde(rename = "method")]
    _method: &'a str,
    params: Params<'a>,
}

#[derive(Deserialize)]
struct Params<'a> {
    network: &'a str,
    owner: &'a str,
    #[serde(default)]
    brief: bool,
}

/// An answer of the size of a real one.
#[derive(Serialize)]
struct Response<'a> {
    jsonrpc: &'static str,
    id: u64,
    result: Reservation<'a>,
}

#[derive(Serialize)]
struct Reservation<'a> {
    address: Ipv4Addr,
    prefix_length: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    generation: u32,
    created: bool,
}

/// The scenario with an audit that has no ground to check answers against: this server has no networks.
fn audited(scenario: Box<dyn Scenario>, lanes: usize) -> Audited {
    let mut audit = Auditor::new(lanes, 1, 0);
    let everything = json!({"cidr": "0.0.0.0/0", "pools": [{"range": "0.0.0.0/0", "kind": "dynamic"}]});
    audit.add("load-00", Ground::read(&json!({"subnets": [everything]})), Duration::ZERO, false);
    Audited { capacity: u128::from(u32::MAX), ..Audited::new(scenario, audit) }
}

/// Drives the echo server with allocations.
///
/// # Errors
/// The server cannot be started or driven.
pub fn measure(shape: Shape, brief: bool) -> io::Result<Report> {
    let shape = Shape { servers: vec![start()?], ..shape };
    let settings = Settings { lanes: shape.lanes(), brief, ..Settings::default() };
    let mut audited = audited(Name::Fill.build(&settings), shape.lanes());
    let measured = driver::run(&shape, &mut audited, Meter::new(shape.expected(), None))?.whole()?;
    let mut report = Report::measured("echo", "nothing but JSON", &shape, 1, &measured).audited(&audited);
    report.judge();
    // The server counts up and holds nothing: that no address was handed out twice proves nothing here.
    report.checked = 0;
    Ok(report)
}

/// Serves in a thread of its own until the process ends, and returns the address on which it listens.
///
/// # Errors
/// There is no free port, or no thread can be started.
fn start() -> io::Result<SocketAddr> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    std::thread::Builder::new().name("echo".into()).spawn(move || runtime.block_on(accept(listener)))?;
    Ok(address)
}

async fn accept(listener: TcpListener) {
    // The first address is 10.0.0.1.
    let next = Arc::new(AtomicU32::new(0x0a00_0001));
    while let Ok((stream, _)) = listener.accept().await {
        let next = Arc::clone(&next);
        tokio::spawn(async move {
            if let Err(error) = serve(stream, &next).await {
                say!("allod-load: echo: {error}");
            }
        });
    }
}

async fn serve(mut stream: TcpStream, next: &AtomicU32) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut inbox, mut outbox) = (Vec::with_capacity(64 << 10), Vec::with_capacity(64 << 10));
    loop {
        if stream.read_buf(&mut inbox).await? == 0 {
            return Ok(());
        }
        let mut done = 0;
        while let Some(length) = memchr::memchr(b'\n', &inbox[done..]) {
            answer(&inbox[done..done + length], next, &mut outbox)?;
            done += length + 1;
        }
        inbox.drain(..done);
        stream.write_all(&outbox).await?;
        outbox.clear();
    }
}

fn answer(line: &[u8], next: &AtomicU32, out: &mut Vec<u8>) -> io::Result<()> {
    let Request { id, params, .. } = serde_json::from_slice(line)?;
    let bits = next.fetch_add(1, Ordering::Relaxed);
    let long = !params.brief;
    let result = Reservation {
        address: Ipv4Addr::from(bits),
        prefix_length: 32,
        network: long.then_some(params.network),
        owner: long.then_some(params.owner),
        generation: bits,
        created: true,
    };
    serde_json::to_writer(&mut *out, &Response { jsonrpc: "2.0", id, result })?;
    out.push(b'\n');
    Ok(())
}
