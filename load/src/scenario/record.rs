//! The contents of a reservation, for measurements of their cost.

/// The members of every allocation besides network and owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// A suffix of the owners' names, which makes them longer. The names are then not those of the lanes, so a listing
    /// cannot be compared.
    pub owner_end: &'static str,
    /// Members that identify the holder, in a release too: `,"scope":"tenant-00017"`.
    pub holder: &'static str,
    /// Members of an allocation only.
    pub more: &'static str,
}

impl Record {
    /// The typical record that the goals are about: an owner of 24 bytes, a scope of 12, a slot, no labels.
    pub const TYPICAL: Self = Self { owner_end: "-abc", holder: r#","scope":"tenant-00017","slot":"0""#, more: "" };
    /// The typical record with three labels, each with a key of 8 bytes and a value of 16.
    pub const LABELLED: Self = Self {
        more: concat!(
            r#","labels":{"label-01":"value-of-16-byte","#,
            r#""label-02":"value-of-16-byte","label-03":"value-of-16-byte"}"#
        ),
        ..Self::TYPICAL
    };
    /// The typical record with a lease that outlasts the run.
    pub const LEASED: Self = Self { more: r#","ttl_seconds":86400"#, ..Self::TYPICAL };
}
