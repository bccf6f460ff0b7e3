//! Where a store lies among others, so that a database finds another one of the same service.
//!
//! A **place** says where another database lies, from one's own on: `../orders`. It holds no
//! service, no parameter and no secret, so that it may be written down: a process that follows it
//! asks with the parameters of its own URI. Databases that are moved together find each other
//! again. Where another store is meant, a place is its URI, without secrets and without how it is
//! asked.

use std::fmt;

use std::sync::Arc;

use tombolo_env::Env;

use crate::uri::Uri;
use crate::{Error, ErrorKind, ObjectStore, Result};

/// Parameters of a URI that say how the store is asked, and not what it holds.
const OF_ASKING: [&str; 9] = [
    "trace",
    "retry_seconds",
    "bytes_per_second",
    "requests_per_second",
    "latency_ms",
    "latency",
    "form",
    "io",
    "timeout_seconds",
];

/// Whether a place is on another store than that from which it is seen.
pub fn is_elsewhere(place: &str) -> bool {
    place.contains("://")
}

/// Opens the object store of a URI.
pub type OpenStore = dyn Fn(&Env, &Uri) -> Result<Arc<dyn ObjectStore>> + Send + Sync;

/// The URI of a store, and what opens others. Cheap to clone.
#[derive(Clone)]
pub struct StoreLocation(Arc<Inner>);

struct Inner {
    env: Env,
    uri: Uri,
    open: Arc<OpenStore>,
}

impl fmt::Debug for StoreLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StoreLocation").field("uri", &self.0.uri.shown()).finish_non_exhaustive()
    }
}

/// What a path goes through.
fn segments(rest: &str) -> Vec<&str> {
    rest.split('/').filter(|segment| !segment.is_empty() && *segment != ".").collect()
}

/// The path from one on to another.
fn way(from: &str, to: &str) -> String {
    let (from, to) = (segments(from), segments(to));
    let common = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
    let up = std::iter::repeat_n("..", from.len() - common);
    up.chain(to.into_iter().skip(common)).collect::<Vec<_>>().join("/")
}

/// Where `place` is, from `from` on; `None` when it goes up beyond the first segment.
fn follow(from: &str, place: &str) -> Option<String> {
    let mut at = segments(from);
    for segment in segments(place) {
        match segment {
            ".." => {
                at.pop()?;
            }
            segment => at.push(segment),
        }
    }
    let root = if from.starts_with('/') { "/" } else { "" };
    Some(format!("{root}{}", at.join("/")))
}

impl StoreLocation {
    /// The location of the store at `uri`; `open` opens others of its service.
    pub fn new(env: &Env, uri: &Uri, open: Arc<OpenStore>) -> StoreLocation {
        StoreLocation(Arc::new(Inner { env: env.clone(), uri: uri.clone(), open }))
    }

    /// The place of another store, from this one on.
    ///
    /// # Errors
    /// `Invalid` when it is this one, or of another service: a place does not say how that would be
    /// asked.
    pub fn place_of(&self, other: &StoreLocation) -> Result<String> {
        let (own, other) = (&self.0.uri, &other.0.uri);
        let invalid = |what: &str| {
            let error =
                Error::new(ErrorKind::Invalid, format!("{} and {} {what}", own.shown(), other.shown()));
            error
                .advice("name two places of one store: tables are named where they lie, by their place on it")
        };
        let asked = |uri: &Uri| {
            uri.parameters
                .clone()
                .into_iter()
                .filter(|(name, _)| !OF_ASKING.contains(&name.as_str()))
                .collect::<Vec<_>>()
        };
        if own.scheme != other.scheme || asked(own) != asked(other) {
            return Err(invalid("are not of one store"));
        }
        // A name and a key before a host: of that host alone.
        let host = |uri: &Uri| {
            segments(&uri.rest).first().map(|host| (*host).to_owned()).filter(|host| host.contains('@'))
        };
        if host(own) != host(other) {
            return Err(invalid("are not asked with the same key"));
        }
        let place = way(&own.rest, &other.rest);
        if place.is_empty() { Err(invalid("are the same place")) } else { Ok(place) }
    }

    /// As [`StoreLocation::place_of`]; of a store of another service its URI.
    ///
    /// # Errors
    /// `Invalid` when it is this one, or its URI holds a secret.
    pub fn place_anywhere(&self, other: &StoreLocation) -> Result<String> {
        match self.place_of(other) {
            Err(error) if self.0.uri.scheme == other.0.uri.scheme && self.path() == other.path() => {
                Err(error)
            }
            Err(_) => other.plain(),
            place => place,
        }
    }

    /// The URI without how it is asked.
    fn plain(&self) -> Result<String> {
        let mut uri = self.0.uri.clone();
        uri.parameters.retain(|name, _| !OF_ASKING.contains(&name.as_str()));
        if uri.to_string() == uri.shown() {
            return Ok(uri.to_string());
        }
        let error = Error::new(ErrorKind::Invalid, format!("{} holds a secret", uri.shown()));
        Err(error.advice("both manifests keep the URIs: give the secret by the environment instead"))
    }

    /// The place of this store as seen from the one at `place`.
    ///
    /// # Errors
    /// `Corrupt` for a place that is none; `Invalid` for a URI that holds a secret.
    pub fn place_from(&self, place: &str) -> Result<String> {
        if is_elsewhere(place) {
            return self.plain();
        }
        Ok(way(&self.uri_of(place)?.rest, &self.0.uri.rest))
    }

    /// The path of this store on its service, in one spelling: the same store may be reached by
    /// several, and a place leads elsewhere from each.
    pub fn path(&self) -> String {
        segments(&self.0.uri.rest).join("/")
    }

    /// The URI of another place, which is asked as this one is if it is on the same store.
    ///
    /// # Errors
    /// `Corrupt` for a place that is none.
    pub fn uri_of(&self, place: &str) -> Result<Uri> {
        if is_elsewhere(place) {
            return Uri::parse(place);
        }
        let mut uri = self.0.uri.clone();
        let Some(rest) = follow(&uri.rest, place) else {
            return Err(Error::corrupt(
                format!("a place beside {}", uri.shown()),
                0,
                "a path on the same store",
                place,
            ));
        };
        uri.rest = rest;
        // Each opening would begin another file.
        uri.parameters.remove("trace");
        Ok(uri)
    }

    /// The URI by which it was opened. It may hold a secret.
    pub fn uri(&self) -> &Uri {
        &self.0.uri
    }

    /// Opens the store of any URI, by what opened this one.
    ///
    /// # Errors
    /// `Invalid` for an unknown scheme or parameter; those of opening it.
    pub fn open(&self, uri: &Uri) -> Result<Arc<dyn ObjectStore>> {
        (self.0.open)(&self.0.env, uri)
    }

    /// Opens the store of another place.
    ///
    /// # Errors
    /// `Corrupt` for a place that is none; those of opening it.
    pub fn neighbour(&self, place: &str) -> Result<Arc<dyn ObjectStore>> {
        (self.0.open)(&self.0.env, &self.uri_of(place)?)
    }
}

/// The location of a store that may have none.
///
/// # Errors
/// `Unsupported`.
pub fn location_of(store: &dyn ObjectStore) -> Result<&StoreLocation> {
    store.location().ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!("where {} lies among others is not known", store.describe()),
        )
        .advice("open it by its URI: databases that share tables find each other by their places")
    })
}

#[cfg(test)]
mod tests;
