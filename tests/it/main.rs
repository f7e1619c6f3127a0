//! One binary for the integration tests: each module is a subject.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is how a test fails")]

mod address_plan;
mod tidy;
