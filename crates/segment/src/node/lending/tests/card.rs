//! A card that writes at full speed while its region is sealed. Needs a device: see
//! [`crate::rdma::tests`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tombolo_env::real::verbs::{Channel, Device};
use tombolo_storage::mutant::{Mutant, is_enabled};

use super::super::*;
use crate::rdma::source::{self, SLOTS, Slots, Source, Taken};
use crate::rdma::tests::{LATER, OWNER, REGION, appends, create, device};

const LIFE: NodeIncarnation = NodeIncarnation(1);
const ROUNDS: u32 = 20;
/// Appends on their way at once.
const WINDOW: usize = 32;
/// Bytes that are held before a region is sealed. So much that taking it in takes longer than many
/// writes: a read before the fence misses some.
const HELD_MIN: u32 = 500_000;

fn request(epoch: Epoch, body: Body) -> Request {
    Request { incarnation: LIFE, region: REGION, epoch, body }
}

/// Writes until it is stopped, and notes what it took for held.
fn stream(mut source: Source, mut slots: Slots, held: &AtomicU32, is_over: &AtomicBool) {
    let mut answered = Vec::new();
    let mut waiting = std::collections::VecDeque::new();
    let note = |answered: &mut Vec<source::Answered>, waiting: &mut std::collections::VecDeque<_>| {
        for (completer, answer) in answered.drain(..) {
            let Answer::Held(extent) = answer else { panic!("{answer:?}") };
            held.fetch_max(extent.length, Ordering::SeqCst);
            completer.complete(Ok(Answer::Held(extent)));
            let _done: Option<tombolo_env::Completion<_>> = waiting.pop_front();
        }
    };
    for body in appends(7000, 1000) {
        let Body::Append { offset, predecessor, records } = body else { unreachable!() };
        while waiting.len() >= WINDOW {
            if source.collect(&mut slots, &mut answered).is_err() {
                break;
            }
            note(&mut answered, &mut waiting);
            std::hint::spin_loop();
            if is_over.load(Ordering::SeqCst) {
                break;
            }
        }
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let (completer, answer) = tombolo_env::completion();
        waiting.push_back(answer);
        match source.append(&mut slots, (offset, predecessor), &records, completer) {
            Ok(Taken::Sent) => {}
            _ => break,
        }
        let _broken = source.collect(&mut slots, &mut answered);
        note(&mut answered, &mut waiting);
    }
    // Bytes held before it are still reported; the others are flushed.
    source.stop().expect("the card takes the order");
    while !waiting.is_empty() && source.collect(&mut slots, &mut answered).is_ok() {
        note(&mut answered, &mut waiting);
    }
    note(&mut answered, &mut waiting);
    drop(source.end(&mut slots));
}

/// A writer streams while another epoch seals. Bytes taken for held, before or after, lie
/// within the sealed length.
fn seal_under_load(device: &Device) {
    let env = Env::real();
    let mut regions = Regions::new(LIFE, 64 << 20);
    let mut lending = Lending::new(&env, None).through(Some(device.clone()));
    let Answer::Held(empty) = regions.handle(request(OWNER, create(8 << 20))) else { panic!("it has room") };
    let channel = Channel::new(device).expect("a channel");
    let slots = Slots::new(device, SLOTS).expect("memory");
    let queue = source::queue(device, &channel, 1, 77).expect("a pair");
    let pair = lending.pair(&mut regions, 1, (LIFE, REGION, OWNER), &queue.endpoint().into());
    let (address, window) = pair.expect("the node takes writes");
    let source = Source::connect(queue, &address.into(), window, empty, 8 << 20).expect("a way");
    let (held, is_over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (noted, over) = (Arc::clone(&held), Arc::clone(&is_over));
    let is_early = is_enabled(Mutant::RdmaHeldOncePosted);
    let writer = std::thread::spawn(move || {
        #[cfg(feature = "mutants")]
        let _out = is_early.then(|| tombolo_storage::mutant::enable(Mutant::RdmaHeldOncePosted));
        let _known = is_early;
        stream(source, slots, &noted, &over);
    });
    while held.load(Ordering::SeqCst) < HELD_MIN {
        std::thread::yield_now();
    }
    let seal = request(LATER, Body::Seal);
    let before = held.load(Ordering::SeqCst);
    let answer = lending.prepare(&mut regions, &seal).unwrap_or_else(|| regions.handle(seal));
    let Answer::Sealed(Some(sealed)) = answer else { panic!("{answer:?}") };
    let read =
        |regions: &mut Regions| regions.handle(request(LATER, Body::Read { from: 0, bytes_max: u32::MAX }));
    let first = read(&mut regions);
    is_over.store(true, Ordering::SeqCst);
    writer.join().expect("it ends");
    let held = held.load(Ordering::SeqCst);
    assert!(held <= sealed.length, "{held} held ({before} before the seal), {} sealed", sealed.length);
    assert_eq!(read(&mut regions), first, "bytes changed");
    lending.forget_ended(&mut regions);
    assert!(lending.lent.is_empty() && lending.unfenced.is_empty());
    assert_eq!(regions.occupancy().bytes_taken, 8 << 20, "the copy's room is free again");
}

fn nothing_held_is_beyond_a_fence() {
    let device = device().expect("asked before");
    for _ in 0..ROUNDS {
        seal_under_load(&device);
    }
}

#[test]
fn a_fence_finds_whatever_was_held() {
    if device().is_some() {
        nothing_held_is_beyond_a_fence();
    }
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_noticed() {
    use tombolo_storage::mutant::notices;
    if device().is_some() {
        notices(Mutant::RdmaReadBeforeFence, nothing_held_is_beyond_a_fence);
        notices(Mutant::RdmaHeldOncePosted, nothing_held_is_beyond_a_fence);
    }
}
