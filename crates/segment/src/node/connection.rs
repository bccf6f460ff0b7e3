//! One connection of a node, from its hello to its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tombolo_env::network::{ReadHalf, WriteHalf};
use tombolo_env::{Connection, Either, either, within};
use tombolo_format::FormatError;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::lives::Wait;
use super::{Line, Shared};
use crate::message::RegionId;
use crate::wire::body::{Message, put_status};
use crate::wire::credentials::admit;
use crate::wire::hello::{Challenge, Farewell, Hello, PROOF_BYTES};
use crate::wire::inbox::{INBOX_BYTES, Inbox};
use crate::wire::secret::{Introduction, Secret, Way, fresh_nonce, is_same_proof};
use crate::wire::{Kind, VERSION, append_frame};

/// How long an introduction may take.
const INTRODUCTION_MAX: Duration = Duration::from_secs(5);
/// How long a frame that has begun to arrive may take, and answers until their writer has taken
/// them.
const TRANSFER_MAX: Duration = Duration::from_secs(30);
/// Bytes of answers after which they are written before more requests are looked at.
const OUT_BYTES_MAX: usize = 64 << 10;

/// Why a connection ends.
enum End {
    /// The other side has gone, or is too slow.
    Gone,
    /// The node's disk failed. Nothing is said: frames that were given up count for those that
    /// would follow.
    Failed(String),
    /// This is said to it, and why.
    Said(Farewell, String),
}

impl From<Farewell> for End {
    fn from(farewell: Farewell) -> End {
        End::Said(farewell, String::new())
    }
}

impl From<FormatError> for End {
    fn from(error: FormatError) -> End {
        match error {
            FormatError::Newer { .. } => End::Said(Farewell::OtherVersion, error.to_string()),
            _ => End::Said(Farewell::Malformed, error.to_string()),
        }
    }
}

struct Served {
    shared: Arc<Shared>,
    number: u64,
    /// The node's, or that of this connection alone where certificates were shown.
    secret: Option<Secret>,
    read: Box<dyn ReadHalf>,
    write: Box<dyn WriteHalf>,
    inbox: Inbox,
    to_node: Way,
    to_writer: Way,
    /// Frames that were not written.
    out: Vec<u8>,
    /// What must be durable before they are.
    waits: Vec<Wait>,
    /// Regions of which it was told that they are wanted back.
    told: BTreeSet<RegionId>,
}

pub(super) async fn serve(shared: Arc<Shared>, mut connection: Box<dyn Connection>, number: u64) {
    let peer = connection.peer_address();
    let env = shared.env.clone();
    let admitted =
        within(&env, INTRODUCTION_MAX, admit(shared.options.credentials.as_ref(), &mut *connection));
    let admitted = admitted.await.map(|admitted| {
        admitted.map_err(|why| why.map_or(End::Gone, |why| End::Said(Farewell::WrongCertificate, why)))
    });
    let admitted = admitted.unwrap_or_else(|| {
        Err(End::Said(Farewell::WrongCertificate, format!("no handshake within {INTRODUCTION_MAX:?}")))
    });
    let (read, write) = connection.split();
    let (to_node, to_writer) = (Way::plain(), Way::plain());
    let (secret, refused) = match admitted {
        Ok(secret) => (secret, None),
        Err(end) => (None, Some(end)),
    };
    let mut served = Served {
        shared,
        number,
        secret,
        read,
        write,
        inbox: Inbox::new(),
        to_node,
        to_writer,
        out: Vec::new(),
        waits: Vec::new(),
        told: BTreeSet::new(),
    };
    let end = match refused {
        Some(end) => Err(end),
        None => match within(&env, INTRODUCTION_MAX, served.introduce()).await {
            None => {
                Err(End::Said(Farewell::Malformed, format!("no introduction within {INTRODUCTION_MAX:?}")))
            }
            Some(Err(end)) => Err(end),
            Some(Ok(line)) => served.go_on(&line).await,
        },
    };
    if let Err(End::Said(farewell, detail)) = &end {
        let farewell = *farewell;
        served.shared.note_trouble(&peer, farewell, detail);
        append_frame(&mut served.out, &mut served.to_writer, Kind::Farewell, 0, |out| {
            out.extend_from_slice(&farewell.encode());
        });
        let _gone = within(&served.shared.env.clone(), INTRODUCTION_MAX, served.flush()).await;
    }
    if let Err(End::Failed(error)) = &end {
        tracing::debug!(peer, error, "a connection ends: what it asked for is not durable");
    }
    served.shared.close_line(number);
}

impl Served {
    async fn introduce(&mut self) -> Result<Arc<Line>, End> {
        let hello = Hello::decode(&self.receive(Kind::Hello).await?)?;
        let secret = self.secret.clone();
        let Ok(nonce) = fresh_nonce(&self.shared.env) else { return Err(End::Gone) };
        let challenge = Challenge { version: VERSION, has_secret: secret.is_some(), nonce };
        append_frame(&mut self.out, &mut self.to_writer, Kind::Challenge, 0, |out| {
            out.extend_from_slice(&challenge.encode());
        });
        self.flush().await?;
        if hello.has_secret != secret.is_some() {
            return Err(Farewell::WrongSecret.into());
        }
        let proof = <[u8; PROOF_BYTES]>::try_from(self.receive(Kind::Proof).await?);
        // Whichever the writer has shown is that of the connection. All are tried, however early
        // one fits.
        let taken: Vec<Option<Secret>> =
            secret.as_ref().map_or_else(|| vec![None], |secret| secret.each().map(Some).collect());
        let introductions =
            taken.iter().map(|secret| Introduction { secret: secret.as_ref(), hello, challenge });
        let forgets = is_enabled(Mutant::NodeForgetsProof);
        let is_shown = |one: &Introduction<'_>| {
            forgets || proof.as_ref().is_ok_and(|proof| is_same_proof(proof, &one.writer_proof()))
        };
        let shown: Vec<Introduction<'_>> = introductions.filter(is_shown).collect();
        let Some(introduction) = shown.first() else { return Err(Farewell::WrongSecret.into()) };
        let line = self.shared.welcome(self.number, hello.client)?;
        let mut status = Vec::new();
        put_status(&self.shared.status(), &mut status);
        append_frame(&mut self.out, &mut self.to_writer, Kind::Welcome, 0, |out| {
            out.extend_from_slice(&introduction.node_proof(&status));
            out.extend_from_slice(&status);
        });
        (self.to_node, self.to_writer) = introduction.ways();
        self.flush().await?;
        Ok(line)
    }

    /// The next frame of an introduction.
    async fn receive(&mut self, kind: Kind) -> Result<Vec<u8>, End> {
        loop {
            // What begins an introduction is short: who sends more is no writer.
            if self.inbox.coming()?.is_some_and(|bytes| bytes > INBOX_BYTES) {
                return Err(Farewell::Malformed.into());
            }
            if let Some((header, body)) = self.inbox.next(&mut self.to_node)? {
                if header.kind == kind {
                    return Ok(body.to_vec());
                }
                return Err(End::Said(Farewell::Malformed, format!("{:?} instead of {kind:?}", header.kind)));
            }
            match self.inbox.fill(&mut *self.read).await {
                Ok(0) | Err(_) => return Err(End::Gone),
                Ok(_) => {}
            }
        }
    }

    /// Requests and answers, until the end.
    async fn go_on(&mut self, line: &Line) -> Result<(), End> {
        let mut seen = 0;
        loop {
            let is_more = self.handle_arrived(line)?;
            self.add_notices();
            self.flush().await?;
            if is_more {
                continue;
            }
            let coming = self.inbox.coming()?;
            let shared = Arc::clone(&self.shared);
            // Memory for a long frame, until it was handled.
            let _hold = match coming {
                Some(bytes) if bytes > INBOX_BYTES => Some(shared.frames.take(2 * bytes).await),
                _ => None,
            };
            if coming.is_some_and(|bytes| bytes > INBOX_BYTES) {
                self.receive_long(line).await?;
                continue;
            }
            match either(self.inbox.fill(&mut *self.read), shared.signal.changed(self.number, seen)).await {
                Either::First(Ok(count)) if count > 0 => {}
                Either::First(_) => return Err(End::Gone),
                Either::Second(version) => seen = version,
            }
            if shared.is_ending.load(Ordering::Acquire) {
                return Err(Farewell::Ending.into());
            }
            if line.is_superseded.load(Ordering::Acquire) {
                return Err(Farewell::Superseded.into());
            }
        }
    }

    /// The rest of a frame that is longer than one read. It comes in a bounded time:
    /// others may wait for the memory.
    async fn receive_long(&mut self, line: &Line) -> Result<(), End> {
        let Served { shared, inbox, read, .. } = self;
        let env = shared.env.clone();
        let whole = async {
            let (mut arrived, bytes) = (inbox.arrived(), inbox.coming()?.unwrap_or(0));
            while arrived < bytes {
                match inbox.fill(&mut **read).await {
                    Ok(0) | Err(_) => return Err(End::Gone),
                    Ok(count) => arrived += count,
                }
            }
            Ok(())
        };
        within(&env, TRANSFER_MAX, whole).await.unwrap_or(Err(End::Gone))?;
        self.handle_arrived(line)?;
        self.flush().await
    }

    /// Carries out what has arrived whole; `true`: there may be more, once the answers so far are
    /// written.
    fn handle_arrived(&mut self, line: &Line) -> Result<bool, End> {
        let Served { shared, number, inbox, to_node, to_writer, out, waits, .. } = self;
        while out.len() < OUT_BYTES_MAX {
            let Some((header, body)) = inbox.next(to_node)? else { return Ok(false) };
            let answer = match Message::decode(header.kind, body)? {
                Message::Request(request) => {
                    let (answer, wait) = shared.handle(line, request)?;
                    if let Some(wait) = wait {
                        waits.retain(|earlier| !wait.covers(earlier));
                        waits.push(wait);
                    }
                    Message::Answer(answer)
                }
                Message::Status => Message::StatusIs(shared.status()),
                Message::Lend(bytes_max) => shared.lend(line, bytes_max)?,
                Message::Share(incarnation, region, epoch) => {
                    Message::SharedAt(shared.share(line, incarnation, region, epoch)?)
                }
                Message::Pair(incarnation, region, epoch, queue) => {
                    Message::PairedWith(shared.pair((line, *number), (incarnation, region, epoch), &queue)?)
                }
                _ => return Err(End::Said(Farewell::Malformed, format!("{:?} from a writer", header.kind))),
            };
            append_frame(out, to_writer, answer.kind(), header.number, |out| answer.put(out));
        }
        Ok(true)
    }

    /// Names the regions that are wanted back, each once.
    fn add_notices(&mut self) {
        let wanted: Vec<RegionId> = {
            let lives = self.shared.lives.lock();
            if !lives.wants_back() && self.told.is_empty() {
                return;
            }
            lives.wanted_back()
        };
        for region in &wanted {
            if self.told.insert(*region) {
                let notice = Message::WantedBack(*region);
                append_frame(&mut self.out, &mut self.to_writer, Kind::WantedBack, 0, |out| notice.put(out));
            }
        }
        self.told.retain(|region| wanted.binary_search(region).is_ok());
    }

    async fn flush(&mut self) -> Result<(), End> {
        for wait in std::mem::take(&mut self.waits) {
            if let Err(error) = wait.done().await {
                // What would have been answered is not known to be durable.
                self.out.clear();
                return Err(End::Failed(error.to_string()));
            }
        }
        if self.out.is_empty() {
            return Ok(());
        }
        // Nearly always all of it goes at once, and needs no clock.
        let written = self.write.try_write(&self.out).map_err(|_| End::Gone)?;
        if written < self.out.len() {
            let rest = self.write.write_all(&self.out[written..]);
            if !matches!(within(&self.shared.env, TRANSFER_MAX, rest).await, Some(Ok(()))) {
                return Err(End::Gone);
            }
        }
        self.out.clear();
        if self.out.capacity() > 4 * OUT_BYTES_MAX {
            self.out = Vec::new();
        }
        Ok(())
    }
}
