//! A keyspace by the types of its keys and values.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use tombolo::{
    Batch, BlockingKeyspace, Cursor, Db, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, Op, Result,
    Snapshot,
};
use tombolo_format::key::KEY_BYTES_MAX;
use tombolo_format::typed_key::KeyEncoder;

use crate::describe::types_of;
use crate::prefix::{ByteRange, between, under};
use crate::value::ValueError;
use crate::{Check, Form, Key, Lent, PrefixOf, TypedCursor, TypedOp, Value, View};

/// What a typed read makes of the engine's.
pub(crate) type TypedRead<T> = TypedOp<Option<tombolo::Value>, Option<T>>;

/// A keyspace whose keys are of type `K` and whose values are of type `V`. Cheap to clone.
///
/// The keyspace keeps both types: [`TypedKeyspace::open`] refuses one that was made with others.
pub struct TypedKeyspace<K, V: ?Sized> {
    keyspace: Keyspace,
    here: BlockingKeyspace,
    check: Check<V>,
    of: PhantomData<fn(K) -> K>,
}

impl<K, V: ?Sized> Clone for TypedKeyspace<K, V> {
    fn clone(&self) -> TypedKeyspace<K, V> {
        TypedKeyspace {
            keyspace: self.keyspace.clone(),
            here: self.here.clone(),
            check: self.check,
            of: PhantomData,
        }
    }
}

impl<K, V: ?Sized> fmt::Debug for TypedKeyspace<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TypedKeyspace").field("keyspace", &self.keyspace).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> TypedKeyspace<K, V> {
    /// Opens the keyspace `name`, and makes it if it is not there.
    ///
    /// # Errors
    /// As [`Db::open_or_create_keyspace`]; `Invalid` when it was made with other types, with none,
    /// or with a `value_alignment` that is too small for the values.
    pub fn open(db: &Db, name: &str) -> TypedOp<Keyspace, TypedKeyspace<K, V>> {
        TypedKeyspace::open_with(db, name, KeyspaceOptions::default())
    }

    /// As [`TypedKeyspace::open`], where it is made with these options, completed by
    /// [`TypedKeyspace::options`].
    ///
    /// # Errors
    /// As there.
    pub fn open_with(
        db: &Db,
        name: &str,
        options: KeyspaceOptions,
    ) -> TypedOp<Keyspace, TypedKeyspace<K, V>> {
        TypedOp::new(db.open_or_create_keyspace(name, Self::options(options)), Self::of)
    }

    /// These options with the types of keys and values, and the alignment that the values need.
    pub fn options(options: KeyspaceOptions) -> KeyspaceOptions {
        let alignment = u16::try_from(V::Form::ALIGNMENT).unwrap_or(u16::MAX);
        KeyspaceOptions {
            types: Some(types_of::<K, V>()),
            value_alignment: options.value_alignment.max(alignment),
            ..options
        }
    }

    /// A keyspace that is there.
    ///
    /// # Errors
    /// As [`TypedKeyspace::open`].
    pub fn of(keyspace: Keyspace) -> Result<TypedKeyspace<K, V>> {
        let (options, wanted) = (keyspace.options(), types_of::<K, V>());
        match &options.types {
            Some(types) if *types == wanted => {}
            Some(types) => {
                let error = Error::new(
                    ErrorKind::Invalid,
                    format!("keyspace {:?} was made with other types", keyspace.name()),
                );
                return Err(error.expected(types).found(wanted).advice(
                    "open it with the types that it was made with; a renamed field keeps its name with \
                     #[key(name = \"…\")] or #[value(name = \"…\")]",
                ));
            }
            None => {
                let error = Error::new(
                    ErrorKind::Invalid,
                    format!("keyspace {:?} was made without types", keyspace.name()),
                );
                return Err(error
                    .expected(wanted)
                    .advice("give it types with TypedKeyspace::adopt, if all that it holds is of these"));
            }
        }
        if usize::from(options.value_alignment) < V::Form::ALIGNMENT {
            let error = Error::new(
                ErrorKind::Invalid,
                format!("values of keyspace {:?} may lie wrongly for their type", keyspace.name()),
            );
            return Err(error
                .expected(format!("value_alignment of at least {}", V::Form::ALIGNMENT))
                .found(options.value_alignment)
                .advice(
                    "set value_alignment of the keyspace, with Keyspace::set_options or `db keyspace set`",
                ));
        }
        let here = keyspace.blocking();
        Ok(TypedKeyspace { keyspace, here, check: Check::each_read(), of: PhantomData })
    }

    /// Gives a keyspace that has no types these, for good, and the alignment that they need. What
    /// it holds is not looked at: reads refuse a value of another type.
    ///
    /// # Errors
    /// As [`Keyspace::set_options`]; `Invalid` when it has others.
    pub fn adopt(keyspace: Keyspace) -> TypedOp<(), TypedKeyspace<K, V>> {
        let alignment = usize::from(keyspace.options().value_alignment).max(V::Form::ALIGNMENT);
        let (types, alignment) = (types_of::<K, V>(), alignment.to_string());
        let op = keyspace.set_options([("types", &types[..]), ("value_alignment", &alignment[..])]);
        TypedOp::new(op, move |()| Self::of(keyspace))
    }

    /// The same, whose values are checked so often.
    #[must_use]
    pub fn checking(self, check: Check<V>) -> TypedKeyspace<K, V> {
        TypedKeyspace { check, ..self }
    }

    /// The keyspace itself, by bytes.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// Stores `value` under `key`; durable when the operation ends.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; `Invalid` for a key that is too long once encoded, and a value without
    /// bytes.
    pub fn put(&self, key: &K, value: &(impl Written<V> + ?Sized)) -> Op<()> {
        self.put_with(key, value, Durability::Durable)
    }

    /// As [`TypedKeyspace::put`], with the durability said.
    ///
    /// # Errors
    /// As there.
    pub fn put_with(&self, key: &K, value: &(impl Written<V> + ?Sized), durability: Durability) -> Op<()> {
        self.write(key, value, |key, value| self.keyspace.put_with(key, value, durability))
    }

    /// Merges `operand` into the value of `key`, by the keyspace's operator.
    ///
    /// # Errors
    /// As [`Keyspace::merge`] and [`TypedKeyspace::put`].
    pub fn merge(&self, key: &K, operand: &(impl Written<V> + ?Sized)) -> Op<()> {
        self.write(key, operand, |key, operand| self.keyspace.merge(key, operand))
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// As [`Keyspace::delete`].
    pub fn delete(&self, key: &K) -> Op<()> {
        match self.encoded(key) {
            Ok(key) => self.keyspace.delete(key.bytes()),
            Err(error) => Op::ready(Err(error)),
        }
    }

    /// Removes all keys that begin with `prefix`; one log append.
    ///
    /// # Errors
    /// As [`Keyspace::delete_range`]; `Invalid` for a prefix after which no key can come.
    pub fn delete_prefix<P: PrefixOf<K>>(&self, prefix: &P) -> Op<()> {
        match under(prefix) {
            (std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)) => {
                self.keyspace.delete_range(from, to)
            }
            _ => Op::ready(Err(Error::new(
                ErrorKind::Invalid,
                "a range delete of all keys to the last of all possible ones",
            )
            .advice("delete the keys one by one, or drop the keyspace"))),
        }
    }

    /// The value of `key`, to keep.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; `Corrupt` for bytes that are no value of the type.
    pub fn get(&self, key: &K) -> TypedRead<Lent<V>> {
        let encoded = match self.encoded(key) {
            Ok(encoded) => encoded,
            Err(error) => return TypedOp::failed(error),
        };
        TypedOp::new(self.keyspace.get(encoded.bytes()), self.lending(encoded))
    }

    /// Gives the value of `key` to `read`, in place: no copy, and of what memory holds no
    /// allocation. Waits for what memory does not hold.
    ///
    /// # Errors
    /// As [`TypedKeyspace::get`].
    #[inline]
    pub fn read<R>(&self, key: &K, read: impl FnOnce(View<'_, V>) -> R) -> Result<Option<R>> {
        let encoded = self.encoded(key)?;
        let found = self.here.get_with(encoded.bytes(), |bytes| self.check.view(bytes).map(read))?;
        match found {
            None => Ok(None),
            Some(Ok(found)) => Ok(Some(found)),
            Some(Err(error)) => Err(self.no_value(encoded.bytes(), &error)),
        }
    }

    /// The values of several keys, in their order, all at one moment.
    ///
    /// # Errors
    /// As [`TypedKeyspace::get`].
    pub fn multi_get(&self, keys: &[K]) -> TypedOp<Vec<Option<tombolo::Value>>, Vec<Option<Lent<V>>>> {
        let encoded: Result<Vec<Vec<u8>>> =
            keys.iter().map(|key| Ok(self.encoded(key)?.bytes().to_vec())).collect();
        let encoded = match encoded {
            Ok(encoded) => encoded,
            Err(error) => return TypedOp::failed(error),
        };
        let op = self.keyspace.multi_get(&encoded);
        let this = self.named();
        TypedOp::new(op, move |found| {
            let lend = |(value, key): (Option<tombolo::Value>, &Vec<u8>)| this.lend(value, key);
            found.into_iter().zip(&encoded).map(lend).collect()
        })
    }

    /// A cursor over all keys.
    pub fn all(&self) -> TypedCursor<K, V> {
        self.cursor(self.keyspace.cursor::<&[u8]>(..))
    }

    /// A cursor over the keys that begin with `prefix`.
    pub fn prefix<P: PrefixOf<K>>(&self, prefix: &P) -> TypedCursor<K, V> {
        self.cursor_within(under(prefix))
    }

    /// A cursor over a range of keys or of prefixes: an included end takes all that begin with it,
    /// an excluded one none of them.
    pub fn range<P: PrefixOf<K>>(&self, range: impl RangeBounds<P>) -> TypedCursor<K, V> {
        self.cursor_within(between(&range))
    }

    fn cursor_within(&self, range: ByteRange) -> TypedCursor<K, V> {
        self.cursor(self.keyspace.cursor::<Vec<u8>>(range))
    }

    pub(crate) fn cursor(&self, cursor: Cursor) -> TypedCursor<K, V> {
        TypedCursor::new(cursor, self.named())
    }

    /// Adds a put to a batch.
    ///
    /// # Errors
    /// `Invalid` as [`TypedKeyspace::put`]; the batch is as before.
    pub fn put_in(&self, batch: &mut Batch, key: &K, value: &(impl Written<V> + ?Sized)) -> Result<()> {
        let encoded = self.encoded(key)?;
        value
            .write_as(|value| batch.put(&self.keyspace, encoded.bytes(), value))
            .map_err(|error| self.no_bytes(&error))?;
        Ok(())
    }

    /// Adds a merge to a batch.
    ///
    /// # Errors
    /// As [`TypedKeyspace::put_in`].
    pub fn merge_in(&self, batch: &mut Batch, key: &K, operand: &(impl Written<V> + ?Sized)) -> Result<()> {
        let encoded = self.encoded(key)?;
        operand
            .write_as(|value| batch.merge(&self.keyspace, encoded.bytes(), value))
            .map_err(|error| self.no_bytes(&error))?;
        Ok(())
    }

    /// Adds a delete to a batch.
    ///
    /// # Errors
    /// As [`TypedKeyspace::put_in`].
    pub fn delete_in(&self, batch: &mut Batch, key: &K) -> Result<()> {
        batch.delete(&self.keyspace, self.encoded(key)?.bytes());
        Ok(())
    }

    /// The keyspace as a snapshot sees it.
    pub fn at<'a>(&'a self, snapshot: &'a Snapshot) -> TypedSnapshot<'a, K, V> {
        TypedSnapshot { keyspace: self, snapshot }
    }

    pub(crate) fn write(
        &self,
        key: &K,
        value: &(impl Written<V> + ?Sized),
        write: impl FnOnce(&[u8], &[u8]) -> Op<()>,
    ) -> Op<()> {
        let encoded = match self.encoded(key) {
            Ok(encoded) => encoded,
            Err(error) => return Op::ready(Err(error)),
        };
        match value.write_as(|value| write(encoded.bytes(), value)) {
            Ok(op) => op,
            Err(error) => Op::ready(Err(self.no_bytes(&error))),
        }
    }

    /// The bytes of a key.
    ///
    /// # Errors
    /// `Invalid` when they are too many.
    #[inline]
    pub(crate) fn encoded(&self, key: &K) -> Result<KeyEncoder> {
        let encoded = key.to_key();
        if encoded.len() > KEY_BYTES_MAX { Err(self.too_long(encoded.len())) } else { Ok(encoded) }
    }

    #[cold]
    fn too_long(&self, bytes: usize) -> Error {
        let message = format!(
            "a key of type {} is too long for keyspace {:?} once it is encoded",
            std::any::type_name::<K>(),
            self.keyspace.name()
        );
        Error::new(ErrorKind::Invalid, message)
            .expected(format!("at most {KEY_BYTES_MAX} bytes"))
            .found(format!("{bytes} bytes"))
            .advice("keep the long part in the value, and its hash in the key")
    }

    #[cold]
    pub(crate) fn no_bytes(&self, error: &ValueError) -> Error {
        let message = format!("a value for keyspace {:?} cannot be stored: {error}", self.keyspace.name());
        Error::new(ErrorKind::Invalid, message).advice("store a value that its form can write")
    }

    #[cold]
    fn no_value(&self, key: &[u8], error: &ValueError) -> Error {
        self.named().no_value(key, error)
    }

    pub(crate) fn named(&self) -> Named<V> {
        Named { keyspace: self.keyspace.clone(), check: self.check }
    }

    fn lending(
        &self,
        key: KeyEncoder,
    ) -> impl FnOnce(Option<tombolo::Value>) -> Result<Option<Lent<V>>> + Send + 'static {
        let this = self.named();
        move |value| this.lend(value, key.bytes())
    }
}

/// Lends values, and says which one is wrong.
pub(crate) struct Named<V: ?Sized> {
    keyspace: Keyspace,
    pub(crate) check: Check<V>,
}

impl<V: Value + ?Sized> Named<V> {
    fn lend(&self, value: Option<tombolo::Value>, key: &[u8]) -> Result<Option<Lent<V>>> {
        let Some(value) = value else { return Ok(None) };
        Lent::new(value, self.check).map(Some).map_err(|error| self.no_value(key, &error))
    }

    #[cold]
    pub(crate) fn no_value(&self, key: &[u8], error: &ValueError) -> Error {
        let message = format!("keyspace {:?} holds a value that is none of its type", self.keyspace.name());
        let key = format!("{:?}", bytes::Bytes::copy_from_slice(key));
        let (kind, advice) = if error.is_misaligned {
            (
                ErrorKind::Invalid,
                "set value_alignment of the keyspace to what the type needs: it was made smaller",
            )
        } else {
            (ErrorKind::Corrupt, "find out who wrote it: typed keyspaces write no such value")
        };
        Error::new(kind, message).object(key).found(error).advice(advice)
    }

    #[cold]
    pub(crate) fn no_key(&self, key: &[u8], error: &crate::KeyError) -> Error {
        let message = format!("keyspace {:?} holds a key that is none of its type", self.keyspace.name());
        Error::new(ErrorKind::Corrupt, message)
            .object(format!("{:?}", bytes::Bytes::copy_from_slice(key)))
            .found(error)
            .advice("find out who wrote it: typed keyspaces write no such key")
    }
}

/// What may be written where values of type `V` are: a `V`, and text where a `String` is.
pub trait Written<V: ?Sized> {
    /// Gives its bytes to `take`.
    ///
    /// # Errors
    /// As [`Form::write`].
    fn write_as<R>(&self, take: impl FnOnce(&[u8]) -> R) -> std::result::Result<R, ValueError>;
}

impl<V: Value> Written<V> for V {
    fn write_as<R>(&self, take: impl FnOnce(&[u8]) -> R) -> std::result::Result<R, ValueError> {
        V::Form::write(self, take)
    }
}

impl Written<String> for str {
    fn write_as<R>(&self, take: impl FnOnce(&[u8]) -> R) -> std::result::Result<R, ValueError> {
        Ok(take(self.as_bytes()))
    }
}

impl Written<Vec<u8>> for [u8] {
    fn write_as<R>(&self, take: impl FnOnce(&[u8]) -> R) -> std::result::Result<R, ValueError> {
        Ok(take(self))
    }
}

/// A typed keyspace as a snapshot sees it.
#[derive(Debug)]
pub struct TypedSnapshot<'a, K, V: ?Sized> {
    keyspace: &'a TypedKeyspace<K, V>,
    snapshot: &'a Snapshot,
}

impl<K, V: ?Sized> TypedSnapshot<'_, K, V> {
    pub(crate) fn keyspace(&self) -> &TypedKeyspace<K, V> {
        self.keyspace
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        self.snapshot
    }
}

impl<K: Key, V: Value> TypedSnapshot<'_, K, V> {
    /// As [`TypedKeyspace::get`].
    ///
    /// # Errors
    /// As there; `Invalid` for a snapshot of another database.
    pub fn get(&self, key: &K) -> TypedRead<Lent<V>> {
        let encoded = match self.keyspace.encoded(key) {
            Ok(encoded) => encoded,
            Err(error) => return TypedOp::failed(error),
        };
        let op = self.snapshot.get(&self.keyspace.keyspace, encoded.bytes());
        TypedOp::new(op, self.keyspace.lending(encoded))
    }

    /// As [`TypedKeyspace::all`].
    pub fn all(&self) -> TypedCursor<K, V> {
        self.keyspace.cursor(self.snapshot.cursor::<&[u8]>(&self.keyspace.keyspace, ..))
    }

    /// As [`TypedKeyspace::prefix`].
    pub fn prefix<P: PrefixOf<K>>(&self, prefix: &P) -> TypedCursor<K, V> {
        self.within(under(prefix))
    }

    /// As [`TypedKeyspace::range`].
    pub fn range<P: PrefixOf<K>>(&self, range: impl RangeBounds<P>) -> TypedCursor<K, V> {
        self.within(between(&range))
    }

    fn within(&self, range: ByteRange) -> TypedCursor<K, V> {
        self.keyspace.cursor(self.snapshot.cursor::<Vec<u8>>(&self.keyspace.keyspace, range))
    }
}
