//! What ends a store for good: the register in Redis is gone, went back, is another one or was moved away. Each is reported
//! once, with what to do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::{KnownLine, RedisShared, locked};
use crate::store::moving::MoveNotice;
use crate::store::redis::identity::{Behind, Stood};
use crate::store::redis::journal::Point;
use crate::store::redis::{failed, moving};
use crate::store::{Epoch, Seq, ShardId, StoreError, Token};

/// How long nodes that do not own the register wait for the one that writes it anew: that node has to notice, and all nodes
/// may have been restarted meanwhile.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// What to do about data that no node has.
const BRING_BACK: &str = "Bring its data back, and start again";

impl RedisShared {
    /// The data in Redis can no longer be trusted: everything is refused from here on.
    pub(in crate::store::redis) fn damaged(&self, problem: String) -> StoreError {
        self.stop(problem, "the store is stopped")
    }

    fn stop(&self, problem: String, said: &str) -> StoreError {
        if self.failure.set(problem.as_str().into()).is_ok() {
            tracing::error!(redis = %self.place, problem, "{said}");
        }
        StoreError::Damaged(problem.into())
    }

    /// The same for the owner of a register of which at least a part is gone. The owner's memory may be the only copy. An
    /// operator who was told to bring the data back would stop this process and lose it; so whether it writes the register
    /// anew is said where that is known (`serve::anew`).
    fn damaged_but_in_memory(&self, problem: String) -> StoreError {
        self.stop(
            problem,
            "the store is stopped, and this node looks whether it may write the register again from memory",
        )
    }

    /// A head is missing in a register that has one for every shard. What else is missing is not known here (but see
    /// [`super::super::whole::no_head`]).
    pub(in crate::store::redis) fn absent(&self, shard: ShardId) -> StoreError {
        let (place, key) = (&self.place, self.keys.head(shard));
        let why =
            self.why_gone("it was emptied, went back to a copy from before its first use, or lost this key alone");
        self.emptied(format!("Redis at {place} lost `{key}`, the head of shard {}: {why}", shard.0))
    }

    /// A head is missing while the rest of the register is there: no node writes it anew.
    pub(in crate::store::redis) fn lost_head(&self, shard: ShardId) -> StoreError {
        let (place, key) = (&self.place, self.keys.head(shard));
        let why = self.why_gone("it was deleted or thrown away");
        self.damaged(format!(
            "Redis at {place} lost `{key}`, the head of shard {}, while `{}` is there: {why}. {BRING_BACK}",
            shard.0,
            self.keys.register()
        ))
    }

    fn why_gone(&self, why: &str) -> String {
        if self.in_cluster {
            return format!(
                "{why}, or is on another server of the cluster, because the move of its slot broke off (`redis-cli --cluster fix` ends \
                 one)"
            );
        }
        format!("{why}; nothing is granted from it")
    }

    /// Nothing of the register is there. Its owner has it in memory, and is told at once; the other nodes give the owner time.
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

    /// Was it emptied, and is it still empty?
    pub(in crate::store::redis) fn was_emptied(&self) -> bool {
        self.emptied.is_there()
    }

    /// Is it the register that this process keeps, by the answer to an HMGET of its id? If the id is gone, the heads are
    /// gone, too, and the code that reads those reports it; or a script does, which compares.
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

    /// The register is unfinished again, although it was finished when this process opened it to serve it. This passes: the
    /// last owner gives back what is missing, and a node that writes it anew reports when it is done.
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

    /// The register was moved away. A process that serves it must end, because it would wait for ever.
    pub(in crate::store::redis) fn moved(&self, notice: &str) -> StoreError {
        match moving::moved(&self.place, self.keys.prefix(), notice) {
            moved @ StoreError::Foreign(_) if self.serves => {
                self.moved_away.store(true, Ordering::Release);
                self.damaged(moved.to_string())
            }
            moved => moved,
        }
    }

    /// Another register has taken the place of the one that this process keeps, or the register's own key is gone.
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

    /// A key is missing although another one vouches for it.
    pub(in crate::store::redis) fn lost(&self, key: &str) -> StoreError {
        let why = self.why_gone("it was deleted or thrown away");
        self.damaged(format!(
            "Redis at {} lost `{key}`, which is part of the register: {why}. {BRING_BACK}",
            self.place
        ))
    }

    /// The same, found by a process that serves the register from memory: it goes on until something must be written there.
    pub(in crate::store::redis) fn lacks(&self, key: &str) -> StoreError {
        StoreError::Damaged(format!("Redis at {} lost `{key}`, which is part of the register", self.place).into())
    }

    /// Did the store stop because the register was moved away? The move took care of what was acknowledged.
    pub(in crate::store::redis) fn has_moved_away(&self) -> bool {
        self.moved_away.load(Ordering::Acquire)
    }

    /// Redis was emptied, and the register is complete again from this process's memory.
    pub(in crate::store::redis) fn written_anew(&self) {
        self.written_anew.store(true, Ordering::Release);
    }

    pub(in crate::store::redis) fn is_written_anew(&self) -> bool {
        self.written_anew.load(Ordering::Acquire)
    }

    /// This process ends: notes for the next start how far the register was acknowledged here, since an older copy may be
    /// brought back by then. If Redis went back, the note of that stays until an operator, or a node that goes on, has
    /// decided: what this process put aside is missing in Redis all the same.
    pub(in crate::store::redis) fn stands(&self) {
        let Some(identity) = &self.identity else { return };
        let (register, stood, behind) = (self.info.register, self.stood(), locked(&self.gone_back).clone());
        let noted = match behind {
            Some(behind) => identity.went_back(register, &behind, &stood),
            None => identity.stood(register, &stood),
        };
        if let Err(error) = noted {
            tracing::warn!(%error, "the next start will not know whether an older copy of Redis was brought back");
        }
    }

    /// How far each shard has been acknowledged.
    fn stood(&self) -> Vec<Stood> {
        let stood = |line: KnownLine| {
            let past = self.line(line.shard, |line| line.past()).unwrap_or_default();
            let before = past.ended().filter(|token| *token != Token(0) && *token != line.told.token);
            let tokens = std::iter::once(line.told.token).chain(before).collect();
            Stood { shard: line.shard, told: line.told, epoch: line.told_epoch, tokens }
        };
        let lines = self.lines().into_iter().filter(|line| line.told.seq > Seq(0));
        lines.map(stood).collect()
    }

    /// Did the store stop because Redis went back? Then this process also remembers what is missing elsewhere.
    pub(in crate::store::redis) fn has_gone_back(&self) -> bool {
        locked(&self.gone_back).is_some()
    }

    /// A shard ends before what was acknowledged. `stands` is the token under which it stands while nobody owns it, or none
    /// if another owner has gone on; `found` says in words where it stands.
    pub(in crate::store::redis) fn went_back(&self, shard: ShardId, stands: Option<Token>, found: &str) -> StoreError {
        let known = self.line(shard, |line| line.known(shard));
        let (told, epoch) = known.map_or((Point::NOWHERE, Epoch(0)), |known| (known.told, known.told_epoch));
        let acknowledged = told.seq.0;
        let behind = Behind { shard, told, epoch, found: Some(stands.unwrap_or(Token(0))) };
        *locked(&self.gone_back) = Some(behind.clone());
        if let Some(identity) = &self.identity
            && let Err(error) = identity.went_back(self.info.register, &behind, &self.stood())
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
