//! The display of a run on a terminal: rate, latencies, refusals, faults, and fill.
//!
//! A thread of its own draws what the meter hands over; a slow terminal misses windows and delays nothing.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use rustix::termios::tcgetwinsize;

use crate::meter::{Display, Glance, Shown};

/// Windows in the curve of the rate.
const CURVE: usize = 48;
/// Cells in the bar of the fill.
const BAR: usize = 24;
/// Windows that may wait to be drawn.
const WAITING: usize = 4;

/// A display that draws until it is dropped.
pub struct Live {
    sender: Display,
    thread: Option<JoinHandle<()>>,
}

/// Is standard error a terminal that can show the display?
pub fn is_watched() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

impl Live {
    /// Starts to draw on standard error.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(scenario: &str, target: &str) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let title = format!("{scenario}, {target}");
        let draw = move || draw(&title, &receiver);
        let thread = std::thread::Builder::new().name("live".into()).spawn(draw)?;
        Ok(Self { sender, thread: Some(thread) })
    }

    /// Where windows are handed over.
    pub fn sender(&self) -> Display {
        self.sender.clone()
    }

    /// Shows the current step of the preparation; an empty text when measuring begins.
    pub fn doing(&self, what: &str) {
        // A display that is behind misses this one, and shows the next.
        let _ = self.sender.try_send(Shown::Doing(what.to_owned()));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Sending fails only if the display has ended by itself. Dropping the sender would not end it: the meter has a
        // sender too.
        let _ = self.sender.send(Shown::Over);
        if let Some(thread) = self.thread.take() {
            // A display that panicked has reported that itself.
            let _ = thread.join();
        }
    }
}

fn draw(title: &str, receiver: &Receiver<Shown>) {
    let mut screen = Screen::new(title);
    let mut out = io::stderr();
    let mut drawn = 0;
    loop {
        match receiver.recv() {
            Ok(Shown::Doing(what)) => screen.begin(what),
            Ok(Shown::Window(glance)) => screen.note(glance),
            Ok(Shown::Over) | Err(_) => return,
        }
        // If the terminal wrapped a line, the cursor would have to go back over two.
        let columns = tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_col));
        let text: String = screen.text().lines().map(|line| cut(line, columns) + "\n").collect();
        // Back to where the last drawing began, and clear from there.
        let back = if drawn > 0 { format!("\x1b[{drawn}A\x1b[J") } else { String::new() };
        drawn = text.lines().count();
        if write!(out, "{back}{text}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}

/// What the display shows.
struct Screen {
    title: String,
    /// The current step of the preparation.
    doing: String,
    rates: VecDeque<f64>,
    latest: Option<Glance>,
}

/// The line, cut to the width if that is known; escape sequences for colours take no width.
fn cut(line: &str, columns: usize) -> String {
    if columns == 0 {
        return line.to_owned();
    }
    let (mut shown, mut in_escape) = (0, false);
    let fits = |c: &char| {
        in_escape |= *c == '\x1b';
        let is_shown = !in_escape;
        in_escape &= *c != 'm';
        shown += usize::from(is_shown);
        !is_shown || shown < columns
    };
    line.chars().filter(fits).collect()
}

impl Screen {
    fn new(title: &str) -> Self {
        Self { title: title.to_owned(), doing: String::new(), rates: VecDeque::new(), latest: None }
    }

    fn begin(&mut self, what: String) {
        (self.doing, self.latest) = (what, None);
        self.rates.clear();
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
        let doing = if self.doing.is_empty() { String::new() } else { format!(": {}", self.doing) };
        let Some(glance) = &self.latest else {
            return if doing.is_empty() { String::new() } else { format!("\x1b[1m{}\x1b[0m{doing}\n", self.title) };
        };
        let ms = |value: Option<f64>| value.map_or_else(|| format!("{:>9} ", "–"), |ms| format!("{ms:>9.3} "));
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
            "\x1b[1m{}\x1b[0m{doing}  {:.1} s\n\
             rate     {:>10.0}/s  {}\n\
             now      p50 {}ms  p99 {}ms  max {}ms\n\
             overall  p50 {:>9.3} ms  p99 {:>9.3} ms  p99.9 {:>7.3} ms  max {:>9.3} ms\n\
             answers  {}, {} refused, {faults}{waiting}\n\
             fill     {bar} {:.1} %  {} held\n",
            self.title,
            window.at_seconds,
            rate,
            curve(&self.rates),
            ms(window.p50_ms),
            ms(window.p99_ms),
            ms(window.max_ms),
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

/// A line of bars; the highest rate is a full bar.
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
            p50_ms: Some(0.25),
            p99_ms: Some(1.5),
            max_ms: Some(3.0),
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

    #[test]
    fn before_measuring_one_line_says_what_is_done() {
        let mut screen = Screen::new("mixed, allod");
        screen.begin("making networks, 20 of 300".to_owned());
        assert_eq!(screen.text(), "\x1b[1mmixed, allod\x1b[0m: making networks, 20 of 300\n");
        screen.begin(String::new());
        assert_eq!(screen.text(), "");
    }

    #[test]
    fn a_line_is_cut_where_the_terminal_ends_and_colours_take_no_room() {
        let line = "\x1b[1;31m2 FAULTS\x1b[0m, and more";
        assert_eq!(cut(line, 9), "\x1b[1;31m2 FAULTS\x1b[0m");
        assert_eq!((cut(line, 0), cut(line, 80)), (line.to_owned(), line.to_owned()));
        assert_eq!(cut("▁▂▃▄", 3), "▁▂");
    }
}
