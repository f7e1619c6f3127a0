//! Notices Ctrl-C, SIGTERM, and SIGHUP (the terminal has gone), and tells them to callers that ask. A run that is ended by a
//! signal reports its findings so far, and ends the processes that it started.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal as signals};

/// The number of the first signal (0: none), and how many signals came.
static FIRST: AtomicU8 = AtomicU8::new(0);
static COUNT: AtomicU32 = AtomicU32::new(0);

/// How often a caller that waits for something else checks for a signal.
pub const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// A signal that ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal(u8);

impl Signal {
    const HANGUP: Self = Self(1);
    const INTERRUPT: Self = Self(2);
    const TERMINATE: Self = Self(15);

    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            Self::HANGUP => "SIGHUP",
            Self::INTERRUPT => "Ctrl-C",
            _ => "SIGTERM",
        }
    }

    /// The exit code of a program that was ended by this signal, as in a shell.
    pub fn exit_code(self) -> u8 {
        128 + self.0
    }
}

/// Starts to notice these signals, in a thread of its own.
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
            // Only the first signal is kept.
            let _ = FIRST.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(watch))?;
    Ok(())
}

/// The first signal, if any came.
pub fn signal() -> Option<Signal> {
    match FIRST.load(Ordering::Relaxed) {
        0 => None,
        number => Some(Signal(number)),
    }
}

/// Succeeds if at most `tolerated` signals came.
///
/// # Errors
/// More signals came.
pub fn check(tolerated: u32) -> io::Result<()> {
    match signal() {
        Some(signal) if COUNT.load(Ordering::Relaxed) > tolerated => {
            Err(io::Error::other(format!("ended by {}", signal.name())))
        }
        _ => Ok(()),
    }
}

/// Waits for the end of a process, and kills it if more than `tolerated` signals come.
///
/// # Errors
/// More signals came, or the system cannot tell the status.
pub fn wait(child: &mut Child, tolerated: u32) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Err(ended) = check(tolerated) {
            // Both fail only if the process has ended already.
            let _ = child.kill();
            let _ = child.wait();
            return Err(ended);
        }
        std::thread::park_timeout(LOOKED_EVERY);
    }
}

/// Waits until more than `tolerated` signals came.
pub async fn ended(tolerated: u32) -> io::Error {
    loop {
        if let Err(ended) = check(tolerated) {
            return ended;
        }
        tokio::time::sleep(LOOKED_EVERY).await;
    }
}
