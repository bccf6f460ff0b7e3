//! Byte streams between processes.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use crate::BoxFuture;

/// Connecting and listening. Addresses are `host:port`.
pub trait Network: Send + Sync + fmt::Debug {
    /// Listens on `address`; port 0 picks a free one.
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>>;
    /// Connects to `address`.
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>>;
    /// Watches a descriptor of the operating system that becomes readable, and does not block: a
    /// device's. The simulated world has none.
    fn watch(&self, descriptor: OwnedFd) -> io::Result<Box<dyn Watched>>;
}

/// A descriptor that is waited for together with the sockets. Dropping it ends that.
pub trait Watched: Send + Sync + fmt::Debug {
    /// Tries until an attempt does not end with `WouldBlock`; between attempts it waits until there
    /// is something to read.
    fn until_done<'a>(
        &'a self,
        attempt: &'a mut (dyn FnMut() -> io::Result<()> + Send),
    ) -> BoxFuture<'a, io::Result<()>>;
}

/// Accepts connections. Dropping it stops listening.
pub trait Listener: Send + fmt::Debug {
    /// The next connection.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Connection>>>;
    /// The address with its actual port.
    fn local_address(&self) -> io::Result<String>;
}

/// A byte stream in both directions. Dropping it closes both.
pub trait Connection: Send + fmt::Debug {
    /// Reads at least one byte; 0 at the end of the stream.
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> BoxFuture<'a, io::Result<usize>>;
    /// Writes all of `bytes`. After an error any prefix may have been sent.
    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>>;
    /// Splits into halves that two tasks can use at once.
    fn split(self: Box<Self>) -> (Box<dyn ReadHalf>, Box<dyn WriteHalf>);
    /// The other side's address, for messages.
    fn peer_address(&self) -> String;
}

/// The receiving half of a connection.
pub trait ReadHalf: Send + fmt::Debug {
    /// Reads at least one byte; 0 at the end of the stream.
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> BoxFuture<'a, io::Result<usize>>;
}

/// The sending half of a connection. Dropping it ends the stream for the other side.
pub trait WriteHalf: Send + fmt::Debug {
    /// Writes as much of `bytes` as goes without waiting, and says how much: perhaps nothing. For
    /// who is no task, and writes on its own thread.
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Writes all of `bytes`. After an error any prefix may have been sent.
    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>>;
}
