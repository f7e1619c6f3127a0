//! A thread that indexes records of a shard while more of the shard is read and decoded.
//!
//! Before: `load`, which decodes. The result is in the form in which a network keeps it (see [`Entries`]).

use std::collections::BTreeMap;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::core::network::Entries;
use crate::core::state::{Key, State};
use crate::core::types::NetworkId;
use crate::store::StoreError;

/// Pieces that may wait for the thread: some take it longer than others.
const PIECES_WAITING: usize = 4;

/// Records of addresses from some hashes, each list with its network.
type Piece = Vec<(NetworkId, Vec<(Key, State)>)>;

/// The channel to the thread, and its result.
pub(super) struct Indexer {
    pieces: mpsc::Sender<Piece>,
    indexing: JoinHandle<BTreeMap<NetworkId, Entries>>,
}

impl Indexer {
    /// Starts the thread on the runtime on which this is called.
    pub(super) fn start() -> Self {
        let (pieces, mut waiting) = mpsc::channel::<Piece>(PIECES_WAITING);
        let indexing = tokio::task::spawn_blocking(move || {
            let mut networks: BTreeMap<NetworkId, Entries> = BTreeMap::new();
            while let Some(piece) = waiting.blocking_recv() {
                for (id, records) in piece {
                    let entries = networks.entry(id).or_default();
                    for (key, state) in records {
                        if let (Key::Address(address), State::Entry(entry)) = (key, state) {
                            entries.push(address, entry);
                        }
                    }
                }
            }
            networks
        });
        Self { pieces, indexing }
    }

    /// Passes on records. The records of a network must come in order.
    pub(super) async fn take(&self, piece: Piece) -> Result<(), StoreError> {
        self.pieces.send(piece).await.map_err(|_| crashed())
    }

    pub(super) async fn finish(self) -> Result<BTreeMap<NetworkId, Entries>, StoreError> {
        drop(self.pieces);
        self.indexing.await.map_err(|_| crashed())
    }
}

fn crashed() -> StoreError {
    StoreError::Poisoned("the thread that indexes what is loaded crashed".into())
}
