use super::*;

struct One<F>(F);

impl<F> CompactionFilter for One<F>
where
    F: Fn(&FilterEntry<'_>) -> Result<FilterDecision, FilterError> + Clone + Send + Sync + 'static,
{
    fn begin(&self, _job: &FilterJob) -> Option<Box<dyn JobFilter>> {
        Some(Box::new(self.0.clone()))
    }
}

/// A filter at a job, for who looks from up to `snapshot`.
fn filtering(
    decide: impl Fn(&FilterEntry<'_>) -> Result<FilterDecision, FilterError> + Clone + Send + Sync + 'static,
    snapshot: Option<u64>,
) -> Filtering {
    let name = FilterName::new("test", 1).expect("a name");
    let mut filters = Filters::default();
    filters.insert(name.clone(), Arc::new(One(decide)));
    let job = FilterJob {
        keyspace: 1,
        level: 6,
        is_flush: false,
        is_asked: false,
        oldest_unix_seconds: None,
        time_ms: 0,
    };
    filters.named(&name).begin(&job, snapshot.map(SequenceNumber))
}

fn entry(number: u64, kind: EntryKind) -> InternalKey<'static> {
    InternalKey::new(b"k", Trailer::new(SequenceNumber(number), kind))
}

fn delete(number: u64) -> Offered {
    Offered::Changed(Trailer::new(SequenceNumber(number), EntryKind::Delete), Bytes::new())
}

#[test]
fn names_are_checked() {
    let name = FilterName::parse("sessions@3").expect("a name");
    assert_eq!((name.name.as_str(), name.version), ("sessions", 3));
    assert_eq!(name.to_string(), "sessions@3");
    // Without its version it is a slip: by which rules something goes is said.
    let error = FilterName::parse("sessions").expect_err("no version");
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("sessions@1"), "{error}");
    for wrong in ["", "none", "a b", "a@", "a@b", "@1"] {
        assert_eq!(FilterName::parse(wrong).expect_err(wrong).kind(), ErrorKind::Invalid, "{wrong}");
    }
}

#[test]
fn a_filter_that_is_not_there_is_told_with_those_that_are() {
    let missing = |filters: &Filters| {
        let name = FilterName::new("tenants", 2).expect("a name");
        filters.named(&name).missing().to_string()
    };
    let mut filters = Filters::default();
    let told = missing(&filters);
    assert!(told.contains("tenants@2") && told.contains("found no filter"), "{told}");
    filters.insert(
        FilterName::new("tenants", 1).expect("a name"),
        Arc::new(One(|_: &FilterEntry<'_>| Ok(FilterDecision::Keep))),
    );
    let told = missing(&filters);
    assert!(told.contains("found tenants@1"), "{told}");
}

#[test]
fn what_is_dropped_leaves_a_delete_unless_nothing_older_is_left() {
    let drop = |_: &FilterEntry<'_>| Ok(FilterDecision::Drop);
    let mut without = filtering(drop, None);
    assert_eq!(without.offer(entry(9, EntryKind::Put), b"v", None, |_| false), delete(9));
    assert_eq!(without.offer(entry(9, EntryKind::Put), b"v", None, |_| true), Offered::Dropped);
    // What a snapshot sees is older, and lies in the same job.
    let mut with = filtering(drop, Some(5));
    assert_eq!(with.offer(entry(9, EntryKind::Put), b"v", None, |_| true), delete(9));
    assert_eq!(with.offer(entry(5, EntryKind::Put), b"v", None, |_| true), Offered::Kept);
    for kind in [EntryKind::Delete, EntryKind::SingleDelete, EntryKind::Merge, EntryKind::MergeList] {
        assert_eq!(with.offer(entry(9, kind), b"v", None, |_| true), Offered::Kept, "{kind:?}");
    }
    assert_eq!((with.finish().dropped, without.finish().dropped), (1, 2));
}

#[test]
fn a_replaced_value_keeps_its_end_and_its_number() {
    let mut filtering = filtering(
        |entry| {
            assert!(entry.value.is_some_and(|value| value == b"v"), "{entry:?}");
            Ok(FilterDecision::Replace(format!("{:?}", entry.expires_ms).into()))
        },
        None,
    );
    let put = Trailer::new(SequenceNumber(9), EntryKind::Put);
    let plain = filtering.offer(entry(9, EntryKind::Put), b"v", None, |_| false);
    assert_eq!(plain, Offered::Changed(put, Bytes::from_static(b"None")));
    let expiring = entry(9, EntryKind::ExpiringPut);
    let ending = filtering.offer(expiring, &join_expiring(b"v", 77), None, |_| false);
    assert_eq!(ending, Offered::Changed(expiring.trailer, join_expiring(b"Some(77)", 77).into()));
    // One that lies apart lies in the table from then on.
    let apart = filtering.offer(entry(9, EntryKind::SeparatedPut), b"reference", Some(b"v"), |_| false);
    assert_eq!(apart, Offered::Changed(put, Bytes::from_static(b"None")));
    assert_eq!(filtering.finish().replaced, 3);
}

#[test]
fn a_value_that_lies_apart_is_fetched_for_who_needs_it() {
    let mut filtering = filtering(
        |entry| match entry.value {
            None => Ok(FilterDecision::NeedsValue),
            Some(b"bad") => Ok(FilterDecision::Drop),
            Some(b"again") => Ok(FilterDecision::NeedsValue),
            Some(_) => Ok(FilterDecision::Keep),
        },
        None,
    );
    let apart = entry(9, EntryKind::SeparatedPut);
    let mut offer = |value: Option<&[u8]>| filtering.offer(apart, b"reference", value, |_| true);
    assert_eq!(offer(None), Offered::NeedsValue);
    assert_eq!(offer(Some(b"bad")), Offered::Dropped);
    assert_eq!(offer(Some(b"good")), Offered::Kept);
    assert_eq!(offer(Some(b"again")), Offered::Kept, "it has it");
    assert_eq!(filtering.finish().failed, 1);
}

#[test]
fn what_a_filter_does_not_decide_of_is_kept() {
    let mut failing = filtering(|_| Err("on purpose".into()), None);
    let mut large = filtering(|_| Ok(FilterDecision::Replace(vec![0; VALUE_BYTES_MAX + 1])), None);
    // What ends has its end beside it.
    let mut largest = filtering(|_| Ok(FilterDecision::Replace(vec![0; VALUE_BYTES_MAX])), None);
    let ending = largest.offer(entry(9, EntryKind::ExpiringPut), &join_expiring(b"v", 77), None, |_| true);
    assert_eq!(ending, Offered::Kept);
    let plain = largest.offer(entry(9, EntryKind::Put), b"v", None, |_| true);
    assert!(matches!(plain, Offered::Changed(_, value) if value.len() == VALUE_BYTES_MAX));
    let largest = largest.finish();
    assert_eq!((largest.failed, largest.replaced), (1, 1));
    for filtering in [&mut failing, &mut large] {
        assert_eq!(filtering.offer(entry(9, EntryKind::Put), b"v", None, |_| true), Offered::Kept);
        assert!(filtering.one.is_some());
    }
    let (failing, large) = (failing.finish(), large.finish());
    assert!(failing.trouble.expect("said").to_string().contains("on purpose"));
    assert!(large.trouble.expect("said").to_string().contains("67108865 bytes"));
    assert_eq!((failing.failed, large.failed, large.replaced), (1, 1, 0));
    // After a panic its state may be anything.
    let mut panicking = filtering(|_| panic!("on purpose"), None);
    for _ in 0..2 {
        assert_eq!(panicking.offer(entry(9, EntryKind::Put), b"v", None, |_| true), Offered::Kept);
    }
    assert_eq!(panicking.finish().failed, 1);
}
