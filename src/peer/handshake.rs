//! Authentication: both sides prove that they know the cluster's secret, then compare their identities.
//!
//! ```text
//!  dialing                                   accepting
//!    Hello { protocol, nonce }        ──▶
//!                                     ◀──    Hello { protocol, nonce }, or Closed (too many)
//!    Proof { identity, mac }          ──▶
//!                                     ◀──    Proof { identity, mac }, or Closed (another secret)
//!    both compare the two identities
//! ```
//!
//! A side that sees another version in the hello of the other side hangs up.
//!
//! The MAC is HMAC-SHA256 under the secret over the role, both nonces and the bytes of the identity. A nonce is random and
//! used once, so nothing can be replayed; the role keeps a proof from being sent back to its author; the identity cannot be
//! exchanged. The dialing side proves first, so that a stranger learns nothing from a listener but a nonce. MACs are
//! compared in constant time.
//!
//! What a side says before it has proved that it knows the secret is neither believed nor repeated: a refusal is a code, and
//! the sentence is our own. The whole handshake takes at most [`PEER_HANDSHAKE_MS`], and no frame of it is longer than
//! [`PEER_HANDSHAKE_FRAME_BYTES_MAX`].
//!
//! Used by `link` and `listener`. Review notes: is a new member of [`Identity`] compared, or does a comment say why not?

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::frame::{FrameError, Frames, decode, encode};
use super::secret::Secret;
use super::{Identity, PROTOCOL_VERSION, READ_BYTES};
use crate::limits::{PEER_FRAME_BYTES_MAX, PEER_HANDSHAKE_FRAME_BYTES_MAX, PEER_HANDSHAKE_MS, PEERS_MAX};

/// The first bytes of every connection between nodes: anything else that connects is recognised at once.
const MAGIC: [u8; 8] = *b"allodpr\n";

type Nonce = [u8; 32];

/// Why two nodes do not talk. `Display` is for the log of the side that has the error, and says nothing secret.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    /// The handshake did not end in time.
    #[error("it did not introduce itself within {PEER_HANDSHAKE_MS} ms")]
    Slow,
    /// The other side closed the connection.
    #[error("it closed the connection before it had introduced itself")]
    Gone,
    /// The other side is not a node.
    #[error("it is not an allod node")]
    NoNode,
    /// Bytes that are not a frame of a handshake.
    #[error("it said {0}")]
    Frame(#[from] FrameError),
    /// The other side speaks another version of the protocol.
    #[error(
        "it speaks version {theirs} of the protocol between nodes, this node version {ours}; run the same release on both"
    )]
    Protocol {
        /// Its version.
        theirs: u16,
        /// Our version.
        ours: u16,
    },
    /// The proof of the other side was not made with our secret.
    #[error("its cluster secret is not the one of this node (`--cluster-secret-file`)")]
    Secret,
    /// The other side refuses our proof.
    #[error("it refused this node: the cluster secrets differ (`--cluster-secret-file`)")]
    RefusedSecret,
    /// The other side has as many connections as it may have.
    #[error("it has {PEERS_MAX} other nodes connected and takes no more")]
    Full,
    /// The other side knows the secret, but is not a node of this cluster.
    #[error("node `{name}` {problem}")]
    Differs {
        /// Name of the other node.
        name: String,
        /// What differs, with both values.
        problem: String,
    },
}

impl HandshakeError {
    /// Is it worth an operator's attention? Something that connects and leaves, as a port scanner or a health check does, is
    /// not a node.
    pub fn is_of_a_node(&self) -> bool {
        match self {
            HandshakeError::Protocol { .. }
            | HandshakeError::Secret
            | HandshakeError::RefusedSecret
            | HandshakeError::Full
            | HandshakeError::Differs { .. } => true,
            HandshakeError::Io(_)
            | HandshakeError::Slow
            | HandshakeError::Gone
            | HandshakeError::NoNode
            | HandshakeError::Frame(_) => false,
        }
    }
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Hello {
    magic: [u8; 8],
    protocol: u16,
    nonce: Nonce,
}

/// The first answer of the accepting side.
#[derive(Debug, Serialize, Deserialize)]
enum HelloAnswer {
    Hello(Hello),
    Closed(Closed),
}

#[derive(Debug, Serialize, Deserialize)]
enum Proved {
    Proof(Proof),
    Closed(Closed),
}

/// Why the accepting side closes, as far as it tells a side that has proved nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Closed {
    Full,
    Secret,
}

impl From<Closed> for HandshakeError {
    fn from(closed: Closed) -> Self {
        match closed {
            Closed::Full => HandshakeError::Full,
            Closed::Secret => HandshakeError::RefusedSecret,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Proof {
    /// [`Identity`] in bytes, as they were signed.
    identity: Vec<u8>,
    mac: [u8; 32],
}

/// Which side made a proof.
#[derive(Debug, Clone, Copy)]
enum Role {
    Dialing,
    Accepting,
}

fn hmac(secret: &Secret, role: Role, nonces: (&Nonce, &Nonce), identity: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("a key of any length will do");
    mac.update(&MAGIC);
    mac.update(match role {
        Role::Dialing => b"dialing  ",
        Role::Accepting => b"accepting",
    });
    // Everything before the identity has a fixed length, so no two inputs read alike.
    mac.update(nonces.0);
    mac.update(nonces.1);
    mac.update(identity);
    mac
}

fn prove(secret: &Secret, role: Role, nonces: (&Nonce, &Nonce), own: &Identity) -> Result<Proof, FrameError> {
    let identity = postcard::to_stdvec(own).map_err(|error| FrameError::Malformed(error.to_string()))?;
    let mac = hmac(secret, role, nonces, &identity).finalize().into_bytes().into();
    Ok(Proof { identity, mac })
}

/// Was the proof made with our secret? The identity is read only if it was.
fn check(secret: &Secret, role: Role, nonces: (&Nonce, &Nonce), proof: &Proof) -> Result<Identity, HandshakeError> {
    let mac = hmac(secret, role, nonces, &proof.identity);
    mac.verify_slice(&proof.mac).map_err(|_| HandshakeError::Secret)?;
    Ok(decode(&proof.identity)?)
}

/// Do the two nodes belong to one cluster?
fn compare(theirs: &Identity, ours: &Identity) -> Result<(), HandshakeError> {
    let problem = if theirs.register != ours.register {
        format!("serves register {}, this node register {}; they are two clusters", theirs.register, ours.register)
    } else if theirs.shards != ours.shards {
        format!("divides the register into {} shards, this node into {}", theirs.shards, ours.shards)
    } else if theirs.node == ours.node {
        "is this node itself: the address that another one gives out leads here. Set on that one where the others reach it \
         (`--advertise HOST:PORT`, `cluster.advertise`), or have it listen at such an address (`--cluster-listen`, \
         `cluster.listen`)"
            .to_owned()
    } else {
        return Ok(());
    };
    // A name may be any text: only printable characters reach the log.
    let name = theirs.name.chars().filter(|c| !c.is_control()).take(128).collect();
    Err(HandshakeError::Differs { name, problem })
}

fn hello() -> Hello {
    Hello { magic: MAGIC, protocol: PROTOCOL_VERSION, nonce: rand::random() }
}

fn check_hello(theirs: &Hello) -> Result<(), HandshakeError> {
    if theirs.magic != MAGIC {
        return Err(HandshakeError::NoNode);
    }
    if theirs.protocol != PROTOCOL_VERSION {
        return Err(HandshakeError::Protocol { theirs: theirs.protocol, ours: PROTOCOL_VERSION });
    }
    Ok(())
}

/// The dialing side: returns who answered. Bytes that `frames` has read beyond the handshake are the beginning of what
/// follows.
///
/// # Errors
/// See [`HandshakeError`].
pub async fn dial(
    stream: &mut TcpStream,
    frames: &mut Frames,
    own: &Identity,
    secret: &Secret,
) -> Result<Identity, HandshakeError> {
    limited(async {
        let ours = hello();
        send(stream, &ours).await?;
        let theirs = match receive(stream, frames).await? {
            HelloAnswer::Hello(theirs) => theirs,
            HelloAnswer::Closed(closed) => return Err(closed.into()),
        };
        check_hello(&theirs)?;
        let nonces = (&ours.nonce, &theirs.nonce);
        send(stream, &prove(secret, Role::Dialing, nonces, own)?).await?;
        let proof = match receive(stream, frames).await? {
            Proved::Proof(proof) => proof,
            Proved::Closed(closed) => return Err(closed.into()),
        };
        let peer = check(secret, Role::Accepting, nonces, &proof)?;
        compare(&peer, own)?;
        frames.allow(PEER_FRAME_BYTES_MAX);
        Ok(peer)
    })
    .await
}

/// The accepting side: returns who connected.
///
/// # Errors
/// See [`HandshakeError`].
pub async fn accept(
    stream: &mut TcpStream,
    frames: &mut Frames,
    own: &Identity,
    secret: &Secret,
) -> Result<Identity, HandshakeError> {
    limited(async {
        let theirs: Hello = receive(stream, frames).await?;
        let ours = hello();
        if theirs.magic != MAGIC {
            return Err(HandshakeError::NoNode);
        }
        send(stream, &HelloAnswer::Hello(ours)).await?;
        check_hello(&theirs)?;
        let nonces = (&theirs.nonce, &ours.nonce);
        let proof: Proof = receive(stream, frames).await?;
        let peer = match check(secret, Role::Dialing, nonces, &proof) {
            Ok(peer) => peer,
            Err(error) => {
                send(stream, &Proved::Closed(Closed::Secret)).await?;
                return Err(error);
            }
        };
        // A node that knows the secret may know why it is refused: it compares the same two identities.
        send(stream, &Proved::Proof(prove(secret, Role::Accepting, nonces, own)?)).await?;
        compare(&peer, own)?;
        frames.allow(PEER_FRAME_BYTES_MAX);
        Ok(peer)
    })
    .await
}

/// Tells a node that there are too many, if that can be sent at once.
pub fn turn_away(stream: &TcpStream) {
    let mut frame = Vec::new();
    if encode(&HelloAnswer::Closed(Closed::Full), PEER_HANDSHAKE_FRAME_BYTES_MAX, &mut frame).is_ok() {
        // A node that does not take it sees the connection close.
        let _ = stream.try_write(&frame);
    }
}

async fn limited<T>(steps: impl Future<Output = Result<T, HandshakeError>>) -> Result<T, HandshakeError> {
    match tokio::time::timeout(Duration::from_millis(PEER_HANDSHAKE_MS), steps).await {
        Ok(ended) => ended,
        Err(_) => Err(HandshakeError::Slow),
    }
}

async fn send<T: Serialize>(stream: &mut TcpStream, value: &T) -> Result<(), HandshakeError> {
    let mut frame = Vec::new();
    encode(value, PEER_HANDSHAKE_FRAME_BYTES_MAX, &mut frame)?;
    Ok(stream.write_all(&frame).await?)
}

async fn receive<T: for<'a> Deserialize<'a>>(stream: &mut TcpStream, frames: &mut Frames) -> Result<T, HandshakeError> {
    loop {
        if let Some(frame) = frames.cut()? {
            return Ok(decode(frame)?);
        }
        // The buffer holds at most one frame and one read beyond it.
        frames.input.reserve(READ_BYTES.min(PEER_HANDSHAKE_FRAME_BYTES_MAX));
        if stream.read_buf(&mut frames.input).await? == 0 {
            return Err(HandshakeError::Gone);
        }
    }
}
