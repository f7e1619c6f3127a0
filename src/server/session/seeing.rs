//! How a session learns the present role of its node. Requests that waited for a role go on with whatever notices the change
//! first: the session's caller, or the next line of the client.

use super::Session;

impl Session {
    /// Are there requests that wait for a role of this node, and for nothing else?
    pub fn waits_for_role(&self) -> bool {
        (!self.queue.is_empty() || !self.resumes.is_empty()) && self.sent == 0 && self.role.is_between()
    }

    /// Must the session be told when the role changes? Yes, whenever no answer is going to arrive. That holds even if nothing waits for
    /// a role: the session of an idle client would otherwise keep the old role, and with it a whole register, in memory.
    pub fn heeds_role(&self) -> bool {
        self.sent == 0
    }

    /// The role may have changed: sends the requests that waited for that.
    pub fn role_changed(&mut self) {
        self.pump();
    }

    /// Notes the present role of this node. If it is a new one, sends the requests that waited for it: nothing else will do so.
    pub fn look_at_role(&mut self) {
        if self.sees_role() {
            self.go_on();
        }
    }

    /// Notes the present role of this node, and returns whether it is a new one.
    pub(super) fn sees_role(&mut self) -> bool {
        self.moved = !self.server.seat.is(&self.role);
        let sees = self.moved && self.sent == 0;
        if sees {
            self.role = self.server.seat.role();
            self.moved = false;
            self.resumes.look_now();
        }
        sees
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::actors::clock::SystemClock;
    use crate::actors::{Fault, NotReadyReason};
    use crate::metrics::Metrics;
    use crate::peer::frame::PeerStanding;
    use crate::peer::tests::nodes::{Node, Owner, connected, link_to};
    use crate::server::balance::Balance;
    use crate::server::cluster::Nodes;
    use crate::server::role::{Role, Seat};
    use crate::server::session::OUT_BYTES_MAX;
    use crate::server::steward::Steward;
    use crate::server::{Bounds, Durability, Server};

    /// A server that has no role yet.
    pub fn server() -> Arc<Server> {
        let (bytes, bound) = (1 << 20, Duration::from_secs(60));
        Arc::new(Server {
            seat: Seat::default(),
            steward: Steward::default(),
            store: "none",
            durability: Durability(Box::new(String::new)),
            clock: Arc::new(SystemClock),
            metrics: Arc::new(Metrics::new()),
            reactors: Vec::new(),
            balance: Balance::default(),
            session_threads: Vec::new(),
            bounds: Bounds {
                line_bytes: bytes,
                body_bytes: bytes,
                connections: 1,
                behind_bytes: bytes,
                idle: bound,
                slow_client: bound,
                partial_line: bound,
            },
            node: "node".to_owned(),
            started: Instant::now(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            asking: TaskTracker::new(),
            peers: TaskTracker::new(),
            nodes: Nodes::default(),
            sessions: AtomicU64::new(0),
            fairness: Default::default(),
        })
    }

    /// The client sends a line just when there is an owner again, before the session was told so.
    #[test]
    fn what_was_held_goes_on_with_the_line_that_sees_the_new_role() {
        let server = server();
        server.seat.become_role(Role::Between);
        let (mut session, _inlet) = Session::new(Arc::clone(&server), "client".into());
        let line = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ip.list","params":{{"network":"lan"}}}}"#);
        session.begin(Instant::now());
        session.feed(line(1).as_bytes());
        session.flush();
        assert!(session.waits_for_role() && session.out.is_empty());
        let (why, reason) = ("nobody", NotReadyReason::NoOwner);
        server.seat.become_role(Role::Waiting { why, fault: Fault::NotReady { reason, retry_after_ms: 100 } });
        session.begin(Instant::now());
        session.feed(line(2).as_bytes());
        session.flush();
        let said = String::from_utf8(std::mem::take(&mut session.out)).expect("it is text");
        assert_eq!((said.lines().count(), session.in_flight()), (2, 0), "{said}");
        assert!(said.starts_with(r#"{"jsonrpc":"2.0","id":1,"#), "{said}");
    }

    /// Nothing was under way, so no answer told the session that the role had changed.
    #[test]
    fn what_was_held_back_until_its_client_takes_goes_to_nobody_whose_time_is_over() {
        for goes_on in [Session::go_on_if_taken, Session::stop_waiting] {
            let server = server();
            let (why, reason) = ("nobody", NotReadyReason::NoOwner);
            server.seat.become_role(Role::Waiting { why, fault: Fault::NotReady { reason, retry_after_ms: 100 } });
            let (mut session, _inlet) = Session::new(Arc::clone(&server), "client".into());
            session.begin(Instant::now());
            session.out = vec![b'\n'; OUT_BYTES_MAX];
            session.feed(br#"{"jsonrpc":"2.0","id":1,"method":"ip.list","params":{"network":"lan"}}"#);
            session.flush();
            assert!(session.in_flight() == 1 && session.heeds_role(), "it is told when that changes");
            server.seat.become_role(Role::Between);
            session.taken = session.out.len();
            goes_on(&mut session);
            let said = String::from_utf8_lossy(session.out.get(OUT_BYTES_MAX..).unwrap_or_default());
            assert!(said.is_empty() && session.waits_for_role(), "{said}");
        }
    }

    #[test]
    fn who_asks_nothing_keeps_nothing_of_what_its_node_was() {
        let server = server();
        let become_waiting = |why: &'static str| {
            let fault = Fault::NotReady { reason: NotReadyReason::NoOwner, retry_after_ms: 100 };
            server.seat.become_role(Role::Waiting { why, fault });
        };
        become_waiting("before");
        let before = Arc::downgrade(&server.seat.role());
        let (mut session, _inlet) = Session::new(Arc::clone(&server), "client".into());
        session.begin(Instant::now());
        session.feed(br#"{"jsonrpc":"2.0","id":1,"method":"network.list","params":{}}"#);
        session.flush();
        assert!(session.heeds_role() && !session.out.is_empty());
        become_waiting("now");
        assert!(before.upgrade().is_some());
        session.role_changed();
        assert!(before.upgrade().is_none());
    }

    #[test]
    fn while_others_ask_a_client_has_fewer_requests_under_way_than_alone_if_they_are_answered() {
        use crate::limits::{IN_FLIGHT_BESIDE_OTHERS_MAX, IN_FLIGHT_REQUESTS_MAX};
        let server = server();
        server.seat.become_role(Role::Between);
        let under_way = |beside: bool| {
            let (mut session, _inlet) = Session::new(Arc::clone(&server), "client".into());
            let (mut other, _inlet) = Session::new(Arc::clone(&server), "other".into());
            // Nobody has asked for a while.
            let now = Instant::now() + Duration::from_secs(3_600 * (1 + u64::from(beside)));
            if beside {
                other.begin(now);
            }
            session.begin(now);
            let fill = |session: &mut Session| {
                while session.has_room() {
                    session.feed(br#"{"jsonrpc":"2.0","id":1,"method":"ip.list","params":{"network":"lan"}}"#);
                }
                session.in_flight()
            };
            let at_first = fill(&mut session);
            // Nothing is answered.
            session.share.go_on(now + Duration::from_secs(1));
            (at_first, fill(&mut session))
        };
        assert_eq!(under_way(false), (IN_FLIGHT_REQUESTS_MAX, IN_FLIGHT_REQUESTS_MAX));
        assert_eq!(under_way(true), (IN_FLIGHT_BESIDE_OTHERS_MAX, IN_FLIGHT_REQUESTS_MAX));
    }

    /// Such an order belongs to the node, and may take a minute.
    #[test]
    fn an_order_to_a_node_holds_up_neither_what_is_sent_behind_it_nor_a_new_role() {
        let server = server();
        server.seat.become_role(Role::Between);
        let (mut session, _inlet) = Session::new(Arc::clone(&server), "client".into());
        let line = |id, method| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#);
        session.begin(Instant::now());
        for asked in [line(1, "cluster.drain"), line(2, "network.list")] {
            session.feed(asked.as_bytes());
        }
        session.flush();
        assert!(session.waits_for_role() && session.out.is_empty());
        let (why, reason) = ("nobody", NotReadyReason::NoOwner);
        server.seat.become_role(Role::Waiting { why, fault: Fault::NotReady { reason, retry_after_ms: 100 } });
        session.role_changed();
        session.feed(line(3, "network.list").as_bytes());
        session.flush();
        let said = String::from_utf8(std::mem::take(&mut session.out)).expect("it is text");
        let ids: Vec<&str> = said.lines().filter_map(|line| line.get(..21)).collect();
        assert_eq!(ids, [2, 3].map(|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"#)[..21].to_owned()), "{said}");
        assert!(session.in_flight() == 1 && !session.only_waits(), "the order is under way still");
    }

    /// That node let go of the register, or never began with it: it would send the client back.
    #[tokio::test]
    async fn a_client_is_not_sent_on_to_a_node_that_says_that_it_owns_nothing() {
        for owns in [true, false] {
            let other = Node::ordinary(Owner { disowns: !owns, ..Owner::default() });
            other.owner.standing.send_replace(PeerStanding { owns, unready: None });
            let link = link_to(other.address);
            connected(&link).await;
            while link.standing().is_none() {
                tokio::task::yield_now().await;
            }
            let server = server();
            server.seat.become_role(Role::Follower { owner: "other".into(), address: "".into(), link });
            let (mut session, _inlet) = Session::new(Arc::clone(&server), "client".into());
            session.begin(Instant::now());
            session.feed(br#"{"jsonrpc":"2.0","id":1,"method":"session.set","params":{"redirect":true}}"#);
            session.feed(br#"{"jsonrpc":"2.0","id":2,"method":"ip.list","params":{"network":"lan"}}"#);
            session.flush();
            let said = String::from_utf8(std::mem::take(&mut session.out)).expect("it is text");
            assert_eq!(said.contains(r#""kind":"moved""#), owns, "{said}");
            assert_eq!(session.in_flight(), usize::from(!owns), "it is asked itself: {said}");
        }
    }
}
