//! Who is let in, and what the others are told.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::nodes::*;
use crate::limits::PEER_HANDSHAKE_FRAME_BYTES_MAX;
use crate::peer::frame::Frames;
use crate::peer::handshake::{self, HandshakeError};
use crate::peer::secret::Secret;
use crate::peer::{Identity, PROTOCOL_VERSION};

type Ended = Result<Identity, HandshakeError>;

/// Both ends of one handshake: what the dialing side returns, and what the accepting side does.
async fn shake(dialing: (Identity, Secret), accepting: (Identity, Secret)) -> (Ended, Ended) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut dialed = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    let frames = || Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
    let (mut here, mut there) = (frames(), frames());
    let dial = async {
        let ended = handshake::dial(&mut dialed, &mut here, &dialing.0, &dialing.1).await;
        drop(dialed);
        ended
    };
    let accept = async {
        let ended = handshake::accept(&mut accepted, &mut there, &accepting.0, &accepting.1).await;
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
    assert_eq!(dialing.unwrap(), identity(1));
    assert_eq!(accepting.unwrap(), identity(2));
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
        let mut first = [0; 45];
        accepted.read_exact(&mut first).await.unwrap();
        // Another nonce than the dialing side sent.
        first[44] ^= 1;
        real.write_all(&first).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut accepted, &mut real).await;
    });
    let mut frames = Frames::new(PEER_HANDSHAKE_FRAME_BYTES_MAX);
    let ended = handshake::dial(&mut dialed, &mut frames, &identity(2), &secret()).await;
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
    let ended = handshake::dial(&mut dialed, &mut frames, &identity(2), &secret()).await;
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

#[tokio::test]
async fn another_version_of_the_protocol_is_refused_with_both_values() {
    let node = Node::ordinary(Owner::default());
    let mut stream = TcpStream::connect(node.address).await.unwrap();
    // Length, magic, version as a varint, nonce.
    let mut opening = b"\x29\0\0\0allodpr\n\x63".to_vec();
    opening.extend_from_slice(&[7; 32]);
    stream.write_all(&opening).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    // It says its own version before it closes, so that the other side can name both.
    assert_eq!(answer[5..13], *b"allodpr\n");
    assert_eq!(u16::from(answer[13]), PROTOCOL_VERSION);
    let error = HandshakeError::Protocol { theirs: 99, ours: PROTOCOL_VERSION }.to_string();
    assert!(error.contains("version 99") && error.contains(&format!("version {PROTOCOL_VERSION}")), "{error}");
}

#[tokio::test]
async fn strangers_are_closed_and_the_node_lives() {
    let node = Node::ordinary(Owner::default());
    let strangers: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        &[0xff; 10_000],
        &[0; 10_000],
        b"\x29\0\0\0notallod\x01aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"\x29\0\0\0allodpr\n\x01aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\x02\0\0\0\0\0",
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
    assert!(sentence.contains("`node-1` divides the register into 64 shards, this node into 16"), "{sentence}");
}
