//! Flipped bytes, cut, missing and foreign files: an error that says where, or everything read
//! right.

use tombolo_env::simulated::DiskImage;
use tombolo_format::log_frame::{FrameScanner, SegmentHeader, Verdict};

use super::harness::{Case, FORMS, Plan};
use crate::backend::local_log::Form;
use crate::{ErrorKind, LogEntry, LogOffset, LogStore, Result};

const PLAN: Plan =
    Plan { entries: 14, payload_bytes: 900, sync_every: 3, trim_every: 0, close: true, rests: false };

/// Bytes of a frame of the plan in its long form. The first entry's stream and count are those of
/// the short form.
const LONG: u64 = 40 + 904;
/// Where the third frame begins.
const THIRD: u64 = 4096 + (24 + 904) + LONG;

/// A closed log of two segments on a disk.
fn closed(form: Form) -> (Case, DiskImage) {
    let case = Case::new(3, form);
    let writer = case.world.process("writer");
    writer.run(case.clone().write(writer.clone(), PLAN)).expect("nobody ends the writer");
    assert_eq!(case.told.lock().error, None);
    let image = case.world.host(0).disk_image();
    (case, image)
}

fn recover(case: &Case, rebooted: bool) -> Result<(LogOffset, Vec<LogEntry>)> {
    if rebooted {
        case.world.host(0).power_loss();
    }
    case.recover(2).expect("named")
}

/// Either an error, or all is right.
fn assert_told(case: &Case, outcome: Result<(LogOffset, Vec<LogEntry>)>, what: &str) {
    match outcome {
        Err(error) => {
            assert!(
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
                    && error.object_name().is_some(),
                "{what}: {error}"
            );
        }
        Ok((_, read)) => {
            if let Err(violation) = case.check(&read, PLAN.payload_bytes, PLAN.entries) {
                panic!("{what}: {violation}");
            }
        }
    }
}

#[test]
fn each_flipped_byte_of_a_closed_log_is_told_or_harmless() {
    let (case, image) = closed(Form::Mapped);
    let files = case.world.host(0).all_files();
    assert!(files.len() >= 3, "a control page and two segments: {files:?}");
    for (path, length) in &files {
        // Every byte of the control page's words, of headers and of the first frame's header; of
        // all else one in 53.
        let dense = [0..96, 512..528, 1024..1032, 2048..2256, 4096..4168];
        let chosen =
            |offset: &u64| offset.is_multiple_of(53) || dense.iter().any(|range| range.contains(offset));
        for offset in (0..*length).filter(chosen) {
            for rebooted in [false, true] {
                case.world.host(0).set_disk(&image);
                case.world.host(0).flip_bit(path, offset, (offset % 8) as u8).unwrap();
                let outcome = recover(&case, rebooted);
                assert_told(
                    &case,
                    outcome,
                    &format!("byte {offset} of {}, rebooted {rebooted}", path.display()),
                );
            }
        }
    }
}

#[test]
fn a_flipped_byte_in_a_killed_writers_log_is_told_as_long_as_the_host_lives() {
    for form in FORMS {
        let case = Case::new(4, form);
        let writer = case.world.process("writer");
        writer
            .run(case.clone().write(writer.clone(), Plan { close: false, sync_every: 0, ..PLAN }))
            .expect("nobody ends the writer");
        writer.kill();
        let path = Case::directory(1).join("00000001");
        for offset in (4096..THIRD + 5 * LONG).step_by(41) {
            case.world.host(0).flip_bit(&path, offset, 3).unwrap();
            let outcome = case.recover(2).expect("named");
            assert_told(&case, outcome, &format!("{form:?}, byte {offset}"));
            case.world.host(0).flip_bit(&path, offset, 3).unwrap();
        }
    }
}

#[test]
fn bit_rot_in_mid_log_names_segment_and_byte() {
    let (case, _) = closed(Form::Written);
    let path = Case::directory(1).join("00000001");
    // In the third frame's payload.
    case.world.host(0).flip_bit(&path, THIRD + 500, 1).unwrap();
    let error = recover(&case, true).expect_err("damage");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.object_name(), Some(path.to_str().unwrap()));
    assert_eq!(error.position(), Some(THIRD + 4), "{error}");
    assert!(error.expectation().is_some() && error.finding().is_some(), "{error}");
}

#[test]
fn missing_and_cut_files_are_told() {
    for form in FORMS {
        for rebooted in [false, true] {
            let (case, image) = closed(form);
            for (path, length) in case.world.host(0).all_files() {
                case.world.host(0).set_disk(&image);
                case.world.host(0).hide(&path);
                assert_told(&case, recover(&case, rebooted), &format!("{} is missing", path.display()));
                case.world.host(0).unhide(&path);
                for kept in [0, 1, 100, 4096, 4097, 5000, 9000, length - 1] {
                    case.world.host(0).set_disk(&image);
                    case.world.host(0).truncate(&path, kept).unwrap();
                    assert_told(
                        &case,
                        recover(&case, rebooted),
                        &format!("{} is cut to {kept} bytes", path.display()),
                    );
                }
            }
        }
    }
}

#[test]
fn another_logs_files_are_told() {
    let (case, _) = closed(Form::Mapped);
    let host = case.world.host(0);
    // The same bytes, one identity changed, checksums right: the files of the next epoch under this
    // one's name.
    let other = Case { told: std::sync::Arc::default(), ..case.clone() };
    let writer = case.world.process("other");
    let context = other.context(&writer, 9);
    let log = writer.block_on(crate::LogStore::open(&other.store(&writer), &context, 1)).expect("opening");
    crate::conformance::log::append(&writer, &*log, 0, &crate::conformance::log::entry(0, 900))
        .expect("appending");
    for name in ["control", "00000001"] {
        let foreign = host.content(Case::directory(9).join(name)).unwrap();
        let path = Case::directory(1).join(name);
        let own = host.content(&path).unwrap();
        host.damage(&path, |content| *content = foreign).unwrap();
        let error = case.recover(10).expect("named").expect_err("another's file");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert_eq!(error.object_name(), Some(path.to_str().unwrap()));
        host.damage(&path, |content| *content = own).unwrap();
    }
    assert!(recover(&case, true).is_ok());
}

/// Most frames do not say how much is durable (they are compact). Whatever page is lost, a page
/// behind it says so.
#[test]
fn no_lost_page_takes_all_that_says_what_was_durable() {
    const PAGE: usize = 4096;
    let mut told = 0;
    for (form, synced) in
        FORMS.into_iter().flat_map(|form| (1..80).step_by(7).map(move |synced| (form, synced)))
    {
        let mut case = Case::new(3, form);
        (case.options.segment_bytes_min, case.options.segment_bytes_max) = (64 << 10, 64 << 10);
        let writer = case.world.process("writer");
        let log = writer.block_on(case.store(&writer).open(&case.context(&writer, 1), 1)).expect("opening");
        let mut durable = LogOffset::ZERO;
        for number in 0..120 {
            let entry =
                LogEntry { stream: 0, first_sequence: number, count: 1, payload: vec![b'x'; 128].into() };
            let end = log.append(0, &entry).expect("appending").end;
            if number == synced {
                log.sync(0, end).expect("a sync");
                durable = end;
            }
        }
        let sound = case.world.host(0).content(Case::directory(1).join("00000001")).expect("a segment");
        let identity = SegmentHeader::decode(&sound).expect("sound").identity;
        let end = FrameScanner::new(&sound, 4096, identity).fold(0, |_, frame| frame.end as usize);
        assert!(
            end < 4096 + 120 * (16 + 128) + 8 * (2 + 120 * 144 / PAGE + 1),
            "most are compact: {end} bytes"
        );
        // The very next frame says it.
        let mut damaged = sound.clone();
        damaged[durable.byte() as usize - 1] ^= 1;
        let verdict = FrameScanner::new(&damaged, 4096, identity).verdict(None);
        assert!(
            matches!(verdict, Verdict::Damaged { evidence: Some(said), .. } if said.byte == durable.byte()),
            "{form:?}, {durable}: {verdict:?}"
        );
        for page in 1..end.div_ceil(PAGE) {
            let mut damaged = sound.clone();
            damaged[page * PAGE..][..PAGE].fill(0);
            let mut scanner = FrameScanner::new(&damaged, 4096, identity);
            let verdict = scanner.verdict(None);
            let lost = LogOffset::new(1, scanner.byte()) < durable;
            // A frame that begins behind the page: else nothing is left to say it.
            if lost && page + 1 < end.div_ceil(PAGE) {
                assert!(
                    matches!(
                        verdict, Verdict::Damaged { durable_through, .. } if durable_through == durable.0
                    ),
                    "{form:?}, durable through {durable}, page {page}: {verdict:?}"
                );
                told += 1;
            }
        }
    }
    assert!(told > 20, "{told}");
}

/// A follower sees all that was acknowledged, or an error: never less because the word that says
/// how much was being stored, or is damaged.
#[test]
fn a_follower_leaves_nothing_out_because_it_cannot_tell_how_much_is_durable() {
    let (case, image) = closed(Form::Mapped);
    let (control, _) = case
        .world
        .host(0)
        .all_files()
        .into_iter()
        .find(|(path, _)| path.ends_with("control"))
        .expect("a control page");
    // The word that says how much is durable, and its check.
    for offset in 2048..2064 {
        case.world.host(0).set_disk(&image);
        case.world.host(0).flip_bit(&control, offset, (offset % 8) as u8).unwrap();
        let process = case.world.process("follower");
        let (store, context) = (case.store(&process), case.context(&process, 0));
        let record = case.record(1).expect("named");
        let followed =
            process.run(async move { store.tail(&context, &record, LogOffset::ZERO).await.map(drop) });
        let error = followed.expect("nobody ends the follower").expect_err("less than was acknowledged");
        assert_eq!(error.kind(), ErrorKind::Retry, "byte {offset}: {error}");
    }
}
