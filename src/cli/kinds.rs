//! The kinds of the protocol's table of errors. Replaced by the wire table once that is merged.

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ErrorKind {
    ParseError,
    InvalidRequest,
    MethodNotFound,
    InvalidArgument,
    Internal,
    NotFound,
    AlreadyExists,
    AlreadyInUse,
    NotEnoughCapacity,
    OutOfRange,
    Reserved,
    Overlap,
    InUse,
    NotOwner,
    WrongKind,
    Conflict,
    QuotaExceeded,
    Brake,
    CursorLost,
    Unavailable,
    Overloaded,
    NotReady,
    Moved,
    NetworkStopped,
    RateLimited,
    Unauthenticated,
    PermissionDenied,
    LineTooLong,
}

impl ErrorKind {
    /// All kinds, in the order of the protocol's table.
    pub const ALL: [ErrorKind; 28] = [
        Self::ParseError,
        Self::InvalidRequest,
        Self::MethodNotFound,
        Self::InvalidArgument,
        Self::Internal,
        Self::NotFound,
        Self::AlreadyExists,
        Self::AlreadyInUse,
        Self::NotEnoughCapacity,
        Self::OutOfRange,
        Self::Reserved,
        Self::Overlap,
        Self::InUse,
        Self::NotOwner,
        Self::WrongKind,
        Self::Conflict,
        Self::QuotaExceeded,
        Self::Brake,
        Self::CursorLost,
        Self::Unavailable,
        Self::Overloaded,
        Self::NotReady,
        Self::Moved,
        Self::NetworkStopped,
        Self::RateLimited,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::LineTooLong,
    ];
    /// The name in `data.kind`.
    pub fn name(self) -> String {
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(c.to_ascii_lowercase());
        }
        name
    }
    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
