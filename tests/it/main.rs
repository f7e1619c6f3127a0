//! The integration tests, one binary: each module is a subject.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is how a test fails")]

mod address_plan;
mod model;
mod sequences;
mod tidy;
