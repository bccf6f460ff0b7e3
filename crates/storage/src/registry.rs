//! URIs to stores: `file:///data/orders`, `mem://orders`; one call registers further schemes.
//!
//! Every command and the engine name stores by URI only, so that a new backend needs no change
//! above this module.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tombolo_env::Env;

use crate::layer::flow::FlowObjectStore;
use crate::layer::hedge::HedgeObjectStore;
use crate::layer::meter::MeterObjectStore;
use crate::layer::retry::{RetryObjectStore, RetryPolicy};
use crate::layer::throttle::{LATENCY_MAX, Latency, Throttle, ThrottleObjectStore};
use crate::layer::trace::{JsonLines, RING_EVENTS_DEFAULT, TraceLogStore, TraceObjectStore, Tracer};
use crate::object::location::StoreLocation;
use crate::size::{SIZE_WANTED, parse_size};
use crate::uri::{
    BYTES_PARAMETER, LATENCY_MS_PARAMETER, LATENCY_PARAMETER, REQUESTS_PARAMETER, RETRY_PARAMETER,
    TRACE_PARAMETER, Uri,
};
use crate::{Error, ErrorKind, LogStore, ObjectStore, Result};

#[cfg(test)]
mod tests;

/// How long requests to a remote store are made again when they fail in passing.
pub const REMOTE_RETRY_TIME_MAX: Duration = Duration::from_secs(30);

/// The longest that a request may be told to wait for a store: a day.
const RETRY_SECONDS_MAX: u64 = 86_400;

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
        let registry = self.clone();
        let open = Arc::new(move |env: &Env, uri: &Uri| registry.open_object_store(env, uri));
        let location = StoreLocation::new(env, uri, open);
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
    let number = |name: &str, text: &Option<String>, max: u64| {
        let Some(text) = text else { return Ok(0) };
        let (read, wanted) = match name {
            BYTES_PARAMETER => (parse_size(text), format!("{SIZE_WANTED}; at least 1")),
            _ => (text.parse().ok(), format!("a number from 1 to {max}")),
        };
        read.filter(|number| (1..=max).contains(number)).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("the parameter {name}={text}"))
                .expected(wanted)
                .found(text)
        })
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
