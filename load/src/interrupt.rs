//! Ctrl-C, SIGTERM, and SIGHUP where a terminal goes: noticed, and told to whoever asks. A run that is ended so says what it has found until then, and what
//! was started for it is ended with it.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal as signals};

/// The first signal, as its number; 0 is none. And how many came.
static FIRST: AtomicU8 = AtomicU8::new(0);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// How often whoever waits for something else looks whether a signal came.
const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// A signal that ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal(u8);

impl Signal {
    const HANGUP: Self = Self(1);
    const INTERRUPT: Self = Self(2);
    const TERMINATE: Self = Self(15);

    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::HANGUP => "SIGHUP",
            Self::INTERRUPT => "Ctrl-C",
            _ => "SIGTERM",
        }
    }

    /// The exit code of a program that was ended by it, as shells tell it.
    pub fn exit_code(self) -> u8 {
        128 + self.0
    }
}

/// Notices these signals from now on, in a thread of its own.
///
/// # Errors
/// The system has no thread or no signal left.
pub fn watch() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (mut hangups, mut interrupts, mut terminations) = {
        let _inside = runtime.enter();
        (signals(SignalKind::hangup())?, signals(SignalKind::interrupt())?, signals(SignalKind::terminate())?)
    };
    let watch = async move {
        loop {
            let Signal(number) = tokio::select! {
                Some(()) = hangups.recv() => Signal::HANGUP,
                Some(()) = interrupts.recv() => Signal::INTERRUPT,
                Some(()) = terminations.recv() => Signal::TERMINATE,
                else => return,
            };
            // The first one stays.
            let _ = FIRST.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(watch))?;
    Ok(())
}

/// The signal that came, if one did.
pub fn signal() -> Option<Signal> {
    match FIRST.load(Ordering::Relaxed) {
        0 => None,
        number => Some(Signal(number)),
    }
}

/// Goes on if no more than so many signals came.
///
/// # Errors
/// More came.
pub fn check(tolerated: u32) -> io::Result<()> {
    match signal() {
        Some(signal) if COUNT.load(Ordering::Relaxed) > tolerated => {
            Err(io::Error::other(format!("ended by {}", signal.name())))
        }
        _ => Ok(()),
    }
}

/// Waits until more than so many signals came.
pub async fn ended(tolerated: u32) -> io::Error {
    loop {
        if let Err(ended) = check(tolerated) {
            return ended;
        }
        tokio::time::sleep(LOOKED_EVERY).await;
    }
}
