//! Where the tasks of the store do what may block: files of this machine.

use crate::store::StoreError;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocking {
    /// On threads for that: a disk that is slow holds up nothing else.
    Threads,
    /// Where the task runs, which is the only thread that there is.
    Here,
}

impl Blocking {
    /// Does it there.
    ///
    /// # Errors
    /// Its own; [`StoreError::Poisoned`] if it crashed.
    pub(super) async fn run<T: Send + 'static>(
        self,
        act: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self {
            Self::Here => act(),
            Self::Threads => {
                let done = tokio::task::spawn_blocking(act).await;
                done.unwrap_or_else(|_| Err(StoreError::Poisoned("what writes a file crashed".into())))
            }
        }
    }
}
