//! Ranges of keys of several databases become one.

use bytes::Bytes;
use tombolo_env::TaskClass;
use tombolo_storage::{Error, ErrorKind};

use crate::db::Builder;
use crate::db::builder::{MADE, objects, stores};
use crate::op::Op;
use crate::recovery::{Part, PartsRequest, Span, restore_parts};

/// A range of keys of a checkpoint, of which [`Builder::restore_parts`] makes a database together
/// with others.
#[derive(Debug)]
#[must_use = "nothing is restored before Builder::restore_parts"]
pub struct RestorePart {
    source: Builder,
    span: Span,
    keyspaces: Vec<String>,
}

impl RestorePart {
    /// All keys of the checkpoint that [`Builder::at_checkpoint`] names.
    pub fn of(source: Builder) -> RestorePart {
        RestorePart { source, span: Span::default(), keyspaces: Vec::new() }
    }

    /// Only keys from this one on.
    pub fn from(mut self, key: impl AsRef<[u8]>) -> RestorePart {
        self.span.from = Some(Bytes::copy_from_slice(key.as_ref()));
        self
    }

    /// Only keys before this one.
    pub fn before(mut self, key: impl AsRef<[u8]>) -> RestorePart {
        self.span.to = Some(Bytes::copy_from_slice(key.as_ref()));
        self
    }

    /// Only of this keyspace, and of others that are named. Default: of all.
    pub fn keyspace(mut self, name: impl Into<String>) -> RestorePart {
        self.keyspaces.push(name.into());
        self
    }
}

impl Builder {
    /// Makes a database of ranges of keys of several checkpoints, or of one: so state that is kept
    /// by ranges of keys is restored to more processes, or to fewer. Keyspaces of one name become
    /// one, and have the same settings in all sources.
    ///
    /// Tables within a range are taken by reference where the store can (hard links within one file
    /// system, copies that the service makes), so that the time does not depend on their size.
    /// Those that reach beyond are written anew without the rest: at each end of a range about one
    /// table of each level, which are fewest after a compaction. The database stands alone
    /// afterwards. Numbers and time go on above the greatest of all sources. Transactions that are
    /// prepared and not decided are not taken along, nor are subscriptions.
    ///
    /// It is an empty database until all is there; one that was interrupted may be made again.
    ///
    /// ```no_run
    /// # fn main() -> tombolo::Result<()> {
    /// use tombolo::{Db, RestorePart};
    ///
    /// // Two workers become three.
    /// let first = || RestorePart::of(Db::builder("s3://state/worker-1").at_checkpoint("monday"));
    /// let second = || RestorePart::of(Db::builder("s3://state/worker-2").at_checkpoint("monday"));
    /// Db::builder("s3://state/of-3/1").restore_parts([first().before("h")]).wait()?;
    /// Db::builder("s3://state/of-3/2").restore_parts([first().from("h"), second().before("s")]).wait()?;
    /// Db::builder("s3://state/of-3/3").restore_parts([second().from("s")]).wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a part without a checkpoint's name or without a key, for parts that may hold
    /// the same keys of a keyspace, and for keyspaces of one name with different settings or types;
    /// `NotFound` for a checkpoint or keyspace that is not there; `AlreadyExists` when the target
    /// holds a database with keyspaces; those of the stores.
    pub fn restore_parts(mut self, parts: impl IntoIterator<Item = RestorePart>) -> Op<()> {
        let mut named = Vec::new();
        for part in parts {
            let Some(checkpoint) = part.source.checkpoint.clone() else {
                return Op::ready(Err(Error::new(ErrorKind::Invalid, "no checkpoint was named")
                    .advice("name one for each part with at_checkpoint")));
            };
            self.env = self.env.or_else(|| part.source.env.clone());
            named.push((part, checkpoint));
        }
        if named.is_empty() {
            let error = Error::new(ErrorKind::Invalid, "a database of no parts");
            return Op::ready(Err(error.advice("name a part at least, or open an empty database")));
        }
        self.start(TaskClass::Foreground, "restore", MADE, async move |builder, env| {
            let part = |(part, checkpoint): (RestorePart, String)| {
                let source = objects(&part.source, &env)?;
                Ok(Part {
                    source,
                    checkpoint,
                    span: part.span,
                    keyspaces: part.keyspaces.into_iter().collect(),
                })
            };
            let parts = named.into_iter().map(part).collect::<tombolo_storage::Result<_>>()?;
            let (target, log_store) = stores(&builder, &env)?;
            restore_parts(PartsRequest { env, parts, target, log_store }).await
        })
    }
}
