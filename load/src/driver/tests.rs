//! The driver against a server of a few lines that ends a connection when the test wants it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::*;
use crate::arrivals::{Rate, Spread};

/// A request is its id. The answer of the first lane is taken only when the server says so.
struct Held {
    answered: Vec<usize>,
    is_taking: SyncSender<()>,
    go_on: Receiver<()>,
}

impl Workload for Held {
    fn request(&mut self, _lane: usize, id: usize, _now: Duration, out: &mut Vec<u8>) -> Option<Kind> {
        out.extend_from_slice(format!("{id}\n").as_bytes());
        Some(Kind::Allocate)
    }

    fn answer(&mut self, lane: usize, _now: Duration, _answer: &Answer<'_>, _counts: bool) -> bool {
        self.answered.push(lane);
        if lane == 0 {
            self.is_taking.send(()).unwrap();
            self.go_on.recv().unwrap();
        }
        true
    }

    fn read<'a>(&self, line: &'a [u8], _oldest: usize) -> Option<Answer<'a>> {
        let id = str::from_utf8(line).ok()?.parse().ok()?;
        Some(Answer { id, said: scan::Said::Result, line })
    }

    fn outside(&self) -> Outside {
        Outside::default()
    }
}

#[test]
fn what_other_connections_received_before_one_broke_is_judged() {
    for rest in ["", "a beginning"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ((is_taking, taking), (resume, go_on)) = (sync_channel(1), sync_channel(1));
        let server = thread::spawn(move || {
            let mut asked = (0..2).map(|_| {
                let (stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                (stream, line)
            });
            let ((mut first, answer), (mut second, other)) = (asked.next().unwrap(), asked.next().unwrap());
            first.write_all(answer.as_bytes()).unwrap();
            taking.recv().unwrap();
            // The client learns of the end of the first connection, and then of the answer on the second one.
            drop(first);
            second.write_all(format!("{other}{rest}").as_bytes()).unwrap();
            resume.send(()).unwrap();
            second
        });
        let shape = Shape { servers: vec![address], ..Shape::closed(2, 1, Stop::After(Duration::from_secs(3_600))) };
        let mut held = Held { answered: Vec::new(), is_taking, go_on };
        let measured = run(&shape, &mut held, Meter::new(None, None)).unwrap();
        drop(server.join().unwrap());
        let why = measured.cut_off.unwrap_or_default();
        assert!(why.contains(&address.to_string()), "{why}");
        assert_eq!((held.answered, measured.answers), (vec![0, 1], 2), "{why}");
    }
}

/// The schedule would have more arrive, which is due at once and never sent: nothing is left to do but to wait for answers.
#[test]
fn once_all_is_sent_the_open_loop_wakes_for_answers_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rate = Some(Rate { per_second: 1e6, spread: Spread::Even });
    let servers = vec![listener.local_addr().unwrap()];
    let shape = Shape { servers, rate, ..Shape::closed(1, 2, Stop::Requests(1)) };
    let mut held = Held { answered: Vec::new(), is_taking: sync_channel(1).0, go_on: sync_channel(1).1 };
    let mut run = connected(&shape, &mut held, Meter::new(None, None)).unwrap();
    run.begin().unwrap();
    while !run.all_sent {
        run.send_arrivals().unwrap();
    }
    while run.begun.elapsed() < run.arrivals.as_ref().unwrap().next() {}
    assert_eq!((run.outstanding, run.free.len()), (1, 1));
    assert_eq!(run.sleep().tv_nsec, TICK.as_nanos() as i64);
}
