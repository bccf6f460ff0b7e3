//! URIs to buckets: which protocol, where, whose, and under which prefix.
//!
//! | parameter | of | says |
//! |---|---|---|
//! | `endpoint=https://host:port` | all | another service that speaks the protocol |
//! | `region=eu-central-1` | `s3` | the bucket's region; the environment's, or us-east-1 |
//! | `account=name` | `az` | the storage account; the environment's |
//! | `allow_http=yes` | all | an endpoint without TLS that is not on this machine |
//! | `timeout_seconds=30` | all | how long one request may take |
//! | `anonymous=yes` | all | requests are not signed: a public bucket, or a service that asks for nothing |
//!
//! Credentials come from the environment, from files that it names, or from the machine's own role,
//! as object_store finds them; never from a URI, and never into a message.

use core::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut, S3CopyIfNotExists};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::{Client, wire};
use crate::facts::Fact;
use crate::uri::shown;
use crate::{Error, ErrorKind, ObjectName, Result, Uri};

/// The schemes of this module.
pub(super) const SCHEMES: [&str; 3] = ["s3", "gs", "az"];

/// How long a request may take when nothing else is said: what a part of 8 MiB takes over 3 Mbit/s.
const TIMEOUT_SECONDS: u64 = 30;
const TIMEOUT_SECONDS_MAX: u64 = 3600;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Idle connections that are kept: as many as there are requests.
const IDLE_CONNECTIONS_MAX: usize = super::IN_FLIGHT_MAX;

/// Where a store's objects lie.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    scheme: &'static str,
    bucket: String,
    /// Segments joined by `/`; empty for the whole bucket.
    prefix: String,
    /// As the URI has it.
    endpoint: Option<String>,
    account: Option<String>,
    /// What requests go over.
    has_tls: bool,
}

impl Bucket {
    /// The store, as a person would name it; the same however it is spelled.
    pub(super) fn describe(&self) -> String {
        let mut parameters = Vec::new();
        parameters.extend(self.account.as_ref().map(|account| format!("account={account}")));
        parameters.extend(self.endpoint.as_ref().map(|endpoint| format!("endpoint={endpoint}")));
        let parameters =
            if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        format!("{}://{}{slash}{}{parameters}", self.scheme, self.bucket, self.prefix)
    }

    /// The bucket, to which a key is appended to name an object of any prefix.
    pub(super) fn identity(&self) -> String {
        let host = self.endpoint.as_deref().or(self.account.as_deref()).unwrap_or_default();
        format!("{}://{host}/{}/", self.scheme, self.bucket)
    }

    /// An object's key, as text. Of a part of a name, a part of a key.
    pub(super) fn key_text(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}/{name}", self.prefix) }
    }

    /// An object's key.
    pub(super) fn key(&self, name: &str) -> Result<Path> {
        Path::parse(self.key_text(name))
            .map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()).object(name))
    }

    /// The name that a key stands for; `None` when it is of another prefix.
    pub(super) fn name<'a>(&self, key: &'a str) -> Option<&'a str> {
        if self.prefix.is_empty() { Some(key) } else { key.strip_prefix(&self.prefix)?.strip_prefix('/') }
    }

    /// An object, for messages.
    pub(super) fn place(&self, name: &str) -> String {
        format!("{}://{}/{}", self.scheme, self.bucket, self.key_text(name))
    }

    /// Whether a page that begins after a name counts that name.
    pub(super) fn counts_the_offset(&self) -> bool {
        self.scheme == "az"
    }

    pub(super) fn transport(&self) -> Fact {
        match self.has_tls {
            true => Fact::fine("transport", "TLS"),
            false => Fact::warning(
                "transport",
                "no TLS",
                "whoever is on the network reads and changes what is stored: use an https endpoint",
            ),
        }
    }
}

fn invalid(uri: &Uri, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("{what} in {}", uri.shown()))
}

/// Whether a URL names this machine.
fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Refuses an endpoint that is none, or that sends in the clear over a network without the user's
/// word.
fn check_endpoint(uri: &Uri, endpoint: &str) -> Result<bool> {
    let is_plain = endpoint.starts_with("http://");
    let has_place = endpoint
        .split_once("://")
        .is_some_and(|(_, rest)| !rest.is_empty() && !rest.contains(['@', '?', '#']));
    if !(is_plain || endpoint.starts_with("https://")) || !has_place {
        return Err(invalid(uri, format_args!("the endpoint {:?}", shown(endpoint)))
            .advice("write it as a URL without credentials: endpoint=https://host:port"));
    }
    if is_plain && !is_loopback(endpoint) && !uri.flag("allow_http")? {
        return Err(invalid(
            uri,
            format_args!(
                "the endpoint {:?}, which is not on this machine and has no \
            TLS,",
                shown(endpoint)
            ),
        )
        .advice(
            "use https, or say allow_http=yes: whoever is on the network then reads and changes \
                what is stored",
        ));
    }
    Ok(!is_plain)
}

fn timeout(uri: &Uri) -> Result<Duration> {
    let Some(text) = uri.parameter("timeout_seconds") else {
        return Ok(Duration::from_secs(TIMEOUT_SECONDS));
    };
    match text.parse() {
        Ok(seconds @ 1..=TIMEOUT_SECONDS_MAX) => Ok(Duration::from_secs(seconds)),
        _ => Err(invalid(uri, format_args!("timeout_seconds={text}"))
            .expected(format!("timeout_seconds=30, or another number of seconds up to {TIMEOUT_SECONDS_MAX}"))
            .found(text)),
    }
}

/// Bucket and client of a URI.
pub(super) fn open(uri: &Uri) -> Result<(Bucket, Arc<dyn Client>)> {
    let scheme = match SCHEMES.into_iter().find(|scheme| *scheme == uri.scheme) {
        Some(scheme) => scheme,
        None => {
            return Err(invalid(
                uri,
                format_args!(
                    "the scheme \
                {:?}",
                    uri.scheme
                ),
            )
            .expected(SCHEMES.join(
                ", \
                ",
            )));
        }
    };
    uri.allow_parameters(match scheme {
        "s3" => &["endpoint", "region", "allow_http", "anonymous", "timeout_seconds"],
        "az" => &["account", "endpoint", "allow_http", "anonymous", "timeout_seconds"],
        _ => &["endpoint", "allow_http", "anonymous", "timeout_seconds"],
    })?;
    uri.flag("allow_http")?;
    let (bucket, prefix) = uri.rest.split_once('/').unwrap_or((&uri.rest, ""));
    let prefix = prefix.trim_end_matches('/');
    let proper = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if bucket.is_empty() || bucket.len() > 255 || !bucket.bytes().all(proper) {
        return Err(invalid(uri, "no bucket")
            .advice(format!("name it, and a prefix of the database's own: {scheme}://bucket/orders")));
    }
    if !prefix.is_empty() {
        ObjectName::new(prefix).map_err(|error| {
            invalid(uri, "a prefix that is no name").source(error).advice("use letters, digits and . _ - ~")
        })?;
    }
    let endpoint = uri.parameter("endpoint").map(|endpoint| endpoint.trim_end_matches('/').to_owned());
    let mut bucket = Bucket {
        scheme,
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        endpoint,
        account: uri.parameter("account").map(str::to_owned),
        has_tls: true,
    };
    wire::choose_tls();
    let client = match scheme {
        "s3" => open_s3(uri, &mut bucket)?,
        "az" => open_azure(uri, &mut bucket)?,
        _ => open_google(uri, &mut bucket)?,
    };
    Ok((bucket, client))
}

/// One attempt each: the caller decides what to try again, since it knows whether it may.
pub(super) fn no_retries() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: Duration::ZERO }
}

fn client_options(uri: &Uri, has_tls: bool) -> Result<ClientOptions> {
    Ok(ClientOptions::new()
        .with_timeout(timeout(uri)?)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .with_allow_http(!has_tls))
}

/// What a builder refuses: the account is not described well enough.
fn refused(uri: &Uri, error: &object_store::Error) -> Error {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    invalid(uri, format_args!("{cause},"))
        .advice("docs/bucket.md says how a store of the cloud is told its account and credentials")
}

fn open_s3(uri: &Uri, bucket: &mut Bucket) -> Result<Arc<dyn Client>> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(&bucket.bucket);
    if let Some(endpoint) = &bucket.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = uri.parameter("region") {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = builder.get_config_value(&AmazonS3ConfigKey::Endpoint) {
        bucket.has_tls = check_endpoint(uri, &endpoint)?;
    }
    let builder = builder
        .with_retry(no_retries())
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
        .with_disable_bulk_delete(true)
        .with_skip_signature(uri.flag("anonymous")?)
        .with_client_options(client_options(uri, bucket.has_tls)?)
        .with_http_connector(wire::Connector::default());
    Ok(Arc::new(builder.build().map_err(|error| refused(uri, &error))?))
}

fn open_azure(uri: &Uri, bucket: &mut Bucket) -> Result<Arc<dyn Client>> {
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(&bucket.bucket);
    if let Some(account) = &bucket.account {
        builder = builder.with_account(account);
    }
    if let Some(endpoint) = &bucket.endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    if let Some(endpoint) = builder.get_config_value(&AzureConfigKey::Endpoint) {
        bucket.has_tls = check_endpoint(uri, &endpoint)?;
    }
    let builder = builder
        .with_retry(no_retries())
        .with_skip_signature(uri.flag("anonymous")?)
        .with_client_options(client_options(uri, bucket.has_tls)?)
        .with_http_connector(wire::Connector::default());
    Ok(Arc::new(builder.build().map_err(|error| refused(uri, &error))?))
}

fn open_google(uri: &Uri, bucket: &mut Bucket) -> Result<Arc<dyn Client>> {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(&bucket.bucket);
    if let Some(endpoint) = &bucket.endpoint {
        bucket.has_tls = check_endpoint(uri, endpoint)?;
        builder = builder.with_base_url(endpoint);
    }
    let builder = builder
        .with_retry(no_retries())
        .with_skip_signature(uri.flag("anonymous")?)
        .with_client_options(client_options(uri, bucket.has_tls)?)
        .with_http_connector(wire::Connector::default());
    Ok(Arc::new(builder.build().map_err(|error| refused(uri, &error))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(uri: &str) -> Bucket {
        Bucket { has_tls: true, ..open(&Uri::parse(uri).expect("a URI")).expect(uri).0 }
    }

    #[test]
    fn names_are_keys_under_the_prefix_and_back() {
        for (uri, key) in [
            ("s3://b/p/q?region=r", "p/q/a/b"),
            ("s3://b?region=r", "a/b"),
            ("s3://b/", "a/b"),
            ("s3://b/p/", "p/a/b"),
        ] {
            let bucket = bucket(uri);
            assert_eq!(bucket.key_text("a/b"), key, "{uri}");
            assert_eq!(bucket.name(key), Some("a/b"), "{uri}");
        }
        assert_eq!(bucket("s3://b/p").name("pq/a"), None);
        assert_eq!(bucket("s3://b/p").name("p"), None);
        assert_eq!(bucket("s3://b/p/").describe(), "s3://b/p");
        assert_eq!(
            bucket("s3://b/p?endpoint=http://127.0.0.1:7/&region=r").describe(),
            "s3://b/p?endpoint=http://127.0.0.1:7"
        );
    }

    #[test]
    fn loopback_is_this_machine() {
        for here in ["http://127.0.0.1:7070", "http://localhost", "http://[::1]:9/x", "http://127.9.9.9/"] {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in [
            "http://10.0.0.1",
            "http://localhost.example.com",
            "http://[2001:db8::1]",
            "http://127.0.0.1.example.com",
            "http://",
        ] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn mistakes_are_named_and_answered() {
        for (uri, said) in [
            ("s3://", "bucket/orders"),
            ("s3:///x", "bucket/orders"),
            ("s3://b/x//y", "a prefix that is no name"),
            ("s3://b/x?endpoint=http://10.0.0.1", "allow_http=yes"),
            ("s3://b/x?endpoint=ftp://h", "endpoint=https://host:port"),
            ("s3://b/x?endpoint=https://user:secret@h", "without credentials"),
            ("s3://b/x?endpoint=https://", "endpoint=https://host:port"),
            ("s3://b/x?timeout_seconds=0", "timeout_seconds=30"),
            ("s3://b/x?allow_http=maybe", "allow_http=yes or allow_http=no"),
            ("s3://b/x?account=a", "unknown parameter"),
            ("gs://b/x?region=r", "unknown parameter"),
        ] {
            let error = open(&Uri::parse(uri).expect("a URI")).map(|(bucket, _)| bucket).expect_err(uri);
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(said), "{uri}: {error}");
        }
    }
}
