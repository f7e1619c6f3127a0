//! The names of keys and fields, as an operator with `redis-cli` sees them.
//!
//! ```text
//! {PREFIX}:register             hash    what the register is: register, format, shards, created; moved, if it is moved
//! {PREFIX}:nodes                hash    the nodes that were seen, by name
//! {PREFIX}:S:head               hash    where shard S stands: epoch, token, parent, seq, digest, time, generation, …; and
//!                                       how it came there: takes, the last take-overs, `EPOCH PARENT SEQ,…`
//! {PREFIX}:S:log                stream  its batches, SEQ-0: digest, batch, at
//! {PREFIX}:S:networks           hash    its networks, and which of `c`, `4` (i4), `6` (i6), `k` each has: `c46`
//! {PREFIX}:S:c:NETWORK          hash    configuration: `config`, `subnet:ID`; or the record of a `deployment`
//! {PREFIX}:S:4:NETWORK:LOW      hash    records of 64 IPv4 addresses from LOW (8 hex digits) on, by their last 6 bits
//! {PREFIX}:S:6:NETWORK:LOW      hash    records of IPv6 addresses from LOW (32 hex digits) up to the next LOW, by address
//! {PREFIX}:S:i4:NETWORK         zset    the LOWs that there are, in order
//! {PREFIX}:S:i6:NETWORK         zset    the same of IPv6
//! {PREFIX}:S:k:NETWORK          hash    how many blocks of each length are held, `4/26`; only where there are any
//! {PREFIX}:S:spare              stream  there only while a log that goes further than its head is copied without that
//! {PREFIX}:probe                varies  there only while the script `probe` tries what the others do
//! {PREFIX}:guard                none    never there: a Redis cluster refuses whoever names it while the slot is moved
//! ```
//!
//! The braces are a hash tag: all keys of a register lie in one slot of a Redis cluster, on one server, because one script
//! changes several shards together. `HGET {PREFIX}:S:4:NETWORK:0a000040 5` shows who holds 10.0.0.69 (0a000045); for IPv6,
//! `ZREVRANGEBYLEX {PREFIX}:S:i6:NETWORK [ADDRESS - LIMIT 0 1` names the hash.
//!
//! **Every key is vouched for** by another, up to the head: the register's key tells the number of heads; a head tells
//! whether there are a log (seq) and networks (networks); `networks` tells which indexes a network has; and an index tells
//! which hashes. So a lost key is never taken for one that never existed.

use crate::core::address::Address;
use crate::core::state::Key;
use crate::core::types::{NetworkId, SubnetId};
use crate::store::{ShardId, StoreError};

/// Version of the keys. Any other version is refused.
pub(super) const FORMAT: &str = "1";
/// How many IPv4 addresses a bucket covers.
pub(super) const BUCKET_ADDRESSES: u32 = 64;

#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    /// Only letters, digits and `-_.:/`, so that the prefix is exactly the hash tag, and a pattern finds the keys.
    pub(super) fn new(prefix: &str) -> Result<Self, StoreError> {
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
        if prefix.is_empty() || prefix.len() > 64 || !prefix.chars().all(good) {
            let text = format!("the prefix `{prefix}` is not 1 to 64 letters, digits and `-_.:/`; set `store.prefix`");
            return Err(StoreError::Invalid(text.into()));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn register(&self) -> String {
        self.named("register")
    }

    pub(super) fn nodes(&self) -> String {
        self.named("nodes")
    }

    pub(super) fn probe(&self) -> String {
        self.named("probe")
    }

    /// The key that never exists.
    pub(super) fn guard(&self) -> String {
        self.named("guard")
    }

    /// All keys of all shards, as a pattern for SCAN: the prefix has no pattern characters, and keys that belong to no shard
    /// begin with a letter.
    pub(super) fn of_shards(&self) -> String {
        self.named("[0-9]*")
    }

    fn named(&self, name: &str) -> String {
        format!("{{{}}}:{name}", self.prefix)
    }

    fn of(&self, shard: ShardId, rest: &str) -> String {
        format!("{{{}}}:{}:{rest}", self.prefix, shard.0)
    }

    pub(super) fn head(&self, shard: ShardId) -> String {
        self.of(shard, "head")
    }

    pub(super) fn log(&self, shard: ShardId) -> String {
        self.of(shard, "log")
    }

    /// A log while it is being rewritten.
    pub(super) fn spare(&self, shard: ShardId) -> String {
        self.of(shard, "spare")
    }

    pub(super) fn networks(&self, shard: ShardId) -> String {
        self.of(shard, "networks")
    }

    pub(super) fn config(&self, shard: ShardId, network: NetworkId) -> String {
        self.of(shard, &format!("c:{network}"))
    }

    pub(super) fn index(&self, shard: ShardId, kind: HashKind, network: NetworkId) -> String {
        self.of(shard, &format!("i{}:{network}", kind.letter()))
    }

    pub(super) fn records(&self, shard: ShardId, kind: HashKind, network: NetworkId, low: &str) -> String {
        self.of(shard, &format!("{}:{network}:{low}", kind.letter()))
    }
}

/// Can all keys begin with this prefix?
///
/// # Errors
/// What is allowed.
pub fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    Keys::new(prefix).map(drop)
}

/// The commands for `redis-cli` that show the record of a single address or block, given by its first address. For IPv6 the
/// first command finds the value of `LOW` in the second one.
///
/// # Errors
/// No key can begin with this prefix.
pub fn commands_for(prefix: &str, shard: u16, network: NetworkId, address: Address) -> Result<Vec<String>, StoreError> {
    let (keys, shard, place) = (Keys::new(prefix)?, ShardId(shard), FieldPlace::of(Key::Address(address)));
    let field = place.field();
    let get = |low: &str| format!("HGET {} {field}", keys.records(shard, place.kind, network, low));
    Ok(match place.kind {
        HashKind::Config | HashKind::V4 => vec![get(&place.low_text())],
        HashKind::V6 => {
            let index = keys.index(shard, place.kind, network);
            vec![format!("ZREVRANGEBYLEX {index} [{field} - LIMIT 0 1"), get("LOW")]
        }
    })
}

/// What a hash holds, by the letter in its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HashKind {
    Config,
    V4,
    V6,
}

impl HashKind {
    pub(super) const fn letter(self) -> &'static str {
        match self {
            HashKind::Config => "c",
            HashKind::V4 => "4",
            HashKind::V6 => "6",
        }
    }

    pub(super) fn from_letter(letter: &[u8]) -> Option<Self> {
        [HashKind::Config, HashKind::V4, HashKind::V6].into_iter().find(|kind| kind.letter().as_bytes() == letter)
    }
}

/// Where the record of a key lies: the kind of hash, the first address of its bucket, and the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldPlace {
    pub(super) kind: HashKind,
    /// For IPv4: the first address of the bucket.
    pub(super) low: Option<u32>,
    key: Key,
}

impl FieldPlace {
    pub(super) fn of(key: Key) -> Self {
        let (kind, low) = match key {
            Key::Config | Key::Subnet(_) | Key::Deployment => (HashKind::Config, None),
            Key::Address(Address::V4(bits)) => (HashKind::V4, Some(bits & !(BUCKET_ADDRESSES - 1))),
            Key::Address(Address::V6(_)) => (HashKind::V6, None),
        };
        Self { kind, low, key }
    }

    pub(super) fn field(self) -> String {
        match self.key {
            Key::Config => "config".to_owned(),
            Key::Subnet(id) => format!("subnet:{id}"),
            Key::Deployment => "deployment".to_owned(),
            Key::Address(Address::V4(bits)) => (bits % BUCKET_ADDRESSES).to_string(),
            Key::Address(Address::V6(bits)) => format!("{bits:032x}"),
        }
    }

    /// The same for IPv4, where it is a number below 64: a full commit has hundreds of them.
    pub(super) fn field_number(self) -> Option<u8> {
        match self.key {
            Key::Address(Address::V4(bits)) => u8::try_from(bits % BUCKET_ADDRESSES).ok(),
            _ => None,
        }
    }

    /// How a commit names the hash, after `{PREFIX}:S:`; for IPv6 without the LOW, which the script finds.
    pub(super) fn name(self, network: NetworkId) -> String {
        let kind = self.kind.letter();
        self.low.map_or_else(|| format!("{kind}:{network}"), |low| format!("{kind}:{network}:{low:08x}"))
    }

    pub(super) fn low_text(self) -> String {
        self.low.map_or_else(String::new, |low| format!("{low:08x}"))
    }
}

/// A hash, parsed from its name: once for all its fields, since a shard has as many fields as addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct HashName {
    kind: HashKind,
    /// For IPv4: the first address of the bucket; none if no bucket has such a name.
    low: Option<u32>,
}

impl HashName {
    pub(super) fn of(kind: HashKind, low: &[u8]) -> Self {
        let low = (kind == HashKind::V4).then(|| hexadecimal(low, 8)).flatten();
        let low = low.and_then(|low| u32::try_from(low).ok()).filter(|low| low.is_multiple_of(BUCKET_ADDRESSES));
        Self { kind, low }
    }

    /// The key that a field stands for; none if no field has such a name. Each thing has one name: another spelling of it is
    /// no field of ours.
    pub(super) fn key_of(self, field: &[u8]) -> Option<Key> {
        match self.kind {
            HashKind::Config => config_key_of(field),
            HashKind::V4 => {
                let bits = match *field {
                    [digit @ b'0'..=b'9'] => u32::from(digit - b'0'),
                    [ten @ b'1'..=b'9', digit @ b'0'..=b'9'] => u32::from(ten - b'0') * 10 + u32::from(digit - b'0'),
                    _ => return None,
                };
                Some(Key::Address(Address::V4(self.low? | Some(bits).filter(|&bits| bits < BUCKET_ADDRESSES)?)))
            }
            HashKind::V6 => hexadecimal(field, 32).map(|bits| Key::Address(Address::V6(bits))),
        }
    }
}

fn config_key_of(field: &[u8]) -> Option<Key> {
    let field = std::str::from_utf8(field).ok()?;
    Some(match field {
        "config" => Key::Config,
        "deployment" => Key::Deployment,
        _ => Key::Subnet(field.strip_prefix("subnet:")?.parse::<SubnetId>().ok()?),
    })
}

/// The number in a text of exactly this many hexadecimal digits, with small letters.
fn hexadecimal(text: &[u8], digits: usize) -> Option<u128> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let number = |number: u128, &byte: &u8| Some(number << 4 | u128::from(digit(byte)?));
    (text.len() == digits).then(|| text.iter().try_fold(0, number)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_as_what_it_was_written_for() {
        let keys = [
            Key::Config,
            Key::Subnet(SubnetId(7)),
            Key::Deployment,
            Key::Address(Address::V4(0)),
            Key::Address(Address::V4(0x0a00_0045)),
            Key::Address(Address::V4(u32::MAX)),
            Key::Address(Address::V6(0)),
            Key::Address(Address::V6(u128::MAX)),
        ];
        for key in keys {
            let place = FieldPlace::of(key);
            let hash = HashName::of(place.kind, place.low_text().as_bytes());
            assert_eq!(hash.key_of(place.field().as_bytes()), Some(key));
        }
    }

    /// `commit.lua` takes it from there (`NETWORK_END`).
    #[test]
    fn a_name_has_its_network_from_the_third_byte_to_the_38th() {
        let network = NetworkId(u128::MAX >> 3);
        for key in [Key::Config, Key::Address(Address::V4(0x0a00_0045)), Key::Address(Address::V6(5))] {
            let name = FieldPlace::of(key).name(network);
            assert_eq!((&name[2..38], name.as_bytes()[1]), (&*network.to_string(), b':'), "{name}");
        }
        assert!(FieldPlace::of(Key::Address(Address::V4(0x0a00_0045))).name(network).ends_with(":0a000040"));
    }

    #[test]
    fn who_types_by_hand_is_told_key_and_field() {
        let commands = |address: &str| commands_for("allod", 3, NetworkId(1), address.parse().unwrap()).unwrap();
        let network = "00000000-0000-0000-0000-000000000001";
        assert_eq!(commands("10.0.0.69"), [format!("HGET {{allod}}:3:4:{network}:0a000040 5")]);
        let field = "20010db8000000000000000000000005";
        assert_eq!(
            commands("2001:db8::5"),
            [
                format!("ZREVRANGEBYLEX {{allod}}:3:i6:{network} [{field} - LIMIT 0 1"),
                format!("HGET {{allod}}:3:6:{network}:LOW {field}"),
            ]
        );
        assert!(commands_for("a b", 3, NetworkId(1), Address::V4(0)).is_err());
    }

    #[test]
    fn another_spelling_of_a_field_is_none_of_ours() {
        for (kind, low, field) in [
            (HashKind::V4, "0a000040", "64"),
            (HashKind::V4, "0a000040", "05"),
            (HashKind::V4, "0a000041", "1"),
            (HashKind::V4, "a000040", "1"),
            (HashKind::V4, "0A000040", "1"),
            (HashKind::V4, "0a000040", ""),
            (HashKind::V4, "0a000040", "+1"),
            (HashKind::V4, "0a000040", "001"),
            (HashKind::V4, "00a000040", "1"),
            (HashKind::V6, "", "0A000000000000000000000000000000"),
            (HashKind::V6, "", "1"),
            (HashKind::V6, "", "+a000000000000000000000000000000"),
            (HashKind::V6, "", "00a000000000000000000000000000000"),
            (HashKind::Config, "", "subnet:x"),
            (HashKind::Config, "", "other"),
        ] {
            assert_eq!(HashName::of(kind, low.as_bytes()).key_of(field.as_bytes()), None, "{low} {field}");
        }
    }

    #[test]
    fn all_keys_of_a_register_share_one_hash_tag_and_a_prefix_opens_none() {
        let keys = Keys::new("allod").unwrap();
        assert_eq!(keys.head(ShardId(3)), "{allod}:3:head");
        for key in [keys.register(), keys.nodes(), keys.probe(), keys.guard(), keys.log(ShardId(1)), keys.of_shards()] {
            assert!(key.starts_with("{allod}:"), "{key}");
        }
        assert_eq!(
            keys.records(ShardId(3), HashKind::V4, NetworkId(1), "0a000040"),
            "{allod}:3:4:00000000-0000-0000-0000-000000000001:0a000040"
        );
        for wrong in ["", "a{b}", "a b", "ä"] {
            assert!(Keys::new(wrong).is_err(), "{wrong}");
        }
    }
}
