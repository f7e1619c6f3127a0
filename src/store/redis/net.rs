//! Reduces a batch to one net operation for each key: what must be there before, and what is there after. The log keeps
//! every step.
//!
//! A release and a grant of one address in one batch are one operation: it has the expectation of the first step and the
//! state of the last. So the script compares each key once, and a full pool can swap an address within a batch.
//!
//! Neighbours: `commits` calls this before it sends; `scripts` says in which order the arguments come.

use super::keys::{FieldPlace, HashKind};
use super::scripts::ScriptCall;
use crate::core::address::{Address, Cidr};
use crate::core::state::Key;
use crate::core::types::NetworkId;
use crate::store::codec::{self, CodecError, Write};
use crate::store::{CommitError, Seq, ShardId};

/// Operations in one group of configuration: its arguments are passed to one call of Redis.
const CONFIG_OPERATIONS_MAX: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Operation<'a> {
    network: NetworkId,
    key: Key,
    /// Mark that must be there before; none: nothing.
    expect: Option<u64>,
    /// Record that is there after; none: nothing.
    state: Option<&'a [u8]>,
}

/// The operations of a batch, ordered by network and key.
#[derive(Debug)]
pub(super) struct Net<'a> {
    operations: Vec<Operation<'a>>,
    /// Does it write the record of a block?
    blocks: bool,
}

impl<'a> Net<'a> {
    /// Nets the steps of an encoded batch.
    ///
    /// # Errors
    /// [`CommitError::Mismatch`] if a step does not expect what the one before left; [`CommitError::NotApplied`] if it
    /// writes a record inside the block of another record that it writes.
    pub(super) fn of(shard: ShardId, seq: Seq, bytes: &'a [u8]) -> Result<Self, CommitError> {
        let mut steps = Vec::new();
        let unreadable = |error: CodecError| crate::store::fence::invalid(shard, seq, format_args!("it {error}"));
        codec::walk_batch::<CodecError>(bytes, |network, step| {
            steps.push(Operation { network, key: step.key, expect: step.expect, state: step.state });
            Ok(())
        })
        .map_err(unreadable)?;
        // A stable sort keeps the steps of one key in their order.
        steps.sort_by_key(|step| (step.network, step.key));
        let mut operations: Vec<Operation<'a>> = Vec::with_capacity(steps.len());
        for step in steps {
            match operations.last_mut() {
                Some(last) if (last.network, last.key) == (step.network, step.key) => {
                    let found = last.state.map(codec::mark_of).transpose().map_err(unreadable)?;
                    if found != step.expect {
                        let Operation { network, key, expect: expected, .. } = step;
                        return Err(CommitError::Mismatch { shard, seq, network, key, expected, found });
                    }
                    last.state = step.state;
                }
                Some(_) | None => operations.push(step),
            }
        }
        let mut net = Self { operations, blocks: false };
        net.look_for_blocks().map_err(|problem| match problem {
            Ok(error) => unreadable(error),
            Err(address) => crate::store::fence::invalid(
                shard,
                seq,
                format_args!("it puts a record at {address} into a block that it puts as well"),
            ),
        })?;
        Ok(net)
    }

    /// Notes whether there are blocks, and compares the new records with one another. The script compares them with the others.
    fn look_for_blocks(&mut self) -> Result<(), Result<CodecError, Address>> {
        let mut around: Option<(NetworkId, Cidr)> = None;
        for operation in &self.operations {
            let (Key::Address(address), Some(state)) = (operation.key, operation.state) else { continue };
            if let Some((network, block)) = around
                && network == operation.network
                && block.contains(address)
            {
                return Err(Err(address));
            }
            let length = codec::length_of(state).map_err(Ok)?;
            if length < address.family().width() {
                self.blocks = true;
                around = Cidr::new(address, length).map(|block| (operation.network, block));
            }
        }
        Ok(())
    }

    pub(super) fn has_blocks(&self) -> bool {
        self.blocks
    }

    /// About how many words it adds to a call. There are more if most operations are groups of their own.
    pub(super) fn words(&self) -> usize {
        8 + 3 * self.operations.len()
    }

    /// The groups that the script takes: everything in one hash, or the IPv6 records of one network.
    fn groups(&self) -> Vec<Group<'a, '_>> {
        let mut groups = Vec::new();
        let mut rest = &self.operations[..];
        while let Some(first) = rest.first() {
            let place = FieldPlace::of(first.key);
            let same = |operation: &Operation<'_>| {
                let other = FieldPlace::of(operation.key);
                operation.network == first.network && (other.kind, other.low) == (place.kind, place.low)
            };
            let most = if place.kind == HashKind::Config { CONFIG_OPERATIONS_MAX } else { rest.len() };
            let length = rest.iter().take(most).take_while(|operation| same(operation)).count();
            let (group, after) = rest.split_at(length);
            groups.extend(Group::of(group));
            rest = after;
        }
        groups
    }

    /// Appends `size groups group…`: how many arguments the groups have, how many groups there are, and the groups.
    pub(super) fn put(&self, call: &mut ScriptCall) {
        let groups = self.groups();
        call.number(groups.iter().map(Group::words).sum::<usize>() as u64).number(groups.len() as u64);
        let mut text = Vec::new();
        for group in &groups {
            group.put(&mut text, call);
        }
    }
}

/// Operations in one hash, or on the IPv6 records of one network.
struct Group<'a, 'b> {
    operations: &'b [Operation<'a>],
    network: NetworkId,
    place: FieldPlace,
    /// How many expectations are written: none if no operation expects anything, as when addresses are granted.
    expects: usize,
}

impl<'a, 'b> Group<'a, 'b> {
    fn of(operations: &'b [Operation<'a>]) -> Option<Self> {
        let first = operations.first()?;
        let any = operations.iter().any(|operation| operation.expect.is_some());
        let expects = if any { operations.len() } else { 0 };
        Some(Self { operations, network: first.network, place: FieldPlace::of(first.key), expects })
    }

    fn is_bucket(&self) -> bool {
        self.place.kind == HashKind::V4
    }

    fn words(&self) -> usize {
        let fields = if self.is_bucket() { 1 } else { 2 + self.operations.len() };
        1 + fields + self.expects + self.operations.len()
    }

    /// Appends `name fields expect… record…`; `text` is a reused buffer.
    fn put(&self, text: &mut Vec<u8>, call: &mut ScriptCall) {
        call.arg(self.place.name(self.network));
        let sign = if self.expects > 0 { b'=' } else { b'+' };
        if self.is_bucket() {
            // One word for all fields, because each word must be read, made a Lua string, and passed on.
            text.clear();
            text.push(sign);
            text.extend(self.operations.iter().filter_map(|operation| FieldPlace::of(operation.key).field_number()));
            debug_assert_eq!(text.len(), 1 + self.operations.len(), "a byte for each field");
            call.arg(&text);
        } else {
            call.arg([sign]).number(self.operations.len() as u64);
            for operation in self.operations {
                call.arg(FieldPlace::of(operation.key).field());
            }
        }
        for operation in self.operations.iter().take(self.expects) {
            text.clear();
            if let Some(expect) = operation.expect {
                text.put_varint(expect);
            }
            call.arg(&text);
        }
        for operation in self.operations {
            call.arg(operation.state.unwrap_or_default());
        }
    }
}
