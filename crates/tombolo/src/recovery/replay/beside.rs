//! Puts what has waited into a memtable on another thread, while the one that replays reads on.
//!
//! Invariants:
//! 1. The memtable's one writer is here, or with the one task that has a part.
//! 2. A part is older than what comes after it: it is put in before the next is.

use tombolo_env::{Completion, Env, TaskClass, completion};
use tombolo_storage::{Error, ErrorKind, Result};

use super::pending::Pending;
use crate::memtable::MemtableWriter;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Beside {
    writer: Writer,
    /// Of an earlier part, empty: its memory is used again.
    spare: Pending,
}

#[derive(Debug)]
enum Writer {
    Here(MemtableWriter),
    Away {
        back: Completion<(MemtableWriter, Pending, Result<()>)>,
        /// What the memtable holds once the part is in it, as a rule.
        bytes: u64,
    },
    /// The task could not put all of its part into the memtable, or has ended with its world.
    Lost,
}

impl Beside {
    pub(super) fn new(writer: MemtableWriter) -> Beside {
        Beside { writer: Writer::Here(writer), spare: Pending::default() }
    }

    /// The writer.
    ///
    /// # Panics
    /// When a task has it: the thread that gave it away waits for it first.
    pub(super) fn here(&self) -> &MemtableWriter {
        let Writer::Here(writer) = &self.writer else { unreachable!("a memtable's writer is waited for") };
        writer
    }

    /// The same, to write.
    ///
    /// # Panics
    /// As [`Beside::here`].
    pub(super) fn here_mut(&mut self) -> &mut MemtableWriter {
        let Writer::Here(writer) = &mut self.writer else {
            unreachable!("a memtable's writer is waited for")
        };
        writer
    }

    /// The same, which is needed here no more.
    ///
    /// # Panics
    /// As [`Beside::here`].
    pub(super) fn into_here(self) -> MemtableWriter {
        let Writer::Here(writer) = self.writer else { unreachable!("a memtable's writer is waited for") };
        writer
    }

    /// What the memtable holds once what a task has is in it; `None` when none has anything.
    pub(super) fn bytes_away(&self) -> Option<u64> {
        if let Writer::Away { bytes, .. } = self.writer { Some(bytes) } else { None }
    }

    /// Puts `part` into the memtable, which holds `used` bytes, on another thread. Gives another
    /// part, into which those go that wait next.
    ///
    /// # Panics
    /// As [`Beside::here`].
    pub(super) fn put_in(&mut self, env: &Env, mut part: Pending, used: u64) -> Pending {
        let (completer, back) = completion();
        let bytes = part.bytes() as u64;
        let away = Writer::Away { back, bytes: used + bytes };
        let Writer::Here(mut writer) = std::mem::replace(&mut self.writer, away) else {
            unreachable!("a memtable's writer is waited for")
        };
        let work = async move {
            let outcome = part.settle(&mut writer);
            completer.complete((writer, part, outcome));
        };
        env.spawn(TaskClass::Foreground, "part of a replay", work).detach();
        std::mem::take(&mut self.spare)
    }

    /// Waits until no task has anything.
    ///
    /// # Errors
    /// `Busy` when the system had no memory for all of a part: then some of it is lost here, and
    /// the replay is over. Every later call says so.
    pub(super) async fn rejoin(&mut self) -> Result<()> {
        let ended = match &mut self.writer {
            Writer::Here(_) => return Ok(()),
            Writer::Away { back, .. } => back.await,
            Writer::Lost => None,
        };
        self.writer = Writer::Lost;
        let Some((writer, part, outcome)) = ended else {
            return Err(Error::new(ErrorKind::Bug, "a part of a log was lost on its way into a memtable"));
        };
        outcome?;
        (self.writer, self.spare) = (Writer::Here(writer), part);
        Ok(())
    }
}
