//! How the keys of a range are spread: their number, equal parts, some of them at random.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use tombolo_storage::{Error, ErrorKind, Result};

use crate::db::{BlockingKeyspace, Keyspace, Snapshot};
use crate::engine::Kept;
use crate::lifecycle::Spread;
use crate::op::Op;
use crate::read;
use crate::table::KeyRange;
use crate::value::Value;

/// Most parts of one split.
const PARTS_MAX: usize = 65_536;
/// Most keys of one sample.
const SAMPLE_MAX: usize = 1 << 20;

impl Keyspace {
    /// How many keys of `range` have a value, exactly, at one moment. With `..key` it is a key's
    /// rank.
    ///
    /// Costs as little as one look at the manifest, and as much as a scan of the keys. Tables say
    /// how many entries they and their parts hold. So no block is read where one table alone has
    /// something for a stretch of keys, and each entry of it is a value that stays, of a key of its
    /// own: after a compaction, after an ingest, and of keys that only rise. All other keys are
    /// walked over, without their values that lie apart. [`Keyspace::approximate_size`] never
    /// walks, and counts older versions and deletes too.
    ///
    /// ```no_run
    /// # fn f(orders: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// println!("{} orders in 2026", orders.count("2026-".."2027-").wait()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`].
    pub fn count<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Op<u64> {
        self.count_at(None, range)
    }

    /// Keys that cut `range` into at most `parts` parts of about equal size, for scans side by
    /// side: `..first`, `first..second` and so on to `last..`. They need not be keys that are
    /// there.
    ///
    /// Read from the indexes of tables, and by a walk over what memory has. Each part is right to a
    /// sixteenth, or to a block of each table that it cuts. Fewer keys come of a range with few
    /// blocks. One or two requests for each table, and one for each partition of its index where
    /// tables are few; none where there are many times more tables than parts.
    ///
    /// ```no_run
    /// # fn f(orders: &tombolo::Keyspace) -> tombolo::Result<()> {
    /// use std::ops::Bound;
    ///
    /// let cuts = orders.split_points::<&[u8]>(.., 8).wait()?;
    /// let cuts = || cuts.iter().map(|key| &key[..]);
    /// let starts = std::iter::once(Bound::Unbounded).chain(cuts().map(Bound::Included));
    /// let ends = cuts().map(Bound::Excluded).chain([Bound::Unbounded]);
    /// std::thread::scope(|scope| {
    ///     for range in starts.zip(ends) {
    ///         scope.spawn(move || orders.count::<&[u8]>(range).wait());
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Invalid` for no part, and for more than 65,536.
    pub fn split_points<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>, parts: usize) -> Op<Vec<Bytes>> {
        if parts == 0 || parts > PARTS_MAX {
            let error = Error::new(ErrorKind::Invalid, format!("{parts} parts of a range"));
            return Op::ready(Err(error.advice(format!("ask for 1 to {PARTS_MAX}"))));
        }
        self.spread(None, range, "split points", move |spread| async move {
            spread.0.split_points(&spread.1, parts).await
        })
    }

    /// `wanted` different entries of `range` at random, by ascending key; all of them where there
    /// are no more.
    ///
    /// Of up to 4,096 entries, or four times as many as wanted, all are walked over, and each is as
    /// likely as any other. Of more, blocks are drawn by what they hold, and an entry in each: keys
    /// of blocks with fewer entries than those beside them come a little more often, as do those
    /// before a run of deletes, and fewer than wanted may come where most are deleted. Each costs a
    /// seek then, and a block that is not in memory one request.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Invalid` for more than 1,048,576.
    pub fn sample<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        wanted: usize,
    ) -> Op<Vec<(Value, Value)>> {
        if wanted > SAMPLE_MAX {
            let error = Error::new(ErrorKind::Invalid, format!("a sample of {wanted} entries"));
            return Op::ready(Err(error.advice(format!("ask for at most {SAMPLE_MAX}, or scan"))));
        }
        self.spread(
            None,
            range,
            "sample",
            move |spread| async move { spread.0.sample(&spread.1, wanted).await },
        )
    }

    fn count_at<K: AsRef<[u8]>>(&self, snapshot: Option<&Snapshot>, range: impl RangeBounds<K>) -> Op<u64> {
        self.spread(snapshot, range, "count", |spread| async move { spread.0.count(&spread.1).await })
    }

    fn spread<K: AsRef<[u8]>, T: Send + 'static, F>(
        &self,
        snapshot: Option<&Snapshot>,
        range: impl RangeBounds<K>,
        what: &'static str,
        work: impl FnOnce(Arc<(Spread, Arc<crate::engine::Engine>)>) -> F,
    ) -> Op<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let engine = &self.handle().engine;
        let view = snapshot.and_then(Snapshot::view).map_or_else(|| engine.view_owned(), Arc::clone);
        if let Err(error) = read::check(engine, self.info()) {
            return Op::ready(Err(error));
        }
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let moment = match snapshot {
            Some(snapshot) => (snapshot.number(), snapshot.judged_ms()),
            None => (engine.stream.visible(), engine.judged_ms()),
        };
        let spread = Spread {
            env: engine.env.clone(),
            view: Arc::clone(&view),
            keyspace: Arc::clone(self.info()),
            moment,
            range: KeyRange { lower: owned(range.start_bound()), upper: owned(range.end_bound()) },
        };
        let (kept, snapshot) = (Kept::new(engine, view), snapshot.cloned());
        let work = work(Arc::new((spread, Arc::clone(engine))));
        let work = async move {
            let worked = work.await;
            drop((kept, snapshot));
            worked
        };
        Op::limited(self.limit(), &engine.env, what, || Op::start_read(&engine.env, what, work))
    }
}

impl Snapshot {
    /// As [`Keyspace::count`], at the snapshot's moment.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn count<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, range: impl RangeBounds<K>) -> Op<u64> {
        match self.of(keyspace) {
            Ok(here) => keyspace.count_at(Some(&here), range),
            Err(error) => Op::ready(Err(error)),
        }
    }
}

#[allow(clippy::missing_errors_doc, reason = "each verb's errors are those of the verb that it waits for")]
impl BlockingKeyspace {
    /// As [`Keyspace::count`].
    pub fn count<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64> {
        self.keyspace().count(range).wait()
    }

    /// As [`Keyspace::split_points`].
    pub fn split_points<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        parts: usize,
    ) -> Result<Vec<Bytes>> {
        self.keyspace().split_points(range, parts).wait()
    }

    /// As [`Keyspace::sample`].
    pub fn sample<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        wanted: usize,
    ) -> Result<Vec<(Value, Value)>> {
        self.keyspace().sample(range, wanted).wait()
    }
}
