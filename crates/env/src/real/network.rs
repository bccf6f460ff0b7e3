//! TCP through the kernel's readiness events.
//!
//! The library that waits for them makes what it needs with the first socket, and panics when it cannot: so that is asked before.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_io::Async;

use super::threads;
use crate::network::{ReadHalf, WriteHalf};
use crate::{BoxFuture, Connection, Listener, Network, completion};

/// The host's network.
#[derive(Debug)]
pub(super) struct RealNetwork;

/// Descriptors that the first socket takes with all that comes with it (epoll, eventfd, timerfd), and one more.
const FIRST_DESCRIPTORS: usize = 5;

/// Makes sure, before the first socket of the process, that enough descriptors are left. Another thread may take them in between; at a
/// process that is not at its very limit it does not.
pub(super) fn check_descriptors() -> io::Result<()> {
    static CHECKED: AtomicBool = AtomicBool::new(false);
    if !CHECKED.load(Ordering::Acquire) {
        let left: io::Result<Vec<File>> = (0..FIRST_DESCRIPTORS).map(|_| File::open("/dev/null")).collect();
        drop(left?);
        CHECKED.store(true, Ordering::Release);
    }
    Ok(())
}

impl Network for RealNetwork {
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            check_descriptors()?;
            let mut last = no_address(address);
            for candidate in resolve(address).await? {
                match Async::<TcpListener>::bind(candidate) {
                    Ok(listener) => return Ok(Box::new(RealListener(listener)) as Box<dyn Listener>),
                    Err(error) => last = error,
                }
            }
            Err(last)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            check_descriptors()?;
            let mut last = no_address(address);
            for candidate in resolve(address).await? {
                match Async::<TcpStream>::connect(candidate).await {
                    Ok(stream) => return Ok(Box::new(RealConnection::new(stream)?) as Box<dyn Connection>),
                    Err(error) => last = error,
                }
            }
            Err(last)
        })
    }
}

fn no_address(address: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{address} resolves to no address"))
}

/// Resolves names on a thread of its own: the system's resolver blocks.
async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(literal) = address.parse() {
        return Ok(vec![literal]);
    }
    let (completer, resolved) = completion();
    let address = address.to_owned();
    threads::start("tombolo-resolve", move || completer.complete(address.to_socket_addrs().map(Iterator::collect)))?;
    resolved.await.unwrap_or_else(|| Err(io::Error::other("the resolver ended without an answer")))
}

#[derive(Debug)]
struct RealListener(Async<TcpListener>);

impl Listener for RealListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let (stream, _) = self.0.accept().await?;
            Ok(Box::new(RealConnection::new(stream)?) as Box<dyn Connection>)
        })
    }

    fn local_address(&self) -> io::Result<String> {
        Ok(self.0.get_ref().local_addr()?.to_string())
    }
}

#[derive(Debug)]
struct RealConnection {
    stream: Arc<Async<TcpStream>>,
    peer: String,
}

impl RealConnection {
    fn new(stream: Async<TcpStream>) -> io::Result<RealConnection> {
        // Requests are small and waited for.
        stream.get_ref().set_nodelay(true)?;
        let peer = stream.get_ref().peer_addr()?.to_string();
        Ok(RealConnection { stream: Arc::new(stream), peer })
    }
}

async fn read(stream: &Async<TcpStream>, buffer: &mut [u8]) -> io::Result<usize> {
    stream.read_with(|mut stream| stream.read(buffer)).await
}

async fn write_all(stream: &Async<TcpStream>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = stream.write_with(|mut stream| stream.write(bytes)).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[count..];
    }
    Ok(())
}

impl Connection for RealConnection {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(read(&self.stream, buffer))
    }

    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(write_all(&self.stream, bytes))
    }

    fn split(self: Box<Self>) -> (Box<dyn ReadHalf>, Box<dyn WriteHalf>) {
        (Box::new(RealReadHalf(Arc::clone(&self.stream))), Box::new(RealWriteHalf(self.stream)))
    }

    fn peer_address(&self) -> String {
        self.peer.clone()
    }
}

#[derive(Debug)]
struct RealReadHalf(Arc<Async<TcpStream>>);

impl ReadHalf for RealReadHalf {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(read(&self.0, buffer))
    }
}

#[derive(Debug)]
struct RealWriteHalf(Arc<Async<TcpStream>>);

impl WriteHalf for RealWriteHalf {
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.get_ref().write(bytes) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            written => written,
        }
    }

    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(write_all(&self.0, bytes))
    }
}

impl Drop for RealWriteHalf {
    fn drop(&mut self) {
        // The other side reads the end of the stream; an already broken connection needs no ending.
        let _ = self.0.get_ref().shutdown(Shutdown::Write);
    }
}
