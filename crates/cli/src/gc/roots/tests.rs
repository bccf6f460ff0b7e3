use super::*;

const LIFE: &str = "incarnation/fffffffffffffffe";

fn found(names: &[String]) -> (Vec<String>, u64) {
    let names: BTreeSet<_> = names.iter().collect();
    let mut roots = Roots::default();
    for name in names {
        roots.take(name);
    }
    let (found, outside) = roots.finish();
    (found.into_iter().collect(), outside)
}

/// As one would say it, with all names at hand.
fn expected(names: &[String]) -> (Vec<String>, u64) {
    let databases: BTreeSet<String> =
        names.iter().filter_map(|name| database_of(name)).map(str::to_owned).collect();
    let names: BTreeSet<_> = names.iter().collect();
    let outside = names
        .iter()
        .filter(|name| !databases.iter().any(|database| name.starts_with(database.as_str())))
        .count();
    (databases.into_iter().collect(), outside as u64)
}

#[test]
fn databases_are_found_at_any_depth_and_what_is_outside_is_counted() {
    let named = |names: &[&str]| names.iter().map(|name| name.replace("LIFE", LIFE)).collect::<Vec<_>>();
    for (names, databases, outside) in [
        (named(&[]), vec![], 0),
        (named(&["a", "b/c"]), vec![], 2),
        (named(&["LIFE", "a", "b/c"]), vec![""], 0),
        (named(&["a/0000/table/x", "a/LIFE", "a/zz", "b/x", "c"]), vec!["a/"], 2),
        // One in another, one whose name begins another's, and names that only look like it.
        (named(&["a/LIFE", "a/b/LIFE", "a/b/t", "ab/LIFE", "ab/c", "abc/d"]), vec!["a/", "a/b/", "ab/"], 1),
        (
            named(&["myLIFE", "x/incarnation/readme", "x/incarnation/deep/fffffffffffffffe", "x/LIFE/y"]),
            vec![],
            4,
        ),
        (named(&["x/incarnation/LIFE", "x/t"]), vec!["x/incarnation/"], 1),
    ] {
        assert_eq!(found(&names), (databases.into_iter().map(str::to_owned).collect(), outside), "{names:?}");
        assert_eq!(expected(&names), found(&names));
    }
}

#[test]
fn whatever_the_names_they_are_judged_as_with_all_of_them_at_hand() {
    let parts = ["a", "b", "a!", "a0", "incarnation", "fffffffffffffffe", "0"];
    let mut random = 1_u64;
    let mut below = |bound: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap_or(0) % bound
    };
    for _ in 0..2000 {
        let names: Vec<String> = (0..below(30))
            .map(|_| (0..=below(4)).map(|_| parts[below(parts.len())]).collect::<Vec<_>>().join("/"))
            .collect();
        assert_eq!(found(&names), expected(&names), "{names:?}");
    }
}

/// A bucket full of others' objects.
#[test]
fn what_is_held_grows_with_the_databases_only() {
    let mut roots = Roots::default();
    for number in 0..100_000 {
        roots.take(&format!("photos/{:03}/{number:08}.jpg", number / 100));
        assert!(roots.open.len() <= 3 && roots.found.is_empty());
    }
    roots.take(&format!("shop/{LIFE}"));
    assert_eq!(roots.finish(), (BTreeSet::from(["shop/".to_owned()]), 100_000));
}
