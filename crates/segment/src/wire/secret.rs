//! The secret that a node shares with its writers, and what follows from it.
//!
//! Both sides draw 32 bytes for each connection (`hello`, `challenge`) and show with HMAC-SHA-256
//! over both, each in its own words, that they know the secret: the writer first, so that one that
//! merely connects learns nothing to guess against. The keys of the connection's two ways come from
//! the same bytes: neither an old connection's frames nor one's own can be played back. Who learns
//! the secret can read what he recorded before: there is no exchange of keys beyond it.

use std::fmt;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tombolo_env::Env;
use tombolo_storage::{Error, ErrorKind, Result};

use super::hello::{Challenge, Hello, NONCE_BYTES, PROOF_BYTES};
use super::{TAG_BYTES, plain_tag};

/// Fewest bytes of a secret: an attacker who records an introduction may try secrets at leisure.
pub const SECRET_BYTES_MIN: usize = 16;
/// Most bytes of a secret.
pub const SECRET_BYTES_MAX: usize = 4096;

/// Most secrets of one side: two while one takes the place of another.
pub const SECRETS_MAX: usize = 4;

/// A shared secret, or several: the first is shown to others, and each is taken from them. It is
/// shown nowhere else.
#[derive(Clone)]
pub struct Secret {
    first: Arc<hmac::Key>,
    others: Arc<[Secret]>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret")
    }
}

impl Secret {
    /// The secret that a file or an environment variable holds, or several, one on each line; white
    /// space around them does not count.
    ///
    /// # Errors
    /// `Invalid` when there is none, or there are more than [`SECRETS_MAX`], or one is shorter than
    /// [`SECRET_BYTES_MIN`] or longer than [`SECRET_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Secret> {
        let lines =
            bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let mut secrets = lines.map(Secret::of_line).collect::<Result<Vec<Secret>>>()?.into_iter();
        let (first, others): (_, Vec<Secret>) = (secrets.next(), secrets.collect());
        let count = others.len() + usize::from(first.is_some());
        match first {
            Some(first) if count <= SECRETS_MAX => Ok(Secret { others: others.into(), ..first }),
            _ => Err(Error::new(ErrorKind::Invalid, format!("{count} secrets"))
                .expected(format!("1 to {SECRETS_MAX}, one on each line"))
                .advice("make one: openssl rand -hex 32 > secret; chmod 600 secret")),
        }
    }

    fn of_line(line: &[u8]) -> Result<Secret> {
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&line.len()) {
            return Ok(Secret::alone(line));
        }
        Err(Error::new(ErrorKind::Invalid, format!("a secret of {} bytes", line.len()))
            .expected(format!("{SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes on a line"))
            .advice("make one: openssl rand -hex 32 > secret; chmod 600 secret"))
    }

    fn alone(bytes: &[u8]) -> Secret {
        Secret { first: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes)), others: Arc::default() }
    }

    /// Each that is taken, by itself, the first one first.
    pub fn each(&self) -> impl Iterator<Item = Secret> + '_ {
        let first = Secret { first: Arc::clone(&self.first), others: Arc::default() };
        std::iter::once(first).chain(self.others.iter().cloned())
    }

    /// The secret of one connection, which nobody else has.
    pub(super) fn of_connection(bytes: &[u8; 32]) -> Secret {
        Secret::alone(bytes)
    }

    fn sign(&self, word: &[u8], hello: &Hello, challenge: &Challenge, rest: &[u8]) -> [u8; PROOF_BYTES] {
        let mut context = hmac::Context::with_key(&self.first);
        for part in [word, &hello.encode(), &challenge.encode(), rest] {
            context.update(part);
        }
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }
}

/// What both sides of a connection know once the challenge was sent.
#[derive(Clone, Debug)]
pub struct Introduction<'a> {
    /// `None`: neither side has a secret.
    pub secret: Option<&'a Secret>,
    /// What the writer said first.
    pub hello: Hello,
    /// What the node said first.
    pub challenge: Challenge,
}

impl Introduction<'_> {
    /// Shows that the writer knows the secret; zeros without one.
    pub fn writer_proof(&self) -> [u8; PROOF_BYTES] {
        self.sign(b"tombolo writer\0", b"")
    }

    /// Shows that the node knows the secret, and that `status` is its own.
    pub fn node_proof(&self, status: &[u8]) -> [u8; PROOF_BYTES] {
        self.sign(b"tombolo node\0", status)
    }

    /// The ways from the writer to the node, and back.
    pub fn ways(&self) -> (Way, Way) {
        let way = |word: &[u8]| match self.secret {
            None => Way::plain(),
            Some(secret) => Way::keyed(&secret.sign(word, &self.hello, &self.challenge, b"")),
        };
        (way(b"tombolo to the node\0"), way(b"tombolo to the writer\0"))
    }

    fn sign(&self, word: &[u8], rest: &[u8]) -> [u8; PROOF_BYTES] {
        self.secret.map_or([0; PROOF_BYTES], |secret| secret.sign(word, &self.hello, &self.challenge, rest))
    }
}

/// Whether two proofs are the same, in a time that tells nothing of where they differ.
pub fn is_same_proof(one: &[u8; PROOF_BYTES], other: &[u8; PROOF_BYTES]) -> bool {
    one.iter().zip(other).fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

/// Bytes that were never drawn before, and that nobody can foretell.
///
/// # Errors
/// `Retry` when the system gives none.
pub fn fresh_nonce(env: &Env) -> Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    for word in nonce.chunks_exact_mut(8) {
        word.copy_from_slice(&env.random_u64().to_le_bytes());
    }
    // The environment's own generator is small and fast: who has seen some of its numbers knows the
    // next.
    if !env.is_simulated() {
        let filled = SystemRandom::new().fill(&mut nonce);
        filled.map_err(|_| Error::new(ErrorKind::Retry, "the operating system gives no random numbers"))?;
    }
    Ok(nonce)
}

/// One direction of a connection: frames are closed at one end and opened at the other, in order.
pub struct Way {
    key: Option<LessSafeKey>,
    /// Frames so far: the next one's nonce.
    frames: u64,
}

impl fmt::Debug for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Way")
            .field("keyed", &self.key.is_some())
            .field("frames", &self.frames)
            .finish()
    }
}

impl Way {
    /// A way that no secret protects.
    pub fn plain() -> Way {
        Way { key: None, frames: 0 }
    }

    fn keyed(key: &[u8; PROOF_BYTES]) -> Way {
        let key = UnboundKey::new(&AES_256_GCM, key).map(LessSafeKey::new);
        Way { key: Some(key.expect("the key has the length that the cipher takes")), frames: 0 }
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.frames.to_le_bytes());
        self.frames += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts a body in place, and gives the frame's tag.
    pub(super) fn close(&mut self, header: &[u8], body: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = self.nonce();
        let Some(key) = &self.key else { return plain_tag(header, body) };
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(header), body);
        let tag = tag.expect("a body is far shorter than the cipher's bound");
        let mut out = [0; TAG_BYTES];
        out.copy_from_slice(tag.as_ref());
        out
    }

    /// Checks a frame, and decrypts its body in place; `false`: it is not the next frame that was
    /// closed at the other end.
    pub(super) fn open(&mut self, header: &[u8], tag: &[u8], body: &mut [u8]) -> bool {
        let nonce = self.nonce();
        let Ok(tag) = <[u8; TAG_BYTES]>::try_from(tag) else { return false };
        match &self.key {
            None => plain_tag(header, body) == tag,
            Some(key) => {
                key.open_in_place_separate_tag(nonce, Aad::from(header), tag.into(), body, 0..).is_ok()
            }
        }
    }
}
