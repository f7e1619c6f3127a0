//! A piece of network between two processes: it can hold what goes one way or both, let it come late, or break.
//!
//! What is held is not lost: it arrives when the wire is whole again, however late, unless the wire breaks first. New
//! connections are accepted while it holds, as the other end's kernel would; nothing passes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What a wire does to both of its ways.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    /// From those who connect to whom they reach; and back.
    holds: [bool; 2],
    delay: Duration,
    /// Connections that began under another number are broken.
    generation: u64,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From those who connect.
    There,
    /// To those who connect.
    Back,
    Both,
}

/// For some of those who connect, whom they reach instead.
type Detour = Arc<dyn Fn(SocketAddr) -> Option<SocketAddr> + Send + Sync>;

/// See the module's text. It ends with the process.
#[derive(Clone)]
pub struct Wire {
    pub address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    to: Arc<Mutex<SocketAddr>>,
    detour: Arc<Mutex<Option<Detour>>>,
    /// Bytes that were not let through at once.
    held: Arc<AtomicU64>,
}

/// Wires must not wait for a test that waits.
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

    /// Nothing goes this way from now on; nobody is told.
    pub fn hold(&self, way: Way) {
        self.state.send_modify(|state| state.holds = [way != Way::Back, way != Way::There]);
    }

    /// It is whole: what was held arrives.
    pub fn release(&self) {
        self.state.send_modify(|state| (state.holds, state.delay) = ([false; 2], Duration::ZERO));
    }

    /// Every connection breaks, and what was held is lost. It is whole for the next.
    pub fn cut(&self) {
        self.state.send_modify(|state| {
            *state = State { generation: state.generation + 1, ..State::default() };
        });
    }

    /// Everything comes so much later, both ways.
    pub fn delay(&self, by: Duration) {
        self.state.send_modify(|state| state.delay = by);
    }

    /// Whom they reach is elsewhere now.
    pub fn lead_to(&self, address: SocketAddr) {
        *self.to.lock().unwrap() = address;
    }

    /// Whoever connects from now on, and is this process, goes by a wire of its own: what is held here passes there.
    pub fn apart(&self, pid: u32) -> Wire {
        let apart = Wire::to(*self.to.lock().unwrap());
        let address = apart.address;
        *self.detour.lock().unwrap() = Some(Arc::new(move |near| is_of(pid, near.port()).then_some(address)));
        apart
    }

    /// How many bytes were held or came late.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    async fn carry(self, near: TcpStream) {
        let mut state = self.state.subscribe();
        let generation = state.borrow().generation;
        let detour = self.detour.lock().unwrap().clone().zip(near.peer_addr().ok());
        // Who it is takes a while to find where there are many sockets, and what passes elsewhere does not wait for it.
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
        // Dropping both ends breaks them.
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
                    // Broken, it is whole for the next, and what was held here is lost.
                    let whole = state.wait_for(|state| !state.holds[way] || state.generation != generation).await;
                    if !whole.is_ok_and(|state| state.generation == generation) {
                        return;
                    }
                }
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            // The other end was told last: it hears of the end behind all that was said.
            let _ = to.shutdown().await;
        };
        tokio::join!(read, write);
    }
}

/// The connections of this machine as they were read last, and when that began.
static CONNECTIONS: Mutex<Option<(std::time::Instant, Arc<str>)>> = Mutex::new(None);

/// The connections of this machine as they were at this time or later. A machine may have thousands, and reading them takes
/// longer the more there are: who waits takes what is read meanwhile, or each connection would hold up all the next.
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

/// Is the local end of a connection at this port, of all of this machine, one of this process?
fn is_of(pid: u32, port: u16) -> bool {
    let table = connections(std::time::Instant::now());
    let local = format!(":{port:04X} ");
    let sockets: Vec<String> = table
        .match_indices(&local)
        .filter_map(|(at, _)| {
            let line = table[..at].rfind('\n')? + 1;
            let words: Vec<&str> = table[line..].lines().next()?.split_whitespace().collect();
            // Not the other end, which names it as the remote one.
            words.get(1)?.ends_with(local.trim_end()).then(|| format!("socket:[{}]", words[9]))
        })
        .collect();
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    names.filter_map(|name| name.to_str().map(str::to_owned)).any(|name| sockets.contains(&name))
}
