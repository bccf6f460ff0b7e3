//! The writer's side of an introduction.

use tombolo_env::Env;
use tombolo_env::network::{ReadHalf, WriteHalf};
use tombolo_format::codec::Reader;
use tombolo_format::{FormatError, Result as FormatResult};
use tombolo_storage::{Error, ErrorKind, Result};

use crate::message::NodeStatus;
use crate::wire::body::take_status;
use crate::wire::credentials::Credentials;
use crate::wire::hello::{Challenge, Farewell, Hello, PROOF_BYTES};
use crate::wire::inbox::Inbox;
use crate::wire::secret::{Introduction, Way, fresh_nonce, is_same_proof};
use crate::wire::{Kind, VERSION, append_frame};

/// A connection to a node that has shown that it knows the secret.
#[derive(Debug)]
pub struct Introduced<T> {
    /// From the other side.
    pub read: Box<dyn ReadHalf>,
    /// To the other side.
    pub write: Box<dyn WriteHalf>,
    /// Closes frames to the other side.
    pub to_node: Way,
    /// Opens frames from there.
    pub to_writer: Way,
    /// Has arrived.
    pub inbox: Inbox,
    /// What the other side says of itself.
    pub said: T,
}

struct Stream<'a> {
    address: &'a str,
    read: Box<dyn ReadHalf>,
    write: Box<dyn WriteHalf>,
    inbox: Inbox,
}

impl Stream<'_> {
    async fn send(&mut self, kind: Kind, body: &[u8]) -> Result<()> {
        let mut frame = Vec::new();
        append_frame(&mut frame, &mut Way::plain(), kind, 0, |out| out.extend_from_slice(body));
        let sent = self.write.write_all(&frame).await;
        sent.map_err(|error| {
            Error::new(ErrorKind::Retry, format!("the connection to node {} broke: {error}", self.address))
        })
    }

    /// The next frame, which must be of `kind` and makes sense to `decode`.
    async fn receive<T>(&mut self, kind: Kind, decode: impl Fn(&[u8]) -> FormatResult<T>) -> Result<T> {
        let address = self.address;
        let malformed = |error| match error {
            FormatError::Newer { what, .. } => {
                Error::new(ErrorKind::Unsupported, format!("node {address} speaks {what}"))
                    .advice("run the same version of Tombolo on nodes and writers")
            }
            error => Error::format(format!("what {address} sent"), 0, error)
                .advice("check that a Tombolo node listens there: tombolo serve node"),
        };
        loop {
            if let Some((header, body)) = self.inbox.next(&mut Way::plain()).map_err(malformed)? {
                if header.kind == kind {
                    return decode(body).map_err(malformed);
                }
                if header.kind == Kind::Farewell {
                    return Err(refused(address, Farewell::decode(body).map_err(malformed)?));
                }
                return Err(malformed(FormatError::damaged(
                    4,
                    format!("{kind:?}"),
                    format!("{:?}", header.kind),
                )));
            }
            match self.inbox.fill(&mut *self.read).await {
                Ok(0) => {
                    return Err(Error::new(
                        ErrorKind::Retry,
                        format!("node {address} closed the connection"),
                    ));
                }
                Ok(_) => {}
                Err(error) => {
                    return Err(Error::new(
                        ErrorKind::Retry,
                        format!("the connection to node {address} broke: {error}"),
                    ));
                }
            }
        }
    }
}

/// What a farewell means to a writer.
fn refused(address: &str, reason: Farewell) -> Error {
    let kind = match reason {
        Farewell::WrongSecret | Farewell::WrongCertificate => ErrorKind::PermissionDenied,
        Farewell::OtherVersion => ErrorKind::Unsupported,
        _ => ErrorKind::Retry,
    };
    let error = Error::new(kind, format!("node {address} refuses the connection: {reason}"));
    match reason {
        Farewell::WrongSecret => error.advice("give both sides the same secret file"),
        Farewell::WrongCertificate => {
            error.advice("give this side a certificate that the node believes: tls=/directory")
        }
        Farewell::OtherVersion => error.advice("run the same version of Tombolo on nodes and writers"),
        _ => error,
    }
}

/// Connects to a node and makes its acquaintance.
///
/// # Errors
/// `Retry` when it cannot be reached; `PermissionDenied` for a wrong secret or certificate, its or
/// ours; `Unsupported` for another version; `Corrupt` when what answers is no node.
pub(super) async fn introduce(
    env: &Env,
    address: &str,
    credentials: Option<&Credentials>,
    client: u64,
) -> Result<Introduced<NodeStatus>> {
    let status = |body: &[u8]| {
        let mut reader = Reader::new(body);
        let status = take_status(&mut reader)?;
        reader.end()?;
        Ok(status)
    };
    let introduced = introduce_to(env, address, credentials, client, status).await?;
    tracing::debug!(node = %address, incarnation = %introduced.said.incarnation, "connected");
    Ok(introduced)
}

/// As to a node, to somebody who speaks the same frames, and whose status `decode` reads.
///
/// # Errors
/// `Retry` when it cannot be reached; `PermissionDenied` for a wrong secret or certificate, its or
/// ours; `Unsupported` for another version; `Corrupt` when what answers is another.
pub async fn introduce_to<T>(
    env: &Env,
    address: &str,
    credentials: Option<&Credentials>,
    client: u64,
    decode: impl Fn(&[u8]) -> FormatResult<T>,
) -> Result<Introduced<T>> {
    let mut connection = env.network().connect(address).await.map_err(|error| {
        Error::new(ErrorKind::Retry, format!("no connection to node {address}: {error}"))
            .advice("check the address, and that the node runs")
    })?;
    let of_connection = match credentials {
        Some(Credentials::Tls(tls)) => Some(tls.greet(&mut *connection, address).await?),
        _ => None,
    };
    let secret = match credentials {
        Some(Credentials::Secret(secret)) => Some(secret),
        _ => of_connection.as_ref(),
    };
    let (read, write) = connection.split();
    let mut stream = Stream { address, read, write, inbox: Inbox::for_long_frames() };
    let hello = Hello { version: VERSION, has_secret: secret.is_some(), nonce: fresh_nonce(env)?, client };
    stream.send(Kind::Hello, &hello.encode()).await?;
    let challenge = stream.receive(Kind::Challenge, Challenge::decode).await?;
    if challenge.has_secret != secret.is_some() {
        return Err(refused(address, Farewell::WrongSecret));
    }
    let introduction = Introduction { secret, hello, challenge };
    stream.send(Kind::Proof, &introduction.writer_proof()).await?;
    let welcome = |body: &[u8]| {
        let mut reader = Reader::new(body);
        let (proof, at) = (reader.array::<PROOF_BYTES>()?, reader.position());
        Ok((is_same_proof(&proof, &introduction.node_proof(&body[at..])), decode(&body[at..])?))
    };
    let (is_proven, said) = stream.receive(Kind::Welcome, welcome).await?;
    if !is_proven {
        let message = format!("what listens at {address} does not know the secret of the node");
        return Err(
            Error::new(ErrorKind::PermissionDenied, message).advice("give both sides the same secret file")
        );
    }
    let (to_node, to_writer) = introduction.ways();
    let Stream { read, write, inbox, .. } = stream;
    Ok(Introduced { read, write, to_node, to_writer, inbox, said })
}
