//! The compact form in which values cross from node to node; everything is checked when it is read back.
//!
//! - [`Compact`]: addresses, names, ids and times are texts for people (`wire` has that form) and numbers between nodes.
//!   Their one impl of serde asks the format whether people read it.
//! - [`sharing`]: one page of a list may show the same network and subnet ten thousand times. Inside `sharing` each is
//!   written once, and read back as one shared value.
//! - The other functions are named by `#[serde(with = …)]` on fields that have bounds which their type does not know.
//!
//! The module knows no format; its user, `peer`, has one. Review notes: can arbitrary bytes make a value that the rest of
//! the core does not expect, or take more memory than they are long?

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use compact_str::CompactString;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::address::{Address, Cidr, Range};
use super::refusal::Refusal;
use super::state::{Entry, NetworkConfig, SubnetConfig};
use super::types::{Claimant, Labels, Mac, Name, NetworkId, Owner, OwnerUid, Scope, Slot, SubnetId, WallTime};
use crate::limits;

/// A value that is a text for people and something shorter between nodes.
pub trait Compact: Sized {
    /// What is written in its place.
    type Bits: Serialize + DeserializeOwned;

    /// The bits of this value.
    fn bits(&self) -> Self::Bits;

    /// The value of these bits, or what is wrong with them.
    ///
    /// # Errors
    /// A fragment for the log.
    fn of_bits(bits: Self::Bits) -> Result<Self, String>;
}

macro_rules! compact_texts {
    ($($type:ident)*) => {$(
        impl Compact for $type {
            type Bits = CompactString;
            fn bits(&self) -> CompactString {
                self.as_str().into()
            }
            fn of_bits(bits: CompactString) -> Result<Self, String> {
                $type::new(bits).map_err(|error| error.to_string())
            }
        }
    )*};
}
compact_texts!(Name Owner Scope Slot Claimant OwnerUid);

macro_rules! compact_numbers {
    ($($type:ident: $number:ty, to $max:expr;)*) => {$(
        impl Compact for $type {
            type Bits = $number;
            fn bits(&self) -> $number {
                self.0
            }
            fn of_bits(bits: $number) -> Result<Self, String> {
                if bits <= $max { Ok($type(bits)) } else { Err(format!("{bits} is beyond {}", $max)) }
            }
        }
    )*};
}
compact_numbers! {
    NetworkId: u128, to u128::MAX;
    SubnetId: u128, to u128::MAX;
    WallTime: u64, to u64::MAX;
    Mac: u64, to 0xffff_ffff_ffff_u64;
}

/// An address: its family by the variant, then its number.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum AddressBits {
    /// IPv4.
    V4(u32),
    /// IPv6.
    V6(u128),
}

impl Compact for Address {
    type Bits = AddressBits;
    fn bits(&self) -> AddressBits {
        match *self {
            Address::V4(bits) => AddressBits::V4(bits),
            Address::V6(bits) => AddressBits::V6(bits),
        }
    }
    fn of_bits(bits: AddressBits) -> Result<Self, String> {
        Ok(match bits {
            AddressBits::V4(bits) => Address::V4(bits),
            AddressBits::V6(bits) => Address::V6(bits),
        })
    }
}

impl Compact for Cidr {
    type Bits = (Address, u8);
    fn bits(&self) -> (Address, u8) {
        (self.base(), self.length())
    }
    fn of_bits((base, length): (Address, u8)) -> Result<Self, String> {
        Cidr::new(base, length).ok_or_else(|| format!("{base}/{length} is not a prefix"))
    }
}

impl Compact for Range {
    type Bits = (Address, Address);
    fn bits(&self) -> (Address, Address) {
        (self.first(), self.last())
    }
    fn of_bits((first, last): (Address, Address)) -> Result<Self, String> {
        Range::new(first, last).ok_or_else(|| format!("{first}-{last} is not a range"))
    }
}

/// Writes the compact form.
///
/// # Errors
/// The errors of the format.
pub fn serialize<T: Compact, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.bits().serialize(serializer)
}

/// Reads the compact form and checks it.
///
/// # Errors
/// The errors of the format, or of [`Compact::of_bits`].
pub fn deserialize<'de, T: Compact, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::of_bits(T::Bits::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Reads labels and checks their bounds.
///
/// # Errors
/// If there are more labels than allowed, or longer ones.
pub fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
    let labels = Labels::deserialize(deserializer)?;
    let fits = |(key, value): (&CompactString, &CompactString)| {
        key.len() <= limits::LABEL_KEY_BYTES_MAX && value.len() <= limits::LABEL_VALUE_BYTES_MAX
    };
    if labels.len() > limits::LABEL_ENTRIES_MAX || !labels.iter().all(fits) {
        return Err(D::Error::custom("more or longer labels than are allowed"));
    }
    Ok(labels)
}

/// Reads optional labels, with the bounds of [`labels()`].
///
/// # Errors
/// See [`labels()`].
pub fn some_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Labels>, D::Error> {
    #[derive(Deserialize)]
    struct Within(#[serde(deserialize_with = "labels")] Labels);
    Ok(Option::<Within>::deserialize(deserializer)?.map(|Within(labels)| labels))
}

/// Reads a prefix length that some family has.
///
/// # Errors
/// If it is greater than 128.
pub fn prefix_length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    match u8::deserialize(deserializer)? {
        length @ 0..=128 => Ok(length),
        length => Err(D::Error::custom(format_args!("{length} is not a prefix length"))),
    }
}

/// Reads an optional prefix length.
///
/// # Errors
/// If it is greater than 128.
pub fn some_prefix_length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    #[derive(Deserialize)]
    struct Within(#[serde(deserialize_with = "prefix_length")] u8);
    Ok(Option::<Within>::deserialize(deserializer)?.map(|Within(length)| length))
}

/// Reads what lies in a subnet. Each entry must have a prefix length of its family and begin on a boundary of that length.
///
/// # Errors
/// If an entry does not.
pub fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(Address, Entry)>, D::Error> {
    let entries = Vec::<(Address, Entry)>::deserialize(deserializer)?;
    match entries.iter().find(|(address, entry)| Cidr::new(*address, entry.prefix_length()).is_none()) {
        None => Ok(entries),
        Some((address, _)) => Err(D::Error::custom(format_args!("nothing of that length can lie at {address}"))),
    }
}

/// A refusal together with the items and instances that it is nested in. The form is flat, because the bytes of a nested
/// form could nest deeper than any stack allows.
pub mod refusal {
    use super::{Owner, Refusal, limits};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// The part of a request that a refusal is about.
    #[derive(Serialize, Deserialize)]
    enum RefusalOf {
        Item(usize),
        Instance(Owner),
    }

    /// Writes the parts, outermost first, then the refusal inside.
    ///
    /// # Errors
    /// The errors of the format.
    pub fn serialize<S: Serializer>(refusal: &Refusal, serializer: S) -> Result<S::Ok, S::Error> {
        let (mut places, mut inner) = (Vec::new(), refusal);
        loop {
            match inner {
                Refusal::OfItem { index, refusal } => (places.push(RefusalOf::Item(*index)), inner = refusal),
                Refusal::OfInstance { instance, refusal } => {
                    (places.push(RefusalOf::Instance(instance.clone())), inner = refusal)
                }
                _ => break,
            };
        }
        (places, inner).serialize(serializer)
    }

    /// Reads what [`serialize`] wrote.
    ///
    /// # Errors
    /// The errors of the format, or if the refusal is nested deeper than any real one.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Refusal, D::Error> {
        let (places, inner) = <(Vec<RefusalOf>, Refusal)>::deserialize(deserializer)?;
        if places.len() > limits::REFUSAL_DEPTH_MAX {
            return Err(D::Error::custom("a refusal nested too deep"));
        }
        let wrap = |refusal, place| match place {
            RefusalOf::Item(index) => Refusal::OfItem { index, refusal: Box::new(refusal) },
            RefusalOf::Instance(instance) => Refusal::OfInstance { instance, refusal: Box::new(refusal) },
        };
        Ok(places.into_iter().rev().fold(inner, wrap))
    }
}

/// The configurations that were already written or read inside one [`sharing`].
struct Seen<T> {
    /// Written ones: the place of each by its address in memory. The address stays valid, because the caller holds what is
    /// written.
    written: HashMap<*const T, u32>,
    /// Read ones, in order of their places.
    read: Vec<Arc<T>>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self { written: HashMap::new(), read: Vec::new() }
    }
}

#[derive(Default)]
struct Table {
    networks: Seen<NetworkConfig>,
    subnets: Seen<SubnetConfig>,
}

thread_local! {
    static TABLE: RefCell<Option<Table>> = const { RefCell::new(None) };
}

/// Writes or reads with shared configurations: one that several views show is transferred once. Writer and reader must agree
/// where the sharing begins and ends.
pub fn sharing<T>(act: impl FnOnce() -> T) -> T {
    /// Ends the sharing even if `act` panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            TABLE.set(None);
        }
    }
    TABLE.set(Some(Table::default()));
    let _end = End;
    act()
}

/// One configuration inside a [`sharing`].
#[derive(Serialize, Deserialize)]
enum Shared<T> {
    /// It follows here.
    New(T),
    /// It is the one with this number.
    Known(u32),
}

fn put<T: Serialize, S: Serializer>(
    value: &Arc<T>,
    serializer: S,
    seen: impl FnOnce(&mut Table) -> &mut Seen<T>,
) -> Result<S::Ok, S::Error> {
    let known = TABLE.with_borrow_mut(|table| {
        let written = &mut seen(table.as_mut()?).written;
        let next = written.len() as u32;
        let place = *written.entry(Arc::as_ptr(value)).or_insert(next);
        (place < next).then_some(place)
    });
    known.map_or(Shared::New(&**value), Shared::Known).serialize(serializer)
}

fn take<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    seen: impl FnOnce(&mut Table) -> &mut Seen<T>,
) -> Result<Arc<T>, D::Error> {
    let shared = Shared::deserialize(deserializer)?;
    TABLE.with_borrow_mut(|table| match (shared, table.as_mut()) {
        (Shared::New(value), None) => Ok(Arc::new(value)),
        (Shared::New(value), Some(table)) => {
            let value = Arc::new(value);
            seen(table).read.push(Arc::clone(&value));
            Ok(value)
        }
        (Shared::Known(place), table) => {
            let known = table.and_then(|table| seen(table).read.get(place as usize).map(Arc::clone));
            known.ok_or_else(|| D::Error::custom("a configuration that was not shown before"))
        }
    })
}

/// For `#[serde(with = …)]`: a network's configuration, shared.
pub mod shared_network {
    use super::{Arc, Deserializer, NetworkConfig, Serializer, put, take};

    /// Writes the configuration, or its place if it was written before.
    ///
    /// # Errors
    /// The errors of the format.
    pub fn serialize<S: Serializer>(value: &Arc<NetworkConfig>, serializer: S) -> Result<S::Ok, S::Error> {
        put(value, serializer, |table| &mut table.networks)
    }

    /// Reads the configuration, or returns the one that was read before.
    ///
    /// # Errors
    /// The errors of the format, or if nothing was read for that place.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<NetworkConfig>, D::Error> {
        take(deserializer, |table| &mut table.networks)
    }
}

/// For `#[serde(with = …)]`: a subnet's configuration, shared, or none.
pub mod shared_subnet {
    use super::{Arc, Deserialize, Deserializer, Serialize, Serializer, SubnetConfig, put, take};

    struct Put<'a>(&'a Arc<SubnetConfig>);
    impl Serialize for Put<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            put(self.0, serializer, |table| &mut table.subnets)
        }
    }

    struct Taken(Arc<SubnetConfig>);
    impl<'de> Deserialize<'de> for Taken {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            take(deserializer, |table| &mut table.subnets).map(Taken)
        }
    }

    /// Writes the configuration, or its place if it was written before.
    ///
    /// # Errors
    /// The errors of the format.
    pub fn serialize<S: Serializer>(value: &Option<Arc<SubnetConfig>>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Put).serialize(serializer)
    }

    /// Reads the configuration, or returns the one that was read before.
    ///
    /// # Errors
    /// The errors of the format, or if nothing was read for that place.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<SubnetConfig>>, D::Error> {
        Ok(Option::<Taken>::deserialize(deserializer)?.map(|Taken(subnet)| subnet))
    }
}
