//! Unit tests of the files for TLS to Redis. The behaviour against real servers is tested in `tests/faults/tls.rs`.
#![allow(clippy::disallowed_methods, reason = "files of a test need not survive anything")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;

#[path = "../../../../tests/support/authority.rs"]
#[allow(dead_code, reason = "shared with the tests of nodes")]
mod authority;

use authority::Authority;

/// A certificate of version 1, as made by `openssl x509 -req` without `-extfile`.
const OF_VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBGjCBwQIUM6HQywiQhQs+qbV24XiHVom1ALYwCgYIKoZIzj0EAwIwDTELMAkG
A1UEAwwCY2EwIBcNMjYxMTI5MDkyMzE0WhgPMjEyNjExMDUwOTIzMTRaMBExDzAN
BgNVBAMMBmNsaWVudDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJCvlR0thz4e
pw8xIys6tfH35HU9nbVGZPZwk/+gqGfkprW26jWdqVsG8fQ3YuVdzxFj75suieiI
e53fWPqQWMcwCgYIKoZIzj0EAwIDSAAwRQIhAI95ofcUn+HsJa3aAi0O+x8MRDZ5
6xpuP1buxHdo8a4qAiAYWoSp7C5pqwcepseWiHOxP4/5Bl+bQNXyUEpaWBbzYA==
-----END CERTIFICATE-----
";

fn only_ca(ca: &Path) -> TlsFiles {
    TlsFiles { ca: ca.to_owned(), ..TlsFiles::default() }
}

#[test]
fn files_that_are_what_they_are_to_be_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new(directory.path(), "ca");
    let client = ca.signs("client", &["client.example"]);
    let files = TlsFiles { ca: ca.own.certificate.clone(), certificate: client.certificate, key: client.key };
    files.check().unwrap();
    RedisTls::new(&files).unwrap();
    TlsFiles::default().check().unwrap();
    // The certificates of several authorities in one file.
    let other = Authority::new(directory.path(), "other");
    let both = [&ca, &other].map(|one| std::fs::read_to_string(&one.own.certificate).unwrap()).concat();
    let file = directory.path().join("both.pem");
    std::fs::write(&file, both).unwrap();
    only_ca(&file).check().unwrap();
    assert_eq!(only_ca(&file).found().unwrap().roots.unwrap().len(), 2);
}

#[test]
fn a_file_that_is_something_else_is_refused_by_its_setting_with_what_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new(directory.path(), "ca");
    let (one, two) = (ca.signs("one", &["one.example"]), ca.signs("two", &["two.example"]));
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let shows = |certificate: &Path, key: &Path| TlsFiles {
        ca: ca.own.certificate.clone(),
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    };
    let whole = std::fs::read_to_string(&one.certificate).unwrap();
    let begun = &whole[..whole.len() / 2];
    for (files, key, said) in [
        (only_ca(&directory.path().join("none")), "redis_ca", "which cannot be read: No such file"),
        (only_ca(directory.path()), "redis_ca", "which cannot be read"),
        (only_ca(&file("empty", "")), "redis_ca", "which has no certificate"),
        (only_ca(&one.key), "redis_ca", "which has no certificate"),
        (only_ca(&file("half", begun)), "redis_ca", "which is broken off"),
        (
            only_ca(&file("odd", "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n")),
            "redis_ca",
            "something else where a certificate is to be",
        ),
        (shows(&file("text", "dear"), &one.key), "redis_certificate", "which has no certificate"),
        // The version is checked first: whether the key fits does not matter.
        (shows(&file("v1", OF_VERSION_1), &one.key), "redis_certificate", "of version 1 of X.509"),
        (shows(&one.certificate, &one.certificate), "redis_key", "which has none"),
        (shows(&one.certificate, &two.key), "redis_key", "which does not fit `store.redis_certificate`"),
        (shows(&one.certificate, Path::new("")), "redis_key", "which cannot be read"),
    ] {
        let problem = files.check().unwrap_err();
        assert!(problem.starts_with(&format!("`store.{key}` is \"")), "{problem}");
        assert!(problem.contains(said) && problem.contains("; it must be a file "), "{said}: {problem}");
        assert_eq!(RedisTls::new(&files).unwrap_err(), problem);
    }
}

#[test]
fn a_key_is_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new(directory.path(), "ca");
    let one = ca.signs("one", &["one.example"]);
    let key = std::fs::read_to_string(&one.key).unwrap();
    let files = TlsFiles { ca: one.key.clone(), certificate: one.key.clone(), key: one.certificate.clone() };
    let right = TlsFiles { ca: ca.own.certificate.clone(), certificate: one.certificate, key: one.key };
    let shown = [files.check().unwrap_err(), format!("{right:?} {:?}", RedisTls::new(&right).unwrap())].concat();
    assert!(key.lines().all(|line| line.starts_with("--") || !shown.contains(line)), "{shown}");
}

#[test]
fn what_the_files_have_ends_when_the_last_signer_and_the_first_certificate_do() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new(directory.path(), "ca");
    let (old, soon) = (ca.signs_until("old", &[], 2_001), ca.signs_for_days("soon", &["client.example"], 5));
    assert_eq!(TlsFiles::default().ends().unwrap(), TlsEnds::default());
    let file = directory.path().join("all.pem");
    let all = [&soon, &old].map(|one| std::fs::read_to_string(&one.certificate).unwrap()).concat();
    std::fs::write(&file, all).unwrap();
    let ends = TlsFiles { ca: file.clone(), certificate: file, key: soon.key.clone() }.ends().unwrap();
    assert_eq!(ends.ca, ends.certificate);
    let told: Vec<String> = ends.near().iter().map(NearEnd::to_string).collect();
    let says = |key: &str| told.iter().any(|told| told.contains(&format!("certificate of `{key}` expires at ")));
    assert!(says("store.redis_ca") && says("store.redis_certificate"), "{told:?}");
    let ends = TlsFiles { ca: ca.own.certificate.clone(), certificate: old.certificate, key: old.key }.ends().unwrap();
    assert!(ends.ca > ends.certificate);
    let told: String = ends.near().iter().map(NearEnd::to_string).collect();
    assert!(
        told.starts_with("the certificate of `store.redis_certificate` has expired at 2001-01-01T00:00:00Z: put"),
        "{told}"
    );
}

#[test]
fn files_are_read_again_once_they_are_other_ones_and_can_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new(directory.path(), "ca");
    let (one, two) = (ca.signs_until("one", &[], 2_090), ca.signs_until("two", &[], 2_091));
    let (certificate, key) = (directory.path().join("own.pem"), directory.path().join("own.key"));
    let put = |from: &Path, to: &Path| {
        let new = directory.path().join("new");
        std::fs::copy(from, &new).unwrap();
        std::fs::rename(&new, to).unwrap();
    };
    put(&one.certificate, &certificate);
    put(&one.key, &key);
    let tls =
        RedisTls::new(&TlsFiles { ca: ca.own.certificate.clone(), certificate: certificate.clone(), key: key.clone() });
    let tls = tls.unwrap();
    let ends = || {
        tls.look_at_disk();
        tls.ends().certificate.unwrap()
    };
    let first = ends();
    // The new certificate does not fit the key that is still there.
    put(&two.certificate, &certificate);
    assert_eq!(ends(), first);
    put(&two.key, &key);
    let second = ends();
    assert!(second > first);
    std::fs::remove_file(&key).unwrap();
    put(&one.certificate, &certificate);
    assert_eq!(ends(), second);
    put(&one.key, &key);
    assert_eq!(ends(), first);
}

/// For example, as many files were open as may be: nothing is known of what these contain.
#[test]
fn files_that_could_not_be_read_once_are_read_again_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new(directory.path(), "ca");
    let (one, two) = (ca.signs_until("one", &[], 2_090), ca.signs_until("two", &[], 2_091));
    let (certificate, key) = (directory.path().join("own.pem"), directory.path().join("own.key"));
    let put = |signed: &authority::Signed| {
        std::fs::copy(&signed.certificate, &certificate).unwrap();
        std::fs::copy(&signed.key, &key).unwrap();
    };
    put(&one);
    let files = TlsFiles { certificate: certificate.clone(), key: key.clone(), ..only_ca(&ca.own.certificate) };
    let tls = RedisTls::new(&files).unwrap();
    let first = tls.ends();
    put(&two);
    tls.look_by(|_, _| Err(TlsProblem { text: "too many open files".to_owned(), may_pass: true }));
    assert_eq!(tls.ends(), first);
    tls.look_at_disk();
    assert!(tls.ends().certificate > first.certificate, "they are never read again");
    // What is wrong with the content stays wrong until the file is replaced, and so does a name without a file.
    let may_pass = |files: TlsFiles| files.read().map(drop).unwrap_err().may_pass;
    assert!(may_pass(only_ca(directory.path())), "a read that failed");
    assert!(!may_pass(only_ca(&directory.path().join("none"))) && !may_pass(only_ca(&key)));
}

/// The committing thread also makes connections: a disk that does not answer must not hold it up.
#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_answer_holds_up_nobody_who_wants_a_connection() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Authority::new(directory.path(), "ca");
    let own = ca.signs_until("own", &[], 2_090);
    let hangs = directory.path().join("hangs.pem");
    std::fs::copy(&own.certificate, &hangs).unwrap();
    let tls = RedisTls::new(&TlsFiles { certificate: hangs.clone(), key: own.key, ..only_ca(&ca.own.certificate) });
    let tls = Arc::new(tls.unwrap());
    let ends = tls.ends();
    // Opening a pipe for reading waits for a writer.
    std::fs::remove_file(&hangs).unwrap();
    let pipe = rustix::fs::mknodat(rustix::fs::CWD, &hangs, rustix::fs::FileType::Fifo, 0o600.into(), 0);
    pipe.unwrap();
    let (went_on, waits) = std::sync::mpsc::channel();
    let disk = std::thread::spawn(move || {
        let was_waited_for = waits.recv_timeout(Duration::from_secs(20)).is_err();
        drop(std::fs::OpenOptions::new().write(true).open(&hangs).unwrap());
        was_waited_for
    });
    // The second one finds the first check still under way. Sentinels have twice this time, from the first packet on.
    let within = Duration::from_millis(100);
    for _ in 0..2 {
        let (connector, ()) =
            tokio::join!(tokio::time::timeout(within, tls.connector()), tokio::time::advance(2 * within));
        assert!(connector.is_ok(), "the time for the connection was over before");
    }
    assert_eq!(tls.ends(), ends, "what was read before is used");
    went_on.send(()).unwrap();
    assert!(!disk.join().unwrap(), "it was waited for until the disk answered");
}
