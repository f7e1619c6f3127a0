//! Turns of the busy connections of a reactor thread: a few at a time, so that a quiet connection does not wait for all of them.
//!
//! A reactor polls its tasks in the order in which they were woken, and looks at its sockets only when it has polled
//! many, or all. With sixty busy connections that takes milliseconds. So a connection with many requests under way asks for
//! a turn before it works on: it waits for the other busy ones, and until the reactor has looked at its sockets. Quiet
//! connections, networks and the committer wait for a few turns at most.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns at once. Quiet connections do best with 1. But then, on a thread with many busy connections and a busy network, the network
/// works off requests from other threads after every single turn, and the connections of this thread starve.
const AT_ONCE: usize = 4;

thread_local! {
    /// The turns of this reactor thread. A connection moves to another thread between two turns.
    static TURNS: Arc<Semaphore> = Arc::new(Semaphore::new(AT_ONCE));
}

/// A turn; it ends when this is dropped.
#[derive(Debug)]
pub struct Turn {
    _permit: OwnedSemaphorePermit,
}

/// Waits for a turn on this thread, after those that wait already.
pub async fn next() -> Option<Turn> {
    let turns = TURNS.with(Arc::clone);
    let permit = turns.acquire_owned().await.ok()?;
    // Resumes when the reactor has looked at its sockets.
    tokio::task::yield_now().await;
    Some(Turn { _permit: permit })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write;
    use std::rc::Rc;

    use tokio::io::AsyncReadExt;
    use tokio::task::LocalSet;

    use super::*;

    const BUSY: u32 = 64;

    /// How many busy tasks get a turn between the moment when a byte arrives for a quiet one and the moment when that one has
    /// read it.
    async fn passed_before_the_quiet_one(asks_for_turns: bool) -> u32 {
        // Not TCP, where bytes may arrive later than they are written.
        let (mut client, quiet) = std::os::unix::net::UnixStream::pair().unwrap();
        quiet.set_nonblocking(true).unwrap();
        let mut quiet = tokio::net::UnixStream::from_std(quiet).unwrap();
        let (turns, read_at) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
        for _ in 0..BUSY {
            let (turns, read_at) = (Rc::clone(&turns), Rc::clone(&read_at));
            tokio::task::spawn_local(async move {
                while read_at.get().is_none() {
                    let turn = if asks_for_turns { next().await } else { None };
                    turns.set(turns.get() + 1);
                    drop(turn);
                    if !asks_for_turns {
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
        let (seen, begun) = (Rc::clone(&turns), Rc::clone(&read_at));
        let reader = tokio::task::spawn_local(async move {
            quiet.read_u8().await.unwrap();
            begun.set(Some(seen.get()));
        });
        // In the middle of a round of the busy ones, not at its end.
        while turns.get() < 10 * BUSY + BUSY / 2 {
            let turn = if asks_for_turns { next().await } else { None };
            drop(turn);
            tokio::task::yield_now().await;
        }
        let begun = turns.get();
        client.write_all(b"x").unwrap();
        reader.await.unwrap();
        read_at.get().unwrap() - begun
    }

    #[test]
    fn a_quiet_connection_waits_for_a_few_turns_and_not_for_all_that_are_busy() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let passed = |asks| LocalSet::new().block_on(&runtime, passed_before_the_quiet_one(asks));
        assert!(passed(false) >= BUSY / 2, "without turns it does not wait for them: this shows nothing");
        let passed = passed(true);
        assert!(passed <= 2 * AT_ONCE as u32, "{passed} turns");
    }

    #[test]
    fn nobody_has_a_third_turn_before_all_had_one() {
        const EACH: usize = 6;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let had = Rc::new(std::cell::RefCell::new([0; BUSY as usize]));
        let noted = Rc::clone(&had);
        LocalSet::new().block_on(&runtime, async move {
            let tasks: Vec<_> = (0..BUSY as usize)
                .map(|who| {
                    let had = Rc::clone(&noted);
                    tokio::task::spawn_local(async move {
                        for _ in 0..EACH {
                            let turn = next().await;
                            had.borrow_mut()[who] += 1;
                            let (least, most) = had.borrow().iter().fold((EACH, 0), |(l, m), &n| (l.min(n), m.max(n)));
                            assert!(most <= least + 2, "{:?}", had.borrow());
                            drop(turn);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(*had.borrow(), [EACH; BUSY as usize]);
    }
}
