//! Each example does what it says: it checks itself, and ends with success.

use std::process::Command;

fn runs(program: &str, says: &[&str]) {
    let output = Command::new(program).output().expect("an example starts");
    let (shown, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{shown}\n{wrong}", output.status);
    for line in says {
        assert!(shown.contains(line), "{line:?} is missing in:\n{shown}");
    }
}

#[test]
fn the_service_answers_its_clients() {
    runs(env!("CARGO_BIN_EXE_service"), &["< value two books", "< entry client/3/99 written", "< none"]);
}

#[test]
fn the_queue_does_every_job_once() {
    runs(env!("CARGO_BIN_EXE_queue"), &["jobs 600 to 999 are waiting", "no job twice"]);
}

#[test]
fn the_counters_count_each_request_once() {
    runs(env!("CARGO_BIN_EXE_counter"), &["even: 2000", "odd: 2000"]);
}

#[test]
fn the_standby_finds_what_was_acknowledged() {
    runs(env!("CARGO_BIN_EXE_standby"), &["took over"]);
}

#[test]
fn the_readers_follow_to_the_last_version() {
    runs(
        env!("CARGO_BIN_EXE_readers"),
        &["reader 1: saw the last version", "reader 3: saw the last version"],
    );
}

#[test]
fn the_queries_are_those_of_plain_memory_after_kills_and_a_restore() {
    runs(
        env!("CARGO_BIN_EXE_nexmark"),
        &["killed a worker at event", "of 4000 events are those of plain memory, twice"],
    );
}
