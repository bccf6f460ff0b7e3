//! Where those who take part in a contest are: on one host; or, with a near-compute log, on one or
//! several, with nodes beside them that meet what the failure model allows
//! ([`neighbours`](super::neighbours)).

use std::time::Duration;

use tombolo_env::simulated::{Crash, Host, Process};
use tombolo_storage::layer::fault::{Chances, FaultPlan};

use super::Run;
use super::neighbours::{Keeps, Neighbours};
use crate::client::{Form, Setup, SharedStore};
use crate::random::Random;

/// Hosts of those who take part, when there are several.
const HOSTS: u64 = 3;

/// What only a near-compute log has; its chance is its own, so that contests without one stay as
/// they are.
struct Near {
    neighbours: Neighbours,
    store: Option<SharedStore>,
    random: Random,
}

/// A contest's hosts.
pub(super) struct Site<'a> {
    run: &'a Run,
    form: Form,
    /// Invariant: never empty; several only with a store that all of them reach.
    hosts: Vec<Host>,
    near: Option<Near>,
}

impl<'a> Site<'a> {
    pub(super) fn new(run: &'a Run, form: Form, seed: u64) -> Site<'a> {
        if !matches!(form, Form::Near | Form::NearShared) {
            return Site { run, form, hosts: vec![run.world.host(0)], near: None };
        }
        let mut random = Random::new(seed, 20);
        let (hosts, neighbours, store) = around(run, form, &mut random);
        Site { run, form, hosts, near: Some(Near { neighbours, store, random }) }
    }

    /// How the database is opened here.
    pub(super) fn setup(&self, setup: &Setup) -> Setup {
        match &self.near {
            None => setup.clone(),
            Some(near) => Setup { store: near.store.clone(), application_logs: 1, ..setup.clone() },
        }
    }

    /// One of the hosts.
    pub(super) fn host(&mut self) -> &Host {
        let nth = self.near.as_mut().map_or(0, |near| near.random.index(self.hosts.len()));
        &self.hosts[nth]
    }

    /// Perhaps something happens to nodes, or on the way to them.
    pub(super) fn trouble(&mut self) {
        let Some(Near { neighbours, random, .. }) = &mut self.near else { return };
        for _ in 0..random.below(4) {
            neighbours.trouble(self.run, &self.hosts, random);
            self.run.world.run_for(Duration::from_millis(random.below(100)));
        }
    }

    /// All hosts lose their power, but those of nodes: memory that is shared on the only host would
    /// be lost with all its copies.
    pub(super) fn power_loss(&self, processes: &[Process]) {
        if self.form == Form::NearShared {
            return self.run.crash(processes, Crash::Kill);
        }
        self.run.crash(processes, Crash::PowerLoss);
        self.hosts.iter().skip(1).for_each(Host::power_loss);
    }

    /// All is well, but for the losses.
    pub(super) fn heal(&mut self) {
        let Some(Near { neighbours, store, .. }) = &mut self.near else { return };
        neighbours.heal(self.run, &self.hosts);
        neighbours.return_all(self.run);
        if let Some(store) = store {
            store.heal();
        }
    }
}

/// The surroundings of the participants where there is a near-compute log: their hosts, of which
/// there are several only with a store that all of them reach; the nodes; and that store, or none.
pub(super) fn around(
    run: &Run,
    form: Form,
    random: &mut Random,
) -> (Vec<Host>, Neighbours, Option<SharedStore>) {
    let keeps = Keeps::any(form, random);
    let neighbours = Neighbours::start(run, form, keeps, random);
    let store = random.percent(50).then(|| store(random));
    let mut hosts = vec![run.world.host(0)];
    if form == Form::Near && store.is_some() {
        hosts.extend((1..HOSTS).map(|number| run.world.add_host(&format!("site-{number}"))));
    }
    (hosts, neighbours, store)
}

/// A store that all hosts reach, on the way to which much goes wrong, or nothing.
fn store(random: &mut Random) -> SharedStore {
    let chances = if random.percent(50) {
        Chances { lateness_max: Duration::from_secs(1), ..Chances::ROUGH }
    } else {
        Chances::NONE
    };
    SharedStore::new(FaultPlan::random(random.next(), chances))
}
