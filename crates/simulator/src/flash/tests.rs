use std::path::Path;
use std::time::Duration;

use super::*;
use crate::random::Random;

const BLOCK: u64 = 64 * PAGE_BYTES;

#[test]
fn what_is_written_in_order_is_never_moved() {
    let mut ftl = Ftl::new(Timing::default(), 64 * BLOCK, BLOCK);
    for page in (0..4).flat_map(|_| 0..64 * 64) {
        ftl.write(page);
    }
    let wear = ftl.wear();
    assert_eq!((wear.host_pages, wear.moved_pages), (4 * 64 * 64, 0));
    assert!(wear.erased >= 3 * 64 - 8 && wear.amplification() == 1.0);
}

/// Greedy collection of 7 % spare under writes at random is known to write each page about seven
/// times; the two blocks that are always free add a little room.
#[test]
fn writes_at_random_to_a_full_device_are_amplified() {
    let blocks = 1024_u64;
    let mut ftl = Ftl::new(Timing::default(), blocks * BLOCK, BLOCK);
    let pages = u32::try_from(blocks * 64).unwrap();
    for page in 0..pages {
        ftl.write(page);
    }
    let (mut random, before) = (Random::fixed(1, 1), ftl.wear());
    for _ in 0..8 * pages {
        ftl.write(u32::try_from(random.below(u64::from(pages))).unwrap());
    }
    let wear = ftl.wear().since(&before);
    assert!((4.0..9.0).contains(&wear.amplification()), "{}", wear.amplification());
    assert!(wear.busy > Timing::default().program * 8 * pages);
}

#[test]
fn a_page_that_is_forgotten_is_not_moved() {
    let mut ftl = Ftl::new(Timing::default(), 64 * BLOCK, BLOCK);
    let mut random = Random::fixed(1, 1);
    for _ in 0..100_000 {
        let page = u32::try_from(random.below(64)).unwrap();
        ftl.write(page * 64);
        ftl.discard(page * 64);
    }
    assert_eq!(ftl.wear().moved_pages, 0);
}

#[test]
fn files_give_their_room_back_with_their_last_name() {
    let mut files = FileSystemOnFlash::new(Ftl::new(Timing::default(), 64 * BLOCK, BLOCK), true);
    for round in 0..100 {
        let (partial, name) = (format!("/tmp-{round}"), "/object");
        files.create(Path::new(&partial));
        files.write(Path::new(&partial), 0, 32 * BLOCK / 4);
        assert!(files.sync(Path::new(&partial)) > Duration::ZERO);
        files.rename(Path::new(&partial), Path::new(name));
        // Under the name of its opening.
        files.write(Path::new(&partial), 0, 1);
        files.sync(Path::new(&partial));
    }
    assert!(files.used_most() < 0.4, "{}", files.used_most());
    let wear = files.wear();
    assert!(wear.host_pages >= 100 * (8 * 64 + 4) && wear.moved_pages < wear.host_pages / 4, "{wear:?}");
}

#[test]
fn calls_of_threads_are_played_in_the_order_of_their_time() {
    let one = "\
1764345600.000001 openat(AT_FDCWD</>, \"/db/000004.log\", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 5</db/000004.log>
1764345600.000002 write(5</db/000004.log>, \"\"..., 5000) = 5000
1764345600.000005 fdatasync(5</db/000004.log>) = 0
1764345600.000007 write(5</db/000004.log>, \"\"..., 100) = -1 ENOSPC (No space left on device)
1764345600.000008 +++ exited with 0 +++
";
    let other = "\
1764345600.000003 write(5</db/000004.log>, \"\"..., 5000) = 5000
1764345600.000004 pwrite64(6</elsewhere>, \"\"..., 4096, 0) = 4096
1764345600.000006 rename(\"/db/000004.log\", \"/db/000005.log\") = 0
";
    let mut files = FileSystemOnFlash::new(Ftl::new(Timing::default(), 64 * BLOCK, BLOCK), true);
    let threads = [one.to_owned(), other.to_owned()];
    assert_eq!(replay(&threads, Path::new("/db"), &mut files), 5);
    // Three pages of data, and a commit of three.
    assert_eq!(files.wear().host_pages, 6);
}

/// The engine on zones has the device move nothing, and what it answers is what was put.
#[test]
fn the_engine_on_zones_moves_nothing() {
    let sizes = Sizes {
        device_bytes: 16 << 20,
        block_bytes: 256 << 10,
        keys: 8_000,
        value_bytes: 400,
        clients: 8,
        overwrites: 4_000,
        reads: 500,
        memtable_bytes: 128 << 10,
    };
    let outcome = run(Setting::Zones, sizes, 1).unwrap();
    assert_eq!((outcome.wear[1].moved_pages, outcome.relocated_bytes), (0, 0));
    assert!(outcome.wear[1].erased > 0 && outcome.latency(9_990) > Duration::ZERO);
    let plain = run(Setting::FileSystem { discards: true }, sizes, 1).unwrap();
    assert!(plain.wear[1].host_pages > 0 && plain.latencies.len() == outcome.latencies.len());
}
