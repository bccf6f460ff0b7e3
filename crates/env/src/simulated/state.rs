//! Everything that a simulated world holds, behind one lock.
//!
//! Invariant: nothing that can run foreign code (wakers, futures, runnables, hooks) is woken,
//! polled, called or dropped under the lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::thread::ThreadId;

use async_task::Runnable;
use parking_lot::Mutex;

use super::disk::{Disk, InodeNumber};
use super::fault::Fault;
use super::random::Random;
use super::trace::Trace;
use super::wire::NetworkState;
use super::{HostId, ProcessId};
use crate::BoxFuture;
use crate::bell::Bells;

/// Steps after which a world is taken to run in circles.
const STEPS_MAX_DEFAULT: u64 = 50_000_000;
/// How often another process gets in between two operations.
const PREEMPTION_DEFAULT: f64 = 0.05;
/// How often the kernel writes something back at an operation.
const WRITE_BACK_DEFAULT: f64 = 0.05;

/// Where a task's future is, unless it is being polled.
pub(super) type FutureSlot = Arc<Mutex<Option<BoxFuture<'static, ()>>>>;

#[derive(Debug)]
pub(super) struct HostState {
    pub(super) name: String,
    pub(super) disk: Disk,
    pub(super) boot_id: u128,
    /// Counts power losses: handles of an earlier boot are void.
    pub(super) boot: u64,
    /// Added to the world's wall clock.
    pub(super) unix_offset_nanos: i128,
}

/// Bytes stored to a mapping that other processes do not see yet.
#[derive(Debug)]
pub(super) struct BufferedStore {
    pub(super) inode: InodeNumber,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

pub(super) struct ProcessState {
    pub(super) name: String,
    pub(super) host: HostId,
    pub(super) alive: bool,
    pub(super) paused: bool,
    pub(super) operations: u64,
    pub(super) mutations: u64,
    pub(super) tasks: BTreeMap<u64, (FutureSlot, Waker)>,
    pub(super) stores: VecDeque<BufferedStore>,
    pub(super) bells: Arc<Bells>,
}

pub(super) struct State {
    pub(super) seed: u64,
    pub(super) now: u64,
    pub(super) next_id: u64,
    pub(super) steps: u64,
    pub(super) steps_max: u64,
    pub(super) operations: u64,
    pub(super) preemption: f64,
    pub(super) write_back: f64,
    pub(super) panics_propagate: bool,
    pub(super) schedule: Random,
    pub(super) values: Random,
    pub(super) disk_chance: Random,
    /// Tasks that may run, with the number of their wake-up: the lowest has waited longest.
    pub(super) runnable: Vec<(ProcessId, Runnable, u64)>,
    /// Wake-ups so far.
    pub(super) woken: u64,
    pub(super) timers: BTreeMap<(u64, u64), Waker>,
    pub(super) hosts: Vec<HostState>,
    pub(super) processes: Vec<ProcessState>,
    pub(super) faults: Vec<Fault>,
    pub(super) network: NetworkState,
    pub(super) trace: Trace,
    /// Processes that stand still in the middle of an operation while others run, innermost last.
    pub(super) standing: Vec<ProcessId>,
    /// Depth of task polls that are under way and not suspended by a hook.
    pub(super) in_task: u32,
    /// The thread that runs the world now, with the depth of its runs.
    pub(super) runner: Option<(ThreadId, u32)>,
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        State {
            seed,
            // Not zero, so that code which subtracts from the first moment works as it does for
            // real.
            now: 1_000_000_000,
            next_id: 1,
            steps: 0,
            steps_max: STEPS_MAX_DEFAULT,
            operations: 0,
            preemption: PREEMPTION_DEFAULT,
            write_back: WRITE_BACK_DEFAULT,
            panics_propagate: true,
            schedule: Random::new(seed, 1),
            values: Random::new(seed, 2),
            disk_chance: Random::new(seed, 3),
            runnable: Vec::new(),
            woken: 0,
            timers: BTreeMap::new(),
            hosts: Vec::new(),
            processes: Vec::new(),
            faults: Vec::new(),
            network: NetworkState::new(Random::new(seed, 4)),
            trace: Trace::new(),
            standing: Vec::new(),
            in_task: 0,
            runner: None,
        }
    }

    pub(super) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn process(&mut self, process: ProcessId) -> &mut ProcessState {
        &mut self.processes[process.0 as usize]
    }

    pub(super) fn host(&mut self, host: HostId) -> &mut HostState {
        &mut self.hosts[host.0 as usize]
    }

    pub(super) fn host_of(&mut self, process: ProcessId) -> &mut HostState {
        let host = self.process(process).host;
        self.host(host)
    }

    pub(super) fn is_alive(&self, process: ProcessId) -> bool {
        self.processes[process.0 as usize].alive
    }

    /// Whether tasks of `process` may be polled now.
    pub(super) fn may_run(&self, process: ProcessId) -> bool {
        let state = &self.processes[process.0 as usize];
        state.alive && !state.paused && !self.standing.contains(&process)
    }

    pub(super) fn note(&mut self, note: String) {
        self.trace.note(self.now, note);
    }

    pub(super) fn boot_id(&mut self) -> u128 {
        u128::from(self.values.next()) << 64 | u128::from(self.values.next())
    }

    /// Makes the oldest `count` buffered stores of `process` visible to all.
    pub(super) fn drain_stores(&mut self, process: ProcessId, count: usize) {
        for _ in 0..count {
            let Some(store) = self.process(process).stores.pop_front() else { return };
            // A file that is gone, or a disk that became read-only under the mapping: the bytes go
            // nowhere.
            let _ = self.host_of(process).disk.write(store.inode, &store.bytes, store.offset);
        }
    }

    /// Makes the buffered stores of the processes that match visible to all.
    pub(super) fn drain_all_stores(&mut self, matching: impl Fn(&ProcessState) -> bool) {
        for index in 0..self.processes.len() {
            let count = self.processes[index].stores.len();
            if count > 0 && matching(&self.processes[index]) {
                self.drain_stores(ProcessId(u32::try_from(index).unwrap_or(u32::MAX)), count);
            }
        }
    }

    /// Makes some buffered stores visible: the processor does so at any time.
    pub(super) fn trickle_stores(&mut self) {
        for index in 0..self.processes.len() {
            let count = self.processes[index].stores.len();
            if count > 0 && self.schedule.chance(0.3) {
                let drained = self.schedule.index(count) + 1;
                self.drain_stores(ProcessId(u32::try_from(index).unwrap_or(u32::MAX)), drained);
            }
        }
    }
}
