//! Times as people type them: RFC 3339, or a duration before now.

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

use super::failure::Failure;
use super::session::{Done, Session};
use crate::core::types::WallTime;

const FORM: &str = "a time is written as 2026-03-01T09:12:44Z, or so long ago: 90m, -2h, `1 day ago`";

/// A time that was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// This point in time.
    Then(Timestamp),
    /// This long before the server's current time.
    Ago(SignedDuration),
}

/// Parses a time: `2026-03-01T09:12:44Z`, with any offset; `now`; or a past one as `90m`, `-2h`, `2h ago`, `1 day 6 hours`.
/// A day has 24 hours.
///
/// # Errors
/// How a time is written.
pub fn parse(text: &str) -> Result<Time, String> {
    if text == "now" {
        return Ok(Time::Ago(SignedDuration::ZERO));
    }
    if let Ok(time) = text.parse() {
        return Ok(Time::Then(time));
    }
    let span: Span = text.parse().map_err(|_| FORM.to_owned())?;
    let ago = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| FORM.to_owned())?;
    // Only past times make sense, with or without the sign.
    Ok(Time::Ago(ago.abs()))
}

/// Parses a time with any offset and any digits of a second, and writes it in the form of the protocol.
///
/// # Errors
/// How a time is written.
pub fn written(text: &str) -> Result<String, String> {
    let time: Timestamp = text.parse().map_err(|_| "a time is written as 2026-03-01T09:12:44Z".to_owned())?;
    let millisecond = u64::try_from(time.as_millisecond()).map_err(|_| "there was no such time".to_owned())?;
    Ok(protocol_text(WallTime(millisecond)))
}

/// The time in the form of the protocol; none if that cannot express it.
pub fn protocol(time: Timestamp) -> Option<String> {
    u64::try_from(time.as_millisecond()).ok().map(|millisecond| protocol_text(WallTime(millisecond)))
}

fn protocol_text(wall: WallTime) -> String {
    serde_json::to_value(wall).ok().and_then(|time| Some(time.as_str()?.to_owned())).unwrap_or_default()
}

impl Time {
    /// The text of a past time: nothing is known about the future.
    ///
    /// # Errors
    /// The time is in the future; or as of [`Time::text`].
    pub async fn past(self, session: &mut Session, asked: &str) -> Done<String> {
        let at = self.text(session).await?;
        if matches!(self, Self::Then(_)) {
            let now = Self::Ago(SignedDuration::ZERO).text(session).await?;
            if at > now {
                let problem = format!("{at} is to come: the server's time is {now}");
                return Err(Failure::usage(asked, problem, "name a time that is past, or `--at now`").into());
            }
        }
        Ok(at)
    }

    /// The time in the form of the protocol. A duration counts back from the server's clock, which also stamps the events.
    ///
    /// # Errors
    /// The server does not report its time, or the time is out of range.
    pub async fn text(self, session: &mut Session) -> Done<String> {
        let time = match self {
            Self::Then(time) => Some(time),
            Self::Ago(ago) => {
                let info = session.call("server.info", serde_json::json!({})).await?;
                let now = info.get("time").and_then(|time| time.as_str()?.parse::<Timestamp>().ok());
                now.and_then(|now| now.checked_sub(ago).ok())
            }
        };
        let millisecond = time.and_then(|time| u64::try_from(time.as_millisecond()).ok());
        let wall = millisecond.map(WallTime).ok_or_else(|| {
            Failure::usage("tell what was then", "there was no such time in the register".to_owned(), FORM)
        })?;
        Ok(protocol_text(wall))
    }
}

/// A duration for people, in the largest unit of which there are at least two.
pub fn lasting(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("min", 60)];
    let unit = units.into_iter().find(|(_, length)| seconds >= 2 * length);
    unit.map_or_else(|| format!("{seconds} s"), |(name, length)| format!("{} {name}", seconds / length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let minutes = |minutes| Ok(Time::Ago(SignedDuration::from_mins(minutes)));
        for text in ["90m", "-90m", "90m ago", "1h30m", "-1h 30m", "1 hour, 30 minutes ago", "PT90M", "90 min"] {
            assert_eq!(parse(text), minutes(90), "{text}");
        }
        for text in ["2d", "-2d", "2 days ago", "48h"] {
            assert_eq!(parse(text), minutes(2 * 24 * 60), "{text}");
        }
        assert_eq!(parse("now"), minutes(0));
        for text in ["2026-03-01T09:12:44.031Z", "2026-03-01T10:12:44.031+01:00", "2026-03-01 09:12:44.031Z"] {
            assert_eq!(parse(text), Ok(Time::Then(Timestamp::from_millisecond(1_772_356_364_031).unwrap())), "{text}");
        }
        for text in ["", "h", "90", "90x", "yesterday", "2026-03-01", "2026-03-01T09:12:44", "1 month ago", "2h later"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_lasts_is_told_in_the_largest_unit_of_which_there_are_two() {
        let told = [0, 119, 120, 7_199, 7_200, 172_799, 172_800].map(lasting);
        assert_eq!(told, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"]);
    }
}
