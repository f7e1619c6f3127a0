//! Answers: what is left out, what is always present, and how errors look.

use super::examples::{GRANTED, RESERVATION};
use crate::wire::answer::write_error;
use crate::wire::envelope::Id;
use crate::wire::errors::{Applied, ErrorKind, Retry, RpcError};
use crate::wire::nouns::*;
use crate::wire::values::{Count, LabelMap};

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

#[test]
fn nouns_leave_out_members_without_a_value() {
    let mut reservation: Reservation = serde_json::from_str(RESERVATION).unwrap();
    reservation.labels = LabelMap::default();
    reservation.obsolete = None;
    reservation.claimant = None;
    reservation.pool_name = None;
    let text = json(&reservation);
    for member in ["\"labels\"", "\"obsolete\"", "\"claimant\"", "\"pool_name\"", "null", "{}"] {
        assert!(!text.contains(member), "{member} in {text}");
    }
}

#[test]
fn lists_and_counts_that_a_result_names_are_there_when_empty() {
    assert_eq!(json(&ReleaseResult::new(vec![])), r#"{"released":[]}"#);
    assert_eq!(json(&ReleaseAllResult::new(vec![], false)), r#"{"released":[],"more":false}"#);
    assert_eq!(json(&SweepResult::new(vec![], vec![], vec![])), r#"{"unbound":[],"released":[],"waiting":[]}"#);
    assert_eq!(json(&AcquireResult::new(vec![])), r#"{"reservations":[]}"#);
    assert_eq!(json(&NetworkListResult::new(vec![])), r#"{"networks":[]}"#);
    assert_eq!(json(&Empty::new()), "{}");
    let mut list = ListResult::new();
    list.reservations = Some(vec![]);
    assert_eq!(json(&list), r#"{"reservations":[]}"#);
}

#[test]
fn a_grant_is_read_as_full_or_brief() {
    assert!(matches!(serde_json::from_str(GRANTED).unwrap(), GrantResult::Full(_)));
    let brief = r#"{"address":"10.0.0.5","prefix_length":32,"generation":7,"created":true}"#;
    let grant: GrantResult = serde_json::from_str(brief).unwrap();
    assert!(matches!(&grant, GrantResult::Brief(grant) if grant.created));
    assert_eq!(json(&grant), brief);
}

#[test]
fn an_old_client_reads_the_answer_of_a_new_server() {
    let newer = RESERVATION.replacen('{', r#"{"invented_later":{"a":[1]},"#, 1);
    assert_eq!(json(&serde_json::from_str::<Reservation>(&newer).unwrap()), RESERVATION);
}

#[test]
fn an_error_carries_its_kind_and_nothing_that_has_no_value() {
    let mut out = Vec::new();
    write_error(&mut out, &Id::number(3), &RpcError::new(ErrorKind::NotFound, "no network `lan`")).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32001,"message":"no network `lan`","data":{"kind":"not_found","retry":"never"}}}"#
    );
    let error = RpcError::new(ErrorKind::Unavailable, "the store is away").with(|data| {
        data.applied = Some(Applied::No);
        data.retry_after_ms = Some(50);
        data.size = Some(Count(1 << 64));
    });
    let text = json(&error);
    assert!(
        text.contains(r#""retry":"later","size":"18446744073709551616","applied":false,"retry_after_ms":50"#),
        "{text}"
    );
    assert_eq!(serde_json::from_str::<RpcError>(&text).unwrap(), error);
    assert_eq!(json(&Applied::Unknown), r#""unknown""#);
    assert!(serde_json::from_str::<Applied>("true").is_err());
    assert_eq!(ErrorKind::Moved.retry(), Retry::Now);
}
