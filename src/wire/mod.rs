//! x
pub(crate) mod object;
pub mod values;
