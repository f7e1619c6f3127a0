//! The display of a run, on a terminal and elsewhere.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Output, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::program::{load, said};

const RUN: &str = "run fill --start memory --requests 3000 --rate 3000 --arrivals even --connections 2 --depth 8";

/// The drawings of a run on a terminal of this width, and its output.
fn drawn_on(columns: u16) -> (String, Output) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    tcsetwinsize(&ours, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let terminal = OpenOptions::new().read(true).write(true).open(name).unwrap();
    let mut command = load();
    let child =
        command.args(RUN.split(' ')).env("TERM", "xterm").stdout(Stdio::piped()).stderr(terminal).spawn().unwrap();
    // The command still holds its end of the terminal; the read below ends when no process holds it any more.
    drop(command);
    let mut drawn = Vec::new();
    // On Linux, reading from a terminal that no process holds ends with an error.
    let _ = File::from(ours).read_to_end(&mut drawn);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    (String::from_utf8_lossy(&drawn).into_owned(), output)
}

#[test]
fn a_run_on_a_terminal_is_drawn_again_and_again_and_ends_with_its_report() {
    let (text, output) = drawn_on(120);
    // Each drawing except the first goes back over the six lines of the previous one.
    assert!(text.matches("\x1b[6A\x1b[J").count() >= 2, "{text}");
    for shown in ["making networks", "rate ", "/s", "p99.9", "no faults", "fill ", "held"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(said(&output).contains("no address was handed out twice"), "{}", said(&output));
}

#[test]
fn no_line_is_longer_than_the_terminal_is_wide() {
    let (text, _) = drawn_on(40);
    // The text before the first escape is not a drawing.
    let text = &text[text.find('\x1b').unwrap()..];
    let widths = text.lines().map(|line| {
        // Between an escape and the letter that ends it there are only digits, brackets and semicolons.
        let parts = line.trim_end_matches('\r').split('\x1b').enumerate();
        parts
            .map(|(at, part)| if at == 0 { part } else { part.trim_start_matches(|c| "[;0123456789".contains(c)) })
            .map(|part| part.strip_prefix(['m', 'A', 'J']).unwrap_or(part).chars().count())
            .sum::<usize>()
    });
    assert_eq!(widths.max(), Some(39), "{text}");
    assert!(text.contains("\x1b[6A\x1b[J"), "{text}");
}

#[test]
fn nothing_is_drawn_where_nobody_looks() {
    let output = load().args(RUN.split(' ')).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!said(&output).contains('\x1b'), "{}", said(&output));
}
