//! How fast the disk is: times small writes, each made durable, as the log makes them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fdatasync, open};
use rustix::io::Errno;

use super::Check;
use super::directory::nearest;
use crate::serve::cannot::READ_ONLY_HINT;

/// About one commit of a single allocation.
const WRITE_BYTES: usize = 512;
const WRITES_MAX: usize = 200;
/// Long enough to recognise a slow disk.
const MEASURED_FOR: Duration = Duration::from_secs(2);
/// A median above this means a rotating disk, or a busy one.
const SLOW: Duration = Duration::from_millis(10);
/// A median below this means that the data would not survive a power cut.
const IMPLAUSIBLE: Duration = Duration::from_micros(15);

/// Times of the writes, in ascending order.
pub(super) fn measure(directory: &Path) -> io::Result<Vec<Duration>> {
    // An unnamed file: a doctor that is killed leaves nothing behind.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(open(directory, flags, Mode::RUSR | Mode::WUSR)?);
    let length = (WRITES_MAX * WRITE_BYTES) as u64;
    // Like a segment of the log: zeroed and durable beforehand, so that a flush writes data only.
    let _ = fallocate(&file, FallocateFlags::empty(), 0, length);
    file.write_all_at(&vec![0; length as usize], 0)?;
    file.sync_all()?;
    let (mut times, begun) = (Vec::with_capacity(WRITES_MAX), Instant::now());
    for at in 0..WRITES_MAX {
        let one = Instant::now();
        file.write_all_at(&[1; WRITE_BYTES], (at * WRITE_BYTES) as u64)?;
        fdatasync(&file)?;
        times.push(one.elapsed());
        if begun.elapsed() > MEASURED_FOR {
            break;
        }
    }
    times.sort();
    Ok(times)
}

/// `times` must be sorted.
pub(super) fn quantile(times: &[Duration], share: f64) -> Duration {
    let at = (times.len() as f64 * share) as usize;
    times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// As people read it.
pub(super) fn ms(time: Duration) -> String {
    format!("{:.2} ms", 1_000.0 * time.as_secs_f64())
}

pub(super) fn check(directory: &Path) -> Check {
    match measure(&nearest(directory)) {
        Ok(times) => judged(&times),
        Err(error) => refused(&error),
    }
}

/// Why nothing was measured. A server writes to the same place, so what prevents this prevents its log, too.
fn refused(error: &io::Error) -> Check {
    let hint = match error.raw_os_error().map(Errno::from_raw_os_error) {
        // Some file systems have no unnamed files; rather than leave a file behind, nothing is measured.
        Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
            return Check::ok("disk", format!("its speed cannot be measured without leaving a file: {error}"));
        }
        Some(Errno::ROFS) => READ_ONLY_HINT,
        Some(Errno::NOSPC | Errno::DQUOT) => {
            "make room there (`df`, and quotas): with a full disk nothing is granted; granting resumes by itself when there is room"
        }
        Some(Errno::ACCESS | Errno::PERM) => "ask as the user of the server: `runuser -u allod -- allod doctor …`",
        _ => {
            "see what the kernel's log says about that disk (`journalctl -k`), and `ulimit -n`; while a server still answers, \
             `allod \
             export > register.jsonl` elsewhere before anything else"
        }
    };
    Check::wrong("disk", format!("it cannot be written: {error}"), hint)
}

fn judged(times: &[Duration]) -> Check {
    let (median, p99) = (quantile(times, 0.5), quantile(times, 0.99));
    let alone = 1.0 / median.as_secs_f64().max(1e-9);
    let seen = format!(
        "a write is durable after {} (median), {} (p99) of {}: one caller that waits for each answer gets {alone:.0} \
         allocations a second at most; callers together share a flush",
        ms(median),
        ms(p99),
        times.len(),
    );
    if median > SLOW {
        let hint = "every answer waits this long: use another disk (an SSD with power-loss protection), or take other load off \
         this one";
        return Check::warning("disk", seen, hint);
    }
    if median < IMPLAUSIBLE {
        let hint = "no disk is this fast: is it memory, or a cache that is lost in a power cut?";
        return Check::warning("disk", seen, hint);
    }
    Check::ok("disk", seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::doctor::CheckState;

    #[test]
    fn a_slow_disk_and_one_that_is_none_are_told() {
        let check = |micros: u64| judged(&vec![Duration::from_micros(micros); 100]);
        assert_eq!(
            [check(25_000).state, check(400).state, check(2).state],
            [CheckState::Warning, CheckState::Ok, CheckState::Warning]
        );
        assert!(check(400).seen.contains("2500 allocations a second"), "{:?}", check(400));
        let spread: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(
            (quantile(&spread, 0.5), quantile(&spread, 0.99)),
            (Duration::from_millis(51), Duration::from_millis(100))
        );
    }

    #[test]
    fn a_disk_that_cannot_be_written_is_not_ok_and_one_that_only_cannot_be_measured_is() {
        for errno in [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL, Errno::NOENT] {
            assert_eq!(refused(&errno.into()).state, CheckState::Ok, "{errno}");
        }
        for (errno, names) in [
            (Errno::ROFS, "stop the server first"),
            (Errno::IO, "`journalctl -k`"),
            (Errno::NOSPC, "make room"),
            (Errno::DQUOT, "quotas"),
            (Errno::ACCESS, "runuser -u allod"),
        ] {
            let check = refused(&errno.into());
            assert!(check.state == CheckState::Wrong && check.hint.contains(names), "{errno}: {check:?}");
        }
    }

    #[test]
    fn to_measure_a_disk_leaves_nothing_there() {
        let directory = tempfile::tempdir().unwrap();
        if let Ok(times) = measure(directory.path()) {
            assert!(!times.is_empty() && times.is_sorted());
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
