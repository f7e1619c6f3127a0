//! What is written is read back; what is damaged is refused; what was written yesterday is read today.

use proptest::prelude::*;
use rand::Rng;

use super::samples;
use super::*;
use crate::core::state::{Conflict, Entry, Key, NetworkConfig, Reservation};
use crate::core::types::{NetworkId, ShardTime, WallTime};
use crate::fuzz;
use crate::limits;
use crate::store::{Batch, Digest, Epoch, Head, Seq, Token};

fn encoded(batch: &Batch) -> Vec<u8> {
    in_format(Format::NEWEST, batch)
}

fn in_format(format: Format, batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_batch(batch, format, &mut bytes).unwrap();
    bytes
}

fn sample_head() -> Head {
    Head {
        epoch: Epoch(3),
        token: Token(7),
        parent: Token(5),
        seq: Seq(300),
        digest: Digest(u128::MAX),
        time: crate::core::types::ShardTime(1_000),
        generation: crate::core::types::Generation(1 << 50),
        format: Format::NEWEST,
    }
}

/// A network with a conflict that a failover left.
fn contested_network() -> State {
    let conflict = Conflict {
        address: "10.0.0.9".parse().unwrap(),
        prefix_length: 32,
        holder: samples::typical().holder,
        generation: samples::typical().generation,
        granted_at: WallTime(1_795_262_400_123),
        found_at: WallTime(1_795_262_460_000),
        mac: None,
    };
    let network = samples::sample_config(NetworkId(1));
    State::Config(Arc::new(NetworkConfig { conflicts: vec![conflict], ..network }))
}

/// A network in the middle of a purge.
fn purged_network() -> State {
    let network = samples::sample_config(NetworkId(1));
    State::Config(Arc::new(NetworkConfig { closed: true, purged: true, ..network }))
}

fn state_bytes(state: &State) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_state(state, Format::NEWEST, &mut bytes).unwrap();
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.chunks(40).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n").collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Written once, by the first version of this format. It is never written again; a new format gets a new file.
#[test]
fn bytes_of_format_1_are_read_for_ever() {
    if std::env::var_os("ALLOD_WRITE_GOLDEN").is_some() {
        write_golden_files();
    }
    for (written, batch) in [
        (include_str!("../../../tests/golden/codec-v1/batch.hex"), samples::full_batch()),
        (include_str!("../../../tests/golden/codec-v1/additions.hex"), samples::additions()),
    ] {
        let written = unhex(written);
        assert_eq!(decode_batch(&written).unwrap(), batch);
        let today = in_format(Format::FIRST, &batch);
        assert_eq!(hex(&today), hex(&written), "today's encoder writes other bytes");
    }
    let head = unhex(include_str!("../../../tests/golden/codec-v1/head.hex"));
    assert_eq!(decode_head(&head).unwrap(), Head { format: Format::FIRST, ..sample_head() });
    for (written, network) in [
        (include_str!("../../../tests/golden/codec-v1/conflicts.hex"), contested_network()),
        (include_str!("../../../tests/golden/codec-v1/purged.hex"), purged_network()),
    ] {
        let written = unhex(written);
        assert_eq!(decode_state(&written).unwrap(), network);
        let mut today = Vec::new();
        encode_state(&network, Format::FIRST, &mut today).unwrap();
        assert_eq!(hex(&today), hex(&written), "today's encoder writes other bytes");
    }
}

#[test]
fn a_typical_reservation_is_small_and_readable() {
    let mut bytes = Vec::new();
    encode_state(&State::Entry(Entry::Held(Arc::new(samples::typical()))), Format::NEWEST, &mut bytes).unwrap();
    assert!(bytes.len() <= 60, "{} bytes", bytes.len());
    let readable = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(readable("node-0007/pod-7f9c4d-abc") && readable("tenant-00017"));
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = encoded(&samples::full_batch());
    let newer = Format::NEWEST.number() + 1;
    bytes[0] = newer;
    assert_eq!(decode_batch(&bytes), Err(CodecError::Version(newer)));
    assert_eq!(decode_state(&[9, 1, 0]), Err(CodecError::Version(9)));
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    let mut batch = samples::full_batch();
    batch.generation.0 = 1 << 53;
    assert_eq!(encode_batch(&batch, Format::NEWEST, &mut Vec::new()), Err(CodecError::Range("generation")));
    let mut batch = samples::full_batch();
    // A block of 64 addresses cannot begin in the middle of one.
    if let Some(State::Entry(Entry::Held(held))) = &mut batch.acts[1].steps[0].state {
        Arc::make_mut(held).prefix_length = 26;
    }
    assert_eq!(encode_batch(&batch, Format::NEWEST, &mut Vec::new()), Err(CodecError::Range("state of a key")));
}

#[test]
fn every_cut_is_noticed() {
    let bytes = encoded(&samples::full_batch());
    for length in 0..bytes.len() {
        assert!(decode_batch(&bytes[..length]).is_err(), "cut at {length}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(decode_batch(&longer), Err(CodecError::Trailing(1)));
}

#[test]
fn walking_a_batch_sees_what_decoding_sees() {
    let batch = samples::full_batch();
    let bytes = encoded(&batch);
    let mut seen = Vec::new();
    walk_batch(&bytes, |network, step| {
        let mark = step.state.map(mark_of).transpose()?;
        seen.push((network, step.key, step.expect, mark));
        Ok::<(), CodecError>(())
    })
    .unwrap();
    let steps = batch.acts.iter().flat_map(|act| act.steps.iter().map(|step| (act.network, step)));
    let expected: Vec<_> =
        steps.map(|(network, step)| (network, step.key, step.expect, step.state.as_ref().map(State::mark))).collect();
    assert_eq!(seen, expected);
}

/// The committer closes groups by an estimate that must never fall short of what is written.
fn check_estimate(batch: &Batch) {
    let of = |acts: &[crate::store::Act]| encoded(&Batch { acts: acts.to_vec(), ..batch.clone() }).len();
    for act in &batch.acts {
        let alone = of(std::slice::from_ref(act)) - of(&[]);
        assert!(act.bytes_max() >= alone, "{alone} bytes, estimated {}: {act:?}", act.bytes_max());

        // Records at addresses are counted exactly as they are written, so that as many as possible can move together.
        let mut entries = act.clone();
        entries.steps.retain(|step| matches!(step.key, Key::Address(_)));
        let none = crate::store::Act { steps: Vec::new(), ..act.clone() };
        let length = |act: &crate::store::Act| of(std::slice::from_ref(act));
        let written = length(&entries) - length(&none);
        assert_eq!(entries.bytes_max() - none.bytes_max(), written, "{entries:?}");
    }
}

#[test]
fn the_largest_legal_reservation_is_as_long_as_the_limits_say() {
    let text = |length: usize| "x".repeat(length);
    let label = |at: usize| {
        (format!("{at:0>width$}", width = limits::LABEL_KEY_BYTES_MAX), text(limits::LABEL_VALUE_BYTES_MAX))
    };
    let identity = text(limits::IDENTITY_BYTES_MAX);
    let mut largest = samples::typical();
    largest.holder = crate::core::types::SlotKey {
        scope: identity.parse().unwrap(),
        owner: identity.parse().unwrap(),
        slot: identity.parse().unwrap(),
    };
    largest.generation.0 = (1 << 53) - 1;
    largest.claimant = Some(identity.parse().unwrap());
    largest.lease =
        Some(crate::core::state::Lease { ends: ShardTime(u64::MAX), ttl_seconds: std::num::NonZeroU64::MAX });
    largest.obsolete = Some(Box::new(crate::core::state::Obsolete { since: WallTime(u64::MAX), plan: u64::MAX }));
    largest.granted_by = std::num::NonZeroU64::new(u64::MAX);
    let promise = crate::core::state::Promise {
        plan: u64::MAX,
        owner: identity.parse().unwrap(),
        slot: identity.parse().unwrap(),
    };
    let plan = Some(u64::MAX);
    let revived = Some((u64::MAX, crate::core::state::Obsolete { since: WallTime(u64::MAX), plan: u64::MAX }));
    let planned = crate::core::state::Planned {
        leaving: plan,
        promise: Some(promise.clone()),
        back: Some(promise),
        unlisted: plan,
        settled: plan,
        revived,
        kept: plan,
        was_chosen: plan,
    };
    largest.planned = Some(Box::new(planned));
    largest.details = Some(Box::new(crate::core::state::Details {
        owner_uid: Some(identity.parse().unwrap()),
        labels: (0..limits::LABEL_ENTRIES_MAX).map(label).map(|(key, value)| (key.into(), value.into())).collect(),
        note: text(limits::NOTE_BYTES_MAX).into(),
        hostname: text(limits::HOSTNAME_BYTES_MAX).into(),
        mac: Some(crate::core::types::Mac(1)),
    }));
    let mut bytes = Vec::new();
    encode_state(&State::Entry(Entry::Held(Arc::new(largest.clone()))), Format::NEWEST, &mut bytes).unwrap();
    let max = crate::store::size::RESERVATION_BYTES_MAX;
    assert!(bytes.len() <= max && bytes.len() * 20 >= max * 19, "{} bytes, {max} allowed", bytes.len());
    let mut batch = samples::full_batch();
    for step in batch.acts.iter_mut().flat_map(|act| &mut act.steps) {
        if let (Key::Address(_), Some(State::Entry(Entry::Held(held)))) = (step.key, &mut step.state) {
            let prefix_length = held.prefix_length;
            *held = Arc::new(Reservation { prefix_length, ..largest.clone() });
        }
        if let Some(before) = step.event.as_mut().and_then(|event| event.before.as_mut()) {
            *before = Arc::new(largest.clone());
        }
    }
    check_estimate(&batch);
}

/// There is one way to write a value: whatever can be read is written again with the same bytes, so that digests mean something.
fn check_one_spelling(bytes: &[u8]) {
    if let Ok(batch) = decode_batch(bytes) {
        assert_eq!(hex(&encoded(&batch)), hex(bytes));
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(batch in samples::batch()) {
        check_estimate(&batch);
        let bytes = encoded(&batch);
        prop_assert_eq!(decode_batch(&bytes).unwrap(), batch);
    }

    #[test]
    fn random_bytes_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), version in any::<bool>()) {
        if version && !bytes.is_empty() {
            bytes[0] = Format::NEWEST.number();
        }
        check_one_spelling(&bytes);
        let _ = (decode_state(&bytes), decode_head(&bytes), mark_of(&bytes));
    }

    #[test]
    fn changed_bytes_do_no_harm(batch in samples::batch(), places in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4)) {
        let mut bytes = encoded(&batch);
        for (at, value) in places {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        check_one_spelling(&bytes);
    }
}

/// The fuzzer: mutates its corpus, for a certain time.
#[test]
fn fuzzing_the_decoder_finds_no_panic() {
    let (mut rng, end) = (fuzz::seeded(), fuzz::end(1));
    let mut corpus = vec![encoded(&samples::full_batch())];
    while std::time::Instant::now() < end {
        let mut bytes = corpus[rng.random_range(0..corpus.len())].clone();
        for _ in 0..rng.random_range(1..5) {
            fuzz::mutate(&mut rng, &mut bytes);
        }
        check_one_spelling(&bytes);
        let _ = (decode_state(&bytes), decode_head(&bytes));
        if decode_batch(&bytes).is_ok() && corpus.len() < 1_000 {
            corpus.push(bytes);
        }
    }
    assert!(corpus.len() > 1, "no mutation was accepted: the fuzzer does not reach behind the first check");
}

/// Writes the golden files of a new format, after [`Format::NEWEST`] was raised: `ALLOD_WRITE_GOLDEN=1 cargo test for_ever`,
/// once.
#[expect(clippy::disallowed_methods, reason = "files of a test need not survive a crash")]
fn write_golden_files() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/codec-v{}", Format::NEWEST));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("batch.hex"), hex(&encoded(&samples::full_batch()))).unwrap();
    std::fs::write(dir.join("additions.hex"), hex(&encoded(&samples::additions()))).unwrap();
    let mut head = Vec::new();
    encode_head(&sample_head(), &mut head).unwrap();
    std::fs::write(dir.join("head.hex"), hex(&head)).unwrap();
    std::fs::write(dir.join("conflicts.hex"), hex(&state_bytes(&contested_network()))).unwrap();
    std::fs::write(dir.join("purged.hex"), hex(&state_bytes(&purged_network()))).unwrap();
}
