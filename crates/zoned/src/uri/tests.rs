use std::path::Path;

use tombolo_env::simulated::World;

use super::*;

#[test]
fn a_uri_is_a_device_and_a_name_on_it() {
    let world = World::new(1);
    let env = world.process("one").env();
    env.files().create_directories(Path::new("/dev")).expect("a directory");
    env.files().create_new(Path::new("/dev/nvme0n1")).expect("a file");
    let found = |text: &str| target(&env, &Uri::parse(text).expect("a URI")).expect("a target");
    for (text, device, prefix) in [
        ("zoned:///dev/nvme0n1", "/dev/nvme0n1", ""),
        ("zoned:///dev/nvme0n1/", "/dev/nvme0n1", ""),
        ("zoned:///dev/nvme0n1/orders", "/dev/nvme0n1", "orders/"),
        ("zoned:///dev/nvme0n1/eu/orders", "/dev/nvme0n1", "eu/orders/"),
        ("zoned+file:///dev/nvme0n1/orders?zone=1MiB", "/dev/nvme0n1", "orders/"),
        ("zoned+file:///not/there", "/not/there", ""),
    ] {
        let found = found(text);
        assert_eq!((found.place.path(), found.prefix.as_str()), (Path::new(device), prefix), "{text}");
    }
    let made = found("zoned+file:///x?zone=4MiB&capacity=3MiB&zones=20&block=512&open=8&active=12").make;
    let wanted = EmulatedHeader {
        block_bytes: 512,
        zone_bytes: 4 << 20,
        capacity_bytes: 3 << 20,
        zones: 20,
        open_max: 8,
        active_max: 12,
    };
    assert_eq!(made, Some(wanted));
    assert_eq!(found("zoned+file:///x").make, None);
}
