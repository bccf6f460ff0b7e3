use super::*;

/// A keyspace of an older version takes no entries that such a version does not know, until its
/// settings say that it may.
#[test]
fn kinds_are_written_where_the_keyspace_allows_them() {
    let keyspace = KeyspaceInfo::new(7, "orders", KeyspaceOptions::default(), 0);
    keyspace.check_kind(EntryKind::Put).unwrap();
    let error = keyspace.check_kind(EntryKind::SingleDelete).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("\"orders\"") && text.contains("3 (single delete)"), "{text}");
    assert!(text.contains("keyspace set"), "{text}");
    keyspace.set_options(KeyspaceOptions::default(), EntryKind::SingleDelete.feature());
    keyspace.check_kind(EntryKind::SingleDelete).unwrap();
}
