//! Announcements in etcd, over the JSON that it speaks beside gRPC (versions 3.4 and later).
//!
//! A node puts `tombolo/nodes/{registry}/{id}` with a lease of [`LEASE`], which it keeps alive;
//! when it dies the lease ends, and the entry goes with it. No library for gRPC is worth three
//! requests: each is a POST of a line of JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tombolo_env::Env;
use tombolo_storage::{Error, ErrorKind, ObjectName, Result, Uri};

use super::http::post;
use super::{ANNOUNCEMENT_BYTES_MAX, Announcement, NODES_MAX, decode};
use crate::message::NodeStatus;

/// How long etcd keeps what a dead node said.
const LEASE: Duration = Duration::from_secs(15);
/// How often a node keeps its lease alive.
pub(super) const PERIOD: Duration = Duration::from_secs(5);
/// Most addresses of one etcd.
const ADDRESSES_MAX: usize = 16;
/// The scheme of its URIs.
const SCHEME: &str = "etcd";

/// An etcd, by the addresses of its members.
#[derive(Clone, Debug)]
pub struct Etcd {
    addresses: Arc<[String]>,
    /// The one that is asked first: that answered last, or follows the one that is being asked.
    next: Arc<AtomicUsize>,
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
    ///
    /// # Errors
    /// `Invalid` for malformed addresses, and for parameters, of which there are none.
    pub fn of(uri: &Uri) -> Result<Option<Etcd>> {
        if uri.scheme != SCHEME {
            return Ok(None);
        }
        uri.allow_parameters(&[])?;
        let addresses: Arc<[String]> = uri.rest.trim_end_matches('/').split(',').map(str::to_owned).collect();
        let is_address = |address: &String| {
            let (host, port) = address.rsplit_once(':').unwrap_or_default();
            !host.is_empty() && !host.contains(['/', ' ']) && port.parse::<u16>().is_ok_and(|port| port > 0)
        };
        if addresses.len() > ADDRESSES_MAX || !addresses.iter().all(is_address) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{} does not name the members of an etcd", uri.shown()),
            )
            .advice(format!("write etcd://host:2379,host:2379,host:2379, {ADDRESSES_MAX} at most")));
        }
        Ok(Some(Etcd { addresses, next: Arc::default() }))
    }

    /// Asks one member after another until one answers.
    async fn ask(&self, env: &Env, path: &str, request: &Value) -> std::result::Result<Value, Refused> {
        let (json, first) = (request.to_string(), self.next.load(Ordering::Relaxed));
        let mut last = None;
        for nth in 0..self.addresses.len() {
            let at = (first + nth) % self.addresses.len();
            // A caller that gives up meanwhile does not come back to a silent one.
            self.next.store(at + 1, Ordering::Relaxed);
            match post(env, &self.addresses[at], path, &json).await {
                Ok(answer) => match (answer.status, serde_json::from_slice::<Value>(&answer.body)) {
                    (200, Err(error)) => last = Some(no_etcd(&self.addresses[at], path, &error)),
                    (status, said) => {
                        self.next.store(at, Ordering::Relaxed);
                        let said = said.unwrap_or_default();
                        return if status == 200 {
                            Ok(said)
                        } else {
                            Err(refused(&self.addresses[at], path, status, &said))
                        };
                    }
                },
                Err(error) => last = Some(error),
            }
        }
        let error = last.unwrap_or_else(|| Error::new(ErrorKind::Bug, "an etcd without members"));
        Err(Refused {
            error: error.advice("check that etcd runs, and that it can be reached without TLS there"),
            is_lease_gone: false,
        })
    }
}

/// What answers there is something else: a registry without nodes would be a wrong answer.
fn no_etcd(address: &str, path: &str, error: &serde_json::Error) -> Error {
    Error::new(ErrorKind::Retry, format!("what answers at {address} to {path} is no etcd: no JSON ({error})"))
}

/// What a status other than 200 means. etcd says it by gRPC's codes.
fn refused(address: &str, path: &str, status: u16, said: &Value) -> Refused {
    const NOT_FOUND: u64 = 5;
    let text = said["message"].as_str().or_else(|| said["error"].as_str()).unwrap_or("no reason given");
    let kind = if matches!(status, 401 | 403) || text.contains("user name is empty") {
        ErrorKind::PermissionDenied
    } else {
        ErrorKind::Retry
    };
    let error = Error::new(kind, format!("etcd at {address} refuses {path} with {status}: {text}"));
    let error = match kind {
        ErrorKind::PermissionDenied => {
            error.advice("announcements are made without a user: name an etcd that asks for none")
        }
        _ => error,
    };
    Refused { error, is_lease_gone: said["code"].as_u64() == Some(NOT_FOUND) && text.contains("lease") }
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
        // All keys that begin so: up to the prefix with its last byte, a slash, raised by one.
        let end = format!("{}0", self.prefix.trim_end_matches('/'));
        let request = json!({"key": to_base64(self.prefix.as_bytes()), "range_end": to_base64(end.as_bytes()), "limit": NODES_MAX.to_string()});
        let said = self.etcd.ask(&self.env, "/v3/kv/range", &request).await?;
        let entries = said["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(entries.iter().filter_map(announcement).collect())
    }
}

fn announcement(entry: &Value) -> Option<Announcement> {
    let bytes = |name: &str| from_base64(entry[name].as_str()?);
    let key = String::from_utf8_lossy(&bytes("key")?).into_owned();
    let value = bytes("value").unwrap_or_default();
    if value.len() as u64 > ANNOUNCEMENT_BYTES_MAX {
        tracing::warn!(%key, "an entry among a registry's nodes is no announcement: it is left out");
        return None;
    }
    decode(&key, &value)
}

/// A node's entry, and the lease that it lives by.
#[derive(Debug)]
pub(super) struct Leased {
    entries: Entries,
    key: String,
    address: String,
    /// As etcd writes it: a number of 64 bits in quotes.
    lease: Option<String>,
}

impl Leased {
    pub(super) fn new(env: &Env, etcd: Etcd, registry: &str, address: &str) -> Result<Leased> {
        let entries = Entries::new(env, etcd, registry)?;
        let key = format!("{}{:016x}", entries.prefix, env.random_u64());
        Ok(Leased { entries, key, address: address.to_owned(), lease: None })
    }

    async fn ask(&self, path: &str, request: &Value) -> std::result::Result<Value, Refused> {
        self.entries.etcd.ask(&self.entries.env, path, request).await
    }

    /// Keeps the lease alive, or takes a new one, and puts the entry.
    pub(super) async fn announce(&mut self, status: NodeStatus) -> Result<()> {
        let announcement = Announcement { address: self.address.clone(), period: PERIOD, status }.encode()?;
        if let Some(lease) = self.lease.clone() {
            let kept = self.ask("/v3/lease/keepalive", &json!({ "ID": lease })).await?;
            // One that has ended has no time left.
            let seconds = kept["result"]["TTL"].as_str().and_then(|text| text.parse::<u64>().ok());
            self.lease = seconds.filter(|seconds| *seconds > 0).map(|_| lease);
        }
        loop {
            let is_fresh = self.lease.is_none();
            let lease = self.lease().await?;
            let request = json!({"key": to_base64(self.key.as_bytes()), "value": to_base64(&announcement), "lease": lease});
            match self.ask("/v3/kv/put", &request).await {
                Ok(_) => return Ok(()),
                // It ended between the two requests.
                Err(refused) if refused.is_lease_gone && !is_fresh => self.lease = None,
                Err(refused) => return Err(refused.into()),
            }
        }
    }

    /// The lease; a new one when there is none.
    async fn lease(&mut self) -> Result<String> {
        if let Some(lease) = &self.lease {
            return Ok(lease.clone());
        }
        let granted = self.ask("/v3/lease/grant", &json!({"TTL": LEASE.as_secs().to_string()})).await?;
        let Some(lease) = granted["ID"].as_str() else {
            return Err(Error::new(ErrorKind::Retry, "etcd grants a lease and does not say which")
                .found(granted.to_string()));
        };
        self.lease = Some(lease.to_owned());
        Ok(lease.to_owned())
    }

    /// Ends the lease: the entry goes with it.
    pub(super) async fn withdraw(self) -> Result<()> {
        let Some(lease) = &self.lease else { return Ok(()) };
        match self.ask("/v3/lease/revoke", &json!({ "ID": lease })).await {
            Err(refused) if !refused.is_lease_gone => Err(refused.into()),
            _ => Ok(()),
        }
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as etcd's JSON has them (RFC 4648, with padding).
fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits =
            three.iter().enumerate().fold(0, |bits, (nth, byte)| bits | u32::from(*byte) << (16 - 8 * nth));
        for nth in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * nth) & 63) as usize];
            text.push(if nth <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Those bytes again; `None` for anything else.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for digit in digits.bytes() {
        let value = u32::try_from(ALPHABET.iter().position(|known| *known == digit)?).ok()?;
        (bits, count) = (bits << 6 | value, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 255) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!((to_base64(bytes.as_bytes()).as_str(), from_base64(text)), (text, Some(bytes.into())));
        }
        for wrong in ["Z", "Zg=", "Z===", "====", "Z!==", "Zg==Zg=="] {
            assert_eq!(from_base64(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(from_base64(&to_base64(&bytes)), Some(bytes));
        }
    }

    #[test]
    fn addresses_are_checked() {
        let of = |text: &str| Etcd::of(&Uri::parse(text).expect("a URI"));
        assert_eq!(of("etcd://a:2379,[::1]:2379").expect("right").expect("etcd").addresses.len(), 2);
        assert!(of("file:///data").expect("another").is_none());
        for wrong in
            ["etcd://", "etcd://a", "etcd://a:0", "etcd://a:1,,b:1", "etcd://a b:1", "etcd://a:1?x=y"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_etcd_refuses_is_told_apart() {
        let said = json!({"error": "etcdserver: requested lease not \
            found", "message": "etcdserver: \
            requested lease not found", "code": 5});
        assert!(refused("a:1", "/v3/kv/put", 404, &said).is_lease_gone);
        let said = json!({"message": "etcdserver: user name is empty", "code": 3});
        let refused = refused("a:1", "/v3/kv/put", 400, &said);
        assert!(!refused.is_lease_gone);
        assert_eq!(refused.error.kind(), ErrorKind::PermissionDenied);
    }
}
