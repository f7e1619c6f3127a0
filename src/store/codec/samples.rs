//! Records with every field in use, and random ones, for the tests of the codec.

use std::num::NonZeroU64;
use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::core::address::{Address, Cidr, Range};
use crate::core::deployment::{Deployment, SettledInstance, Stage};
use crate::core::state::*;
use crate::core::types::*;
use crate::store::*;

/// The reservation for which the size is promised: owner of 24 bytes, scope of 12, slot `0`.
pub(crate) fn typical() -> Reservation {
    let holder = SlotKey {
        scope: "tenant-00017".parse().unwrap(),
        owner: "node-0007/pod-7f9c4d-abc".parse().unwrap(),
        slot: Slot::default(),
    };
    Reservation::plain(holder, Generation(1_795_262_400 << 20), 32, WallTime(1_795_262_400_123))
}

fn sample_labels() -> Labels {
    [("env".into(), "prod".into()), ("tier".into(), "".into())].into()
}

fn at(text: &str) -> Address {
    text.parse().unwrap()
}

/// A network with every field set.
pub(crate) fn sample_config(network: NetworkId) -> NetworkConfig {
    NetworkConfig {
        id: network,
        name: "lan".parse().unwrap(),
        realm: Name::default_realm(),
        kind: NetworkKind::Vip,
        l2: L2 { mode: Some("bridged".into()), link: Some("br0".into()), mac_prefix: Some("aa:00:00".into()) },
        policy: Policy::Oldest,
        cooldown_seconds: 300,
        cooldown_yields: true,
        static_only: false,
        protected: true,
        limits: Limits { per_owner: Some(4), per_scope: None },
        tags: sample_labels(),
        description: "Büro, 2. Stock".into(),
        version: Version(7),
        created_at: WallTime(1_795_262_400_000),
        closed: false,
        purged: false,
        conflicts: Vec::new(),
    }
}

/// A subnet with every field set.
pub(crate) fn sample_subnet() -> SubnetConfig {
    SubnetConfig {
        id: SubnetId(42),
        name: Some("a".parse().unwrap()),
        cidr: "10.0.0.0/24".parse().unwrap(),
        gateway: Some(at("10.0.0.1")),
        dhcp: true,
        dns: Dns { servers: vec![at("9.9.9.9"), at("2620:fe::fe")], search: vec!["example.org".into()] },
        zones: vec!["eu-1a".into()],
        tags: sample_labels(),
        draining: false,
        pools: vec![PoolConfig {
            range: "10.0.0.10-10.0.0.99".parse().unwrap(),
            name: Some("web".parse().unwrap()),
            kind: PoolKind::Static,
            draining: true,
            since: Generation(9),
        }],
        reserved: vec![ReservedRange {
            range: "10.0.0.200+3".parse().unwrap(),
            note: "printers".into(),
            reserved_for: Some(ReservedFor {
                scope: Scope::default(),
                owner: "office".parse().unwrap(),
                slot: Some("1".parse().unwrap()),
            }),
        }],
        past_pools: vec![PastPool {
            range: "10.0.0.10-10.0.0.50".parse().unwrap(),
            name: None,
            since: Generation(1),
            until: Generation(9),
        }],
        position: 3,
        version: Version(7),
    }
}

/// A reservation with every field set.
fn sample_full() -> Reservation {
    Reservation {
        holder: SlotKey { slot: "eth1".parse().unwrap(), ..typical().holder },
        kind: ReservationKind::Static,
        lease: NonZeroU64::new(60).map(|ttl_seconds| Lease { ends: ShardTime(99_000), ttl_seconds }),
        transient: true,
        release_with_claimant: true,
        claimant: Some("vm-7".parse().unwrap()),
        obsolete: Some(Box::new(Obsolete { since: WallTime(1_795_262_400_456), plan: 12 })),
        details: Some(Box::new(Details {
            owner_uid: Some("c0ffee".parse().unwrap()),
            labels: sample_labels(),
            note: "a note".into(),
            hostname: "web-7".into(),
            mac: Some("52:54:00:12:34:56".parse().unwrap()),
        })),
        ..typical()
    }
}

/// A batch that uses every field of the first release. See [`additions`] for the others, and for each flag alone.
pub(crate) fn full_batch() -> Batch {
    let network = NetworkId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
    let full = sample_full();
    let step = |key, expect, state, event| Step { key, expect, state, event };
    let entry = |entry| Some(State::Entry(entry));
    let event = |kind, before: Option<&Reservation>| Some(Event { kind, before: before.cloned().map(Arc::new) });
    let released = Released {
        prefix_length: 32,
        last: full.holder.clone(),
        owner_uid: None,
        generation: full.generation,
        released_at: ShardTime(88_000),
    };
    let declined = Declined {
        prefix_length: 64,
        by: typical().holder,
        generation: Generation(5),
        until: ShardTime(77_000),
        seen: "52:54:00:00:00:01 answers".into(),
        promise: None,
    };
    let generation = Some(full.generation.0);
    let acts = vec![
        Act {
            network,
            wall: WallTime(1_795_262_400_500),
            by: "token:admin".into(),
            reason: Some("TICKET-1".into()),
            transaction: Some(TransactionId(0xfeed)),
            steps: vec![
                step(
                    Key::Config,
                    Some(6),
                    Some(State::Config(Arc::new(sample_config(network)))),
                    event(EventKind::NetworkChanged, None),
                ),
                step(Key::Subnet(SubnetId(42)), None, Some(State::Subnet(Arc::new(sample_subnet()))), None),
                step(Key::Subnet(SubnetId(43)), Some(2), None, None),
            ],
        },
        Act {
            network,
            wall: WallTime(1_795_262_400_400),
            by: "token:admin".into(),
            reason: None,
            transaction: None,
            steps: vec![
                step(
                    Key::Address(at("10.0.0.17")),
                    None,
                    entry(Entry::Held(Arc::new(full.clone()))),
                    event(EventKind::Granted, None),
                ),
                step(
                    Key::Address(at("10.0.0.17")),
                    generation,
                    entry(Entry::Released(Arc::new(released))),
                    event(EventKind::Released, Some(&full)),
                ),
                step(
                    Key::Address(at("2001:db8::")),
                    Some(5),
                    entry(Entry::Declined(Arc::new(declined))),
                    event(EventKind::Declined, None),
                ),
            ],
        },
        Act {
            network: NetworkId(9),
            wall: WallTime(1_795_262_400_501),
            by: "lease".into(),
            reason: None,
            transaction: None,
            steps: vec![step(
                Key::Address(at("10.0.0.17")),
                generation,
                None,
                event(EventKind::Expired, Some(&typical())),
            )],
        },
    ];
    Batch {
        shard: ShardId(300),
        epoch: Epoch(4),
        token: Token(0x8000_0000_0000_0000_0000_0000_0000_0001),
        seq: Seq(1_000_000),
        time: ShardTime(123_456_789),
        generation: full.generation,
        acts,
    }
}

/// A reservation with one thing that a typical one does not have, for each such thing.
fn each_alone() -> Vec<Reservation> {
    fn promise(plan: u64, owner: &str, slot: &str) -> Option<Promise> {
        Some(Promise { plan, owner: owner.parse().unwrap(), slot: slot.parse().unwrap() })
    }
    let details = |change: fn(&mut Details)| {
        let mut details = Box::<Details>::default();
        change(&mut details);
        Reservation { details: Some(details), ..typical() }
    };
    let planned = |change: fn(&mut Planned)| {
        let mut planned = Box::<Planned>::default();
        change(&mut planned);
        Reservation { planned: Some(planned), ..typical() }
    };
    let full = sample_full();
    vec![
        Reservation { kind: full.kind, ..typical() },
        Reservation { lease: full.lease, ..typical() },
        Reservation { transient: true, ..typical() },
        Reservation { release_with_claimant: true, ..typical() },
        Reservation { claimant: full.claimant, ..typical() },
        Reservation { obsolete: full.obsolete, ..typical() },
        Reservation { granted_by: NonZeroU64::new(31), ..typical() },
        details(|details| details.owner_uid = Some("c0ffee".parse().unwrap())),
        details(|details| details.labels = sample_labels()),
        details(|details| details.note = "a note".into()),
        details(|details| details.hostname = "web-7".into()),
        details(|details| details.mac = Some("52:54:00:12:34:56".parse().unwrap())),
        planned(|planned| planned.leaving = Some(32)),
        planned(|planned| planned.promise = promise(33, "vm-33", "eth1")),
        planned(|planned| planned.unlisted = Some(34)),
        planned(|planned| planned.settled = Some(35)),
        planned(|planned| {
            planned.revived = Some((36, Obsolete { since: WallTime(1_795_262_400_600), plan: 30 }));
        }),
        planned(|planned| planned.back = promise(37, "vm-37", "0")),
        planned(|planned| planned.kept = Some(38)),
        planned(|planned| planned.was_chosen = Some(39)),
    ]
}

/// What came later within the first format, and each flag of a reservation alone: that two of them changed places does not show
/// where both are set.
pub(crate) fn additions() -> Batch {
    let network = NetworkId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
    let step = |key, state| Step { key, expect: None, state: Some(state), event: None };
    let entry = |number: u32, entry| step(Key::Address(Address::V4(0x0a00_0100 + number)), State::Entry(entry));
    let alone = (0..).zip(each_alone()).map(|(number, reservation)| entry(number, Entry::Held(Arc::new(reservation))));
    let released = Released {
        prefix_length: 32,
        last: typical().holder,
        owner_uid: Some("c0ffee".parse().unwrap()),
        generation: Generation(40),
        released_at: ShardTime(88_000),
    };
    let declined = Declined {
        prefix_length: 32,
        by: typical().holder,
        generation: Generation(41),
        until: ShardTime(77_000),
        seen: "52:54:00:00:00:01 answers".into(),
        promise: Some(Box::new(Promise { plan: 42, owner: "vm-42".parse().unwrap(), slot: "eth2".parse().unwrap() })),
    };
    let left = [entry(100, Entry::Released(Arc::new(released))), entry(101, Entry::Declined(Arc::new(declined)))];
    let settled = |instance, reverted| SettledInstance { instance, reverted };
    let deployments = [
        (Stage::Open, Some(WallTime(1_795_262_400_700)), vec![settled(5, false), settled(6, true)]),
        (Stage::Committed, None, Vec::new()),
        (Stage::Reverted, None, vec![settled(7, true)]),
    ];
    let deployments = (43..).zip(deployments).map(|(plan, (stage, uncommitted_since, settled))| {
        let name = "tenant-00017".parse().unwrap();
        let deployment =
            Deployment { name, plan, wishes: 0xabcd, stage, uncommitted_since, settled, version: Version(plan + 10) };
        step(Key::Deployment, State::Deployment(Arc::new(deployment)))
    });
    let conflict = |number: u64, mac: Option<&str>| Conflict {
        address: at("10.0.0.9"),
        prefix_length: 32,
        holder: typical().holder,
        generation: Generation(number),
        granted_at: WallTime(1_795_262_400_123),
        found_at: WallTime(1_795_262_460_000),
        mac: mac.map(|mac| mac.parse().unwrap()),
    };
    let conflicts = vec![conflict(50, None), conflict(51, Some("52:54:00:12:34:56"))];
    let kinds = [(NetworkKind::Manual, Policy::Lowest, conflicts), (NetworkKind::Dynamic, Policy::Random, Vec::new())];
    let configs = kinds.into_iter().map(|(kind, policy, conflicts)| {
        let config = NetworkConfig { kind, policy, conflicts, ..sample_config(network) };
        step(Key::Config, State::Config(Arc::new(config)))
    });
    let events = [
        EventKind::Granted,
        EventKind::Renewed,
        EventKind::Bound,
        EventKind::Unbound,
        EventKind::Updated,
        EventKind::Transferred,
        EventKind::Obsolete,
        EventKind::Released,
        EventKind::Expired,
        EventKind::Swept,
        EventKind::Reverted,
        EventKind::Declined,
        EventKind::Healed,
        EventKind::Conflict,
        EventKind::NetworkCreated,
        EventKind::NetworkChanged,
        EventKind::NetworkDeleted,
        EventKind::NetworkRestored,
    ];
    let events = (60..).zip(events).map(|(expect, kind)| {
        let event = Some(Event { kind, before: None });
        Step { key: Key::Address(at("10.0.0.17")), expect: Some(expect), state: None, event }
    });
    let act = |steps| Act {
        network,
        wall: WallTime(1_795_262_400_500),
        by: "token:admin".into(),
        reason: None,
        transaction: None,
        steps,
    };
    let acts = vec![
        act(alone.chain(left).collect()),
        act(deployments.collect()),
        act(configs.collect()),
        act(events.collect()),
    ];
    Batch { acts, ..full_batch() }
}

fn identity() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9é名][ -~]{0,30}"
}

fn holder() -> impl Strategy<Value = SlotKey> {
    (identity(), identity(), prop_oneof![Just("0".to_owned()), identity()]).prop_map(|(scope, owner, slot)| SlotKey {
        scope: scope.parse().unwrap(),
        owner: owner.parse().unwrap(),
        slot: slot.parse().unwrap(),
    })
}

fn mark() -> impl Strategy<Value = u64> {
    prop_oneof![0..200u64, 0..1u64 << 53]
}

fn labels() -> impl Strategy<Value = Labels> {
    btree_map("[a-z]{1,6}", ".{0,6}", 0..3)
        .prop_map(|labels| labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
}

fn details() -> impl Strategy<Value = Details> {
    (option::of(identity()), labels(), ".{0,9}", "[a-z]{0,5}", option::of(0..1u64 << 48)).prop_map(
        |(uid, labels, note, hostname, mac)| Details {
            owner_uid: uid.map(|uid| uid.parse().unwrap()),
            labels,
            note: note.into(),
            hostname: hostname.into(),
            mac: mac.map(Mac),
        },
    )
}

fn reservation(prefix_length: u8) -> impl Strategy<Value = Reservation> {
    let lease = option::of((any::<u64>(), 1..u64::MAX));
    let obsolete = option::of((any::<u64>(), any::<u64>()));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let let_go = (obsolete, option::of(1..u64::MAX), option::of(planned()));
    (holder(), mark(), any::<u64>(), lease, let_go, option::of(identity()), option::of(details()), flags).prop_map(
        move |(holder, generation, created_at, lease, let_go, claimant, details, flags)| Reservation {
            prefix_length,
            holder,
            generation: Generation(generation),
            kind: if flags.0 { ReservationKind::Static } else { ReservationKind::Dynamic },
            created_at: WallTime(created_at),
            lease: lease
                .and_then(|(ends, ttl)| Some(Lease { ends: ShardTime(ends), ttl_seconds: NonZeroU64::new(ttl)? })),
            transient: flags.1,
            release_with_claimant: flags.2,
            claimant: claimant.map(|claimant| claimant.parse().unwrap()),
            obsolete: let_go.0.map(|(since, plan)| Box::new(Obsolete { since: WallTime(since), plan })),
            granted_by: let_go.1.and_then(NonZeroU64::new),
            planned: let_go.2.clone().map(Box::new),
            // An empty `Details` cannot be told from none if something else is in the record in its place.
            details: details.filter(|it| *it != Details::default()).map(Box::new),
        },
    )
}

fn planned() -> BoxedStrategy<Planned> {
    let promises = (option::of((any::<u64>(), holder())), option::of((any::<u64>(), holder())));
    let of = |(plan, SlotKey { owner, slot, .. }): (u64, SlotKey)| Promise { plan, owner, slot };
    let plan = || option::of(any::<u64>());
    let plans = (plan(), plan(), plan(), plan(), plan());
    let revived = option::of((any::<u64>(), any::<u64>(), any::<u64>()));
    (plans, promises, revived)
        .prop_map(move |((leaving, unlisted, settled, kept, was_chosen), (promise, back), revived)| Planned {
            leaving,
            promise: promise.map(of),
            back: back.map(of),
            unlisted,
            settled,
            revived: revived.map(|(by, since, plan)| (by, Obsolete { since: WallTime(since), plan })),
            kept,
            was_chosen,
        })
        // On the heap, so that the value tree of a whole step fits on the stack of a test.
        .boxed()
}

fn deployment_step() -> impl Strategy<Value = Step> {
    let numbers = (any::<u64>(), any::<u128>(), mark());
    let settled = (any::<u64>(), any::<bool>()).prop_map(|(instance, reverted)| SettledInstance { instance, reverted });
    (holder(), numbers, 0..3usize, option::of(0..u64::MAX), vec(settled, 0..3)).prop_map(
        |(SlotKey { scope, .. }, (plan, wishes, version), stage, since, settled)| {
            let deployment = Deployment {
                name: scope,
                plan,
                wishes,
                stage: [Stage::Open, Stage::Committed, Stage::Reverted][stage],
                uncommitted_since: since.map(WallTime),
                settled,
                version: Version(version),
            };
            let state = Some(State::Deployment(Arc::new(deployment)));
            Step { key: Key::Deployment, expect: None, state, event: None }
        },
    )
}

fn entry(prefix_length: u8) -> impl Strategy<Value = Entry> {
    let rest = (holder(), mark(), any::<u64>(), ".{0,9}", option::of(holder()));
    prop_oneof![
        reservation(prefix_length).prop_map(|reservation| Entry::Held(Arc::new(reservation))),
        (rest, any::<bool>()).prop_map(move |((holder, generation, time, seen, taker), declined)| {
            let (generation, time) = (Generation(generation), ShardTime(time));
            if declined {
                Entry::Declined(Arc::new(Declined {
                    prefix_length,
                    by: holder,
                    generation,
                    until: time,
                    seen: seen.into(),
                    promise: taker.map(|SlotKey { owner, slot, .. }| Box::new(Promise { plan: time.0, owner, slot })),
                }))
            } else {
                let owner_uid = OwnerUid::new(seen.as_str().into()).ok();
                Entry::Released(Arc::new(Released {
                    prefix_length,
                    last: holder,
                    owner_uid,
                    generation,
                    released_at: time,
                }))
            }
        }),
    ]
}

fn address_step() -> impl Strategy<Value = Step> {
    let v4 = (any::<u32>(), 0..33u8).prop_map(|(bits, length)| Cidr::containing(Address::V4(bits), length));
    let v6 = (any::<u128>(), 0..129u8).prop_map(|(bits, length)| Cidr::containing(Address::V6(bits), length));
    prop_oneof![v4, v6].prop_flat_map(|cidr| {
        let event = option::of((0..3usize, option::of(reservation(cidr.length()))));
        (option::of(mark()), option::of(entry(cidr.length())), event).prop_map(move |(expect, entry, event)| Step {
            key: Key::Address(cidr.base()),
            expect,
            state: entry.map(State::Entry),
            event: event.map(|(kind, before)| Event {
                kind: [EventKind::Granted, EventKind::Expired, EventKind::NetworkRestored][kind],
                before: before.map(Arc::new),
            }),
        })
    })
}

fn subnet_step() -> impl Strategy<Value = Step> {
    let range = (any::<u32>(), any::<u32>())
        .prop_map(|(a, b)| Range::new(Address::V4(a.min(b)), Address::V4(a.max(b))).unwrap());
    let pools = vec((range.clone(), mark(), any::<bool>(), option::of("[a-z]{1,5}[xyz]")), 0..3);
    let reserved = vec((range, ".{0,8}", option::of((identity(), option::of(identity())))), 0..3);
    (any::<u128>(), any::<u32>(), 0..33u8, pools, reserved, labels(), mark()).prop_map(
        |(id, bits, length, pools, reserved, tags, version)| {
            let subnet = SubnetConfig {
                id: SubnetId(id),
                name: None,
                cidr: Cidr::containing(Address::V4(bits), length),
                gateway: tags.first_key_value().map(|_| Address::V4(bits)),
                dhcp: bits & 1 == 1,
                dns: Dns { servers: vec![Address::V4(bits)], search: Vec::new() },
                zones: tags.keys().cloned().collect(),
                tags,
                draining: bits & 2 == 2,
                past_pools: pools
                    .iter()
                    .map(|(range, mark, ..)| PastPool {
                        range: *range,
                        name: None,
                        since: Generation(*mark),
                        until: Generation(*mark),
                    })
                    .collect(),
                pools: pools
                    .into_iter()
                    .map(|(range, mark, draining, name)| PoolConfig {
                        range,
                        name: name.map(|name| name.parse().unwrap()),
                        kind: if draining { PoolKind::Static } else { PoolKind::Dynamic },
                        draining,
                        since: Generation(mark),
                    })
                    .collect(),
                reserved: reserved
                    .into_iter()
                    .map(|(range, note, kept)| ReservedRange {
                        range,
                        note: note.into(),
                        reserved_for: kept.map(|(owner, slot)| ReservedFor {
                            scope: Scope::default(),
                            owner: owner.parse().unwrap(),
                            slot: slot.map(|slot| slot.parse().unwrap()),
                        }),
                    })
                    .collect(),
                position: version,
                version: Version(version),
            };
            let key = Key::Subnet(subnet.id);
            Step { key, expect: None, state: Some(State::Subnet(Arc::new(subnet))), event: None }
        },
    )
}

/// A network with what failovers left of late claims.
fn network_step() -> impl Strategy<Value = Step> {
    let cidr = (any::<u128>(), 0..129u8).prop_map(|(bits, length)| Cidr::containing(Address::V6(bits), length));
    let conflict = (cidr, holder(), mark(), any::<u64>(), any::<u64>(), option::of(0..1u64 << 48)).prop_map(
        |(cidr, holder, generation, granted_at, found_at, mac)| Conflict {
            address: cidr.base(),
            prefix_length: cidr.length(),
            holder,
            generation: Generation(generation),
            granted_at: WallTime(granted_at),
            found_at: WallTime(found_at),
            mac: mac.map(Mac),
        },
    );
    vec(conflict, 0..9).prop_map(|conflicts| {
        let config = NetworkConfig { conflicts, ..sample_config(NetworkId(1)) };
        Step { key: Key::Config, expect: None, state: Some(State::Config(Arc::new(config))), event: None }
    })
}

/// A step of this network.
fn of_network(id: NetworkId, mut step: Step) -> Step {
    if let Some(State::Config(config)) = &mut step.state {
        Arc::make_mut(config).id = id;
    }
    step
}

fn act() -> impl Strategy<Value = Act> {
    let step = prop_oneof![
        4 => address_step().boxed(),
        1 => subnet_step().boxed(),
        1 => network_step().boxed(),
        1 => deployment_step().boxed(),
    ];
    let steps = vec(step, 0..4);
    (0..3u128, any::<u64>(), "[a-b]", option::of(".{0,9}"), option::of(any::<u128>()), steps).prop_map(
        |(network, wall, by, reason, transaction, steps)| Act {
            network: NetworkId(network),
            wall: WallTime(wall),
            by: by.into(),
            reason: reason.map(Into::into),
            transaction: transaction.map(TransactionId),
            steps: steps.into_iter().map(|step| of_network(NetworkId(network), step)).collect(),
        },
    )
}

pub(crate) fn batch() -> impl Strategy<Value = Batch> {
    (any::<u16>(), any::<u64>(), any::<u128>(), any::<u64>(), any::<u64>(), mark(), vec(act(), 0..4)).prop_map(
        |(shard, epoch, token, seq, time, generation, acts)| Batch {
            shard: ShardId(shard),
            epoch: Epoch(epoch),
            token: Token(token),
            seq: Seq(seq),
            time: ShardTime(time),
            generation: Generation(generation),
            acts,
        },
    )
}
