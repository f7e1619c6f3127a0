//! Values that cross come out as they went in, and malformed bytes are refused.

use std::fmt::Debug;
use std::sync::Arc;

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::generate::{self, Seen};
use crate::actors::coordinator::{Done, ListOrder};
use crate::actors::events::Cursor;
use crate::actors::{Applied, Fault, Reply};
use crate::core::outcome::{Outcome, Slice, View};
use crate::core::refusal::Refusal;
use crate::fuzz;
use crate::limits::{PEER_FRAME_BYTES_MAX, REFUSAL_DEPTH_MAX};
use crate::peer::frame::*;

fn framed<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(value, PEER_FRAME_BYTES_MAX, &mut bytes).unwrap();
    bytes
}

fn bodies(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Frames::new(PEER_FRAME_BYTES_MAX);
    frames.input.extend_from_slice(bytes);
    let mut bodies = Vec::new();
    while let Some(body) = frames.cut().unwrap() {
        bodies.push(body.to_vec());
    }
    assert!(frames.input.is_empty());
    bodies
}

fn crosses<T: Serialize + DeserializeOwned + PartialEq + Debug>(rng: &mut SmallRng, seen: &mut Seen) {
    let value: T = generate::any(rng, seen);
    let bytes = framed(&value);
    let [body] = &bodies(&bytes)[..] else { panic!("one frame") };
    let read: T = decode(body).unwrap_or_else(|error| panic!("{error}: {value:?}"));
    assert_eq!(read, value);
    assert_eq!(framed(&read), bytes, "one spelling");
}

#[test]
fn every_variant_of_asks_and_answers_crosses_unchanged() {
    let (mut rng, mut seen) = (fuzz::seeded(), Seen::new());
    let is_whole = |seen: &Seen| seen.values().all(|(of, made)| made.len() == *of);
    for round in 0..300_000 {
        // Some variants are rarely drawn.
        if round >= 30_000 && is_whole(&seen) {
            break;
        }
        crosses::<Ask>(&mut rng, &mut seen);
        crosses::<Answered>(&mut rng, &mut seen);
    }
    for (name, (of, made)) in &seen {
        assert_eq!(made.len(), *of, "not every variant of {name} was made: {made:?}");
    }
    let expected = ["Ask", "Answered", "Command", "Job", "Configure", "Outcome", "Done", "Fault", "Refusal", "Entry"];
    for name in expected {
        assert!(seen.contains_key(name), "{name}");
    }
}

#[test]
fn a_refusal_of_a_member_crosses_and_nests_only_so_deep() {
    let nested = |depth: usize| {
        let inner = Refusal::invalid("slot", "is wrong");
        let wrap = |refusal, index| Refusal::OfItem { index, refusal: Box::new(refusal) };
        let answer = Err(Box::new(Fault::Refused((0..depth).fold(inner, wrap))));
        Answered::Replies(vec![Reply { ticket: 1, answer }])
    };
    for depth in 0..=REFUSAL_DEPTH_MAX {
        assert_eq!(decode::<Answered>(&bodies(&framed(&nested(depth)))[0]), Ok(nested(depth)));
    }
    assert!(decode::<Answered>(&bodies(&framed(&nested(REFUSAL_DEPTH_MAX + 1)))[0]).is_err());
}

fn page(views: usize) -> Vec<View> {
    let (mut rng, mut seen) = (SmallRng::seed_from_u64(7), Seen::new());
    let view: View = loop {
        let view: View = generate::any(&mut rng, &mut seen);
        if view.subnet.is_some() {
            break view;
        }
    };
    vec![view; views]
}

#[test]
fn what_all_records_of_a_page_show_crosses_once() {
    let views = page(1_000);
    let listed = |views: &[View]| {
        let slice = Slice { views: views.to_vec(), count: views.len() as u64, next: None };
        Outcome::Listed { slice, at: None, rest: None }
    };
    let one = framed(&listed(&views[..1])).len();
    let mut other = views.clone();
    // Equal, but another one: the two are not taken for the same.
    other[500].network = Arc::new((*views[0].network).clone());
    let listed = listed(&other);
    let bytes = framed(&listed);
    let read: Outcome = decode(&bodies(&bytes)[0]).unwrap();
    assert_eq!(read, listed);
    let Outcome::Listed { slice: Slice { views: read, .. }, .. } = read else { panic!() };
    assert!(Arc::ptr_eq(&read[0].network, &read[999].network));
    assert!(!Arc::ptr_eq(&read[0].network, &read[500].network));
    assert!(bytes.len() < 1_000 * one, "{} bytes for 1000 of {one}", bytes.len());
}

#[test]
fn what_is_too_long_for_a_frame_is_halved_in_order() {
    let replies = (0..100).map(|ticket| {
        let view = Box::new(page(1).remove(0));
        Reply { ticket, answer: Ok(Outcome::Reservation(view)) }
    });
    let max = 4_000;
    let mut bytes = Vec::new();
    encode_answers(Answered::Replies(replies.collect()), max, &mut bytes);
    let mut tickets = Vec::new();
    let bodies_of_replies = bodies(&bytes);
    assert!(bodies_of_replies.len() > 1 && bodies_of_replies.iter().all(|body| body.len() <= max));
    for body in &bodies_of_replies {
        let Answered::Replies(replies) = decode(body).unwrap() else { panic!() };
        assert!(replies.iter().all(|reply| reply.answer.is_ok()));
        tickets.extend(replies.iter().map(|reply| reply.ticket));
    }
    assert!(tickets.iter().copied().eq(0..100));

    // A page ends earlier, and says where the next one begins.
    let views = page(100);
    let mut bytes = Vec::new();
    let listed = Done::Listed {
        views: views.clone(),
        count: 100,
        next: None,
        order: ListOrder::default(),
        cursor: Cursor::default(),
    };
    encode_answers(Answered::Job { ticket: 9, answer: Ok(listed) }, max, &mut bytes);
    let Answered::Job { ticket: 9, answer } = decode(&bodies(&bytes)[0]).unwrap() else { panic!() };
    let Ok(Done::Listed { views: shorter, next: Some(next), .. }) = answer else { panic!("{answer:?}") };
    assert!(!shorter.is_empty() && shorter.len() < 100 && shorter[..] == views[..shorter.len()]);
    assert_eq!((next.id, next.address), (views[0].network.id, Some(views[0].address)));

    // An answer that cannot be made shorter is replaced by an error.
    let mut bytes = Vec::new();
    encode_answers(
        Answered::Job { ticket: 9, answer: Ok(Done::Realms(vec![("a".parse().unwrap(), 1); 9_999])) },
        max,
        &mut bytes,
    );
    let Answered::Job { ticket: 9, answer: Err(fault) } = decode(&bodies(&bytes)[0]).unwrap() else { panic!() };
    assert!(matches!(*fault, Fault::Unavailable { applied: Applied::Unknown, .. }));
}

#[test]
fn a_frame_is_refused_by_its_length_before_it_is_kept() {
    let mut frames = Frames::new(100);
    frames.input.extend_from_slice(&101u32.to_le_bytes());
    assert_eq!(frames.cut(), Err(FrameError::TooLong { bytes: 101, max: 100 }));
}

#[test]
fn more_requests_than_may_be_under_way_are_no_frame() {
    let many = Answered::NotOwner { tickets: vec![0; crate::limits::PEER_IN_FLIGHT_REQUESTS_MAX + 1], owner: None };
    assert!(decode::<Answered>(&bodies(&framed(&many))[0]).is_err());
}

/// Whatever a peer sends is either read or refused; and whatever is read can be written.
fn check(body: &[u8]) -> bool {
    let (ask, answered) = (decode::<Ask>(body), decode::<Answered>(body));
    if let Ok(ask) = &ask {
        assert_eq!(decode::<Ask>(&bodies(&framed(ask))[0]).as_ref(), Ok(ask));
    }
    if let Ok(answered) = &answered {
        assert_eq!(decode::<Answered>(&bodies(&framed(answered))[0]).as_ref(), Ok(answered));
    }
    ask.is_ok() || answered.is_ok()
}

fn check_stream(bytes: &[u8]) {
    let mut frames = Frames::new(1_000_000);
    for chunk in bytes.chunks(7) {
        frames.input.extend_from_slice(chunk);
        while let Ok(Some(body)) = frames.cut() {
            check(body);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
        check_stream(&bytes);
    }
}

/// The fuzzer: mutates its samples, for a limited time.
#[test]
fn fuzzing_the_frames_of_nodes_finds_no_panic() {
    let (mut rng, mut seen) = (fuzz::seeded(), Seen::new());
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    for _ in 0..200 {
        corpus.push(bodies(&framed(&generate::any::<Ask>(&mut rng, &mut seen))).remove(0));
        corpus.push(bodies(&framed(&generate::any::<Answered>(&mut rng, &mut seen))).remove(0));
    }
    let begun = corpus.len();
    let end = fuzz::end(1);
    while std::time::Instant::now() < end {
        let mut body = corpus[rng.random_range(0..corpus.len())].clone();
        for _ in 0..rng.random_range(1..5) {
            fuzz::mutate(&mut rng, &mut body);
        }
        let mut stream = (body.len() as u32).to_le_bytes().to_vec();
        stream.extend_from_slice(&body);
        fuzz::mutate(&mut rng, &mut stream);
        check_stream(&stream);
        if check(&body) && corpus.len() < 2_000 {
            corpus.push(body);
        }
    }
    assert!(corpus.len() > begun, "no mutation was accepted: the fuzzer does not reach behind the first check");
}
