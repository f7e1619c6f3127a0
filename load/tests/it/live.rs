//! The display of a run, on a terminal and elsewhere.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::program::{load, said};

const RUN: &str = "run fill --start memory --requests 3000 --rate 3000 --arrivals even --connections 2 --depth 8";

#[test]
fn a_run_on_a_terminal_is_drawn_again_and_again_and_ends_with_its_report() {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let terminal = OpenOptions::new().read(true).write(true).open(name).unwrap();
    let mut command = load();
    let child =
        command.args(RUN.split(' ')).env("TERM", "xterm").stdout(Stdio::piped()).stderr(terminal).spawn().unwrap();
    // The end of the terminal that the command still holds; what is drawn ends when nobody has it any more.
    drop(command);
    let mut drawn = Vec::new();
    // Linux ends a terminal that nobody holds with an error.
    let _ = File::from(ours).read_to_end(&mut drawn);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8_lossy(&drawn);
    // Each drawing but the first goes back over the six lines of the one before.
    assert!(text.matches("\x1b[6A\x1b[J").count() >= 2, "{text}");
    for shown in ["rate ", "/s", "p99.9", "no faults", "fill ", "held"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(said(&output).contains("no address was handed out twice"), "{}", said(&output));
}

#[test]
fn nothing_is_drawn_where_nobody_looks() {
    let output = load().args(RUN.split(' ')).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(!said(&output).contains('\x1b'), "{}", said(&output));
}
