//! The simulated world: one thread, virtual time, disks that lose unsynced data, processes
//! that die and pause.
//!
//! # Guide for tests
//!
//! A [`World`] has hosts, each with a disk and a boot identity, and processes on them. A
//! [`Process`] derefs to the [`Env`] that the code under test gets. Keep the world alive: when its
//! last handle goes, all its processes end. Move [`Process::env`] into tasks, never a [`Process`]
//! or a [`World`]: these would keep the world in memory for ever.
//!
//! ```
//! use std::path::Path;
//! use tombolo_env::simulated::{Crash, World};
//! use tombolo_env::{Access, Env};
//!
//! async fn write_and_sync(env: Env) -> std::io::Result<()> {
//!     env.files().create_directories(Path::new("/data"))?;
//!     let file = env.files().create_new(Path::new("/data/file"))?;
//!     file.write_all_at(b"hello", 0)?;
//!     env.yield_now().await;
//!     file.sync_data()?;
//!     env.files().sync_directory(Path::new("/data"))
//! }
//!
//! // How many operations does it make? Then crash at each of them in a fresh world.
//! let world = World::new(1);
//! let process = world.process("writer");
//! process.run(write_and_sync(process.env())).unwrap().unwrap();
//! for number in 1..=process.operations() {
//!     let world = World::new(number);
//!     let writer = world.process("writer");
//!     writer.crash_at(number, Crash::PowerLoss);
//!     assert!(writer.run(write_and_sync(writer.env())).is_none(), "the process has ended before the future did");
//!     // The same disk after the power came back.
//!     let reader = world.process("reader");
//!     if let Ok(file) = reader.files().open(Path::new("/data/file"), Access::Read) {
//!         assert!(file.length().unwrap() <= 5);
//!     }
//! }
//! ```
//!
//! - **Running.** [`Process::run`] runs a future as a task of the process and returns `None` when
//!   the process ended first: the way to run code that may crash. `env.block_on` (every `.wait()`)
//!   outside tasks runs the whole world until its future is ready; when nothing can run and no
//!   timer is set, it panics with the recent history. [`World::run_until`], [`World::run_for`] and
//!   [`World::run_until_idle`] drive the world without a process.
//! - **Acknowledgements count only while the process lives**: calls through mappings return
//!   nothing, so code goes on to the end of its poll after the process has ended. Check
//!   [`Process::is_alive`] where an acknowledgement is noted.
//! - **Interleaving.** Between polls tasks are picked by chance. Within a poll, every disk
//!   operation and every `env.preemption_point()` may let tasks of *other* processes run. So never
//!   hold a lock that several simulated processes share across such a point.
//! - **Faults.** [`World::inject`] takes a condition on operations and an [`Action`];
//!   [`Process::crash_at`], [`Process::fail_at`], [`Process::stall_at`] and [`Process::call_at`]
//!   are short for the n-th operation of a process. [`Process::kill`], [`Process::pause`] and
//!   [`Host::power_loss`] act at once. [`Host`] also fills, protects and damages the disk.
//! - **Network.** A host's name is its address (`host-1:7000`); port 0 picks one.
//!   [`World::partition`], [`World::heal`], [`World::reset_connections`] and
//!   [`World::set_network_delay`] shape it.
//! - **Determinism.** The same seed gives the same history as long as the code under test asks only
//!   its `Env`. Iterating a std `HashMap` in an order that matters breaks this. [`World::digest`]
//!   tells two histories apart; [`World::trace`] shows the last events.
//! - **A panic in a task** ends the test, unless [`World::set_panics_propagate`] says otherwise.

mod disk;
mod fault;
mod files;
mod network;
mod platform;
mod random;
mod scheduler;
mod state;
pub mod tape;
mod trace;
mod wire;

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

pub use fault::{Action, Crash, Fault, Operation, OperationKind, is_crash};

use crate::{Env, FileSystemKind, Instant, TaskClass, completion};
use disk::Disk;
use platform::SimulatedPlatform;
use scheduler::Shared;
use state::{HostState, ProcessState, State};

/// Number of a process in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u32);

/// Number of a host in its world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// Ends the world when the last handle goes: tasks hold handles of the inside, so they must be
/// dropped from outside.
pub(crate) struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A simulated world. Clones are handles of the same world.
#[derive(Clone)]
pub struct World(Arc<Owner>);

impl fmt::Debug for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        formatter
            .debug_struct("World")
            .field("seed", &state.seed)
            .field("now", &state.now)
            .finish_non_exhaustive()
    }
}

impl World {
    /// A world with one host, `host-0`, whose history follows from `seed`.
    pub fn new(seed: u64) -> World {
        let owner = Arc::new_cyclic(|owner| {
            Owner(Arc::new(Shared { state: Mutex::new(State::new(seed)), owner: owner.clone() }))
        });
        let world = World(owner);
        world.add_host("host-0");
        world
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.0.0.state.lock()
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.state().seed
    }

    /// Adds a host with an empty disk.
    pub fn add_host(&self, name: &str) -> Host {
        let mut state = self.state();
        let boot_id = state.boot_id();
        let id = HostId(u32::try_from(state.hosts.len()).unwrap_or(u32::MAX));
        state.hosts.push(HostState {
            name: name.to_owned(),
            disk: Disk::new(),
            boot_id,
            boot: 0,
            unix_offset_nanos: 0,
        });
        Host { world: self.clone(), id }
    }

    /// A host by number; 0 is there from the beginning.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn host(&self, number: u32) -> Host {
        assert!((number as usize) < self.state().hosts.len(), "the world has no host {number}");
        Host { world: self.clone(), id: HostId(number) }
    }

    /// Starts a process on host 0.
    pub fn process(&self, name: &str) -> Process {
        self.host(0).process(name)
    }

    /// Virtual monotonic time.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.state().now)
    }

    /// Disk operations of all processes so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// A number that differs when two histories differ.
    pub fn digest(&self) -> u64 {
        self.state().trace.digest()
    }

    /// The last events as text, oldest first.
    pub fn trace(&self) -> Vec<String> {
        self.state().trace.lines()
    }

    /// Adds a line to the trace, as a landmark.
    pub fn note(&self, note: &str) {
        self.state().note(note.to_owned());
    }

    /// Adds a line to the notes of a history that is played from a [`tape`], and to nothing
    /// otherwise.
    pub fn say(&self, words: impl FnOnce() -> String) {
        tape::note(|| trace::line(self.now().as_nanos(), words()));
    }

    /// How often (0 to 1, by default 0.05) other processes run at a preemption point or disk
    /// operation.
    pub fn set_preemption_probability(&self, probability: f64) {
        self.state().preemption = probability;
    }

    /// How often (0 to 1, by default 0.05) the kernel writes something back at a disk operation.
    pub fn set_write_back_probability(&self, probability: f64) {
        self.state().write_back = probability;
    }

    /// Whether a panic in a task ends the test (the default), or only the task, as for real.
    pub fn set_panics_propagate(&self, propagate: bool) {
        self.state().panics_propagate = propagate;
    }

    /// Polls after which the world is taken to run in circles; 50 million by default.
    pub fn set_steps_max(&self, steps_max: u64) {
        self.state().steps_max = steps_max;
    }

    /// Adds a fault for operations of any process.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        let faults = std::mem::take(&mut self.state().faults);
        drop(faults);
    }

    /// Time that a piece of bytes is under way between processes; by default 20 to 500 µs.
    pub fn set_network_delay(&self, min: Duration, max: Duration) {
        self.state().network.set_delay(min, max);
    }

    /// Cuts the network between two hosts, both ways: nothing arrives until [`World::heal`],
    /// connecting times out after 20 s.
    pub fn partition(&self, one: &Host, other: &Host) {
        self.partition_one_way(one, other);
        self.partition_one_way(other, one);
    }

    /// Cuts the way from one host to another.
    pub fn partition_one_way(&self, from: &Host, to: &Host) {
        self.state().network.cut(from.id, to.id);
    }

    /// Undoes [`World::partition`]; messages under way arrive.
    pub fn heal(&self, one: &Host, other: &Host) {
        let mut wakers = Vec::new();
        {
            let mut state = self.state();
            let now = state.now;
            wakers.extend(state.network.heal(one.id, other.id, now));
            wakers.extend(state.network.heal(other.id, one.id, now));
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Resets all connections between two hosts at once; messages under way are lost.
    pub fn reset_connections(&self, one: &Host, other: &Host) {
        let wakers = {
            let mut state = self.state();
            let now = state.now;
            state.network.reset(one.id, other.id, now)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Runs the world until `future` is ready.
    ///
    /// # Panics
    /// Inside a task; and when nothing can run any more, with the recent history.
    pub fn run_until<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        match self.run_until_deadline(future, None) {
            Some(value) => value,
            None => unreachable!("without a deadline only the result ends the run"),
        }
    }

    /// As [`World::run_until`], for at most `duration` of virtual time; `None` when the future was
    /// not ready by then.
    pub fn run_until_timeout<T: Send>(
        &self,
        future: impl Future<Output = T> + Send,
        duration: Duration,
    ) -> Option<T> {
        self.run_until_deadline(future, Some(self.now() + duration))
    }

    fn run_until_deadline<T: Send>(
        &self,
        future: impl Future<Output = T> + Send,
        deadline: Option<Instant>,
    ) -> Option<T> {
        let mut result = None;
        {
            let mut driven = pin!(async { result = Some(future.await) });
            self.0.0.drive(None, driven.as_mut(), deadline);
        }
        result
    }

    /// Runs tasks until none is ready to run; timers that are not due stay.
    pub fn run_until_idle(&self) {
        self.0.0.run_until_idle();
    }

    /// Runs the world for some virtual time.
    pub fn run_for(&self, duration: Duration) {
        self.0.0.run_for(duration);
    }
}

/// An image of a disk.
#[derive(Clone, Debug)]
pub struct DiskImage(Disk);

/// A host: a disk, a boot identity, a wall clock.
#[derive(Clone, Debug)]
pub struct Host {
    world: World,
    id: HostId,
}

impl Host {
    /// Its number.
    pub fn id(&self) -> HostId {
        self.id
    }

    /// Its name, which is also its address in the network.
    pub fn name(&self) -> String {
        self.with(|host| host.name.clone())
    }

    /// Starts a process here.
    pub fn process(&self, name: &str) -> Process {
        let mut state = self.world.state();
        let id = ProcessId(u32::try_from(state.processes.len()).unwrap_or(u32::MAX));
        state.processes.push(ProcessState {
            name: name.to_owned(),
            host: self.id,
            alive: true,
            paused: false,
            operations: 0,
            mutations: 0,
            tasks: std::collections::BTreeMap::new(),
            stores: std::collections::VecDeque::new(),
            bells: Arc::default(),
        });
        drop(state);
        let env = Env::new(Arc::new(SimulatedPlatform::new(Arc::clone(&self.world.0.0), id)));
        Process { world: self.world.clone(), id, env }
    }

    fn with<T>(&self, act: impl FnOnce(&mut HostState) -> T) -> T {
        let mut state = self.world.state();
        state.drain_all_stores(|process| process.host == self.id);
        act(state.host(self.id))
    }

    /// The power goes and comes back: all processes here end, the disk keeps synced data and a
    /// random part of the rest, the boot identity changes.
    pub fn power_loss(&self) {
        self.world.0.0.power_loss(self.id);
    }

    /// Identity of this boot.
    pub fn boot_id(&self) -> u128 {
        self.with(|host| host.boot_id)
    }

    /// Moves the wall clock by `seconds`, forward or back.
    pub fn jump_unix_time(&self, seconds: i64) {
        self.with(|host| host.unix_offset_nanos += i128::from(seconds) * 1_000_000_000);
    }

    /// Bounds the disk to `bytes`; `None` for no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.with(|host| host.disk.capacity = bytes);
    }

    /// Bytes that files use now.
    pub fn used(&self) -> u64 {
        self.with(|host| {
            let space = host.disk.space();
            space.total - space.available
        })
    }

    /// Makes the disk read-only, or writable again.
    pub fn set_read_only(&self, read_only: bool) {
        self.with(|host| host.disk.read_only = read_only);
    }

    /// What `FileSystem::kind` answers.
    pub fn set_kind(&self, kind: FileSystemKind) {
        self.with(|host| host.disk.kind = kind);
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset`, on the medium and in the cache.
    ///
    /// # Errors
    /// `NotFound` without such a file; `InvalidInput` beyond its end.
    pub fn flip_bit(&self, path: impl AsRef<Path>, offset: u64, bit: u8) -> io::Result<()> {
        self.with(|host| {
            let mut hit = false;
            host.disk.damage(path.as_ref(), |content| {
                if let Some(byte) = usize::try_from(offset).ok().and_then(|offset| content.get_mut(offset)) {
                    *byte ^= 1 << (bit % 8);
                    hit = true;
                }
            })?;
            if hit { Ok(()) } else { Err(ErrorKind::InvalidInput.into()) }
        })
    }

    /// Cuts a file to at most `length`, on the medium and in the cache.
    ///
    /// # Errors
    /// `NotFound` without such a file.
    pub fn truncate(&self, path: impl AsRef<Path>, length: u64) -> io::Result<()> {
        self.with(|host| {
            host.disk.damage(path.as_ref(), |content| {
                content.truncate(usize::try_from(length).unwrap_or(usize::MAX));
            })
        })
    }

    /// Changes the content of a file on the medium and in the cache in any way.
    ///
    /// # Errors
    /// `NotFound` without such a file.
    pub fn damage(&self, path: impl AsRef<Path>, alter: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.with(|host| host.disk.damage(path.as_ref(), alter))
    }

    /// Makes a path unfindable, in lists too, until [`Host::unhide`].
    pub fn hide(&self, path: impl Into<PathBuf>) {
        let path = path.into();
        self.with(|host| host.disk.hidden.insert(path));
    }

    /// Undoes [`Host::hide`].
    pub fn unhide(&self, path: impl AsRef<Path>) {
        self.with(|host| host.disk.hidden.remove(path.as_ref()));
    }

    /// All files with their lengths, as reads see them, sorted by path. No operation.
    pub fn all_files(&self) -> Vec<(PathBuf, u64)> {
        self.with(|host| host.disk.all_files())
    }

    /// A file's content as reads see it. No operation.
    ///
    /// # Errors
    /// `NotFound` without such a file.
    pub fn content(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        self.with(|host| host.disk.content(path.as_ref()).map(<[u8]>::to_vec))
    }

    /// An image of the disk as reads see it, everything in it durable.
    pub fn disk_image(&self) -> DiskImage {
        let mut disk = self.with(|host| host.disk.clone());
        disk.settle();
        DiskImage(disk)
    }

    /// Replaces the disk. Processes here should have ended.
    pub fn set_disk(&self, image: &DiskImage) {
        let disk = image.0.clone();
        self.with(|host| {
            host.disk = disk;
            host.boot += 1;
        });
    }
}

/// A process. Derefs to its [`Env`]. Dropping the handle does not end it.
#[derive(Clone)]
pub struct Process {
    world: World,
    id: ProcessId,
    env: Env,
}

impl fmt::Debug for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Process({} {})", self.id.0, self.name())
    }
}

impl Deref for Process {
    type Target = Env;

    fn deref(&self) -> &Env {
        &self.env
    }
}

impl Process {
    /// Its view of the world.
    pub fn env(&self) -> Env {
        self.env.clone()
    }

    /// Its number.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.world.state().process(self.id).name.clone()
    }

    /// Its world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Its host.
    pub fn host(&self) -> Host {
        let id = self.world.state().process(self.id).host;
        Host { world: self.world.clone(), id }
    }

    /// Runs `future` as a task of this process, and the world with it. `None` when the process
    /// ended first, even if the future came to its end in the same poll.
    ///
    /// # Panics
    /// As [`World::run_until`].
    pub fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (completer, result) = completion();
        let task =
            self.env.spawn(TaskClass::Foreground, "run", async move { completer.complete(future.await) });
        let value = self.world.run_until(result);
        task.detach();
        value.filter(|_| self.is_alive())
    }

    /// Ends the process at once: its tasks are dropped, its later operations fail ([`is_crash`]),
    /// the page cache stays.
    pub fn kill(&self) {
        self.world.0.0.kill(self.id);
    }

    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        self.world.state().is_alive(self.id)
    }

    /// Stops polling its tasks. What it is in the middle of comes to the end of its poll; see
    /// [`Process::stall_at`] for less.
    pub fn pause(&self) {
        self.world.state().process(self.id).paused = true;
    }

    /// Polls its tasks again.
    pub fn resume(&self) {
        self.world.state().process(self.id).paused = false;
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.world.state().process(self.id).paused
    }

    /// Its disk operations so far; the next one has this number plus 1.
    pub fn operations(&self) -> u64 {
        self.world.state().process(self.id).operations
    }

    /// Its disk operations so far that change something or make it durable.
    pub fn mutations(&self) -> u64 {
        self.world.state().process(self.id).mutations
    }

    fn at(&self, number: u64, action: Action) {
        let id = self.id;
        self.world.inject(Fault::new(action, move |operation| {
            operation.process == id && operation.number == number
        }));
    }

    /// Ends the process in its operation `number` (from 1): none, all or some of its effect takes
    /// place.
    pub fn crash_at(&self, number: u64, crash: Crash) {
        self.at(number, Action::Crash(crash));
    }

    /// As [`Process::crash_at`], counting mutations only: fewer crash points that tell the same.
    pub fn crash_at_mutation(&self, number: u64, crash: Crash) {
        let id = self.id;
        let matching = move |operation: &Operation| {
            operation.process == id && operation.mutation == number && number > 0
        };
        self.world.inject(Fault::new(Action::Crash(crash), matching));
    }

    /// Lets operation `number` (from 1) fail.
    pub fn fail_at(&self, number: u64, error: ErrorKind) {
        self.at(number, Action::Fail(error));
    }

    /// Lets the process stand still before its operation `number` (from 1), in the middle of a
    /// poll, while the world goes on.
    pub fn stall_at(&self, number: u64, duration: Duration) {
        self.at(number, Action::Stall(duration));
    }

    /// Runs `hook` before operation `number` (from 1) while the process stands still; the hook may
    /// drive the world.
    pub fn call_at(&self, number: u64, hook: impl FnMut(&World) + Send + 'static) {
        self.at(number, Action::Call(Box::new(hook)));
    }

    /// Lets the next operations of a kind fail, `times` of them.
    pub fn fail_next(&self, kind: OperationKind, error: ErrorKind, times: u64) {
        let id = self.id;
        let matching = move |operation: &Operation| operation.process == id && operation.kind == kind;
        self.world.inject(Fault::new(Action::Fail(error), matching).times(times));
    }
}

#[cfg(test)]
mod tests;
