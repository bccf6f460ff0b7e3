//! The field's own client of etcd, over gRPC: for one that asks for TLS or for a user. With the
//! cargo feature `etcd`.
//!
//! Its requests run on a small runtime of the client's own, and come back through completions, so
//! that who waits needs no runtime. A connection is made with the first request, and again after
//! one that failed: a password that was changed, or a member that came back, needs no restart.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, GetOptions, Identity, PutOptions, TlsOptions};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tombolo_env::{Env, completion, within};
use tombolo_storage::{Error, ErrorKind, Result};

use super::access::Access;
use super::{Answer, Ask, NODES_MAX, Refused};

/// How long a request may take, the connection included.
const REQUEST_MAX: Duration = Duration::from_secs(5);
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// An etcd, by all of its members.
pub(super) struct Grpc {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

struct Shared {
    endpoints: Vec<String>,
    options: ConnectOptions,
    client: Mutex<Option<Client>>,
}

impl std::fmt::Debug for Grpc {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Grpc").field("endpoints", &self.shared.endpoints).finish_non_exhaustive()
    }
}

impl Drop for Grpc {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The last one may go on a thread of the runtime, which cannot wait for itself.
            runtime.shutdown_background();
        }
    }
}

impl Grpc {
    pub(super) fn new(addresses: &[String], access: &Access) -> Result<Grpc> {
        let scheme = if access.tls.is_some() { "https" } else { "http" };
        let endpoints = addresses.iter().map(|address| format!("{scheme}://{address}")).collect();
        let mut options = ConnectOptions::new().with_connect_timeout(CONNECT_MAX).with_timeout(REQUEST_MAX);
        if let Some(tls) = &access.tls {
            let mut config = TlsOptions::new().ca_certificate(Certificate::from_pem(&tls.authorities));
            if let Some((chain, key)) = &tls.identity {
                config = config.identity(Identity::from_pem(chain, key));
            }
            options = options.with_tls(config);
        }
        if let Some((name, password)) = &access.user {
            options = options.with_user(name.as_str(), password.as_str());
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("tombolo-etcd")
            .enable_all()
            .build()
            .map_err(|error| Error::io(error, "starting the thread of a client", "etcd"))?;
        let shared = Arc::new(Shared { endpoints, options, client: Mutex::new(None) });
        Ok(Grpc { shared, runtime: Some(runtime) })
    }

    pub(super) async fn ask(&self, env: &Env, ask: Ask) -> std::result::Result<Answer, Refused> {
        let (completer, completion) = completion();
        let shared = Arc::clone(&self.shared);
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move { completer.complete(shared.ask(ask).await) });
        }
        let late = || {
            let message = format!("etcd at {} does not answer within {REQUEST_MAX:?}", self.members());
            Err(refused(Error::new(ErrorKind::Retry, message).advice("check that etcd runs")))
        };
        within(env, REQUEST_MAX, completion).await.flatten().unwrap_or_else(late)
    }

    fn members(&self) -> String {
        self.shared.endpoints.join(", ")
    }
}

fn refused(error: Error) -> Refused {
    Refused { error, is_lease_gone: false }
}

impl Shared {
    async fn ask(&self, ask: Ask) -> std::result::Result<Answer, Refused> {
        let known = self.client.lock().clone();
        let is_known = known.is_some();
        match self.ask_client(known, &ask).await {
            // It may be that of a connection, or of a password, of before.
            Err(error) if is_known && !is_lease_gone(&error) => self.ask_client(None, &ask).await,
            answer => answer,
        }
        .map_err(|error| self.judge(&error))
    }

    async fn ask_client(
        &self,
        known: Option<Client>,
        ask: &Ask,
    ) -> std::result::Result<Answer, etcd_client::Error> {
        let client = match known {
            Some(client) => client,
            None => Client::connect(&self.endpoints, Some(self.options.clone())).await?,
        };
        let answer = answer(client.clone(), ask).await;
        let is_sound = match &answer {
            Ok(_) => true,
            Err(error) => is_lease_gone(error),
        };
        *self.client.lock() = is_sound.then_some(client);
        answer
    }

    /// What an error of the client means here.
    fn judge(&self, error: &etcd_client::Error) -> Refused {
        let text = error.to_string();
        let members = self.endpoints.join(", ");
        let is_denied = code_of(error)
            .is_some_and(|code| code == PERMISSION_DENIED || code == UNAUTHENTICATED)
            || ["user name is empty", "authentication failed", "invalid auth token", "permission denied"]
                .iter()
                .any(|word| text.contains(word));
        let kind = match error {
            _ if is_denied => ErrorKind::PermissionDenied,
            etcd_client::Error::InvalidArgs(_) | etcd_client::Error::InvalidUri(_) => ErrorKind::Invalid,
            _ => ErrorKind::Retry,
        };
        let message = format!("etcd at {members} refuses: {}", with_causes(error));
        let advice = if is_denied {
            "check the user and the password (user=, password_file=), and that its role may read and write \
            keys that begin with tombolo/nodes/"
        } else {
            "check that etcd runs there, and the certificates (tls=) where it asks for TLS"
        };
        Refused { error: Error::new(kind, message).advice(advice), is_lease_gone: is_lease_gone(error) }
    }
}

/// gRPC's numbers.
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const UNAUTHENTICATED: i32 = 16;

fn code_of(error: &etcd_client::Error) -> Option<i32> {
    match error {
        etcd_client::Error::GRpcStatus(status) => Some(status.code() as i32),
        _ => None,
    }
}

fn is_lease_gone(error: &etcd_client::Error) -> bool {
    code_of(error) == Some(NOT_FOUND) && error.to_string().contains("lease")
}

/// The error, and what lies under it: a certificate that nobody believes is told only there.
fn with_causes(error: &etcd_client::Error) -> String {
    let mut text = match error {
        etcd_client::Error::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    };
    let mut next: Option<&dyn std::error::Error> = match error {
        etcd_client::Error::GRpcStatus(status) => std::error::Error::source(status),
        etcd_client::Error::TransportError(transport) => std::error::Error::source(transport),
        _ => None,
    };
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

fn answer(
    mut client: Client,
    ask: &Ask,
) -> impl Future<Output = std::result::Result<Answer, etcd_client::Error>> + Send {
    let ask = ask.clone();
    async move {
        Ok(match ask {
            Ask::Entries { prefix } => {
                let limit = i64::try_from(NODES_MAX).unwrap_or(i64::MAX);
                let options = GetOptions::new().with_prefix().with_limit(limit);
                let found = client.get(prefix, Some(options)).await?;
                let pair = |entry: &etcd_client::KeyValue| (entry.key().to_vec(), entry.value().to_vec());
                Answer::Entries(found.kvs().iter().map(pair).collect())
            }
            Ask::Grant { seconds } => {
                let granted = client.lease_grant(i64::try_from(seconds).unwrap_or(i64::MAX), None).await?;
                Answer::Lease(Some(granted.id()))
            }
            // Asks once, and says whether the lease is still there.
            Ask::KeepAlive { lease } => match client.lease_keep_alive(lease).await {
                Ok(_) => Answer::Lease(Some(lease)),
                Err(etcd_client::Error::LeaseKeepAliveError(text)) if text.contains("not found") => {
                    Answer::Lease(None)
                }
                Err(error) => return Err(error),
            },
            Ask::Put { key, value, lease } => {
                client.put(key, value, Some(PutOptions::new().with_lease(lease))).await?;
                Answer::Done
            }
            Ask::Revoke { lease } => {
                client.lease_revoke(lease).await?;
                Answer::Done
            }
        })
    }
}
