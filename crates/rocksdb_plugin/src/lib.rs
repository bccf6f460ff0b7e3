//! What the shim of RocksDB's file system asks for, as functions of C over [`tombolo_files`].
//!
//! `shim/bridge.h` declares them, and says what each does. Every call that may fail gives a status
//! or nothing; none panics into C++.
//!
//! Thread safety: everything may be called from any thread.

mod ask;
mod space;
mod statistics;
mod status;
mod uri;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ask::{TomboloAsk, life_of, priority_of};
use status::{Given, TomboloStatus, status_of};
use tombolo::{Db, Env, Error, ErrorKind, Registry, Result};
use tombolo_files::ahead::Ahead;
use tombolo_files::door::Door;
use tombolo_files::kind::FileKind;
use tombolo_files::path::normal;
use tombolo_files::{File, Files, Hints, Reading};
use uri::Settings;

/// Bytes of the program: a path, a URI.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TomboloPath {
    bytes: *const u8,
    length: usize,
}

/// A file system.
pub struct TomboloFs(Arc<Fs>);

struct Fs {
    env: Env,
    door: Door,
    store: String,
    info_directory: PathBuf,
}

/// An open file.
pub struct TomboloFile {
    env: Env,
    files: Arc<Files>,
    file: Arc<File>,
    ahead: Ahead,
}

/// What a read gave.
#[repr(C)]
pub struct TomboloGot {
    bytes: usize,
    /// How many requests the store got for it.
    requests: usize,
}

/// A read that has begun.
pub struct TomboloReading {
    env: Env,
    reading: Reading,
}

/// File systems of this process by their URIs: two of one URI would fence each other.
static OPEN: Mutex<BTreeMap<Vec<u8>, Weak<Fs>>> = Mutex::new(BTreeMap::new());

impl TomboloPath {
    /// # Safety
    /// It points to so many bytes, which stay for the call.
    unsafe fn get<'a>(self) -> &'a [u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(self.bytes, self.length) }
    }
}

impl Fs {
    fn open(settings: Settings) -> Fs {
        let env = Env::real();
        let Settings { store, log, take_over, claim, options, files, info_directory } = settings;
        let (of_builder, of_door) = (env.clone(), store.clone());
        let door = Door::new(&env, files, take_over, move || {
            let mut registry = Registry::with_defaults();
            tombolo_near_compute_log::register(&mut registry, Ok(None));
            tombolo_zoned::register(&mut registry);
            let builder = Db::builder(of_door.clone())
                .env(of_builder.clone())
                .registry(registry)
                .options(options.clone());
            match &log {
                Some(log) => builder.log(log.clone()),
                None => builder,
            }
        });
        Fs { env, door: door.claiming(claim), store, info_directory }
    }

    /// The files to read from; `None` where there is no database yet.
    fn look(&self) -> Result<Option<Arc<Files>>> {
        self.door.look()
    }

    /// # Errors
    /// `NotFound` where there is no database yet.
    fn there(&self, path: &[u8]) -> Result<Arc<Files>> {
        self.look()?
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no {}", path.escape_ascii())))
    }

    /// Size in bytes, seconds since 1970 of the last change, and names of the file or directory. A
    /// directory has no bytes, and changes with the files in it.
    fn facts(&self, path: &[u8]) -> Result<[u64; 3]> {
        if self.door.is_directory(path)? {
            let newest = self.look()?.and_then(|files| {
                let children = files.list(path).ok()?.into_iter();
                children.filter_map(|(_, file)| Some(file?.modified_ms())).max()
            });
            return Ok([0, newest.unwrap_or(0) / 1000, 1]);
        }
        let file = self.there(path)?.open(path)?;
        Ok([file.size(), file.modified_ms() / 1000, file.links()])
    }

    /// Whether two paths lead to one file, or are those of one directory.
    fn are_same(&self, one: &[u8], other: &[u8]) -> Result<bool> {
        if self.door.is_directory(one)? || self.door.is_directory(other)? {
            return Ok(normal(one)? == normal(other)?);
        }
        let files = self.there(one)?;
        Ok(files.open(one)?.number() == files.open(other)?.number())
    }

    /// A file system for this URI, the one that is open if there is one.
    fn of(uri: &[u8]) -> Result<Arc<Fs>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fs) = open.get(uri).and_then(Weak::upgrade) {
            return Ok(fs);
        }
        let fs = Arc::new(Fs::open(Settings::parse(uri)?));
        open.insert(uri.to_vec(), Arc::downgrade(&fs));
        Ok(fs)
    }
}

/// # Safety
/// `to` is valid for the write of one.
unsafe fn give<T>(to: *mut T, value: T) {
    // SAFETY: as the caller promises.
    unsafe { to.write(value) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_status_free(status: *mut TomboloStatus) {
    if !status.is_null() {
        // SAFETY: it came from this library, and is freed once.
        drop(unsafe { Box::from_raw(status) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_open(uri: TomboloPath, fs: *mut *mut TomboloFs) -> Given {
    status_of(|| {
        // SAFETY: the shim hands over a string, and the address of a pointer.
        let uri = unsafe { uri.get() };
        let opened = Box::new(TomboloFs(Fs::of(uri)?));
        unsafe { give(fs, Box::into_raw(opened)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_free(fs: *mut TomboloFs) {
    // SAFETY: it came from `tombolo_fs_open`, and is freed once.
    drop(unsafe { Box::from_raw(fs) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_info_directory(fs: &TomboloFs) -> TomboloPath {
    use std::os::unix::ffi::OsStrExt;
    let bytes = fs.0.info_directory.as_os_str().as_bytes();
    TomboloPath { bytes: bytes.as_ptr(), length: bytes.len() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_open(
    fs: &TomboloFs,
    path: TomboloPath,
    how: i32,
    file: *mut *mut TomboloFile,
) -> Given {
    status_of(|| {
        // SAFETY: the shim hands over a string, and the address of a pointer.
        let path = unsafe { path.get() };
        let env = &fs.0.env;
        let (files, opened) = match how {
            0 => {
                let files = fs.0.there(path)?;
                let opened = files.open(path)?;
                (files, opened)
            }
            1 => {
                let files = fs.0.door.mounted()?;
                let opened = env.block_on(files.create(path))?;
                (files, opened)
            }
            _ => {
                let files = fs.0.door.mounted()?;
                let opened = env.block_on(files.open_or_create(path))?;
                (files, opened)
            }
        };
        let opened = Box::new(TomboloFile { env: env.clone(), files, file: opened, ahead: Ahead::default() });
        // SAFETY: as above.
        unsafe { give(file, Box::into_raw(opened)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_free(file: *mut TomboloFile) {
    // SAFETY: it came from `tombolo_fs_file_open`, and is freed once.
    drop(unsafe { Box::from_raw(file) });
}

/// # Safety
/// `to` has room for `length` bytes, `got` for the answer.
unsafe fn copy(
    bytes: &[u8],
    requests: usize,
    to: *mut u8,
    length: usize,
    got: *mut TomboloGot,
) -> Result<()> {
    if bytes.len() > length {
        return Err(Error::new(ErrorKind::Bug, "a read gave more than was asked for"));
    }
    // SAFETY: as the caller promises, and it is enough.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        give(got, TomboloGot { bytes: bytes.len(), requests });
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_read(
    file: &TomboloFile,
    at: u64,
    to: *mut u8,
    length: usize,
    ask: TomboloAsk,
    got: *mut TomboloGot,
) -> Given {
    status_of(|| {
        let read = file.ahead.read(&file.files, &file.file, at, length as u64, ask.get());
        let (bytes, requests) = file.env.block_on(read)?;
        // SAFETY: the shim has a buffer of so many bytes, and a place for the answer.
        unsafe { copy(&bytes, requests, to, length, got) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_prefetch(
    file: &TomboloFile,
    at: u64,
    length: usize,
    ask: TomboloAsk,
    has_room: *mut i32,
) -> Given {
    status_of(|| {
        let begun = file.ahead.begin(&file.files, &file.file, at, length as u64, ask.get());
        // SAFETY: the shim has a number.
        unsafe { give(has_room, i32::from(begun)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_read_begin(
    file: &TomboloFile,
    at: u64,
    length: usize,
    ask: TomboloAsk,
) -> *mut TomboloReading {
    let reading = file.files.begin_read_as(&file.file, at, length as u64, ask.get());
    Box::into_raw(Box::new(TomboloReading { env: file.env.clone(), reading }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_read_end(
    reading: *mut TomboloReading,
    to: *mut u8,
    length: usize,
    got: *mut TomboloGot,
) -> Given {
    status_of(|| {
        // SAFETY: it came from `tombolo_fs_file_read_begin`, and is ended once.
        let TomboloReading { env, reading } = *unsafe { Box::from_raw(reading) };
        let requests = reading.requests();
        let bytes = env.block_on(reading.end())?;
        // SAFETY: the shim has a buffer of so many bytes, and a place for the answer.
        unsafe { copy(&bytes, requests, to, length, got) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_read_free(reading: *mut TomboloReading) {
    // SAFETY: it came from `tombolo_fs_file_read_begin`, and is freed once.
    drop(unsafe { Box::from_raw(reading) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_append(file: &TomboloFile, bytes: *const u8, length: usize) -> Given {
    status_of(|| {
        // SAFETY: the shim hands over so many bytes.
        let bytes = unsafe { TomboloPath { bytes, length }.get() };
        file.env.block_on(file.files.append(&file.file, bytes))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_flush(file: &TomboloFile) -> Given {
    status_of(|| file.env.block_on(file.files.flush(&file.file)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_sync(file: &TomboloFile) -> Given {
    status_of(|| file.env.block_on(file.files.sync(&file.file)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_finish(file: &TomboloFile) -> Given {
    status_of(|| file.env.block_on(file.files.finish(&file.file)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_truncate(file: &TomboloFile, size: u64) -> Given {
    status_of(|| file.env.block_on(file.files.truncate(&file.file, size)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_hint(file: &TomboloFile, life: i32, priority: i32) {
    file.file.hint(Hints { life: life_of(life), priority: priority_of(priority) });
}

/// Its size, and whether it lies in a lane of the log.
#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_file_facts(file: &TomboloFile, size: *mut u64, is_in_lane: *mut i32) {
    let is_lane = matches!(file.file.kind(), FileKind::Log | FileKind::Manifest);
    // SAFETY: the shim has two numbers.
    unsafe {
        give(size, file.file.size());
        give(is_in_lane, i32::from(is_lane));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_free_space(fs: &TomboloFs, bytes: *mut u64) -> Given {
    status_of(|| {
        let free = space::free_space(&fs.0.env, &fs.0.store)?;
        // SAFETY: the shim has a number.
        unsafe { give(bytes, free) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_exists(fs: &TomboloFs, path: TomboloPath, exists: *mut i32) -> Given {
    status_of(|| {
        // SAFETY: the shim hands over a string, and a number.
        let path = unsafe { path.get() };
        let found = fs.0.look()?.is_some_and(|files| files.exists(path)) || fs.0.door.is_directory(path)?;
        unsafe { give(exists, i32::from(found)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_is_directory(fs: &TomboloFs, path: TomboloPath, is: *mut i32) -> Given {
    status_of(|| {
        // SAFETY: the shim hands over a string, and a number.
        let found = fs.0.door.is_directory(unsafe { path.get() })?;
        unsafe { give(is, i32::from(found)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_list(
    fs: &TomboloFs,
    path: TomboloPath,
    to: *mut c_void,
    each: unsafe extern "C" fn(*mut c_void, *const u8, usize),
) -> Given {
    status_of(|| {
        // SAFETY: the shim hands over a string.
        let path = unsafe { path.get() };
        let listed = match fs.0.there(path).and_then(|files| files.list(path)) {
            // One that is made with the lock is empty.
            Err(error) if error.kind() == ErrorKind::NotFound && fs.0.door.is_directory(path)? => Vec::new(),
            listed => listed?,
        };
        for (name, _) in listed {
            // SAFETY: the shim copies the name.
            unsafe { each(to, name.as_ptr(), name.len()) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_delete(fs: &TomboloFs, path: TomboloPath) -> Given {
    // SAFETY: the shim hands over a string.
    status_of(|| fs.0.env.block_on(fs.0.door.mounted()?.delete(unsafe { path.get() })))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_create_directory(fs: &TomboloFs, path: TomboloPath) -> Given {
    // SAFETY: the shim hands over a string.
    status_of(|| fs.0.door.create_directory(unsafe { path.get() }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_delete_directory(fs: &TomboloFs, path: TomboloPath) -> Given {
    // SAFETY: the shim hands over a string.
    status_of(|| fs.0.door.delete_directory(unsafe { path.get() }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_look(fs: &TomboloFs, path: TomboloPath, facts: *mut [u64; 3]) -> Given {
    status_of(|| {
        // SAFETY: the shim hands over a string, and three numbers.
        let found = fs.0.facts(unsafe { path.get() })?;
        unsafe { give(facts, found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_are_same(
    fs: &TomboloFs,
    one: TomboloPath,
    other: TomboloPath,
    same: *mut i32,
) -> Given {
    status_of(|| {
        // SAFETY: the shim hands over strings, and a number.
        let are_same = fs.0.are_same(unsafe { one.get() }, unsafe { other.get() })?;
        unsafe { give(same, i32::from(are_same)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_rename(fs: &TomboloFs, from: TomboloPath, to: TomboloPath) -> Given {
    // SAFETY: the shim hands over strings.
    let (from, to) = unsafe { (from.get(), to.get()) };
    status_of(|| fs.0.env.block_on(fs.0.door.mounted()?.rename(from, to)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_link(fs: &TomboloFs, from: TomboloPath, to: TomboloPath) -> Given {
    // SAFETY: the shim hands over strings.
    let (from, to) = unsafe { (from.get(), to.get()) };
    status_of(|| fs.0.env.block_on(fs.0.door.mounted()?.link(from, to)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_lock(fs: &TomboloFs, path: TomboloPath) -> Given {
    // SAFETY: the shim hands over a string.
    status_of(|| fs.0.door.lock(unsafe { path.get() }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_unlock(fs: &TomboloFs, path: TomboloPath) -> Given {
    // SAFETY: the shim hands over a string.
    status_of(|| fs.0.door.unlock(unsafe { path.get() }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn tombolo_fs_sync_names(fs: &TomboloFs) -> Given {
    status_of(|| fs.0.env.block_on(fs.0.door.mounted()?.sync_names()))
}

#[cfg(test)]
mod tests;
