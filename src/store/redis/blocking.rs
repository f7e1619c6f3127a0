//! Where the tasks of the store do work that may block, such as writing files.

use crate::store::StoreError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocking {
    /// On threads of their own, so that a slow disk holds up nothing else.
    Threads,
    /// Where the task runs, because there is no other thread.
    Here,
}

impl Blocking {
    /// Does the work there.
    ///
    /// # Errors
    /// The errors of the work; [`StoreError::Poisoned`] if it crashed.
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
