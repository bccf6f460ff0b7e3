//! Where a table lies that is part of no database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tombolo_storage::{Error, ErrorKind, ObjectName, ObjectStore, Result, Uri};

/// An object of any store that is, or will be, a table of no database: its URI
/// (`file:///data/part-1.table`, `s3://bucket/parts/1`), the path of a file of this host, or a name
/// in a store that is open.
#[derive(Clone, Debug)]
pub struct TablePlace(Place);

#[derive(Clone, Debug)]
enum Place {
    Uri(String),
    Path(PathBuf),
    Object(Arc<dyn ObjectStore>, ObjectName),
}

impl TablePlace {
    /// An object of a store that is open.
    ///
    /// # Errors
    /// `Invalid` when `name` is no object's.
    pub fn object(store: Arc<dyn ObjectStore>, name: impl AsRef<str>) -> Result<TablePlace> {
        Ok(TablePlace(Place::Object(store, ObjectName::new(name)?)))
    }

    /// An object below it, where it is the place of several.
    ///
    /// # Errors
    /// `Invalid` for a place that is no URI, and for a name that is no object's.
    pub(crate) fn below(&self, name: &str) -> Result<TablePlace> {
        Ok(TablePlace(match &self.0 {
            Place::Object(store, prefix) => {
                Place::Object(Arc::clone(store), ObjectName::new(format!("{prefix}/{name}"))?)
            }
            Place::Uri(uri) => {
                let mut uri = Uri::parse(uri)?;
                uri.rest = format!("{}/{name}", uri.rest.trim_end_matches('/'));
                Place::Uri(uri.to_string())
            }
            Place::Path(path) => Place::Path(path.join(name)),
        }))
    }

    /// The store and the object's name; `open` opens the store of a URI.
    ///
    /// # Errors
    /// `Invalid` for what names no object, and for a table of a database: moved away it would be
    /// lost to it. Those of `open`.
    pub(crate) fn resolve(
        &self,
        open: impl FnOnce(&Uri) -> Result<Arc<dyn ObjectStore>>,
    ) -> Result<(Arc<dyn ObjectStore>, ObjectName)> {
        let mut uri = match &self.0 {
            Place::Object(store, name) => {
                self.check_outside(name.as_str())?;
                return Ok((Arc::clone(store), name.clone()));
            }
            Place::Uri(uri) => Uri::parse(uri)?,
            Place::Path(path) => Uri::from_path(path)?,
        };
        self.check_outside(&uri.rest)?;
        let Some((directory, name)) = uri.rest.rsplit_once('/').filter(|(_, name)| !name.is_empty()) else {
            return Err(Error::new(ErrorKind::Invalid, format!("{} names no object", uri.shown()))
                .advice("write the place of a store, a / and the object's name"));
        };
        let name = ObjectName::new(name)?;
        uri.rest = directory.to_owned();
        Ok((open(&uri)?, name))
    }

    /// Refuses what lies where a database keeps its tables: `{incarnation}/table/{epoch}-{random}`
    /// below any place.
    fn check_outside(&self, path: &str) -> Result<()> {
        let is_number = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut parts = path.rsplit('/');
        let is_table = parts
            .next()
            .and_then(|name| name.split_once('-'))
            .is_some_and(|(epoch, random)| is_number(epoch) && is_number(random));
        if is_table && parts.next() == Some("table") && parts.next().is_some_and(is_number) {
            return Err(Error::new(ErrorKind::Invalid, format!("{self} is a table of a database"))
                .advice("export the keyspace as tables first (`tombolo db export-tables`)"));
        }
        Ok(())
    }
}

impl fmt::Display for TablePlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Object(store, name) => write!(formatter, "{name} in {}", store.describe()),
            Place::Uri(uri) => match Uri::parse(uri) {
                Ok(uri) => formatter.write_str(&uri.shown()),
                Err(_) => formatter.write_str("a place that is no URI"),
            },
            Place::Path(path) => path.display().fmt(formatter),
        }
    }
}

impl From<&str> for TablePlace {
    /// A URI, or without `://` a path.
    fn from(place: &str) -> TablePlace {
        TablePlace(if place.contains("://") { Place::Uri(place.into()) } else { Place::Path(place.into()) })
    }
}

impl From<String> for TablePlace {
    fn from(place: String) -> TablePlace {
        place.as_str().into()
    }
}

impl From<&Path> for TablePlace {
    fn from(path: &Path) -> TablePlace {
        TablePlace(Place::Path(path.to_owned()))
    }
}

impl From<PathBuf> for TablePlace {
    fn from(path: PathBuf) -> TablePlace {
        TablePlace(Place::Path(path))
    }
}
