//! Names, identities, numbers and times: newtypes whose values are always valid.
//!
//! A text is checked when it is parsed (`FromStr`), so no later layer has to check again what an owner may look like.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use unicode_general_category::{GeneralCategory, get_general_category};

use super::address::reads_as_address;
use crate::limits;

/// Why a text is not allowed. `Display` is a fragment that follows the name of the field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidText {
    /// Empty, or only blanks.
    #[error("must not be empty")]
    Empty,
    /// Longer than allowed.
    #[error("is {length} bytes long, but at most {max} are allowed")]
    TooLong {
        /// Its length in bytes.
        length: usize,
        /// The bound.
        max: usize,
    },
    /// A character that is not allowed.
    #[error("has the character {found:?} at position {at}; {allowed}")]
    Character {
        /// Its position, counted in characters from 0.
        at: usize,
        /// The character.
        found: char,
        /// What is allowed instead.
        allowed: &'static str,
    },
    /// A name that could be taken for an address.
    #[error("reads as an address, range or prefix, so it cannot be a name")]
    ReadsAsAddress,
}

fn check_name(text: &str) -> Result<(), InvalidText> {
    const ALLOWED: &str = "a name is made of A-Z a-z 0-9 . _ - : / and starts with a letter or digit";
    if text.is_empty() {
        return Err(InvalidText::Empty);
    }
    let fits = |(at, byte): (usize, u8)| {
        byte.is_ascii_alphanumeric() || (at > 0 && matches!(byte, b'.' | b'_' | b'-' | b':' | b'/'))
    };
    // Comparing bytes is enough: everything before the first byte that does not fit is ASCII, so `at` is a character
    // position too.
    if let Some(at) = text.bytes().enumerate().position(|place| !fits(place)) {
        let found = text[at..].chars().next().unwrap_or_default();
        return Err(InvalidText::Character { at, found, allowed: ALLOWED });
    }
    if text.len() > limits::NAME_CHARACTERS_MAX {
        return Err(InvalidText::TooLong { length: text.len(), max: limits::NAME_CHARACTERS_MAX });
    }
    // Only a name that could begin with an address is parsed: it starts with a hexadecimal digit and has a separator later on.
    let suspect = text.as_bytes()[0].is_ascii_hexdigit() && text.bytes().any(|byte| matches!(byte, b'.' | b':'));
    if suspect && reads_as_address(text) {
        return Err(InvalidText::ReadsAsAddress);
    }
    Ok(())
}

/// Printable means: no control, format, private-use or unassigned character, and no separator except the space.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return c == ' ' || c.is_ascii_graphic();
    }
    !matches!(
        get_general_category(c),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::PrivateUse
            | GeneralCategory::Unassigned
            | GeneralCategory::Surrogate
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::SpaceSeparator
    )
}

/// Checks free text written by people: it must be printable and at most `max` bytes long. Notes and label values may be empty.
pub fn check_printable(text: &str, max: usize) -> Result<(), InvalidText> {
    const ALLOWED: &str = "only printable characters are allowed, and no separator but the space";
    if text.len() > max {
        return Err(InvalidText::TooLong { length: text.len(), max });
    }
    // Nearly every text is plain ASCII. This loop has no early exit, so that the compiler can check many bytes at once.
    if text.bytes().fold(true, |plain, byte| plain & (b' '..=b'~').contains(&byte)) {
        return Ok(());
    }
    match text.chars().enumerate().find(|&(_, c)| !is_printable(c)) {
        Some((at, found)) => Err(InvalidText::Character { at, found, allowed: ALLOWED }),
        None => Ok(()),
    }
}

fn check_identity(text: &str) -> Result<(), InvalidText> {
    if text.bytes().all(|byte| byte == b' ') {
        return Err(InvalidText::Empty);
    }
    check_printable(text, limits::IDENTITY_BYTES_MAX)
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $check:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(CompactString);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Checks a text and takes it over without another copy.
            ///
            /// # Errors
            /// [`InvalidText`] says what is wrong with the text.
            pub fn new(text: CompactString) -> Result<Self, InvalidText> {
                $check(&text)?;
                Ok(Self(text))
            }
        }

        impl FromStr for $name {
            type Err = InvalidText;
            fn from_str(text: &str) -> Result<Self, InvalidText> {
                Self::new(CompactString::from(text))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

text_type!(
    /// Name of a realm, network, subnet or pool: 1 to 128 characters of `A-Z a-z 0-9 . _ - : /`, starting with a letter or
    /// digit. A name never reads as an address.
    Name, check_name
);
text_type!(
    /// Whoever holds a reservation for as long as it exists: an instance.
    Owner, check_identity
);
text_type!(
    /// The deployment, tenant or namespace that an owner lives in.
    Scope, check_identity
);
text_type!(
    /// Tells the addresses of one owner in one network apart.
    Slot, check_identity
);
text_type!(
    /// The machine or network interface that uses an address at present. It may come and go while the owner stays.
    Claimant, check_identity
);
text_type!(
    /// Tells two owners of the same name apart.
    OwnerUid, check_identity
);

impl Default for Scope {
    fn default() -> Self {
        Self(CompactString::const_new("default"))
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self(CompactString::const_new("0"))
    }
}

impl Slot {
    /// Is this the slot of a request that names none?
    pub fn is_default(&self) -> bool {
        self.0 == "0"
    }
}

impl Name {
    /// The realm of a network that does not name one.
    pub fn default_realm() -> Self {
        Self(CompactString::const_new("default"))
    }
}

/// Labels of a reservation, or tags of a network or subnet: text to text, ordered by key.
pub type Labels = BTreeMap<CompactString, CompactString>;

/// Do the labels match a filter `k` or `k=v`, which was split at its first `=`? A key may itself contain `=`, so other
/// splits of the filter are tried too.
pub fn labels_pass(labels: &Labels, key: &str, value: Option<&str>) -> bool {
    let Some(value) = value else { return labels.contains_key(key) };
    let asks_for = |(there, its_value): (&CompactString, &CompactString)| {
        let asked = format!("{key}={value}");
        asked
            .strip_prefix(there.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.strip_prefix('=') == Some(its_value))
    };
    labels.get(key).is_some_and(|found| found == value)
        || labels.iter().filter(|(there, _)| there.contains('=')).any(asks_for)
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u128);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&uuid::Uuid::from_u128(self.0), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            /// Accepts only the hyphenated lower-case form.
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                let id = uuid::Uuid::try_parse(text)?;
                // A second spelling of an id would be a second name for the same thing.
                if id.hyphenated().to_string() == text { Ok(Self(id.as_u128())) } else { Err(uuid::Uuid::try_parse("x").expect_err("no id")) }
            }
        }
    };
}

id_type!(
    /// Identity of a network: random, not a counter.
    NetworkId
);
id_type!(
    /// Identity of a subnet: random, not a counter.
    SubnetId
);

/// Number of one holding of an address. It rises with every grant in a network and never repeats. Below 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Generation(pub u64);

/// Number of a network's configuration. It rises by one with each change of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Version(pub u64);

/// A point of a shard's own time, in milliseconds. This time advances while some node is able to commit, never goes back,
/// and is independent of the wall clock. Leases and cooldowns are measured in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct ShardTime(pub u64);

impl ShardTime {
    /// This time plus a duration.
    pub fn after_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1_000)))
    }
}

/// A place in the history of a shard: after a batch, or after some of its steps. The digest of the shard's line of batches
/// proves what came before that place, so a line that was cut off can be told from the one that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// Number of the shard.
    pub shard: u16,
    /// Take-over number of the owner that reported this place.
    pub epoch: u64,
    /// Number of the batch; 0 is the beginning.
    pub seq: u64,
    /// After this many steps of the batch; none means after all of them.
    pub steps: Option<u32>,
    /// Digest of the line up to that batch.
    pub digest: u128,
}

/// A point of wall-clock time in milliseconds since 1970, UTC. It is shown to people; no decision depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct WallTime(pub u64);

/// `(scope, owner, slot)`: identifies at most one current reservation in a network.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlotKey {
    /// Scope of the owner.
    pub scope: Scope,
    /// The owner.
    pub owner: Owner,
    /// Which of its addresses.
    pub slot: Slot,
}

impl fmt::Display for SlotKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.owner)?;
        if self.scope != Scope::default() {
            write!(f, " of scope `{}`", self.scope)?;
        }
        if self.slot != Slot::default() {
            write!(f, " (slot `{}`)", self.slot)?;
        }
        Ok(())
    }
}

impl SlotKey {
    /// The text of this holder for a sentence that also names the other one.
    pub fn beside<'a>(&'a self, other: &'a Self) -> Beside<'a> {
        Beside { told: self, other }
    }
}

/// A holder named in one sentence together with another one. What differs between the two is always written out, even a
/// default; a slot that both share is left out.
#[derive(Debug, Clone, Copy)]
pub struct Beside<'a> {
    told: &'a SlotKey,
    other: &'a SlotKey,
}

impl fmt::Display for Beside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { told, other } = self;
        write!(f, "`{}`", told.owner)?;
        if told.scope != other.scope || told.scope != Scope::default() {
            write!(f, " of scope `{}`", told.scope)?;
        }
        if told.slot != other.slot {
            write!(f, " (slot `{}`)", told.slot)?;
        }
        Ok(())
    }
}

/// A 48-bit hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub u64);

impl Mac {
    /// The bit of the first byte that marks the address of a group of interfaces (multicast, including broadcast).
    const GROUP: u64 = 1 << 40;

    /// Why no interface can have this address, as a fragment. Records that are older than this check may still contain such
    /// an address.
    pub fn has_no_interface(self) -> Option<&'static str> {
        if self.0 & Self::GROUP != 0 {
            Some("its first byte is odd, so it is a group address (multicast)")
        } else {
            (self.0 == 0).then_some("it is all zeros")
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.to_be_bytes();
        for (at, byte) in bytes[2..].iter().enumerate() {
            write!(f, "{}{byte:02x}", if at == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl FromStr for Mac {
    type Err = InvalidText;
    /// Accepts six hexadecimal bytes separated by `:` or `-`. Output is lower case with `:`.
    fn from_str(text: &str) -> Result<Self, InvalidText> {
        const ALLOWED: &str = "a MAC is six hexadecimal bytes, for example 52:54:00:12:34:56";
        let wrong =
            |at: usize| InvalidText::Character { at, found: text.chars().nth(at).unwrap_or(' '), allowed: ALLOWED };
        if text.is_empty() {
            return Err(InvalidText::Empty);
        }
        if text.len() != 17 || !text.is_ascii() {
            return Err(InvalidText::Character { at: 0, found: text.chars().next().unwrap_or(' '), allowed: ALLOWED });
        }
        let separator = text.as_bytes()[2];
        let mut value = 0;
        for (at, byte) in text.bytes().enumerate() {
            if at % 3 == 2 {
                if byte != separator || !matches!(byte, b':' | b'-') {
                    return Err(wrong(at));
                }
            } else {
                let digit = char::from(byte).to_digit(16).ok_or_else(|| wrong(at))?;
                value = value << 4 | u64::from(digit);
            }
        }
        Ok(Self(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_reads_as_an_address() {
        for text in [
            "10.0.0.1",
            "::1",
            "10.0.0.0/24",
            "10.0.0.1-10.0.0.9",
            "10.0.0.1+4",
            "10.0.0.5/24",
            "10.0.0.9-10.0.0.1",
            "fe80::/10",
            "a::b",
            "10.0.0.9-10.0.0.300",
            "10.0.0.9-20",
            "10.0.0.0-",
            "10.0.0.0/",
            "10.0.0.0/99",
            "10.0.0.9-fe80::1",
            "fe80::1-fe80::",
        ] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
        for text in ["lan", "10", "eu-1a/web", "a:b", "web.prod_1", "10.0.0", "abcd", "dead-beef", "0"] {
            assert!(text.parse::<Name>().is_ok(), "{text}");
        }
        // What follows the address cannot be part of a range or prefix.
        for text in ["10.0.0.0-lan", "10.0.0.0/lan", "10.0.0.0/24-lan", "fe80::1-web", "10.0.0.1-10.0.0.9-old"] {
            assert!(text.parse::<Name>().is_ok(), "{text}");
        }
    }

    #[test]
    fn a_name_is_bounded_and_plain() {
        assert!("a".repeat(128).parse::<Name>().is_ok());
        assert!("a".repeat(129).parse::<Name>().is_err());
        for text in ["", "-a", ".a", "a b", "ä", "a\n"] {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_owner_is_printable() {
        for text in ["web/0", "Jörg Müller", "名前", "a b", "\u{1F600}"] {
            assert!(text.parse::<Owner>().is_ok(), "{text:?}");
        }
        for text in ["", " ", "a\tb", "a\u{200b}b", "a\u{a0}b", "\u{e000}", "a\u{2028}", "\u{0378}", "a\u{7f}"] {
            assert!(text.parse::<Owner>().is_err(), "{text:?}");
        }
        assert!("x".repeat(257).parse::<Owner>().is_err());
    }

    #[test]
    fn macs_have_one_spelling() {
        assert_eq!("52-54-00-AB-cd-09".parse::<Mac>().unwrap().to_string(), "52:54:00:ab:cd:09");
        for text in ["", "52:54:00:12:34", "52:54:00-12:34:56", "zz:54:00:12:34:56", "525400123456"] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_mac_of_a_group_and_one_of_zeros_have_no_interface() {
        for text in ["01:00:5e:00:00:01", "33:33:00:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"] {
            assert!(text.parse::<Mac>().unwrap().has_no_interface().is_some(), "{text}");
        }
        for text in ["52:54:00:12:34:56", "02:ff:ff:ff:ff:ff", "00:00:00:00:00:01", "fe:01:01:01:01:01"] {
            assert_eq!(text.parse::<Mac>().unwrap().has_no_interface(), None, "{text}");
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = NetworkId(0xabcd);
        assert_eq!(id.to_string().parse::<NetworkId>().unwrap(), id);
        assert!(id.to_string().to_uppercase().parse::<NetworkId>().is_err());
        assert!("0000000000000000000000000000abcd".parse::<NetworkId>().is_err());
    }
}
