//! The display of a run on a terminal: rate, latencies, refusals and faults, fill.
//!
//! A thread of its own draws what the meter hands over; a slow terminal misses windows and delays nobody.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::meter::Glance;

/// Windows that the curve of the rate shows.
const CURVE: usize = 48;
/// Cells of the bar of the fill.
const BAR: usize = 24;
/// Windows that may wait to be drawn.
const WAITING: usize = 4;

/// A display that draws until it is dropped.
pub struct Live {
    /// Nothing means that the run is over.
    sender: SyncSender<Option<Glance>>,
    thread: Option<JoinHandle<()>>,
}

/// Is there somebody to look at it?
pub fn is_watched() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

impl Live {
    /// Begins to draw on standard error.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start(scenario: &str, target: &str) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let title = format!("{scenario}, {target}");
        let draw = move || draw(&title, &receiver);
        let thread = std::thread::Builder::new().name("live".into()).spawn(draw)?;
        Ok(Self { sender, thread: Some(thread) })
    }

    /// Where windows are handed over.
    pub fn sender(&self) -> SyncSender<Option<Glance>> {
        self.sender.clone()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // It fails only where the display has ended by itself. Closing would not do: the meter has a sender too.
        let _ = self.sender.send(None);
        if let Some(thread) = self.thread.take() {
            // A display that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn draw(title: &str, receiver: &Receiver<Option<Glance>>) {
    let mut screen = Screen::new(title);
    let mut out = io::stderr();
    let mut drawn = 0;
    while let Ok(Some(glance)) = receiver.recv() {
        screen.note(glance);
        let text = screen.text();
        // Back to where the last drawing began, and clear from there on.
        let back = if drawn > 0 { format!("\x1b[{drawn}A\x1b[J") } else { String::new() };
        drawn = text.lines().count();
        if write!(out, "{back}{text}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// What is shown.
struct Screen {
    title: String,
    rates: VecDeque<f64>,
    latest: Option<Glance>,
}

impl Screen {
    fn new(title: &str) -> Self {
        Self { title: title.to_owned(), rates: VecDeque::new(), latest: None }
    }

    fn note(&mut self, glance: Glance) {
        if glance.window.seconds > 0.0 {
            self.rates.push_back(glance.window.answers as f64 / glance.window.seconds);
        }
        if self.rates.len() > CURVE {
            self.rates.pop_front();
        }
        self.latest = Some(glance);
    }

    fn text(&self) -> String {
        let Some(glance) = &self.latest else { return String::new() };
        let window = &glance.window;
        let rate = self.rates.back().copied().unwrap_or(0.0);
        let full = (window.fill.clamp(0.0, 1.0) * BAR as f64).round() as usize;
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(BAR - full));
        let faults = match glance.faults {
            0 => "no faults".to_owned(),
            count => format!("\x1b[1;31m{count} FAULTS\x1b[0m"),
        };
        let waiting =
            if glance.waiting > 0 { format!(", {} waiting to be sent", glance.waiting) } else { String::new() };
        format!(
            "\x1b[1m{}\x1b[0m  {:.1} s\n\
             rate     {:>10.0}/s  {}\n\
             now      p50 {:>9.3} ms  p99 {:>9.3} ms  max {:>9.3} ms\n\
             overall  p50 {:>9.3} ms  p99 {:>9.3} ms  p99.9 {:>7.3} ms  max {:>9.3} ms\n\
             answers  {}, {} refused, {faults}{waiting}\n\
             fill     {bar} {:.1} %  {} held\n",
            self.title,
            window.at_seconds,
            rate,
            curve(&self.rates),
            window.p50_ms,
            window.p99_ms,
            window.max_ms,
            glance.p50_ms,
            glance.p99_ms,
            glance.p999_ms,
            glance.max_ms,
            glance.answers,
            glance.refused,
            window.fill * 100.0,
            window.held,
        )
    }
}

/// A line of bars; the highest is full.
fn curve(rates: &VecDeque<f64>) -> String {
    let most = rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let bars = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    rates.iter().map(|rate| bars[((rate / most * 7.0).round() as usize).min(7)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Window;

    #[test]
    fn the_screen_shows_rate_latency_fill_and_faults() {
        let window = Window {
            at_seconds: 1.0,
            seconds: 0.5,
            answers: 500,
            refused: 7,
            p50_ms: 0.25,
            p99_ms: 1.5,
            max_ms: 3.0,
            held: 120,
            fill: 0.5,
        };
        let overall = (2.0, 3.5, 4.5, 9.75);
        let (p50_ms, p99_ms, p999_ms, max_ms) = overall;
        let glance =
            Glance { window, answers: 1_234, refused: 7, faults: 2, p50_ms, p99_ms, p999_ms, max_ms, waiting: 11 };
        let mut screen = Screen::new("mixed, allod");
        screen.note(Glance { window: Window { answers: 250, ..glance.window.clone() }, ..glance.clone() });
        screen.note(glance);
        let text = screen.text();
        for shown in [
            "mixed, allod",
            "1000/s",
            "▅█",
            "0.250 ms",
            "9.750 ms",
            "1234, 7 refused",
            "2 FAULTS",
            "11 waiting",
            "50.0 %",
            "120 held",
        ] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert_eq!(text.matches('█').count(), 1 + BAR / 2);
    }
}
