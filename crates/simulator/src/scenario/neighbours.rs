//! The nodes, and what happens to them.
//!
//! A node loses what it holds only where the failure model allows it: one of them, the victim, as
//! often as chance wants. No configuration names two regions of it, so that no log ever loses more
//! than one of its regions, no matter who is alive. Of the others:
//!
//! - A node in memory only ends when it has drained.
//! - One with a copy, which answers from memory, ends when it was stopped cleanly: its next life
//!   finds all.
//! - One that syncs before it answers ends anyhow, by a kill or without power, several at once.
//!
//! Nodes of the writers' host share their memory with writers, who store there themselves. They are
//! in memory only; their host stays, and nothing comes between it and itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::TaskClass;
use tombolo_env::simulated::{DiskImage, Host, Process};
use tombolo_segment::node::{CONNECTIONS_MAX, Node, NodeDisk, NodeOptions};

use super::Run;
use crate::client::Form;
use crate::random::Random;

/// Bytes that a node lends.
const NODE_BYTES: u64 = 256 << 20;
/// What it lends when it wants memory back.
const NODE_BYTES_FEW: u64 = 1 << 20;
const DIRECTORY: &str = "/node";
/// Where those of one host share theirs, each in a directory that its port names.
pub(super) const SHARED_DIRECTORY: &str = "/shm";

/// What keeps a node's regions beside its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    Nothing,
    /// A copy, behind the answers.
    Copied,
    /// A disk, before the answers.
    Synced,
}

impl Keeps {
    /// What those of a form of the log may have.
    pub(super) fn any(form: Form, random: &mut Random) -> Keeps {
        if form == Form::NearShared {
            Keeps::Nothing
        } else {
            [Keeps::Nothing, Keeps::Synced, Keeps::Copied][random.index(3)]
        }
    }
}

/// A node that runs, within reach of the operator.
type Slot = Arc<Mutex<Option<Node>>>;

/// A host with a node on it.
pub(super) struct Neighbour {
    pub(super) host: Host,
    pub(super) node: Process,
    slot: Slot,
    keeps: Keeps,
    port: u16,
    /// The directory of the memory that it shares with writers of its host.
    shares: Option<PathBuf>,
    /// A disk with nothing on it.
    blank: DiskImage,
    is_cut: bool,
    is_leaving: bool,
}

impl Neighbour {
    /// The nodes of a form of the log, on hosts of their own or on that of the writers.
    pub(super) fn all(run: &Run, form: Form, keeps: Keeps) -> Vec<Neighbour> {
        if form == Form::NearShared {
            let share = |port: u16| PathBuf::from(SHARED_DIRECTORY).join(port.to_string());
            return Form::SHARED_PORTS
                .map(|port| Neighbour::new(run.world.host(0), keeps, port, Some(share(port))))
                .into();
        }
        Form::NODES.map(|name| Neighbour::new(run.world.add_host(name), keeps, Form::NODE_PORT, None)).into()
    }

    fn new(host: Host, keeps: Keeps, port: u16, shares: Option<PathBuf>) -> Neighbour {
        let (node, slot, blank) = (host.process("node"), Slot::default(), host.disk_image());
        let mut neighbour =
            Neighbour { host, node, slot, keeps, port, shares, blank, is_cut: false, is_leaving: false };
        neighbour.start();
        neighbour
    }

    /// Begins the node's next life.
    pub(super) fn start(&mut self) {
        let disk = match self.keeps {
            Keeps::Nothing => None,
            keeps => Some(NodeDisk { directory: DIRECTORY.into(), is_synced: keeps == Keeps::Synced }),
        };
        self.node = self.host.process("node");
        self.slot = Slot::default();
        self.is_leaving = false;
        let (env, slot, inside) = (self.node.env(), Arc::clone(&self.slot), self.node.clone());
        let (port, share) = (self.port, self.shares.clone());
        let serve = async move {
            let options = NodeOptions {
                listen: format!("0.0.0.0:{port}"),
                bytes_max: NODE_BYTES,
                domain: "a rack".into(),
                credentials: None,
                connections_max: CONNECTIONS_MAX,
                disk,
                share,
                rdma: None,
            };
            match Node::start(&env, options).await {
                Ok(node) => *slot.lock() = Some(node),
                Err(error) if inside.is_alive() => {
                    inside.world().note(&format!("a node does not start: {error}"));
                }
                Err(_) => {}
            }
        };
        self.node.spawn(TaskClass::Foreground, "a node", serve).detach();
    }

    /// Ends the node where it stands.
    pub(super) fn kill(&self) {
        self.node.kill();
        // Its threads are gone; nothing of it does anything any more.
        drop(self.slot.lock().take());
    }

    /// Ends it with the power of its host.
    fn power_loss(&self) {
        self.host.power_loss();
        drop(self.slot.lock().take());
    }

    fn lend(&self, bytes: u64) {
        if let Some(node) = &*self.slot.lock() {
            node.lend(bytes);
        }
    }

    /// Lets the node end in order: it drains, or, with a copy, it may as well stop at once. Its
    /// process ends after that.
    fn leave(&mut self, drains: bool) {
        let Some(node) = self.slot.lock().take() else { return };
        self.is_leaving = true;
        let process = self.node.clone();
        let leave = async move {
            let left = if drains { node.drain(None).await } else { node.stop().await };
            match left {
                Ok(()) => process.kill(),
                Err(error) if process.is_alive() => {
                    process.world().note(&format!("a node does not leave: {error}"));
                }
                Err(_) => {}
            }
        };
        self.node.spawn(TaskClass::Foreground, "a node leaves", leave).detach();
    }

    /// Damages one bit of what the disk holds of the node that has ended.
    fn rot(&self, random: &mut Random) {
        let files: Vec<_> = self
            .host
            .all_files()
            .into_iter()
            .filter(|(path, length)| *length > 0 && path.starts_with(DIRECTORY))
            .collect();
        if files.is_empty() {
            return;
        }
        let (path, length) = &files[random.index(files.len())];
        if self.host.flip_bit(path, random.below(*length), 0).is_ok() {
            self.host.process("rot").world().note(&format!(
                "a bit of {} has flipped on {}",
                path.display(),
                self.host.name()
            ));
        }
    }
}

/// All nodes.
pub(super) struct Neighbours {
    pub(super) all: Vec<Neighbour>,
    victim: usize,
    keeps: Keeps,
}

impl Neighbours {
    pub(super) fn start(run: &Run, form: Form, keeps: Keeps, random: &mut Random) -> Neighbours {
        let all = Neighbour::all(run, form, keeps);
        Neighbours { victim: random.index(all.len()), all, keeps }
    }

    /// Something happens to a node, or between it and a host of writers.
    pub(super) fn trouble(&mut self, run: &Run, writers: &[Host], random: &mut Random) {
        let nth = random.index(self.all.len());
        let writers_host = &writers[random.index(writers.len())];
        match random.below(20) {
            0..5 => self.heal(run, writers),
            5..9 => self.cut(run, writers_host, nth, random),
            9..12 => run.world.reset_connections(writers_host, &self.all[nth].host),
            12 => self.all[nth].node.pause(),
            13 => self.all[nth].lend([NODE_BYTES, NODE_BYTES_FEW, 0][random.index(3)]),
            14 => self.all[nth].host.jump_unix_time(i64::from(random.percent(50)) * 200_000 - 100_000),
            15 => self.leave(nth, random),
            16 => self.restart(random),
            _ => self.lose(random),
        }
        for neighbour in self.all.iter_mut().filter(|neighbour| !neighbour.node.is_alive()) {
            neighbour.start();
        }
    }

    fn cut(&mut self, run: &Run, writers: &Host, nth: usize, random: &mut Random) {
        let neighbour = &mut self.all[nth];
        if neighbour.is_cut || neighbour.shares.is_some() {
            return;
        }
        neighbour.is_cut = true;
        match random.below(3) {
            0 => run.world.partition(writers, &neighbour.host),
            1 => run.world.partition_one_way(writers, &neighbour.host),
            _ => run.world.partition_one_way(&neighbour.host, writers),
        }
    }

    /// A node ends in order.
    fn leave(&mut self, nth: usize, random: &mut Random) {
        let drains = self.keeps == Keeps::Nothing || random.percent(50);
        // While one leaves the others have room for all: a node that drains takes nothing new.
        if !self.all.iter().any(|neighbour| neighbour.is_leaving) {
            self.all[nth].leave(drains);
        }
    }

    /// Nodes that keep all of it end without warning, and begin again.
    fn restart(&mut self, random: &mut Random) {
        if self.keeps != Keeps::Synced {
            return;
        }
        let (all, power) = (random.percent(20), random.percent(50));
        let nth = random.index(self.all.len());
        for (at, neighbour) in self.all.iter().enumerate() {
            match power {
                _ if !all && at != nth => {}
                true => neighbour.power_loss(),
                false => neighbour.kill(),
            }
        }
    }

    /// The victim loses what it holds, or some of it.
    fn lose(&mut self, random: &mut Random) {
        let victim = &mut self.all[self.victim];
        victim.kill();
        match random.below(4) {
            _ if victim.shares.is_some() => {}
            0..=1 => victim.rot(random),
            2 => victim.host.power_loss(),
            _ => victim.host.set_disk(&victim.blank),
        }
        victim.start();
    }

    /// All is well again, but for the losses.
    pub(super) fn heal(&mut self, run: &Run, writers: &[Host]) {
        for neighbour in &mut self.all {
            neighbour.node.resume();
            neighbour.is_cut = false;
            neighbour.lend(NODE_BYTES);
            for host in writers {
                run.world.heal(host, &neighbour.host);
            }
        }
    }

    /// Lets those that are leaving do so, and begin again.
    pub(super) fn return_all(&mut self, run: &Run) {
        for _ in 0..100 {
            if !self.all.iter().any(|neighbour| neighbour.is_leaving) {
                return;
            }
            run.world.run_for(Duration::from_millis(100));
            for neighbour in self.all.iter_mut().filter(|neighbour| !neighbour.node.is_alive()) {
                neighbour.start();
            }
        }
    }
}
