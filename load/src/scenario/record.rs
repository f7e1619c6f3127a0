//! What a reservation is made of, where that is what is measured.

/// What every allocation says beside network and owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// What the names of owners end with, which makes them longer. Lanes name nobody so, so a listing is not to be compared.
    pub owner_end: &'static str,
    /// Members that tell whose it is, in a release too: `,"scope":"tenant-00017"`.
    pub holder: &'static str,
    /// Members of an allocation only.
    pub more: &'static str,
}

impl Record {
    /// The typical one, of which the goals speak: an owner of 24 bytes, a scope of 12, a slot, no labels.
    pub const TYPICAL: Self = Self { owner_end: "-abc", holder: r#","scope":"tenant-00017","slot":"0""#, more: "" };
    /// The typical one and three labels of 8 and 16 bytes.
    pub const LABELLED: Self = Self {
        more: concat!(
            r#","labels":{"label-01":"value-of-16-byte","#,
            r#""label-02":"value-of-16-byte","label-03":"value-of-16-byte"}"#
        ),
        ..Self::TYPICAL
    };
    /// The typical one and a lease that outlasts the run.
    pub const LEASED: Self = Self { more: r#","ttl_seconds":86400"#, ..Self::TYPICAL };
}
