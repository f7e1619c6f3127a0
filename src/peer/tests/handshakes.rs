//! Who is let in, and what the others are told.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::nodes::*;
use crate::limits::PEER_HANDSHAKE_FRAME_BYTES_MAX;
use crate::peer::frame::Frames;
use crate::peer::handshake::{self, HandshakeError};
use crate::peer::secret::Secret;
use crate::peer::{Identity, NoCommonVersion, PROTOCOL_LOWEST, PROTOCOL_VERSION, Versions};

type Ended = Result<(Identity, u16), HandshakeError>;

/// Both ends of one handshake: what the dialing side returns, and what the accepting side does.
async fn shake(dialing: (Identity, Secret), accepting: (Identity, Secret)) -> (Ended, Ended) {
    shake_in((Versions::SPOKEN, dialing), (Versions::SPOKEN, accepting)).await
}

/// The same where the two programs speak other versions.
async fn shake_in(
    (one, dialing): (Versions, (Identity, Secret)),
    (two, accepting): (Versions, (Identity, Secret)),
) -> (Ended, Ended) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut dialed = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    let frames = || Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
    let (mut here, mut there) = (frames(), frames());
    let dial = async {
        let ended = handshake::dial(&mut dialed, &mut here, (&dialing.0, one), &dialing.1).await;
        drop(dialed);
        ended
    };
    let accept = async {
        let ended = handshake::accept(&mut accepted, &mut there, (&accepting.0, two), &accepting.1, |_| true).await;
        drop(accepted);
        ended
    };
    tokio::join!(dial, accept)
}

fn sentence(ended: Ended) -> String {
    ended.unwrap_err().to_string()
}

#[tokio::test]
async fn two_nodes_of_one_cluster_learn_who_the_other_is() {
    let (dialing, accepting) = shake((identity(2), secret()), (identity(1), secret())).await;
    assert_eq!(dialing.unwrap(), (identity(1), PROTOCOL_VERSION));
    assert_eq!(accepting.unwrap(), (identity(2), PROTOCOL_VERSION));
}

#[tokio::test]
async fn another_secret_is_refused_on_both_sides_and_neither_is_shown() {
    let other = Secret::new(b"a secret of some other cluster").unwrap();
    let (dialing, accepting) = shake((identity(2), other), (identity(1), secret())).await;
    let (dialing, accepting) = (sentence(dialing), sentence(accepting));
    assert!(dialing.contains("refused this node: the cluster secrets differ"), "{dialing}");
    assert!(accepting.contains("its cluster secret is not the one of this node"), "{accepting}");
    for sentence in [dialing, accepting] {
        assert!(!sentence.contains("a secret of"), "{sentence}");
    }
}

/// A listener that lets everybody in, and proves with another secret.
#[tokio::test]
async fn a_listener_without_the_secret_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut dialed = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    // It replays what another listener said: the proof of another conversation.
    let node = Node::ordinary(Owner::default());
    let mut real = TcpStream::connect(node.address).await.unwrap();
    let relay = tokio::spawn(async move {
        let mut first = [0; 48];
        accepted.read_exact(&mut first).await.unwrap();
        // Another nonce than the dialing side sent.
        first[47] ^= 1;
        real.write_all(&first).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut accepted, &mut real).await;
    });
    let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
    let ended = handshake::dial(&mut dialed, &mut frames, (&identity(2), Versions::SPOKEN), &secret()).await;
    assert!(matches!(ended, Err(HandshakeError::RefusedSecret)), "{ended:?}");
    drop(dialed);
    relay.await.unwrap();
}

#[tokio::test]
async fn a_proof_sent_back_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut dialed = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    let mirror = tokio::spawn(async move {
        // The hello after the variant of `HelloAnswer`, then the proof after the variant of `Proved`: both are 0.
        for _ in 0..2 {
            let length = accepted.read_u32_le().await.unwrap();
            let mut body = vec![0; length as usize];
            accepted.read_exact(&mut body).await.unwrap();
            accepted.write_u32_le(length + 1).await.unwrap();
            accepted.write_u8(0).await.unwrap();
            accepted.write_all(&body).await.unwrap();
        }
        accepted
    });
    let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
    let ended = handshake::dial(&mut dialed, &mut frames, (&identity(2), Versions::SPOKEN), &secret()).await;
    assert!(matches!(ended, Err(HandshakeError::Secret)), "{ended:?}");
    drop(mirror.await.unwrap());
}

#[tokio::test]
async fn another_register_or_shards_is_refused_with_both_values() {
    let base = identity(2);
    let others = [
        (Identity { register: "22222222-bbbb".into(), ..base.clone() }, "22222222-bbbb", "11111111-aaaa"),
        (Identity { shards: 64, ..base.clone() }, "64", "16"),
    ];
    for (other, one, two) in others {
        let (dialing, accepting) = shake((other, secret()), (identity(1), secret())).await;
        for sentence in [sentence(dialing), sentence(accepting)] {
            assert!(sentence.contains(one) && sentence.contains(two), "{sentence}");
        }
    }
    let (dialing, accepting) = shake((identity(1), secret()), (identity(1), secret())).await;
    for sentence in [sentence(dialing), sentence(accepting)] {
        // This happens when each of two machines advertises its loopback address.
        let says = ["is this node itself", "--advertise", "cluster.advertise", "cluster.listen"];
        assert!(says.iter().all(|part| sentence.contains(part)), "{sentence}");
    }
}

#[tokio::test]
async fn another_build_is_let_in() {
    let other = Identity { build: "0.2.0".into(), ..identity(2) };
    let (dialing, accepting) = shake((other, secret()), (identity(1), secret())).await;
    assert!(dialing.is_ok() && accepting.is_ok());
}

fn versions(lowest: u16, newest: u16) -> Versions {
    Versions { lowest, newest }
}

#[tokio::test]
async fn two_programs_speak_the_highest_version_that_both_know() {
    for (one, two, spoken) in [
        (versions(19, 19), versions(19, 20), 19),
        (versions(19, 20), versions(19, 20), 20),
        (versions(18, 20), versions(20, 300), 20),
        (versions(256, 300), versions(1, 257), 257),
    ] {
        for (one, two) in [(one, two), (two, one)] {
            let (dialing, accepting) = shake_in((one, (identity(2), secret())), (two, (identity(1), secret()))).await;
            assert_eq!(dialing.unwrap(), (identity(1), spoken), "{one}, {two}");
            assert_eq!(accepting.unwrap(), (identity(2), spoken), "{one}, {two}");
        }
    }
}

/// Each learns who the other is and what it speaks: it may take the register over from it by way of the store.
#[tokio::test]
async fn nodes_of_one_cluster_without_a_common_version_learn_of_each_other_and_do_not_talk() {
    let (old, new) = (versions(18, 19), versions(20, 21));
    let (dialing, accepting) = shake_in((old, (identity(2), secret())), (new, (identity(1), secret()))).await;
    let (dialing, accepting) = (dialing.unwrap_err(), accepting.unwrap_err());
    let says = "node `node-1` speaks versions 20 to 21 of the protocol between nodes, this program versions 18 to 19: ";
    assert!(dialing.to_string().starts_with(says) && dialing.to_string().contains("drained or stopped"), "{dialing}");
    let HandshakeError::Protocol(without) = dialing else { panic!("{dialing:?}") };
    assert_eq!(without, NoCommonVersion { name: "node-1".into(), theirs: new, ours: old });
    let HandshakeError::Protocol(without) = accepting else { panic!("{accepting:?}") };
    assert_eq!(without, NoCommonVersion { name: "node-2".into(), theirs: old, ours: new });
}

/// Not even a node that speaks none of our versions is believed anything before it has proved that it belongs here.
#[tokio::test]
async fn another_secret_or_register_is_refused_as_such_also_where_no_version_is_common() {
    let (old, new) = (versions(18, 19), versions(20, 21));
    let other = Secret::new(b"a secret of some other cluster").unwrap();
    let (dialing, accepting) = shake_in((old, (identity(2), other)), (new, (identity(1), secret()))).await;
    assert!(matches!(dialing, Err(HandshakeError::RefusedSecret)), "{dialing:?}");
    assert!(matches!(accepting, Err(HandshakeError::Secret)), "{accepting:?}");
    for other in [Identity { register: "22222222-bbbb".into(), ..identity(2) }, Identity { shards: 64, ..identity(2) }]
    {
        let (dialing, accepting) = shake_in((old, (other, secret())), (new, (identity(1), secret()))).await;
        for ended in [dialing, accepting] {
            assert!(matches!(ended, Err(HandshakeError::Differs { .. })), "{ended:?}");
        }
    }
}

/// Whoever stands between two nodes cannot make them speak a version that they would not choose.
#[tokio::test]
async fn versions_that_were_exchanged_on_the_way_are_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut dialed = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    let node = Node::speaking(versions(1, u16::MAX), identity(1), secret(), Owner::default());
    let mut real = TcpStream::connect(node.address).await.unwrap();
    let relay = tokio::spawn(async move {
        let mut hello = [0; 48];
        accepted.read_exact(&mut hello).await.unwrap();
        // The newest version.
        let lowest = [hello[12], hello[13]];
        hello[14..16].copy_from_slice(&lowest);
        real.write_all(&hello).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut accepted, &mut real).await;
    });
    let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
    let ended = handshake::dial(&mut dialed, &mut frames, (&identity(2), versions(3, 4)), &secret()).await;
    assert!(matches!(ended, Err(HandshakeError::RefusedSecret)), "{ended:?}");
    drop(dialed);
    relay.await.unwrap();
}

/// Programs of all versions read this.
#[tokio::test]
async fn the_bytes_of_a_hello_never_change() {
    let node = Node::speaking(versions(0x0102, 0x0304), identity(1), secret(), Owner::default());
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    let opening = [b"\x2c\0\0\0allodpr\n\x05\0\x06\0".as_slice(), &[7; 32]].concat();
    stream.write_all(&opening).await.unwrap();
    let mut answer = [0; 4 + 1 + 44];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[..17], *b"\x2d\0\0\0\0allodpr\n\x02\x01\x04\x03");
    assert_ne!(answer[17..], [0; 32], "a nonce");
}

/// A later program tells more of itself than this one knows.
#[tokio::test]
async fn a_proof_is_read_by_its_layout_and_more_of_an_identity_than_is_known_is_no_harm() {
    let node = Node::ordinary(Owner::default());
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    let [lowest, newest] = [PROTOCOL_LOWEST, PROTOCOL_VERSION].map(u16::to_le_bytes);
    let nonce = [7; 32];
    stream.write_all(&[b"\x2c\0\0\0allodpr\n", &lowest[..], &newest, &nonce].concat()).await.unwrap();
    let mut hello = [0; 4 + 1 + 44];
    stream.read_exact(&mut hello).await.unwrap();
    // Node, name, register, shards, build: numbers are varints, texts have their length before them.
    let identity = b"\x02\x06node-2\x0d11111111-aaaa\x10\x050.9.9 and what comes later";
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(SECRET).unwrap();
    for part in [b"allodpr\ndialing  ", &lowest[..], &newest, &nonce, &hello[13..], identity] {
        mac.update(part);
    }
    let mac: [u8; 32] = mac.finalize().into_bytes().into();
    let proof = [&[u8::try_from(identity.len()).unwrap()], &identity[..], &mac].concat();
    stream.write_u32_le(u32::try_from(proof.len()).unwrap()).await.unwrap();
    stream.write_all(&proof).await.unwrap();
    let length = stream.read_u32_le().await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 0, "it lets this node in");
    let mut proof = vec![0; length as usize - 1];
    stream.read_exact(&mut proof).await.unwrap();
    let identity = b"\x01\x06node-1\x0d11111111-aaaa\x10\x050.1.0";
    assert_eq!(proof[..proof.len() - 32], [&[u8::try_from(identity.len()).unwrap()], &identity[..]].concat());
}

#[tokio::test]
async fn strangers_are_closed_and_the_node_lives() {
    let node = Node::ordinary(Owner::default());
    let strangers: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[0xff; 10_000],
        &[0; 10_000],
        b"\x2c\0\0\0notallod\x01\0\x01\0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"\x2c\0\0\0allodpr\n\x01\0\x01\0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\x02\0\0\0\0\0",
    ];
    for bytes in strangers {
        let mut stream = TcpStream::connect(node.address).await.unwrap();
        // The connection may be closed before everything is written.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.len() <= PEER_HANDSHAKE_FRAME_BYTES_MAX);
    }
    let link = link_to(node.address);
    connected(&link).await;
}

#[tokio::test]
async fn a_link_says_why_it_is_not_connected() {
    let node = Node::new(Identity { shards: 64, ..identity(1) }, secret(), Owner::default());
    let link = link_to(node.address);
    let sentence = problem(&link).await;
    assert_eq!(link.no_common_version(), None);
    assert!(sentence.contains("`node-1` divides the register into 64 shards, this node into 16"), "{sentence}");
}

#[tokio::test]
async fn a_link_knows_a_node_without_a_common_version_and_forgets_it_when_another_one_introduces_itself() {
    let spoken = Versions::SPOKEN;
    let theirs = versions(spoken.newest + 1, spoken.newest + 3);
    let node = Node::speaking(theirs, identity(1), secret(), Owner::default());
    let address = node.address;
    let link = link_to(address);
    let sentence = problem(&link).await;
    assert!(sentence.contains(&theirs.to_string()) && sentence.contains(&spoken.to_string()), "{sentence}");
    let without = NoCommonVersion { name: "node-1".into(), theirs, ours: spoken };
    assert_eq!(link.no_common_version().as_deref(), Some(&without));
    assert!(!link.differs_in_secret());
    drop(node);
    let upgraded = loop {
        match Node::at(address, Versions::SPOKEN, identity(1), secret(), Owner::default()) {
            Ok(node) => break node,
            // The node before it has not gone yet.
            Err(_) => tokio::task::yield_now().await,
        }
    };
    connected(&link).await;
    assert_eq!(link.no_common_version(), None);
    drop(upgraded);
}
