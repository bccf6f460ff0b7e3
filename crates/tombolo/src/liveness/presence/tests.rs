use tombolo_format::manifest;

use super::*;
use crate::manifest::state::State;

/// A name in the store may be anything: none of it reaches a terminal as it is.
#[test]
fn a_writer_is_shown_without_what_steers_a_terminal() {
    let claimed = manifest::Writer {
        host: "db7\u{1b}[2J".into(),
        program: "orders\n".into(),
        process: 4711,
        since_unix_seconds: 1_764_230_400,
        ..manifest::Writer::default()
    };
    let named = manifest::Edit::WriterNamed { epoch: 12, writer: claimed };
    let state = State::from_snapshot(12, Epoch(12), &[named]).unwrap();
    let shown = Writer::of(state.writer().unwrap()).to_string();
    assert_eq!(
        shown,
        "process 4711 (orders\u{fffd}) on db7\u{fffd}[2J, since 2025-11-27 08:00:00 UTC, epoch 12"
    );
    let error = in_use(&Writer::of(state.writer().unwrap()), Seen::Process);
    assert!(error.message().contains("process 4711") && error.next_step().unwrap().contains("--take-over"));
}
