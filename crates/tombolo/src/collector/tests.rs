use tombolo_format::collected::decode_collected;
use tombolo_format::key::{SequenceNumber, Trailer};

use super::*;

/// Says how many entries it saw, or does worse.
struct Counts(&'static str);

struct Counting {
    how: &'static str,
    entries: u64,
}

impl Collector for Counts {
    fn begin(&self, _keyspace: u32, _level: u8) -> Box<dyn TableCollector> {
        assert!(self.0 != "panics at once");
        Box::new(Counting { how: self.0, entries: 0 })
    }
}

impl TableCollector for Counting {
    fn add(&mut self, _key: &[u8], entry: TableEntry<'_>) {
        assert!(self.how != "panics at an entry");
        self.entries += u64::from(entry != TableEntry::Delete);
    }

    fn finish(self: Box<Self>) -> Vec<(String, Vec<u8>)> {
        assert!(self.how != "panics at the end");
        let long = if self.how == "says too much" { vec![0; 2000] } else { Vec::new() };
        vec![("long".into(), long), ("entries".into(), self.entries.to_le_bytes().to_vec())]
    }
}

#[test]
fn a_collector_that_fails_costs_its_own_properties() {
    let mut collectors = Collectors::default();
    for how in ["counts", "panics at once", "panics at an entry", "panics at the end", "says too much"] {
        collectors.add(how, Arc::new(Counts(how)));
    }
    collectors.check().unwrap();
    for _table in 0..2 {
        let mut collecting = collectors.begin(0, 0).unwrap();
        for (number, kind) in [(1, EntryKind::Put), (2, EntryKind::Delete), (3, EntryKind::Put)] {
            collecting.add(InternalKey::new(b"k", Trailer::new(SequenceNumber(number), kind)), b"v");
        }
        let bytes = collecting.finish().unwrap();
        let said = decode_collected(&bytes).unwrap();
        assert_eq!(
            said,
            [
                Collected { collector: "counts", name: "entries", value: &2_u64.to_le_bytes() },
                Collected { collector: "counts", name: "long", value: b"" },
            ]
        );
    }
    (0..20).for_each(|number| collectors.add(&number.to_string(), Arc::new(Counts("counts"))));
    assert_eq!(collectors.check().unwrap_err().kind(), ErrorKind::Invalid);
    assert!(Collectors::default().begin(0, 0).is_none());
}
