//! TCP through the kernel's readiness events ([`reactor`](super::reactor)).

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::network_pool::NetworkPool;
use super::reactor::{Reactor, Registered, Way};
use super::threads;
use crate::network::{ReadHalf, Watched, WriteHalf};
use crate::{BoxFuture, Connection, Listener, Network, completion};

/// A host that vanished is noticed after 25 s of silence, whether or not something is on its way to
/// it: what waits for its next words would wait for a quarter of an hour, or for ever.
const SILENCE_MAX: Duration = Duration::from_secs(25);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// The host's network.
#[derive(Debug)]
pub(super) struct RealNetwork(pub(super) Arc<NetworkPool>);

impl Network for RealNetwork {
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let reactor = self.0.reactor()?;
            let mut last = no_address(address);
            for candidate in resolve(address).await? {
                match listen(reactor, candidate) {
                    Ok(listener) => return Ok(Box::new(RealListener(listener)) as Box<dyn Listener>),
                    Err(error) => last = error,
                }
            }
            Err(last)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let reactor = self.0.reactor()?;
            let mut last = no_address(address);
            for candidate in resolve(address).await? {
                match connect(reactor, candidate)
                    .await
                    .and_then(|stream| RealConnection::new(stream, candidate))
                {
                    Ok(connection) => return Ok(Box::new(connection) as Box<dyn Connection>),
                    Err(error) => last = error,
                }
            }
            Err(last)
        })
    }

    fn watch(&self, descriptor: OwnedFd) -> io::Result<Box<dyn Watched>> {
        Ok(Box::new(RealWatched(Registered::new(self.0.reactor()?, descriptor)?)))
    }
}

#[derive(Debug)]
struct RealWatched(Registered<OwnedFd>);

impl Watched for RealWatched {
    fn until_done<'a>(
        &'a self,
        attempt: &'a mut (dyn FnMut() -> io::Result<()> + Send),
    ) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(self.0.source().until_done(Way::Read, || Ok((attempt()?, false))))
    }
}

fn listen(reactor: &Arc<Reactor>, address: SocketAddr) -> io::Result<Registered<TcpListener>> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Registered::new(reactor, listener)
}

async fn connect(reactor: &Arc<Reactor>, address: SocketAddr) -> io::Result<Registered<TcpStream>> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let stream = Registered::new(reactor, TcpStream::from(socket))?;
    let is_connected = || {
        if let Some(error) = stream.socket().take_error()? {
            return Err(error);
        }
        match stream.socket().peer_addr() {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            connected => connected.map(|_| ((), false)),
        }
    };
    stream.source().until_done(Way::Write, is_connected).await?;
    Ok(stream)
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
    threads::start("tombolo-resolve", move || {
        completer.complete(address.to_socket_addrs().map(Iterator::collect));
    })?;
    resolved.await.unwrap_or_else(|| Err(io::Error::other("the resolver ended without an answer")))
}

#[derive(Debug)]
struct RealListener(Registered<TcpListener>);

impl Listener for RealListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let listener = self.0.socket();
            let (stream, peer) =
                self.0.source().until_done(Way::Read, || Ok((listener.accept()?, false))).await?;
            stream.set_nonblocking(true)?;
            let stream = Registered::new(self.0.reactor(), stream)?;
            Ok(Box::new(RealConnection::new(stream, peer)?) as Box<dyn Connection>)
        })
    }

    fn local_address(&self) -> io::Result<String> {
        Ok(self.0.socket().local_addr()?.to_string())
    }
}

#[derive(Debug)]
struct RealConnection {
    stream: Arc<Registered<TcpStream>>,
    peer: String,
}

impl RealConnection {
    /// With the process that is, or was, at `peer`: it may have gone already.
    fn new(stream: Registered<TcpStream>, peer: SocketAddr) -> io::Result<RealConnection> {
        // Requests are small and waited for.
        stream.socket().set_nodelay(true)?;
        let socket = stream.socket();
        set_socket_keepalive(socket, true)?;
        set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
        set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
        set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
        // The kernel sends no probes while something is not acknowledged.
        set_tcp_user_timeout(socket, u32::try_from(SILENCE_MAX.as_millis()).unwrap_or(u32::MAX))?;
        Ok(RealConnection { stream: Arc::new(stream), peer: peer.to_string() })
    }
}

async fn read(stream: &Registered<TcpStream>, buffer: &mut [u8]) -> io::Result<usize> {
    let wanted = buffer.len();
    let attempt = || {
        let count = stream.socket().read(buffer)?;
        // A stream that gives less has no more now; its end is told apart.
        Ok((count, count > 0 && count < wanted))
    };
    stream.source().until_done(Way::Read, attempt).await
}

async fn write_all(stream: &Registered<TcpStream>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count =
            stream.source().until_done(Way::Write, || Ok((stream.socket().write(bytes)?, false))).await?;
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
struct RealReadHalf(Arc<Registered<TcpStream>>);

impl ReadHalf for RealReadHalf {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(read(&self.0, buffer))
    }
}

#[derive(Debug)]
struct RealWriteHalf(Arc<Registered<TcpStream>>);

impl WriteHalf for RealWriteHalf {
    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.socket().write(bytes) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(0)
            }
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
        let _ = self.0.socket().shutdown(Shutdown::Write);
    }
}
