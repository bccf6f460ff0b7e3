//! URIs to directories of HDFS: which cluster, as whom, and under which path.
//!
//! | parameter | says |
//! |---|---|
//! | `user=name` | who asks, where the cluster takes one's word for it; otherwise HADOOP_USER_NAME, or this process's user |
//! | `replication=3` | how many DataNodes keep each block; otherwise the cluster's default |
//! | `timeout_seconds=30` | how long one request may take |
//!
//! `hdfs://host:port/path` names a NameNode, `hdfs://name/path` a name service of the Hadoop
//! configuration that HADOOP_CONF_DIR (or HADOOP_HOME) names.

use std::time::Duration;

use super::client::Settings;
use crate::{Error, ErrorKind, Result, Uri};

const TIMEOUT_SECONDS: u64 = 30;
const TIMEOUT_SECONDS_MAX: u64 = 3600;

/// What HDFS allows.
const REPLICATION_MAX: u32 = 512;

/// Of a host, or of a user.
const NAME_BYTES_MAX: usize = 255;

/// What HDFS allows of one part of a path, unless it is told otherwise.
const SEGMENT_BYTES_MAX: usize = 255;

/// How long the client waits before it asks all NameNodes of a name service once more, and how
/// often it does: trying again for longer is ours.
const ROUNDS: [(&str, &str); 3] = [
    ("dfs.client.failover.max.attempts", "3"),
    ("dfs.client.failover.sleep.base.millis", "100"),
    ("dfs.client.failover.sleep.max.millis", "1000"),
];

/// Where a store's objects lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Host and port, or a name service.
    authority: String,
    /// From the root, without a `/` at its end; never the root itself.
    path: String,
}

impl Place {
    /// The store, as a person would name it; the same however it is spelled.
    pub(super) fn describe(&self) -> String {
        format!("hdfs://{}{}", self.authority, self.path)
    }

    /// The directory of all objects.
    pub(super) fn root(&self) -> &str {
        &self.path
    }

    /// The path of an object, or of a directory of some.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// An object, for messages.
    pub(super) fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.describe())
    }
}

fn invalid(uri: &Uri, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("{what} in {}", uri.shown()))
}

fn number<T: TryFrom<u64> + std::fmt::Display>(
    uri: &Uri,
    name: &str,
    example: u64,
    max: u64,
) -> Result<Option<T>> {
    let Some(text) = uri.parameter(name) else { return Ok(None) };
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=max).contains(number))
        .and_then(|number| T::try_from(number).ok());
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(invalid(uri, format_args!("{name}={text}"))
            .expected(format!("{name}={example}, or another number up to {max}"))
            .found(text)),
    }
}

/// The host, and the port if there is one.
fn split_authority(uri: &Uri, authority: &str) -> Result<Option<u16>> {
    let teach = "write hdfs://host:8020/orders, or hdfs://name/orders with a name service of the Hadoop \
        configuration";
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<core::net::Ipv6Addr>().is_ok() => {
            (address, port.strip_prefix(':'))
        }
        Some(_) => return Err(invalid(uri, format_args!("the address {authority:?}")).advice(teach)),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let proper = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if host.is_empty() || host.len() > NAME_BYTES_MAX || !host.bytes().all(proper) {
        return Err(invalid(uri, format_args!("the host {host:?}")).advice(teach));
    }
    match port.map(str::parse) {
        None => Ok(None),
        Some(Ok(port @ 1..)) => Ok(Some(port)),
        Some(_) => Err(invalid(uri, format_args!("the port {:?}", port.unwrap_or_default())).advice(teach)),
    }
}

/// The path, in its one spelling.
fn path_of(uri: &Uri, path: &str) -> Result<String> {
    let mut clean = String::new();
    for segment in path.split('/').filter(|segment| !segment.is_empty() && *segment != ".") {
        if segment == ".."
            || segment == ".reserved"
            || segment == ".snapshot"
            || segment.contains(':')
            || segment.len() > SEGMENT_BYTES_MAX
        {
            return Err(invalid(uri, format_args!("{segment:?}, which no directory may be called,")).advice(
                format!(
                    "write the path that is meant, of parts without a colon and of at most \
                    {SEGMENT_BYTES_MAX} bytes"
                ),
            ));
        }
        clean.push('/');
        clean.push_str(segment);
    }
    match clean.is_empty() {
        true => {
            Err(invalid(uri, "no directory")
                .advice("name one of the database's own: hdfs://host:8020/orders"))
        }
        false => Ok(clean),
    }
}

/// Place and settings of a URI. Sends nothing.
///
/// # Errors
/// `Invalid` for whatever is wrong with it.
pub(super) fn open(uri: &Uri) -> Result<(Place, Settings)> {
    uri.allow_parameters(&["user", "replication", "timeout_seconds"])?;
    let (authority, path) = uri.rest.split_once('/').unwrap_or((&uri.rest, ""));
    let port = split_authority(uri, authority)?;
    // Hosts are the same in any case; name services are keys of a configuration.
    let authority = if port.is_some() { authority.to_ascii_lowercase() } else { authority.to_owned() };
    let place = Place { authority, path: path_of(uri, path)? };
    let user = uri.parameter("user");
    let proper = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@/".contains(&byte);
    if let Some(user) =
        user.filter(|user| user.is_empty() || user.len() > NAME_BYTES_MAX || !user.bytes().all(proper))
    {
        return Err(
            invalid(uri, format_args!("the user {user:?}")).advice("name a user of the cluster: user=orders")
        );
    }
    let timeout =
        number(uri, "timeout_seconds", TIMEOUT_SECONDS, TIMEOUT_SECONDS_MAX)?.unwrap_or(TIMEOUT_SECONDS);
    let mut configuration: Vec<(String, String)> =
        ROUNDS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    configuration.push(("dfs.client.socket-timeout".into(), (timeout * 1000).to_string()));
    match port {
        // One NameNode: the caller that tries again knows better when.
        Some(_) => configuration.push(("dfs.client.failover.max.attempts".into(), "0".into())),
        // Never an observer, which shows what was: a list must show every creation that returned
        // before it began, also those of others.
        None => configuration.push((
            format!("dfs.client.failover.proxy.provider.{}", place.authority),
            "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider".into(),
        )),
    }
    let settings = Settings {
        url: format!("hdfs://{}", place.authority),
        configuration,
        user: user.map(str::to_owned),
        replication: number(uri, "replication", 3, REPLICATION_MAX.into())?,
        timeout: Duration::from_secs(timeout),
    };
    Ok((place, settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(uri: &str) -> (Place, Settings) {
        open(&Uri::parse(uri).expect("a URI")).expect(uri)
    }

    fn configured(settings: &Settings, name: &str) -> Option<String> {
        settings.configuration.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn names_are_paths_below_the_directory() {
        for uri in [
            "hdfs://nn:8020/data/orders",
            "hdfs://NN:8020//data/./orders/",
            "hdfs://nn:8020/data/orders?user=u&replication=2",
        ] {
            let (place, _) = opened(uri);
            assert_eq!(place.describe(), "hdfs://nn:8020/data/orders", "{uri}");
            assert_eq!((place.root(), &*place.path("a/b")), ("/data/orders", "/data/orders/a/b"));
            assert_eq!(place.shown("a"), "hdfs://nn:8020/data/orders/a");
        }
        assert_eq!(opened("hdfs://[::1]:8020/x").0.describe(), "hdfs://[::1]:8020/x");
    }

    #[test]
    fn what_the_uri_says_reaches_the_client() {
        let (_, settings) = opened("hdfs://nn:8020/x?user=u&replication=2&timeout_seconds=7");
        assert_eq!(
            (settings.user.as_deref(), settings.replication, settings.timeout),
            (Some("u"), Some(2), Duration::from_secs(7))
        );
        assert_eq!(settings.url, "hdfs://nn:8020");
        assert_eq!(configured(&settings, "dfs.client.socket-timeout").as_deref(), Some("7000"));
        assert_eq!(configured(&settings, "dfs.client.failover.max.attempts").as_deref(), Some("0"));
        let (_, service) = opened("hdfs://Cluster/x");
        assert_eq!(configured(&service, "dfs.client.failover.max.attempts").as_deref(), Some("3"));
        let provider =
            configured(&service, "dfs.client.failover.proxy.provider.Cluster").expect("a provider");
        assert!(provider.ends_with(".ConfiguredFailoverProxyProvider"), "observers are asked: {provider}");
        assert_eq!(
            (service.user, service.replication, service.timeout),
            (None, None, Duration::from_secs(TIMEOUT_SECONDS))
        );
    }

    #[test]
    fn mistakes_are_named_and_answered() {
        let long = format!("hdfs://nn:1/{}", "x".repeat(SEGMENT_BYTES_MAX + 1));
        for (uri, said) in [
            ("hdfs://", "hdfs://host:8020/orders"),
            ("hdfs:///x", "hdfs://host:8020/orders"),
            ("hdfs://nn:8020", "no directory"),
            ("hdfs://nn:8020/", "no directory"),
            ("hdfs://nn:8020/./", "no directory"),
            ("hdfs://nn:0/x", "the port"),
            ("hdfs://nn:99999/x", "the port"),
            ("hdfs://nn:/x", "the port"),
            ("hdfs://a@nn:1/x", "the host"),
            ("hdfs://[::x]:1/x", "the address"),
            ("hdfs://nn:1/a/../b", "no directory may be called"),
            ("hdfs://nn:1/.reserved/x", "no directory may be called"),
            ("hdfs://nn:1/x/.snapshot", "no directory may be called"),
            ("hdfs://nn:1/a:b", "no directory may be called"),
            (&*long, "no directory may be called"),
            ("hdfs://nn:1/x?replication=0", "replication=3"),
            ("hdfs://nn:1/x?replication=513", "up to 512"),
            ("hdfs://nn:1/x?timeout_seconds=x", "timeout_seconds=30"),
            ("hdfs://nn:1/x?user=", "the user"),
            ("hdfs://nn:1/x?user=a b", "the user"),
            ("hdfs://nn:1/x?endpoint=y", "unknown parameter"),
        ] {
            let error = Uri::parse(uri).and_then(|uri| open(&uri)).map(|(place, _)| place).expect_err(uri);
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(said), "{uri}: {error}");
        }
    }
}
