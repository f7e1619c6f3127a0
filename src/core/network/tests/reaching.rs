//! Facts about cooling or declined entries that reach beyond the ends of a subnet, from one that was once larger.

use super::*;

fn change(change: Configure) -> Command {
    Command::Configure { change: Box::new(change), if_version: None }
}

fn add(text: &str) -> Command {
    change(Configure::SubnetAdd { input: Box::new(subnet_input(text)), if_absent: false })
}

fn resize(from: &str, to: &str) -> Command {
    let set = SubnetPatch { cidr: Some(cidr(to)), ..SubnetPatch::default() };
    change(Configure::SubnetModify { subnet: SubnetRef::Cidr(cidr(from)), set: Box::new(set) })
}

/// The block 10.0.0.64/26 cools until second 60, and its subnet ends in the middle of the block.
fn cooling_block() -> Net {
    let mut net = Net::with(|config| config.cooldown_seconds = 60, vec![subnet("10.0.0.0/24", 0)]);
    net.claim("r", "10.0.0.64", |ask| ask.prefix_length = Some(26)).unwrap();
    net.release("r");
    net.run(&resize("10.0.0.0/24", "10.0.0.64/27")).unwrap();
    net
}

/// Moves a subnet from one network to the other, and checks both.
fn moves(from: &mut Net, to: &mut Net, subnet: &str) -> Result<(), Refusal> {
    let out = Command::MoveOut { subnet: SubnetRef::Cidr(cidr(subnet)), if_version: None, bytes_max: Some(usize::MAX) };
    let context = from.context();
    let decision = from.network.decide(&out, context)?;
    let Outcome::MovedOut(moved) = decision.outcome else { panic!("a subnet moves out") };
    to.run(&Command::MoveIn(moved))?;
    decision.steps.iter().for_each(|step| from.network.apply(step, context.now));
    from.network.check().unwrap();
    Ok(())
}

fn entries_in(net: &Net, range: &str) -> Vec<String> {
    let entries = net.network.entries_in(range.parse().unwrap());
    entries.iter().map(|(address, entry)| format!("{address}/{}", entry.prefix_length())).collect()
}

#[test]
fn a_cooling_block_that_reaches_out_of_a_subnet_moves_up_to_its_end_only() {
    let mut a = cooling_block();
    let other = SubnetConfig { id: SubnetId(99), ..subnet("10.0.0.96/27", 0) };
    let networked = |config: &mut NetworkConfig| (config.id, config.cooldown_seconds) = (NetworkId(8), 60);
    let mut b = Net::with(networked, vec![other]);
    assert_eq!(b.allocate("victim"), "10.0.0.97");
    moves(&mut a, &mut b, "10.0.0.64/27").unwrap();
    assert_eq!(entries_in(&b, "10.0.0.0/24"), ["10.0.0.64/27", "10.0.0.97/32"]);
    assert_eq!(entries_in(&a, "10.0.0.0/24"), ["10.0.0.96/27"]);
    b.at(100);
    let ask = Allocate {
        wish: Wish { subnet: Some(SubnetRef::Cidr(cidr("10.0.0.96/27"))), ..Wish::default() },
        ..wish("thief")
    };
    assert_eq!(b.ask(ask).unwrap().view.address, address("10.0.0.98"));
    let (config, subnets) = (Arc::clone(&b.network.config), b.network.subnets.clone());
    let entries = b.network.entries_in("0.0.0.0/0".parse::<Cidr>().unwrap().range());
    Network::load(config, subnets, entries, Generation(0), ShardTime(0)).unwrap();
}

/// What arrives takes the place of cooling addresses; those beside it go on cooling.
#[test]
fn of_a_cooling_block_only_what_something_arrives_at_is_forgotten() {
    let mut b = cooling_block();
    b.run(&change(Configure::SubnetRemove { subnet: SubnetRef::Cidr(cidr("10.0.0.64/27")) })).unwrap();
    let arriving = SubnetConfig { id: SubnetId(99), ..subnet("10.0.0.64/27", 0) };
    let mut a = Net::with(|config| config.id = NetworkId(8), vec![arriving]);
    a.claim("first", "10.0.0.65", |_| ()).unwrap();
    a.claim("block", "10.0.0.72", |ask| ask.prefix_length = Some(29)).unwrap();
    moves(&mut a, &mut b, "10.0.0.64/27").unwrap();
    let there = [
        "10.0.0.64/32",
        "10.0.0.65/32",
        "10.0.0.66/31",
        "10.0.0.68/30",
        "10.0.0.72/29",
        "10.0.0.80/28",
        "10.0.0.96/27",
    ];
    assert_eq!(entries_in(&b, "10.0.0.0/24"), there);
}

#[test]
fn a_cooling_block_counts_in_every_subnet_that_it_reaches_into() {
    let mut net = cooling_block();
    net.run(&add("10.0.0.96/28")).unwrap();
    let counts = |net: &Net| {
        net.network
            .usage_of_subnets(false)
            .iter()
            .map(|subnet| (subnet.counts.cooling, subnet.counts.free))
            .collect::<Vec<_>>()
    };
    assert_eq!(counts(&net), [(30, 0), (14, 0)]);
    net.at(100);
    assert_eq!(net.allocate("a"), "10.0.0.65");
    assert_eq!(counts(&net), [(0, 29), (0, 14)]);
}
