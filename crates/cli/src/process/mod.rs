//! Writers in processes of their own: the same binary again, its words over a pipe.
//!
//! A writer announces what it is about to write before it writes, and reports each acknowledgement
//! after. So the process that kills it knows what must be there, what may be there, and what must
//! not.
//!
//! | message | body (little-endian) |
//! |---|---|
//! | 1 opened | epoch u64, time to open in ns u64, bytes replayed u64 |
//! | 2 intent | sequence u64, record length u32, record, path |
//! | 3 acknowledged | sequence u64, latency in ns u64 |
//! | 4 refused | sequence u64 |
//! | 5 ended | exit code u8, text |
//! | 6 unreadable | count u64 |
//! | 7 memory | resident bytes of its own u64, peak bytes charged to the budget u64, faults met u64, times reopened u64 |
//! | 8 seen | thread u64, epoch u64, sequence u64, digest u64 |
//!
//! Each message is its length (u32, of what follows), its number (u8) and its body. A message cut
//! off by a kill is no message.

pub mod child;

use std::io::{self, Read, Write};

/// Most bytes of a message: a path, a record, and room.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// What a writer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The database is open.
    Opened {
        /// The writer's epoch.
        epoch: u64,
        /// How long opening took.
        open_nanos: u64,
        /// Bytes of log that opening replayed.
        replayed_bytes: u64,
    },
    /// This will be written.
    Intent {
        /// The writer's own count, from 1, without gaps.
        sequence: u64,
        /// The bytes that are written.
        record: Vec<u8>,
        /// To which path.
        path: Vec<u8>,
    },
    /// The write was acknowledged.
    Acknowledged {
        /// Which.
        sequence: u64,
        /// From its call to its acknowledgement.
        latency_nanos: u64,
    },
    /// The write was refused: another process owns the database.
    Refused {
        /// Which.
        sequence: u64,
    },
    /// The writer's last word.
    Ended {
        /// Its exit code.
        exit_code: u8,
        /// Why, when it failed.
        text: String,
    },
    /// Files that could not be read, in all.
    Unreadable {
        /// How many.
        count: u64,
    },
    /// What the process takes, and what it has been through.
    Memory {
        /// Resident bytes of its own, mapped files apart; the most, once several were put together.
        own_peak_bytes: u64,
        /// Bytes that it holds: of the allocator and of mappings, not memory that was freed and is
        /// kept; the most, likewise.
        held_peak_bytes: u64,
        /// The most bytes that were charged to the memory budget at once.
        budget_peak_bytes: u64,
        /// Faults that its stores were made to have.
        faults: u64,
        /// Times that the database was opened again because a handle had ended.
        reopened: u64,
    },
    /// What a thread's keys held when somebody looked.
    Seen {
        /// The thread.
        thread: u64,
        /// The epoch that wrote last.
        epoch: u64,
        /// Its last batch.
        sequence: u64,
        /// The digest of all of it.
        digest: u64,
    },
}

impl Message {
    /// Writes the message.
    pub fn write(&self, pipe: &mut impl Write) -> io::Result<()> {
        let mut body = Vec::with_capacity(64);
        let numbers = |numbers: &[u64], body: &mut Vec<u8>| {
            numbers.iter().for_each(|number| body.extend(number.to_le_bytes()));
        };
        let kind = match self {
            Message::Opened { epoch, open_nanos, replayed_bytes } => {
                numbers(&[*epoch, *open_nanos, *replayed_bytes], &mut body);
                1
            }
            Message::Intent { sequence, record, path } => {
                numbers(&[*sequence], &mut body);
                body.extend(u32::try_from(record.len()).map_err(io::Error::other)?.to_le_bytes());
                body.extend(record);
                body.extend(path);
                2
            }
            Message::Acknowledged { sequence, latency_nanos } => {
                numbers(&[*sequence, *latency_nanos], &mut body);
                3
            }
            Message::Refused { sequence } => {
                numbers(&[*sequence], &mut body);
                4
            }
            Message::Ended { exit_code, text } => {
                body.push(*exit_code);
                body.extend(text.as_bytes());
                5
            }
            Message::Unreadable { count } => {
                numbers(&[*count], &mut body);
                6
            }
            Message::Memory { own_peak_bytes, held_peak_bytes, budget_peak_bytes, faults, reopened } => {
                numbers(
                    &[*own_peak_bytes, *held_peak_bytes, *budget_peak_bytes, *faults, *reopened],
                    &mut body,
                );
                7u8
            }
            Message::Seen { thread, epoch, sequence, digest } => {
                numbers(&[*thread, *epoch, *sequence, *digest], &mut body);
                8
            }
        };
        let length = u32::try_from(body.len() + 1).map_err(io::Error::other)?;
        pipe.write_all(&length.to_le_bytes())?;
        pipe.write_all(&[kind])?;
        pipe.write_all(&body)
    }

    /// Reads a message; `None` at the end of the pipe, be it in the middle of a message.
    pub fn read(pipe: &mut impl Read) -> io::Result<Option<Message>> {
        let mut length = [0; 4];
        if !read_whole(pipe, &mut length)? {
            return Ok(None);
        }
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 || length > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        if !read_whole(pipe, &mut bytes)? {
            return Ok(None);
        }
        Message::decode(&bytes).map(Some).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("a broken message of kind {}", bytes[0]))
        })
    }

    fn decode(bytes: &[u8]) -> Option<Message> {
        let (kind, mut body) = bytes.split_first()?;
        let mut number = || {
            let (first, rest) = body.split_first_chunk::<8>()?;
            body = rest;
            Some(u64::from_le_bytes(*first))
        };
        Some(match kind {
            1 => Message::Opened { epoch: number()?, open_nanos: number()?, replayed_bytes: number()? },
            2 => {
                let sequence = number()?;
                let (length, rest) = body.split_first_chunk::<4>()?;
                let (record, path) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                Message::Intent { sequence, record: record.to_vec(), path: path.to_vec() }
            }
            3 => Message::Acknowledged { sequence: number()?, latency_nanos: number()? },
            4 => Message::Refused { sequence: number()? },
            5 => {
                let (exit_code, text) = body.split_first()?;
                Message::Ended { exit_code: *exit_code, text: String::from_utf8_lossy(text).into_owned() }
            }
            6 => Message::Unreadable { count: number()? },
            7 => Message::Memory {
                own_peak_bytes: number()?,
                held_peak_bytes: number()?,
                budget_peak_bytes: number()?,
                faults: number()?,
                reopened: number()?,
            },
            8 => {
                Message::Seen { thread: number()?, epoch: number()?, sequence: number()?, digest: number()? }
            }
            _ => return None,
        })
    }
}

/// Fills `buffer`; `false` when the pipe ends before.
fn read_whole(pipe: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match pipe.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
