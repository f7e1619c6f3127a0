//! The values of the protocol: how each is written, what is refused, and its JSON Schema.
//!
//! The core's newtypes get their serde implementations here, because the core knows nothing of JSON. Error texts are
//! fragments that follow the name of the member: "`owner` has the character '\t' at position 3; …". `explain` puts the two
//! together.

pub mod labels;
pub mod list;
pub mod number;
pub mod reference;
pub mod text;

pub use labels::{LabelFilter, LabelMap, LabelPatch};
pub use list::BoundedList;
pub use number::{
    CooldownSeconds, Count, DeadlineMs, Number, PageLimit, PrefixLength, ProbationSeconds, RenewTtl, Serial, Share,
    TtlSeconds, WaitSeconds,
};
pub use reference::{MacChoice, NetworkRef, PoolRef, SubnetRef};
pub use text::{Cursor, Hostname, MacPrefix, NodeName, Note, OwnerPrefix, Reason, Seen, Text, Time, Word};
