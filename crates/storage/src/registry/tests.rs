use std::path::PathBuf;

use super::*;
use crate::uri::URI_BYTES_MAX;

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
        (
            "s3://bucket/orders?region=eu-1&class=cold",
            "s3",
            "bucket/orders",
            vec![("class", "cold"), ("region", "eu-1")],
        ),
        ("file:///a%20b/%3F%25?x=%26%3D", "file", "/a b/?%", vec![("x", "&=")]),
        ("near://h1:70,h2:70,h3:70", "near", "h1:70,h2:70,h3:70", vec![]),
        ("file:///stra%C3%9Fe", "file", "/straße", vec![]),
    ] {
        let uri = Uri::parse(text).expect(text);
        assert_eq!((uri.scheme.as_str(), uri.rest.as_str()), (scheme, rest), "{text}");
        let found: Vec<_> =
            uri.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
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
    assert!(
        refused.contains("\"single_host\"") && refused.contains("parameters form, and trace"),
        "{refused}"
    );
    assert!(uri.flag("single_host").expect("yes"));
    assert!(!uri.flag("absent").expect("no"));
    assert!(uri.flag("form").expect_err("neither").to_string().contains("form=yes or form=no"));
    assert_eq!(uri.choice("form", &["mapped", "written"]).expect("one of them"), Some("written"));
    assert!(
        uri.choice("form", &["mapped", "other"])
            .expect_err("none of them")
            .to_string()
            .contains("form=mapped or form=other")
    );
}

/// Every directory that a URI can name is opened by its path, whatever its characters mean in a
/// URI.
#[test]
fn a_path_of_any_characters_has_a_uri() {
    for path in ["/data/100%", "/a?b=c&d", "/a#b", "/%41", "/me@home:1/[x]", "/a b", "/ä/日本", "/a\\b", "/"]
    {
        let uri = Uri::from_path(path).expect(path);
        assert_eq!(uri.path().expect(path), PathBuf::from(path));
        assert_eq!(Uri::parse(&uri.to_string()).expect(path), uri, "{path}");
        assert_eq!(uri.parameters.len(), 0, "{path}");
    }
    let relative = Uri::from_path("orders?").expect("from the working directory");
    assert!(relative.path().expect("absolute").ends_with("orders?"));

    use std::os::unix::ffi::OsStrExt;
    let not_text = std::ffi::OsStr::from_bytes(b"/data/\xff");
    let long = format!("/{}", "%".repeat(URI_BYTES_MAX / 3));
    for path in ["".as_ref(), "/a/../b".as_ref(), "/a\nb".as_ref(), not_text, long.as_ref()] {
        let error = Uri::from_path(path).expect_err("no URI can name it");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[test]
fn default_schemes_are_there() {
    let registry = Registry::default();
    assert!(registry.object_store_schemes().contains(&"mem"));
    assert!(registry.log_store_schemes().contains(&"mem"));
    assert!(Registry::empty().object_store_schemes().is_empty());
}

/// What a user puts into a URI by mistake (keys, tokens, passwords) is not repeated to terminals
/// and logs.
#[test]
fn errors_show_no_value_that_may_be_secret() {
    let (env, registry) = (Env::real(), Registry::default());
    for text in [
        "mem://x?secret_access_key=hush",
        "mem://x?sig=hush&sig=hush",
        "mem://x?hush",
        "mem://x?token=hush%zz",
        "mem://x?token=hush%ff",
        "mem://x?token=hush%00",
        "mem://x?token=hush#hush",
        "mem://x?form=written&password=hush",
        "file://relative?token=hush",
        "file:///up/../there?token=hush",
        "s3:/bucket?token=hush",
        "1s3://bucket?token=hush",
        "bucket?token=hush&endpoint=https://host",
        "s3://key:hush@bucket/orders",
        "s3://key:hu/hush@bucket/orders",
        "s3://key:hush@bucket/orders?region",
        "key:hush@bucket/orders",
        "nosuch://x?token=hush",
        "objects://x?token=hush",
        "mem://x?token=hush&single_host=maybe",
        "mem://x?token=hush&retry_seconds=0",
        "s3://b/x?endpoint=https://user:hush@host",
        "s3://b/x?endpoint=ftp://user:hush@host",
        "s3://b/x?endpoint=http://10.0.0.1/?sig=hush",
        "s3://b/x?endpoint=http://10.0.0.1&token=hush",
        "s3://b/x?timeout_seconds=0&token=hush",
    ] {
        let opened = Uri::parse(text).and_then(|uri| {
            let checked = uri.flag("single_host").and_then(|_| uri.choice("form", &["mapped"])).map(drop);
            let objects = checked.and_then(|()| registry.open_object_store(&env, &uri));
            objects.and_then(|objects| registry.open_log_store(&env, &uri, Some(&uri), &objects)).map(drop)
        });
        let error = opened.expect_err(text);
        for shown in [error.to_string(), format!("{:?}", std::error::Error::source(&error))] {
            assert!(!shown.contains("hush"), "{text}: {shown}");
        }
    }
    // What cannot be secret is shown, so that a mistake in it is seen.
    let error = refusal("file:///data/me@home?form=writen&trace=/t&colour=red&x");
    assert!(error.contains("\"file:///data/me@home?form=writen&trace=/t&colour=…&…\""), "{error}");
}
