//! How a connection moves to another reactor thread: with its session, what it has read and not handed on, and the answers that
//! are on their way.
//!
//! It moves because `balance` wants it to leave a full thread, or because it is quiet and the network that it asks lives on
//! another thread.
//!
//! Review notes: is anything of a thread kept over a move (a turn, a timer, a stream that the runtime polls)?

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::TcpStream;

use super::{Connection, End, QUIET_REQUESTS_MAX};
use crate::server::session::AskedOn;

/// How many reads in a row must bring requests for a network of another thread before a quiet connection moves there.
const FOLLOWS_AFTER: u32 = 32;

/// Why a connection is no longer served on this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Ended(End),
    /// It goes on on that thread, and why.
    Moves(usize, &'static str),
}

/// Serves a connection on this reactor thread. A tokio stream belongs to the runtime that polls it, so the plain socket is passed.
pub(super) fn go_on(reactor: usize, mut connection: Connection, stream: std::net::TcpStream) {
    let server = Arc::clone(&connection.server);
    // Boxed because the future contains itself: it may end in another `go_on`.
    let serving: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        let stream = match TcpStream::from_std(stream) {
            Ok(stream) => stream,
            Err(error) => return connection.cannot_go_on(&error),
        };
        match connection.run(&stream).await {
            Left::Ended(end) => connection.over(&stream, end).await,
            Left::Moves(to, why) => match stream.into_std() {
                Ok(stream) => {
                    connection.placed.moved(to);
                    connection.server.metrics.clients.connections_moved.with_label_values(&[why]).inc();
                    go_on(to, connection, stream);
                }
                Err(error) => connection.cannot_go_on(&error),
            },
        }
    });
    // If the thread is gone the server has stopped.
    server.reactors[reactor].spawn(serving);
}

impl Connection {
    /// Counts and logs a connection that cannot be served any more, through no fault of its client.
    fn cannot_go_on(&self, error: &io::Error) {
        self.server.metrics.clients.connections_closed.with_label_values(&["not_served"]).inc();
        tracing::warn!(peer = %self.peer, %error, "a connection cannot be served on its thread");
    }

    /// Whether it is to go on on another thread, and why.
    pub(super) fn moves(&mut self) -> Option<Left> {
        let follows = self.follows();
        let leaves = self.server.balance.take_leave(self.placed.on()).map(|to| Left::Moves(to, "full"));
        leaves.or_else(|| follows.map(|to| Left::Moves(to, "follows")))
    }

    /// The thread to move to because the network that this connection asks lives there. Only quiet connections move so: they ask
    /// now and then, and each request and its answer would wake another thread. Busy ones are better off on different threads.
    fn follows(&mut self) -> Option<usize> {
        let is_quiet = self.session.in_flight() <= QUIET_REQUESTS_MAX;
        let on = match self.session.take_asked_on() {
            AskedOn::Nothing => return None,
            AskedOn::Thread(on) if is_quiet && on != self.placed.on() => on,
            AskedOn::Thread(_) | AskedOn::Elsewhere => {
                self.elsewhere = 0;
                return None;
            }
        };
        self.elsewhere += 1;
        if self.elsewhere < FOLLOWS_AFTER {
            return None;
        }
        self.elsewhere = 0;
        self.server.balance.admits(on).then_some(on)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::actors::{Fault, NotReadyReason};
    use crate::server::balance::Balance;
    use crate::server::connection::serve;
    use crate::server::role::Role;
    use crate::server::session::idle_server;

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_connection_goes_on_where_it_is_moved_to_with_all_that_it_has_under_way() {
        let system = actix::System::new();
        let arbiters = [actix::Arbiter::new(), actix::Arbiter::new()];
        let mut server = idle_server();
        let own = Arc::get_mut(&mut server).unwrap();
        own.reactors = arbiters.iter().map(|arbiter| arbiter.handle().into()).collect();
        own.balance = Balance::of(&own.reactors);
        own.balance.looks_never();
        let moved = |times| {
            until("it is moved", || {
                server.metrics.clients.connections_moved.with_label_values(&["full"]).get() == times
            });
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (stream, peer) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        serve(stream, peer, Arc::clone(&server), 0, ());
        let mut answers = BufReader::new(client.try_clone().unwrap());
        let mut answer = || {
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            line
        };
        let ping = |id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"server.ping\"}}\n");
        let pong = |id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":\"pong\"}}\n");
        client.write_all(ping(1).as_bytes()).unwrap();
        assert_eq!((answer(), server.balance.connections()), (pong(1), vec![1, 0]));

        // In the middle of a line, after a whole one.
        server.balance.one_moves(0, 1);
        let both = ping(2) + &ping(3);
        let (begin, rest) = both.split_at(both.len() - 20);
        client.write_all(begin.as_bytes()).unwrap();
        moved(1);
        client.write_all(rest.as_bytes()).unwrap();
        assert_eq!((answer(), answer(), server.balance.connections()), (pong(2), pong(3), vec![0, 1]));

        // With a request that waits for this node to have a role again: it learns of that on the other thread.
        server.seat.become_role(Role::Between);
        server.balance.one_moves(1, 0);
        let held = "{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"ip.list\",\"params\":{\"network\":\"lan\"}}\n";
        client.write_all(held.as_bytes()).unwrap();
        moved(2);
        let (why, reason) = ("nobody", NotReadyReason::NoOwner);
        server.seat.become_role(Role::Waiting { why, fault: Fault::NotReady { reason, retry_after_ms: 100 } });
        let refused = answer();
        assert!(refused.contains("\"id\":4") && refused.contains("no_owner"), "{refused}");
        client.write_all(ping(5).as_bytes()).unwrap();
        assert_eq!((answer(), server.balance.connections()), (pong(5), vec![1, 0]));

        drop((answers, client));
        until("it is closed", || {
            server.balance.connections() == [0, 0] && server.metrics.clients.connections.get() == 0
        });
        for arbiter in arbiters {
            arbiter.stop();
            arbiter.join().unwrap();
        }
        drop(system);
    }

    /// For example when the thread has no room for one more.
    #[test]
    fn a_connection_that_its_thread_cannot_take_is_closed_and_counted_and_leaves_no_place_taken() {
        let system = actix::System::new();
        let arbiter = actix::Arbiter::new();
        let mut server = idle_server();
        let own = Arc::get_mut(&mut server).unwrap();
        own.reactors = vec![arbiter.handle().into()];
        own.balance = Balance::of(&own.reactors);
        own.balance.looks_never();
        // A plain file cannot be polled.
        let no_socket = TcpStream::from(std::os::fd::OwnedFd::from(tempfile::tempfile().unwrap()));
        no_socket.set_nonblocking(true).unwrap();
        let held = Arc::new(());
        serve(no_socket, ([127, 0, 0, 1], 9).into(), Arc::clone(&server), 0, Arc::clone(&held));
        until("it is counted", || {
            server.metrics.clients.connections_closed.with_label_values(&["not_served"]).get() == 1
        });
        until("its place is free", || {
            let open = server.metrics.clients.connections.get();
            Arc::strong_count(&held) == 1 && server.balance.connections() == [0] && open == 0
        });
        arbiter.stop();
        arbiter.join().unwrap();
        drop(system);
    }
}
