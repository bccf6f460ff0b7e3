//! Frames out of a stream of bytes.

use std::io;

use tombolo_env::network::ReadHalf;
use tombolo_format::Result;

use super::secret::Way;
use super::{HEADER_BYTES, Header, open};

/// Bytes that are read at once, and kept for it.
pub const INBOX_BYTES: usize = 64 << 10;

/// What has arrived and was not looked at.
#[derive(Debug)]
pub struct Inbox {
    buffer: Vec<u8>,
    /// Invariant: `begin <= end <= buffer.len()`; what lies between has arrived.
    begin: usize,
    end: usize,
    /// How often in a row little may come before memory for long frames is given back, and how
    /// often it was.
    few_reads_max: u32,
    little: u32,
}

/// After so many small reads in a row a large buffer is given up.
const FEW_READS_MAX: u32 = 16;

impl Inbox {
    /// Nothing yet. Memory for a long frame goes with it.
    pub fn new() -> Inbox {
        Inbox { buffer: vec![0; INBOX_BYTES], begin: 0, end: 0, few_reads_max: 0, little: 0 }
    }

    /// As [`Inbox::new`], and memory for long frames stays while they come.
    pub fn for_long_frames() -> Inbox {
        Inbox { few_reads_max: FEW_READS_MAX, ..Inbox::new() }
    }

    /// Bytes of the frame that has begun to arrive; `None` when so little is there that nobody
    /// knows.
    ///
    /// # Errors
    /// `Damaged` for the beginning of no frame.
    pub fn coming(&self) -> Result<Option<usize>> {
        match self.buffer[self.begin..self.end].get(..HEADER_BYTES) {
            None => Ok(None),
            Some(header) => Ok(Some(Header::decode(header)?.frame_bytes())),
        }
    }

    /// Bytes that have arrived and were not looked at.
    pub fn arrived(&self) -> usize {
        self.end - self.begin
    }

    /// The next frame, checked and decrypted, if all of it is there.
    ///
    /// # Errors
    /// `Damaged`: nothing that comes after is worth a look.
    pub fn next(&mut self, way: &mut Way) -> Result<Option<(Header, &[u8])>> {
        let arrived = &mut self.buffer[self.begin..self.end];
        let Some(header) = arrived.get(..HEADER_BYTES) else { return Ok(None) };
        let header = Header::decode(header)?;
        let Some(frame) = arrived.get_mut(..header.frame_bytes()) else { return Ok(None) };
        self.begin += header.frame_bytes();
        Ok(Some((header, open(frame, way)?)))
    }

    /// Waits for more, and says how many bytes came: none at the end of the stream. Memory for a
    /// long frame is taken as it arrives: who only says that one comes costs nothing.
    pub async fn fill(&mut self, stream: &mut dyn ReadHalf) -> io::Result<usize> {
        self.make_room();
        let count = stream.read(&mut self.buffer[self.end..]).await?;
        self.end += count;
        Ok(count)
    }

    fn make_room(&mut self) {
        if self.begin == self.end {
            self.little = if self.end > INBOX_BYTES { 0 } else { self.little + 1 };
            (self.begin, self.end) = (0, 0);
            if self.buffer.len() > INBOX_BYTES && self.little >= self.few_reads_max {
                self.buffer = vec![0; INBOX_BYTES];
            }
        } else if self.end == self.buffer.len() {
            if self.few_reads_max == 0 && self.buffer.len() > INBOX_BYTES && self.arrived() <= INBOX_BYTES / 2
            {
                // The long frame was looked at, and the next ones have begun already.
                let mut buffer = vec![0; INBOX_BYTES];
                buffer[..self.arrived()].copy_from_slice(&self.buffer[self.begin..self.end]);
                (self.begin, self.end, self.buffer) = (0, self.arrived(), buffer);
            } else if self.begin > 0 {
                self.buffer.copy_within(self.begin..self.end, 0);
                (self.begin, self.end) = (0, self.end - self.begin);
            } else {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
    }
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_a_long_frame_goes_though_the_next_has_begun() {
        let bytes = 4 * INBOX_BYTES;
        let mut inbox = Inbox { buffer: vec![7; bytes], begin: bytes - 10, end: bytes, ..Inbox::new() };
        inbox.make_room();
        assert_eq!((inbox.buffer.len(), &inbox.buffer[..inbox.arrived()]), (INBOX_BYTES, &[7; 10][..]));
    }
}
