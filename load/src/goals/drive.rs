//! How allod is measured for a goal: a server of its own, a scenario under audit, and what stands beside it.

use std::collections::BTreeMap;
use std::io;

use super::bare_set;
use super::probe::{Figure, Load, Reading, Size};
use crate::arrivals::{Rate, Spread};
use crate::control::Control;
use crate::driver::{Shape, Stop};
use crate::isolation::Isolation;
use crate::report::Report;
use crate::scenario::Settings;
use crate::session::Session;
use crate::target::{Backend, Flush, Redis, Store, Target};

/// Prefix of networks that no measurement fills.
const LARGE: &str = "10.0.0.0/8";
/// The name of a scenario's first network.
const FIRST: &str = "load-00";
/// Sums of the buckets of IPv4 records and of their indexes: bytes of memory, bytes of the records, and how many.
const ROOM: &str = "local used, bytes, count = 0, 0, 0 \
    for _, key in ipairs(redis.call('KEYS', '{allod}:*:4:*')) do \
    used = used + redis.call('MEMORY', 'USAGE', key, 'SAMPLES', '0') \
    for _, record in ipairs(redis.call('HVALS', key)) do bytes, count = bytes + #record, count + 1 end end \
    for _, key in ipairs(redis.call('KEYS', '{allod}:*:i4:*')) do \
    used = used + redis.call('MEMORY', 'USAGE', key, 'SAMPLES', '0') end \
    return string.format('%d %d %d', used, bytes, count)";

/// The server that only parses and serialises.
pub fn echo(size: &Size) -> io::Result<Reading> {
    Reading::of(&crate::echo::measure(size.shape(size.connections, size.depth), true)?)
}

/// A scenario on a server of its own.
pub fn load(load: &Load, size: &Size) -> io::Result<Reading> {
    let shape = size.shape(size.connections, load.depth.of(size));
    let mut target = Target::start(load.backend)?;
    Reading::of(&run(load, shape, 0, &mut target)?)
}

/// A scenario on this server; the seed makes its owners others than those of an earlier one.
fn run(load: &Load, shape: Shape, seed: u32, target: &mut Target) -> io::Result<Report> {
    let settings = Settings {
        lanes: shape.lanes(),
        seed,
        brief: true,
        networks: Some(load.networks),
        cidr: load.cidr.clone(),
        policy: load.policy.map(str::to_owned),
        prefill: load.prefill,
        fill_level: load.fill_level,
        hold: load.hold,
        ..Settings::default()
    };
    Session::unattended(&load.scenario.text(), shape).run(load.scenario.build(&settings), target)
}

/// SET and then allod on one Redis, one connection and one request at a time.
pub fn beside_set(flush: Flush, size: &Size) -> io::Result<Reading> {
    let mut target = Target::start(Backend::redis(flush))?;
    let redis = target.redis.as_ref().map(Redis::address);
    let redis = redis.ok_or_else(|| io::Error::other("there is no Redis below the server"))?;
    let bare = bare_set::measure(redis, size)?;
    let shape = size.shape(1, 1);
    let mut reading = Reading::of(&run(&Load::fill(Backend::redis(flush)), shape, 0, &mut target)?)?;
    reading.figures.insert(Figure::BareP50Ms, bare.p50_ms);
    reading.figures.insert(Figure::BareP99Ms, bare.p99_ms);
    Ok(reading)
}

/// As fast as it goes, then an open loop at half of that rate on the same server.
pub fn half_rate(backend: Backend, size: &Size) -> io::Result<Reading> {
    let fill = Load { cidr: Some(LARGE.to_owned()), ..Load::fill(backend) };
    let shape = size.shape(size.connections, size.depth);
    let mut target = Target::start(backend)?;
    let closed = run(&fill, shape.clone(), 0, &mut target)?;
    let most = Reading::of(&closed)?;
    let rate = Rate { per_second: (closed.per_second / 2.0).max(1.0), spread: Spread::Poisson };
    // On a server of its own: what is held already would have to be listed first.
    drop(target);
    let mut target = Target::start(backend)?;
    let mut reading = Reading::of(&run(&fill, Shape { rate: Some(rate), ..shape }, 0, &mut target)?)?;
    reading.faulty |= most.faulty;
    Ok(reading)
}

/// The p99 of one network alone, and beside a flood of another.
pub fn flood(size: &Size) -> io::Result<Reading> {
    let isolation = Isolation {
        target: Target::start(Backend::of(Store::Embedded))?,
        connections: size.connections,
        depth: size.depth,
        seconds: size.seconds.ceil() as u64,
        cidr: LARGE.to_owned(),
        seed: 0,
    };
    let found = isolation.run()?;
    for report in [&found.alone, &found.flood, &found.beside] {
        // It tells of faults.
        Reading::of(report)?;
    }
    Ok(Reading { figures: BTreeMap::from([(Figure::P99Ratio, found.p99_ratio)]), faulty: found.is_faulty() })
}

/// Many reservations are made, the server is ended, and started again: how long until it is ready, and what they take in Redis.
///
/// It is killed, but over Redis ended in order: the name of a node that was killed is waited for, and that is not loading.
pub fn restart(backend: Backend, size: &Size) -> io::Result<Reading> {
    let mut target = Target::start(backend)?;
    let shape = Shape { stop: Stop::Requests(size.reservations), ..size.shape(size.connections, size.depth) };
    let filled = run(&Load::fill(backend), shape, 0, &mut target)?;
    let mut reading = Reading { faulty: Reading::of(&filled)?.faulty, ..Reading::default() };
    let ready = if target.redis.is_some() { target.stop_and_restart()? } else { target.kill_and_restart()? };
    reading.figures.insert(Figure::ReadySeconds, ready.as_secs_f64());
    let held = Control::connect(&target.servers)?.usage(FIRST)?.held;
    if held != filled.held {
        eprintln!("allod-load: {} were held, and after the start {held}", filled.held);
        reading.faulty = true;
    }
    if let Some(redis) = &target.redis {
        reading.figures.insert(Figure::BytesOver, bytes_over(redis, held)?);
    }
    Ok(reading)
}

/// Bytes of memory that a reservation takes in Redis beyond those of its record: what hashes and index need.
fn bytes_over(redis: &Redis, held: u64) -> io::Result<f64> {
    let answer = redis.call(&["EVAL", ROOM, "0"])?;
    let sums: Vec<u64> = answer.split(' ').filter_map(|sum| sum.parse().ok()).collect();
    match sums[..] {
        [used, records, count] if count == held && held > 0 => Ok((used as f64 - records as f64) / held as f64),
        _ => Err(io::Error::other(format!(
            "{held} are held, and in Redis there are (bytes, of records, records) {answer}"
        ))),
    }
}
