//! The simulated network.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use super::random::Random;
use super::scheduler::Shared;
use super::{HostId, ProcessId};
use crate::{BoxFuture, Connection, Listener, Network};

#[derive(Debug)]
pub(super) struct NetworkState {
    _random: Random,
}

impl NetworkState {
    pub(super) fn new(random: Random) -> NetworkState {
        NetworkState { _random: random }
    }

    pub(super) fn process_ended(&mut self, _process: ProcessId) -> Vec<Waker> {
        Vec::new()
    }

    pub(super) fn host_lost(&mut self, _host: HostId) -> Vec<Waker> {
        Vec::new()
    }

    pub(super) fn close(&mut self) -> Vec<Waker> {
        Vec::new()
    }
}

#[derive(Debug)]
pub(super) struct SimulatedNetwork;

impl SimulatedNetwork {
    pub(super) fn new(_shared: Arc<Shared>, _process: ProcessId) -> SimulatedNetwork {
        SimulatedNetwork
    }
}

impl Network for SimulatedNetwork {
    fn listen<'a>(&'a self, _address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }

    fn connect<'a>(&'a self, _address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }
}
