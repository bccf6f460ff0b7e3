use bytes::Bytes;
use tombolo_format::key::SequenceNumber;

use crate::engine::{DeadRun, LooksFrom};
use crate::{Db, Registry};

/// A cursor from before the time went back would go past values that have ended and come back.
#[test]
fn what_cursors_learned_is_forgotten_when_the_time_is_set_back() {
    let builder = Db::builder("mem://time").registry(Registry::with_defaults());
    let db = builder.open().wait().unwrap();
    let engine = db.engine();
    let looks_from =
        || LooksFrom { sequence: SequenceNumber(9), judged_ms: 7, generation: engine.view().generation };
    let before = looks_from();
    let keys = (Bytes::from_static(b"a"), None);
    let run = || DeadRun::walked(1, keys.clone(), (100, SequenceNumber(1)), before);
    let is_known = |from| engine.catalog.dead_runs().around(1, b"b", from).is_some();
    engine.catalog.dead_runs().learn(run());
    assert!(is_known(before));
    db.reset_time().wait().unwrap();
    assert!(!is_known(before) && !is_known(looks_from()));
    // Who looked before learns for those alone.
    engine.catalog.dead_runs().learn(run());
    assert!(!is_known(looks_from()));
    db.close().wait().unwrap();
}
