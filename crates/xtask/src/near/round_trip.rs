//! Bare round trips of 512 B over the same loopback, without anything of ours: what TCP itself
//! takes at that moment.
//!
//! Three kinds. Between two threads: the least there is where the kernel keeps both on one
//! processor, and nobody's way to a node. To another process, as a node is one. To three other
//! processes, of which two are waited for, as a log on three nodes does it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};

/// Bytes of a message.
const BYTES: usize = 512;
/// Messages.
const TRIPS: usize = 10_000;

/// To whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Thread,
    Process,
    TwoOfThree,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Thread, Kind::Process, Kind::TwoOfThree];

    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Thread => "bare",
            Kind::Process => "bare-process",
            Kind::TwoOfThree => "bare-two-of-three",
        }
    }
}

/// Latencies of round trips, in microseconds, in order.
pub fn measure(kind: Kind) -> Result<Vec<f64>, String> {
    let trips = match kind {
        Kind::Thread => between_threads(TRIPS),
        Kind::Process => to_processes(1, 1, TRIPS),
        Kind::TwoOfThree => to_processes(3, 2, TRIPS),
    };
    trips.map_err(|error| format!("a bare round trip: {error}"))
}

/// Sends back what one connection sends, until that ends: another process, which first says on
/// standard output where it listens.
pub fn echo() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    serve(&listener)
}

fn serve(listener: &TcpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut buffer = [0; BYTES];
    while stream.read_exact(&mut buffer).is_ok() {
        stream.write_all(&buffer)?;
    }
    Ok(())
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn between_threads(count: usize) -> io::Result<Vec<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let echo = std::thread::spawn(move || serve(&listener));
    let trips = trips(vec![connect(&address)?], 1, count);
    // It ends with the connection.
    let _ended = echo.join();
    trips
}

/// A process that echoes, until this is dropped.
struct Echo(Child);

impl Drop for Echo {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn to_processes(processes: usize, waited_for: usize, count: usize) -> io::Result<Vec<f64>> {
    let (mut echoes, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..processes {
        let mut command = Command::new(std::env::current_exe()?);
        let mut echo =
            Echo(command.args(["near", "--echo"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
        let mut address = String::new();
        if let Some(stdout) = echo.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut address)?;
        }
        echoes.push(echo);
        streams.push(connect(address.trim())?);
    }
    trips(streams, waited_for, count)
}

/// Sends to all, and waits until so many have sent all of it back; the others' answers are taken as
/// they come.
fn trips(mut streams: Vec<TcpStream>, waited_for: usize, count: usize) -> io::Result<Vec<f64>> {
    let message = [7; BYTES];
    let mut buffer = [0; 8 * BYTES];
    let mut received = vec![0; streams.len()];
    let mut micros = Vec::with_capacity(count);
    for trip in 1..=count {
        let begun = Instant::now();
        for stream in &mut streams {
            stream.write_all(&message)?;
        }
        while received.iter().filter(|bytes| **bytes >= trip * BYTES).count() < waited_for {
            for at in ready(&streams)? {
                received[at] += match streams[at].read(&mut buffer)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    bytes => bytes,
                };
            }
        }
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    micros.sort_by(f64::total_cmp);
    Ok(micros)
}

/// Which of them have something to read, once one has. One alone is simply read: that waits as
/// well, in one call.
fn ready(streams: &[TcpStream]) -> io::Result<Vec<usize>> {
    if streams.len() == 1 {
        return Ok(vec![0]);
    }
    let mut waiting: Vec<PollFd<'_>> =
        streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
    poll(&mut waiting, None)?;
    Ok((0..waiting.len()).filter(|at| !waiting[*at].revents().is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trip_is_counted_in_order() {
        let micros = between_threads(20).unwrap();
        assert_eq!(micros.len(), 20);
        assert!(micros[0] > 0.0 && micros.is_sorted());
    }

    #[test]
    fn whoever_goes_away_ends_the_measurement() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = connect(&listener.local_addr().unwrap().to_string()).unwrap();
        let gone = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; BYTES]).unwrap();
        });
        assert_eq!(trips(vec![stream], 1, 20).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        gone.join().unwrap();
    }

    /// Two of three are waited for, however far behind the third is.
    #[test]
    fn the_last_of_three_is_not_waited_for() {
        let mut listeners: Vec<TcpListener> =
            (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let streams = listeners
            .iter()
            .map(|listener| connect(&listener.local_addr().unwrap().to_string()).unwrap())
            .collect();
        // It takes all bytes, and answers nothing.
        let _silent = listeners.remove(0);
        let serving: Vec<_> =
            listeners.into_iter().map(|listener| std::thread::spawn(move || serve(&listener))).collect();
        assert_eq!(trips(streams, 2, 20).unwrap().len(), 20);
        serving.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    }
}
