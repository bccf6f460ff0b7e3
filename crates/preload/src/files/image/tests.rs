//! An image against plain bytes, and its rows against an image loaded from them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::files::rows::{extent_key, size_key};

const ID: FileId = FileId(3);

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    Append(usize),
    Truncate(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Three blocks, and lengths at which extents touch, overlap and cross.
    let length = prop_oneof![1_usize..40, 100_usize..600, 4096..=4096_usize, 10_000_usize..40_000];
    let offset = prop_oneof![0_u64..200, 4000_u64..5000, 16_300_u64..16_500, 0_u64..50_000];
    let step = prop_oneof![
        4 => (offset.clone(), length.clone()).prop_map(|(offset, length)| Step::Write(offset, length)),
        3 => length.prop_map(Step::Append),
        1 => offset.prop_map(Step::Truncate),
    ];
    prop::collection::vec(step, 1..60)
}

/// What the database holds.
#[derive(Default)]
struct Rows(BTreeMap<Vec<u8>, Vec<u8>>);

impl Rows {
    fn apply(&mut self, plan: &[Change<'_>]) {
        for change in plan {
            match change {
                Change::Put(offset, bytes) => self.0.insert(extent_key(ID, *offset).to_vec(), bytes.to_vec()),
                Change::Delete(offset) => self.0.remove(&extent_key(ID, *offset)[..]),
                Change::Size(size) => self.0.insert(size_key(ID).to_vec(), size.to_le_bytes().to_vec()),
            };
        }
    }

    fn image(&self) -> Image {
        let mut image = Image::default();
        for (key, value) in &self.0 {
            image.load(ID, key, value).unwrap();
        }
        image
    }
}

fn bytes_of(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0xAA; usize::try_from(image.size()).unwrap() + 10];
    let length = image.read(0, &mut bytes);
    bytes.truncate(length);
    bytes
}

fn write(image: &mut Image, rows: &mut Rows, offset: u64, data: &[u8]) {
    let plan = image.plan_write(offset, data);
    image.apply(&plan);
    rows.apply(&plan);
    let plan = image.plan_merge(offset + data.len() as u64);
    image.apply(&plan);
    image.merged(&plan);
    rows.apply(&plan);
}

proptest! {
    #[test]
    fn image_and_rows_are_the_file(steps in steps(), changes_max in 1_usize..6) {
        let (mut image, mut rows, mut file) = (Image::default(), Rows::default(), Vec::new());
        for (number, step) in steps.iter().enumerate() {
            let fill = u8::try_from(number % 250 + 1).unwrap();
            match *step {
                Step::Write(offset, length) => {
                    write(&mut image, &mut rows, offset, &vec![fill; length]);
                    let start = usize::try_from(offset).unwrap();
                    file.resize(file.len().max(start + length), 0);
                    file[start..start + length].fill(fill);
                }
                Step::Append(length) => {
                    write(&mut image, &mut rows, file.len() as u64, &vec![fill; length]);
                    file.extend(vec![fill; length]);
                }
                Step::Truncate(size) => {
                    while image.size() != size {
                        let before = image.size();
                        let plan = image.plan_truncate(size, changes_max);
                        image.apply(&plan);
                        rows.apply(&plan);
                        prop_assert!(image.size() == size || image.size() < before, "each step comes nearer");
                        prop_assert_eq!(bytes_of(&rows.image()).len() as u64, image.size());
                    }
                    file.resize(usize::try_from(size).unwrap(), 0);
                }
            }
            prop_assert_eq!(image.size(), file.len() as u64);
        }
        prop_assert!(bytes_of(&image) == file, "the image is the file");
        prop_assert!(bytes_of(&rows.image()) == file, "the rows are the file");
        let extents: Vec<u64> = rows.image().extents().collect();
        prop_assert_eq!(extents, image.extents().collect::<Vec<_>>());
        let capacity: u64 = image.blocks.values().map(|block| block.bytes.capacity() as u64).sum();
        prop_assert_eq!(image.memory_bytes(), capacity);
    }
}

#[test]
fn what_a_write_overlaps_and_a_cut_leaves_stays() {
    // Rests that are written with it, and rests that become extents of their own.
    for length in [100_usize, 8000] {
        let (mut image, mut rows) = (Image::default(), Rows::default());
        let mut file = vec![1; length * 2];
        write(&mut image, &mut rows, 0, &file);
        write(&mut image, &mut rows, length as u64 - 20, &[2; 40]);
        file[length - 20..length + 20].fill(2);
        assert!(bytes_of(&image) == file && bytes_of(&rows.image()) == file, "length {length}: overwritten");
        let plan = image.plan_truncate(length as u64, 100);
        image.apply(&plan);
        rows.apply(&plan);
        file.truncate(length);
        assert!(bytes_of(&image) == file && bytes_of(&rows.image()) == file, "length {length}: cut");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_rule_taken_out_is_noticed() {
    use tombolo_storage::mutant::notices;
    notices(Mutant::FilesOverwriteLosesRest, what_a_write_overlaps_and_a_cut_leaves_stays);
    notices(Mutant::FilesTruncateLosesRest, what_a_write_overlaps_and_a_cut_leaves_stays);
}

#[test]
fn appends_cost_little_more_than_their_bytes_and_are_merged() {
    let (mut image, mut written, mut rows) = (Image::default(), 0, Rows::default());
    let appends = 20_000_u64;
    for number in 0..appends {
        let data = [u8::try_from(number % 251).unwrap(); 50];
        let plan = image.plan_write(number * 50, &data);
        image.apply(&plan);
        rows.apply(&plan);
        let merge = image.plan_merge(number * 50 + 50);
        image.apply(&merge);
        image.merged(&merge);
        rows.apply(&merge);
        written += plan
            .iter()
            .chain(&merge)
            .map(|change| if let Change::Put(_, bytes) = change { bytes.len() as u64 } else { 0 })
            .sum::<u64>();
    }
    assert!(written <= appends * 50 * 21 / 10, "{written} bytes for {} of appends", appends * 50);
    let blocks = appends * 50 / BLOCK_BYTES + 1;
    assert!(rows.0.len() as u64 <= blocks + EXTENTS_MAX as u64, "{} rows for {blocks} blocks", rows.0.len());
}

#[test]
fn a_page_that_is_written_again_replaces_its_row() {
    let (mut image, mut rows) = (Image::default(), Rows::default());
    for round in 0..50_u8 {
        for page in [3_u64, 0, 9, 1] {
            write(&mut image, &mut rows, page * 4096, &[round; 4096]);
        }
    }
    assert_eq!(rows.0.len(), 4);
}
