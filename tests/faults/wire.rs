//! A piece of network between two processes: it can hold traffic one way or both, delay it, or break.
//!
//! What is held is not lost: it arrives when the wire is whole again, however late, unless the wire breaks first. New
//! connections are accepted while the wire holds, as the kernel of the other end would do; nothing passes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What a wire does to traffic in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    /// One for traffic from those who connect, one for traffic back to them.
    holds: [bool; 2],
    delay: Duration,
    /// Connections that began under another number are broken.
    generation: u64,
}

/// A direction of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From those who connect.
    There,
    /// To those who connect.
    Back,
    Both,
}

/// For some of those who connect, another address that they reach instead.
type Detour = Arc<dyn Fn(SocketAddr) -> Option<SocketAddr> + Send + Sync>;

/// See the module's text. A wire lasts until the process ends.
#[derive(Clone)]
pub struct Wire {
    pub address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    to: Arc<Mutex<SocketAddr>>,
    detour: Arc<Mutex<Option<Detour>>>,
    /// Bytes that were not let through at once.
    held: Arc<AtomicU64>,
}

/// The wires have a runtime of their own, so that they go on while a test blocks.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap())
}

impl Wire {
    pub fn to(address: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let wire = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::new(watch::Sender::new(State::default())),
            to: Arc::new(Mutex::new(address)),
            detour: Arc::default(),
            held: Arc::default(),
        };
        let inside = wire.clone();
        runtime().spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(inside.clone().carry(near));
            }
        });
        wire
    }

    /// Holds traffic in this direction from now on; neither end is told.
    pub fn hold(&self, way: Way) {
        self.state.send_modify(|state| state.holds = [way != Way::Back, way != Way::There]);
    }

    /// Makes the wire whole: what was held arrives.
    pub fn release(&self) {
        self.state.send_modify(|state| (state.holds, state.delay) = ([false; 2], Duration::ZERO));
    }

    /// Breaks every connection; what was held is lost. The wire is whole for new connections.
    pub fn cut(&self) {
        self.state.send_modify(|state| {
            *state = State { generation: state.generation + 1, ..State::default() };
        });
    }

    /// Delays all traffic by this much in both directions.
    pub fn delay(&self, by: Duration) {
        self.state.send_modify(|state| state.delay = by);
    }

    /// New connections reach this address from now on.
    pub fn lead_to(&self, address: SocketAddr) {
        *self.to.lock().unwrap() = address;
    }

    /// Returns a separate wire for new connections of this process; what is held here passes there.
    pub fn apart(&self, pid: u32) -> Wire {
        let apart = Wire::to(*self.to.lock().unwrap());
        let address = apart.address;
        *self.detour.lock().unwrap() = Some(Arc::new(move |near| is_of(pid, near.port()).then_some(address)));
        apart
    }

    /// How many bytes were held or delayed.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    async fn carry(self, near: TcpStream) {
        let mut state = self.state.subscribe();
        let generation = state.borrow().generation;
        let detour = self.detour.lock().unwrap().clone().zip(near.peer_addr().ok());
        // Finding out which process this is takes a while if there are many sockets; other connections do not wait for it.
        let detour =
            tokio::task::spawn_blocking(move || detour.and_then(|(of, near)| of(near))).await.unwrap_or_default();
        let is_apart = detour.is_some();
        let to = detour.unwrap_or(*self.to.lock().unwrap());
        let Ok(far) = TcpStream::connect(to).await else { return };
        let (Ok(()), Ok(())) = (near.set_nodelay(true), far.set_nodelay(true)) else { return };
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        let both = async {
            tokio::join!(
                self.pass((0, is_apart), generation, near_in, far_out),
                self.pass((1, is_apart), generation, far_in, near_out)
            );
        };
        // Dropping both ends breaks the connection.
        tokio::select! {
            () = both => {}
            _ = state.wait_for(|state| state.generation != generation) => {}
        }
    }

    async fn pass(
        &self,
        (way, is_apart): (usize, bool),
        generation: u64,
        mut from: tokio::net::tcp::OwnedReadHalf,
        mut to: tokio::net::tcp::OwnedWriteHalf,
    ) {
        let (sender, mut waiting) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
        let read = async move {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(length @ 1..) = from.read(&mut buffer).await {
                if sender.send((Instant::now(), buffer[..length].to_vec())).is_err() {
                    break;
                }
            }
        };
        let write = async {
            let mut state = self.state.subscribe();
            while let Some((came, bytes)) = waiting.recv().await {
                let now = *state.borrow();
                if !is_apart && (now.holds[way] || now.delay > Duration::ZERO) {
                    self.held.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    tokio::time::sleep_until(came + now.delay).await;
                    // After a break the wire is whole only for new connections, and what was held here is lost.
                    let whole = state.wait_for(|state| !state.holds[way] || state.generation != generation).await;
                    if !whole.is_ok_and(|state| state.generation == generation) {
                        return;
                    }
                }
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            // The end of the traffic is passed on last, after everything that was sent.
            let _ = to.shutdown().await;
        };
        tokio::join!(read, write);
    }
}

/// The last reading of the machine's connections, and when it began.
static CONNECTIONS: Mutex<Option<(std::time::Instant, Arc<str>)>> = Mutex::new(None);

/// The machine's connections as they were at this time or later. There may be thousands, and reading them takes longer the
/// more there are. A caller that had to wait therefore uses what was read meanwhile, or each connection would hold up all
/// the next.
fn connections(since: std::time::Instant) -> Arc<str> {
    let mut last = CONNECTIONS.lock().unwrap();
    if let Some((begun, text)) = &*last
        && *begun >= since
    {
        return Arc::clone(text);
    }
    let begun = std::time::Instant::now();
    let text: Arc<str> = std::fs::read_to_string("/proc/net/tcp").unwrap().into();
    *last = Some((begun, Arc::clone(&text)));
    text
}

/// Is the local end of a connection at this port of the machine one of this process?
fn is_of(pid: u32, port: u16) -> bool {
    let table = connections(std::time::Instant::now());
    let local = format!(":{port:04X} ");
    let sockets: Vec<String> = table
        .match_indices(&local)
        .filter_map(|(at, _)| {
            let line = table[..at].rfind('\n')? + 1;
            let words: Vec<&str> = table[line..].lines().next()?.split_whitespace().collect();
            // Lines that have the port as the remote end do not count.
            words.get(1)?.ends_with(local.trim_end()).then(|| format!("socket:[{}]", words[9]))
        })
        .collect();
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    names.filter_map(|name| name.to_str().map(str::to_owned)).any(|name| sockets.contains(&name))
}
