//! Starts actors on a reactor thread, with a mailbox that has its final size from the first message on.

use actix::dev::channel::channel;
use actix::prelude::*;

use super::reactor::Reactor;

/// Capacity of a mailbox that is bounded otherwise: by permits, and by the in-flight bounds of the connections.
pub const BOUNDED_ELSEWHERE: usize = usize::MAX >> 8;

/// Starts an actor on a reactor thread, with room for `capacity` messages.
///
/// By default actix gives 16, and an actor can ask for more only when it begins to run, once its thread gets to it. Others
/// have its address before that, and on a busy machine the 17th message would be refused because the mailbox is full.
pub fn start<A>(reactor: &Reactor, capacity: usize, make: impl FnOnce() -> A + Send + 'static) -> Addr<A>
where
    A: Actor<Context = Context<A>>,
{
    let (sender, receiver) = channel(capacity);
    reactor.spawn_fn(move || {
        actix::spawn(Context::with_receiver(receiver).into_future(make()));
    });
    Addr::new(sender)
}
