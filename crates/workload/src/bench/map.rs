//! A plain ordered map as a target: the smallest example of an implementation, for tests.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::target::{Durability, NextEntry, NextKey, ReadEnded, Seen, Session, Target, TargetError};

/// An ordered map in memory.
#[derive(Debug, Default)]
pub(crate) struct Map(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Map {
    pub(crate) fn entries(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Vec<u8>>> {
        self.0.lock().unwrap()
    }
}

impl Target for Map {
    type Session<'a> = &'a Map;

    fn session(&self, _durability: Durability) -> &Map {
        self
    }

    fn flush(&self) -> Result<(), TargetError> {
        Ok(())
    }

    fn compact(&self) -> Result<(), TargetError> {
        Ok(())
    }

    fn settle(&self, _go_on: &dyn Fn() -> bool) -> Result<(), TargetError> {
        Ok(())
    }

    fn statistics(&self) -> String {
        format!("{} entries", self.entries().len())
    }

    fn describe(&self) -> String {
        "an ordered map in memory".to_owned()
    }
}

impl Session for &Map {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.batch(&[(key, Some(value))])
    }

    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, TargetError> {
        let map = self.entries();
        let value = map.get(key);
        if let Some(value) = value {
            seen(value);
        }
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        self.batch(&[(key, None)])
    }

    fn single_delete(&mut self, key: &[u8]) -> Result<(), TargetError> {
        self.delete(key)
    }

    fn delete_range(&mut self, from: &[u8], to: &[u8]) -> Result<(), TargetError> {
        self.entries().retain(|key, _| !(from..to).contains(&&key[..]));
        Ok(())
    }

    fn put_ttl(&mut self, key: &[u8], value: &[u8], _ttl: Duration) -> Result<(), TargetError> {
        self.put(key, value)
    }

    fn ingest(&mut self, entries: NextEntry<'_>) -> Result<(), TargetError> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while entries(&mut key, &mut value) {
            self.entries().insert(key.clone(), value.clone());
        }
        Ok(())
    }

    fn merge(&mut self, key: &[u8], operand: u64) -> Result<(), TargetError> {
        let mut map = self.entries();
        let number = map.get(key).and_then(|value| Some(u64::from_le_bytes(value[..].try_into().ok()?)));
        let sum = number.unwrap_or(0).wrapping_add(operand);
        map.insert(key.to_vec(), sum.to_le_bytes().to_vec());
        Ok(())
    }

    /// Nothing waits here: reads on their way end in the opposite order.
    fn get_in_flight(
        &mut self,
        in_flight: usize,
        next: NextKey<'_>,
        ended: ReadEnded<'_>,
    ) -> Result<(), TargetError> {
        loop {
            let mut begun = Vec::new();
            let mut key = Vec::new();
            while begun.len() < in_flight
                && let Some(number) = next(&mut key)
            {
                begun.push((number, key.clone()));
            }
            if begun.is_empty() {
                return Ok(());
            }
            let map = self.entries();
            for (number, key) in begun.into_iter().rev() {
                ended(number, Ok(map.get(&key).map(Vec::as_slice)));
            }
        }
    }

    fn scan(&mut self, from: &[u8], entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        let map = self.entries();
        let range = map.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        Ok(range.take(entries).take_while(|(key, value)| seen(key, value)).count())
    }

    fn scan_back(&mut self, entries: usize, seen: Seen<'_>) -> Result<usize, TargetError> {
        let map = self.entries();
        Ok(map.iter().rev().take(entries).take_while(|(key, value)| seen(key, value)).count())
    }

    fn batch(&mut self, writes: &[(&[u8], Option<&[u8]>)]) -> Result<(), TargetError> {
        let mut map = self.entries();
        for (key, value) in writes {
            match value {
                Some(value) => map.insert(key.to_vec(), value.to_vec()),
                None => map.remove(*key),
            };
        }
        Ok(())
    }
}
