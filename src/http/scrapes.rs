//! The answer of `/metrics`. It is rendered beside the thread that serves, one rendering at a time, and once for all who
//! asked before it began. So each answer shows the state at the time of its request or later, however many ask. With many
//! networks an answer is tens of megabytes.
//!
//! ```text
//! asked ──the one before is rendered──▶ rendering (later requests get the next one) ──▶ given to all who asked
//! ```
//!
//! A rendered text is kept until the last client has taken it. If too many bytes are not taken, no more is rendered.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::limits::HTTP_SCRAPES_BYTES_MAX;
use crate::metrics::Metrics;

/// Why there is nothing to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unrendered {
    /// Too many rendered bytes have not been taken yet.
    NoRoom,
    /// The metrics cannot be written; the log says why.
    Failed,
}

type Rendered = Result<Bytes, Unrendered>;

/// See the module's documentation.
pub(super) struct Scrapes {
    metrics: Arc<Metrics>,
    /// The rendering that a request gets now.
    next: Mutex<Option<watch::Receiver<Option<Rendered>>>>,
    /// Held while a text is rendered.
    turn: tokio::sync::Mutex<()>,
    /// How many rendered bytes may wait to be taken.
    room: Arc<Semaphore>,
}

/// A rendered text, with the permit for its bytes.
struct Text {
    text: String,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Scrapes {
    pub(super) fn of(metrics: Arc<Metrics>) -> Arc<Self> {
        let room = Arc::new(Semaphore::new(HTTP_SCRAPES_BYTES_MAX));
        Arc::new(Self { metrics, next: Mutex::default(), turn: tokio::sync::Mutex::default(), room })
    }

    /// All metrics, as they are now or a little later.
    pub(super) async fn text(self: &Arc<Self>) -> Rendered {
        let mut told = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = || {
                let (tell, told) = watch::channel(None);
                // In a task of its own, because the client that started it may hang up.
                tokio::spawn(Arc::clone(self).render(tell));
                told
            };
            next.get_or_insert_with(begin).clone()
        };
        let rendered = told.wait_for(Option::is_some).await.map(|rendered| rendered.clone());
        rendered.ok().flatten().unwrap_or(Err(Unrendered::Failed))
    }

    async fn render(self: Arc<Self>, tell: watch::Sender<Option<Rendered>>) {
        let turn = self.turn.lock().await;
        drop(self.next.lock().unwrap_or_else(PoisonError::into_inner).take());
        let rendered = match Arc::clone(&self.room).try_acquire_owned() {
            Ok(room) => self.rendered(room).await,
            Err(_) => Err(Unrendered::NoRoom),
        };
        drop(turn);
        tell.send_replace(Some(rendered));
    }

    async fn rendered(&self, mut room: OwnedSemaphorePermit) -> Rendered {
        let metrics = Arc::clone(&self.metrics);
        let text = match tokio::task::spawn_blocking(move || metrics.text()).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => {
                tracing::error!(%error, "metrics cannot be written");
                return Err(Unrendered::Failed);
            }
            // After a panic, the log has its place.
            Err(_) => return Err(Unrendered::Failed),
        };
        // A text that exists is given even if it takes more room than is left.
        let more = text.len().saturating_sub(room.num_permits()).min(self.room.available_permits());
        if let Some(more) =
            u32::try_from(more).ok().and_then(|more| Arc::clone(&self.room).try_acquire_many_owned(more).ok())
        {
            room.merge(more);
        }
        Ok(Bytes::from_owner(Text { text, _room: room }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use prometheus::IntCounter;

    use super::*;

    /// A counter of its own renderings.
    struct Rendering {
        count: IntCounter,
        /// While this is set, rendering does not go on.
        closed: Arc<AtomicBool>,
        desc: prometheus::core::Desc,
    }

    impl prometheus::core::Collector for Rendering {
        fn desc(&self) -> Vec<&prometheus::core::Desc> {
            vec![&self.desc]
        }

        fn collect(&self) -> Vec<prometheus::proto::MetricFamily> {
            self.count.inc();
            while self.closed.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            self.count.collect()
        }
    }

    /// Metrics with a counter of their renderings, and the switch that holds a rendering up.
    fn counted() -> (Arc<Scrapes>, IntCounter, Arc<AtomicBool>) {
        let metrics = Metrics::new();
        let count = IntCounter::new("renderings_total", "How often.").expect("a name");
        let closed = Arc::<AtomicBool>::default();
        let desc = prometheus::core::Desc::new("a".to_owned(), "A.".to_owned(), Vec::new(), Default::default());
        let rendering = Rendering { count: count.clone(), closed: Arc::clone(&closed), desc: desc.expect("a name") };
        metrics.registry.register(Box::new(rendering)).expect("the only one");
        (Scrapes::of(Arc::new(metrics)), count, closed)
    }

    fn told(rendered: &Rendered) -> u64 {
        let text = String::from_utf8(rendered.clone().expect("rendered").to_vec()).expect("text");
        let count = text.lines().find_map(|line| line.strip_prefix("renderings_total "));
        count.expect("it is there").parse().expect("a number")
    }

    #[tokio::test]
    async fn those_who_asked_before_it_is_rendered_share_it_and_who_asks_later_is_told_of_what_comes_later() {
        let (scrapes, count, closed) = counted();
        let asks = |many: usize| -> Vec<_> {
            let ask = |scrapes: Arc<Scrapes>| tokio::spawn(async move { scrapes.text().await });
            (0..many).map(|_| ask(Arc::clone(&scrapes))).collect()
        };
        closed.store(true, Ordering::Relaxed);
        let first = asks(3);
        while count.get() < 1 {
            tokio::task::yield_now().await;
        }
        // This rendering has begun: it may be older than these requests. Meanwhile this thread serves others.
        let later = asks(20);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(count.get(), 1, "one after the other");
        closed.store(false, Ordering::Relaxed);
        for (asked, rendering) in [(first, 1), (later, 2)] {
            for one in asked {
                assert_eq!(told(&one.await.expect("no panic")), rendering);
            }
        }
        assert_eq!(told(&scrapes.text().await), 3);
    }

    #[tokio::test]
    async fn what_nobody_takes_is_bounded_and_what_is_taken_leaves_room() {
        let (scrapes, _, _) = counted();
        let all = scrapes.room.available_permits();
        let kept = scrapes.text().await.expect("rendered");
        assert_eq!(scrapes.room.available_permits(), all - kept.len());
        let rest = scrapes.room.try_acquire_many(u32::try_from(all - kept.len() - 1).expect("little")).expect("free");
        let last = scrapes.text().await.expect("there is room for a byte of it");
        assert_eq!(scrapes.text().await.err(), Some(Unrendered::NoRoom));
        drop(last);
        drop(kept);
        assert!(scrapes.text().await.is_ok());
        drop(rest);
        assert_eq!(scrapes.room.available_permits(), all);
    }
}
