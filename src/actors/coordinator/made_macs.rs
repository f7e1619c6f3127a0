//! Facts about what a network is asked, where others of its realm count as well.

use std::collections::BTreeSet;

use super::*;
use crate::actors::directory::DurableNetwork;
use crate::actors::directory::tests::{service, settle};
use crate::core::address::Address;
use crate::core::command::{Acquire, AcquireItem, GrantOptions, MacWish, Wish};
use crate::core::outcome::Grant;
use crate::core::state::{Limits, NetworkConfig, PoolConfig, PoolKind, SubnetConfig};
use crate::core::types::{Generation, Mac, NetworkId, Scope};
use crate::store::codec::samples::{sample_config, sample_subnet};

/// Others use one in 128. Some of so many that are drawn at once are therefore always in use.
#[actix::test]
async fn many_macs_are_made_at_once_though_others_use_some_under_the_prefix() {
    const BESIDE: u64 = 128;
    let shared = service().await;
    let config = NetworkConfig { limits: Limits::default(), ..sample_config(NetworkId(7)) };
    let pool = PoolConfig {
        range: "10.0.4.0-10.0.6.255".parse().unwrap(),
        name: None,
        kind: PoolKind::Dynamic,
        draining: false,
        since: Generation(0),
    };
    let cidr = "10.0.0.0/16".parse().unwrap();
    let subnet = SubnetConfig { cidr, pools: vec![pool], past_pools: Vec::new(), ..sample_subnet() };
    let standing = DurableNetwork { config: Arc::new(config), subnets: vec![Arc::new(subnet)] };
    settle(&shared, None, &standing, Some(Generation(1))).await;
    let address: Address = "10.9.0.1".parse().unwrap();
    let used = (0..1 << 24).step_by(BESIDE as usize).map(|low: u64| (Mac(0xaa00_0000_0000 | low), address));
    shared.macs.add(&standing.config.realm, NetworkId(8), used);
    let item = |index: usize| AcquireItem {
        index,
        slot: index.to_string().parse().unwrap(),
        address: None,
        wish: Wish::default(),
        optional: false,
    };
    let options = GrantOptions { mac: Some(MacWish::Auto), ..GrantOptions::default() };
    let items = (0..256).map(item).collect();
    let ask = Acquire { scope: Scope::default(), owner: "o".parse().unwrap(), items, exact: false, options };
    let asker = Coordinator { dry_run: true, ..Coordinator::of_itself(&shared) };
    let route = shared.routes.by_id(NetworkId(7)).unwrap();
    let granted = asker.ask(&route, Command::Acquire(Box::new(ask))).await.unwrap();
    let Outcome::Acquired { grants, .. } = granted else { panic!("{granted:?}") };
    let mac = |grant: &Grant| grant.view.reservation.details.as_ref().unwrap().mac.unwrap();
    let macs: BTreeSet<Mac> = grants.iter().map(|(_, grant)| mac(grant)).collect();
    assert_eq!(macs.len(), 256);
    assert!(macs.iter().all(|mac| mac.0 % BESIDE != 0), "{macs:?}");
}
