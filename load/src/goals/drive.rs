//! Makes the measurements of allod for the goals: a server of its own, a scenario under audit, and the comparison beside it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bare_set;
use super::probe::{Figure, Load, Reading, Size, Stock};
use crate::arrivals::{Rate, Spread};
use crate::control::Control;
use crate::driver::{Shape, Stop};
use crate::isolation::Isolation;
use crate::report::Report;
use crate::scenario::{Record, Settings};
use crate::session::Session;
use crate::target::{Backend, Flush, Redis, RedisCluster, Store, Target};

/// A prefix of networks that no measurement fills.
const LARGE: &str = "10.0.0.0/8";
/// The name of a scenario's first network.
const FIRST: &str = "load-00";
/// How many answers the clients must get before a hand-over, and after it.
const BEFORE_AND_AFTER: u64 = 200;
/// The space of reservations in Redis: the memory of their hashes in bytes, the bytes of the records in these, the number of
/// records, and the memory of the indexes in bytes.
const ROOM: &str = "local hashes, records, count, indexes = 0, 0, 0, 0 \
    local function used(key) return redis.call('MEMORY', 'USAGE', key, 'SAMPLES', '0') end \
    for _, key in ipairs(redis.call('KEYS', '{allod}:*')) do \
    if string.find(key, '^{allod}:%d+:[46]:') then hashes = hashes + used(key) \
    for _, record in ipairs(redis.call('HVALS', key)) do records, count = records + #record, count + 1 end \
    elseif string.find(key, '^{allod}:%d+:i[46]:') then indexes = indexes + used(key) end end \
    return string.format('%d %d %d %d', hashes, records, count, indexes)";
/// Batches of changes that Redis keeps.
const BATCHES: &str = "local count = 0 \
    for _, key in ipairs(redis.call('KEYS', '{allod}:*:log')) do count = count + redis.call('XLEN', key) end \
    return tostring(count)";

/// The server that only parses and serialises.
pub fn echo(size: &Size) -> io::Result<Reading> {
    Reading::of(&crate::echo::measure(size.shape(size.connections, size.depth), true)?)
}

/// Runs a scenario on a server of its own.
pub fn load(load: &Load, size: &Size) -> io::Result<Reading> {
    let shape = size.shape(size.connections, load.depth.of(size));
    let mut target = Target::start(load.backend)?;
    let mut reading = Reading::of(&run(load, shape, &mut target)?)?;
    if let Some(redis) = &target.redis {
        let batches = sums(redis, BATCHES)?;
        reading.figures.extend(batches.first().map(|&batches| (Figure::HistoryBatches, batches as f64)));
    }
    Ok(reading)
}

/// Runs a scenario on this server.
fn run(load: &Load, shape: Shape, target: &mut Target) -> io::Result<Report> {
    let settings = Settings {
        lanes: shape.lanes(),
        seed: shape.seed,
        brief: true,
        record: load.record,
        networks: Some(load.networks),
        lanes_per_network: load.keep_network.then_some(shape.depth),
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
    let redis = target.redis.as_ref().map(Redis::address).ok_or_else(no_redis)?;
    let bare = bare_set::measure(redis, size)?;
    let shape = size.shape(1, 1);
    let mut reading = Reading::of(&run(&Load::fill(Backend::redis(flush)), shape, &mut target)?)?;
    reading.figures.insert(Figure::BareP50Ms, bare.p50_ms);
    reading.figures.insert(Figure::BareP99Ms, bare.p99_ms);
    Ok(reading)
}

/// A closed loop, then an open loop at half of its rate.
pub fn half_rate(backend: Backend, size: &Size) -> io::Result<Reading> {
    let fill = Load { cidr: Some(LARGE.to_owned()), ..Load::fill(backend) };
    let shape = size.shape(size.connections, size.depth);
    let mut target = Target::start(backend)?;
    let closed = run(&fill, shape.clone(), &mut target)?;
    if Reading::of(&closed)?.faulty {
        return Ok(Reading::wrong());
    }
    let rate = Rate { per_second: (closed.per_second / 2.0).max(1.0), spread: Spread::Poisson };
    // A new server: on the old one, everything that it holds would have to be listed first.
    drop(target);
    let mut target = Target::start(backend)?;
    Reading::of(&run(&fill, Shape { rate: Some(rate), ..shape }, &mut target)?)
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
    // `Reading::of` reports faults, and the fault of one report counts whatever the others are.
    let readings: Vec<io::Result<Reading>> = found.reports().map(Reading::of).collect();
    if found.is_faulty() {
        return Ok(Reading::wrong());
    }
    readings.into_iter().collect::<io::Result<Vec<_>>>()?;
    Ok(Reading { figures: found.p99_ratio.map(|ratio| (Figure::P99Ratio, ratio)).into_iter().collect(), faulty: false })
}

/// Makes many reservations, ends the server, and measures how long it takes to become ready again.
///
/// The server is killed, except over Redis, where it is stopped in order: a new server waits for the name of a node that was
/// killed, and that wait is not loading.
pub fn restart(backend: Backend, size: &Size) -> io::Result<Reading> {
    let mut target = Target::start(backend)?;
    let shape = Shape { stop: Stop::Requests(size.reservations), ..size.shape(size.connections, size.depth) };
    let filled = run(&Load::fill(backend), shape, &mut target)?;
    if Reading::of(&filled)?.faulty {
        return Ok(Reading::wrong());
    }
    let mut reading = Reading::default();
    let ready = if target.redis.is_some() { target.stop_and_restart()? } else { target.kill_and_restart()? };
    reading.figures.insert(Figure::ReadySeconds, ready.as_secs_f64());
    let held = Control::connect(&target.servers)?.usage(FIRST)?.held;
    if held != u128::from(filled.held) {
        say!("allod-load: {} were held, and after the start {held}", filled.held);
        reading.faulty = true;
    }
    Ok(reading)
}

/// Makes many reservations over two nodes, and drains the owner of the register while a client at each node allocates
/// addresses, one request at a time. The figure is the longest wait of a client.
pub fn hand_over(size: &Size) -> io::Result<Reading> {
    let backend = Backend { nodes: 2, ..Backend::redis(Flush::Everysec) };
    let mut target = Target::start(backend)?;
    let shape = Shape { stop: Stop::Requests(size.reservations), ..size.shape(size.connections, size.depth) };
    let filled = run(&Load::fill(backend), shape, &mut target)?;
    if Reading::of(&filled)?.faulty {
        return Ok(Reading::wrong());
    }
    let mut reading = Reading::default();
    let mut control = Control::connect(&target.servers)?;
    let nodes = control.call("cluster.nodes", &json!({}))?;
    let is_owner = |node: &&Value| node["owner"] == true;
    let owner = nodes["nodes"].as_array().and_then(|nodes| nodes.iter().find(is_owner));
    let owner = owner.map(|node| node["name"].clone()).ok_or_else(|| io::Error::other("no node owns the register"))?;
    let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let longest = std::thread::scope(|scope| {
        let (is_over, answers) = (&is_over, &answers);
        let wait = |&server: &SocketAddr| scope.spawn(move || longest_wait(server, is_over, answers));
        let waits: Vec<_> = target.servers.iter().map(wait).collect();
        let drained = until_answered(&mut control, answers, &waits)
            .and_then(|()| control.call("cluster.drain", &json!({"node": owner})))
            .and_then(|_| until_answered(&mut control, answers, &waits));
        is_over.store(true, Ordering::Relaxed);
        let ended =
            waits.into_iter().map(|wait| wait.join().map_err(|_| io::Error::other("a client ended in a panic"))?);
        let longest = ended.collect::<io::Result<Vec<Duration>>>();
        drained.and(longest)
    })?;
    let longest = longest.into_iter().max().unwrap_or_default();
    reading.figures.insert(Figure::PauseSeconds, longest.as_secs_f64());
    Ok(reading)
}

/// Pings until the clients have had some more answers, or one of them has ended.
fn until_answered<T>(control: &mut Control, answers: &AtomicU64, waits: &[ScopedJoinHandle<'_, T>]) -> io::Result<()> {
    let goal = answers.load(Ordering::Relaxed) + BEFORE_AND_AFTER;
    while answers.load(Ordering::Relaxed) < goal && !waits.iter().any(ScopedJoinHandle::is_finished) {
        control.call("server.ping", &json!({}))?;
    }
    Ok(())
}

/// Allocates addresses until `is_over`, counts the answers, and returns how long the slowest took.
fn longest_wait(server: SocketAddr, is_over: &AtomicBool, answers: &AtomicU64) -> io::Result<Duration> {
    let mut control = Control::connect(&[server])?;
    let mut longest = Duration::ZERO;
    for n in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let begun = Instant::now();
        control.call("ip.allocate", &json!({"network": FIRST, "owner": format!("beside-{}-{n}", server.port())}))?;
        longest = longest.max(begun.elapsed());
        answers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(longest)
}

/// Makes many reservations, and measures the space of each in Redis, without history.
pub fn room(stock: Stock, size: &Size) -> io::Result<Reading> {
    let mut target = Target::start(Backend::redis(Flush::Off))?;
    let shape = size.shape(size.connections, size.depth);
    let mut load = Load::fill(Backend::redis(Flush::Off));
    load.record = Record::TYPICAL;
    let mut requests = size.reservations;
    match stock {
        Stock::Dense => {}
        Stock::Sparse => (load.cidr, load.policy) = (Some("2001:db8::/64".to_owned()), Some("random")),
        Stock::Oldest => {
            // Each lane exchanges its oldest address for another, until all have been replaced.
            load.policy = Some("oldest");
            load.hold = Some((size.reservations as usize).div_ceil(shape.lanes()));
            requests = size.reservations * 3;
        }
        Stock::Labels => load.record = Record::LABELLED,
        Stock::Leases => load.record = Record::LEASED,
    }
    let filled = run(&load, Shape { stop: Stop::Requests(requests), ..shape }, &mut target)?;
    if Reading::of(&filled)?.faulty {
        return Ok(Reading::wrong());
    }
    let redis = target.redis.as_ref().ok_or_else(no_redis)?;
    let found = sums(redis, ROOM)?;
    let &[hashes, records, count, indexes] = &found[..] else {
        return Err(io::Error::other(format!("Redis tells no room: {found:?}")));
    };
    if count != filled.held || count == 0 {
        return Err(io::Error::other(format!("{} are held, and in Redis there are {count} records", filled.held)));
    }
    let each = |bytes: u64| bytes as f64 / count as f64;
    let (hashes, indexes) = (each(hashes.saturating_sub(records)), each(indexes));
    let figures = BTreeMap::from([
        (Figure::BytesOver, hashes + indexes),
        (Figure::HashBytesOver, hashes),
        (Figure::IndexBytes, indexes),
        (Figure::RecordBytes, each(records)),
    ]);
    Ok(Reading { figures, faulty: false })
}

/// Several registers, each on its own primary of one Redis Cluster, with its own node and load, all at the same time.
pub fn primaries(count: usize, size: &Size) -> io::Result<Reading> {
    let cluster = RedisCluster::start(count, Flush::Everysec)?;
    let targets = (0..count).map(|primary| Target::on_primary(&cluster, primary)).collect::<io::Result<Vec<_>>>()?;
    let fill = |mut target: Target| {
        let shape = size.shape(size.connections, size.depth);
        Reading::of(&run(&Load::fill(Backend::redis(Flush::Everysec)), shape, &mut target)?)
    };
    let readings: Vec<io::Result<Reading>> = std::thread::scope(|scope| {
        let loads: Vec<_> = targets.into_iter().map(|target| scope.spawn(|| fill(target))).collect();
        let ended =
            loads.into_iter().map(|load| load.join().map_err(|_| io::Error::other("a load ended in a panic"))?);
        ended.collect()
    });
    // A fault of one server counts, whatever the others did.
    if readings.iter().flatten().any(|reading| reading.faulty) {
        return Ok(Reading::wrong());
    }
    let readings = readings.into_iter().collect::<io::Result<Vec<_>>>()?;
    cluster.check_registers()?;
    let rates = readings.iter().filter_map(|reading| reading.figures.get(&Figure::PerSecond));
    let figures = BTreeMap::from([(Figure::PerSecond, rates.sum()), (Figure::Registers, readings.len() as f64)]);
    Ok(Reading { figures, faulty: false })
}

fn no_redis() -> io::Error {
    io::Error::other("there is no Redis below the server")
}

/// The numbers in the answer of a script.
fn sums(redis: &Redis, script: &str) -> io::Result<Vec<u64>> {
    let answer = redis.call(&["EVAL", script, "0"])?;
    let numbers: Result<Vec<u64>, _> = answer.split(' ').map(str::parse).collect();
    numbers.map_err(|error| io::Error::other(format!("Redis answered `{answer}`: {error}")))
}
