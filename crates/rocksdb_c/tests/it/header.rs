//! The checked-in header is what the source says: `UPDATE=1` writes it.

use std::fs;
use std::path::Path;

#[test]
fn the_header_is_what_the_source_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let modules = [
        "door",
        "handles",
        "options",
        "operator",
        "database",
        "families",
        "writing",
        "reading",
        "iterator",
        "batch",
        "checkpoint",
        "transaction",
        "transactiondb",
        "accepted",
        "accepted_more",
    ];
    let configuration = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(configuration);
    for module in modules {
        builder = builder.with_src(root.join("src").join(module).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let (made, path) = (String::from_utf8(made).unwrap(), root.join("include/rocksdb/c.h"));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "include/rocksdb/c.h is not what the source says: UPDATE=1 writes it");
}

#[test]
fn every_function_is_in_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(root.join("include/rocksdb/c.h")).unwrap();
    let mut functions = 0;
    for entry in fs::read_dir(root.join("src")).unwrap() {
        let source = fs::read_to_string(entry.unwrap().path()).unwrap();
        for rest in source.split("extern \"C\" fn rocksdb_").skip(1) {
            let name = rest.split('(').next().unwrap();
            assert!(header.contains(&format!("rocksdb_{name}(")), "rocksdb_{name} is not in the header");
            functions += 1;
        }
    }
    assert!(functions > 200, "{functions} functions");
}
