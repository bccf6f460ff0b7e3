//! A simulated process's view of its world.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::ProcessId;
use super::files::{OPEN_FILES_MAX, SimulatedFiles};
use super::network::SimulatedNetwork;
use super::scheduler::{Shared, Sleep, Yield};
use crate::{
    BoxFuture, Completion, FileSystem, HostFacts, Instant, Network, Platform, ProcessFacts, Task, TaskClass,
};

/// The wall clock at the beginning: 2026-01-01 00:00:00 UTC.
const UNIX_START_NANOS: i128 = 1_767_225_600_000_000_000;

/// What a small host has.
const MEMORY_BYTES: u64 = 4 << 30;

pub(super) struct SimulatedPlatform {
    shared: Arc<Shared>,
    process: ProcessId,
    files: SimulatedFiles,
    network: SimulatedNetwork,
    token: u64,
}

impl SimulatedPlatform {
    pub(super) fn new(shared: Arc<Shared>, process: ProcessId) -> SimulatedPlatform {
        let files = SimulatedFiles::new(Arc::clone(&shared), process);
        let network = SimulatedNetwork::new(Arc::clone(&shared), process);
        // Counted over all worlds, and seen by nothing that a world's history depends on. Below are
        // the numbers of real processes.
        static TOKENS: AtomicU64 = AtomicU64::new(1 << 32);
        let token = TOKENS.fetch_add(1, Ordering::Relaxed);
        SimulatedPlatform { shared, process, files, network, token }
    }
}

impl fmt::Debug for SimulatedPlatform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SimulatedPlatform(process {})", self.process.0)
    }
}

impl Platform for SimulatedPlatform {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.shared.state.lock().now)
    }

    fn unix_time(&self) -> Duration {
        let mut state = self.shared.state.lock();
        let nanos = UNIX_START_NANOS + i128::from(state.now) + state.host_of(self.process).unix_offset_nanos;
        Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    fn random_u64(&self) -> u64 {
        self.shared.state.lock().values.next()
    }

    fn boot_id(&self) -> u128 {
        self.shared.state.lock().host_of(self.process).boot_id
    }

    fn host_facts(&self) -> HostFacts {
        HostFacts {
            system: "simulated".into(),
            cores: 1,
            memory_bytes: MEMORY_BYTES,
            huge_pages: None,
            open_files_max: OPEN_FILES_MAX,
            io_uring: Err("the simulated world completes reads in an order of its own".into()),
        }
    }

    fn process_facts(&self) -> ProcessFacts {
        let mut state = self.shared.state.lock();
        ProcessFacts {
            host: state.host_of(self.process).name.clone(),
            program: state.process(self.process).name.clone(),
            process: self.process.0,
            namespace: 1,
            start: 1,
        }
    }

    fn process_lives(&self, process: u32, _start: u64) -> Option<bool> {
        let mut state = self.shared.state.lock();
        let host = state.process(self.process).host;
        // Numbers are never used again.
        Some(state.processes.get(process as usize).is_some_and(|other| other.host == host && other.alive))
    }

    fn process_token(&self) -> u64 {
        self.token
    }

    fn rung(&self, key: u128) -> Completion<()> {
        let bells = Arc::clone(&self.shared.state.lock().process(self.process).bells);
        bells.wait(key)
    }

    fn ring(&self, process: u32, _start: u64, key: u128) -> io::Result<()> {
        let bells = {
            let mut state = self.shared.state.lock();
            let host = state.process(self.process).host;
            let there = state.processes.get(process as usize);
            let hears = there.filter(|other| other.host == host && other.alive);
            Arc::clone(&hears.ok_or(io::ErrorKind::ConnectionRefused)?.bells)
        };
        bells.ring(key);
        Ok(())
    }

    fn spawn(&self, _class: TaskClass, _name: &'static str, future: BoxFuture<'static, ()>) -> Task {
        self.shared.spawn(self.process, future)
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep::new(Arc::clone(&self.shared), deadline))
    }

    fn yield_now(&self) -> BoxFuture<'static, ()> {
        Box::pin(Yield(false))
    }

    fn drive(&self, future: Pin<&mut (dyn Future<Output = ()> + Send)>, deadline: Option<Instant>) -> bool {
        self.shared.drive(Some(self.process), future, deadline)
    }

    fn preemption_point(&self) {
        self.shared.preempt(self.process);
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn files(&self) -> &dyn FileSystem {
        &self.files
    }

    fn network(&self) -> &dyn Network {
        &self.network
    }
}
