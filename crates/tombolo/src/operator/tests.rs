use super::*;

fn named(name: &str) -> Named {
    Operators::default().named(&OperatorName::parse(name).unwrap())
}

fn fold(name: &str, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
    named(name).fold(b"key", base, operands.iter().copied())
}

fn eight(number: i64) -> [u8; 8] {
    number.to_le_bytes()
}

#[test]
fn numbers_are_added_and_wrap() {
    let (one, two, most) = (eight(1), eight(2), u64::MAX.to_le_bytes());
    for name in ["add_u64", "add_i64"] {
        assert_eq!(fold(name, Some(&one), &[&two, &two]).unwrap().unwrap(), eight(5));
        assert_eq!(fold(name, None, &[&two]).unwrap().unwrap(), eight(2));
        assert_eq!(fold(name, Some(&most), &[&two]).unwrap().unwrap(), eight(1), "it wraps");
    }
    let numbers = [1e16_f64, 1.0, -1e16].map(f64::to_le_bytes);
    let sum = fold("add_f64", Some(&numbers[0]), &[&numbers[1], &numbers[2]]).unwrap().unwrap();
    assert_eq!(sum, (1e16_f64 + 1.0 - 1e16).to_le_bytes(), "oldest first");
}

#[test]
fn weights_vanish_at_zero() {
    let (one, less, two) = (eight(1), eight(-1), eight(2));
    assert_eq!(fold("weights", Some(&one), &[&less]).unwrap(), None);
    assert_eq!(fold("weights", None, &[&less, &two]).unwrap().unwrap(), one);
}

#[test]
fn bytes_are_compared_appended_and_joined() {
    assert_eq!(fold("max", Some(b"b"), &[b"a", b"ba"]).unwrap().unwrap(), b"ba");
    assert_eq!(fold("min", Some(b"b"), &[b"a", b"ba"]).unwrap().unwrap(), b"a");
    assert_eq!(fold("append", Some(b"a"), &[b"b", b"c"]).unwrap().unwrap(), b"abc");
    assert_eq!(fold("append_comma", None, &[b"b", b"", b"c"]).unwrap().unwrap(), b"b,,c");
    assert_eq!(fold("append_line", Some(b"a"), &[b"b"]).unwrap().unwrap(), b"a\nb");
    assert_eq!(fold("bit_or", Some(&[1]), &[&[2, 4], &[8]]).unwrap().unwrap(), [11, 4]);
}

#[test]
fn sets_are_joined() {
    let (one, other) = (encode_set(["b", "d"]), encode_set(["a", "b", "c"]));
    let joined = fold("set_union", Some(&one), &[&other]).unwrap().unwrap();
    assert_eq!(joined, encode_set(["a", "b", "c", "d"]));
    assert_eq!(set_elements(&joined).unwrap().len(), 4);
    assert_eq!(set_elements(b"\x02\0\0\0a"), None, "cut off");
    let disordered = [encode_set(["b"]), encode_set(["a"])].concat();
    assert_eq!(set_elements(&disordered), None);
    let error = named("set_union").check(&disordered).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// Those that are called associative are: any two neighbours may be joined first.
#[test]
fn any_two_neighbours_may_be_joined_first() {
    let numbers: Vec<Vec<u8>> =
        [3, -1, i64::MAX, 7].iter().map(|number| number.to_le_bytes().to_vec()).collect();
    let sets: Vec<Vec<u8>> = [&["a"][..], &[], &["c", "a"], &["b"]].map(encode_set).to_vec();
    let bytes: Vec<Vec<u8>> = [&b"x"[..], b"", b"abc", b"ab"].map(<[u8]>::to_vec).to_vec();
    for (name, operator) in shipped::all() {
        if matches!(operator, Operator::Full(_)) {
            continue;
        }
        let operands = match &name.name[..] {
            "set_union" => &sets,
            "add_u64" | "add_i64" | "weights" => &numbers,
            _ => &bytes,
        };
        let named = named(&name.to_string());
        let join = |operands: &[&[u8]]| named.join(b"key", operands.iter().copied()).unwrap().unwrap();
        let all: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let expected = join(&all);
        for at in 0..all.len() - 1 {
            let pair = join(&all[at..at + 2]);
            let mut fewer = all.clone();
            fewer.splice(at..at + 2, [&pair[..]]);
            assert_eq!(join(&fewer), expected, "{name}, {at} first");
        }
    }
}

#[test]
fn what_an_operator_cannot_read_is_refused() {
    let error = fold("add_u64", Some(b"no number"), &[&eight(1)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("add_u64@1"), "{error}");
    let error = named("add_u64").check(b"1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(named("add_u64").check(&eight(1)).is_ok());
}

#[test]
fn an_operator_that_is_not_there_is_named() {
    for (name, part) in [("nobody@3", "\"nobody\" of version 3"), ("add_u64@2", "found add_u64@1")] {
        let error = fold(name, None, &[b"x"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(part), "{error}");
    }
    for name in ["", "a b", "a@", "a@x", &"a".repeat(65)] {
        assert_eq!(OperatorName::parse(name).unwrap_err().kind(), ErrorKind::Invalid, "{name:?}");
    }
}

/// An error that cannot be shown.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("on purpose")
    }
}

impl std::error::Error for Unspeakable {}

#[test]
fn a_panic_of_what_an_operator_says_is_an_error() {
    struct Silent;
    impl AssociativeOperator for Silent {
        fn join(&self, _: &[u8], _: &mut Vec<u8>, _: &[u8]) -> std::result::Result<(), OperatorError> {
            Err(Unspeakable.into())
        }
        fn check(&self, _: &[u8]) -> std::result::Result<(), OperatorError> {
            Err(Unspeakable.into())
        }
    }
    let name = OperatorName::new("silent", 1).unwrap();
    let named = Named { name, operator: Some(Operator::associative(Silent)), others: String::new() };
    let folded = named.fold(b"k", Some(b"a"), [&b"b"[..]].into_iter());
    for error in [named.check(b"b").unwrap_err(), folded.unwrap_err()] {
        assert!(error.to_string().contains("silent@1 panicked"), "{error}");
    }
}

#[test]
fn a_panic_is_an_error() {
    struct Panics;
    impl FullOperator for Panics {
        fn fold(
            &self,
            _: &[u8],
            _: Option<&[u8]>,
            _: &[&[u8]],
            _: &mut Vec<u8>,
        ) -> std::result::Result<bool, OperatorError> {
            panic!("on purpose")
        }
    }
    let mut operators = Operators::default();
    let name = OperatorName::new("panics", 1).unwrap();
    operators.insert(name.clone(), Operator::full(Panics));
    let error = operators.named(&name).fold(b"key", None, [&b"x"[..]].into_iter()).unwrap_err();
    assert!(error.to_string().contains("panics@1 panicked"), "{error}");
}

#[test]
fn a_value_beyond_the_limit_is_refused() {
    let half = vec![0; VALUE_BYTES_MAX / 2 + 1];
    let error = fold("append", Some(&half), &[&half]).unwrap_err();
    assert!(error.to_string().contains("too large"), "{error}");
}

/// Who wrote a name wrong sees the right ones; who lacks a version, those of that name.
#[test]
fn an_operator_that_is_not_there_is_told_with_those_that_are() {
    let missing = |text: &str| {
        let error = Operators::default().named(&OperatorName::parse(text).unwrap()).get().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        error.to_string()
    };
    let told = missing("nosuch");
    for name in Operators::default().names() {
        assert!(told.contains(&name.to_string()), "{told} without {name}");
    }
    let told = missing("max@7");
    assert!(told.contains("max@1") && !told.contains("min@1"), "{told}");
}
