//! The outside world: clock, randomness, tasks, parking, files, mappings and network.
//!
//! Everything that Tombolo asks of the world goes through [`Env`], so that the whole engine also
//! runs on one thread, in virtual time, on disks that lose unsynced data
//! ([`simulated::World`]).
//!
//! Invariants:
//! 1. Nothing above this crate starts a thread, opens a file, reads a clock, draws a random number
//!    or parks, save the command line.
//! 2. In a simulated world the same seed gives the same history, to the byte.
//! 3. Waiting ([`Env::block_on`]) parks a real thread, runs the queue in a simulation, and is a bug
//!    inside a task: it panics there.

mod bell;
pub mod clock;
pub mod completion;
pub mod file;
pub mod host;
pub mod memory;
pub mod network;
pub mod real;
pub mod simulated;
pub mod task;
pub mod together;
mod unwinding;
pub mod wait;
pub mod zones;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use clock::Instant;
pub use completion::{Completer, Completion, completion};
pub use file::{Access, DirectoryEntry, File, FileSystem, FileSystemKind, Mapping, Metadata, Space};
pub use host::{FileSystemFacts, HostFacts, ProcessFacts};
pub use network::{Connection, Listener, Network};
pub use task::{Task, TaskClass};
pub use together::all;
pub use unwinding::OnPanic;
pub use wait::{Either, either, within};
pub use zones::{Zone, ZoneControl, ZoneGeometry, ZoneState};

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a world has to offer; [`Env`] is its face. Implemented by [`real`] and [`simulated`] only.
pub trait Platform: Send + Sync + fmt::Debug {
    /// Monotonic time of this world.
    fn now(&self) -> Instant;
    /// Wall-clock time since the Unix epoch. It may jump; no protocol depends on it.
    fn unix_time(&self) -> Duration;
    /// 64 fresh random bits.
    fn random_u64(&self) -> u64;
    /// Identity of this boot of the host: page caches survive exactly as long as it stays.
    fn boot_id(&self) -> u128;
    /// What the host offers.
    fn host_facts(&self) -> HostFacts;
    /// Which process this is.
    fn process_facts(&self) -> ProcessFacts;
    /// Whether the process of that number and start lives, on this host and in this namespace;
    /// `None` when the host does not tell.
    fn process_lives(&self, process: u32, start: u64) -> Option<bool>;
    /// A number that the worlds of one process share, and no other process that runs in the same
    /// address space has: simulated processes are many.
    fn process_token(&self) -> u64;
    /// Resolves when somebody rings this process's bell of that key after this call.
    fn rung(&self, key: u128) -> Completion<()>;
    /// Rings the bell of a process of this host and namespace: of that number and start, and that
    /// key. Nobody waits, and nobody may hear it.
    fn ring(&self, process: u32, start: u64, key: u128) -> std::io::Result<()>;
    /// Runs `future` in the background.
    fn spawn(&self, class: TaskClass, name: &'static str, future: BoxFuture<'static, ()>) -> Task;
    /// A future that is ready at `deadline`.
    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()>;
    /// Lets other tasks run: a scheduling point in a simulation, ready at once in the real world.
    fn yield_now(&self) -> BoxFuture<'static, ()>;
    /// Drives `future` on the calling thread until it is ready (`true`) or `deadline` has passed
    /// (`false`).
    ///
    /// # Panics
    /// Inside a task of this world.
    fn drive(&self, future: Pin<&mut (dyn Future<Output = ()> + Send)>, deadline: Option<Instant>) -> bool;
    /// A place where another process may run in a simulation; nothing in the real world.
    fn preemption_point(&self);
    /// Whether this is the simulated world.
    fn is_simulated(&self) -> bool;
    /// Files of this world.
    fn files(&self) -> &dyn FileSystem;
    /// Network of this world.
    fn network(&self) -> &dyn Network;
}

/// A process's view of its world. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    platform: Arc<dyn Platform>,
    simulated: bool,
}

impl fmt::Debug for Env {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.platform.fmt(formatter)
    }
}

impl Env {
    /// The view that `platform` gives.
    pub fn new(platform: Arc<dyn Platform>) -> Env {
        let simulated = platform.is_simulated();
        Env { platform, simulated }
    }

    /// The real world, with a small pool of threads of its own (started on first use, ended when
    /// the last clone goes).
    pub fn real() -> Env {
        real::env(true)
    }

    /// As [`Env::real`], but reads that the page cache does not hold go through a pool of threads
    /// even where io_uring works.
    pub fn real_without_io_uring() -> Env {
        real::env(false)
    }

    /// Monotonic time. Costs 30–75 ns for real: call it sparingly.
    pub fn now(&self) -> Instant {
        self.platform.now()
    }

    /// Wall-clock time since the Unix epoch; it may jump.
    pub fn unix_time(&self) -> Duration {
        self.platform.unix_time()
    }

    /// 64 fresh random bits.
    pub fn random_u64(&self) -> u64 {
        self.platform.random_u64()
    }

    /// Identity of this boot of the host.
    pub fn boot_id(&self) -> u128 {
        self.platform.boot_id()
    }

    /// What the host offers to this process. Costs a few system calls.
    pub fn host_facts(&self) -> HostFacts {
        self.platform.host_facts()
    }

    /// Which process this is. Costs a few system calls.
    pub fn process_facts(&self) -> ProcessFacts {
        self.platform.process_facts()
    }

    /// Whether the process of that number and start lives, on this host and in this namespace;
    /// `None` when the host does not tell.
    pub fn process_lives(&self, process: u32, start: u64) -> Option<bool> {
        self.platform.process_lives(process, start)
    }

    /// A number that the worlds of one process share, and no other process that runs in the same
    /// address space has: simulated processes are many.
    pub fn process_token(&self) -> u64 {
        self.platform.process_token()
    }

    /// Resolves when somebody rings this process's bell of that key after this call. Anybody on
    /// this host may ring it, and nobody may come through: it says that it is time to look, and no
    /// more.
    pub fn rung(&self, key: u128) -> Completion<()> {
        self.platform.rung(key)
    }

    /// Rings the bell of a process of this host and namespace: of that number and start, and that
    /// key.
    ///
    /// # Errors
    /// When nobody hears it.
    pub fn ring(&self, process: u32, start: u64, key: u128) -> std::io::Result<()> {
        self.platform.ring(process, start, key)
    }

    /// Runs `future` in the background. Dropping the task cancels it; [`Task::detach`] lets it go.
    pub fn spawn(
        &self,
        class: TaskClass,
        name: &'static str,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Task {
        self.platform.spawn(class, name, Box::pin(future))
    }

    /// A future that is ready after `duration`.
    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.platform.sleep_until(self.now() + duration)
    }

    /// A future that is ready at `deadline`.
    pub fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.platform.sleep_until(deadline)
    }

    /// Lets other tasks run: a scheduling point in a simulation, free in the real world.
    pub async fn yield_now(&self) {
        if self.simulated {
            self.platform.yield_now().await;
        }
    }

    /// Waits for `future` on the calling thread: parks for real, runs the queue in a simulation.
    ///
    /// # Panics
    /// Inside a task of this world: waiting there would stop the pool that has to do the work.
    pub fn block_on<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        let mut result = None;
        {
            let mut driven = std::pin::pin!(async { result = Some(future.await) });
            let done = self.platform.drive(driven.as_mut(), None);
            assert!(done, "waiting without a deadline ended without a result");
        }
        match result {
            Some(value) => value,
            None => unreachable!("a driven future that is ready has stored its result"),
        }
    }

    /// As [`Env::block_on`], but gives up at `deadline` and drops the future then.
    pub fn block_on_until<T: Send>(
        &self,
        future: impl Future<Output = T> + Send,
        deadline: Instant,
    ) -> Option<T> {
        let mut result = None;
        {
            let mut driven = std::pin::pin!(async { result = Some(future.await) });
            self.platform.drive(driven.as_mut(), Some(deadline));
        }
        result
    }

    /// A place where another process may run in a simulation: put one between any two steps whose
    /// order a protocol depends on.
    #[inline]
    pub fn preemption_point(&self) {
        if self.simulated {
            self.platform.preemption_point();
        }
    }

    /// Lets another thread have the processor that waits for one: for a moment in which others are
    /// about to do what this one waits for. In a simulated world nothing happens.
    pub fn let_others_run(&self) {
        if !self.is_simulated() {
            std::thread::yield_now();
        }
    }

    /// Whether this is the simulated world.
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// Files of this world.
    pub fn files(&self) -> &dyn FileSystem {
        self.platform.files()
    }

    /// Network of this world.
    pub fn network(&self) -> &dyn Network {
        self.platform.network()
    }
}
