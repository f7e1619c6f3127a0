//! The integration tests, one binary.

mod model;
