//! What ends a store for good: what lies in Redis is gone, went back, is another register or was moved away. Each is said once, in
//! words that tell what to do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::{KnownLine, RedisShared};
use crate::store::moving::MoveNotice;
use crate::store::redis::identity::{Behind, Stood};
use crate::store::redis::journal::Point;
use crate::store::redis::{failed, moving};
use crate::store::{Epoch, Seq, ShardId, StoreError, Token};

/// For so long nodes that do not own the register wait for the one that writes it anew: it has to notice, and all may have been
/// restarted beside it.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// What to do about data that no node has.
const BRING_BACK: &str = "Bring its data back, and start again";

impl RedisShared {
    /// What is in Redis cannot be trusted any more: everything is refused from here on.
    pub(in crate::store::redis) fn damaged(&self, problem: String) -> StoreError {
        self.stop(problem, "the store is stopped")
    }

    fn stop(&self, problem: String, said: &str) -> StoreError {
        if self.failure.set(problem.as_str().into()).is_ok() {
            tracing::error!(redis = %self.place, problem, "{said}");
        }
        StoreError::Damaged(problem.into())
    }

    /// The same of the owner of a register of which nothing is there any more. It may be all that anybody has of it: whoever stopped
    /// this process as it is told to bring the data back would lose that, so nothing of the kind is said before it is tried.
    fn damaged_but_in_memory(&self, problem: String) -> StoreError {
        let said = if self.in_cluster {
            // Nothing may be missing but a move of the slot that broke off: that is looked at first.
            "the store is stopped, and this node has the register in memory. Leave it running: where no other server of the cluster has \
             something of it, it writes that anew; else it says so, and ends"
        } else {
            "the store is stopped, and this node has the register in memory. Leave it running: it writes that anew, or says why not"
        };
        self.stop(problem, said)
    }

    /// A head that is not there, in a register that has one for every shard.
    pub(in crate::store::redis) fn absent(&self, shard: ShardId) -> StoreError {
        let (place, key) = (&self.place, self.keys.head(shard));
        let why = self.why_gone("it was emptied, or went back to a copy from before its first use");
        self.emptied(format!("Redis at {place} lost `{key}`, the head of shard {}: {why}", shard.0))
    }

    /// Why a key may be gone.
    fn why_gone(&self, why: &str) -> String {
        if self.in_cluster {
            return format!(
                "{why}, or is on another server of the cluster, because the move of its slot broke off (`redis-cli --cluster fix` ends \
                 one)"
            );
        }
        format!("{why}; nothing is granted from it")
    }

    /// Nothing of the register is there. Who owned it has it in memory, and is told at once; the others give him time.
    fn emptied(&self, problem: String) -> StoreError {
        let since = self.emptied.change(|since| *since.get_or_insert_with(Instant::now));
        match (self.serves, self.owned().is_empty()) {
            (true, false) => return self.damaged_but_in_memory(problem),
            (true, true) if since.elapsed() <= WRITTEN_WITHIN => {}
            (true | false, _) => return self.damaged(format!("{problem}. {BRING_BACK}")),
        }
        let waits = format!(
            "{problem}. If the node that owned it last lives and has it in memory, it writes it anew: leave that one running. This one \
             waits {} s for that, and ends then",
            WRITTEN_WITHIN.as_secs()
        );
        StoreError::Io { context: "asking for the register".into(), source: Arc::new(io::Error::other(waits)) }
    }

    /// Was it emptied, and is nothing there again?
    pub(in crate::store::redis) fn was_emptied(&self) -> bool {
        self.emptied.is_there()
    }

    /// Is it the register that this process keeps, by the answer of an HMGET of its id? Where that is gone the heads are, too, and
    /// whoever reads those says so; or a script does, which compares.
    pub(in crate::store::redis) fn is_own_register(&self, answer: &Value) -> Result<(), StoreError> {
        let strange = || failed::strange(&self.place, "its register's key is none");
        let Value::Array(fields) = answer else { return Err(strange()) };
        let id = match fields.first() {
            Some(Value::BulkString(id)) => std::str::from_utf8(id).ok(),
            Some(Value::Nil) => return Ok(()),
            _ => None,
        };
        match id.and_then(|id| u128::from_str_radix(id, 16).ok()).ok_or_else(strange)? {
            own if own == self.info.register => {
                self.emptied.clear();
                Ok(())
            }
            found => Err(self.foreign(Some(found))),
        }
    }

    /// It is not whole yet, or not again, as it was when this process opened it to serve it. Then that passes: whoever owned it last
    /// gives back what is missing, and who writes it anew says so when it is done.
    pub(in crate::store::redis) fn unfinished(&self, notice: &str) -> StoreError {
        let Some(MoveNotice::Unfinished { from }) = MoveNotice::parse(notice).filter(|_| self.serves) else {
            return moving::moved(&self.place, self.keys.prefix(), notice);
        };
        let context = format!("Redis at {} went back to before the move into it was finished", self.place).into();
        let why = format!(
            "it is again the unfinished copy of the register that was moved here from {from}. The node that owned it last gives back \
             what is missing, so leave that running; where none lives, say the move again (`allod migrate`), which finishes it"
        );
        StoreError::Io { context, source: Arc::new(io::Error::other(why)) }
    }

    /// The register is somewhere else. Whoever serves it ends: he would wait for ever for what is nobody's any more.
    pub(in crate::store::redis) fn moved(&self, notice: &str) -> StoreError {
        match moving::moved(&self.place, self.keys.prefix(), notice) {
            moved @ StoreError::Foreign(_) if self.serves => {
                self.moved_away.store(true, Ordering::Release);
                self.damaged(moved.to_string())
            }
            moved => moved,
        }
    }

    /// Another register is in the place of the one that this process keeps, or one whose own key is gone.
    pub(in crate::store::redis) fn foreign(&self, found: Option<u128>) -> StoreError {
        let (place, prefix, own) = (&self.place, self.keys.prefix(), self.info.register);
        let Some(found) = found else {
            let key = self.keys.register();
            let why = self.why_gone("it was emptied");
            return self.emptied(format!("Redis at {place} lost `{key}`, which says what the register is: {why}"));
        };
        self.damaged(format!(
            "Redis at {place} has another register under `{prefix}` than the one that this server keeps: {found:032x}, not \
             {own:032x}. Its data was replaced while this server ran; nothing is granted from it, and nothing is written to \
             it. Bring the data of {own:032x} back, or name the Redis that has it by `--redis URL`, and start again; only if \
             that register is given up for good, start with `--accept-new-store`, which takes {found:032x}"
        ))
    }

    /// A key that is not there although another says that it is.
    pub(in crate::store::redis) fn lost(&self, key: &str) -> StoreError {
        let why = self.why_gone("it was deleted or thrown away");
        self.damaged(format!(
            "Redis at {} lost `{key}`, which is part of the register: {why}. {BRING_BACK}",
            self.place
        ))
    }

    /// The same, found by whoever serves the register from memory: it goes on, until something is to be written there.
    pub(in crate::store::redis) fn lacks(&self, key: &str) -> StoreError {
        StoreError::Damaged(format!("Redis at {} lost `{key}`, which is part of the register", self.place).into())
    }

    /// Is it stopped because the register is somewhere else? Whoever moved it saw to what was acknowledged.
    pub(in crate::store::redis) fn has_moved_away(&self) -> bool {
        self.moved_away.load(Ordering::Acquire)
    }

    /// It was emptied, and is whole again by what was in memory.
    pub(in crate::store::redis) fn written_anew(&self) {
        self.written_anew.store(true, Ordering::Release);
    }

    /// Is it?
    pub(in crate::store::redis) fn is_written_anew(&self) -> bool {
        self.written_anew.load(Ordering::Acquire)
    }

    /// This process ends: the next start shall know how far was acknowledged here. An older copy may have been brought back by then.
    /// Where Redis went back that is noted already, and stays until an operator, or whoever goes on,
    /// has decided: what this process put aside is missing there all the same.
    pub(in crate::store::redis) fn stands(&self) {
        let Some(identity) = self.identity.as_ref().filter(|_| !self.has_gone_back()) else { return };
        let stood = |line: KnownLine| {
            let past = self.line(line.shard, |line| line.past()).unwrap_or_default();
            let before = past.ended().filter(|token| *token != Token(0) && *token != line.told.token);
            let tokens = std::iter::once(line.told.token).chain(before).collect();
            Stood { shard: line.shard, told: line.told, epoch: line.told_epoch, tokens }
        };
        let lines = self.lines().into_iter().filter(|line| line.told.seq > Seq(0));
        let stood: Vec<Stood> = lines.map(stood).collect();
        if let Err(error) = identity.stood(self.info.register, &stood) {
            tracing::warn!(%error, "the next start will not know whether an older copy of Redis was brought back");
        }
    }

    /// Is it stopped because Redis went back? Then this process remembers what is missing elsewhere, too.
    pub(in crate::store::redis) fn has_gone_back(&self) -> bool {
        self.gone_back.load(Ordering::Acquire)
    }

    /// A shard that ends before what was acknowledged: under which token it stands as nobody's, or none where another owner
    /// has gone on; and where, in words.
    pub(in crate::store::redis) fn went_back(&self, shard: ShardId, stands: Option<Token>, found: &str) -> StoreError {
        let known = self.line(shard, |line| line.known(shard));
        let (told, epoch) = known.map_or((Point::NOWHERE, Epoch(0)), |known| (known.told, known.told_epoch));
        let acknowledged = told.seq.0;
        self.gone_back.store(true, Ordering::Release);
        let behind = Behind { shard, told, epoch, found: Some(stands.unwrap_or(Token(0))) };
        if let Some(identity) = &self.identity
            && let Err(error) = identity.went_back(self.info.register, &behind)
        {
            tracing::error!(%error, "the next start will not know that Redis went back");
        }
        self.damaged(format!(
            "Redis at {} went back: shard {} was acknowledged up to batch {acknowledged} and is now {found}. Changes that \
             were acknowledged are missing there; bring its data back, or start with `--accept-rollback` to go on from what it \
             has. That grants from the first moment: keep the clients' way closed until what is in use was claimed",
            self.place, shard.0
        ))
    }
}
