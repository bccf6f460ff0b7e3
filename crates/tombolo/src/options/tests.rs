use super::*;

#[test]
fn settings_parse_by_name() {
    let options =
        Options::parse(["memory_bytes=1048576", "memtable_bytes = 65536", "automatic_compaction=false"])
            .unwrap();
    assert_eq!(options.memory_bytes, 1 << 20);
    assert_eq!(options.memtable_bytes(), 1 << 16);
    assert!(!options.automatic_compaction);
}

#[test]
fn unknown_and_bad_settings_are_invalid_and_named() {
    for setting in [
        "memory=1",
        "memory_bytes",
        "memory_bytes=many",
        "memory_bytes=1",
        "writes_in_flight_max=0",
        "memtable_bytes=1",
    ] {
        let error = Options::parse([setting]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{setting}: {error}");
        let name = setting.split('=').next().unwrap();
        assert!(error.to_string().contains(name), "{setting}: {error}");
    }
}

#[test]
fn keyspace_options_survive_the_manifest() {
    let mut options = KeyspaceOptions::default();
    for (name, value) in
        [("compression", "zstd"), ("block_bytes", "4096"), ("filter_bits", "0"), ("value_alignment", "64")]
    {
        options.set(name, value).unwrap();
    }
    for options in [&options, &KeyspaceOptions::default()] {
        assert_eq!(KeyspaceOptions::from_manifest(&options.to_manifest()).unwrap(), *options);
    }
    for (name, value) in [
        ("compression", "gzip"),
        ("block_bytes", "1"),
        ("block_bytes", "large"),
        ("filter_bits", "31"),
        ("value_alignment", "24"),
        ("value_alignment", "8192"),
        ("value_alignment", "0"),
        ("colour", "red"),
    ] {
        assert_eq!(options.set(name, value).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// What a later version set is ignored where it may be, kept where settings are changed, and never
/// taken for something else.
#[test]
fn settings_of_a_later_version_stay() {
    let later = manifest::KeyspaceOptions {
        features: 0,
        settings: vec![("colour".into(), "red".into()), ("filter_bits".into(), "7".into())],
    };
    let found = KeyspaceOptions::from_manifest(&later).unwrap();
    assert_eq!(found, KeyspaceOptions { filter_bits: 7, ..KeyspaceOptions::default() });
    let changed = found.with(&[("compression".into(), "zstd".into())]).unwrap().to_manifest_over(&later);
    let of = |name: &str| changed.settings.iter().filter(|(known, _)| known == name).collect::<Vec<_>>();
    assert_eq!(of("colour"), [&("colour".to_owned(), "red".to_owned())]);
    assert_eq!(of("filter_bits"), [&("filter_bits".to_owned(), "7".to_owned())]);
    assert_eq!(of("compression"), [&("compression".to_owned(), "zstd".to_owned())]);
    let unknown = manifest::KeyspaceOptions::of([("compression".into(), "brotli".into())]);
    let error = KeyspaceOptions::from_manifest(&unknown).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("compression") && error.to_string().contains("brotli"), "{error}");
}

#[cfg(feature = "mutants")]
#[test]
fn settings_that_are_forgotten_are_noticed() {
    tombolo_storage::mutant::notices(Mutant::UnknownSettingsForgotten, settings_of_a_later_version_stay);
}

#[test]
fn settings_that_contradict_each_other_are_both_named() {
    let error = Options::parse(["memory_bytes=1048576", "memtable_bytes=262145"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("memory_bytes=1048576") && text.contains("memtable_bytes=262145"), "{text}");
    Options::parse(["memory_bytes=1048576", "memtable_bytes=262144"]).unwrap();
}

#[test]
fn live_options_change_whole_or_not_at_all() {
    let live = LiveOptions::new(Options::default());
    let set = |settings: &[(&str, &str)]| {
        live.change(
            |options| settings.iter().try_for_each(|(name, value)| options.set(name, value)),
            |_| Ok(()),
        )
    };
    assert_eq!(
        set(&[("writes_in_flight_max", "7"), ("memtable_bytes", "1")]).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!((live.writes_in_flight_max(), live.load().writes_in_flight_max), (65_536, 65_536));
    set(&[("writes_in_flight_max", "7"), ("memory_bytes", "1048576")]).unwrap();
    assert_eq!(
        (live.writes_in_flight_max(), live.memtable_bytes(), live.load().memory_bytes),
        (7, 65_536, 1 << 20)
    );
    let refused = live.change(
        |options| options.set("memory_bytes", "2097152"),
        |_| Err(Error::new(ErrorKind::Invalid, "no")),
    );
    assert!(refused.is_err() && live.load().memory_bytes == 1 << 20);
}

#[test]
fn sizes_may_have_units() {
    let options = Options::parse(["memory_bytes=64MiB", "memtable_bytes=4096KiB"]).unwrap();
    assert_eq!((options.memory_bytes, options.memtable_bytes), (64 << 20, Some(4 << 20)));
    let error = Options::parse(["memory_bytes=64MB"]).unwrap_err().to_string();
    assert!(error.contains("64MiB") && error.contains("\"64MB\""), "{error}");
    let mut options = KeyspaceOptions::default();
    options.set("block_bytes", "16KiB").unwrap();
    assert_eq!(options.block_bytes, Some(16 << 10));
}

/// The types of a keyspace stay once they are set.
fn types_stay() {
    let mut typed = KeyspaceOptions::default();
    typed.set("types", "1 2 u64 => str").unwrap();
    let again = KeyspaceOptions::from_manifest(&typed.to_manifest()).unwrap();
    assert_eq!(again.types.as_deref(), Some("1 2 u64 => str"));
    for wrong in ["", "a\nb", &"x".repeat(4097)] {
        assert_eq!(typed.clone().set("types", wrong).unwrap_err().kind(), ErrorKind::Invalid);
    }
    typed.check_change(&KeyspaceOptions::default()).unwrap();
    typed.check_change(&typed).unwrap();
    for other in ["none", "1 2 u64 => u64"] {
        let mut changed = typed.clone();
        changed.set("types", other).unwrap();
        assert_eq!(changed.check_change(&typed).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn types_of_a_keyspace_stay() {
    types_stay();
}

#[cfg(feature = "mutants")]
#[test]
fn types_that_change_are_noticed() {
    tombolo_storage::mutant::notices(Mutant::TypesChange, types_stay);
}
