//! Any params that can be built are read back unchanged.

use proptest::option;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::core::address::{Address, Cidr, Range};
use crate::wire::Nullable;
use crate::wire::params::*;
use crate::wire::values::*;

fn name() -> impl Strategy<Value = String> {
    // Begins with a letter with which no address begins.
    "[g-zG-Z][A-Za-z0-9._:/-]{0,40}"
}

fn identity() -> impl Strategy<Value = String> {
    // Two texts that look alike are different: nothing is normalised on the way.
    r#"[a-zA-Z0-9/"\\äöß名 ]{0,20}[a-z"\\é]"#
}

fn address() -> impl Strategy<Value = Address> {
    prop_oneof![any::<u32>().prop_map(Address::V4), (1u128 << 96..).prop_map(Address::V6)]
}

fn cidr() -> impl Strategy<Value = Cidr> {
    (address(), any::<u8>())
        .prop_map(|(address, length)| Cidr::containing(address, length % (address.family().width() + 1)))
        .prop_filter("reads as IPv4-mapped", |cidr| cidr.to_string().parse::<Cidr>().is_ok())
}

fn range() -> impl Strategy<Value = Range> {
    (address(), any::<u32>()).prop_map(|(first, more)| {
        let last = first.bits().saturating_add(u128::from(more)).min(first.family().last_bits());
        Range::of_bits(first.family(), first.bits(), last)
    })
}

fn parsed<T>(text: impl Strategy<Value = String>) -> impl Strategy<Value = T>
where
    T: std::str::FromStr + std::fmt::Debug,
    T::Err: std::fmt::Debug,
{
    text.prop_map(|text| text.parse::<T>().unwrap())
}

fn nullable<T: std::fmt::Debug + Clone>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Nullable<T>> {
    (0..3, value).prop_map(|(which, value)| match which {
        0 => Nullable::Absent,
        1 => Nullable::Null,
        _ => Nullable::Value(value),
    })
}

fn labels() -> impl Strategy<Value = LabelMap> {
    prop::collection::btree_map("[a-z\"ä]{1,9}", "[a-z\\\\ ]{0,9}", 0..5)
        .prop_map(|map| LabelMap(map.into_iter().map(|(key, value)| (key.into(), value.into())).collect()))
}

fn again<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(params: &T) {
    let text = serde_json::to_string(params).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap_or_else(|error| panic!("{text}: {error}")), params, "{text}");
}

proptest! {
    #[test]
    fn allocate(
        network in parsed(name()), owner in parsed(identity()), scope in option::of(parsed(identity())),
        slot in option::of(parsed(identity())), subnet in option::of(cidr()), pool in option::of(range()),
        ttl in option::of(1u64..3_000_000_000), labels in option::of(labels()), brief in option::of(any::<bool>()),
        mac in option::of(0u64..1 << 48), note in option::of(parsed::<Note>(identity())),
    ) {
        let mut params = IpAllocate::new(network, owner);
        params.scope = scope;
        params.slot = slot;
        params.subnet = subnet.map(SubnetRef::Cidr);
        params.pool = pool.map(PoolRef::Range);
        params.ttl_seconds = ttl.map(|ttl| TtlSeconds::new(ttl).unwrap());
        params.labels = labels;
        params.brief = brief;
        let one = mac.map(crate::core::types::Mac).filter(|mac| mac.has_no_interface().is_none());
        params.mac = one.map(MacChoice::Mac);
        params.note = note;
        again(&params);
    }

    #[test]
    fn acquire(
        owner in parsed(identity()), network in option::of(parsed(name())),
        ips in prop::collection::vec((option::of(address()), option::of(parsed(name())), option::of(any::<bool>())), 1..9),
    ) {
        let items = ips.into_iter().map(|(address, network, optional)| {
            let mut item = AcquireItem::new();
            item.address = address;
            item.network = network;
            item.optional = optional;
            item
        });
        let mut params = IpAcquire::new(owner, BoundedList::new(items.collect()).unwrap());
        params.network = network;
        again(&params);
    }

    #[test]
    fn subnet_modify(
        network in parsed(name()), subnet in cidr(), cidr in option::of(cidr()), gateway in nullable(address()),
        name in nullable(parsed(name())), zones in nullable(prop::collection::vec(parsed::<Word>(identity()), 0..4)),
        if_version in option::of(0u64..1 << 53),
    ) {
        let mut set = SubnetSet::new();
        set.cidr = cidr;
        set.gateway = gateway;
        set.name = name;
        set.zones = match zones {
            Nullable::Absent => Nullable::Absent,
            Nullable::Null => Nullable::Null,
            Nullable::Value(zones) => Nullable::Value(BoundedList::new(zones).unwrap()),
        };
        let mut params = SubnetModify::new(network, SubnetRef::Cidr(subnet), set);
        params.if_version = if_version.map(|version| Serial::new(version).unwrap());
        again(&params);
    }

    #[test]
    fn network_create(
        name in parsed(name()), tags in option::of(labels()),
        subnets in prop::collection::vec((cidr(), option::of(prop::collection::vec(range(), 0..4))), 0..4),
    ) {
        let mut params = NetworkCreate::new(name);
        params.tags = tags;
        let subnets = subnets.into_iter().map(|(cidr, pools)| {
            let mut subnet = SubnetInput::new(cidr);
            subnet.pools = pools.map(|pools| BoundedList::new(pools.into_iter().map(PoolInput::new).collect()).unwrap());
            subnet
        });
        params.subnets = BoundedList::new(subnets.collect());
        again(&params);
    }

    #[test]
    fn times(milliseconds in 0u64..253_402_207_199_999) {
        again(&crate::core::types::WallTime(milliseconds));
    }
}
