//! The progress of long work, on stderr and only on a terminal. Short work shows nothing.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bar that appears when the work takes long, and disappears when it is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    /// Progress towards a known end.
    pub fn towards(what: &'static str, total: u64) -> Self {
        Self::new(ProgressBar::new(total), what, "{msg} {wide_bar} {pos}/{len} ({eta} left)")
    }

    /// Progress in bytes, whose total is set later.
    pub fn bytes(what: &'static str) -> Self {
        Self::new(ProgressBar::new(0), what, "{msg} {wide_bar} {bytes}/{total_bytes} ({eta} left)")
    }

    /// Progress without a known end.
    pub fn spinner(what: &'static str) -> Self {
        Self::new(ProgressBar::no_length(), what, "{spinner} {msg} {pos}")
    }

    fn new(bar: ProgressBar, what: &'static str, template: &str) -> Self {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        // The templates are constants; one that does not parse would only affect the looks.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self { bar, started: Instant::now() }
    }

    /// Sets the amount done and the total.
    pub fn at_of(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.at(done);
    }

    /// Sets the amount done.
    pub fn at(&self, done: u64) {
        if self.bar.is_hidden() && self.started.elapsed() > PATIENCE {
            // If stderr is not a terminal, the bar stays hidden.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
