//! Frames on one connection.

use std::time::Duration;

use tombolo_env::network::{ReadHalf, WriteHalf};
use tombolo_env::{Env, within};
use tombolo_segment::wire::inbox::Inbox;
use tombolo_segment::wire::secret::Way;
use tombolo_segment::wire::{Kind, append_frame};
use tombolo_storage::{Error, ErrorKind, Result};

/// How long the other side may take to take a frame.
const WRITE_MAX: Duration = Duration::from_secs(30);

/// A connection on which both sides know each other.
pub(crate) struct Line {
    pub(crate) env: Env,
    /// The other side, for messages.
    pub(crate) peer: String,
    pub(crate) read: Box<dyn ReadHalf>,
    pub(crate) write: Box<dyn WriteHalf>,
    pub(crate) out: Way,
    pub(crate) back: Way,
    pub(crate) inbox: Inbox,
}

impl Line {
    /// Sends a frame.
    ///
    /// # Errors
    /// `Retry` when the connection breaks.
    pub(crate) async fn send(&mut self, kind: Kind, body: &[u8]) -> Result<()> {
        let mut frame = Vec::new();
        append_frame(&mut frame, &mut self.out, kind, 0, |out| out.extend_from_slice(body));
        match within(&self.env, WRITE_MAX, self.write.write_all(&frame)).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.broken(&error.to_string())),
            None => Err(self.broken("it takes nothing any more")),
        }
    }

    /// The next frame. Dropped, it loses nothing.
    ///
    /// # Errors
    /// `Retry` when the connection breaks, or what comes is no frame.
    pub(crate) async fn receive(&mut self) -> Result<(Kind, Vec<u8>)> {
        loop {
            match self.inbox.next(&mut self.back) {
                Ok(Some((header, body))) => return Ok((header.kind, body.to_vec())),
                Ok(None) => {}
                Err(error) => return Err(broken(&self.peer, &error.to_string())),
            }
            match self.inbox.fill(&mut *self.read).await {
                Ok(0) => return Err(self.broken("it ended")),
                Ok(_) => {}
                Err(error) => return Err(self.broken(&error.to_string())),
            }
        }
    }

    pub(crate) fn broken(&self, why: &str) -> Error {
        broken(&self.peer, why)
    }

    /// Something came that has no place there.
    pub(crate) fn out_of_place(&self, kind: Kind) -> Error {
        self.broken(&format!("{kind:?} came out of place"))
    }
}

fn broken(peer: &str, why: &str) -> Error {
    Error::new(ErrorKind::Retry, format!("the connection with {peer} broke: {why}"))
}
