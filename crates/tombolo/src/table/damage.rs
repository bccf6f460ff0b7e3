//! All that is damaged in a table, not only the first.

use bytes::Bytes;
use tombolo_format::block::Cursor;
use tombolo_format::index::{PartitionHandle, decode_block_handle};
use tombolo_format::table::{Partition, Top};
use tombolo_storage::{Error, Request, Result};

use super::Table;

/// Damages of one table that are told; more would say nothing new.
const DAMAGES_MAX: usize = 256;

impl Table {
    /// Reads the whole table and tells everything that is damaged in it, block by block; nothing when it is sound.
    ///
    /// # Errors
    /// What the store returns, damage excepted.
    pub async fn damages(&self, request: Request) -> Result<Vec<Error>> {
        use tombolo_storage::ErrorKind::{Corrupt, NotFound, Unsupported};
        let first = match self.verify(request).await {
            Ok(()) => return Ok(Vec::new()),
            Err(error) if matches!(error.kind(), Corrupt | NotFound | Unsupported) => error,
            Err(error) => return Err(error),
        };
        let Ok(bytes) = self.read(request, 0..self.description.length).await else { return Ok(vec![first]) };
        let mut damages = Vec::new();
        match Top::decode(&bytes, self.description.length, self.description.identity) {
            Ok(top) => self.damages_of_blocks(&bytes, &top, &mut damages),
            // Without its index nothing else can be found.
            Err(error) => damages.push(self.damaged(error)),
        }
        if damages.is_empty() {
            damages.push(first);
        }
        damages.truncate(DAMAGES_MAX);
        Ok(damages)
    }

    /// Looks at each block by itself.
    fn damages_of_blocks(&self, bytes: &Bytes, top: &Top, damages: &mut Vec<Error>) {
        let at = top.footer.top_index.offset;
        let mut partitions = Cursor::new();
        let mut sound = partitions.first(&top.index);
        while sound.is_ok() && partitions.valid() && damages.len() < DAMAGES_MAX {
            match PartitionHandle::decode(partitions.value(&top.index), at) {
                Err(error) => damages.push(self.damaged(error.shifted(at))),
                Ok(handle) => match Partition::decode(bytes, 0, handle, top.footer.identity) {
                    Err(error) => damages.push(self.damaged(error)),
                    Ok(partition) => self.data_blocks(bytes, top, &partition, handle.index().offset, damages),
                },
            }
            sound = partitions.next(&top.index);
        }
        if let Err(error) = sound {
            damages.push(self.damaged(error.shifted(at)));
        }
    }

    fn data_blocks(&self, bytes: &Bytes, top: &Top, partition: &Partition, at: u64, damages: &mut Vec<Error>) {
        let mut blocks = Cursor::new();
        let mut sound = blocks.first(&partition.index);
        while sound.is_ok() && blocks.valid() && damages.len() < DAMAGES_MAX {
            match decode_block_handle(blocks.value(&partition.index), top.footer.data_end) {
                Err(error) => damages.push(self.damaged(error.shifted(at))),
                Ok(handle) => match self.decode_block(bytes, 0, handle) {
                    Err(error) => damages.push(error),
                    Ok(block) => damages.extend(block.verify(|_, _| Ok(())).err().map(|error| self.damaged(error.shifted(handle.offset)))),
                },
            }
            sound = blocks.next(&partition.index);
        }
        if let Err(error) = sound {
            damages.push(self.damaged(error.shifted(at)));
        }
    }
}
