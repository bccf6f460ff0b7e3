use tombolo::{ErrorKind, TakeOver};

use crate::status::code;
use crate::uri::Settings;

#[test]
fn a_uri_says_which_database() {
    let all = b"tombolo://?store=file:///data/db%26x&log=near://a,b,c&takeover=always&info_log=/var/log/x\
        &set=memory_bytes:67108864&lane_memory_bytes=1048576";
    let settings = Settings::parse(all).unwrap();
    assert_eq!(
        (settings.store.as_str(), settings.log.as_deref()),
        ("file:///data/db&x", Some("near://a,b,c"))
    );
    assert_eq!(settings.take_over, TakeOver::Always);
    assert_eq!((settings.options.memory_bytes, settings.files.lane_memory_bytes), (64 << 20, 1 << 20));
    assert_eq!(Settings::parse(b"tombolo:///?store=mem://x").unwrap().take_over, TakeOver::Never);
    for wrong in [
        &b"tombolo://"[..],
        b"tombolo://?log=mem://x",
        b"tombolo://?store=mem://x&takeover=perhaps",
        b"tombolo://?store=mem://x&colour=red",
        b"tombolo://?store=mem://x%2",
        b"tombolo://?store=mem://x&info_log=here",
        b"tombolo://?store=mem://x&set=memory_bytes",
        b"s3://bucket",
    ] {
        assert_eq!(Settings::parse(wrong).unwrap_err().kind(), ErrorKind::Invalid, "{wrong:?}");
    }
}

/// The fenced one ends; trouble that passes is tried again; the unknown is not.
#[test]
fn each_kind_of_error_makes_rocksdb_do_the_right_thing() {
    assert_eq!(code(ErrorKind::Fenced), 6);
    assert_eq!((code(ErrorKind::Retry), code(ErrorKind::Busy)), (8, 8));
    assert_eq!((code(ErrorKind::OutcomeUnknown), code(ErrorKind::Closed)), (11, 11));
}
