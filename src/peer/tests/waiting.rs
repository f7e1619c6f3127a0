//! Requests that wait for capacity at another node: how they are reported, how they count, and how they end.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::nodes::*;
use crate::actors::waits::Caller;
use crate::actors::{Applied, BeganToWait, Fault, NotReadyReason, Outlet, Reply, Told, outlet};
use crate::core::types::NetworkId;
use crate::limits::{
    PEER_FRAME_BYTES_MAX, PEER_HANDSHAKE_FRAME_BYTES_MAX, PEER_IN_FLIGHT_REQUESTS_MAX, PEER_WATCHES_MAX,
};
use crate::peer::frame::{Answered, Ask, Frames, SentOrder, decode, encode_asks};
use crate::peer::listener::{self, Serve};
use crate::peer::{Versions, handshake};
use crate::server::role::Role;
use crate::server::session::idle_server;
use crate::server::watch::Pages;

type Waits = (u64, u32, Arc<Caller>, Outlet);

/// The requests that wait at the owner, once this many have come there.
async fn waiting_at(node: &Owner, taken: usize) -> Vec<Waits> {
    node.has_taken(taken).await;
    std::mem::take(&mut *node.waiting.lock().unwrap())
}

fn answer((_, ticket, _, outlet): &Waits) {
    let fault = Fault::NotReady { reason: NotReadyReason::Stopping, retry_after_ms: 1 };
    let reply = Reply { ticket: *ticket, answer: Err(Box::new(fault)) };
    outlet.send(Told::Replies(vec![reply])).unwrap();
}

#[tokio::test]
async fn whoever_asked_is_told_that_it_waits_and_answered_later() {
    let node = Node::ordinary(Owner::default());
    let link = link_to(node.address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    link.work(1, network(), vec![wait(5), renew(6, 6), wait(7)], &outlet);
    let mut waits = Vec::new();
    while waits.len() < 2 {
        match inlet.recv().await.unwrap() {
            Told::Waits(began) => waits.extend(began),
            Told::Replies(replies) => assert!(replies.iter().all(|reply| reply.ticket == 6)),
            Told::Job(..) | Told::Notice(_) => panic!(),
        }
    }
    let networks = |ticket: u32| BeganToWait { ticket, networks: vec![NetworkId(ticket.into())] };
    assert_eq!(waits, [networks(5), networks(7)], "and for which networks");
    let there = waiting_at(&node.owner, 3).await;
    answer(&there[1]);
    loop {
        let Told::Replies(replies) = inlet.recv().await.unwrap() else { panic!() };
        if replies.iter().any(|reply| reply.ticket == 7) {
            break;
        }
        assert!(replies.iter().all(|reply| reply.ticket == 6));
    }
    assert_eq!(link.under_way(), 0, "what waits for capacity holds nobody up");
}

#[tokio::test]
async fn what_waits_keeps_nothing_else_from_being_asked() {
    let node = Node::ordinary(Owner::default());
    let link = link_to(node.address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    let most = PEER_IN_FLIGHT_REQUESTS_MAX as u32;
    link.work(1, network(), (0..most).map(wait).collect(), &outlet);
    let mut waits = 0;
    while waits < most {
        let Told::Waits(began) = inlet.recv().await.unwrap() else { panic!() };
        waits += began.len() as u32;
    }
    link.work(1, network(), vec![renew(most, 1)], &outlet);
    let Told::Replies(replies) = inlet.recv().await.unwrap() else { panic!() };
    assert!(replies[0].answer.is_ok(), "{replies:?}");
    for waits in waiting_at(&node.owner, PEER_IN_FLIGHT_REQUESTS_MAX).await {
        answer(&waits);
    }
    let mut answered = 0;
    while answered < most {
        let Told::Replies(replies) = inlet.recv().await.unwrap() else { panic!() };
        answered += replies.len() as u32;
    }
    assert_eq!(link.under_way(), 0);
    link.work(1, network(), vec![renew(0, 1)], &outlet);
    let Told::Replies(replies) = inlet.recv().await.unwrap() else { panic!() };
    assert!(replies[0].answer.is_ok(), "counted once: {replies:?}");
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_what_waits_for_it_at_the_owner_and_nothing_else() {
    let node = Node::ordinary(Owner::default());
    let link = link_to(node.address);
    connected(&link).await;
    let (outlet, _inlet) = outlet();
    link.work(1, network(), vec![wait(1), wait(2)], &outlet);
    link.work(2, network(), vec![wait(3)], &outlet);
    let there = waiting_at(&node.owner, 3).await;
    assert!(there.iter().all(|(_, _, caller, _)| !caller.has_left()));
    link.hang_up(1);
    there[0].2.left().await;
    assert!(there[1].2.has_left() && !there[2].2.has_left());
}

#[tokio::test]
async fn what_waits_ends_with_the_connection_of_its_node() {
    let node = Node::ordinary(Owner::default());
    let proxy = Proxy::to(node.address).await;
    let link = link_to(proxy.address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    link.work(1, network(), vec![wait(1)], &outlet);
    let Told::Waits(_) = inlet.recv().await.unwrap() else { panic!() };
    let there = waiting_at(&node.owner, 1).await;
    proxy.cut();
    there[0].2.left().await;
    let Told::Replies(replies) = inlet.recv().await.unwrap() else { panic!() };
    let fault = replies[0].answer.as_ref().unwrap_err();
    assert!(matches!(**fault, Fault::Unavailable { applied: Applied::Unknown, .. }), "{fault:?}");
}

#[tokio::test]
async fn a_node_that_stops_ends_what_waits_and_says_goodbye_when_that_is_answered() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (owner, stop) = (Arc::new(Owner::default()), CancellationToken::new());
    let handler: Arc<dyn Serve> = Arc::<Owner>::clone(&owner);
    let serving = tokio::spawn(listener::serve(
        listener,
        (Arc::new(identity(1)), Versions::SPOKEN),
        secret(),
        handler,
        stop.clone(),
    ));
    let link = link_to(address);
    connected(&link).await;
    let (outlet, mut inlet) = outlet();
    link.work(1, network(), vec![wait(1)], &outlet);
    let Told::Waits(_) = inlet.recv().await.unwrap() else { panic!() };
    let there = waiting_at(&owner, 1).await;
    stop.cancel();
    there[0].2.left().await;
    answer(&there[0]);
    let Told::Replies(replies) = inlet.recv().await.unwrap() else { panic!() };
    assert_eq!(replies[0].ticket, 1);
    serving.await.unwrap().unwrap();
}

fn is_overloaded(told: Option<Told>, ticket: u32) -> bool {
    let Some(Told::Job(of, Err(fault))) = told else { return false };
    of == ticket && matches!(*fault, Fault::Overloaded { .. })
}

#[tokio::test]
async fn subscriptions_keep_nothing_else_from_being_asked_and_have_a_bound_of_their_own() {
    let node = Node::ordinary(Owner::default());
    let link = link_to(node.address);
    connected(&link).await;
    let ((watching, mut pages), (asking, mut answers)) = (outlet(), outlet());
    let most = PEER_WATCHES_MAX as u32;
    for number in 0..most {
        link.job(u64::from(number), number, events(), &watching);
    }
    link.work(most.into(), network(), vec![renew(1, 1)], &asking);
    let Some(Told::Replies(replies)) = answers.recv().await else { panic!() };
    assert!(replies[0].answer.is_ok(), "{replies:?}");
    link.job(most.into(), most, events(), &watching);
    assert!(is_overloaded(pages.recv().await, most), "one more than there may be");
    let there = waiting_at(&node.owner, PEER_WATCHES_MAX + 1).await;
    assert_eq!((there.len(), link.under_way()), (PEER_WATCHES_MAX, 0));
    // A wait that has ended leaves its place free.
    link.hang_up(7);
    let (_, ticket, caller, back) = there.iter().find(|(number, ..)| *number == 7).unwrap();
    caller.left().await;
    let fault = Fault::NotReady { reason: NotReadyReason::Stopping, retry_after_ms: 1 };
    back.send(Told::Job(*ticket, Err(Box::new(fault)))).unwrap();
    assert!(matches!(pages.recv().await, Some(Told::Job(7, Err(_)))));
    link.job(most.into(), most, events(), &watching);
    node.owner.has_taken(PEER_WATCHES_MAX + 2).await;
}

/// The owner counts for itself: another node need not keep to its bounds.
#[tokio::test]
async fn an_owner_lets_only_so_many_subscriptions_wait_whoever_asks() {
    let node = Node::ordinary(Owner::default());
    let mut stream = tokio::net::TcpStream::connect(node.address).await.unwrap();
    let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
    handshake::dial(&mut stream, &mut frames, (&identity(3), Versions::SPOKEN), &secret()).await.unwrap();
    let mut bytes = Vec::new();
    let most = PEER_WATCHES_MAX as u32;
    for ticket in 0..=most {
        let sent = Box::new(SentOrder::new(events(), std::time::Instant::now()));
        encode_asks(Ask::Job { conn: 1, ticket, order: sent }, 1_000, &mut bytes);
    }
    stream.write_all(&bytes).await.unwrap();
    frames.allow(PEER_FRAME_BYTES_MAX);
    loop {
        if let Some(frame) = frames.cut().unwrap() {
            let (ticket, answer) = match decode(frame).unwrap() {
                Answered::Job { ticket, answer } => (ticket, answer),
                // On a busy machine the answer comes late, and the node gives signs of life meanwhile.
                Answered::Standing(_) | Answered::Pong => continue,
                other => panic!("{other:?}"),
            };
            let fault = answer.unwrap_err();
            assert!(ticket == most && matches!(*fault, Fault::Overloaded { .. }), "{ticket}: {fault:?}");
            break;
        }
        assert!(stream.read_buf(&mut frames.input).await.unwrap() > 0);
    }
    assert_eq!(waiting_at(&node.owner, PEER_WATCHES_MAX).await.len(), PEER_WATCHES_MAX);
}

#[tokio::test]
async fn a_subscription_that_ends_waits_no_longer_at_the_owner() {
    let node = Node::ordinary(Owner::default());
    let link = link_to(node.address);
    connected(&link).await;
    let server = idle_server();
    server.seat.become_role(Role::Follower { owner: "node-1".into(), address: "".into(), link });
    let ask = || serde_json::from_str("{}").unwrap();
    let (mut first, mut second) =
        (Pages::begin(&server, ask()).await.unwrap(), Pages::begin(&server, ask()).await.unwrap());
    let first = tokio::spawn(async move { first.next().await });
    node.owner.has_taken(3).await;
    let second = tokio::spawn(async move { second.next().await });
    let there = waiting_at(&node.owner, 4).await;
    first.abort();
    timeout(Duration::from_secs(60), there[0].2.left()).await.expect("the owner is told");
    assert!(!there[1].2.has_left(), "the other goes on");
    second.abort();
    timeout(Duration::from_secs(60), there[1].2.left()).await.expect("the owner is told");
}
