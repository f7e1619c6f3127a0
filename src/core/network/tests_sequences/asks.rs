//! Commands made from numbers, aimed at what a network has and holds.

use compact_str::{CompactString, format_compact};

use crate::core::address::{Address, Cidr, Family, Range};
use crate::core::command::*;
use crate::core::network::Network;
use crate::core::state::*;
use crate::core::types::*;

/// Numbers that decide. When they are used up, all further ones are 0.
pub(super) struct Dice<'a> {
    numbers: std::slice::Iter<'a, u16>,
}

/// Everything happens in 10.0.0.0/25 and 2001:db8::/121.
const HOST_BITS: u8 = 7;

impl<'a> Dice<'a> {
    pub(super) fn new(numbers: &'a [u16]) -> Self {
        Self { numbers: numbers.iter() }
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.numbers.next().copied().unwrap_or(0)) % bound.max(1)
    }

    /// True once in `times`.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    fn maybe<T>(&mut self, times: usize, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.once_in(times).then(|| value(self))
    }

    fn patch<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Patch<T> {
        match self.below(4) {
            0 | 1 => Patch::Keep,
            2 => Patch::Set(value(self)),
            _ => Patch::Clear,
        }
    }

    fn text(&mut self, choices: &[&str]) -> CompactString {
        self.of(choices).into()
    }

    fn family(&mut self) -> Family {
        if self.once_in(3) { Family::V6 } else { Family::V4 }
    }

    fn any_address(&mut self) -> Address {
        let offset = self.below(1 << HOST_BITS) as u128;
        match self.family() {
            Family::V4 => Address::new(Family::V4, 0x0a00_0000 + offset),
            Family::V6 => Address::new(Family::V6, (0x2001_0db8 << 96) + offset),
        }
    }

    /// An address, mostly inside a subnet.
    fn place(&mut self, network: &Network) -> Address {
        let subnets = network.subnets();
        if subnets.is_empty() || self.once_in(9) {
            return self.any_address();
        }
        let cidr = subnets[self.below(subnets.len())].cidr;
        Address::new(cidr.family(), cidr.base().bits() + self.below(cidr.range().size() as usize) as u128)
    }

    /// An address, mostly with an entry, now and then inside a block.
    pub(super) fn address(&mut self, network: &Network) -> Address {
        let entries = everything(network);
        if entries.is_empty() || self.once_in(4) {
            return self.place(network);
        }
        let (address, entry) = &entries[self.below(entries.len())];
        let size = Cidr::containing(*address, entry.prefix_length()).range().size();
        let inside = if self.once_in(4) { self.below(size as usize) as u128 } else { 0 };
        Address::new(address.family(), address.bits() + inside)
    }

    fn cidr(&mut self) -> Cidr {
        let address = self.any_address();
        let host_bits = self.of(&[3, 4, 2, 0, 1, 5, 6]);
        Cidr::containing(address, address.family().width() - host_bits)
    }

    pub(super) fn range(&mut self, network: &Network) -> Range {
        let first = self.place(network);
        let end = first.bits() | ((1 << HOST_BITS) - 1);
        let length = if self.once_in(6) { self.below(64) } else { self.below(9) } as u128;
        Range::of_bits(first.family(), first.bits(), (first.bits() + length).min(end))
    }

    pub(super) fn scope(&mut self) -> Scope {
        if self.once_in(4) { "tenant".parse().unwrap() } else { Scope::default() }
    }

    pub(super) fn owner(&mut self) -> Owner {
        self.of(&["a", "b", "c", "d", "e", "f"]).parse().unwrap()
    }

    pub(super) fn slot(&mut self) -> Slot {
        self.of(&["0", "0", "1", "2"]).parse().unwrap()
    }

    fn claimant(&mut self) -> Claimant {
        self.of(&["vm-1", "vm-2"]).parse().unwrap()
    }

    fn holder(&mut self) -> SlotKey {
        SlotKey { scope: self.scope(), owner: self.owner(), slot: self.slot() }
    }

    /// A slot, every other time one that holds or held something.
    fn somebody(&mut self, network: &Network) -> SlotKey {
        let entries = everything(network);
        if entries.is_empty() || self.once_in(2) {
            return self.holder();
        }
        match &entries[self.below(entries.len())].1 {
            Entry::Held(held) => held.holder.clone(),
            Entry::Released(released) => released.last.clone(),
            Entry::Declined(declined) => declined.by.clone(),
        }
    }

    fn mac(&mut self) -> MacWish {
        match self.below(4) {
            0 => MacWish::Auto,
            n => MacWish::Given(Mac(0x5254_0000_0000 + n as u64)),
        }
    }

    fn labels(&mut self) -> Labels {
        [(self.text(&["k", "l"]), self.text(&["v", ""]))].into()
    }

    fn name(&mut self) -> Name {
        self.of(&["p", "q"]).parse().unwrap()
    }

    fn options(&mut self) -> GrantOptions {
        GrantOptions {
            must_create: self.once_in(12),
            replace: self.once_in(2),
            transient: self.once_in(9),
            ttl_seconds: self.maybe(3, |dice| dice.of(&[1, 3, 20])),
            claimant: self.maybe(4, Dice::claimant),
            release_with_claimant: self.once_in(3),
            owner_uid: self.maybe(8, |dice| dice.of(&["u1", "u2"]).parse().unwrap()),
            labels: self.maybe(9, Dice::labels),
            mac: self.maybe(6, Dice::mac),
            note: self.maybe(12, |dice| dice.text(&["n"])),
            hostname: None,
            macs_elsewhere: Vec::new(),
        }
    }

    fn subnet_ref(&mut self, network: &Network) -> SubnetRef {
        match network.subnets() {
            [] => SubnetRef::Cidr(self.cidr()),
            _ if self.once_in(9) => SubnetRef::Named(self.text(&["s1", "nowhere"])),
            subnets => {
                let subnet = &subnets[self.below(subnets.len())];
                if self.once_in(4) {
                    SubnetRef::Named(format_compact!("{}", subnet.id))
                } else {
                    SubnetRef::Cidr(subnet.cidr)
                }
            }
        }
    }

    fn pool_ref(&mut self, network: &Network) -> PoolRef {
        let pools: Vec<Range> = network.subnets().iter().flat_map(|s| s.pools.iter().map(|pool| pool.range)).collect();
        match self.below(4) {
            0 => PoolRef::Named(self.name()),
            1 => PoolRef::Range(self.range(network)),
            _ if pools.is_empty() => PoolRef::Named(self.name()),
            _ => PoolRef::Range(self.of(&pools)),
        }
    }

    fn length(&mut self) -> u8 {
        self.of(&[30, 31, 29, 126, 127, 32, 125, 128, 28, 24, 64])
    }

    fn wish(&mut self, network: &Network) -> Wish {
        Wish {
            prefix_length: self.maybe(4, Dice::length),
            family: self.maybe(6, Dice::family),
            subnet: self.maybe(9, |dice| dice.subnet_ref(network)),
            pool: self.maybe(9, |dice| dice.pool_ref(network)),
            zone: self.maybe(7, |dice| dice.text(&["z1", "z2", "z9"])),
        }
    }

    fn generation(&mut self, network: &Network, address: Option<Address>) -> Generation {
        let there = everything(network).into_iter().find(|(at, _)| Some(*at) == address);
        match there {
            Some((_, entry)) if !self.once_in(3) => entry.generation(),
            _ => Generation(self.below(500) as u64),
        }
    }

    fn target(&mut self, network: &Network) -> Target {
        let by_address = self.once_in(2);
        let address = by_address.then(|| self.address(network));
        let by_owner = !by_address || self.once_in(4);
        let held_by = address.and_then(|at| holder_at(network, at)).filter(|_| !self.once_in(5));
        let holder = held_by.unwrap_or_else(|| self.somebody(network));
        let mut target = Target { address, ..Target::default() };
        if by_owner {
            target.scope = Some(holder.scope).filter(|_| !self.once_in(9));
            target.owner = Some(holder.owner);
            target.slot = Some(holder.slot).filter(|_| !self.once_in(3));
        }
        let known = address.or_else(|| network.slot_holder(&self.holder()));
        target.if_generation = self.maybe(4, |dice| dice.generation(network, known));
        target
    }

    fn acquire(&mut self, network: &Network) -> Acquire {
        let SlotKey { scope, owner, .. } = self.somebody(network);
        let count = 1 + self.below(4);
        let near = self.address(network);
        let items = (0..count).map(|index| AcquireItem {
            index,
            slot: if self.once_in(12) { Slot::default() } else { format!("{index}").parse().unwrap() },
            address: match self.below(4) {
                0 | 1 => None,
                // Addresses that are close together meet in one cooling block.
                2 => Some(Address::new(near.family(), near.bits() & !7 | self.below(8) as u128)),
                _ => Some(self.address(network)),
            },
            wish: Wish {
                prefix_length: self.maybe(6, Dice::length),
                zone: self.maybe(9, |dice| dice.text(&["z1", "z2"])),
                ..Wish::default()
            },
            optional: self.once_in(3),
        });
        let items = items.collect();
        let mut options = GrantOptions {
            replace: self.once_in(2),
            ttl_seconds: self.maybe(4, |_| 4),
            claimant: self.maybe(5, Dice::claimant),
            ..GrantOptions::default()
        };
        options.mac = self.maybe(12, Dice::mac);
        Acquire { scope, owner, items, exact: self.once_in(4), options }
    }

    /// A command that grants.
    fn grant(&mut self, network: &Network) -> Command {
        match self.below(9) {
            0..=3 => Command::Allocate(Box::new(Allocate {
                holder: self.somebody(network),
                wish: self.wish(network),
                options: self.options(),
            })),
            4..=6 => {
                let length = self.maybe(3, |dice| dice.of(&[30u8, 29, 31, 32, 28]));
                let address = if self.once_in(2) { self.place(network) } else { self.address(network) };
                let length = length.map(|length| length + address.family().width() - 32);
                let aligned = if self.once_in(6) { address } else { aligned(address, length) };
                let (holder, force, options) = (self.somebody(network), self.once_in(3), self.options());
                Command::Claim(Box::new(Claim { holder, address: aligned, prefix_length: length, force, options }))
            }
            _ => Command::Acquire(Box::new(self.acquire(network))),
        }
    }

    /// A command about something held.
    fn holding(&mut self, network: &Network) -> Command {
        match self.below(15) {
            0..=3 => {
                let (force, strict) = (self.once_in(2), self.once_in(4));
                Command::Release(Box::new(Release { target: self.target(network), force, strict }))
            }
            4 => Command::Renew(Box::new(self.target(network)), self.maybe(2, |dice| dice.of(&[1, 2, 30]))),
            5 => Command::Bind(Box::new(self.target(network)), self.claimant()),
            6 => Command::Unbind(Box::new(self.target(network)), self.maybe(2, Dice::claimant)),
            7 => {
                let mut set = ReservationPatch { note: self.patch(|dice| dice.text(&["x"])), ..Default::default() };
                set.mac = self.patch(Dice::mac);
                set.labels = self.patch(|dice| vec![("k".into(), dice.maybe(2, |_| "w".into()))]);
                set.owner_uid = self.patch(|_| "u1".parse().unwrap());
                Command::Update(Box::new(self.target(network)), Box::new(set))
            }
            8 | 9 => {
                let address = self.address(network);
                let from = holder_at(network, address).unwrap_or_else(|| self.holder());
                let slot = self.maybe(2, |_| from.slot);
                Command::Transfer(Box::new(Transfer {
                    address,
                    from: (from.scope, from.owner, slot),
                    to: self.somebody(network),
                    exchange: self.once_in(2),
                    if_generation: self.maybe(5, |dice| dice.generation(network, Some(address))),
                }))
            }
            10 | 11 => {
                let address = self.address(network);
                let from = holder_at(network, address).filter(|_| !self.once_in(6)).unwrap_or_else(|| self.holder());
                let slot = self.maybe(2, |_| from.slot);
                Command::Decline(Box::new(Decline {
                    address,
                    from: (from.scope, from.owner, slot),
                    seen: "other".into(),
                    probation_seconds: self.of(&[3, 20, 60]),
                    again: self.once_in(2),
                }))
            }
            12 => {
                let SlotKey { scope, owner, .. } = self.somebody(network);
                Command::ReleaseOwner { scope, owner, limit: self.of(&[100, 1]) }
            }
            13 => Command::ReleaseScope { scope: self.scope(), limit: self.of(&[100, 100, 2]) },
            _ => self.sweep(network),
        }
    }

    /// A sweep that lets go of some bindings, including a few that have changed.
    pub(super) fn sweep(&mut self, network: &Network) -> Command {
        let mut bindings = Vec::new();
        for (address, entry) in everything(network) {
            let Entry::Held(held) = entry else { continue };
            let Some(claimant) = held.claimant.clone().filter(|_| self.once_in(2)) else { continue };
            let generation = if self.once_in(9) { Generation(1) } else { held.generation };
            let claimant = if self.once_in(9) { "another".parse().unwrap() } else { claimant };
            bindings.push(Binding { address, generation, claimant, miss: None });
        }
        Command::Sweep(bindings)
    }

    /// A command that only reads.
    fn read(&mut self, network: &Network) -> Command {
        match self.below(6) {
            0 => Command::Get(self.address(network)),
            1 => Command::List(Box::new(self.list(network))),
            2 => Command::Usage,
            3 => {
                let lengths = [30, 126, 32].map(CellSize::Prefix);
                let size = self.of(&[lengths[0], lengths[1], lengths[2], CellSize::Fitting]);
                let format = self.of(&[MapFormat::Text, MapFormat::Runs, MapFormat::Cells(size)]);
                let subnet = self.maybe(3, |dice| dice.subnet_ref(network));
                Command::Map {
                    part: Box::new((subnet, self.maybe(3, |dice| dice.pool_ref(network)))),
                    format,
                    from: None,
                }
            }
            4 => Command::Scopes { after: None, limit: self.of(&[1, 1_000]) },
            _ => Command::Show,
        }
    }

    fn list(&mut self, network: &Network) -> ListSlice {
        let filter = Filter {
            scope: self.maybe(4, Dice::scope),
            owner: self.maybe(4, Dice::owner),
            claimant: self.maybe(6, Dice::claimant),
            bound: self.maybe(6, |dice| dice.once_in(2)),
            subnet: self.maybe(6, |dice| dice.subnet_ref(network)),
            pool: self.maybe(6, |dice| dice.pool_ref(network)),
            range: self.maybe(4, |dice| dice.range(network)),
            obsolete: self.maybe(6, |dice| dice.once_in(2)),
            ..Filter::default()
        };
        let (after, limit) = (self.maybe(3, |dice| dice.address(network)), self.of(&[100, 2]));
        ListSlice { filter, after, limit, count_only: self.once_in(3) }
    }

    fn kept_for(&mut self) -> ReservedFor {
        ReservedFor { scope: self.scope(), owner: self.owner(), slot: self.maybe(2, Dice::slot) }
    }

    /// A short range that seldom reaches out of `within`.
    fn part(&mut self, within: Range) -> Range {
        let first = within.first().bits() + self.below(within.size() as usize) as u128;
        let last = first + self.of(&[0, 0, 1, 3, 7, 2, 20]);
        let last = if self.once_in(20) { last } else { last.min(within.last().bits()) };
        Range::of_bits(within.family(), first, last)
    }

    fn reserved(&mut self, within: Range) -> ReservedInput {
        let (range, note) = (self.part(within), self.text(&["", "m", "o"]));
        ReservedInput { range, note, reserved_for: self.maybe(2, Dice::kept_for) }
    }

    fn pool(&mut self, within: Range) -> PoolInput {
        PoolInput {
            range: Some(self.part(within)),
            name: self.maybe(2, Dice::name),
            kind: self.maybe(3, |dice| dice.of(&[PoolKind::Dynamic, PoolKind::Static])),
            draining: self.maybe(8, |_| true),
        }
    }

    /// Pools that follow each other inside a prefix.
    fn pools(&mut self, within: Range) -> Vec<PoolInput> {
        let mut pools = Vec::new();
        let mut at = Some(within.first());
        for _ in 0..self.below(4) {
            let Some(first) = at.filter(|at| within.contains(*at)) else { break };
            let last = (first.bits() + self.below(9) as u128).min(within.last().bits());
            let range = Range::of_bits(first.family(), first.bits(), last);
            pools.push(PoolInput { range: Some(range), ..self.pool(within) });
            at = range.last().next().and_then(|next| if self.once_in(2) { next.next() } else { Some(next) });
        }
        pools
    }

    fn gateway(&mut self, within: Cidr) -> Address {
        if self.once_in(9) {
            return self.any_address();
        }
        let size = within.range().size() as usize;
        // Seldom an edge.
        let inside = if size > 2 && !self.once_in(9) { 1 + self.below(size - 2) } else { self.below(size) };
        Address::new(within.family(), within.base().bits() + inside as u128)
    }

    pub(super) fn subnet(&mut self) -> SubnetInput {
        let cidr = self.cidr();
        SubnetInput {
            cidr,
            pools: self.maybe(2, |dice| dice.pools(cidr.range())),
            gateway: self.maybe(3, |dice| dice.gateway(cidr)),
            zones: self.maybe(4, |dice| vec![dice.text(&["z1", "z2"])]),
            reserved: self.maybe(3, |dice| (0..1 + dice.below(2)).map(|_| dice.reserved(cidr.range())).collect()),
            draining: self.maybe(12, |_| true),
            name: self.maybe(6, |_| "s1".parse().unwrap()),
            dhcp: None,
            dns: None,
            tags: None,
        }
    }

    /// A network with static and dynamic pools, next to each other and up to the edge, with room for a few instances.
    pub(super) fn roomy_network(&mut self, name: &str) -> NetworkInput {
        let pool = |first: u128, last: u128, kind| PoolInput {
            range: Some(Range::of_bits(Family::V4, 0x0a00_0000 + first, 0x0a00_0000 + last)),
            name: None,
            kind: Some(kind),
            draining: None,
        };
        let subnet = SubnetInput {
            cidr: "10.0.0.0/27".parse().unwrap(),
            pools: Some(vec![pool(1, 5 + self.below(6) as u128, PoolKind::Dynamic), pool(16, 30, PoolKind::Static)]),
            gateway: None,
            zones: None,
            reserved: None,
            draining: None,
            name: None,
            dhcp: None,
            dns: None,
            tags: None,
        };
        let kind = self.maybe(12, |dice| dice.of(&[NetworkKind::Vip, NetworkKind::Dynamic]));
        NetworkInput {
            policy: Some(self.of(&[Policy::Lowest, Policy::Random, Policy::Oldest])),
            cooldown_seconds: Some(self.of(&[0, 5])),
            limits: self.maybe(6, |_| Limits { per_owner: Some(2), per_scope: None }),
            kind,
            subnets: (kind != Some(NetworkKind::Dynamic)).then(|| vec![subnet]),
            l2: None,
            cooldown_yields: None,
            static_only: None,
            ..Dice::new(&[]).network(name)
        }
    }

    pub(super) fn network(&mut self, name: &str) -> NetworkInput {
        NetworkInput {
            name: name.parse().unwrap(),
            realm: None,
            kind: self.maybe(40, |_| NetworkKind::Dynamic),
            l2: self.maybe(2, |_| L2 { mac_prefix: Some("aa:00:00".into()), ..L2::default() }),
            policy: Some(self.of(&[Policy::Lowest, Policy::Random, Policy::Oldest])),
            cooldown_seconds: Some(self.of(&[0, 5])),
            cooldown_yields: Some(self.once_in(2)),
            static_only: Some(self.once_in(9)),
            protected: None,
            limits: self.maybe(2, |dice| Limits { per_owner: Some(3), per_scope: dice.maybe(2, |_| 9) }),
            tags: None,
            description: None,
            subnets: None,
        }
    }

    fn configure(&mut self, network: &Network) -> Configure {
        let cidr = match network.subnets() {
            [] => self.cidr(),
            subnets => subnets[self.below(subnets.len())].cidr,
        };
        match self.below(23) {
            0..=2 => Configure::SubnetAdd { input: Box::new(self.subnet()), if_absent: self.once_in(4) },
            3..=5 => {
                let mut set = SubnetPatch { cidr: self.maybe(3, Dice::cidr), ..SubnetPatch::default() };
                set.gateway = self.patch(|dice| dice.gateway(cidr));
                set.draining = self.patch(|dice| dice.once_in(2));
                set.pools = if self.once_in(3) { self.patch(|dice| dice.pools(cidr.range())) } else { Patch::Keep };
                set.zones = if self.once_in(4) { self.patch(|_| vec!["z1".into()]) } else { Patch::Keep };
                Configure::SubnetModify { subnet: SubnetRef::Cidr(cidr), set: Box::new(set) }
            }
            6 => Configure::SubnetRemove { subnet: self.subnet_ref(network) },
            7..=9 => {
                let subnet = self.maybe(4, |dice| dice.subnet_ref(network));
                let mut input = self.pool(cidr.range());
                input.range = input.range.filter(|_| subnet.is_none());
                Configure::PoolAdd { input, subnet, if_absent: self.once_in(4) }
            }
            10 | 11 => {
                let mut set = PoolPatch { range: self.maybe(3, |dice| dice.range(network)), ..PoolPatch::default() };
                set.name = self.patch(Dice::name);
                set.kind = self.patch(|_| PoolKind::Static);
                set.draining = self.patch(|dice| dice.once_in(2));
                Configure::PoolModify { pool: self.pool_ref(network), set: Box::new(set) }
            }
            12 => Configure::PoolRemove(match self.below(4) {
                0 | 1 => PoolRemoval::Range(self.range(network)),
                2 => PoolRemoval::Pool(self.pool_ref(network)),
                _ => PoolRemoval::Subnet(self.subnet_ref(network)),
            }),
            13 | 14 => Configure::ReservedAdd(Box::new(self.reserved(cidr.range()))),
            15 | 16 => Configure::ReservedRemove { range: self.range(network), reserved_for: None },
            17 | 18 => Configure::Update(Box::new(self.update())),
            19 => Configure::Update(Box::new(NetworkPatch { subnets: Some(self.entries(network)), ..self.update() })),
            20..=21 if self.once_in(2) => Configure::Delete { force: self.once_in(2), purge: self.once_in(4) },
            _ => Configure::Restore,
        }
    }

    /// Most of the existing subnets, changed or described anew, and sometimes a new one.
    fn entries(&mut self, network: &Network) -> Vec<SubnetEntry> {
        let mut entries = Vec::new();
        for subnet in network.subnets() {
            if self.once_in(6) {
                continue;
            }
            let mut set = SubnetPatch { cidr: self.maybe(3, Dice::cidr), ..SubnetPatch::default() };
            set.name = if self.once_in(3) { self.patch(Dice::name) } else { Patch::Keep };
            set.dhcp = if self.once_in(5) { self.patch(|dice| dice.once_in(2)) } else { Patch::Keep };
            let within = set.cidr.unwrap_or(subnet.cidr).range();
            set.pools = if self.once_in(4) { self.patch(|dice| dice.pools(within)) } else { Patch::Keep };
            let id = Some(subnet.id).filter(|_| !self.once_in(4));
            let cidr = set.cidr.or(Some(subnet.cidr).filter(|_| id.is_none()));
            let reserved = self.maybe(4, |dice| vec![dice.reserved(within)]);
            entries.push(SubnetEntry { id, set: SubnetPatch { cidr, ..set }, reserved });
        }
        if self.once_in(3) {
            let set = SubnetPatch { cidr: Some(self.cidr()), name: self.patch(Dice::name), ..SubnetPatch::default() };
            entries.push(SubnetEntry { set, ..SubnetEntry::default() });
        }
        if self.once_in(2) {
            entries.reverse();
        }
        entries
    }

    fn update(&mut self) -> NetworkPatch {
        NetworkPatch {
            policy: self.patch(|dice| dice.of(&[Policy::Lowest, Policy::Random, Policy::Oldest])),
            cooldown_seconds: self.patch(|dice| dice.of(&[0, 5, 8])),
            cooldown_yields: self.patch(|dice| dice.once_in(2)),
            static_only: if self.once_in(5) { self.patch(|dice| dice.once_in(3)) } else { Patch::Keep },
            protected: if self.once_in(9) { self.patch(|dice| dice.once_in(3)) } else { Patch::Keep },
            limits: self.patch(|dice| LimitsPatch {
                per_owner: dice.patch(|dice| dice.of(&[2, 4])),
                per_scope: dice.patch(|dice| dice.of(&[3, 9])),
            }),
            ..NetworkPatch::default()
        }
    }

    /// Any command except those of `subnet.move`, which need two networks.
    pub(super) fn command(&mut self, network: &Network) -> Command {
        match self.below(100) {
            0..=51 => self.grant(network),
            52..=80 => self.holding(network),
            81..=84 => self.read(network),
            85 => Command::Purge { limit: self.of(&[1, 3, 100]) },
            86 => Command::Expire,
            _ => {
                let wrong = self.once_in(12).then_some(Version(9_999));
                Command::Configure { change: Box::new(self.configure(network)), if_version: wrong }
            }
        }
    }

    pub(super) fn move_out(&mut self, network: &Network) -> Command {
        Command::MoveOut {
            subnet: self.subnet_ref(network),
            if_version: self.maybe(9, |_| Version(9_999)),
            bytes_max: Some(usize::MAX),
        }
    }
}

fn aligned(address: Address, length: Option<u8>) -> Address {
    length.map_or(address, |length| Cidr::containing(address, length).base())
}

/// Every entry of a network, ascending.
pub(super) fn everything(network: &Network) -> Vec<(Address, Entry)> {
    let whole = |family: Family| Range::of_bits(family, 0, family.last_bits());
    Family::ALL.into_iter().flat_map(|family| network.entries_in(whole(family))).collect()
}

fn holder_at(network: &Network, at: Address) -> Option<SlotKey> {
    everything(network).into_iter().find(|(address, _)| *address == at).and_then(|(_, entry)| match entry {
        Entry::Held(held) => Some(held.holder.clone()),
        Entry::Declined(declined) => Some(declined.by.clone()),
        Entry::Released(_) => None,
    })
}
