//! URIs to stores: `file:///data/orders`, `mem://orders`; one call registers further schemes.
//!
//! Every command and the engine name stores by URI only, so that a new backend needs no change
//! above this module. A URI is `scheme://rest?name=value&…`; bytes that are not plain in a URI are
//! written `%XX`.
//!
//! Invariant: whoever opens a URI learns about every mistake in it before anything is touched.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::Env;

use crate::backend::memory::{self, MemoryStores};
use crate::layer::flow::FlowObjectStore;
use crate::layer::hedge::HedgeObjectStore;
use crate::layer::meter::MeterObjectStore;
use crate::layer::retry::{RetryObjectStore, RetryPolicy};
use crate::layer::throttle::{LATENCY_MAX, Latency, Throttle, ThrottleObjectStore};
use crate::layer::trace::{JsonLines, RING_EVENTS_DEFAULT, TraceLogStore, TraceObjectStore, Tracer};
use crate::location::StoreLocation;
use crate::{Error, ErrorKind, LogStore, ObjectStore, Result};

#[cfg(test)]
mod tests;

/// Parameters that every scheme takes.
const TRACE_PARAMETER: &str = "trace";
const RETRY_PARAMETER: &str = "retry_seconds";
const BYTES_PARAMETER: &str = "bytes_per_second";
const REQUESTS_PARAMETER: &str = "requests_per_second";
const LATENCY_MS_PARAMETER: &str = "latency_ms";
const LATENCY_PARAMETER: &str = "latency";
/// As messages list them.
const PARAMETERS_OF_ALL: &str =
    "trace, retry_seconds, bytes_per_second, requests_per_second, latency_ms and latency";

/// How long requests to a remote store are made again when they fail in passing.
pub const REMOTE_RETRY_TIME_MAX: Duration = Duration::from_secs(30);

/// The longest that a request may be told to wait for a store: a day.
const RETRY_SECONDS_MAX: u64 = 86_400;

/// Most bytes of a URI.
pub const URI_BYTES_MAX: usize = 4096;

/// A checked URI: `scheme://rest?name=value&…`, its parts decoded. Printed, it is whole; for
/// messages there is [`Uri::shown`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uri {
    /// Before `://`, in lower case.
    pub scheme: String,
    /// Between `://` and `?`.
    pub rest: String,
    /// Parameters by name.
    pub parameters: BTreeMap<String, String>,
}

/// Parameters of the schemes of this crate, whose values are shown in messages: whatever else is
/// given may be a key that does not belong there.
const SHOWN_PARAMETERS: [&str; 16] = [
    TRACE_PARAMETER,
    RETRY_PARAMETER,
    BYTES_PARAMETER,
    REQUESTS_PARAMETER,
    LATENCY_MS_PARAMETER,
    LATENCY_PARAMETER,
    "account",
    "allow_http",
    "anonymous",
    "form",
    "io",
    "region",
    "replication",
    "single_host",
    "timeout_seconds",
    "user",
];

fn invalid(text: &str, what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("{what} in the URI {:?}", shown(text)))
}

/// A URI, or what should be one, for messages: without values of parameters that may be secret, and
/// without a name and password before a host.
pub(crate) fn shown(text: &str) -> String {
    let (place, query) = text.split_once('?').map_or((text, None), |(place, query)| (place, Some(query)));
    let (scheme, rest) =
        place.split_once("://").map_or(("", place), |(_, rest)| place.split_at(place.len() - rest.len()));
    // Keys have slashes in them; paths begin with one.
    let rest = match rest.rsplit_once('@').filter(|_| !rest.starts_with('/')) {
        Some((_, rest)) => format!("{HIDDEN}@{rest}"),
        None => rest.to_owned(),
    };
    let pairs = query.into_iter().flat_map(|query| query.split('&')).map(|pair| match pair.split_once('=') {
        Some((name, _)) if SHOWN_PARAMETERS.contains(&name) => pair.to_owned(),
        Some(("endpoint", url)) if !url.contains('%') => format!("endpoint={}", shown(url)),
        Some((name, _)) => format!("{name}={HIDDEN}"),
        None => HIDDEN.to_owned(),
    });
    let pairs = pairs.collect::<Vec<_>>().join("&");
    format!("{scheme}{rest}{}{pairs}", if query.is_some() { "?" } else { "" })
}

/// Stands for what is not shown.
const HIDDEN: &str = "…";

fn decode(text: &str, part: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) if digit(*high).is_some() && digit(*low).is_some() => {
                bytes.push(digit(*high).unwrap_or(0) << 4 | digit(*low).unwrap_or(0));
                rest = tail;
            }
            (b'%', _) => {
                return Err(
                    invalid(text, "a % without two hexadecimal digits").advice("write a % itself as %25")
                );
            }
            (byte, tail) => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    let decoded = String::from_utf8(bytes).map_err(|_| invalid(text, "bytes that are not UTF-8"))?;
    if decoded.chars().any(char::is_control) {
        return Err(invalid(text, "a control character"));
    }
    Ok(decoded)
}

fn encode(part: &str, also_plain: &[u8], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || also_plain.contains(&byte) {
            write!(formatter, "{}", char::from(byte))?;
        } else {
            write!(formatter, "%{byte:02X}")?;
        }
    }
    Ok(())
}

impl Uri {
    /// Takes a URI apart.
    ///
    /// ```
    /// let uri = tombolo_storage::Uri::parse("file:///data/my%20orders?form=written")?;
    /// assert_eq!(uri.rest, "/data/my orders");
    /// assert_eq!(uri.parameter("form"), Some("written"));
    /// # Ok::<(), tombolo_storage::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid`, saying what is wrong and how to write it.
    pub fn parse(text: &str) -> Result<Uri> {
        if text.len() > URI_BYTES_MAX {
            let message = format!("a URI of {} bytes; {URI_BYTES_MAX} are the most", text.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            let advice = if text.starts_with('/') {
                format!(
                    "for a directory of this host write {}",
                    Uri::from_path(text).map_or_else(|_| Uri::teach(), |uri| uri.to_string(),)
                )
            } else {
                Uri::teach()
            };
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{:?} is no URI: it has no scheme://", shown(text)),
            )
            .advice(advice));
        };
        let proper = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if !proper {
            return Err(invalid(text, "no scheme before ://").advice(Uri::teach()));
        }
        if rest.contains('#') {
            return Err(invalid(text, "a #").advice("write a # itself as %23"));
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let mut parameters = BTreeMap::new();
        for pair in query.into_iter().flat_map(|query| query.split('&')) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(invalid(text, "a parameter without =")
                    .advice("write parameters as name=value, joined by &"));
            };
            let name = decode(text, name)?;
            if name.is_empty() {
                return Err(invalid(text, "a parameter without a name")
                    .advice("write parameters as name=value, joined by &"));
            }
            if parameters.insert(name.clone(), decode(text, value)?).is_some() {
                return Err(invalid(text, format_args!("the parameter {name:?} twice")));
            }
        }
        Ok(Uri { scheme: scheme.to_ascii_lowercase(), rest: decode(text, rest)?, parameters })
    }

    /// The `file://` URI of a directory of this host, whatever characters its name has. A relative
    /// path is taken from the working directory.
    ///
    /// ```
    /// let uri = tombolo_storage::Uri::from_path("/data/100% of #orders?")?;
    /// assert_eq!(uri.to_string(), "file:///data/100%25%20of%20%23orders%3F");
    /// # Ok::<(), tombolo_storage::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for an empty path, one with `..` in it, and one that no URI can name: not UTF-8,
    /// with a control character, or too long.
    pub fn from_path(path: impl AsRef<Path>) -> Result<Uri> {
        let path = path.as_ref();
        let invalid = |what: &str| Error::new(ErrorKind::Invalid, format!("the path {path:?} {what}"));
        let absolute = std::path::absolute(path)
            .map_err(|error| invalid(&format!("is not to be made absolute: {error}")))?;
        let Some(rest) = absolute.to_str() else {
            return Err(invalid("is not UTF-8").advice("name a directory whose path is UTF-8"));
        };
        let uri = Uri { scheme: "file".into(), rest: rest.to_owned(), parameters: BTreeMap::new() };
        uri.path()?;
        // Read as it will be read later, which has limits of its own.
        Uri::parse(&uri.to_string())
    }

    fn teach() -> String {
        "write for example file:///data/orders, s3://bucket/orders or mem://orders".into()
    }

    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Reads a parameter that is `yes` or `no`; absent is `no`.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn flag(&self, name: &str) -> Result<bool> {
        match self.parameter(name) {
            None | Some("no") => Ok(false),
            Some("yes") => Ok(true),
            Some(other) => Err(Error::new(
                ErrorKind::Invalid,
                format!("the parameter {name}={other} of {}", self.shown()),
            )
            .expected(format!("{name}=yes or {name}=no"))
            .found(other)),
        }
    }

    /// Reads a parameter that is one of `choices`; absent is `None`.
    ///
    /// # Errors
    /// `Invalid`, listing the choices.
    pub fn choice<'a>(&'a self, name: &str, choices: &[&str]) -> Result<Option<&'a str>> {
        match self.parameter(name) {
            Some(value) if !choices.contains(&value) => Err(Error::new(
                ErrorKind::Invalid,
                format!("the parameter {name}={value} of {}", self.shown()),
            )
            .expected(format!("{name}={}", choices.join(&format!(" or {name}="))))
            .found(value)),
            value => Ok(value),
        }
    }

    /// Checks that every parameter is among `allowed`.
    ///
    /// # Errors
    /// `Invalid`, naming the unknown one and listing the allowed ones.
    pub fn allow_parameters(&self, allowed: &[&str]) -> Result<()> {
        for name in self.parameters.keys() {
            if !allowed.contains(&name.as_str()) {
                let advice = match allowed {
                    [] => format!("{}:// takes no parameters but {PARAMETERS_OF_ALL}", self.scheme),
                    _ => format!(
                        "{}:// takes the parameters {}, and {PARAMETERS_OF_ALL}",
                        self.scheme,
                        allowed.join(", ")
                    ),
                };
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("the unknown parameter {name:?} of {}", self.shown()),
                )
                .advice(advice));
            }
        }
        Ok(())
    }

    /// The URI for messages: values of parameters that may be secret, and what stands before an `@`
    /// of its host, are left out.
    pub fn shown(&self) -> String {
        shown(&self.to_string())
    }

    /// The URI without a parameter, and the parameter's value.
    fn without(&self, name: &str) -> (Uri, Option<String>) {
        let mut rest = self.clone();
        let value = rest.parameters.remove(name);
        (rest, value)
    }

    /// The absolute path that a `file://` URI names.
    ///
    /// # Errors
    /// `Invalid` for a host, a relative path, or one with `..` in it.
    pub fn path(&self) -> Result<PathBuf> {
        if !self.rest.starts_with('/') {
            let message = format!("a relative path in {}", self.shown());
            return Err(Error::new(ErrorKind::Invalid, message)
                .advice("name a directory from the root, with three slashes: file:///data/orders"));
        }
        if self.rest.split('/').any(|segment| segment == "..") {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("the path of {} goes up with ..", self.shown()),
            )
            .advice("write the path that is meant"));
        }
        // Joined anew, so that two spellings of one directory are one identity.
        let segments = self.rest.split('/').filter(|segment| !segment.is_empty() && *segment != ".");
        Ok(segments.fold(PathBuf::from("/"), |path, segment| path.join(segment)))
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://", self.scheme)?;
        encode(&self.rest, b"/:,@+=[]", formatter)?;
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            formatter.write_str(if index == 0 { "?" } else { "&" })?;
            encode(name, b"", formatter)?;
            formatter.write_str("=")?;
            encode(value, b"/:,@+", formatter)?;
        }
        Ok(())
    }
}

impl From<Uri> for String {
    fn from(uri: Uri) -> String {
        uri.to_string()
    }
}

impl std::str::FromStr for Uri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Uri> {
        Uri::parse(text)
    }
}

/// Makes an object store.
pub type ObjectStoreFactory = Arc<dyn Fn(&Env, &Uri) -> Result<Arc<dyn ObjectStore>> + Send + Sync>;
/// Makes a log store; gets the paired object store.
pub type LogStoreFactory =
    Arc<dyn Fn(&Env, &Uri, &Arc<dyn ObjectStore>) -> Result<Arc<dyn LogStore>> + Send + Sync>;

/// An object store's factory, and how long its requests are made again when the URI does not say.
#[derive(Clone)]
struct Scheme {
    factory: ObjectStoreFactory,
    /// `None`: it is of this host, and its errors do not pass by themselves.
    time_max: Option<Duration>,
}

impl Scheme {
    fn is_remote(&self) -> bool {
        self.time_max.is_some()
    }
}

/// Schemes and their factories. Cheap to clone; clones made before a registration do not see it.
#[derive(Clone)]
pub struct Registry {
    object_stores: BTreeMap<String, Scheme>,
    log_stores: BTreeMap<String, LogStoreFactory>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::with_defaults()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Registry")
            .field("object_stores", &self.object_stores.keys().collect::<Vec<_>>())
            .field("log_stores", &self.log_stores.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl Registry {
    /// Knows no scheme.
    pub fn empty() -> Registry {
        Registry { object_stores: BTreeMap::new(), log_stores: BTreeMap::new() }
    }

    /// Knows `file` and `mem`, and `objects`, which keeps a log as objects of the database's own
    /// store; with the cargo feature `cloud` also `s3`, `gs` and `az`, with the feature `hdfs` also
    /// `hdfs`.
    ///
    /// In the real world all such registries of a process see the same `mem://` stores; in a
    /// simulated world, where many worlds share a process, only clones of one registry do: keep it
    /// across simulated restarts if `mem://` is to outlive them.
    pub fn with_defaults() -> Registry {
        let mut registry = Registry::empty();
        let own = Arc::new(MemoryStores::default());
        let own_for_logs = Arc::clone(&own);
        let stores = |env: &Env, own: &Arc<MemoryStores>| {
            if env.is_simulated() { Arc::clone(own) } else { MemoryStores::of_process() }
        };
        registry.register_object_store(
            "mem",
            Arc::new(move |env, uri| memory::open_object_store(env, uri, &stores(env, &own))),
        );
        registry.register_log_store(
            "mem",
            Arc::new(move |env, uri, _| memory::open_log_store(env, uri, &stores(env, &own_for_logs))),
        );
        crate::backend::local::register(&mut registry);
        crate::backend::local_log::register(&mut registry);
        crate::backend::object_log::register(&mut registry);
        #[cfg(feature = "cloud")]
        crate::backend::cloud::register(&mut registry);
        #[cfg(feature = "hdfs")]
        crate::backend::hdfs::register(&mut registry);
        registry
    }

    /// Adds or replaces the object stores of a scheme.
    pub fn register_object_store(&mut self, scheme: &str, factory: ObjectStoreFactory) {
        self.object_stores.insert(scheme.to_ascii_lowercase(), Scheme { factory, time_max: None });
    }

    /// As [`Registry::register_object_store`], of stores behind a network, where a request that
    /// fails in passing is nothing special: it is made again for [`REMOTE_RETRY_TIME_MAX`], unless
    /// the URI says otherwise.
    pub fn register_remote_object_store(&mut self, scheme: &str, factory: ObjectStoreFactory) {
        self.object_stores
            .insert(scheme.to_ascii_lowercase(), Scheme { factory, time_max: Some(REMOTE_RETRY_TIME_MAX) });
    }

    /// Adds or replaces the log stores of a scheme.
    pub fn register_log_store(&mut self, scheme: &str, factory: LogStoreFactory) {
        self.log_stores.insert(scheme.to_ascii_lowercase(), factory);
    }

    /// Schemes of object stores, in order.
    pub fn object_store_schemes(&self) -> Vec<&str> {
        self.object_stores.keys().map(String::as_str).collect()
    }

    /// Schemes of log stores, in order.
    pub fn log_store_schemes(&self) -> Vec<&str> {
        self.log_stores.keys().map(String::as_str).collect()
    }

    /// Opens the object store that `uri` names. Creates nothing that a later mistake would leave
    /// behind.
    ///
    /// Every scheme takes the parameter `trace=/directory`: each request is then written as a line
    /// of JSON to a new file there (see [`crate::layer::trace`]); and `retry_seconds=n`: requests
    /// that fail in passing are made again for so long, instead of ending with the first `Retry`
    /// (see [`crate::layer::retry`]); and `bytes_per_second=n`, `requests_per_second=n`,
    /// `latency_ms=n` or `latency=s3`: objects' requests are slower than they could be (see
    /// [`crate::layer::throttle`]).
    ///
    /// Requests to remote stores go through [`crate::layer::flow`] and [`crate::layer::hedge`],
    /// those to stores with a latency as well; requests to files of this host never.
    ///
    /// # Errors
    /// `Invalid` for an unknown scheme or parameter, listing the known ones; what the store says
    /// otherwise.
    pub fn open_object_store(&self, env: &Env, uri: &Uri) -> Result<Arc<dyn ObjectStore>> {
        let location = StoreLocation::new(env, self, uri);
        let (uri, trace) = uri.without(TRACE_PARAMETER);
        let (uri, retry) = uri.without(RETRY_PARAMETER);
        let time_max = retry.map(|seconds| retry_seconds(&seconds)).transpose()?;
        let (uri, throttle) = throttle(&uri)?;
        let (store, is_remote, time_max) = match self.object_stores.get(&uri.scheme) {
            Some(scheme) => {
                let store = MeterObjectStore::wrap_at((scheme.factory)(env, &uri)?, location);
                (store, scheme.is_remote(), time_max.or(scheme.time_max))
            }
            None => return Err(unknown_scheme(&uri, "object store", &self.object_store_schemes())),
        };
        // One that is given a latency stands for a remote one.
        let is_remote = is_remote || throttle.is_some_and(|throttle| throttle.latency != Latency::default());
        let store: Arc<dyn ObjectStore> = match throttle {
            Some(throttle) => Arc::new(ThrottleObjectStore::new(env, store, throttle)),
            None => store,
        };
        // The trace lies below what tries again: it shows each attempt.
        let store: Arc<dyn ObjectStore> = match trace {
            Some(directory) => Arc::new(TraceObjectStore::new(store, tracer(env, &directory, "objects")?)),
            None => store,
        };
        let store: Arc<dyn ObjectStore> = if is_remote {
            Arc::new(FlowObjectStore::new(env, Arc::new(HedgeObjectStore::new(env, store))))
        } else {
            store
        };
        Ok(match time_max {
            Some(time_max) => Arc::new(RetryObjectStore::new(
                env,
                store,
                RetryPolicy { time_max, ..RetryPolicy::default() },
            )),
            None => store,
        })
    }

    /// Opens the log store that `log` names; with `None`, the own log of the store that `store`
    /// names.
    ///
    /// # Errors
    /// As [`Registry::open_object_store`].
    pub fn open_log_store(
        &self,
        env: &Env,
        store: &Uri,
        log: Option<&Uri>,
        objects: &Arc<dyn ObjectStore>,
    ) -> Result<Arc<dyn LogStore>> {
        let (uri, trace) = log.unwrap_or(store).without(TRACE_PARAMETER);
        // A log does not wait: who appends holds the commit section.
        let (uri, retry) = uri.without(RETRY_PARAMETER);
        let (uri, throttled) = throttle(&uri)?;
        let misplaced = retry.map(|_| RETRY_PARAMETER).or(throttled.map(|_| "for a slower store"));
        if let Some(misplaced) = misplaced.filter(|_| log.is_some()) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("the parameter {misplaced} of the log {}", uri.shown()),
            )
            .advice("give it to the store: only requests for objects are made again, or slowed"));
        }
        let store = match self.log_stores.get(&uri.scheme) {
            Some(factory) => factory(env, &uri, objects)?,
            None if log.is_none() => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("{} has no log of its own", uri.shown()),
                )
                .advice(format!("name one: known log schemes are {}", self.log_store_schemes().join(", "))));
            }
            None => return Err(unknown_scheme(&uri, "log", &self.log_store_schemes())),
        };
        Ok(match trace {
            Some(directory) => Arc::new(TraceLogStore::new(store, tracer(env, &directory, "log")?)),
            None => store,
        })
    }
}

fn retry_seconds(text: &str) -> Result<Duration> {
    match text.parse() {
        Ok(seconds @ 1..=RETRY_SECONDS_MAX) => Ok(Duration::from_secs(seconds)),
        _ => Err(Error::new(ErrorKind::Invalid, format!("the parameter {RETRY_PARAMETER}={text}"))
            .expected(format!(
                "{RETRY_PARAMETER}=120, or another number of seconds up to {RETRY_SECONDS_MAX}"
            ))
            .found(text)),
    }
}

/// What the parameters for a slower store say, and the URI without them.
fn throttle(uri: &Uri) -> Result<(Uri, Option<Throttle>)> {
    let (uri, bytes) = uri.without(BYTES_PARAMETER);
    let (uri, requests) = uri.without(REQUESTS_PARAMETER);
    let (uri, latency_ms) = uri.without(LATENCY_MS_PARAMETER);
    let (uri, latency) = uri.without(LATENCY_PARAMETER);
    let number =
        |name: &str, text: &Option<String>, max: u64| match text.as_ref().map(|text| (text, text.parse())) {
            None => Ok(0),
            Some((_, Ok(number))) if (1..=max).contains(&number) => Ok(number),
            Some((text, _)) => Err(Error::new(ErrorKind::Invalid, format!("the parameter {name}={text}"))
                .expected(format!("a number from 1 to {max}"))
                .found(text)),
        };
    let throttle = Throttle {
        bytes_per_second: number(BYTES_PARAMETER, &bytes, u64::MAX)?,
        requests_per_second: number(REQUESTS_PARAMETER, &requests, u64::MAX)?,
        latency: match (latency, &latency_ms) {
            (Some(_), Some(_)) => {
                let message = format!(
                    "both parameters {LATENCY_MS_PARAMETER} and {LATENCY_PARAMETER} of {}",
                    uri.shown()
                );
                return Err(Error::new(ErrorKind::Invalid, message).advice("give one of them"));
            }
            (Some(latency), None) => Latency::parse(&latency)?,
            (None, _) => {
                let max = u64::try_from(LATENCY_MAX.as_millis()).unwrap_or(u64::MAX);
                Latency::fixed(Duration::from_millis(number(LATENCY_MS_PARAMETER, &latency_ms, max)?))
            }
        },
    };
    Ok((uri, (throttle != Throttle::default()).then_some(throttle)))
}

/// A tracer that writes to a new file of a directory.
fn tracer(env: &Env, directory: &str, what: &str) -> Result<Tracer> {
    if !directory.starts_with('/') {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("the relative path {directory:?} of the parameter trace"),
        )
        .advice("name a directory from the root: trace=/tmp/traces"));
    }
    let path = Path::new(directory).join(format!(
        "{what}-{}-{:08x}.jsonl",
        env.unix_time().as_secs(),
        env.random_u64() >> 32
    ));
    env.files()
        .create_directories(Path::new(directory))
        .map_err(|error| Error::io(error, "making a directory for traces", directory))?;
    Ok(Tracer::with_sink(env, RING_EVENTS_DEFAULT, Some(JsonLines::open(env, path)?.sink())))
}

fn unknown_scheme(uri: &Uri, what: &str, known: &[&str]) -> Error {
    let advice = match &*uri.scheme {
        "s3" | "gs" | "az" if !cfg!(feature = "cloud") => {
            "this program was built without the stores of the cloud: cargo build --features cloud".into()
        }
        "hdfs" if !cfg!(feature = "hdfs") => {
            "this program was built without HDFS: cargo build --features hdfs".into()
        }
        _ => Uri::teach(),
    };
    Error::new(ErrorKind::Invalid, format!("unknown {what} scheme {:?} in {}", uri.scheme, uri.shown()))
        .expected(if known.is_empty() { "no scheme: none is registered".into() } else { known.join(", ") })
        .found(&uri.scheme)
        .advice(advice)
}
