//! Records of IPv6 that lie in another hash than the one in which they are looked for.
//!
//! *Redis runs in a Czech locale, in which letters come before digits. An earlier release compared addresses in its scripts
//! as strings, and so by that locale: records went into hashes in which nobody looks for them. A load reads all hashes, so
//! their holders are known; but a release finds nothing in the right hash, and is refused.* Scripts compare bytes since. The
//! owner moves stray records to the right hash when it loads the shard: before it serves, and after a change of one was refused.
//!
//! While commits go on, a hash may look astray and not be: its range of addresses grew because the next hash was removed.
//! The script decides.
//!
//! Called by `load`.

use std::time::Duration;

use super::failed::{self, Failed};
use super::keys::{FieldPlace, HashKind};
use super::link::Link;
use super::load::Hash;
use super::scripts::{self, LoadedScript, Placed, ScriptCall};
use super::shared::RedisShared;
use crate::core::address::Address;
use crate::core::state::{Key, State};
use crate::core::types::NetworkId;
use crate::store::{ShardId, StoreError, Token};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const HASHES_AT_ONCE: usize = 64;

/// A hash that has records which belong in another one: its network and its LOW.
pub(super) type Astray = (NetworkId, Vec<u8>);

/// The first and the last address in a hash; none if it has no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span(Option<(Address, Address)>);

impl Span {
    /// The span of records, which come in the order of their keys.
    pub(super) fn of(records: &[(Key, State)]) -> Self {
        let address = |(key, _): &(Key, State)| if let Key::Address(address) = key { Some(*address) } else { None };
        Self(records.first().and_then(address).zip(records.last().and_then(address)))
    }

    /// Does the span begin before the LOW of its hash, or reach beyond the LOW of the next one?
    fn reaches_out(self, low: &[u8], next: Option<&[u8]>) -> bool {
        let text = |address| FieldPlace::of(Key::Address(address)).field().into_bytes();
        self.0.is_some_and(|(first, last)| {
            text(first).as_slice() < low || next.is_some_and(|next| text(last).as_slice() >= next)
        })
    }
}

/// The IPv6 hashes that have something astray. Takes hashes in the order of their LOWs, and the span of each.
pub(super) fn among(hashes: &[Hash], spans: &[Span]) -> Vec<Astray> {
    let next = hashes.iter().skip(1).map(Some).chain([None]);
    let astray = hashes.iter().zip(next).zip(spans).filter(|(((id, kind, low), next), span)| {
        let next = next.filter(|next| (next.0, next.1) == (*id, *kind)).map(|next| next.2.as_slice());
        *kind == HashKind::V6 && span.reaches_out(low, next)
    });
    astray.map(|(((id, _, low), _), _)| (*id, low.clone())).collect()
}

/// Moves the stray records of these hashes to where they are looked for.
///
/// # Errors
/// Redis does not answer; another node owns the shard; a record exists twice.
pub(super) async fn place(
    shared: &RedisShared,
    link: &mut Link,
    (shard, token): (ShardId, Token),
    astray: &[Astray],
) -> Result<(), StoreError> {
    let mut placed = 0;
    for some in astray.chunks(HASHES_AT_ONCE) {
        let keys = [shared.keys.guard(), shared.keys.head(shard)];
        let mut call = ScriptCall::new(&shared.shas, LoadedScript::Place, &keys);
        call.arg(scripts::hex(token.0));
        for (network, low) in some {
            call.arg(network.to_string()).arg(low);
        }
        let answer = link.call(&call, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
        let strange = || failed::strange_script(&shared.place);
        placed += match scripts::placed(answer).ok_or_else(strange)? {
            Placed::Done(count) => count,
            Placed::Absent => return Err(shared.absent(shard)),
            Placed::Fenced(current) => return Err(StoreError::Fenced { shard, current }),
            Placed::Twice { key, field } => {
                let text = format!(
                    "Redis at {}: `{key}` has at `{field}` a record that is in another hash, too, where it is looked for; see which \
                     of both is in use, and remove the other one with HDEL",
                    shared.place
                );
                return Err(StoreError::Damaged(text.into()));
            }
        };
    }
    if placed > 0 {
        tracing::error!(
            redis = %shared.place, shard = shard.0, records = placed,
            "records of IPv6 lay where nobody looks for them, and were brought where they belong. A release before this one put them \
             there, as Redis was started in a locale in which letters come before digits (LC_ALL, LC_COLLATE)"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_before_its_hash_or_behind_the_next_one_lies_astray() {
        let hash = |network, kind, low: u128| (NetworkId(network), kind, format!("{low:032x}").into_bytes());
        let hashes = [
            hash(1, HashKind::V6, 10),
            hash(1, HashKind::V6, 20),
            hash(1, HashKind::V6, 30),
            hash(2, HashKind::V6, 5),
            hash(2, HashKind::V4, 0),
        ];
        let span = |first, last| Span(Some((Address::V6(first), Address::V6(last))));
        let whole = [span(10, 19), span(20, 29), span(30, u128::MAX), span(5, 0xab), Span(None)];
        assert_eq!(among(&hashes, &whole), []);
        let astray = [span(9, 19), span(20, 30), span(31, 40), span(4, 0xab), Span(None)];
        let lows = |astray: Vec<Astray>| astray.into_iter().map(|(id, low)| (id.0, low)).collect::<Vec<_>>();
        assert_eq!(lows(among(&hashes, &astray)), [0, 1, 3].map(|at| (hashes[at].0.0, hashes[at].2.clone())));
    }
}
