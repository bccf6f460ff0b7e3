//! Databases on zones at the prompt.

use super::{fails, json, ok};

#[test]
fn a_database_lies_on_zones_and_survives_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("zoned+file://{}/{name}", directory.path().display());
    let made = format!("{}?zone=1MiB&zones=40&open=14&active=14", at("zones"));
    ok(&["zoned", "mkfs", &made, "--label", "orders"]);
    let database = at("zones/eu/orders");
    ok(&["db", "put", &database, "1", "two books"]);
    ok(&["db", "put", &at("zones/users"), "1", "Ada"]);
    assert_eq!(ok(&["db", "get", &database, "1"]).trim(), "two books");
    fails(&["zoned", "mkfs", &made], 2, &["--force"]);
    let df = json(&ok(&["--json", "zoned", "df", &at("zones")]));
    assert_eq!((df["label"].as_str(), df["zones"]["worn"].as_u64()), (Some("orders"), Some(0)));
    assert!(df["free_bytes"].as_u64() < df["capacity_bytes"].as_u64());
    let listed = ok(&["zoned", "list", &database]);
    assert!(listed.contains("eu/orders/") && !listed.contains("users/"), "{listed}");
    let dump = json(&ok(&["zoned", "dump", &at("zones")]));
    assert_eq!(dump["zones"].as_array().map(Vec::len), Some(40));
    assert!(ok(&["zoned", "top", "--looks", "1", &at("zones")]).starts_with("MMM"));
    let svg = directory.path().join("zones.svg");
    ok(&["zoned", "report", &at("zones"), "--out", svg.to_str().unwrap()]);
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    let backup = directory.path().join("backup");
    ok(&["zoned", "backup", &at("zones"), backup.to_str().unwrap()]);
    let other = format!("{}?zone=2MiB&zones=20", at("other"));
    ok(&["zoned", "restore", backup.to_str().unwrap(), &other]);
    assert_eq!(ok(&["db", "get", &at("other/eu/orders"), "1"]).trim(), "two books");
    assert_eq!(ok(&["db", "get", &at("other/users"), "1"]).trim(), "Ada");
    for device in ["zones", "other"] {
        assert!(ok(&["zoned", "fsck", "--scrub", &at(device)]).contains("sound"));
    }
    for (wrong, code) in [("file:///x", 2), ("zoned:///dev/no-such-device", 3), ("zoned:///dev/null", 2)] {
        fails(&["zoned", "df", wrong], code, &["to do"]);
    }
}
