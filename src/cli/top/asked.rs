//! One that is asked again and again, each time in a task of its own: who does not answer makes nobody wait for long, and
//! nobody again before it has answered a question in time.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

/// An answer, and how long it took.
type Answer<T> = (Result<T, String>, Duration);

/// See the module's documentation.
#[derive(Debug)]
pub struct Asked<T> {
    under_way: Option<Question<T>>,
    /// The answer to the question before, which came after the last look.
    before: Option<Result<T, String>>,
    /// Whether the last answer came too late, or is waited for in vain.
    is_slow: bool,
    problem: Option<Problem>,
}

#[derive(Debug)]
struct Question<T> {
    asked: JoinHandle<Answer<T>>,
    asked_at: Instant,
    patience: Duration,
    /// Until when others wait for the answer.
    until: Instant,
}

/// What is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub enum Problem {
    /// It has not answered for so long.
    Silent(Duration),
    /// What it said, or how it failed.
    Said(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(time) => write!(f, "no answer for {} s", time.as_secs()),
            Self::Said(problem) => f.write_str(problem),
        }
    }
}

/// From this time on an error is one of somebody who is silent.
const SILENCE_MIN: Duration = Duration::from_secs(1);

impl<T> Default for Asked<T> {
    fn default() -> Self {
        Self { under_way: None, before: None, is_slow: false, problem: None }
    }
}

impl<T: Send + 'static> Asked<T> {
    /// Asks, unless an earlier question is not answered yet. The answer is waited for with this patience, but that of one who
    /// was slow is only looked for. Safe to cancel.
    pub async fn begin<F>(&mut self, patience: Duration, ask: impl FnOnce() -> F)
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        if let Some(question) = &mut self.under_way {
            if !question.asked.is_finished() {
                return;
            }
            // It is as old as the look before; whether there is a newer one is found out at this look.
            let answer = (&mut question.asked).await;
            let answer = self.received(answer);
            self.before = Some(answer);
        }
        let (asking, asked_at) = (ask(), Instant::now());
        let asked = tokio::spawn(async move { (asking.await, asked_at.elapsed()) });
        let until = if self.is_slow { asked_at } else { asked_at + patience };
        self.under_way = Some(Question { asked, asked_at, patience, until });
    }

    /// Waits no longer for the answer that is under way.
    pub fn hold_nobody_up(&mut self) {
        if let Some(question) = &mut self.under_way {
            question.until = question.asked_at;
        }
    }

    /// The newest answer, if there is a new one. Safe to cancel.
    pub async fn take(&mut self) -> Option<Result<T, String>> {
        let question = self.under_way.as_mut()?;
        let Ok(answer) = tokio::time::timeout_at(question.until, &mut question.asked).await else {
            let silent = question.asked_at.elapsed();
            if silent >= question.patience {
                (self.is_slow, self.problem) = (true, Some(Problem::Silent(silent)));
            }
            return self.before.take();
        };
        self.before = None;
        Some(self.received(answer))
    }

    /// Notes what an answer says about who gave it.
    fn received(&mut self, answer: Result<Answer<T>, JoinError>) -> Result<T, String> {
        let patience = self.under_way.take().map(|question| question.patience);
        let (answer, took) = answer.unwrap_or_else(|error| (Err(error.to_string()), Duration::ZERO));
        // A refusal costs no time. That nothing was heard does, each time anew.
        self.is_slow = patience.is_some_and(|patience| took > patience) || answer.is_err() && took >= SILENCE_MIN;
        self.problem = answer.as_ref().err().cloned().map(Problem::Said);
        answer
    }

    /// What is wrong with it.
    pub fn problem(&self) -> Option<&Problem> {
        self.problem.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::sleep;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(6);

    /// One look: asks who answers so much later, and takes what is there. Returns also how many seconds that took.
    async fn look(asked: &mut Asked<u32>, answer: Result<u32, &str>, after: u64) -> (Option<Result<u32, String>>, u64) {
        let begun = Instant::now();
        let answer = answer.map_err(str::to_owned);
        asked
            .begin(PATIENCE, || async move {
                if after > 0 {
                    sleep(Duration::from_secs(after)).await;
                }
                answer
            })
            .await;
        (asked.take().await, begun.elapsed().as_secs())
    }

    fn said(asked: &Asked<u32>) -> Option<String> {
        asked.problem().map(Problem::to_string)
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_answer_is_waited_for_once_and_taken_when_it_does() {
        let mut asked = Asked::default();
        assert_eq!(look(&mut asked, Ok(1), 9).await, (None, 6));
        assert_eq!(said(&asked).unwrap(), "no answer for 6 s");
        sleep(Duration::from_secs(2)).await;
        // It is asked already.
        assert_eq!(look(&mut asked, Ok(0), 0).await, (None, 0));
        assert_eq!(said(&asked).unwrap(), "no answer for 8 s");
        sleep(Duration::from_secs(2)).await;
        // Its late answer counts, and it is asked again at once.
        assert_eq!(look(&mut asked, Ok(2), 0).await, (Some(Ok(1)), 0));
        assert_eq!(said(&asked), None);
        sleep(Duration::from_secs(60)).await;
        // That one came in time: it is trusted again, and nothing is shown that is as old as the look before.
        assert_eq!(look(&mut asked, Ok(3), 5).await, (Some(Ok(3)), 5));
        asked.begin(PATIENCE, pending).await;
        let begun = Instant::now();
        assert_eq!(asked.take().await, None);
        assert_eq!(begun.elapsed().as_secs(), 6, "it was not waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_always_slow_holds_nobody_up_again() {
        let mut asked = Asked::default();
        assert_eq!(look(&mut asked, Ok(0), 7).await, (None, 6));
        let mut taken = Vec::new();
        for at in 1..=12 {
            sleep(Duration::from_secs(2)).await;
            let (answer, waited) = look(&mut asked, Ok(at), 7).await;
            assert_eq!(waited, 0, "look {at}");
            taken.extend(answer);
        }
        assert_eq!(taken, [Ok(0), Ok(1), Ok(5)]);
    }

    /// A refusal costs no time: who restarts is seen at the next look.
    #[tokio::test(start_paused = true)]
    async fn who_answered_with_an_error_is_waited_for_as_before() {
        let mut asked = Asked::default();
        assert_eq!(look(&mut asked, Err("refused"), 0).await, (Some(Err("refused".to_owned())), 0));
        assert_eq!(said(&asked).unwrap(), "refused");
        for answer in 1..=2 {
            sleep(Duration::from_secs(60)).await;
            assert_eq!(look(&mut asked, Ok(answer), 1).await, (Some(Ok(answer)), 1));
            assert_eq!(said(&asked), None);
        }
    }

    /// Silence that ends with an error costs as much time as one that does not end.
    #[tokio::test(start_paused = true)]
    async fn of_whom_nothing_is_heard_until_an_error_is_waited_for_once() {
        let mut asked = Asked::default();
        assert_eq!(look(&mut asked, Err("nothing was heard"), 5).await, (Some(Err("nothing was heard".to_owned())), 5));
        for _ in 0..3 {
            sleep(Duration::from_secs(60)).await;
            assert_eq!(look(&mut asked, Err("nothing was heard"), 5).await.1, 0);
            assert_eq!(said(&asked).unwrap(), "nothing was heard");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_need_not_be_waited_for_is_said_to_be_missing_only_after_a_while() {
        let counted = || async {
            sleep(Duration::from_secs(7)).await;
            Ok(())
        };
        let mut asked = Asked::default();
        for at in 0..3 {
            asked.begin(PATIENCE, counted).await;
            asked.hold_nobody_up();
            assert_eq!((asked.take().await, asked.problem()), (None, None), "{at}");
            sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(asked.take().await, None);
        assert!(matches!(asked.problem(), Some(Problem::Silent(_))), "{:?}", asked.problem());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_cut_short_loses_no_answer() {
        let mut asked = Asked::default();
        let slow = || async {
            sleep(Duration::from_secs(2)).await;
            Ok(7)
        };
        asked.begin(PATIENCE, slow).await;
        assert!(tokio::time::timeout(Duration::from_secs(1), asked.take()).await.is_err());
        assert_eq!(asked.take().await, Some(Ok(7)));
        assert_eq!(asked.take().await, None, "nothing is asked");
        asked.begin(PATIENCE, || ready(Err("refused".to_owned()))).await;
        assert_eq!(asked.take().await, Some(Err("refused".to_owned())));
    }
}
