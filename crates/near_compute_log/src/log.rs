//! This epoch's open log: its lanes, and what goes on beside them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{BoxFuture, Completion, Task, TaskClass};
use tombolo_storage::lanes::{LogLane, given_up, wait, world_ended};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Appended, LogAppend, LogOffset, Pressure, Result};

use crate::lane::Lane;
use crate::old::OldLogs;

/// How often a log that closes looks whether its background has ended.
const QUIET_LOOK: Duration = Duration::from_millis(5);

/// A lane, and the tasks that end with it.
#[derive(Debug)]
pub(crate) struct OpenLane {
    lane: Arc<Lane>,
    tasks: Vec<Task>,
    /// The first lane's: the logs of older epochs on their way to the object store, and the task
    /// that moves them.
    old: Option<(Arc<OldLogs>, Mutex<Option<Task>>)>,
}

impl OpenLane {
    pub(crate) fn new(lane: Arc<Lane>) -> OpenLane {
        let env = lane.env().clone();
        let listening = env.spawn(TaskClass::Network, "answers to a log", Arc::clone(&lane).listen());
        let watching = env.spawn(TaskClass::Foreground, "watch over a log", Arc::clone(&lane).watch());
        OpenLane { lane, tasks: vec![listening, watching], old: None }
    }

    /// Moves these beside the lane, until that is closed.
    pub(crate) fn also_moves(&mut self, old: OldLogs) {
        if is_enabled(Mutant::OldLogNotMoved) {
            return;
        }
        let old = Arc::new(old);
        let moving = self.lane.env().spawn(
            TaskClass::Background,
            "old logs become objects",
            Arc::clone(&old).move_all(),
        );
        self.old = Some((old, Mutex::new(Some(moving))));
    }

    /// Has a task end with the lane.
    pub(crate) fn keep(&mut self, task: Task) {
        self.tasks.push(task);
    }
}

impl Drop for OpenLane {
    fn drop(&mut self) {
        // What works on without its tasks, a publication or the put of a segment, ends at its next
        // step. In a task: the thread that drops this may hold any lock.
        let lane = Arc::clone(&self.lane);
        let end = async move { lane.end(&given_up(lane.name())) };
        self.lane.env().spawn(TaskClass::Background, "end of a log", end).detach();
    }
}

impl LogLane for OpenLane {
    fn append(&self, entry: &LogAppend<'_>) -> Result<Appended> {
        self.lane.append(entry)
    }

    fn wants_gathered(&self) -> bool {
        self.lane.wants_gathered()
    }

    fn durable(&self, end: LogOffset) -> Completion<Result<()>> {
        self.lane.durable(end)
    }

    fn sync(&self, end: LogOffset) -> Result<()> {
        if end <= self.lane.durable_through() {
            return Ok(());
        }
        wait(self.lane.env(), self.lane.durable(end))
    }

    fn durable_through(&self) -> LogOffset {
        self.lane.durable_through()
    }

    fn trim(&self, before: LogOffset) {
        self.lane.trim(before);
    }

    fn pressure(&self) -> Pressure {
        self.lane.pressure()
    }

    fn confirm(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.lane.confirm())
    }

    fn give_up(&self) {
        self.lane.end(&given_up(self.lane.name()));
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let closed = match self.lane.stop() {
                Ok(end) => self.lane.durable(end).await.unwrap_or_else(|| Err(world_ended())),
                Err(error) => Err(error),
            };
            if closed.is_ok() {
                self.lane.tell_last().await;
            }
            if let Some((old, moving)) = &self.old {
                old.stop();
                let moving = moving.lock().take();
                if let Some(moving) = moving {
                    moving.await;
                }
            }
            while !self.lane.is_quiet() {
                self.lane.env().sleep(QUIET_LOOK).await;
            }
            closed
        })
    }
}
