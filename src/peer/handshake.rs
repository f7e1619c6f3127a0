//! Authentication: both sides prove that they know the cluster's secret, then compare their identities.
//!
//! ```text
//!  dialing                                   accepting
//!    Hello { versions, nonce }        ──▶
//!                                     ◀──    Hello { versions, nonce }, or Closed (too many)
//!    Proof { identity, mac }          ──▶
//!                                     ◀──    Proof { identity, mac }, or Closed (another secret, too many)
//!    both compare the two identities, and speak the highest version that both know
//! ```
//!
//! # The same in every version
//!
//! Programs of all versions read these frames, so they never change. Two nodes without a common version learn by them which
//! versions the other one speaks, and that it belongs to their cluster: only then may one wait for the register of the
//! other (`serve::unspoken`). Each frame is its length (four bytes, little-endian) and:
//!
//! | frame | bytes |
//! | --- | --- |
//! | hello | `allodpr\n`, the lowest and the newest version (two bytes each, little-endian), 32 bytes of nonce |
//! | its answer | 0 and a hello; or 1 and why it closes: 0 (too many), 1 (another secret) |
//! | proof | the length of the identity (a varint), the identity, 32 bytes of MAC |
//! | its answer | 0 and a proof; or 1 and why it closes |
//!
//! The identity is [`Identity`] in `postcard`; what follows the members that a program knows is for later ones.
//!
//! The MAC is HMAC-SHA256 under the secret over the role, both hellos and the bytes of the identity. A nonce is random and
//! used once, so nothing can be replayed; the role keeps a proof from being sent back to its author; neither the identity nor
//! the versions can be exchanged. The dialing side proves first, so that a stranger learns nothing from a listener but a nonce.
//! MACs are compared in constant time.
//!
//! What a side says before it has proved that it knows the secret is neither believed nor repeated: a refusal is a code, and
//! the sentence is our own. The whole handshake takes at most [`PEER_HANDSHAKE_MS`], and no frame of it is longer than
//! [`PEER_HANDSHAKE_FRAME_BYTES_MAX`].
//!
//! Used by `link` and `listener`. Review notes: is a new member of [`Identity`] compared, or does a comment say why not? Can a
//! program of any version still read all of this?

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::frame::{FrameError, Frames, decode, encode};
use super::secret::Secret;
use super::{Identity, NoCommonVersion, NodeId, READ_BYTES, Versions};
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
    /// The other side belongs to this cluster, and speaks no version of the protocol that this side speaks.
    #[error(
        "{0}: they cannot forward to each other, and the register goes from one to the other when its owner is drained or \
         stopped (deploy/README.md, \"Upgrade, and back\")"
    )]
    Protocol(NoCommonVersion),
    /// The proof of the other side was not made with our secret.
    #[error("its cluster secret is not the one of this node (`--cluster-secret-file`)")]
    Secret,
    /// The other side refuses our proof.
    #[error("it refused this node: the cluster secrets differ (`--cluster-secret-file`)")]
    RefusedSecret,
    /// The other side has as many nodes as it may have.
    #[error("it has {PEERS_MAX} other nodes connected and takes no more")]
    Full,
    /// The other side gave the place of this connection to a later one, before either had proved anything.
    #[error("it has too many connections that have not introduced themselves")]
    Crowded,
    /// The other side is one node more than there may be.
    #[error("{PEERS_MAX} nodes are connected; node `{name}` was turned away")]
    NoRoom {
        /// Name of the other node.
        name: String,
    },
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
            HandshakeError::Protocol(_)
            | HandshakeError::Secret
            | HandshakeError::RefusedSecret
            | HandshakeError::Full
            | HandshakeError::Crowded
            | HandshakeError::NoRoom { .. }
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
    lowest: [u8; 2],
    newest: [u8; 2],
    nonce: Nonce,
}

impl Hello {
    fn of(versions: Versions) -> Self {
        let [lowest, newest] = [versions.lowest, versions.newest].map(u16::to_le_bytes);
        Hello { magic: MAGIC, lowest, newest, nonce: rand::random() }
    }

    fn versions(&self) -> Versions {
        let [lowest, newest] = [self.lowest, self.newest].map(u16::from_le_bytes);
        Versions { lowest, newest }
    }

    fn check(&self) -> Result<(), HandshakeError> {
        if self.magic == MAGIC { Ok(()) } else { Err(HandshakeError::NoNode) }
    }
}

/// What both sides have said before they prove anything.
#[derive(Debug, Clone, Copy)]
struct Hellos<'a> {
    dialing: &'a Hello,
    accepting: &'a Hello,
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

fn hmac(secret: &Secret, role: Role, hellos: Hellos<'_>, identity: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("a key of any length will do");
    mac.update(&MAGIC);
    mac.update(match role {
        Role::Dialing => b"dialing  ",
        Role::Accepting => b"accepting",
    });
    // Everything before the identity has a fixed length, so no two inputs read alike.
    for hello in [hellos.dialing, hellos.accepting] {
        mac.update(&hello.lowest);
        mac.update(&hello.newest);
        mac.update(&hello.nonce);
    }
    mac.update(identity);
    mac
}

fn prove(secret: &Secret, role: Role, hellos: Hellos<'_>, own: &Identity) -> Result<Proof, FrameError> {
    let identity = postcard::to_stdvec(own).map_err(|error| FrameError::Malformed(error.to_string()))?;
    let mac = hmac(secret, role, hellos, &identity).finalize().into_bytes().into();
    Ok(Proof { identity, mac })
}

/// Was the proof made with our secret? The identity is read only if it was.
fn check(secret: &Secret, role: Role, hellos: Hellos<'_>, proof: &Proof) -> Result<Identity, HandshakeError> {
    let mac = hmac(secret, role, hellos, &proof.identity);
    mac.verify_slice(&proof.mac).map_err(|_| HandshakeError::Secret)?;
    match postcard::take_from_bytes(&proof.identity) {
        Ok((identity, _of_later_programs)) => Ok(identity),
        Err(error) => Err(FrameError::Malformed(error.to_string()).into()),
    }
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
    Err(HandshakeError::Differs { name: shown(&theirs.name), problem })
}

/// A name may be any text: only printable characters reach the log.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(128).collect()
}

/// The version that both speak. Asked last: whoever speaks none of ours is known to belong to the cluster.
fn agree(peer: &Identity, theirs: &Hello, ours: &Hello) -> Result<u16, HandshakeError> {
    let (theirs, ours) = (theirs.versions(), ours.versions());
    let name = || shown(&peer.name).into();
    ours.common(theirs).ok_or_else(|| HandshakeError::Protocol(NoCommonVersion { name: name(), theirs, ours }))
}

/// The dialing side: returns who answered, and which version of the protocol is spoken. Bytes that `frames` has read beyond
/// the handshake are the beginning of what follows.
///
/// # Errors
/// See [`HandshakeError`].
pub async fn dial(
    stream: &mut TcpStream,
    frames: &mut Frames,
    (own, speaks): (&Identity, Versions),
    secret: &Secret,
) -> Result<(Identity, u16), HandshakeError> {
    limited(async {
        let ours = Hello::of(speaks);
        send(stream, &ours).await?;
        let theirs = match receive(stream, frames).await? {
            HelloAnswer::Hello(theirs) => theirs,
            HelloAnswer::Closed(Closed::Full) => return Err(HandshakeError::Crowded),
            HelloAnswer::Closed(closed) => return Err(closed.into()),
        };
        theirs.check()?;
        let hellos = Hellos { dialing: &ours, accepting: &theirs };
        send(stream, &prove(secret, Role::Dialing, hellos, own)?).await?;
        let proof = match receive(stream, frames).await? {
            Proved::Proof(proof) => proof,
            Proved::Closed(closed) => return Err(closed.into()),
        };
        let peer = check(secret, Role::Accepting, hellos, &proof)?;
        compare(&peer, own)?;
        let version = agree(&peer, &theirs, &ours)?;
        frames.allow(PEER_FRAME_BYTES_MAX);
        Ok((peer, version))
    })
    .await
}

/// The accepting side: returns who connected, and which version of the protocol is spoken. A node for which there is no room is
/// told so.
///
/// # Errors
/// See [`HandshakeError`].
pub async fn accept(
    stream: &mut TcpStream,
    frames: &mut Frames,
    (own, speaks): (&Identity, Versions),
    secret: &Secret,
    has_room: impl FnOnce(NodeId) -> bool,
) -> Result<(Identity, u16), HandshakeError> {
    limited(async {
        let theirs: Hello = receive(stream, frames).await?;
        theirs.check()?;
        let ours = Hello::of(speaks);
        send(stream, &HelloAnswer::Hello(ours)).await?;
        let hellos = Hellos { dialing: &theirs, accepting: &ours };
        let proof: Proof = receive(stream, frames).await?;
        let peer = match check(secret, Role::Dialing, hellos, &proof) {
            Ok(peer) => peer,
            Err(error) => {
                send(stream, &Proved::Closed(Closed::Secret)).await?;
                return Err(error);
            }
        };
        if !has_room(peer.node) {
            send(stream, &Proved::Closed(Closed::Full)).await?;
            return Err(HandshakeError::NoRoom { name: shown(&peer.name) });
        }
        // A node that knows the secret may know why it is refused: it compares the same two identities.
        send(stream, &Proved::Proof(prove(secret, Role::Accepting, hellos, own)?)).await?;
        compare(&peer, own)?;
        let version = agree(&peer, &theirs, &ours)?;
        frames.allow(PEER_FRAME_BYTES_MAX);
        Ok((peer, version))
    })
    .await
}

/// Tells who has not introduced itself that there are too many like it, if that can be sent at once.
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
