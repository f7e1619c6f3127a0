//! SET on a bare Redis, one request at a time: the cost of a round trip to the store, whatever the store does.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::probe::Size;
use crate::driver::{self, Shape, Workload};
use crate::meter::{Kind, Meter, Outside};
use crate::names::Who;
use crate::report::Report;
use crate::scan::{Answer, Said};
use crate::target::push_word;

/// As long as the record of a reservation.
const VALUE: &str = "an address, whose it is, since when, and what it is held for";

#[derive(Default)]
struct Sets {
    count: u32,
    /// The first answer of Redis that was not OK.
    error: Option<String>,
}

impl Workload for Sets {
    const IN_ORDER: bool = true;

    fn request(&mut self, lane: usize, _id: usize, _now: Duration, out: &mut Vec<u8>) -> Option<Kind> {
        let key = Who::new(lane, self.count, 0).name();
        self.count += 1;
        out.extend_from_slice(b"*3\r\n");
        ["SET", &key, VALUE].iter().for_each(|word| push_word(out, word));
        Some(Kind::Allocate)
    }

    fn answer(&mut self, _lane: usize, _now: Duration, answer: &Answer<'_>, _counts: bool) -> bool {
        let is_done = answer.said == Said::Result;
        if !is_done && self.error.is_none() {
            self.error = Some(String::from_utf8_lossy(answer.line).trim_end().to_owned());
        }
        is_done
    }

    fn read<'a>(&self, line: &'a [u8], oldest: usize) -> Option<Answer<'a>> {
        let said = if line.starts_with(b"+OK") { Said::Result } else { Said::Refusal };
        Some(Answer { id: oldest, said, line })
    }

    fn outside(&self) -> Outside {
        Outside::default()
    }
}

/// SET over one connection, one request at a time.
///
/// # Errors
/// Redis is not there, or refuses.
pub fn measure(redis: SocketAddr, size: &Size) -> io::Result<Report> {
    let shape = Shape { servers: vec![redis], ..size.shape(1, 1) };
    let mut sets = Sets::default();
    let measured = driver::run(&shape, &mut sets, Meter::new(shape.expected(), None))?.whole()?;
    match sets.error {
        Some(error) => Err(io::Error::other(format!("SET: {error}"))),
        None => Ok(Report::measured("SET", "", &shape, 1, &measured)),
    }
}
