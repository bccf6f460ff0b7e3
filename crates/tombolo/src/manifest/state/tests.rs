use super::*;

/// A name that was never given is in no state, and what is in no state cannot be deleted.
#[test]
fn an_unknown_table_is_refused() {
    let name = TableName { epoch: 1, random: 1 };
    for edit in
        [Edit::TableObsolete { name }, Edit::TableCondemned { name }, Edit::TableUnnamed { name }, Edit::TableMoved { name, level: 1 }]
    {
        assert!(State::default().apply_edits(&[edit], Origin::Record(Epoch(1))).is_err());
    }
}
