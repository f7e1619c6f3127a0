//! A certificate authority for tests: it signs the certificates of a Redis over TLS and of the clients that connect to it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// A certificate and its key, in PEM files.
pub struct Signed {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A certificate authority. It writes its files into a directory of the test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: PathBuf,
    /// The authority's own certificate.
    pub own: Signed,
}

impl Authority {
    pub fn new(directory: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let own = written(directory, name, &certificate.pem(), &key);
        Self { issuer: Issuer::new(params, key), directory: directory.to_owned(), own }
    }

    /// Signs a certificate for these hosts, in files of this name.
    pub fn signs(&self, name: &str, hosts: &[&str]) -> Signed {
        self.signs_until(name, hosts, 2_100)
    }

    /// Like [`Authority::signs`], but the certificate ends with the beginning of this year.
    pub fn signs_until(&self, name: &str, hosts: &[&str], year: i32) -> Signed {
        self.signs_to(name, hosts, (year, 1, 1))
    }

    /// Like [`Authority::signs`], but the certificate ends on the day that is this many days from today.
    #[allow(dead_code, reason = "only some of those who share this file wait for an end")]
    pub fn signs_for_days(&self, name: &str, hosts: &[&str], days: i64) -> Signed {
        let end = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
        let end = end.to_zoned(jiff::tz::TimeZone::UTC).date();
        self.signs_to(name, hosts, (end.year().into(), end.month().unsigned_abs(), end.day().unsigned_abs()))
    }

    /// Like [`Authority::signs`], but the certificate is valid for this long from now.
    #[allow(dead_code, reason = "only some of those who share this file wait for an end")]
    pub fn signs_for(&self, name: &str, hosts: &[&str], time: Duration) -> Signed {
        let end = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + time;
        self.signs_as(name, hosts, |params| params.not_after = date_time_ymd(1_970, 1, 1) + end)
    }

    fn signs_to(&self, name: &str, hosts: &[&str], (year, month, day): (i32, u8, u8)) -> Signed {
        self.signs_as(name, hosts, |params| params.not_after = date_time_ymd(year, month, day))
    }

    fn signs_as(&self, name: &str, hosts: &[&str], is_to_be: impl FnOnce(&mut CertificateParams)) -> Signed {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        is_to_be(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        written(&self.directory, name, &certificate.pem(), &key)
    }

    /// The settings of a Redis, and of its replicas, that shows the certificate `shown`. `auth_clients` (`yes` or `no`) says
    /// whether clients must show a certificate of this authority.
    #[allow(dead_code, reason = "only some of those who share this file start a Redis")]
    pub fn settings(&self, shown: &Signed, auth_clients: &str) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let files = [
            ("--tls-cert-file", text(&shown.certificate)),
            ("--tls-key-file", text(&shown.key)),
            ("--tls-ca-cert-file", text(&self.own.certificate)),
            ("--tls-auth-clients", auth_clients.to_owned()),
            ("--tls-replication", "yes".to_owned()),
        ];
        files.into_iter().flat_map(|(setting, value)| [setting.to_owned(), value]).collect()
    }
}

fn written(directory: &Path, name: &str, certificate: &str, key: &KeyPair) -> Signed {
    let signed =
        Signed { certificate: directory.join(format!("{name}.pem")), key: directory.join(format!("{name}.key")) };
    std::fs::write(&signed.certificate, certificate).unwrap();
    std::fs::write(&signed.key, key.serialize_pem()).unwrap();
    signed
}
