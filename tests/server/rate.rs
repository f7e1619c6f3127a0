//! A rough rate: `cargo test --release --test server rate -- --ignored --nocapture`. The load harness measures properly.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allod::config::{Config, StoreKind};
use allod::serve::{Options, open_store, start};
use serde_json::json;

use crate::support::Client;

fn measure(kind: StoreKind, connections: usize, depth: usize, networks: usize, brief: bool) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.store.kind = kind;
    config.store.directory = dir.path().join("data");
    config.server.threads = std::env::var("ALLOD_RATE_THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let running = start(Options::new(config.clone(), open_store(&config).unwrap()).on_free_ports()).unwrap();
    let mut client = Client::to(TcpStream::connect(running.tcp).unwrap());
    for at in 0..networks {
        client.ok(
            "network.create",
            json!({"name": format!("net-{at:02}"), "subnets": [{"cidr": format!("{}.0.0.0/8", 10 + at)}]}),
        );
    }
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    // One thread drives all connections, as PERFORMANCE.md's generator does, so that the server has the other processor.
    let (stopped, counted, tcp) = (Arc::clone(&stop), Arc::clone(&done), running.tcp);
    let driver = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            let tasks: Vec<_> = (0..connections)
                .map(|at| {
                    let (stopped, counted) = (Arc::clone(&stopped), Arc::clone(&counted));
                    tokio::task::spawn_local(drive(tcp, at, depth, networks, brief, stopped, counted))
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
    std::thread::sleep(Duration::from_millis(500));
    let (before, begun) = (done.load(Ordering::Relaxed), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    let rate = (done.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    driver.join().unwrap();
    println!("{kind:?} {connections}x{depth} {networks} networks brief={brief}: {rate:.0}/s");
    drop(running);
}

async fn drive(
    tcp: std::net::SocketAddr,
    at: usize,
    depth: usize,
    networks: usize,
    brief: bool,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(tcp).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut next, mut buffer, mut text) = (0_u64, vec![0; 256 << 10], Vec::new());
    let mut want = depth;
    while !stop.load(Ordering::Relaxed) {
        text.clear();
        for _ in 0..want {
            next += 1;
            writeln!(
                text,
                "{{\"jsonrpc\":\"2.0\",\"id\":{next},\"method\":\"ip.allocate\",\"params\":{{\"network\":\"net-{:02}\",\"owner\":\"node-{at}/{next}\"{}}}}}",
                (at + next as usize) % networks,
                if brief { ",\"brief\":true" } else { "" }
            )
            .unwrap();
        }
        stream.write_all(&text).await.unwrap();
        let count = stream.read(&mut buffer).await.unwrap();
        want = memchr::memchr_iter(b'\n', &buffer[..count]).count();
        done.fetch_add(want as u64, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "a measurement, for a release build"]
fn rate() {
    for kind in [StoreKind::Memory, StoreKind::Embedded] {
        for (connections, depth, networks, brief) in [
            (64, 16, 1, true),
            (64, 16, 1, false),
            (64, 16, 64, true),
            (64, 1, 1, true),
            (1, 1, 1, true),
            (8, 16, 1, true),
        ] {
            measure(kind, connections, depth, networks, brief);
        }
    }
}
