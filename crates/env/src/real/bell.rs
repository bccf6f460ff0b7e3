//! Bells through a datagram socket, one for each process, in Linux's abstract namespace: its name
//! is that of the process, no file of it is left when the process dies, and none has to be made.
//!
//! A thread listens from the first wait on, one for the whole process. Where the system refuses the
//! socket or the thread nobody is woken, and looks now and then as without a bell.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;

use super::{facts, threads};
use crate::Completion;
use crate::bell::Bells;

static BELLS: Bells = Bells::new();
/// The process whose thread listens: a child that was forked has none.
static LISTENING: Mutex<Option<u32>> = Mutex::new(None);

fn address(namespace: u64, process: u32, start: u64) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("tombolo-{namespace}-{process}-{start}"))
}

/// Resolves when the bell is rung after this call.
pub(super) fn wait(key: u128) -> Completion<()> {
    let rung = BELLS.wait(key);
    let own = std::process::id();
    let mut listening = LISTENING.lock();
    if *listening != Some(own) && !cfg!(miri) {
        // Tried once: a refusal now is one later too.
        *listening = Some(own);
        let _silent = listen();
    }
    rung
}

fn listen() -> io::Result<()> {
    let own = facts::process();
    let socket = UnixDatagram::bind_addr(&address(own.namespace, own.process, own.start)?)?;
    let hear = move || {
        let mut key = [0; 16];
        while let Ok(length) = socket.recv(&mut key) {
            if length == key.len() {
                // The panic hook has reported it; others are woken on.
                let _ = catch_unwind(AssertUnwindSafe(|| BELLS.ring(u128::from_le_bytes(key))));
            }
        }
    };
    threads::start("tombolo-bell", hear).map(drop)
}

/// Rings a bell of a process of this host and namespace. Nobody waits.
pub(super) fn ring(process: u32, start: u64, key: u128) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let address = address(facts::process().namespace, process, start)?;
    socket.send_to_addr(&key.to_le_bytes(), &address).map(drop)
}
