//! What happened, for people (the last events as text) and for comparing two runs (a digest of all
//! events).

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;

use super::fault::Operation;
use super::tape;

/// Events kept for people.
const EVENTS_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub(super) enum Event {
    Operation(Operation),
    Note(String),
}

/// Bounded history and digest.
#[derive(Debug)]
pub(super) struct Trace {
    events: VecDeque<(u64, Event)>,
    digest: u64,
}

impl Trace {
    pub(super) fn new() -> Trace {
        Trace { events: VecDeque::new(), digest: 0xCBF2_9CE4_8422_2325 }
    }

    /// Mixes a number into the digest.
    pub(super) fn mix(&mut self, value: u64) {
        self.digest = (self.digest ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }

    fn mix_path(&mut self, path: &Path) {
        for byte in path.as_os_str().as_encoded_bytes() {
            self.mix(u64::from(*byte));
        }
    }

    pub(super) fn operation(&mut self, now: u64, operation: &Operation) {
        for value in
            [now, u64::from(operation.process.0), operation.kind as u64, operation.offset, operation.length]
        {
            self.mix(value);
        }
        self.mix_path(&operation.path);
        self.push(now, Event::Operation(operation.clone()));
    }

    pub(super) fn note(&mut self, now: u64, note: String) {
        self.mix(now);
        self.mix_path(Path::new(&note));
        tape::note(|| line(now, &note));
        self.push(now, Event::Note(note));
    }

    fn push(&mut self, now: u64, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back((now, event));
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let shown = |(now, event): &(u64, Event)| match event {
            Event::Operation(operation) => line(*now, operation),
            Event::Note(note) => line(*now, note),
        };
        self.events.iter().map(shown).collect()
    }
}

/// Something that happened, with the moment.
pub(super) fn line(now: u64, what: impl fmt::Display) -> String {
    format!("{:>12.3} µs  {what}", micros(now))
}

#[expect(clippy::cast_precision_loss, reason = "shown to people only")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}
