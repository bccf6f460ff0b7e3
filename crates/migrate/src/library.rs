//! RocksDB's C library, loaded when it is needed, with a safe face.
//!
//! The functions of <rocksdb/c.h> that are called here have had the same form from 7 to 11. Each
//! object is freed by the function that the header names for it, once, and none outlives what it
//! was made from.

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

use tombolo::{Error, ErrorKind, Result};

type Pointer = *mut c_void;
type Told = *mut *mut c_char;

/// Names under which distributions install it.
const NAMES: [&str; 7] = [
    "librocksdb.so",
    "librocksdb.so.11",
    "librocksdb.so.10",
    "librocksdb.so.9",
    "librocksdb.so.8",
    "librocksdb.so.7",
    "librocksdb.so.7.8",
];

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions { $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Functions {
            /// # Safety
            /// `library` is an open library whose functions of these names are those of RocksDB.
            unsafe fn load(library: Pointer) -> Result<Functions> {
                Ok(Functions { $($name: {
                    // SAFETY: the library is open.
                    let symbol = unsafe { symbol(library, concat!("rocksdb_", stringify!($name))) }?;
                    // SAFETY: a pointer to the function of this name, whose form the header gives.
                    unsafe {
                        std::mem::transmute::<
                            Pointer,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(symbol)
                    }
                },)* })
            }
        }
    };
}

functions! {
    free(Pointer);
    options_create() -> Pointer;
    options_destroy(Pointer);
    options_set_create_if_missing(Pointer, c_uchar);
    get_options_from_string(Pointer, *const c_char, Pointer, Told);
    list_column_families(Pointer, *const c_char, *mut usize, Told) -> *mut *mut c_char;
    list_column_families_destroy(*mut *mut c_char, usize);
    open(Pointer, *const c_char, Told) -> Pointer;
    open_column_families(
        Pointer, *const c_char, c_int, *const *const c_char, *const Pointer, *mut Pointer, Told
    ) -> Pointer;
    open_for_read_only_column_families(
        Pointer, *const c_char, c_int, *const *const c_char, *const Pointer, *mut Pointer, c_uchar, Told
    ) -> Pointer;
    create_column_family(Pointer, Pointer, *const c_char, Told) -> Pointer;
    column_family_handle_destroy(Pointer);
    close(Pointer);
    get_latest_sequence_number(Pointer) -> u64;
    property_value_cf(Pointer, Pointer, *const c_char) -> *mut c_char;
    readoptions_create() -> Pointer;
    readoptions_destroy(Pointer);
    readoptions_set_fill_cache(Pointer, c_uchar);
    create_iterator_cf(Pointer, Pointer, Pointer) -> Pointer;
    iter_destroy(Pointer);
    iter_valid(Pointer) -> c_uchar;
    iter_seek_to_first(Pointer);
    iter_seek_to_last(Pointer);
    iter_seek(Pointer, *const c_char, usize);
    iter_next(Pointer);
    iter_key(Pointer, *mut usize) -> *const c_char;
    iter_value(Pointer, *mut usize) -> *const c_char;
    iter_get_error(Pointer, Told);
    envoptions_create() -> Pointer;
    envoptions_destroy(Pointer);
    sstfilewriter_create(Pointer, Pointer) -> Pointer;
    sstfilewriter_open(Pointer, *const c_char, Told);
    sstfilewriter_put(Pointer, *const c_char, usize, *const c_char, usize, Told);
    sstfilewriter_finish(Pointer, Told);
    sstfilewriter_destroy(Pointer);
    ingestexternalfileoptions_create() -> Pointer;
    ingestexternalfileoptions_destroy(Pointer);
    ingestexternalfileoptions_set_move_files(Pointer, c_uchar);
    ingest_external_file_cf(Pointer, Pointer, *const *const c_char, usize, Pointer, Told);
}

/// # Safety
/// `library` is open.
unsafe fn symbol(library: Pointer, name: &str) -> Result<Pointer> {
    let text = c_string(name)?;
    // SAFETY: an open library and a string of C.
    let symbol = unsafe { libc::dlsym(library, text.as_ptr()) };
    if symbol.is_null() {
        return Err(Error::new(ErrorKind::Unsupported, format!("RocksDB's library has no function {name}"))
            .advice("use RocksDB 7 or later, with its C functions"));
    }
    Ok(symbol)
}

fn c_string(text: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(ErrorKind::Invalid, "a name with a zero byte"))
}

fn path_string(path: &Path) -> Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    c_string(path.as_os_str().as_bytes())
}

/// RocksDB's library. It stays loaded to the end of the process.
pub struct Library {
    functions: Functions,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Library")
    }
}

impl Library {
    /// Loads it from this path, or from where the system has it.
    ///
    /// # Errors
    /// `Unsupported` where there is none, with the package to install.
    pub fn load(path: Option<&Path>) -> Result<Arc<Library>> {
        let names: Vec<CString> = match path {
            Some(path) => vec![path_string(path)?],
            None => NAMES.iter().map(|name| c_string(*name)).collect::<Result<_>>()?,
        };
        for name in &names {
            // SAFETY: a string of C; the library's own initialisation is that of RocksDB.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if !library.is_null() {
                // SAFETY: it is open, and stays so.
                let functions = unsafe { Functions::load(library) }?;
                return Ok(Arc::new(Library { functions }));
            }
        }
        let tried = names.iter().map(|name| name.to_string_lossy()).collect::<Vec<_>>().join(", ");
        Err(Error::new(ErrorKind::Unsupported, "RocksDB's library cannot be loaded")
            .found(format!("none of {tried}"))
            .advice(
                "install it (Debian: apt-get install librocksdb7.8 or librocksdb-dev), or say --library PATH",
            ))
    }

    /// A string that the library gave, which is freed.
    ///
    /// # Safety
    /// It is a string of C that came from the library, and nobody frees it.
    unsafe fn taken(&self, text: *mut c_char) -> String {
        // SAFETY: as the caller promises.
        unsafe {
            let taken = CStr::from_ptr(text).to_string_lossy().into_owned();
            (self.functions.free)(text.cast());
            taken
        }
    }

    /// Runs a call that may tell an error.
    fn tried<T>(&self, what: &str, call: impl FnOnce(Told) -> T) -> Result<T> {
        let mut told: *mut c_char = null_mut();
        let result = call(&raw mut told);
        if told.is_null() {
            return Ok(result);
        }
        // SAFETY: the library gave a string of C, which is ours to free.
        let message = unsafe { self.taken(told) };
        let kind = match &message {
            message if message.starts_with("Corruption") => ErrorKind::Corrupt,
            message if message.contains("No such file") || message.contains("does not exist") => {
                ErrorKind::NotFound
            }
            message if message.contains("No space") => ErrorKind::OutOfSpace,
            message if message.starts_with("IO error") => ErrorKind::Retry,
            message if message.contains("merge") => ErrorKind::Unsupported,
            _ => ErrorKind::Invalid,
        };
        Err(Error::new(kind, format!("{what}: RocksDB says: {message}")))
    }

    /// The column families of a database.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`.
    pub(crate) fn families(self: &Arc<Self>, directory: &Path) -> Result<Vec<String>> {
        let functions = &self.functions;
        let (path, mut count) = (path_string(directory)?, 0);
        let options = Owned::options(self);
        // SAFETY: options, a string of C, and places for a number and an error.
        let names = self.tried("listing column families", |told| unsafe {
            (functions.list_column_families)(options.pointer, path.as_ptr(), &raw mut count, told)
        })?;
        // SAFETY: so many strings of C, which are freed together.
        unsafe {
            let name = |index| CStr::from_ptr(*names.add(index)).to_string_lossy().into_owned();
            let families = (0..count).map(name).collect();
            (functions.list_column_families_destroy)(names, count);
            Ok(families)
        }
    }
}

/// Something that a function of the library frees.
struct Owned {
    pointer: Pointer,
    free: unsafe extern "C" fn(Pointer),
}

impl Owned {
    fn options(library: &Library) -> Owned {
        // SAFETY: it makes options of their defaults.
        let pointer = unsafe { (library.functions.options_create)() };
        Owned { pointer, free: library.functions.options_destroy }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it came from the library, and is freed once.
        unsafe { (self.free)(self.pointer) };
    }
}

/// An open database of RocksDB. Used by one thread.
pub(crate) struct Database {
    rocksdb: Arc<Library>,
    /// Freed before the database is.
    handles: Vec<Owned>,
    database: Pointer,
    options: Owned,
}

impl Drop for Database {
    fn drop(&mut self) {
        self.handles.clear();
        // SAFETY: it was opened, and nothing that was made from it is left.
        unsafe { (self.rocksdb.functions.close)(self.database) };
    }
}

impl Database {
    /// Opens these families of a database for reading, as it is now.
    ///
    /// # Errors
    /// `Invalid` for a merge operator that the library does not know; those of opening.
    pub(crate) fn open_read_only(
        library: &Arc<Library>,
        directory: &Path,
        families: &[String],
        merge_operator: Option<&str>,
    ) -> Result<Database> {
        let options = Owned::options(library);
        if let Some(name) = merge_operator {
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
            if !is_name {
                return Err(Error::new(ErrorKind::Invalid, format!("{name:?} is no merge operator")));
            }
            let text = c_string(format!("merge_operator={name}"))?;
            // SAFETY: options, a string of C, options again, and a place for an error.
            library.tried("naming the merge operator", |told| unsafe {
                (library.functions.get_options_from_string)(
                    options.pointer,
                    text.as_ptr(),
                    options.pointer,
                    told,
                );
            })?;
        }
        Database::open(library, directory, families, options, true)
    }

    /// Makes a database, or opens the one that is there, with these families.
    ///
    /// # Errors
    /// Those of RocksDB.
    pub(crate) fn create(library: &Arc<Library>, directory: &Path, families: &[String]) -> Result<Database> {
        let functions = &library.functions;
        let there = match library.families(directory) {
            Ok(there) => there,
            Err(_) if !directory.join("CURRENT").exists() => Vec::new(),
            Err(error) => return Err(error),
        };
        let options = Owned::options(library);
        // SAFETY: options that are ours.
        unsafe { (functions.options_set_create_if_missing)(options.pointer, 1) };
        let path = path_string(directory)?;
        if there.is_empty() {
            // SAFETY: options, a string of C, and a place for an error; it is closed at once.
            let made = library.tried("making a RocksDB database", |told| unsafe {
                (functions.open)(options.pointer, path.as_ptr(), told)
            })?;
            // SAFETY: it was opened, and nothing was made from it.
            unsafe { (functions.close)(made) };
        }
        let mut open = if there.is_empty() { vec!["default".to_owned()] } else { there };
        let mut database = Database::open(library, directory, &open, options, false)?;
        for family in families {
            if open.contains(family) {
                continue;
            }
            let name = c_string(family.as_str())?;
            // SAFETY: an open database, options, a string of C, and a place for an error.
            let handle = library.tried("making a column family", |told| unsafe {
                (functions.create_column_family)(
                    database.database,
                    database.options.pointer,
                    name.as_ptr(),
                    told,
                )
            })?;
            database.handles.push(Owned { pointer: handle, free: functions.column_family_handle_destroy });
            open.push(family.clone());
        }
        // In the order that was asked for.
        let mut handles: Vec<Option<Owned>> = database.handles.drain(..).map(Some).collect();
        let place = |family: &String| open.iter().position(|name| name == family);
        let ordered: Vec<usize> = families.iter().filter_map(place).collect();
        let mut sorted: Vec<Owned> = ordered.iter().filter_map(|index| handles[*index].take()).collect();
        sorted.extend(handles.into_iter().flatten());
        database.handles = sorted;
        Ok(database)
    }

    fn open(
        library: &Arc<Library>,
        directory: &Path,
        families: &[String],
        options: Owned,
        read_only: bool,
    ) -> Result<Database> {
        let functions = &library.functions;
        let path = path_string(directory)?;
        let names = families.iter().map(|name| c_string(name.as_str())).collect::<Result<Vec<_>>>()?;
        let name_pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let option_pointers = vec![options.pointer; families.len()];
        let mut handles: Vec<Pointer> = vec![null_mut(); families.len()];
        let count = c_int::try_from(families.len())
            .map_err(|_| Error::new(ErrorKind::Invalid, "too many column families"))?;
        // SAFETY: arrays of so many strings, options and places for handles; a place for an error.
        let database = library.tried("opening a RocksDB database", |told| unsafe {
            if read_only {
                (functions.open_for_read_only_column_families)(
                    options.pointer,
                    path.as_ptr(),
                    count,
                    name_pointers.as_ptr(),
                    option_pointers.as_ptr(),
                    handles.as_mut_ptr(),
                    0,
                    told,
                )
            } else {
                (functions.open_column_families)(
                    options.pointer,
                    path.as_ptr(),
                    count,
                    name_pointers.as_ptr(),
                    option_pointers.as_ptr(),
                    handles.as_mut_ptr(),
                    told,
                )
            }
        })?;
        let handles = handles
            .into_iter()
            .map(|pointer| Owned { pointer, free: functions.column_family_handle_destroy })
            .collect();
        Ok(Database { rocksdb: Arc::clone(library), handles, database, options })
    }

    pub(crate) fn sequence(&self) -> u64 {
        // SAFETY: it is open.
        unsafe { (self.rocksdb.functions.get_latest_sequence_number)(self.database) }
    }

    /// A property of a family; `None` where it has none of this name.
    pub(crate) fn property(&self, family: usize, name: &str) -> Option<String> {
        let name = c_string(name).ok()?;
        let functions = &self.rocksdb.functions;
        // SAFETY: an open database, one of its families, a string of C.
        let value = unsafe {
            (functions.property_value_cf)(self.database, self.handles[family].pointer, name.as_ptr())
        };
        if value.is_null() {
            return None;
        }
        // SAFETY: a string of C, which is ours to free.
        Some(unsafe { self.rocksdb.taken(value) })
    }

    /// The entries of a family, from a key on, or all.
    pub(crate) fn entries(&self, family: usize, from: Option<&[u8]>) -> Entries<'_> {
        let functions = &self.rocksdb.functions;
        // SAFETY: options that are ours, an open database, one of its families; a key in memory.
        unsafe {
            let options =
                Owned { pointer: (functions.readoptions_create)(), free: functions.readoptions_destroy };
            (functions.readoptions_set_fill_cache)(options.pointer, 0);
            let pointer =
                (functions.create_iterator_cf)(self.database, options.pointer, self.handles[family].pointer);
            let iterator = Owned { pointer, free: functions.iter_destroy };
            match from {
                Some(key) => (functions.iter_seek)(pointer, key.as_ptr().cast(), key.len()),
                None => (functions.iter_seek_to_first)(pointer),
            }
            Entries { iterator, _options: options, database: self, is_first: true }
        }
    }

    /// The last key of a family.
    ///
    /// # Errors
    /// Those of reading.
    pub(crate) fn last_key(&self, family: usize) -> Result<Option<Vec<u8>>> {
        let mut entries = self.entries(family, None);
        // SAFETY: it is open.
        unsafe { (self.rocksdb.functions.iter_seek_to_last)(entries.iterator.pointer) };
        Ok(entries.next()?.map(|(key, _)| key.to_vec()))
    }

    /// Makes a file of tables part of a family; the file goes.
    ///
    /// # Errors
    /// Those of RocksDB.
    pub(crate) fn ingest(&self, family: usize, file: &Path) -> Result<()> {
        let functions = &self.rocksdb.functions;
        let path = path_string(file)?;
        let paths = [path.as_ptr()];
        // SAFETY: options that are ours, an open database, one of its families, one string of C.
        unsafe {
            let pointer = (functions.ingestexternalfileoptions_create)();
            let options = Owned { pointer, free: functions.ingestexternalfileoptions_destroy };
            (functions.ingestexternalfileoptions_set_move_files)(options.pointer, 1);
            self.rocksdb.tried("ingesting a table", |told| {
                (functions.ingest_external_file_cf)(
                    self.database,
                    self.handles[family].pointer,
                    paths.as_ptr(),
                    1,
                    options.pointer,
                    told,
                );
            })
        }
    }
}

/// Entries in their order.
pub(crate) struct Entries<'a> {
    /// Freed before its options.
    iterator: Owned,
    _options: Owned,
    database: &'a Database,
    is_first: bool,
}

impl Entries<'_> {
    /// The next key and its value.
    ///
    /// # Errors
    /// Those of reading; `Unsupported` for operands whose operator was not named.
    #[allow(clippy::should_implement_trait, reason = "what it gives lives until the next call")]
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let functions = &self.database.rocksdb.functions;
        let iterator = self.iterator.pointer;
        // SAFETY: an iterator that is open, and stands on an entry where that is asked; its key and
        // value stay until it moves, which the borrow of `self` forbids.
        unsafe {
            if !std::mem::take(&mut self.is_first) && (functions.iter_valid)(iterator) != 0 {
                (functions.iter_next)(iterator);
            }
            if (functions.iter_valid)(iterator) == 0 {
                let told = |told| (functions.iter_get_error)(iterator, told);
                self.database.rocksdb.tried("reading entries", told)?;
                return Ok(None);
            }
            let (mut key_bytes, mut value_bytes) = (0, 0);
            let key = (functions.iter_key)(iterator, &raw mut key_bytes);
            let value = (functions.iter_value)(iterator, &raw mut value_bytes);
            Ok(Some((slice(key, key_bytes), slice(value, value_bytes))))
        }
    }
}

/// # Safety
/// So many bytes are there for as long as the slice is used.
unsafe fn slice<'a>(bytes: *const c_char, length: usize) -> &'a [u8] {
    if length == 0 || bytes.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(bytes.cast(), length) }
}

/// A file of tables that is written.
pub(crate) struct SstWriter {
    rocksdb: Arc<Library>,
    /// Freed before its options.
    writer: Owned,
    _options: Owned,
    _env_options: Owned,
}

impl SstWriter {
    /// # Errors
    /// Those of RocksDB.
    pub(crate) fn create(library: &Arc<Library>, path: &Path) -> Result<SstWriter> {
        let functions = &library.functions;
        let path = path_string(path)?;
        let options = Owned::options(library);
        // SAFETY: options that are ours and outlive the writer; a string of C.
        unsafe {
            let env = Owned { pointer: (functions.envoptions_create)(), free: functions.envoptions_destroy };
            let pointer = (functions.sstfilewriter_create)(env.pointer, options.pointer);
            let writer = Owned { pointer, free: functions.sstfilewriter_destroy };
            library.tried("beginning a table of RocksDB", |told| {
                (functions.sstfilewriter_open)(pointer, path.as_ptr(), told);
            })?;
            Ok(SstWriter { rocksdb: Arc::clone(library), writer, _options: options, _env_options: env })
        }
    }

    /// # Errors
    /// Those of RocksDB.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        // SAFETY: a writer that is open, and bytes in memory.
        self.rocksdb.tried("writing a table of RocksDB", |told| unsafe {
            (self.rocksdb.functions.sstfilewriter_put)(
                self.writer.pointer,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
                told,
            );
        })
    }

    /// # Errors
    /// Those of RocksDB.
    pub(crate) fn finish(self) -> Result<()> {
        // SAFETY: a writer that is open.
        self.rocksdb.tried("finishing a table of RocksDB", |told| unsafe {
            (self.rocksdb.functions.sstfilewriter_finish)(self.writer.pointer, told);
        })
    }
}
