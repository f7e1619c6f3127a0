//! Reports what cannot be tested on this machine: a test that ends early has not passed.

use std::io::Write;

/// Says that this test ends here: to the reader, and to `tests/run`, which lists skipped tests.
pub fn skip(why: &str) {
    skip_of("", why);
}

/// Like [`skip`], but `kind` at the beginning of the line makes `tests/run` list the test apart.
pub fn skip_of(kind: &str, why: &str) {
    let line = format!("{kind}{}: {why}", std::thread::current().name().unwrap_or("a test"));
    eprintln!("skipped: {line}");
    if let Some(path) = std::env::var_os("ALLOD_SKIPS_FILE") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}
