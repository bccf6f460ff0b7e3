//! What needs no card. What needs one is tested where the transport is, in a guest that has one.

use super::*;

#[test]
fn devices_are_named() {
    assert_eq!(Choice::parse("mlx5_0"), Some(Choice { device: "mlx5_0", port: 1, gid: None }));
    assert_eq!(Choice::parse("mlx5_0:2"), Some(Choice { device: "mlx5_0", port: 2, gid: None }));
    assert_eq!(Choice::parse("rxe0:1/3"), Some(Choice { device: "rxe0", port: 1, gid: Some(3) }));
    for wrong in ["", ":1", "rxe0:", "rxe0:0", "rxe0:x", "rxe0:1/", "rxe0:1/256", "rxe0:256"] {
        assert_eq!(Choice::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_device_that_is_not_there_is_told() {
    let error = Device::open(Some("no-such-device")).expect_err("nobody has it");
    assert!(matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported), "{error:?}");
    if library::library().is_ok() {
        let error = Device::open(Some("rxe0:0")).expect_err("no port");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
