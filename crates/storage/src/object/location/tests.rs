use super::*;
use crate::Registry;

fn location(uri: &str) -> StoreLocation {
    let open = Arc::new(|env: &Env, uri: &Uri| Registry::with_defaults().open_object_store(env, uri));
    StoreLocation::new(&Env::real(), &Uri::parse(uri).unwrap(), open)
}

/// A place leads from one database to the other and back, and says nothing else.
#[test]
fn places_lead_there_and_back() {
    for (from, to, place, back) in [
        ("file:///data/orders", "file:///data/tests", "../tests", "../orders"),
        ("file:///data/orders", "file:///data/a/b?io=direct", "../a/b", "../../orders"),
        ("file:///data", "file:///data/./copies//one", "copies/one", "../.."),
        ("mem://orders", "mem://tests", "../tests", "../orders"),
        ("s3://bucket/a?region=x&trace=/tmp", "s3://other/b?region=x", "../../other/b", "../../bucket/a"),
    ] {
        let (from, to) = (location(from), location(to));
        assert_eq!(from.place_of(&to).unwrap(), place);
        assert_eq!(to.place_of(&from).unwrap(), back);
        assert_eq!(from.place_from(place).unwrap(), back);
        let found = from.uri_of(place).unwrap();
        assert_eq!(segments(&found.rest), segments(&to.0.uri.rest));
        assert_eq!(found.parameter("region"), from.0.uri.parameter("region"));
        assert_eq!(found.parameter("trace"), None);
    }
}

/// What a place cannot say is refused: another service, another key, and nothing at all.
#[test]
fn other_services_are_no_places() {
    for (from, to) in [
        ("file:///data/orders", "mem://orders"),
        ("s3://bucket/a?region=x", "s3://bucket/b?region=y"),
        ("s3://me:key@bucket/a", "s3://bucket/b"),
        ("file:///data/orders", "file:///data/orders/"),
    ] {
        assert_eq!(
            location(from).place_of(&location(to)).unwrap_err().kind(),
            ErrorKind::Invalid,
            "{from} {to}"
        );
    }
    assert_eq!(location("file:///data").neighbour("../../x").unwrap_err().kind(), ErrorKind::Corrupt);
}
