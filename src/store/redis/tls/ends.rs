//! When certificates expire. All nodes lose the register at once when one does, and they notice it only at the next
//! connection: so it is reported in advance.

use std::fmt;
use std::time::Duration;

use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::x509::X509Version;

use crate::store::redis::refusal::time;

/// A certificate that expires within this time is reported.
const TOLD_BEFORE: Duration = Duration::from_hours(14 * 24);

/// When a certificate expires, in seconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificateEnd(pub u64);

impl CertificateEnd {
    /// If it is near: when, and how much time is left, in words.
    pub fn near(self) -> Option<String> {
        self.near_at(UnixTime::now())
    }

    fn near_at(self, now: UnixTime) -> Option<String> {
        let at = time(UnixTime::since_unix_epoch(Duration::from_secs(self.0)));
        let left = match self.0.checked_sub(now.as_secs()) {
            None => return Some(format!("has expired at {at}")),
            Some(left) if left >= TOLD_BEFORE.as_secs() => return None,
            Some(left) => left,
        };
        let left = match (left / 86_400, left / 3_600) {
            (0, 0) => "less than an hour".to_owned(),
            (0, 1) => "an hour".to_owned(),
            (0, hours) => format!("{hours} hours"),
            (1, _) => "a day".to_owned(),
            (days, _) => format!("{days} days"),
        };
        Some(format!("expires at {at}, in {left}"))
    }
}

/// A certificate that has expired, or will soon, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearEnd {
    /// Which certificate, and when.
    pub seen: String,
    /// What to do.
    pub hint: &'static str,
}

impl fmt::Display for NearEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.seen, self.hint)
    }
}

/// When it expires; none if that cannot be read, which the verification will report.
pub(super) fn end_of(certificate: &CertificateDer<'_>) -> Option<CertificateEnd> {
    let (_, read) = x509_parser::parse_x509_certificate(certificate).ok()?;
    u64::try_from(read.validity().not_after.timestamp()).ok().map(CertificateEnd)
}

/// Its version of X.509; none if that cannot be read.
pub(super) fn version_of(certificate: &CertificateDer<'_>) -> Option<X509Version> {
    let (_, read) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(read.version())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_within_two_weeks_is_told_with_what_is_left_of_it() {
        let end = CertificateEnd(978_307_200);
        let told = |before: u64| end.near_at(UnixTime::since_unix_epoch(Duration::from_secs(end.0 - before)));
        assert_eq!(told(14 * 86_400), None);
        for (before, left) in [
            (14 * 86_400 - 1, "13 days"),
            (2 * 86_400 - 1, "a day"),
            (86_400 - 1, "23 hours"),
            (3_600, "an hour"),
            (0, "less than an hour"),
        ] {
            assert_eq!(told(before), Some(format!("expires at 2001-01-01T00:00:00Z, in {left}")));
        }
        let after = UnixTime::since_unix_epoch(Duration::from_secs(end.0 + 1));
        assert_eq!(end.near_at(after).as_deref(), Some("has expired at 2001-01-01T00:00:00Z"));
    }
}
