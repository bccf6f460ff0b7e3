//! The database of a process: opened with the first call that needs it, synced when the process
//! ends.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tombolo::{Builder, Db, Env, Error, ErrorKind, Registry};

use super::placeholder::{self, Found};
use super::settings::Settings;
use super::{Errno, Outcome, guard, report};
use crate::files::{File, Files, OpenHow};

/// Exit code when the environment is wrong: that of a configuration error in `sysexits.h`.
pub const CONFIGURATION_EXIT_CODE: i32 = 78;
/// The name, no path, of the row's file whose content is the id of the files.
const ID_NAME: &[u8] = b"id";
/// Names, no paths, of files that are being taken over from the disk begin with it.
pub const TAKING_OVER: &[u8] = b"taking-over:";
/// Mode of a placeholder that a process finds missing: its first maker had its own.
const MODE: u32 = 0o644;
/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static MOUNTED: OnceLock<Mounted> = OnceLock::new();
/// Held by the thread that mounts.
static MOUNTING: Mutex<()> = Mutex::new(());
/// Held while a file is taken over from the disk, or a placeholder put right.
static TAKING: Mutex<()> = Mutex::new(());
/// Whether this process was told what the disk says while another had the files open.
static IS_BESIDE: AtomicBool = AtomicBool::new(false);
/// Whether a process that is forked now has a mount in it, or half of one.
static HAS_MOUNT: AtomicBool = AtomicBool::new(false);
static IN_FORK: AtomicBool = AtomicBool::new(false);
/// The process whose memory this is; 0 before the library was loaded whole.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Descriptor of the lock that tells other processes of the host; -1 for none.
static LOCK: AtomicI32 = AtomicI32::new(-1);

/// The open database with its files.
#[derive(Debug)]
pub struct Mounted {
    /// The files.
    pub files: Files,
    /// What tells these files' placeholders from others'.
    pub id: u128,
    /// URI of the store, for messages and placeholders.
    pub store: String,
    env: Env,
    /// When what a file holds was last seen to have changed, by its id: as of how many changes.
    times: Mutex<BTreeMap<u64, (u64, SystemTime)>>,
    _lock: UnixListener,
}

/// Reads the environment, once, when the library is loaded.
///
/// # Errors
/// The fault in the settings, for the person who started the program.
pub fn configure() -> Result<(), String> {
    let settings = Settings::read(|name| std::env::var_os(name))?;
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    let _first = SETTINGS.set(settings);
    Ok(())
}

/// What the environment says; `None` before the library was loaded whole.
#[inline]
pub fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Whether this process was forked from one that had the database open, or runs in another's
/// memory. Costs a system call.
pub fn is_in_fork() -> bool {
    IN_FORK.load(Ordering::Relaxed) || borrows_memory()
}

/// Whether this process runs in the memory of another, as a child of `vfork` does until it starts
/// its program: its memory is not its own, and a database that it opened would be closed with it.
/// Also in a child that was made past the C library, which cannot be told from it.
pub fn borrows_memory() -> bool {
    let process = PROCESS.load(Ordering::Relaxed);
    process != 0 && process != std::process::id()
}

/// Whether the database is still to be opened, and this process may do it.
pub fn is_ahead() -> bool {
    MOUNTED.get().is_none() && !is_in_fork()
}

/// Runs in a forked child, before anything else of it: no locks, no memory is allocated.
///
/// Says which descriptor the child has to close, if any: with it open, the child would hold the
/// lock of a process that has ended.
pub fn forked() -> Option<i32> {
    if HAS_MOUNT.load(Ordering::Relaxed) {
        IN_FORK.store(true, Ordering::Relaxed);
    }
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    let lock = LOCK.swap(-1, Ordering::Relaxed);
    (lock >= 0).then_some(lock)
}

/// The files; opens the database when this is the first call that needs it. Call it while serving
/// ([`guard`]).
///
/// # Errors
/// `EIO` in a forked child; `EBUSY` while another process of this host has the database open, and
/// for good after [`mounted_or_beside`] said so; those of opening.
pub fn mounted() -> Outcome<&'static Mounted> {
    mounted_or(|| ())
}

/// As [`mounted`], for who is content with what the disk says while another process has the files
/// open: `None` then, and from then on this process does not open the database. It was told that
/// something is missing which the database may have, and might put new files in its place once
/// nobody else has the files open.
///
/// # Errors
/// As [`mounted`], but for `EBUSY`.
pub fn mounted_or_beside() -> Outcome<Option<&'static Mounted>> {
    match mounted_or(|| IS_BESIDE.store(true, Ordering::Relaxed)) {
        Err(Errno(libc::EBUSY)) => Ok(None),
        mounted => mounted.map(Some),
    }
}

/// `beside` runs before another thread tries it, if another process has the files open.
fn mounted_or(beside: impl FnOnce()) -> Outcome<&'static Mounted> {
    if is_in_fork() {
        report("a process that was forked by the one with the files open cannot use them: it gets EIO");
        return Err(Errno(libc::EIO));
    }
    if let Some(mounted) = MOUNTED.get() {
        return Ok(mounted);
    }
    let settings = settings().ok_or(Errno(libc::EIO))?;
    let _turn = MOUNTING.lock();
    if IS_BESIDE.load(Ordering::Relaxed) {
        report(
            "this process has looked for files while another one had them open: it gets EBUSY for them \
            until it is started again",
        );
        return Err(Errno(libc::EBUSY));
    }
    if MOUNTED.get().is_none() {
        HAS_MOUNT.store(true, Ordering::Relaxed);
        let mounted = Mounted::open(settings).inspect_err(|error| {
            HAS_MOUNT.store(false, Ordering::Relaxed);
            if *error == Errno(libc::EBUSY) {
                beside();
            }
        })?;
        let _only = MOUNTED.set(mounted);
    }
    MOUNTED.get().ok_or(Errno(libc::EIO))
}

/// The files, if they are open in this very process. Costs a system call once they are.
pub fn already() -> Option<&'static Mounted> {
    MOUNTED.get().filter(|_| !is_in_fork())
}

/// Whether `descriptor` is one of the database's own, which a program that closes or replaces what
/// it has not opened would take from it.
pub fn is_own(descriptor: i32) -> bool {
    if already().is_none() || guard::is_serving() {
        return false;
    }
    let is_within = |path: PathBuf| settings().is_some_and(|settings| settings.patterns.is_excluded(&path));
    let own = descriptor == LOCK.load(Ordering::Relaxed)
        || (descriptor > 2
            && guard::serving(|| {
                std::fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok_and(is_within)
            }));
    if own {
        report(
            "the program closes or replaces a descriptor that it has not opened and that the database uses: \
            that is refused",
        );
    }
    own
}

/// Makes durable what was written, when the process ends by itself. On a thread of its own: the
/// calling one has lost its thread-locals already. First it runs `flush`, whose calls are served.
pub fn ended(flush: impl FnOnce() + Send + 'static) {
    let Some(mounted) = already() else { return };
    if guard::is_serving() {
        // What it holds would be waited for, and never be released.
        report(
            "what was not synced before the end may be lost: a signal handler has ended the program within \
            a call on its files",
        );
        return;
    }
    let sync = move || {
        flush();
        let _serving = guard::enter();
        if mounted.files.failure().is_none()
            && let Err(error) = mounted.files.sync()
        {
            report(&format!("what was not synced before the end may be lost: {error}"));
        }
    };
    match std::thread::Builder::new().name("tombolo-end".into()).spawn(sync) {
        Ok(thread) => drop(thread.join()),
        Err(error) => report(&format!(
            "what was not synced before the end may be lost: no thread could be started: {error}"
        )),
    }
}

impl Mounted {
    fn open(settings: &Settings) -> Outcome<Mounted> {
        let lock = lock(&settings.store).map_err(|error| {
            if error.kind() != io::ErrorKind::AddrInUse {
                report(&format!("the files of {} cannot be locked: {error}", settings.store));
                return error.into();
            }
            report(&format!(
                "another process of this host has the files of {} open, or is forked from one: one at a \
                time may ({error})",
                settings.store
            ));
            Errno(libc::EBUSY)
        })?;
        LOCK.store(lock.as_raw_fd(), Ordering::Relaxed);
        let env = Env::real();
        let mut registry = Registry::with_defaults();
        // A secret comes with the URI (`secret_file`): the environment of these programs is handed
        // on to others.
        tombolo_near_compute_log::register(&mut registry, Ok(None));
        let mut builder = Db::builder(settings.store.clone())
            .env(env.clone())
            .registry(registry)
            .options(settings.options.clone());
        if let Some(log) = &settings.log {
            builder = builder.log(log.clone());
        }
        let (files, id) = open(&env, builder, settings.file_memory_bytes)
            .inspect_err(|_| LOCK.store(-1, Ordering::Relaxed))?;
        let mounted =
            Mounted { files, id, store: settings.store.clone(), env, times: Mutex::default(), _lock: lock };
        mounted.place_all(settings);
        Ok(mounted)
    }

    /// Opens a file, waiting for what the database has of it.
    ///
    /// # Errors
    /// As [`Files::open`].
    pub fn open_file(&self, path: &[u8], how: OpenHow) -> tombolo::Result<Arc<File>> {
        self.files.begun(|| self.env.block_on(self.files.open(path, how)))
    }

    /// Deletes the rows of files without a name.
    ///
    /// # Errors
    /// As [`Files::delete_leftovers`].
    pub fn delete_leftovers(&self) -> tombolo::Result<()> {
        self.files.begun(|| self.env.block_on(self.files.delete_leftovers()))
    }

    /// When the content of the file was last seen to change: since the last call, if it has.
    pub fn modified(&self, file: &File) -> Option<SystemTime> {
        let changes = file.changes();
        let mut times = self.times.lock();
        match times.get(&file.id()) {
            Some((seen, time)) if *seen == changes => Some(*time),
            None if changes == 0 => None,
            _ => {
                let now = SystemTime::UNIX_EPOCH + self.env.unix_time();
                times.insert(file.id(), (changes, now));
                Some(now)
            }
        }
    }

    /// Whether `path` is a directory in which files of the database are.
    pub fn is_directory_of_files(&self, path: &Path) -> bool {
        let mut prefix = path.as_os_str().as_bytes().to_vec();
        if prefix.last() != Some(&b'/') {
            prefix.push(b'/');
        }
        let plain = settings()
            .is_some_and(|settings| settings.patterns.plain_directories().any(|directory| directory == path));
        plain || self.files.has_paths_in(&prefix)
    }

    /// Puts a placeholder where nothing is, open for reading and writing; `None` when another
    /// thread was first. Waits for no file that is taken over meanwhile, unless the file system
    /// shows placeholders that are half written: such a one looks like a file to be taken over.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn make(&self, path: &Path, mode: u32) -> Outcome<Option<OwnedFd>> {
        let made = match placeholder::create(path, self.id, &self.store, mode) {
            Ok(Some(made)) => Ok(made),
            Ok(None) => {
                let _turn = TAKING.lock();
                placeholder::create_in_steps(path, self.id, &self.store, mode)
            }
            Err(error) => Err(error),
        };
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            made => Ok(Some(made?.into())),
        }
    }

    /// Makes sure that a placeholder is at `path`, where the files have a file: of mode `mode` if
    /// nothing is there.
    ///
    /// # Errors
    /// `EIO` when something else is there; those of the operating system.
    pub fn place(&self, path: &Path, mode: u32) -> Outcome<()> {
        match placeholder::look(path)? {
            Found::Placeholder(id) if id == self.id => return Ok(()),
            Found::Nothing => return self.make(path, mode).map(drop),
            _ => {}
        }
        // Another thread may be about to put it there.
        let _turn = TAKING.lock();
        match placeholder::look(path)? {
            Found::Placeholder(id) if id == self.id => Ok(()),
            Found::Nothing => match placeholder::create(path, self.id, &self.store, mode) {
                Ok(Some(_)) => Ok(()),
                Ok(None) => Ok(placeholder::create_in_steps(path, self.id, &self.store, mode).map(drop)?),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(error.into()),
            },
            Found::Placeholder(_) => {
                report(&format!(
                    "{} stands for a file of another database than {}: move it away",
                    path.display(),
                    self.store
                ));
                Err(Errno(libc::EIO))
            }
            Found::Ordinary
                if placeholder::is_unfinished(path, self.id, &self.store)? || self.is_copy(path)? =>
            {
                let mode = std::fs::metadata(path)?.permissions().mode() & 0o7777;
                Ok(placeholder::replace(path, self.id, &self.store, mode)?)
            }
            Found::Ordinary | Found::Link | Found::Special => {
                let store = &self.store;
                report(&format!(
                    "{} is in the database at {store}, and another file is on the disk under that name: \
                    move one of them away",
                    path.display()
                ));
                Err(Errno(libc::EIO))
            }
        }
    }

    /// Whether the file on the disk is the one in the database: then the process ended when it had
    /// just been taken over.
    fn is_copy(&self, path: &Path) -> Outcome<bool> {
        let file = self.open_file(path.as_os_str().as_bytes(), OpenHow::default())?;
        let mut disk = std::fs::File::open(path)?;
        if disk.metadata()?.len() != file.size()? {
            return Ok(false);
        }
        let (mut ours, mut theirs, mut offset) = (vec![0; COPY_BYTES], Vec::new(), 0);
        loop {
            theirs.clear();
            (&mut disk).take(COPY_BYTES as u64).read_to_end(&mut theirs)?;
            let read = file.read(offset, &mut ours)?;
            if ours[..read] != theirs[..] {
                return Ok(false);
            }
            if read == 0 {
                return Ok(true);
            }
            offset += read as u64;
        }
    }

    /// Takes the file at `source` on the disk over, as `path`: all of it is durable in the database
    /// before anything is changed on the disk, where a placeholder takes the place of `path`. The
    /// caller removes `source` if it is another file.
    ///
    /// # Errors
    /// `EBUSY` while this process has the file on the disk open for writing; those of the files and
    /// of the operating system: the file on the disk is as it was.
    pub fn take_over(&self, source: &Path, path: &Path) -> Outcome<()> {
        let _turn = TAKING.lock();
        let is_placeholder =
            || placeholder::look(path).is_ok_and(|found| found == Found::Placeholder(self.id));
        if source == path && is_placeholder() {
            // Another thread has taken it over, or has just made it.
            return Ok(());
        }
        let metadata = std::fs::metadata(source)?;
        if is_open_here(&metadata)? {
            report(&format!(
                "{} cannot be taken over from the disk while the program has it open: what it writes there \
                later would be lost",
                source.display()
            ));
            return Err(Errno(libc::EBUSY));
        }
        let name = [TAKING_OVER, path.as_os_str().as_bytes()].concat();
        let taken = self.copy_over(source, path, &name);
        if taken.is_err() && self.files.exists(&name) {
            // So that the next call can try it again. What stays is dropped when the files are
            // opened again.
            let _dropped =
                self.files.begun(|| self.files.begin_unlink(&name)).and_then(|op| self.files.settle(op));
        }
        let taken = taken?;
        placeholder::replace(path, self.id, &self.store, metadata.permissions().mode() & 0o7777)?;
        report(&format!(
            "{} was taken over from the disk, {taken} bytes, into {}",
            path.display(),
            self.store
        ));
        Ok(())
    }

    /// Copies `source` to the file `name`, and gives that the name `path` when it is whole; durable
    /// then. Says how many bytes there were.
    fn copy_over(&self, source: &Path, path: &Path, name: &[u8]) -> Outcome<u64> {
        let mut disk = std::fs::File::open(source)?;
        let file = self.open_file(name, OpenHow { create: true, exclusive: true })?;
        let (mut bytes, mut offset) = (Vec::new(), 0);
        loop {
            bytes.clear();
            if (&mut disk).take(COPY_BYTES as u64).read_to_end(&mut bytes)? == 0 {
                break;
            }
            self.files.write(&file, offset, &bytes)?;
            offset += bytes.len() as u64;
        }
        self.files
            .settle(self.files.begun(|| self.files.begin_rename(name, path.as_os_str().as_bytes()))?)?;
        self.files.sync()?;
        self.delete_leftovers()?;
        Ok(offset)
    }

    /// Puts placeholders where they are missing, as after the loss of a disk or on another machine,
    /// and takes away those whose files are gone.
    fn place_all(&self, settings: &Settings) {
        let paths = self.files.paths();
        let paths = paths
            .iter()
            .map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path)))
            .filter(|path| path.is_absolute());
        let mut directories: Vec<PathBuf> = settings.patterns.plain_directories().collect();
        for path in paths {
            let Some(directory) = path.parent() else { continue };
            // What stands in the way is told when the file is opened.
            let _made = std::fs::create_dir_all(directory);
            let _placed = self.make(&path, MODE);
            directories.push(directory.to_path_buf());
        }
        directories.sort();
        directories.dedup();
        for directory in directories {
            let Ok(entries) = std::fs::read_dir(&directory) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                let is_gone =
                    settings.patterns.matches(&path) && !self.files.exists(path.as_os_str().as_bytes());
                if is_gone && placeholder::look(&path).is_ok_and(|found| found == Found::Placeholder(self.id))
                {
                    let _removed = std::fs::remove_file(&path);
                }
            }
        }
    }
}

/// Whether a descriptor of this process, through which it can write, leads to the file on the disk
/// that `metadata` is of. Those that only read, as this library's own do when another thread looks
/// what the file is, lose nothing.
fn is_open_here(metadata: &std::fs::Metadata) -> io::Result<bool> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // One that was closed meanwhile leads nowhere.
        let same = |open: std::fs::Metadata| (open.dev(), open.ino()) == (metadata.dev(), metadata.ino());
        if std::fs::metadata(entry.path()).is_ok_and(same) && may_write(&entry.file_name()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the descriptor of that number is open for writing, or nobody knows.
fn may_write(number: &std::ffi::OsStr) -> bool {
    let Ok(info) = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(number)) else { return false };
    let flags =
        info.lines().find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_none_or(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// One process of a host at a time: a second one would fence the first, and be fenced by it. The
/// kernel frees the name with the process.
fn lock(store: &str) -> io::Result<UnixListener> {
    let mut hasher = DefaultHasher::new();
    store.split('?').next().hash(&mut hasher);
    let name = format!("tombolo-preload-{:016x}", hasher.finish());
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn open(env: &Env, builder: Builder, file_memory_bytes: u64) -> tombolo::Result<(Files, u128)> {
    let db = builder.open().wait()?;
    let files = env.block_on(Files::mount(db, file_memory_bytes))?;
    let id = id_of(&files, env)?;
    drop_unfinished(&files)?;
    Ok((files, id))
}

/// The random id that the files were given when they were first mounted.
fn id_of(files: &Files, env: &Env) -> tombolo::Result<u128> {
    let file = env.block_on(files.open(ID_NAME, OpenHow { create: true, exclusive: false }))?;
    let mut bytes = [0; 16];
    match file.read(0, &mut bytes)? {
        16 => Ok(u128::from_le_bytes(bytes)),
        0 => {
            let id = (u128::from(env.random_u64()) << 64) | u128::from(env.random_u64());
            files.write(&file, 0, &id.to_le_bytes())?;
            files.sync()?;
            Ok(id)
        }
        length => Err(Error::new(ErrorKind::Corrupt, "the id of the files is damaged")
            .expected("16 bytes")
            .found(format!("{length} bytes"))),
    }
}

/// Deletes what was being taken over from the disk when a process ended: the disk has it still.
fn drop_unfinished(files: &Files) -> tombolo::Result<()> {
    for path in files.paths().iter().filter(|path| path.starts_with(TAKING_OVER)) {
        files.settle(files.begin_unlink(path)?)?;
    }
    Ok(())
}

/// Seconds and nanoseconds since 1970.
pub fn unix_time(time: SystemTime) -> (i64, i64) {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()))
}

#[cfg(test)]
mod tests;
