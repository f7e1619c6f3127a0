//! Reads the system's figures of a process.

use std::io;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

/// Processor time that a process has used so far, in all its threads.
///
/// # Errors
/// There is no such process, or the system gives no figures.
pub fn processor_time(process: u32) -> io::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let ticks = ticks_of(&stat)
        .ok_or_else(|| io::Error::other(format!("/proc/{process}/stat tells no processor time: {stat}")))?;
    Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// `utime + stime` of a line of `/proc/PID/stat`. The name in parentheses may contain any character.
fn ticks_of(stat: &str) -> Option<u64> {
    let mut times = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_of_a_process_is_found() {
        let stat = "7 (a) b c) S 1 2 3 4 5 6 7 8 9 10 250 17 11 12";
        assert_eq!(ticks_of(stat), Some(267));
        assert!(processor_time(std::process::id()).is_ok());
    }
}
