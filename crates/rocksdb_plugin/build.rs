//! Compiles the shim against the headers of RocksDB that are there: those of the system, or those
//! in the directory that `ROCKSDB_INCLUDE` names. A library is of one version of RocksDB, whose
//! tables of virtual functions it shares.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=shim/file_system.cc");
    println!("cargo::rerun-if-changed=shim/bridge.h");
    println!("cargo::rerun-if-env-changed=ROCKSDB_INCLUDE");
    let include = std::env::var_os("ROCKSDB_INCLUDE").map_or_else(|| "/usr/include".into(), PathBuf::from);
    let header = include.join("rocksdb/file_system.h");
    assert!(
        header.exists(),
        "{} is not there: install librocksdb-dev, or name another directory with ROCKSDB_INCLUDE",
        header.display()
    );
    cc::Build::new()
        .cpp(true)
        // Newer headers ask for it, older ones are content with it.
        .std("c++20")
        .include(include)
        .file("shim/file_system.cc")
        .flag_if_supported("-Wno-unused-parameter")
        // RocksDB is built without: type information of our classes would look for its own.
        .flag_if_supported("-fno-rtti")
        .link_lib_modifier("+whole-archive")
        .compile("tombolo_shim");
    // The library of the program that loads this one serves, where that program has it in itself.
    println!("cargo::rustc-link-arg=-Wl,--no-as-needed");
    if std::env::var_os("ROCKSDB_INCLUDE").is_none() {
        println!("cargo::rustc-link-lib=dylib=rocksdb");
    }
}
