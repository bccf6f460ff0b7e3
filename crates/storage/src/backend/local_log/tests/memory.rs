//! What a log holds in memory until a sync, in its engine's books.

use std::sync::Arc;

use super::harness::{Case, FORMS, Plan, read};
use crate::backend::local_log::{Form, LocalLogOptions};
use crate::conformance::log::entry;
use crate::log_memory::books::Books;
use crate::{ErrorKind, Log, LogContext, LogOffset, LogStore};

const KIB: usize = 1 << 10;

fn opened(case: &Case) -> (Arc<Books>, Arc<dyn Log>) {
    let writer = case.world.process("writer");
    let books = Arc::new(Books::default());
    let context = LogContext { memory: Arc::<Books>::clone(&books), ..case.context(&writer, 1) };
    let log = writer.block_on(case.store(&writer).open(&context, 1)).expect("opening");
    (books, log)
}

#[test]
fn what_waits_for_a_sync_is_in_the_books_until_it_comes() {
    for form in FORMS {
        let (books, log) = {
            let case = Case::with(
                1,
                LocalLogOptions { form, segment_bytes_min: 4 << 20, ..LocalLogOptions::default() },
            );
            let (books, log) = opened(&case);
            assert_eq!(books.held(), 0);
            let mut number = 0;
            // Nobody runs the sync that begins by itself.
            let refused = loop {
                match log.append(0, &entry(number, 10_000)) {
                    Ok(_) => number += 1,
                    Err(error) => break error,
                }
                let held = books.held();
                let frames = usize::try_from(number).expect("a few") * 10_064;
                assert!(
                    (frames..=frames + frames / 8 + 64 * KIB).contains(&held),
                    "{held} bytes held after {number} entries"
                );
            };
            assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
            assert!((90..=105).contains(&number), "{number} entries of 10 kB fit a MiB");
            case.world.run_until_idle();
            assert!(books.held() <= 128 * KIB, "{} bytes held at rest", books.held());
            let _ = log.append(0, &entry(number, 10_000)).expect("room again");
            (books, log)
        };
        drop(log);
        assert_eq!(books.held(), 0, "given back with the log");
    }
}

#[test]
fn an_entry_larger_than_the_share_goes_alone_and_leaves_nothing_behind() {
    for form in FORMS {
        let case =
            Case::with(2, LocalLogOptions { form, segment_bytes_min: 4 << 20, ..LocalLogOptions::default() });
        let (books, log) = opened(&case);
        let _ = log.append(0, &entry(0, 3 << 20)).expect("an entry that must be taken");
        assert!(books.held() >= 3 << 20);
        assert_eq!(log.append(0, &entry(1, 10)).expect_err("nothing beside it").kind(), ErrorKind::Busy);
        case.world.run_until_idle();
        let end = log.append(0, &entry(1, 10)).expect("room again").end;
        log.sync(0, end).expect("a sync");
        assert!(books.held() <= 128 * KIB, "{} bytes held at rest", books.held());
    }
}

#[test]
fn the_books_stay_right_when_a_large_entry_follows_a_synced_small_one() {
    for form in FORMS {
        let case =
            Case::with(3, LocalLogOptions { form, segment_bytes_min: 4 << 20, ..LocalLogOptions::default() });
        let (books, log) = opened(&case);
        for number in 0..40 {
            let payload_bytes = if number % 4 == 1 { 100 * KIB } else { 100 };
            let end = log.append(0, &entry(number, payload_bytes)).expect("room").end;
            assert!(
                books.held() >= payload_bytes,
                "{} bytes held of an entry of {payload_bytes}",
                books.held()
            );
            log.sync(0, end).expect("a sync");
            assert!(books.held() <= 128 * KIB, "{} bytes held at rest", books.held());
        }
    }
}

#[test]
fn a_log_that_is_taken_over_is_read_once_and_not_kept_in_memory() {
    const PLAN: Plan =
        Plan { entries: 14, payload_bytes: 900, sync_every: 3, trim_every: 0, close: false, rests: false };
    let case = Case::new(3, Form::Mapped);
    let writer = case.world.process("writer");
    writer.run(case.clone().write(writer.clone(), PLAN)).expect("nobody ends the writer");
    writer.kill();
    let successor = case.world.process("successor");
    let (store, context, record) =
        (case.store(&successor), case.context(&successor, 2), case.record(1).expect("named"));
    let begin = LogOffset::ZERO;
    let path = Case::directory(1).join("00000001");
    let fenced = || successor.block_on(store.fence(&context, &record, begin)).expect("fenced");
    let reread = |sealed| successor.block_on(read(&store, &context, &record, begin, sealed));
    let sealed = fenced();
    // Reading gives what the fence found sound, whatever becomes of the disk.
    case.world.host(0).flip_bit(&path, 4096 + 2500, 1).expect("a byte of the third entry");
    let entries = reread(sealed).expect("what was fenced");
    case.check(&entries, PLAN.payload_bytes, PLAN.entries).expect("all of it");
    assert_eq!(reread(sealed).expect_err("from the disk").kind(), ErrorKind::Corrupt, "it was taken");
    // Its seal is known, so that nothing is scanned; and entries that nobody reads are let go when
    // the epoch's own log is opened.
    assert_eq!(fenced(), sealed);
    assert!(reread(sealed).is_err());
    successor.block_on(store.open(&context, 1)).expect("opening");
}
