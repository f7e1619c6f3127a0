//! Tells of what cannot be tested on this machine: a test that ends early has not passed.

use std::io::Write;

/// This test ends here: tells the reader, and `tests/run`, which lists it.
pub fn skip(why: &str) {
    skip_of("", why);
}

/// This test ends here, and is listed apart, as `kind` at the beginning of its line says.
pub fn skip_of(kind: &str, why: &str) {
    let line = format!("{kind}{}: {why}", std::thread::current().name().unwrap_or("a test"));
    eprintln!("skipped: {line}");
    if let Some(path) = std::env::var_os("ALLOD_SKIPS_FILE") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}
