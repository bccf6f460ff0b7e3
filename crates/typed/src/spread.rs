//! How keys are spread: their number, equal parts, some of them at random. And values that end.

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

use bytes::Bytes;
use tombolo::{Op, Result, Snapshot};

use crate::prefix::{between, under};
use crate::{Key, Lent, PrefixOf, TypedCursor, TypedKeyspace, TypedOp, TypedSnapshot, Value, Written};

/// What a typed sample makes of the engine's.
type Sampled<K, V> = TypedOp<Vec<(tombolo::Value, tombolo::Value)>, Vec<(K, Lent<V>)>>;

impl<K: Key, V: Value> TypedKeyspace<K, V> {
    /// How many keys of the range there are, exactly: see [`tombolo::Keyspace::count`]. With
    /// `..key` it is the rank of a key.
    ///
    /// # Errors
    /// As there.
    pub fn count<P: PrefixOf<K>>(&self, range: impl RangeBounds<P>) -> Op<u64> {
        self.keyspace().count::<Vec<u8>>(between(&range))
    }

    /// How many keys begin with `prefix`, exactly.
    ///
    /// # Errors
    /// As [`TypedKeyspace::count`].
    pub fn count_prefix<P: PrefixOf<K>>(&self, prefix: &P) -> Op<u64> {
        self.keyspace().count::<Vec<u8>>(under(prefix))
    }

    /// Different entries at random, by ascending key: see [`tombolo::Keyspace::sample`].
    ///
    /// # Errors
    /// As there, and as [`TypedKeyspace::get`].
    pub fn sample(&self, wanted: usize) -> Sampled<K, V> {
        let this = self.named();
        TypedOp::new(self.keyspace().sample::<&[u8]>(.., wanted), move |entries| {
            let typed = |(key, value): (tombolo::Value, tombolo::Value)| {
                let decoded = K::from_key(&key).map_err(|error| this.no_key(&key, &error))?;
                let lent = Lent::new(value, this.check).map_err(|error| this.no_value(&key, &error))?;
                Ok((decoded, lent))
            };
            entries.into_iter().map(typed).collect()
        })
    }

    /// Cursors over at most `parts` parts of about equal size, which follow each other, at the
    /// moment of `snapshot`: one for each thread. See [`tombolo::Keyspace::split_points`].
    ///
    /// # Errors
    /// As there.
    pub fn parts(&self, snapshot: &Snapshot, parts: usize) -> TypedOp<Vec<Bytes>, Vec<TypedCursor<K, V>>> {
        let (this, snapshot) = (self.clone(), snapshot.clone());
        TypedOp::new(self.keyspace().split_points::<&[u8]>(.., parts), move |cuts| {
            let starts = std::iter::once(Bound::Unbounded).chain(cuts.iter().map(Bound::Included));
            let ends = cuts.iter().map(Bound::Excluded).chain([Bound::Unbounded]);
            let cursor = |range| this.cursor(snapshot.cursor::<Bytes>(this.keyspace(), range));
            Ok(starts.zip(ends).map(cursor).collect())
        })
    }

    /// Stores `value` under `key` for `ttl` of the database's time, durably: see
    /// [`tombolo::Keyspace::put_ttl`].
    ///
    /// # Errors
    /// As there, and as [`TypedKeyspace::put`].
    pub fn put_ttl(&self, key: &K, value: &(impl Written<V> + ?Sized), ttl: Duration) -> Op<()> {
        self.write(key, value, |key, value| self.keyspace().put_ttl(key, value, ttl))
    }

    /// Adds a put to a batch, of a value that ends after `ttl` of the database's time.
    ///
    /// # Errors
    /// As [`TypedKeyspace::put_in`]; see [`tombolo::Batch::put_ttl`].
    pub fn put_ttl_in(
        &self,
        batch: &mut tombolo::Batch,
        key: &K,
        value: &(impl Written<V> + ?Sized),
        ttl: Duration,
    ) -> Result<()> {
        let encoded = self.encoded(key)?;
        value
            .write_as(|value| batch.put_ttl(self.keyspace(), encoded.bytes(), value, ttl))
            .map_err(|error| self.no_bytes(&error))?;
        Ok(())
    }
}

impl<K: Key, V: Value> TypedSnapshot<'_, K, V> {
    /// As [`TypedKeyspace::count`], at the snapshot's moment.
    ///
    /// # Errors
    /// As there.
    pub fn count<P: PrefixOf<K>>(&self, range: impl RangeBounds<P>) -> Op<u64> {
        self.snapshot().count::<Vec<u8>>(self.keyspace().keyspace(), between(&range))
    }
}
