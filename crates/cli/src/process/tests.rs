use super::*;

fn messages() -> Vec<Message> {
    vec![
        Message::Opened { epoch: 7, open_nanos: u64::MAX, replayed_bytes: 3 },
        Message::Intent { sequence: 1, record: vec![1, 2, 3], path: b"/usr/share/\xff".to_vec() },
        Message::Intent { sequence: 2, record: Vec::new(), path: Vec::new() },
        Message::Acknowledged { sequence: 1, latency_nanos: 99 },
        Message::Refused { sequence: 2 },
        Message::Unreadable { count: 12 },
        Message::Memory {
            own_peak_bytes: 1 << 40,
            held_peak_bytes: 1 << 39,
            budget_peak_bytes: 3,
            faults: 0,
            reopened: 1,
        },
        Message::Seen { thread: 1, epoch: 7, sequence: 9, digest: u64::MAX },
        Message::Ended { exit_code: 4, text: "fenced".to_owned() },
    ]
}

#[test]
fn messages_are_read_as_they_were_written() {
    let mut pipe = Vec::new();
    for message in messages() {
        message.write(&mut pipe).unwrap();
    }
    let mut reader = pipe.as_slice();
    let read: Vec<_> = std::iter::from_fn(|| Message::read(&mut reader).unwrap()).collect();
    assert_eq!(read, messages());
}

#[test]
fn a_message_cut_off_by_a_kill_is_no_message() {
    let mut pipe = Vec::new();
    messages()[1].write(&mut pipe).unwrap();
    for length in 0..pipe.len() {
        assert_eq!(Message::read(&mut &pipe[..length]).unwrap(), None, "{length}");
    }
}

#[test]
fn nonsense_is_an_error() {
    assert!(Message::read(&mut [0, 0, 0, 0].as_slice()).is_err());
    assert!(Message::read(&mut [0xff; 8].as_slice()).is_err());
    assert!(Message::read(&mut [1, 0, 0, 0, 99].as_slice()).is_err());
    assert!(Message::read(&mut [2, 0, 0, 0, 1, 0].as_slice()).is_err());
}
