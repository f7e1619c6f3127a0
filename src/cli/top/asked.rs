//! One that is asked again and again, each time in a task of its own: who does not answer makes nobody wait for long, and
//! nobody again before it has answered.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;

/// See the module's documentation.
#[derive(Debug)]
pub struct Asked<T> {
    under_way: Option<JoinHandle<Result<T, String>>>,
    problem: Option<String>,
}

impl<T> Default for Asked<T> {
    fn default() -> Self {
        Self { under_way: None, problem: None }
    }
}

impl<T: Send + 'static> Asked<T> {
    /// Asks, unless an earlier question is not answered yet.
    pub fn begin<F>(&mut self, ask: impl FnOnce() -> F)
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        if self.under_way.is_none() {
            self.under_way = Some(tokio::spawn(ask()));
        }
    }

    /// The answer, if there is a new one. It is waited for so long if nothing is wrong so far; where something is, it is only
    /// looked for. Safe to cancel.
    pub async fn take(&mut self, patience: Duration) -> Option<Result<T, String>> {
        let under_way = self.under_way.as_mut()?;
        if self.problem.is_some() && !under_way.is_finished() {
            return None;
        }
        let Ok(answer) = tokio::time::timeout(patience, under_way).await else {
            self.problem = Some(format!("no answer for {} s", patience.as_secs()));
            return None;
        };
        self.under_way = None;
        let answer = answer.unwrap_or_else(|error| Err(error.to_string()));
        self.problem = answer.as_ref().err().cloned();
        Some(answer)
    }

    /// What is wrong with it.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(6);

    #[tokio::test(start_paused = true)]
    async fn who_does_not_answer_is_waited_for_once_and_taken_when_it_does() {
        let (answers, answer) = tokio::sync::oneshot::channel();
        let mut asked = Asked::default();
        asked.begin(|| async move { answer.await.map_err(|_| "gone".to_owned()) });
        let begun = Instant::now();
        assert_eq!(asked.take(PATIENCE).await, None);
        let waited = begun.elapsed();
        assert_eq!((waited.as_secs(), asked.problem()), (6, Some("no answer for 6 s")));
        for _ in 0..3 {
            asked.begin(|| async { panic!("it is asked already") });
            assert_eq!(asked.take(PATIENCE).await, None);
        }
        assert_eq!(begun.elapsed(), waited, "it was waited for again");
        answers.send(7).unwrap();
        tokio::task::yield_now().await;
        assert_eq!((asked.take(PATIENCE).await, asked.problem()), (Some(Ok(7)), None));
        // Now it is trusted again.
        asked.begin(pending);
        assert_eq!(asked.take(PATIENCE).await, None);
        assert!(begun.elapsed() > waited, "it was not waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_cut_short_loses_no_answer() {
        let mut asked = Asked::default();
        asked.begin(|| async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(7)
        });
        assert!(tokio::time::timeout(Duration::from_secs(1), asked.take(PATIENCE)).await.is_err());
        assert_eq!(asked.take(PATIENCE).await, Some(Ok(7)));
        assert_eq!(asked.take(PATIENCE).await, None, "nothing is asked");
        asked.begin(|| ready(Err("refused".to_owned())));
        assert_eq!(asked.take(PATIENCE).await, Some(Err("refused".to_owned())));
        assert_eq!(asked.problem(), Some("refused"));
    }
}
