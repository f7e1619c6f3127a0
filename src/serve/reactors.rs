//! The reactor threads together; where sessions are concerned, that includes the thread that serves HTTP.
//!
//! What a task does between two awaits is finished before another task of that thread runs. So once each thread has run a
//! new task, each has finished what it was doing before, and sees the present state: the thread is alive (`supervisor`), and
//! it has seen the node's present role (`handover`).

use tokio::sync::mpsc;

use crate::actors::reactor::Reactor;

/// Waits until each reactor has run a task; returns false if one is gone. A reactor that is stuck keeps it waiting.
pub(super) async fn all_run(reactors: &[Reactor]) -> bool {
    let (ran, mut heard) = mpsc::channel(reactors.len().max(1));
    for reactor in reactors {
        let ran = ran.clone();
        reactor.spawn(async move {
            // There is room for each; nobody listens only when the server stops.
            let _ = ran.try_send(());
        });
    }
    drop(ran);
    let mut count = 0;
    while heard.recv().await.is_some() {
        count += 1;
    }
    count == reactors.len()
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    fn two_reactors() -> (actix::Arbiter, actix::Arbiter, Vec<Reactor>) {
        let (one, other) = (actix::Arbiter::new(), actix::Arbiter::new());
        let handles = vec![one.handle().into(), other.handle().into()];
        (one, other, handles)
    }

    #[actix::test]
    async fn it_is_waited_for_a_reactor_that_is_stuck() {
        let (_one, other, handles) = two_reactors();
        let (release, stuck) = std::sync::mpsc::sync_channel::<()>(1);
        let (began, begun) = tokio::sync::oneshot::channel();
        other.spawn(async move {
            began.send(()).expect("the test waits for it");
            let _ = stuck.recv();
        });
        begun.await.expect("the reactor runs");
        let mut asked = std::pin::pin!(all_run(&handles));
        assert!(std::future::poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending())).await);
        drop(release);
        assert!(asked.await);
    }

    #[actix::test]
    async fn a_reactor_that_is_gone_is_noticed() {
        let (one, _other, handles) = two_reactors();
        assert!(all_run(&handles).await);
        one.stop();
        one.join().expect("it ends well");
        assert!(!all_run(&handles).await);
    }
}
