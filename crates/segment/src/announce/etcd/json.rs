//! The small client of ours: etcd over the JSON that it speaks beside gRPC, without TLS and without
//! a user.
//!
//! It is there for two reasons. The field's client (`grpc`) needs seventy crates and, to be built,
//! the compiler of protocol buffers: a plain build finds nodes in a plain etcd without them. And a
//! simulated world has no sockets of the operating system: code built on these requests is tried
//! there.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tombolo_env::Env;
use tombolo_storage::{Error, ErrorKind};

use super::super::http::post;
use super::{Answer, Ask, NODES_MAX, Refused};

/// An etcd, by the addresses of its members.
#[derive(Debug)]
pub(super) struct Json {
    addresses: Vec<String>,
    /// The one that is asked first: that answered last, or follows the one that is being asked.
    next: AtomicUsize,
}

impl Json {
    pub(super) fn new(addresses: &[String]) -> Json {
        Json { addresses: addresses.to_vec(), next: AtomicUsize::new(0) }
    }

    pub(super) async fn ask(&self, env: &Env, ask: Ask) -> std::result::Result<Answer, Refused> {
        match ask {
            Ask::Entries { prefix } => {
                // All keys that begin so: up to the prefix with its last byte, a slash, raised by
                // one.
                let end = format!("{}0", prefix.trim_end_matches('/'));
                let request = json!({
                    "key": to_base64(prefix.as_bytes()), "range_end": to_base64(end.as_bytes()),
                    "limit": NODES_MAX.to_string()
                });
                let said = self.post(env, "/v3/kv/range", &request).await?;
                let entries = said["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
                Ok(Answer::Entries(entries.iter().filter_map(entry).collect()))
            }
            Ask::Grant { seconds } => {
                let granted = self.post(env, "/v3/lease/grant", &json!({"TTL": seconds.to_string()})).await?;
                Ok(Answer::Lease(number(&granted["ID"])))
            }
            Ask::KeepAlive { lease } => {
                let kept = self.post(env, "/v3/lease/keepalive", &json!({ "ID": lease.to_string() })).await?;
                // One that has ended has no time left.
                let seconds = number(&kept["result"]["TTL"]);
                Ok(Answer::Lease(seconds.filter(|seconds| *seconds > 0).map(|_| lease)))
            }
            Ask::Put { key, value, lease } => {
                let request = json!({
                    "key": to_base64(key.as_bytes()), "value": to_base64(&value), "lease": lease.to_string()
                });
                self.post(env, "/v3/kv/put", &request).await.map(|_| Answer::Done)
            }
            Ask::Revoke { lease } => {
                let request = json!({ "ID": lease.to_string() });
                self.post(env, "/v3/lease/revoke", &request).await.map(|_| Answer::Done)
            }
        }
    }

    /// Asks one member after another until one answers.
    async fn post(&self, env: &Env, path: &str, request: &Value) -> std::result::Result<Value, Refused> {
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
            error: error
                .advice("check that etcd runs; where it asks for TLS, name the certificates: tls=DIRECTORY"),
            is_lease_gone: false,
        })
    }
}

/// A key and its value.
fn entry(entry: &Value) -> Option<(Vec<u8>, Vec<u8>)> {
    let bytes = |name: &str| from_base64(entry[name].as_str()?);
    Some((bytes("key")?, bytes("value").unwrap_or_default()))
}

/// A number of 64 bits, which etcd writes in quotes.
fn number(value: &Value) -> Option<i64> {
    value.as_str()?.parse().ok()
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
        ErrorKind::PermissionDenied => error.advice("it asks for a user: write user=NAME&password_file=FILE"),
        _ => error,
    };
    Refused { error, is_lease_gone: said["code"].as_u64() == Some(NOT_FOUND) && text.contains("lease") }
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
