use super::*;

fn refusal(text: &str) -> String {
    let error = Uri::parse(text).expect_err(text);
    assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
    error.to_string()
}

#[test]
fn takes_uris_apart_and_puts_them_together() {
    for (text, scheme, rest, parameters) in [
        ("file:///data/orders", "file", "/data/orders", vec![]),
        ("FILE:///data", "file", "/data", vec![]),
        ("mem://orders", "mem", "orders", vec![]),
        ("s3://bucket/orders?region=eu-1&class=cold", "s3", "bucket/orders", vec![("class", "cold"), ("region", "eu-1")]),
        ("file:///a%20b/%3F%25?x=%26%3D", "file", "/a b/?%", vec![("x", "&=")]),
        ("near://h1:70,h2:70,h3:70", "near", "h1:70,h2:70,h3:70", vec![]),
        ("file:///stra%C3%9Fe", "file", "/straße", vec![]),
    ] {
        let uri = Uri::parse(text).expect(text);
        assert_eq!((uri.scheme.as_str(), uri.rest.as_str()), (scheme, rest), "{text}");
        let found: Vec<_> = uri.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, parameters, "{text}");
        assert_eq!(Uri::parse(&uri.to_string()).expect("printed"), uri, "{text} printed and read again");
    }
}

#[test]
fn says_what_is_wrong() {
    assert!(refusal("/data/orders").contains("write file:///data/orders"));
    assert!(refusal("orders").contains("no scheme"));
    assert!(refusal("").contains("no scheme"));
    assert!(refusal("1a://x").contains("no scheme"));
    assert!(refusal("mem://x?").contains("name=value"));
    assert!(refusal("mem://x?a").contains("name=value"));
    assert!(refusal("mem://x?=1").contains("without a name"));
    assert!(refusal("mem://x?a=1&a=2").contains("twice"));
    assert!(refusal("mem://x#y").contains("%23"));
    assert!(refusal("mem://%zz").contains("%25"));
    assert!(refusal("mem://%f").contains("%25"));
    assert!(refusal("mem://%ff").contains("UTF-8"));
    assert!(refusal("file:///a%00b").contains("control"));
    assert!(refusal(&format!("mem://{}", "x".repeat(URI_BYTES_MAX))).contains("4096"));
}

#[test]
fn paths_are_absolute_and_plain() {
    let path = |text: &str| Uri::parse(text).and_then(|uri| uri.path());
    assert_eq!(path("file:///data//orders/./").expect("plain"), PathBuf::from("/data/orders"));
    assert!(path("file://data/orders").expect_err("relative").to_string().contains("three slashes"));
    assert!(path("file://").expect_err("empty").to_string().contains("three slashes"));
    assert_eq!(path("file:///data/../etc").expect_err("goes up").kind(), ErrorKind::Invalid);
}

#[test]
fn parameters_are_checked_and_listed() {
    let uri = Uri::parse("file:///x?form=written&single_host=yes").expect("a URI");
    assert!(uri.allow_parameters(&["form", "single_host"]).is_ok());
    let refused = uri.allow_parameters(&["form"]).expect_err("unknown").to_string();
    assert!(refused.contains("\"single_host\"") && refused.contains("parameters form, and trace"), "{refused}");
    assert!(uri.flag("single_host").expect("yes"));
    assert!(!uri.flag("absent").expect("no"));
    assert!(uri.flag("form").expect_err("neither").to_string().contains("form=yes or form=no"));
    assert_eq!(uri.choice("form", &["mapped", "written"]).expect("one of them"), Some("written"));
    assert!(uri.choice("form", &["mapped", "other"]).expect_err("none of them").to_string().contains("form=mapped or form=other"));
}

#[test]
fn default_schemes_are_there() {
    let registry = Registry::default();
    assert!(registry.object_store_schemes().contains(&"mem"));
    assert!(registry.log_store_schemes().contains(&"mem"));
    assert!(Registry::empty().object_store_schemes().is_empty());
}
