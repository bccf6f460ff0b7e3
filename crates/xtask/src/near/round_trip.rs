//! A bare round trip of 512 B over the same loopback, without anything of ours: what TCP itself takes at that moment.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// Bytes of a message.
const BYTES: usize = 512;
/// Messages.
const TRIPS: usize = 10_000;

/// Latencies of round trips, in microseconds, in order.
pub fn measure() -> Result<Vec<f64>, String> {
    trips(TRIPS).map_err(|error| format!("a bare round trip: {error}"))
}

fn trips(count: usize) -> io::Result<Vec<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut buffer = [0; BYTES];
        while stream.read_exact(&mut buffer).is_ok() {
            stream.write_all(&buffer)?;
        }
        Ok::<(), io::Error>(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut buffer = [7; BYTES];
    let mut micros = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    drop(stream);
    // It ends with the connection.
    let _ended = echo.join();
    micros.sort_by(f64::total_cmp);
    Ok(micros)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_trip_is_counted_in_order() {
        let micros = super::trips(20).unwrap();
        assert_eq!(micros.len(), 20);
        assert!(micros[0] > 0.0 && micros.is_sorted());
    }
}
