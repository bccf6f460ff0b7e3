//! Units of a zone, read one after another through a window.

use tombolo_format::zoned::{UNIT_HEADER_BYTES, Unit, unit_bytes};
use tombolo_storage::Result;

use crate::device::Device;
use crate::failed;

/// Bytes read at once.
const WINDOW_BYTES: usize = 256 << 10;

/// A zone that is read from front to back.
#[derive(Debug)]
pub struct Window<'a> {
    device: &'a dyn Device,
    zone: u32,
    /// Nothing beyond is read.
    end: u64,
    /// Where `bytes` begin.
    begin: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    /// The first `end` bytes of a zone.
    pub fn new(device: &'a dyn Device, zone: u32, end: u64) -> Window<'a> {
        Window { device, zone, end, begin: 0, bytes: Vec::new() }
    }

    /// `length` bytes at `at`; fewer at the end.
    fn take(&mut self, at: u64, length: usize) -> Result<&[u8]> {
        let left = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        let length = length.min(left);
        let held = at >= self.begin && at + length as u64 <= self.begin + self.bytes.len() as u64;
        if !held {
            self.bytes.resize(length.max(WINDOW_BYTES).min(left), 0);
            self.begin = at;
            if let Err(error) = self.device.read(self.zone, at, &mut self.bytes) {
                self.bytes.clear();
                return Err(failed(self.device, error, format!("reading zone {}", self.zone)));
            }
        }
        let from = usize::try_from(at - self.begin).unwrap_or(usize::MAX).min(self.bytes.len());
        Ok(&self.bytes[from..from + length])
    }

    /// Whether a unit seems to begin at `at`, whole or not.
    ///
    /// # Errors
    /// The device's.
    pub fn may_begin(&mut self, at: u64) -> Result<bool> {
        Ok(Unit::payload_bytes(self.take(at, UNIT_HEADER_BYTES)?).is_ok())
    }

    /// Bytes of the zone that the unit at `at` takes, and the unit's bytes; `None` when no whole
    /// unit begins there.
    ///
    /// # Errors
    /// The device's.
    pub fn unit(&mut self, at: u64) -> Result<Option<(u64, Unit<'_>)>> {
        let block = self.device.geometry().block_bytes as usize;
        let Ok(payload) = Unit::payload_bytes(self.take(at, UNIT_HEADER_BYTES)?) else { return Ok(None) };
        let bytes = unit_bytes(payload, block);
        if at + bytes as u64 > self.end {
            return Ok(None);
        }
        Ok(Unit::decode(self.take(at, bytes)?).ok().map(|unit| (bytes as u64, unit)))
    }
}
