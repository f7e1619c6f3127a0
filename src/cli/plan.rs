//! `allod plan`: how large a machine a register needs. The figures and their origin are in `serve::sizing`.

use clap::Args;
use serde_json::{Map, json};

use super::args;
use super::exit::Exit;
use super::output::table::{Table, wrapped};
use super::output::{Format, print};
use super::serve_args::StoreKind;
use super::session::{Done, Options, Session};
use super::time::lasting;
use crate::core::address::Family;
use crate::serve::from_cli::{Bytes, RegisterSize, Sizing};

/// `allod plan`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Plan {
    /// Networks
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = count)]
    networks: u64,
    /// Reservations that are held at the same time
    #[arg(long, value_name = "COUNT", value_parser = count)]
    reservations: u64,
    /// Which store keeps the register: embedded, redis or memory
    #[arg(long, value_enum, hide_possible_values = true, default_value = "embedded")]
    store: StoreKind,
    /// Grants in a second, day and night; as many are released [default: only those of the reservations]
    #[arg(long, value_name = "RATE", default_value_t = 0.0, hide_default_value = true, value_parser = rate)]
    allocations_per_second: f64,
    /// 4 or 6
    #[arg(long, value_name = "FAMILY", default_value = "4", value_parser = family)]
    family: Family,
    /// How long history is kept (history.keep_seconds)
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = args::seconds, allow_hyphen_values = true)]
    history: u64,
    /// How much of it is kept (history.keep_bytes), as 5GiB [default: 10 GiB of files, 1 GiB in Redis]
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true, value_parser = size)]
    history_bytes: u64,
}

/// More than any register has.
const COUNT_MAX: u64 = 1_000_000_000_000;

const AFTER_HELP: &str = "\
No server is asked. Bytes were measured with owners of 24 characters and are
nearly the same everywhere; processors are those of a virtual machine with two
of an Intel Xeon, so measure yours: allod-load. `at most` is while a snapshot is
made, a register is handed over, or Redis rewrites its file.";

fn family(text: &str) -> Result<Family, String> {
    match text {
        "4" => Ok(Family::V4),
        "6" => Ok(Family::V6),
        _ => Err("is 4 or 6".to_owned()),
    }
}

/// A number with a unit or exponent.
fn times(text: &str, units: &[(&str, u64)], most: u64) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let exponent =
        || unit.strip_prefix(['e', 'E'])?.parse::<u32>().ok().and_then(|exponent| 10u64.checked_pow(exponent));
    let unit = unit.trim_start();
    let known = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|&(_, times)| times);
    let times = if unit.is_empty() { 1 } else { known.or_else(exponent)? };
    // A whole number is not rounded.
    let product = match number.parse::<u64>() {
        Ok(number) => number.checked_mul(times)?,
        Err(_) => (number.parse::<f64>().ok()? * times as f64).round() as u64,
    };
    (product <= most).then_some(product)
}

fn count(text: &str) -> Result<u64, String> {
    let units = [("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
    times(text, &units, COUNT_MAX).ok_or_else(|| format!("is a number as 1000000, 1M or 1e6, up to {COUNT_MAX}"))
}

fn size(text: &str) -> Result<u64, String> {
    let units = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    times(text, &units, u64::MAX).ok_or_else(|| "is a number of bytes as 5368709120, 5GiB or 5GB".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "is a number, for example 250".to_owned())?;
    if (0.0..=1e9).contains(&rate) { Ok(rate) } else { Err("is 0 to 1000000000".to_owned()) }
}

/// Computes and prints the plan.
pub fn run(args: &Plan, options: Options) -> Done<Exit> {
    let session = Session::new(options);
    let mut wish = RegisterSize::new(args.networks, args.reservations, args.store.set());
    wish.allocations_per_second = args.allocations_per_second;
    wish.family = args.family;
    (wish.history_seconds, wish.history_bytes) = (args.history, args.history_bytes);
    let sizing = wish.sizing();
    if session.options.style.format == Format::Table {
        print(&text(&wish, &sizing))?;
    } else {
        session.print("plan", &Map::new(), &json!({"wish": wish, "sizing": sizing}))?;
    }
    Ok(Exit::Success)
}

/// A size in at most three digits, with a unit.
fn bytes(count: u64) -> String {
    let (unit, size) = match count {
        0..1_000_000_000 => ("MB", 1e6),
        1_000_000_000..1_000_000_000_000 => ("GB", 1e9),
        _ => ("TB", 1e12),
    };
    let count = count as f64 / size;
    if count < 10.0 { format!("{count:.1} {unit}") } else { format!("{count:.0} {unit}") }
}

fn text(wish: &RegisterSize, sizing: &Sizing) -> String {
    let mut table = Table::new(&["WHAT", "#USUAL", "#AT MOST", "WHEN"]);
    let mut row = |what: &str, of: Bytes, when: &str| {
        table.row(vec![what.to_owned(), bytes(of.usual), bytes(of.most), when.to_owned()]);
    };
    let over_redis = sizing.redis_memory.is_some();
    let in_memory = wish.store == StoreKind::Memory.set();
    let when = match (over_redis, in_memory) {
        (true, _) => "the register is handed over",
        (false, true) => "always",
        (false, false) => "a snapshot is made",
    };
    row(if over_redis { "memory of each node" } else { "memory" }, sizing.memory, when);
    if sizing.disk != Bytes::default() {
        row("disk", sizing.disk, when);
    }
    if let (Some(memory), Some(disk)) = (sizing.redis_memory, sizing.redis_disk) {
        row("memory of Redis", memory, "it rewrites its file");
        row("disk of Redis", disk, "it rewrites its file");
    }
    let mut text = table.render(None);
    text.push('\n');
    let mut say = |line: String| text.push_str(&format!("{}\n", wrapped(&line, 78, 2)));
    let (history, reaches) = (bytes(sizing.history), lasting(sizing.history_reaches_seconds));
    if in_memory {
        say(format!("history: {history} of what is above; it reaches back {reaches}, and no further than the start"));
    } else if sizing.history_reaches_seconds < wish.history_seconds {
        say(format!("history: {history}, and reaches back {reaches} only: `history.keep_bytes` is full by then"));
    } else {
        say(format!("history: {history} of what is above; it reaches back {reaches}"));
    }
    let percent = |share: f64| format!("{:.0} %", (100.0 * share).ceil());
    if wish.allocations_per_second > 0.0 {
        let redis = sizing
            .redis_processor
            .map_or_else(String::new, |share| format!(", Redis {} of the one that it can use", percent(share)));
        say(format!("processors: the server {} of one{redis}", percent(sizing.processors)));
        say(format!("network: {} a second between clients and server", bytes(sizing.network_per_second)));
        if sizing.redis_processor.is_some_and(|share| share > 0.7) {
            say("that is too much for one Redis: divide the networks over several registers".to_owned());
        }
    }
    if in_memory {
        say("everything is lost when the server ends; a start begins with nothing".to_owned());
    } else {
        say(format!("a start reads all of it: {:.1} s", sizing.start_seconds.max(0.1)));
    }
    if over_redis {
        say("set `maxmemory` of Redis to no less than its usual memory and a fifth more, and give its machine what it takes at \
         most".to_owned());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_what_it_takes_and_what_is_too_much() {
        let wish = RegisterSize {
            allocations_per_second: 200_000.0,
            ..RegisterSize::new(10, 1_000_000, StoreKind::Redis.set())
        };
        let shown = text(&wish, &wish.sizing());
        for line in ["memory of each node", "memory of Redis", "reaches back", "too much for one Redis", "maxmemory"] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        let wish = RegisterSize::new(10, 1_000_000, StoreKind::Embedded.set());
        let shown = text(&wish, &wish.sizing());
        assert!(
            shown.contains("a snapshot is made") && !shown.contains("Redis") && !shown.contains("processors"),
            "{shown}"
        );
    }

    #[test]
    fn a_register_in_memory_has_no_snapshots_and_begins_with_nothing() {
        let wish = RegisterSize::new(10, 1_000_000, StoreKind::Memory.set());
        let shown = text(&wish, &wish.sizing());
        assert!(!shown.contains("snapshot") && !shown.contains("reads all"), "{shown}");
        assert!(shown.contains("and no further than") && shown.contains("lost when the server ends"), "{shown}");
    }

    #[test]
    fn bytes_are_written_as_people_read_them() {
        let shown = [999_999, 12_345_678, 1_500_000_000, 2_000_000_000_000].map(bytes);
        assert_eq!(shown, ["1.0 MB", "12 MB", "1.5 GB", "2.0 TB"]);
        assert!(family("5").is_err() && rate("-1").is_err() && rate("1e3").is_ok());
    }
    #[test]
    fn counts_and_sizes_are_taken_as_people_write_them_and_else_it_is_said_how() {
        for (text, is) in [("1000000", 1_000_000), ("1M", 1_000_000), ("1e6", 1_000_000), ("2.5k", 2_500), ("0", 0)] {
            assert_eq!(count(text), Ok(is), "{text}");
        }
        for (text, is) in [("5GiB", 5 << 30), ("5 GB", 5_000_000_000), ("5368709120", 5 << 30), ("1.5kib", 1_536)] {
            assert_eq!(size(text), Ok(is), "{text}");
        }
        for text in ["", "M", "1X", "-1", "1e99", "many", "2e12", "1.2.3"] {
            assert!(count(text).unwrap_err().contains("1M or 1e6"), "{text}");
        }
        for text in ["", "GiB", "5GiBs", "99999999999TiB", "1M"] {
            assert!(size(text).unwrap_err().contains("5GiB or 5GB"), "{text}");
        }
    }
}
