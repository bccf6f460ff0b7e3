use super::*;

fn encoded(put: impl FnOnce(&mut KeyEncoder)) -> Vec<u8> {
    let mut encoder = KeyEncoder::new();
    put(&mut encoder);
    encoder.bytes().to_vec()
}

/// The bytes that the module's table states, written out.
#[test]
fn encodings_are_those_of_the_table() {
    let cases: [(&[u8], Vec<u8>); 14] = [
        (&[7], encoded(|key| key.put_u8(7))),
        (&[0x12, 0x34], encoded(|key| key.put_u16(0x1234))),
        (&[0, 0, 0, 0, 0, 0, 1, 0], encoded(|key| key.put_u64(256))),
        (&[0x7F], encoded(|key| key.put_i8(-1))),
        (&[0x80, 0, 0, 1], encoded(|key| key.put_i32(1))),
        (&[0, 0, 0, 0, 0, 0, 0, 0], encoded(|key| key.put_i64(i64::MIN))),
        (&[0xBF, 0x80, 0, 0], encoded(|key| key.put_f32(1.0))),
        (&[0x40, 0x7F, 0xFF, 0xFF], encoded(|key| key.put_f32(-1.0))),
        (&[0x80, 0, 0, 0, 0, 0, 0, 0], encoded(|key| key.put_f64(0.0))),
        (&[0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], encoded(|key| key.put_f64(-0.0))),
        (&[1], encoded(|key| key.put_bool(true))),
        (&[0, 1, 0xF3, 0x2D], encoded(|key| key.put_char('\u{1F32D}'))),
        (&[b'a', 0, 0xFF, b'b', 0, 1], encoded(|key| key.escaped(b"a\0b"))),
        (&[0, 1], encoded(|key| key.escaped(b""))),
    ];
    for (expected, found) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn a_reversed_field_is_inverted_and_read_back() {
    let found = encoded(|key| {
        key.put_u8(1);
        key.escaped(b"a\0");
        key.invert_from(1);
    });
    assert_eq!(found, [1, !b'a', !0, !0xFF, !0, !1]);
    let mut decoder = KeyDecoder::new(&found);
    assert_eq!(decoder.u8(), Ok(1));
    assert_eq!(decoder.reversed(KeyDecoder::escaped).unwrap(), b"a\0");
    decoder.end().unwrap();
}

#[test]
fn what_no_encoder_writes_is_refused() {
    let refused: [(&[u8], Result<(), KeyError>); 7] = [
        (&[2], KeyDecoder::new(&[2]).bool().map(drop)),
        (&[0, 0xD8, 0, 0], KeyDecoder::new(&[0, 0, 0xD8, 0]).char().map(drop)),
        (b"a", KeyDecoder::new(b"a").escaped().map(drop)),
        (&[b'a', 0], KeyDecoder::new(b"a\0").skip_escaped()),
        (&[0, 2], KeyDecoder::new(&[0, 2]).escaped().map(drop)),
        (&[0xC3, 0, 1], KeyDecoder::new(&[0xC3, 0, 1]).text().map(drop)),
        (&[1, 2, 3], KeyDecoder::new(&[1, 2, 3]).u32().map(drop)),
    ];
    for (bytes, result) in refused {
        assert!(result.is_err(), "{bytes:?}");
    }
    assert!(KeyDecoder::new(b"a").end().is_err());
}

#[test]
fn long_keys_leave_the_room_that_is_there() {
    for length in [0, INLINE_BYTES - 2, INLINE_BYTES - 1, INLINE_BYTES, 4 * INLINE_BYTES] {
        let text = vec![b'x'; length];
        let found = encoded(|key| {
            key.escaped(&text);
            key.put_u32(7);
            key.invert_from(0);
        });
        assert_eq!(found.len(), length + 6);
        let mut decoder = KeyDecoder::new(&found);
        let read = decoder.reversed(|key| Ok((key.escaped()?, key.u32()?))).unwrap();
        assert_eq!(read, (text, 7));
    }
}
