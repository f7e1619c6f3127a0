//! The Python client does what its page says: against the real program, and when answers are lost or very long.

use std::process::Command;

use crate::server::Starting;

/// Runs a script beside this file, which prints `ok` at its end.
#[track_caller]
fn runs(script: &str, argument: &str) {
    let root = env!("CARGO_MANIFEST_DIR");
    let ran = Command::new("python3")
        .arg(format!("{root}/tests/e2e/{script}"))
        .arg(argument)
        .arg(format!("{root}/deploy/python"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && ran.stdout == b"ok\n", "{said}");
}

fn there_is_no_python() -> bool {
    let missing = Command::new("python3").arg("--version").output().is_err();
    if missing {
        crate::redis::process::skips::skip("there is no python3");
    }
    missing
}

#[test]
fn the_python_client_does_what_its_page_says() {
    if there_is_no_python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = Starting::new(&directory.path().join("data")).ready();
    runs("python_client.py", &server.address.to_string());
}

#[test]
fn the_python_client_takes_long_answers_and_asks_once_for_one_that_is_too_long() {
    if !there_is_no_python() {
        runs("python_answers.py", "long");
    }
}

#[test]
fn the_python_client_passes_off_no_refusal_of_a_repeat_as_the_answer_to_a_try_that_was_lost() {
    if !there_is_no_python() {
        runs("python_answers.py", "refused");
    }
}

#[test]
fn the_python_client_keeps_nothing_of_a_call_whose_time_is_over() {
    if !there_is_no_python() {
        runs("python_answers.py", "late");
    }
}

#[test]
fn the_python_client_ends_a_watch_that_is_told_nothing_any_more() {
    if !there_is_no_python() {
        runs("python_answers.py", "deaf");
    }
}

#[test]
fn the_python_client_takes_the_events_of_several_watches_apart() {
    if !there_is_no_python() {
        runs("python_answers.py", "apart");
    }
}

#[test]
fn the_python_client_keeps_nothing_of_a_watch_that_was_left() {
    if !there_is_no_python() {
        runs("python_answers.py", "left");
    }
}

#[test]
fn the_python_client_repeats_no_call_whose_own_deadline_has_passed() {
    if !there_is_no_python() {
        runs("python_answers.py", "due");
    }
}

#[test]
fn the_python_client_gives_up_a_server_that_hangs_and_asks_another_one() {
    if !there_is_no_python() {
        runs("python_answers.py", "hangs");
    }
}

#[test]
fn the_python_client_takes_no_address_for_another_and_passes_over_a_name_that_cannot_be_one() {
    if !there_is_no_python() {
        runs("python_answers.py", "addresses");
    }
}

#[test]
fn the_python_client_says_that_it_is_lost_where_something_else_listens() {
    if !there_is_no_python() {
        runs("python_answers.py", "foreign");
    }
}

#[test]
fn the_python_client_waits_for_no_answer_over_a_connection_that_it_closed() {
    if !there_is_no_python() {
        runs("python_answers.py", "closed");
    }
}

#[test]
fn the_python_client_has_nobody_wait_for_it_when_its_time_is_over() {
    if !there_is_no_python() {
        runs("python_answers.py", "waits");
    }
}
