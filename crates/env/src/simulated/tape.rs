//! The choices of a history on a tape: noted as they are made, and made again from an altered tape.
//!
//! What happens in a simulated world follows from choices: which task runs, how late a message
//! comes, what a client does next. A generator that has opened a [`Stream`] hands each of its
//! choices to the tape of its thread, when there is one, and takes what the tape says. So a history
//! that fails is shortened without knowing what it is about: choices are left out, or made smaller,
//! and the history runs again.
//!
//! 1. A choice is a number below a bound, and 0 is the one with which least happens: the first of
//!    those that wait, the shortest delay, no fault. A stream that is at its end goes on with 0.
//! 2. A value is 64 bits that something is told apart by. Beyond the end of its stream it is a
//!    fresh one.
//! 3. A stream is named by the seed of its generator and what that is for, not by when it was
//!    opened: when a generator is seeded by a value of another one's stream, leaving out other
//!    choices there does not take it away.
//!
//! Thread safety: a tape is its thread's, and a simulated world runs on one thread. Without a tape
//! a choice costs the look at one field.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// One entry of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A number below the bound of its place.
    Choice(u64),
    /// 64 bits.
    Value(u64),
}

impl Entry {
    fn number(self) -> u64 {
        match self {
            Entry::Choice(number) | Entry::Value(number) => number,
        }
    }
}

/// Names a stream: its generator's seed, what that draws for, and which of those it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    seed: u64,
    concern: u64,
    nth: u32,
}

/// The choices of a history, by stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tape(pub BTreeMap<Name, Vec<Entry>>);

impl Tape {
    /// How many entries it has.
    pub fn entries(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// How many of them say that something else than the least happens.
    pub fn choices(&self) -> usize {
        self.0.values().flatten().filter(|entry| matches!(entry, Entry::Choice(1..))).count()
    }

    /// Without the parts that may be left out: the zeros at the end of a stream, and empty streams.
    #[must_use]
    pub fn trimmed(mut self) -> Tape {
        for entries in self.0.values_mut() {
            let said =
                entries.iter().rposition(|entry| *entry != Entry::Choice(0)).map_or(0, |last| last + 1);
            entries.truncate(said);
        }
        self.0.retain(|_, entries| !entries.is_empty());
        self
    }
}

/// `seed.concern.nth:entry,entry;…` with numbers in hexadecimal: a choice as it is, `*n` for n
/// zeros, `=v` a value.
impl fmt::Display for Tape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, entries)) in self.0.iter().enumerate() {
            let before = if at == 0 { "" } else { ";" };
            write!(formatter, "{before}{:x}.{:x}.{:x}:", name.seed, name.concern, name.nth)?;
            let mut rest = &entries[..];
            while let Some((first, others)) = rest.split_first() {
                let comma = if rest.len() == entries.len() { "" } else { "," };
                let zeros = rest.iter().take_while(|entry| **entry == Entry::Choice(0)).count();
                rest = others;
                match first {
                    _ if zeros > 1 => {
                        write!(formatter, "{comma}*{zeros:x}")?;
                        rest = &rest[zeros - 1..];
                    }
                    Entry::Choice(number) => write!(formatter, "{comma}{number:x}")?,
                    Entry::Value(value) => write!(formatter, "{comma}={value:x}")?,
                }
            }
        }
        Ok(())
    }
}

/// Most entries of a tape that is read from text.
const ENTRIES_MAX: u64 = 1 << 24;

impl FromStr for Tape {
    type Err = String;

    fn from_str(text: &str) -> Result<Tape, String> {
        let number = |text: &str| {
            u64::from_str_radix(text, 16).map_err(|_| format!("{text:?} is no hexadecimal number of a tape"))
        };
        let mut tape = Tape::default();
        let mut left = ENTRIES_MAX;
        for stream in text.trim().split(';').filter(|stream| !stream.is_empty()) {
            let parts =
                stream.split_once(':').and_then(|(name, entries)| Some((name.split_once('.')?, entries)));
            let Some(((seed, rest), entries)) = parts else {
                return Err(format!("{stream:?} is no stream of a tape"));
            };
            let (concern, nth) =
                rest.split_once('.').ok_or_else(|| format!("{stream:?} has no name of three numbers"))?;
            let nth = u32::try_from(number(nth)?).map_err(|_| format!("{nth:?} is too large"))?;
            let name = Name { seed: number(seed)?, concern: number(concern)?, nth };
            let mut read = Vec::new();
            for entry in entries.split(',').filter(|entry| !entry.is_empty()) {
                let (entry, count) = match (entry.strip_prefix('*'), entry.strip_prefix('=')) {
                    (Some(count), _) => (Entry::Choice(0), number(count)?),
                    (_, Some(value)) => (Entry::Value(number(value)?), 1),
                    _ => (Entry::Choice(number(entry)?), 1),
                };
                left = left
                    .checked_sub(count)
                    .ok_or_else(|| format!("a tape of more than {ENTRIES_MAX} entries"))?;
                read.extend((0..count).map(|_| entry));
            }
            tape.0.insert(name, read);
        }
        Ok(tape)
    }
}

/// What came of running under a tape.
#[derive(Debug)]
pub struct Played<T> {
    /// What the history said.
    pub outcome: T,
    /// The choices that were made.
    pub tape: Tape,
    /// The notes of the history, oldest first.
    pub notes: Vec<String>,
    /// It made more choices than it was allowed, and was ended by a panic.
    pub overran: bool,
}

struct Open {
    name: Name,
    given: Vec<Entry>,
    at: usize,
    made: Vec<Entry>,
}

#[derive(Default)]
struct Recorder {
    /// Which of the thread's tapes it is, so that a stream that outlives one does not write to the
    /// next.
    number: u64,
    /// `None`: chance chooses.
    given: Option<Tape>,
    streams: Vec<Open>,
    opened: BTreeMap<(u64, u64), u32>,
    notes: Vec<String>,
    made: u64,
    made_max: u64,
}

thread_local! {
    static RECORDER: RefCell<Option<Box<Recorder>>> = const { RefCell::new(None) };
    static NUMBER: RefCell<u64> = const { RefCell::new(0) };
}

/// Ends a recording also by a panic.
struct Recording;

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDER.with_borrow_mut(Option::take);
    }
}

/// Runs a history on this thread. Its choices are those of `given`, or without one those of chance;
/// after `choices_max` of them it is ended by a panic, which `act` has to catch.
///
/// # Panics
/// Inside of another one.
pub fn play<T>(given: Option<&Tape>, choices_max: u64, act: impl FnOnce() -> T) -> Played<T> {
    let number = NUMBER.with_borrow_mut(|number| {
        *number += 1;
        *number
    });
    let recorder = Recorder { number, given: given.cloned(), made_max: choices_max, ..Recorder::default() };
    RECORDER.with_borrow_mut(|open| {
        assert!(open.is_none(), "a history is played inside of another one");
        *open = Some(Box::new(recorder));
    });
    let recording = Recording;
    let outcome = act();
    let recorder = RECORDER.with_borrow_mut(Option::take).unwrap_or_default();
    drop(recording);
    let overran = recorder.made > recorder.made_max;
    let tape = Tape(recorder.streams.into_iter().map(|open| (open.name, open.made)).collect());
    Played { outcome, tape, notes: recorder.notes, overran }
}

/// Whether this thread plays a history: then what happens is worth a note.
pub fn is_playing() -> bool {
    RECORDER.with_borrow(Option::is_some)
}

/// Notes what happens, when this thread plays a history.
pub fn note(words: impl FnOnce() -> String) {
    // The words may come from where choices are made.
    if is_playing() {
        let words = words();
        RECORDER.with_borrow_mut(|open| {
            if let Some(recorder) = open {
                recorder.notes.push(words);
            }
        });
    }
}

/// A generator's place on the tape of its thread. Clones are at one place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream(Option<(u64, usize)>);

impl Stream {
    /// The stream of a generator; one that says nothing when the thread plays no history.
    pub fn open(seed: u64, concern: u64) -> Stream {
        RECORDER.with_borrow_mut(|open| {
            let Some(recorder) = open else { return Stream(None) };
            let count = recorder.opened.entry((seed, concern)).or_default();
            let name = Name { seed, concern, nth: *count };
            *count += 1;
            let given = recorder.given.as_mut().and_then(|tape| tape.0.remove(&name)).unwrap_or_default();
            recorder.streams.push(Open { name, given, at: 0, made: Vec::new() });
            Stream(Some((recorder.number, recorder.streams.len() - 1)))
        })
    }

    /// Whether its choices are on a tape.
    #[inline]
    pub fn is_on_tape(self) -> bool {
        self.0.is_some()
    }

    /// A number below `bound`; `drawn` by chance.
    #[inline]
    pub fn choose(self, bound: u64, drawn: u64) -> u64 {
        if self.0.is_none() {
            return drawn;
        }
        let made = self.make(
            |entry| Entry::Choice(entry.map_or(0, |entry| entry.number() % bound.max(1))),
            Entry::Choice(drawn),
        );
        made.map_or(drawn, Entry::number)
    }

    /// Whether something rare happens; `drawn` by chance.
    #[inline]
    pub fn happens(self, drawn: bool) -> bool {
        self.choose(2, u64::from(drawn)) == 1
    }

    /// 64 bits that tell something apart; `drawn` by chance.
    #[inline]
    pub fn value(self, drawn: u64) -> u64 {
        if self.0.is_none() {
            return drawn;
        }
        // Beyond the tape: none that chance drew before at another place.
        let fresh = Entry::Value(drawn.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ 0x5851_F42D_4C95_7F2D);
        let taped =
            |entry: Option<Entry>| entry.filter(|entry| matches!(entry, Entry::Value(_))).unwrap_or(fresh);
        self.make(taped, Entry::Value(drawn)).map_or(drawn, Entry::number)
    }

    /// Makes one choice: `taped` of what the tape says, or the drawn one.
    #[cold]
    fn make(self, taped: impl FnOnce(Option<Entry>) -> Entry, drawn: Entry) -> Option<Entry> {
        let (made, is_over) = RECORDER.with_borrow_mut(|open| {
            let recorder = open.as_mut()?;
            let (number, stream) = self.0?;
            if recorder.number != number {
                return None;
            }
            let is_given = recorder.given.is_some();
            let stream = recorder.streams.get_mut(stream)?;
            let entry = stream.given.get(stream.at).copied();
            stream.at += 1;
            let made = if is_given { taped(entry) } else { drawn };
            recorder.made += 1;
            let is_over = recorder.made == recorder.made_max.saturating_add(1);
            if recorder.made <= recorder.made_max {
                stream.made.push(made);
            }
            Some((made, is_over))
        })?;
        // Once only: values dropped afterwards may choose as well.
        assert!(!is_over || std::thread::panicking(), "the history makes more choices than it may");
        Some(made)
    }
}
