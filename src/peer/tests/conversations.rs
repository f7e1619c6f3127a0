//! Whole conversations: order, exactly one answer, cut connections, bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use compact_str::CompactString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::nodes::*;
use crate::actors::coordinator::{Done, Job};
use crate::actors::{Answer, Applied, Fault, NotReadyReason, Reply, StopReason, Told, outlet};
use crate::core::address::Address;
use crate::core::outcome::Outcome;
use crate::limits::{
    PEER_HANDSHAKE_FRAME_BYTES_MAX, PEER_IN_FLIGHT_REQUESTS_MAX, PEER_SILENCE_MS, PEER_STRANGERS_MAX,
    PEER_STRANGERS_PER_ADDRESS_MAX, PEERS_MAX,
};
use crate::peer::frame::{Answered, Ask, Frames, PeerStanding, SentOrder, encode_answers, encode_asks};
use crate::peer::link::{Link, LinkState};
use crate::peer::{Versions, handshake};

type Inlet = tokio::sync::mpsc::UnboundedReceiver<Told>;

/// The next `count` answers; each ticket once.
async fn answers(inlet: &mut Inlet, count: usize) -> BTreeMap<u32, Answer> {
    let mut answers = BTreeMap::new();
    while answers.len() < count {
        let Told::Replies(replies) = inlet.recv().await.unwrap() else { panic!() };
        for Reply { ticket, answer } in replies {
            assert!(answers.insert(ticket, answer).is_none(), "ticket {ticket} was answered twice");
        }
    }
    answers
}

fn fault(answer: &Answer) -> &Fault {
    answer.as_ref().unwrap_err()
}

fn is_not_ready(answer: &Answer, wanted: NotReadyReason) -> bool {
    matches!(fault(answer), Fault::NotReady { reason, .. } if *reason == wanted)
}

fn is_unavailable(answer: &Answer, wanted: Applied) -> bool {
    matches!(fault(answer), Fault::Unavailable { applied, .. } if *applied == wanted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_from_several_threads_are_answered_once_and_asked_in_order() {
    const CONNECTIONS: u64 = 4;
    const EACH: u32 = 2_500;
    let node = Node::ordinary(Owner::default());
    let link = link_to(node.address);
    connected(&link).await;
    let clients = (0..CONNECTIONS).map(|conn| {
        let link = Arc::clone(&link);
        tokio::spawn(async move {
            let (outlet, mut inlet) = outlet();
            let mut sent = 0;
            while sent < EACH {
                let count = (sent % 7 + 1).min(EACH - sent);
                link.work(conn, network(), (sent..sent + count).map(|n| renew(n, n)).collect(), &outlet);
                sent += count;
                if sent % 50 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            drop(outlet);
            let mut replies = Vec::new();
            // Ends when no answer can come any more.
            while let Some(told) = inlet.recv().await {
                let Told::Replies(some) = told else { panic!() };
                replies.extend(some.iter().map(|reply| (reply.ticket, number_in(reply))));
            }
            assert!(replies.into_iter().eq((0..EACH).map(|n| (n, n))), "each once, in order");
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let asked = node.owner.asked.lock().unwrap();
    for conn in 0..CONNECTIONS {
        let numbers = asked.iter().filter(|(of, _)| *of == conn).map(|(_, number)| *number);
        assert!(numbers.eq(0..EACH), "connection {conn}");
    }
    assert_eq!(link.under_way(), 0);
}

#[tokio::test]
async fn a_job_is_answered_under_its_ticket() {
    let node = Node::ordinary(Owner::default());
    let link = link_to(node.address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    link.job(1, 77, order(Job::Realms), &outlet);
    let Some(Told::Job(77, Ok(Done::Realms(realms)))) = inlet.recv().await else { panic!() };
    assert_eq!(realms, [("default".parse().unwrap(), 3)]);
}

#[tokio::test]
async fn what_the_other_does_not_own_was_not_begun() {
    let node = Node::ordinary(Owner { disowns: true, ..Owner::default() });
    let link = link_to(node.address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    link.work(1, network(), vec![renew(1, 1), renew(2, 2)], &outlet);
    let answers = answers(&mut inlet, 2).await;
    assert!(answers.values().all(|answer| is_not_ready(answer, NotReadyReason::Moved)), "{answers:?}");
    link.job(1, 3, order(Job::Realms), &outlet);
    let Some(Told::Job(3, Err(fault))) = inlet.recv().await else { panic!() };
    assert!(matches!(*fault, Fault::NotReady { reason: NotReadyReason::Moved, .. }));
}

#[tokio::test]
async fn without_a_connection_nothing_is_begun() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let link = link_to(address);
    problem(&link).await;
    let (outlet, mut inlet) = outlet();
    link.work(1, network(), vec![renew(5, 5)], &outlet);
    let answers = answers(&mut inlet, 1).await;
    assert!(is_not_ready(&answers[&5], NotReadyReason::NoOwner));
    link.job(1, 6, order(Job::Realms), &outlet);
    assert!(matches!(inlet.recv().await, Some(Told::Job(6, Err(_)))));
}

#[tokio::test]
async fn a_connection_that_is_cut_leaves_no_request_unanswered_and_the_next_ones_work() {
    let node = Node::ordinary(Owner { silent: true, ..Owner::default() });
    let proxy = Proxy::to(node.address).await;
    let link = link_to(proxy.address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    for ticket in 0..50 {
        let request = if ticket % 2 == 0 { renew(ticket, ticket) } else { read(ticket, ticket) };
        link.work(u64::from(ticket), network(), vec![request], &outlet);
    }
    node.owner.has_taken(50).await;
    assert_eq!(link.under_way(), 50);
    let mut state = link.state();
    state.borrow_and_update();
    proxy.cut();
    let answers = answers(&mut inlet, 50).await;
    for (ticket, answer) in &answers {
        let wanted = if ticket % 2 == 0 { Applied::Unknown } else { Applied::No };
        assert!(is_unavailable(answer, wanted), "{ticket}: {answer:?}");
    }
    state.wait_for(|state| matches!(state, LinkState::Connecting(Some(_)))).await.unwrap();
    connected(&link).await;
    link.work(1, network(), vec![renew(99, 99)], &outlet);
    node.owner.has_taken(51).await;
    drop(link);
    let answers = answers_after_drop(&mut inlet).await;
    assert!(is_unavailable(&answers, Applied::Unknown), "a link that is dropped answers too");
}

async fn answers_after_drop(inlet: &mut Inlet) -> Answer {
    answers(inlet, 1).await.remove(&99).unwrap()
}

/// A job that changes something ends as unknown, as a request does.
#[tokio::test]
async fn a_job_whose_connection_is_cut_is_answered_by_what_it_does() {
    let node = Node::ordinary(Owner { silent: true, ..Owner::default() });
    let proxy = Proxy::to(node.address).await;
    let link = link_to(proxy.address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    link.job(1, 1, order(Job::Realms), &outlet);
    node.owner.has_taken(1).await;
    proxy.cut();
    let Some(Told::Job(1, Err(fault))) = inlet.recv().await else { panic!() };
    assert!(matches!(*fault, Fault::Unavailable { applied: Applied::No, .. }), "{fault:?}");
}

#[tokio::test]
async fn an_owner_that_does_not_answer_is_asked_only_so_much() {
    let node = Node::ordinary(Owner { silent: true, ..Owner::default() });
    let link = link_to(node.address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    let most = PEER_IN_FLIGHT_REQUESTS_MAX as u32;
    for first in (0..most).step_by(1_024) {
        link.work(1, network(), (first..first + 1_024).map(|n| renew(n, n)).collect(), &outlet);
    }
    link.work(1, network(), vec![renew(most, 1)], &outlet);
    link.job(1, most + 1, order(Job::Realms), &outlet);
    let answers = answers(&mut inlet, 1).await;
    assert!(matches!(fault(&answers[&most]), Fault::Overloaded { .. }));
    let Some(Told::Job(_, Err(fault))) = inlet.recv().await else { panic!() };
    assert!(matches!(*fault, Fault::Overloaded { .. }));
    node.owner.has_taken(most as usize).await;
    assert_eq!(link.under_way(), most as usize);
}

/// With a node that shakes hands and then reads nothing, the waiting bytes are bounded, and silence ends the connection.
#[tokio::test]
async fn a_node_that_reads_nothing_costs_only_so_much_and_is_given_up() {
    let (link, _stream) = linked().await;
    let (outlet, mut inlet) = outlet();
    let (mut sent, note) = (0, "n".repeat(100_000));
    let overloaded = loop {
        let mut request = renew(sent, sent);
        request.reason = Some(note.as_str().into());
        link.work(1, network(), vec![request], &outlet);
        sent += 1;
        if let Ok(Told::Replies(replies)) = inlet.try_recv() {
            break replies;
        }
    };
    assert!(matches!(fault(&overloaded[0].answer), Fault::Overloaded { .. }), "{overloaded:?}");
    let rest = answers(&mut inlet, sent as usize - 1).await;
    let known =
        |answer: &Answer| is_unavailable(answer, Applied::Unknown) || is_not_ready(answer, NotReadyReason::NoOwner);
    assert!(rest.values().all(known), "what was not written was not begun, of the rest nobody knows");
    let sentence = problem(&link).await;
    assert!(sentence.contains("nothing was heard"), "{sentence}");
}

/// The other node says nothing of its own while it reads, and the question for a sign of life is queued behind what it
/// reads.
#[tokio::test]
async fn a_long_request_on_a_slow_way_is_no_silence() {
    let node = Node::ordinary(Owner::default());
    let proxy = Proxy::slow(node.address, 20_000).await;
    let link = link_to(proxy.address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    let mut request = renew(1, 1);
    // The transfer takes twice as long as a node may be silent.
    request.reason = Some("n".repeat(20_000 * 2 * PEER_SILENCE_MS as usize / 100).into());
    link.work(1, network(), vec![request], &outlet);
    let answers = answers(&mut inlet, 1).await;
    assert!(answers[&1].is_ok(), "{answers:?}");
}

/// A node that asks for long answers and takes none: its requests are left in the socket, and in the end its connection is
/// closed.
#[tokio::test]
async fn a_node_that_takes_no_answers_is_read_no_further() {
    const ASKED: u32 = 2_000;
    let node = Node::ordinary(Owner { more_realms: 100_000, ..Owner::default() });
    let mut stream = tokio::net::TcpStream::connect(node.address).await.unwrap();
    let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
    handshake::dial(&mut stream, &mut frames, (&identity(3), Versions::SPOKEN), &secret()).await.unwrap();
    let mut bytes = Vec::new();
    for ticket in 0..ASKED {
        let sent = Box::new(SentOrder::new(order(Job::Realms), std::time::Instant::now()));
        encode_asks(Ask::Job { conn: 1, ticket, order: sent }, 1_000, &mut bytes);
    }
    stream.write_all(&bytes).await.unwrap();
    // Gives signs of life until nobody takes them any more.
    let mut ping = Vec::new();
    encode_asks(Ask::Ping, 1_000, &mut ping);
    while stream.write_all(&ping.repeat(1_000)).await.is_ok() {}
    let taken = *node.owner.taken.borrow();
    assert!(taken > 0 && taken < ASKED as usize / 10, "{taken} of {ASKED} were taken");
    let link = link_to(node.address);
    connected(&link).await;
}

/// A link, and its other end, which answers as the test says.
async fn linked() -> (Arc<Link>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let link = link_to(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
    handshake::accept(&mut stream, &mut frames, (&identity(1), Versions::SPOKEN), &secret(), |_| true).await.unwrap();
    connected(&link).await;
    (link, stream)
}

/// An owner that answers twice, or answers something that was not asked.
#[tokio::test]
async fn an_answer_that_nobody_waits_for_reaches_nobody() {
    let (link, mut stream) = linked().await;
    let (outlet, mut inlet) = outlet();
    link.work(1, network(), vec![renew(10, 1), renew(11, 1)], &outlet);
    link.job(1, 12, order(Job::Realms), &outlet);
    drop(outlet);
    let busy = || Box::new(Fault::Stopped { network: "lan".parse().unwrap(), why: StopReason::Crashes, next: None });
    let mut bytes = Vec::new();
    for ticket in [0, 0, 2, 1, 1, 77] {
        let replies = vec![Reply { ticket, answer: Err(busy()) }];
        encode_answers(Answered::Replies(replies), 1_000, &mut bytes);
    }
    encode_answers(Answered::Job { ticket: 1, answer: Err(busy()) }, 1_000, &mut bytes);
    stream.write_all(&bytes).await.unwrap();
    let mut told = BTreeSet::new();
    while let Some(one) = inlet.recv().await {
        match one {
            Told::Notice(notice) => panic!("{notice:?}"),
            Told::Replies(replies) => replies.iter().for_each(|reply| assert!(told.insert(reply.ticket))),
            Told::Job(ticket, answer) => {
                assert!(told.insert(ticket) && answer.is_err(), "an answer of the wrong sort is an error");
            }
            Told::Waits(tickets) => panic!("{tickets:?} wait"),
        }
    }
    assert_eq!(told, BTreeSet::from([10, 11, 12]));
}

/// If an answer is too long for a frame, the owner no longer knows what was asked; the asking node does.
#[tokio::test]
async fn of_what_only_reads_it_is_known_that_nothing_was_changed_also_where_its_answer_is_too_long() {
    let (link, mut stream) = linked().await;
    let (outlet, mut inlet) = outlet();
    link.work(1, network(), vec![read(10, 1), renew(11, 1)], &outlet);
    link.job(1, 12, order(Job::Realms), &outlet);
    let long = || Outcome::Released((0..1_000).map(Address::V4).collect());
    let mut bytes = Vec::new();
    let replies = (0..2).map(|ticket| Reply { ticket, answer: Ok(long()) });
    encode_answers(Answered::Replies(replies.collect()), 500, &mut bytes);
    let realms = (0..1_000).map(|at| (format!("realm-{at}").parse().unwrap(), at)).collect();
    encode_answers(Answered::Job { ticket: 2, answer: Ok(Done::Realms(realms)) }, 500, &mut bytes);
    stream.write_all(&bytes).await.unwrap();
    let answers = answers(&mut inlet, 2).await;
    assert!(is_unavailable(&answers[&10], Applied::No), "{answers:?}");
    assert!(is_unavailable(&answers[&11], Applied::Unknown), "{answers:?}");
    let Some(Told::Job(12, Err(fault))) = inlet.recv().await else { panic!() };
    assert!(matches!(*fault, Fault::Unavailable { applied: Applied::No, .. }), "{fault:?}");
}

#[tokio::test]
async fn a_node_that_connects_again_ends_its_earlier_connection() {
    let node = Node::ordinary(Owner::default());
    let mut first = tokio::net::TcpStream::connect(node.address).await.unwrap();
    let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
    handshake::dial(&mut first, &mut frames, (&identity(2), Versions::SPOKEN), &secret()).await.unwrap();
    let link = link_to(node.address);
    connected(&link).await;
    assert_eq!(first.read(&mut [0]).await.unwrap(), 0, "closed by the node");
    let (outlet, mut inlet) = outlet();
    link.work(1, network(), vec![renew(1, 1)], &outlet);
    assert!(answers(&mut inlet, 1).await[&1].is_ok());
}

#[tokio::test]
async fn a_node_that_stops_answers_what_it_took() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (owner, stop) = (Arc::new(Owner::default()), tokio_util::sync::CancellationToken::new());
    let handler: Arc<dyn crate::peer::listener::Serve> = Arc::<Owner>::clone(&owner);
    let own = Arc::new(identity(1));
    let serving =
        tokio::spawn(crate::peer::listener::serve(listener, (own, Versions::SPOKEN), secret(), handler, stop.clone()));
    let link = link_to(address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    link.work(1, network(), (0..100).map(|n| renew(n, n)).collect(), &outlet);
    owner.has_taken(100).await;
    stop.cancel();
    assert!(answers(&mut inlet, 100).await.values().all(Result::is_ok));
    serving.await.unwrap().unwrap();
}

/// Neither silent connections nor the greatest allowed number of nodes keep out a node that comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_strangers_nor_a_full_house_keep_out_a_node_that_connects_again() {
    let node = Node::ordinary(Owner::default());
    let mut strangers = Vec::new();
    for _ in 0..3 * PEER_STRANGERS_MAX {
        strangers.push(TcpStream::connect(node.address).await.unwrap());
    }
    // Wait until all of them are connected: an earlier one would give way, too.
    while told(&strangers).await < 3 * PEER_STRANGERS_MAX - PEER_STRANGERS_PER_ADDRESS_MAX {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut links = Vec::new();
    for at in 0..PEERS_MAX {
        links.push(dial(node.address, identity(100 + at as u128), secret()));
        up_at_once(&links[at]).await;
    }
    // Only so many strangers have a place; the others are turned away at once.
    for stranger in &mut strangers[..3 * PEER_STRANGERS_MAX - PEER_STRANGERS_PER_ADDRESS_MAX] {
        let mut said = Vec::new();
        stranger.read_to_end(&mut said).await.unwrap();
        assert!(!said.is_empty(), "it was only closed when it had been silent for too long");
    }
    let more = dial(node.address, identity(99), secret());
    let problem = problem(&more).await;
    assert!(problem.contains("it has 64 other nodes connected and takes no more"), "{problem}");
    // It would take the place of any link that is lost on a busy machine.
    drop(more);
    // The same node as the first: its earlier connection is stopped.
    let again = dial(node.address, identity(100), secret());
    connected(&again).await;
    let (outlet, mut inlet) = outlet();
    again.work(1, network(), vec![renew(1, 1)], &outlet);
    assert!(answers(&mut inlet, 1).await[&1].is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forwards_knows_why_the_owner_does_not_serve_as_soon_as_that_changes() {
    let standing = |owns, unready: Option<&str>| PeerStanding { owns, unready: unready.map(CompactString::from) };
    let full = standing(true, Some("the store is full"));
    let says_first = tokio::sync::watch::Sender::new(full.clone());
    let node = Node::ordinary(Owner { standing: says_first, ..Owner::default() });
    let link = link_to(node.address);
    let says = async |wanted: PeerStanding| {
        let said = timeout(Duration::from_secs(30), async {
            while link.standing().as_ref() != Some(&wanted) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        said.await.unwrap_or_else(|_| panic!("{:?}, and not {wanted:?}", link.standing()));
    };
    says(full).await;
    for next in [standing(true, None), standing(false, Some("stopping"))] {
        node.owner.standing.send_replace(next.clone());
        says(next).await;
    }
}

/// How many clients were told something.
async fn told(strangers: &[TcpStream]) -> usize {
    let mut told = 0;
    for stranger in strangers {
        told += usize::from(timeout(Duration::ZERO, stranger.readable()).await.is_ok());
    }
    told
}

/// The first attempt succeeds.
async fn up_at_once(link: &Link) {
    let mut state = link.state();
    let first = state.wait_for(|state| *state != LinkState::Connecting(None)).await.unwrap();
    assert!(matches!(*first, LinkState::Connected(_)), "{first:?}");
}
