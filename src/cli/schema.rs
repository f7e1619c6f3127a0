//! What the published schema of a method says about the type of a member.

/// What a member holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text: addresses, names, counts.
    Text {
        /// Null clears it.
        or_null: bool,
    },
    /// A number.
    Number,
    /// True or false.
    Flag,
    /// A list.
    List {
        /// Its items are texts.
        of_text: bool,
    },
    /// An object.
    Object,
}

/// The kind of the member at `path` (`owner`, `set.note`) of a method's params; nothing if it is not known.
pub fn kind_of(_method: &str, _path: &str) -> Option<Kind> {
    None
}
