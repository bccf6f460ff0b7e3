//! Announcements in etcd (versions 3.4 and later).
//!
//! A node puts `tombolo/nodes/{registry}/{id}` with a lease of [`LEASE`], which it keeps alive;
//! when it dies the lease ends, and the entry goes with it. Two clients carry the requests: `json`,
//! for an etcd that is asked without TLS and without a user, and `grpc` for the others.

#[cfg(feature = "etcd")]
mod access;
#[cfg(feature = "etcd")]
mod grpc;
mod json;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::Env;
use tombolo_storage::{Error, ErrorKind, ObjectName, Result, Uri};

use super::{ANNOUNCEMENT_BYTES_MAX, Announcement, NODES_MAX, decode};
use crate::message::NodeStatus;
use json::Json;

/// How long etcd keeps what a dead node said.
const LEASE: Duration = Duration::from_secs(15);
/// How often a node keeps its lease alive.
pub(super) const PERIOD: Duration = Duration::from_secs(5);
/// Most addresses of one etcd.
const ADDRESSES_MAX: usize = 16;
/// The scheme of its URIs.
const SCHEME: &str = "etcd";

/// A directory with certificates, in PEM, by the names of
/// [`TLS_FILES`](crate::wire::credentials::TLS_FILES).
const TLS: &str = "tls";
/// A user, and a file with the password.
const USER: &str = "user";
const PASSWORD_FILE: &str = "password_file";

/// An etcd, by the addresses of its members.
#[derive(Clone, Debug)]
pub struct Etcd(Arc<Asked>);

#[derive(Debug)]
enum Asked {
    Json(Json),
    #[cfg(feature = "etcd")]
    Grpc(grpc::Grpc),
}

/// A request to it.
#[derive(Clone, Debug)]
enum Ask {
    /// All entries that begin so, at most [`NODES_MAX`].
    Entries { prefix: String },
    /// A new lease.
    Grant { seconds: u64 },
    /// More time for one.
    KeepAlive { lease: i64 },
    /// An entry that goes with a lease.
    Put { key: String, value: Bytes, lease: i64 },
    /// The end of a lease.
    Revoke { lease: i64 },
}

/// What it says.
#[derive(Debug)]
enum Answer {
    /// Keys and values.
    Entries(Vec<(Vec<u8>, Vec<u8>)>),
    /// The lease; `None`: there is none.
    Lease(Option<i64>),
    Done,
}

/// What etcd refused, and whether a lease was the reason.
struct Refused {
    error: Error,
    is_lease_gone: bool,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        refused.error
    }
}

impl Etcd {
    /// The etcd that `etcd://host:2379,host:2379` names; `None` for a URI of another scheme.
    /// Parameters name files: `tls=DIRECTORY`, `user=NAME&password_file=FILE`.
    ///
    /// # Errors
    /// `Invalid` for malformed addresses and other parameters; `Unsupported` for TLS or a user in a
    /// build without the cargo feature `etcd`; those of reading the files.
    pub fn of(env: &Env, uri: &Uri) -> Result<Option<Etcd>> {
        if uri.scheme != SCHEME {
            return Ok(None);
        }
        uri.allow_parameters(&[TLS, USER, PASSWORD_FILE])?;
        let addresses: Vec<String> = uri.rest.trim_end_matches('/').split(',').map(str::to_owned).collect();
        let is_address = |address: &String| {
            let (host, port) = address.rsplit_once(':').unwrap_or_default();
            !host.is_empty()
                && !host.contains(['/', ' ', '@'])
                && port.parse::<u16>().is_ok_and(|port| port > 0)
        };
        if addresses.len() > ADDRESSES_MAX || !addresses.iter().all(is_address) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{} does not name the members of an etcd", uri.shown()),
            )
            .advice(format!(
                "write etcd://host:2379,host:2379,host:2379, {ADDRESSES_MAX} at most; a user is named by \
                ?user=NAME&password_file=FILE"
            )));
        }
        let is_plain = uri.parameters.is_empty();
        let asked = if is_plain { Asked::Json(Json::new(&addresses)) } else { shown(env, uri, &addresses)? };
        Ok(Some(Etcd(Arc::new(asked))))
    }

    async fn ask(&self, env: &Env, ask: Ask) -> std::result::Result<Answer, Refused> {
        match &*self.0 {
            Asked::Json(json) => json.ask(env, ask).await,
            #[cfg(feature = "etcd")]
            Asked::Grpc(grpc) => grpc.ask(env, ask).await,
        }
    }
}

/// A client that shows certificates or a user.
#[cfg(feature = "etcd")]
fn shown(env: &Env, uri: &Uri, addresses: &[String]) -> Result<Asked> {
    grpc::Grpc::new(addresses, &access::Access::read(env, uri)?).map(Asked::Grpc)
}

/// A client that shows certificates or a user: there is none in this build.
#[cfg(not(feature = "etcd"))]
fn shown(_: &Env, uri: &Uri, _: &[String]) -> Result<Asked> {
    let message =
        format!("this program was built without the client for {}, with TLS or a user", uri.shown());
    Err(Error::new(ErrorKind::Unsupported, message).advice(
        "build it with the feature, for which protoc is needed: cargo build --release --features etcd",
    ))
}

/// The prefix of a registry's entries.
fn prefix(registry: &str) -> Result<String> {
    // As strict as in a store, where it is part of a name.
    ObjectName::new(format!("nodes/{registry}/x"))?;
    Ok(format!("tombolo/nodes/{registry}/"))
}

/// The entries of a registry.
#[derive(Debug)]
pub(super) struct Entries {
    env: Env,
    etcd: Etcd,
    prefix: String,
}

impl Entries {
    pub(super) fn new(env: &Env, etcd: Etcd, registry: &str) -> Result<Entries> {
        Ok(Entries { env: env.clone(), etcd, prefix: prefix(registry)? })
    }

    /// All nodes whose leases have not ended. One request.
    pub(super) async fn look(&mut self) -> Result<Vec<Announcement>> {
        match self.etcd.ask(&self.env, Ask::Entries { prefix: self.prefix.clone() }).await? {
            Answer::Entries(entries) => {
                Ok(entries.iter().filter_map(|(key, value)| announcement(key, value)).collect())
            }
            Answer::Lease(_) | Answer::Done => Ok(Vec::new()),
        }
    }
}

fn announcement(key: &[u8], value: &[u8]) -> Option<Announcement> {
    let key = String::from_utf8_lossy(key).into_owned();
    if value.len() as u64 > ANNOUNCEMENT_BYTES_MAX {
        tracing::warn!(%key, "an entry among a registry's nodes is no announcement: it is left out");
        return None;
    }
    decode(&key, value)
}

/// A node's entry, and the lease that it lives by.
#[derive(Debug)]
pub(super) struct Leased {
    entries: Entries,
    key: String,
    address: String,
    lease: Option<i64>,
}

impl Leased {
    pub(super) fn new(env: &Env, etcd: Etcd, registry: &str, address: &str) -> Result<Leased> {
        let entries = Entries::new(env, etcd, registry)?;
        let key = format!("{}{:016x}", entries.prefix, env.random_u64());
        Ok(Leased { entries, key, address: address.to_owned(), lease: None })
    }

    async fn ask(&self, ask: Ask) -> std::result::Result<Answer, Refused> {
        self.entries.etcd.ask(&self.entries.env, ask).await
    }

    /// Keeps the lease alive, or takes a new one, and puts the entry.
    pub(super) async fn announce(&mut self, status: NodeStatus) -> Result<()> {
        let announcement = Announcement { address: self.address.clone(), period: PERIOD, status }.encode()?;
        if let Some(lease) = self.lease {
            let kept = self.ask(Ask::KeepAlive { lease }).await?;
            self.lease = if let Answer::Lease(lease) = kept { lease } else { None };
        }
        loop {
            let is_fresh = self.lease.is_none();
            let lease = self.lease().await?;
            let put = Ask::Put { key: self.key.clone(), value: announcement.clone(), lease };
            match self.ask(put).await {
                Ok(_) => return Ok(()),
                // It ended between the two requests.
                Err(refused) if refused.is_lease_gone && !is_fresh => self.lease = None,
                Err(refused) => return Err(refused.into()),
            }
        }
    }

    /// The lease; a new one when there is none.
    async fn lease(&mut self) -> Result<i64> {
        if let Some(lease) = self.lease {
            return Ok(lease);
        }
        match self.ask(Ask::Grant { seconds: LEASE.as_secs() }).await? {
            Answer::Lease(Some(lease)) => {
                self.lease = Some(lease);
                Ok(lease)
            }
            other => Err(Error::new(ErrorKind::Retry, "etcd grants a lease and does not say which")
                .found(format!("{other:?}"))),
        }
    }

    /// Ends the lease: the entry goes with it.
    pub(super) async fn withdraw(self) -> Result<()> {
        let Some(lease) = self.lease else { return Ok(()) };
        match self.ask(Ask::Revoke { lease }).await {
            Err(refused) if !refused.is_lease_gone => Err(refused.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Etcd>> {
        Etcd::of(&Env::real(), &Uri::parse(text).expect("a URI"))
    }

    #[test]
    fn addresses_are_checked() {
        assert!(of("etcd://a:2379,[::1]:2379").expect("right").is_some());
        assert!(of("file:///data").expect("another").is_none());
        for wrong in [
            "etcd://",
            "etcd://a",
            "etcd://a:0",
            "etcd://a:1,,b:1",
            "etcd://a b:1",
            "etcd://me:secret@a:1",
            "etcd://a:1?x=y",
            "etcd://a:1?user=me",
            "etcd://a:1?password_file=/no/such/file",
            "etcd://a:1?user=me&password_file=/no/such/file",
            "etcd://a:1?tls=/no/such/directory",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[cfg(not(feature = "etcd"))]
    #[test]
    fn a_build_without_the_client_says_so() {
        let error = of("etcd://a:1?tls=/etc/tls").expect_err("no client for it");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("--features etcd"), "{error}");
    }
}
