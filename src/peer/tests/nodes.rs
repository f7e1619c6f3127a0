//! Nodes for tests: identities, a server that records what it was asked, and a proxy that cuts connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::actors::coordinator::{Done, Job, Order};
use crate::actors::events::{Cursor, Filter};
use crate::actors::waits::{Caller, Wait};
use crate::actors::{BeganToWait, Item, Outlet, Reply, Told};
use crate::core::address::Address;
use crate::core::command::{Command, Target};
use crate::core::outcome::Outcome;
use crate::core::types::NetworkId;
use crate::peer::frame::{NetworkRef, PeerStanding};
use crate::peer::link::{Link, LinkState};
use crate::peer::listener::{self, NotOwner, RemoteAsker, Serve};
use crate::peer::secret::Secret;
use crate::peer::{Identity, NodeId, Versions};

pub const SECRET: &[u8] = b"a secret of a cluster";

pub fn secret() -> Secret {
    Secret::new(SECRET).unwrap()
}

pub fn identity(node: u128) -> Identity {
    Identity {
        node: NodeId(node),
        name: format!("node-{node}").into(),
        register: "11111111-aaaa".into(),
        shards: 16,
        build: "0.1.0".into(),
    }
}

pub fn network() -> NetworkRef {
    NetworkRef::Name("lan".parse().unwrap())
}

fn item(ticket: u32, command: Command) -> Item {
    Item { ticket, command, by: "test".into(), reason: None, deadline: None, dry_run: false, wait: None }
}

/// A request that only reads; `number` comes back in its answer.
pub fn read(ticket: u32, number: u32) -> Item {
    item(ticket, Command::Get(Address::V4(number)))
}

/// A request that may wait.
pub fn wait(ticket: u32) -> Item {
    let wait = Some(Wait::begins(60_000, Arc::default()));
    Item { wait, ..renew(ticket, ticket) }
}

/// A request that changes something; `number` comes back in its answer.
pub fn renew(ticket: u32, number: u32) -> Item {
    let target = Target { address: Some(Address::V4(number)), ..Target::default() };
    item(ticket, Command::Renew(Box::new(target), None))
}

/// A job that waits for events of a subscription.
pub fn events() -> Order {
    let wait = Some(Wait::begins(60_000, Arc::default()));
    let job = Job::Events { filter: Filter::default(), cursor: Cursor::default(), wait_ms: 60_000 };
    Order { wait, ..order(job) }
}

pub fn order(job: Job) -> Order {
    Order { job, by: "test".into(), reason: None, deadline: None, dry_run: false, wait: None }
}

/// The report that a request waits, for a network with the same number as the request.
fn began_to_wait(item: &Item) -> BeganToWait {
    BeganToWait { ticket: item.ticket, networks: vec![NetworkId(number_of(item).bits())] }
}

fn number_of(item: &Item) -> Address {
    match &item.command {
        Command::Get(address) => *address,
        Command::Renew(target, _) => target.address.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The number that came back.
pub fn number_in(reply: &Reply) -> u32 {
    match &reply.answer {
        Ok(Outcome::Released(addresses)) => addresses[0].bits() as u32,
        other => panic!("{other:?}"),
    }
}

/// A request that waits: its connection, its ticket, its caller, and where its answer goes.
pub type WaitingHere = (u64, u32, Arc<Caller>, Outlet);

/// What a node under test is asked, and how it answers.
#[derive(Default)]
pub struct Owner {
    /// Connection and number of every request, in the order of the calls.
    pub asked: Mutex<Vec<(u64, u32)>>,
    /// How many requests were taken.
    pub taken: watch::Sender<usize>,
    /// Answers nothing, and keeps the outlets.
    pub silent: bool,
    pub kept: Mutex<Vec<Outlet>>,
    /// Owns nothing.
    pub disowns: bool,
    /// How it says it stands to the register.
    pub standing: watch::Sender<PeerStanding>,
    /// How many more realms than one a job is answered with.
    pub more_realms: usize,
    /// Requests that may wait do wait, until the test answers them: connection, ticket and caller.
    pub waiting: Mutex<Vec<WaitingHere>>,
}

impl Owner {
    fn took(&self, count: usize, outlet: &Outlet) {
        if self.silent {
            self.kept.lock().unwrap().push(outlet.clone());
        }
        self.taken.send_modify(|taken| *taken += count);
    }

    /// Waits until `count` requests were taken.
    pub async fn has_taken(&self, count: usize) {
        self.taken.subscribe().wait_for(|taken| *taken >= count).await.unwrap();
    }
}

impl Serve for Owner {
    fn work(&self, origin: &RemoteAsker, _: NetworkRef, items: Vec<Item>, outlet: &Outlet) -> Result<(), NotOwner> {
        if self.disowns {
            return Err(NotOwner { owner: Some(NodeId(9)) });
        }
        let number = |item: &Item| (origin.conn, number_of(item).bits() as u32);
        self.asked.lock().unwrap().extend(items.iter().map(number));
        let (waiting, items): (Vec<Item>, Vec<Item>) = items.into_iter().partition(|item| item.wait.is_some());
        if !waiting.is_empty() {
            let _ = outlet.send(Told::Waits(waiting.iter().map(began_to_wait).collect()));
            self.taken.send_modify(|taken| *taken += waiting.len());
            let waits = waiting
                .into_iter()
                .filter_map(|item| Some((origin.conn, item.ticket, item.wait?.caller, outlet.clone())));
            self.waiting.lock().unwrap().extend(waits);
        }
        if !self.silent {
            let reply =
                |item: &Item| Reply { ticket: item.ticket, answer: Ok(Outcome::Released(vec![number_of(item)])) };
            let _ = outlet.send(Told::Replies(items.iter().map(reply).collect()));
        }
        self.took(items.len(), outlet);
        Ok(())
    }

    fn standing(&self) -> watch::Receiver<PeerStanding> {
        self.standing.subscribe()
    }

    fn job(&self, origin: &RemoteAsker, ticket: u32, order: Order, outlet: &Outlet) -> Result<(), NotOwner> {
        if self.disowns {
            return Err(NotOwner { owner: None });
        }
        match order.job {
            Job::Watch { .. } => {
                let (filter, cursor) = (Filter::default(), Cursor::default());
                let _ = outlet.send(Told::Job(ticket, Ok(Done::Watching { filter, cursor })));
                self.took(1, outlet);
                return Ok(());
            }
            Job::Events { .. } => {
                let caller = order.wait.map(|wait| wait.caller).unwrap_or_default();
                self.waiting.lock().unwrap().push((origin.conn, ticket, caller, outlet.clone()));
                self.took(1, outlet);
                return Ok(());
            }
            job => assert_eq!(job, Job::Realms),
        }
        if !self.silent {
            let realms = vec![("default".parse().unwrap(), 3); 1 + self.more_realms];
            let _ = outlet.send(Told::Job(ticket, Ok(Done::Realms(realms))));
        }
        self.took(1, outlet);
        Ok(())
    }
}

/// A node that accepts connections. It stops when it is dropped.
pub struct Node {
    pub address: SocketAddr,
    pub owner: Arc<Owner>,
    _stopped: tokio_util::sync::DropGuard,
}

impl Node {
    pub fn new(own: Identity, secret: Secret, owner: Owner) -> Self {
        Self::speaking(Versions::SPOKEN, own, secret, owner)
    }

    pub fn speaking(versions: Versions, own: Identity, secret: Secret, owner: Owner) -> Self {
        Self::at(([127, 0, 0, 1], 0).into(), versions, own, secret, owner).unwrap()
    }

    pub fn at(
        address: SocketAddr,
        versions: Versions,
        own: Identity,
        secret: Secret,
        owner: Owner,
    ) -> std::io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (owner, stop) = (Arc::new(owner), CancellationToken::new());
        let handler: Arc<dyn Serve> = Arc::<Owner>::clone(&owner);
        tokio::spawn(listener::serve(listener, (Arc::new(own), versions), secret, handler, stop.clone()));
        Ok(Self { address, owner, _stopped: stop.drop_guard() })
    }

    pub fn ordinary(owner: Owner) -> Self {
        Self::new(identity(1), secret(), owner)
    }
}

/// A link of node 2.
pub fn link_to(address: SocketAddr) -> Arc<Link> {
    dial(address, identity(2), secret())
}

pub fn dial(address: SocketAddr, own: Identity, secret: Secret) -> Arc<Link> {
    let own = (Arc::new(own), Versions::SPOKEN);
    Link::start(&tokio::runtime::Handle::current(), address.to_string(), own, secret)
}

pub async fn connected(link: &Link) {
    link.state().wait_for(|state| matches!(state, LinkState::Connected(_))).await.unwrap();
}

/// Why there is no connection.
pub async fn problem(link: &Link) -> String {
    let mut state = link.state();
    let state = state.wait_for(|state| matches!(state, LinkState::Connecting(Some(_)))).await.unwrap();
    let LinkState::Connecting(Some(problem)) = &*state else { panic!() };
    problem.clone()
}

/// Stands between two nodes; [`Proxy::cut`] ends every connection through it.
pub struct Proxy {
    pub address: SocketAddr,
    cut: watch::Sender<()>,
}

impl Proxy {
    pub async fn to(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = watch::Sender::new(());
        let cuts = cut.clone();
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let mut cut = cuts.subscribe();
                tokio::spawn(async move {
                    let Ok(mut there) = TcpStream::connect(node).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut here, &mut there) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, cut }
    }

    /// A proxy that passes `bytes` bytes towards the listener every tenth of a second.
    pub async fn slow(node: SocketAddr, bytes: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((here, _)) = listener.accept().await {
                let Ok(there) = TcpStream::connect(node).await else { return };
                let ((mut from, mut back), (mut answers, mut to)) = (here.into_split(), there.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
                tokio::spawn(async move {
                    let mut some = vec![0; bytes];
                    while let Ok(read @ 1..) = from.read(&mut some).await {
                        if to.write_all(&some[..read]).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                });
            }
        });
        Self { address, cut: watch::Sender::new(()) }
    }

    pub fn cut(&self) {
        self.cut.send_replace(());
    }
}
