//! Certificates in the place of a shared secret: each side shows one that the other's authority has
//! signed.
//!
//! A connection begins with a handshake of TLS 1.3, in which both sides are checked. What both then
//! export of it (RFC 8446, section 7.5) is the secret of this one connection, and all that follows
//! is as with a shared secret: frames, encrypted and in order. So certificates cost a handshake and
//! no more, and one who learns a key later reads nothing that he recorded before.
//!
//! ```text
//! writer ── ClientHello … Finished ──▶ node      mutual; the node checks the writer's certificate last
//! writer ◀── "checked", as TLS ─────── node      so that a refusal is heard as one
//! writer ── Hello, as a frame ───────▶ node      from here on no byte is TLS
//! ```

use std::fmt;
use std::io::{self, Read, Write};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, ConnectionCommon, RootCertStore,
    ServerConfig, ServerConnection, SideData,
};
use tombolo_env::Connection;
use tombolo_storage::{Error, ErrorKind, Result};

use super::secret::Secret;

#[cfg(test)]
mod tests;

/// Most bytes that a handshake may take from the other side.
const HANDSHAKE_BYTES_MAX: usize = 256 << 10;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// What a node says once it has checked the writer.
const CHECKED: &[u8] = b"checked";
/// The purpose of the exported key.
const LABEL: &[u8] = b"EXPORTER-tombolo-node-1";

/// Who this process is to others, and whom it believes.
#[derive(Clone)]
pub struct Tls {
    writer: Arc<ClientConfig>,
    node: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tls")
    }
}

impl Tls {
    /// Of PEM: the certificates of the authorities that sign others' certificates, this side's own
    /// certificate with those between it and its authority, and its key. A node's certificate names
    /// the hosts, or addresses, by which writers reach it.
    ///
    /// # Errors
    /// `Invalid`, saying which of the three is wrong.
    pub fn new(authorities: &[u8], chain: &[u8], key: &[u8]) -> Result<Tls> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates("the authorities' certificates", authorities)? {
            roots.add(certificate).map_err(|error| invalid("the authorities' certificates", &error))?;
        }
        let (roots, chain) = (Arc::new(roots), certificates("the certificate", chain)?);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid("the key", &error))?;
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let both = |error: &dyn fmt::Display| invalid("the certificate and its key", error);
        let of_nodes =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        let writer = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| both(&error))?
            .with_webpki_verifier(of_nodes.map_err(|error| both(&error))?)
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(|error| both(&error))?;
        let of_writers = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let mut node = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| both(&error))?
            .with_client_cert_verifier(of_writers.map_err(|error| both(&error))?)
            .with_single_cert(chain, key)
            .map_err(|error| both(&error))?;
        // A session is not taken up again: nothing may be said as TLS once frames begin.
        node.send_tls13_tickets = 0;
        Ok(Tls { writer: Arc::new(writer), node: Arc::new(node) })
    }

    /// The writer's side, towards the node at `address` (`host:port`). The secret of this
    /// connection.
    ///
    /// # Errors
    /// `PermissionDenied` for a certificate, the node's or ours, and for a node that takes none;
    /// `Retry` for a connection that breaks.
    pub(crate) async fn greet(&self, connection: &mut dyn Connection, address: &str) -> Result<Secret> {
        let host = address
            .rsplit_once(':')
            .map_or(address, |(host, _)| host)
            .trim_start_matches('[')
            .trim_end_matches(']');
        let refused = |trouble: Trouble| trouble.to_writer(address);
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Error::new(ErrorKind::Invalid, format!("{host:?} is no name that a certificate can have"))
                .advice("name nodes by host or address")
        })?;
        let session =
            ClientConnection::new(Arc::clone(&self.writer), name).map_err(|error| refused(error.into()))?;
        let mut handshake = Handshake { session, connection, taken: 0 };
        handshake.run().await.map_err(refused)?;
        handshake.hear(CHECKED).await.map_err(refused)?;
        handshake.secret().map_err(refused)
    }

    /// The node's side. The secret of this connection, or why there is none.
    pub(crate) async fn admit(
        &self,
        connection: &mut dyn Connection,
    ) -> std::result::Result<Secret, Trouble> {
        let session = ServerConnection::new(Arc::clone(&self.node))?;
        let mut handshake = Handshake { session, connection, taken: 0 };
        handshake.run().await?;
        handshake.session.writer().write_all(CHECKED)?;
        handshake.send().await?;
        handshake.secret()
    }
}

fn invalid(what: &str, error: &dyn fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("{what}: {error}"))
        .advice("give PEM: -----BEGIN CERTIFICATE-----, -----BEGIN PRIVATE KEY-----")
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all.map_err(|error| invalid(what, &error))? {
        none if none.is_empty() => Err(invalid(what, &"there is none")),
        all => Ok(all),
    }
}

/// Why there is no secret.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The other side has gone.
    Gone(io::Error),
    /// What one side said does not please the other.
    Refused(rustls::Error),
    /// It said too much.
    TooMuch,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Gone(error)
    }
}

impl From<rustls::Error> for Trouble {
    fn from(error: rustls::Error) -> Trouble {
        Trouble::Refused(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Gone(error) => error.fmt(formatter),
            Trouble::Refused(error) => error.fmt(formatter),
            Trouble::TooMuch => formatter.write_str("a handshake of TLS that does not end"),
        }
    }
}

impl Trouble {
    /// Whether nobody is left who could be told.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Trouble::Gone(_))
    }

    fn to_writer(&self, address: &str) -> Error {
        let denied =
            |what: String, advice: &str| Error::new(ErrorKind::PermissionDenied, what).advice(advice);
        match self {
            Trouble::Gone(error) => {
                Error::new(ErrorKind::Retry, format!("the connection to node {address} broke: {error}"))
            }
            Trouble::TooMuch => Error::new(ErrorKind::Retry, format!("node {address}: {self}")),
            Trouble::Refused(rustls::Error::InvalidCertificate(error)) => {
                let advice = match error {
                    CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                        "give the node a new certificate"
                    }
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                        "name the node as its certificate does, or give it one with that name"
                    }
                    CertificateError::UnknownIssuer => {
                        "check that ca.crt holds the authority that signed the node's certificate"
                    }
                    _ => "check the node's certificate",
                };
                denied(format!("the certificate of node {address} is not believed: {error}"), advice)
            }
            Trouble::Refused(rustls::Error::AlertReceived(alert)) => {
                let why = match alert {
                    AlertDescription::CertificateExpired => "it has expired",
                    AlertDescription::UnknownCA => "its authority is not known there",
                    AlertDescription::DecryptError => "another authority of the same name is known there",
                    AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
                        "it is not believed there"
                    }
                    _ => {
                        return denied(
                            format!("node {address} refuses the connection: {alert:?}"),
                            "see what the node says on standard error",
                        );
                    }
                };
                denied(
                    format!("node {address} refuses this side's certificate: {why}"),
                    "give this side a certificate that the node's ca.crt has signed",
                )
            }
            Trouble::Refused(rustls::Error::InvalidMessage(_)) => denied(
                format!("node {address} does not speak TLS"),
                "start the node with --tls, or give this side the node's secret instead of certificates",
            ),
            Trouble::Refused(error) => {
                denied(format!("no TLS with node {address}: {error}"), "check the certificates of both sides")
            }
        }
    }
}

/// A handshake under way.
struct Handshake<'a, S> {
    session: S,
    connection: &'a mut dyn Connection,
    /// Bytes taken from the other side.
    taken: usize,
}

impl<S, D: SideData> Handshake<'_, S>
where
    S: DerefMut + Deref<Target = ConnectionCommon<D>>,
{
    async fn run(&mut self) -> std::result::Result<(), Trouble> {
        self.send().await?;
        while self.session.is_handshaking() {
            self.receive().await?;
            self.send().await?;
        }
        Ok(())
    }

    /// Writes what there is to say.
    async fn send(&mut self) -> std::result::Result<(), Trouble> {
        while self.session.wants_write() {
            let mut out = Vec::new();
            self.session.write_tls(&mut out)?;
            self.connection.write_all(&out).await?;
        }
        Ok(())
    }

    /// Reads what comes. Why the other side is refused is said to it.
    async fn receive(&mut self) -> std::result::Result<(), Trouble> {
        let mut buffer = vec![0; READ_BYTES];
        let count = self.connection.read(&mut buffer).await?;
        self.taken += count;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if self.taken > HANDSHAKE_BYTES_MAX {
            return Err(Trouble::TooMuch);
        }
        let mut arrived = &buffer[..count];
        while !arrived.is_empty() {
            if self.session.read_tls(&mut arrived)? == 0 {
                // It has said that it closes: what comes after is not taken any more.
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            if let Err(error) = self.session.process_new_packets() {
                // Who speaks no TLS is told in frames.
                if !matches!(error, rustls::Error::InvalidMessage(_)) {
                    let _told = self.send().await;
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Waits until the other side has said `words`.
    async fn hear(&mut self, words: &[u8]) -> std::result::Result<(), Trouble> {
        let mut heard = Vec::new();
        loop {
            let mut buffer = [0; 64];
            match self.session.reader().read(&mut buffer) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => heard.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.receive().await?,
                Err(error) => return Err(error.into()),
            }
            if heard == words {
                return Ok(());
            }
            if !words.starts_with(&heard) {
                return Err(Trouble::TooMuch);
            }
        }
    }

    fn secret(&self) -> std::result::Result<Secret, Trouble> {
        Ok(Secret::of_connection(&self.session.export_keying_material([0; 32], LABEL, None)?))
    }
}
