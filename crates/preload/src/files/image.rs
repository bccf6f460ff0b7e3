//! A file in memory: its bytes, and in which extents the database keeps them. Pure: it plans rows,
//! and applies what was written.
//!
//! `plan (pure) → one batch of the database → apply`. Loading a file applies the rows that are
//! there.
//!
//! A write becomes one extent where it was made, so that an append costs its own bytes in the log
//! and no more, and a page that is written again replaces its row. What it overlaps is cut: the
//! rest of an extent is written with it when that is little, else as extents of its own. Blocks of
//! many small extents are merged into one, so that what has to be read at the next opening stays
//! bounded; by the rule in [`Image::plan_merge`] merging writes at most about twice what was
//! written since the block was merged last.

use std::borrow::Cow;
use std::collections::BTreeMap;

use tombolo::Result;
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::rows::{BLOCK_BYTES, Content, FileId, content};

/// [`BLOCK_BYTES`] as a length in memory.
const BLOCK_LENGTH: usize = 16_384;
const _: () = assert!(BLOCK_LENGTH as u64 == BLOCK_BYTES);
/// Extents that a block may have when a write leaves it.
const EXTENTS_LEFT_MAX: usize = 32;
/// Extents that a block may have at all.
const EXTENTS_MAX: usize = 1024;
/// A rest of an extent up to these bytes is written again with an overlapping write, however short,
/// rather than cut into extents of its own.
const REST_BYTES_MIN: usize = 512;

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The extent at the offset has these bytes. What it had beyond them is gone.
    Put(u64, Cow<'a, [u8]>),
    /// The extent at the offset is gone.
    Delete(u64),
    /// The file has at least this size.
    Size(u64),
}

#[derive(Clone, Debug, Default)]
struct Block {
    /// Up to the end of its last extent, about; what no extent holds is zero.
    bytes: Vec<u8>,
    /// Lengths by where they begin within the block.
    extents: BTreeMap<u32, u32>,
    /// Bytes written since its extents were merged.
    unmerged_bytes: u64,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// By number: offset divided by [`BLOCK_BYTES`]. Invariant: each has an extent.
    blocks: BTreeMap<u64, Block>,
    /// The size that the file has at least.
    size_min: u64,
    /// Where the last write ended, as the number of a block.
    current: Option<u64>,
    memory_bytes: u64,
}

fn place(offset: u64) -> (u64, u32) {
    (offset / BLOCK_BYTES, u32::try_from(offset % BLOCK_BYTES).unwrap_or(0))
}

impl Block {
    fn end(&self) -> u32 {
        self.extents.last_key_value().map_or(0, |(start, length)| start + length)
    }

    /// The extents that have bytes of `start..end`, in order.
    fn overlapping(&self, start: u32, end: u32) -> impl Iterator<Item = (u32, u32)> {
        let before = self.extents.range(..start).next_back().filter(|(at, length)| *at + *length > start);
        before.into_iter().chain(self.extents.range(start..end)).map(|(at, length)| (*at, *length))
    }

    fn slice(&self, start: u32, end: u32) -> &[u8] {
        &self.bytes[start as usize..end as usize]
    }

    fn put(&mut self, start: u32, bytes: &[u8]) {
        self.delete(start);
        let end = start as usize + bytes.len();
        if self.bytes.len() < end {
            // Room for what follows, but no more than a block.
            let room = end.next_power_of_two().min(BLOCK_LENGTH);
            self.bytes.reserve_exact(room - self.bytes.len());
            self.bytes.resize(end, 0);
        }
        self.bytes[start as usize..end].copy_from_slice(bytes);
        self.extents.insert(start, u32::try_from(bytes.len()).unwrap_or(0));
    }

    fn delete(&mut self, start: u32) {
        if let Some(length) = self.extents.remove(&start) {
            self.bytes[start as usize..(start + length) as usize].fill(0);
        }
    }

    /// Rows for `data` at `start`, and for the extents that it cuts.
    fn plan_write<'a>(&self, base: u64, start: u32, data: &'a [u8], plan: &mut Vec<Change<'a>>) {
        let end = start + u32::try_from(data.len()).unwrap_or(0);
        let (mut left, mut right): (&[u8], &[u8]) = (&[], &[]);
        for (at, length) in self.overlapping(start, end) {
            if at < start {
                left = self.slice(at, start);
            }
            if at + length > end {
                right = self.slice(end, at + length);
            }
            if at > start {
                plan.push(Change::Delete(base + u64::from(at)));
            }
        }
        if is_enabled(Mutant::FilesOverwriteLosesRest) {
            (left, right) = (&[], &[]);
        }
        if left.len() + right.len() <= data.len().max(REST_BYTES_MIN)
            && !(left.is_empty() && right.is_empty())
        {
            let at = start - u32::try_from(left.len()).unwrap_or(0);
            plan.push(Change::Put(base + u64::from(at), [left, data, right].concat().into()));
            return;
        }
        if !left.is_empty() {
            let at = start - u32::try_from(left.len()).unwrap_or(0);
            plan.push(Change::Put(base + u64::from(at), left.to_vec().into()));
        }
        plan.push(Change::Put(base + u64::from(start), data.into()));
        if !right.is_empty() {
            plan.push(Change::Put(base + u64::from(end), right.to_vec().into()));
        }
    }
}

impl Image {
    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        let last = self
            .blocks
            .last_key_value()
            .map_or(0, |(number, block)| number * BLOCK_BYTES + u64::from(block.end()));
        last.max(self.size_min)
    }

    /// Memory that its bytes take, about.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Extents, for the caller that has to delete them.
    pub fn extents(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().flat_map(|(number, block)| {
            block.extents.keys().map(move |start| number * BLOCK_BYTES + u64::from(*start))
        })
    }

    /// How many of them there are.
    pub fn extents_count(&self) -> usize {
        self.blocks.values().map(|block| block.extents.len()).sum()
    }

    /// Copies what the file has at `offset` into `buffer`; less than it holds at the file's end.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let length = self.size().saturating_sub(offset).min(buffer.len() as u64);
        let length = usize::try_from(length).unwrap_or(buffer.len());
        let mut done = 0;
        while done < length {
            let (number, start) = place(offset + done as u64);
            let start = start as usize;
            let part = (length - done).min(BLOCK_LENGTH - start);
            let target = &mut buffer[done..done + part];
            let held =
                self.blocks.get(&number).and_then(|block| block.bytes.get(start..)).unwrap_or_default();
            let copied = held.len().min(part);
            target[..copied].copy_from_slice(&held[..copied]);
            target[copied..].fill(0);
            done += part;
        }
        length
    }

    /// Rows for `data` at `offset`.
    pub fn plan_write<'a>(&self, offset: u64, data: &'a [u8]) -> Vec<Change<'a>> {
        let nothing = Block::default();
        let mut plan = Vec::with_capacity(1);
        let mut done = 0;
        while done < data.len() {
            let (number, start) = place(offset + done as u64);
            let part = (data.len() - done).min(BLOCK_LENGTH - start as usize);
            let block = self.blocks.get(&number).unwrap_or(&nothing);
            block.plan_write(number * BLOCK_BYTES, start, &data[done..done + part], &mut plan);
            done += part;
        }
        plan
    }

    /// Rows for the size `size`, or for one between it and the present one when that would take
    /// more than `changes_max` of them.
    pub fn plan_truncate(&self, size: u64, changes_max: usize) -> Vec<Change<'static>> {
        let mut plan = Vec::new();
        let mut reached = size;
        for (number, block) in self.blocks.range(size / BLOCK_BYTES..).rev() {
            let base = number * BLOCK_BYTES;
            for (start, length) in block.extents.iter().rev() {
                let at = base + u64::from(*start);
                if at + u64::from(*length) <= size {
                    break;
                }
                if plan.len() >= changes_max {
                    reached = at + u64::from(*length);
                    plan.push(Change::Size(reached));
                    return plan;
                }
                if at >= size || is_enabled(Mutant::FilesTruncateLosesRest) {
                    plan.push(Change::Delete(at));
                } else {
                    let kept = block.slice(*start, place(size).1);
                    plan.push(Change::Put(at, kept.to_vec().into()));
                }
            }
        }
        if self.size_min != reached {
            plan.push(Change::Size(reached));
        }
        plan
    }

    /// Rows that make one extent of each block which the write that ended at `end` left, or filled
    /// with extents, when there are many and what was written since the last time pays for it. Call
    /// it after that write was applied.
    pub fn plan_merge(&mut self, end: u64) -> Vec<Change<'static>> {
        let current = end.saturating_sub(1) / BLOCK_BYTES;
        let left = self.current.replace(current).filter(|left| *left != current);
        let mut plan = Vec::new();
        for (number, is_left) in left.map(|left| (left, true)).into_iter().chain([(current, false)]) {
            let Some(block) = self.blocks.get(&number) else { continue };
            let pays = block.unmerged_bytes * 2 >= u64::from(block.end());
            let many = block.extents.len() > EXTENTS_MAX
                || (is_left && pays && block.extents.len() > EXTENTS_LEFT_MAX);
            if !many {
                continue;
            }
            let base = number * BLOCK_BYTES;
            let Some(first) = block.extents.keys().next() else { continue };
            plan.extend(block.extents.keys().skip(1).map(|start| Change::Delete(base + u64::from(*start))));
            plan.push(Change::Put(
                base + u64::from(*first),
                block.slice(*first, block.end()).to_vec().into(),
            ));
        }
        plan
    }

    /// Forgets how much was written to the blocks that `plan` merged.
    pub fn merged(&mut self, plan: &[Change<'_>]) {
        for change in plan {
            if let Change::Put(offset, _) = change
                && let Some(block) = self.blocks.get_mut(&place(*offset).0)
            {
                block.unmerged_bytes = 0;
            }
        }
    }

    /// Makes it so. Deletes come before puts of the same block in every plan.
    pub fn apply(&mut self, plan: &[Change<'_>]) {
        for change in plan {
            match change {
                Change::Put(offset, bytes) => self.put(*offset, bytes),
                Change::Delete(offset) => self.delete(*offset),
                Change::Size(size) => self.size_min = *size,
            }
        }
    }

    /// Takes a row over from the database.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn load(&mut self, id: FileId, key: &[u8], value: &[u8]) -> Result<()> {
        match content(id, key, value)? {
            Content::Extent { offset, bytes } => self.put(offset, bytes),
            Content::Size(size) => self.size_min = size,
        }
        Ok(())
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let (number, start) = place(offset);
        let block = self.blocks.entry(number).or_default();
        let before = block.bytes.capacity();
        block.put(start, bytes);
        block.unmerged_bytes += bytes.len() as u64;
        self.memory_bytes = self.memory_bytes + block.bytes.capacity() as u64 - before as u64;
    }

    fn delete(&mut self, offset: u64) {
        let (number, start) = place(offset);
        let Some(block) = self.blocks.get_mut(&number) else { return };
        block.delete(start);
        if block.extents.is_empty() {
            self.memory_bytes -= block.bytes.capacity() as u64;
            self.blocks.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests;
