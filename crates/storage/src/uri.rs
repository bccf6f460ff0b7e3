//! Checked URIs: `scheme://rest?name=value&…`; bytes that are not plain in a URI are written `%XX`.
//!
//! Invariant: the opener of a URI learns about every mistake in it before anything is touched.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Error, ErrorKind, Result};

/// Parameters that every scheme takes.
pub(crate) const TRACE_PARAMETER: &str = "trace";
pub(crate) const RETRY_PARAMETER: &str = "retry_seconds";
pub(crate) const BYTES_PARAMETER: &str = "bytes_per_second";
pub(crate) const REQUESTS_PARAMETER: &str = "requests_per_second";
pub(crate) const LATENCY_MS_PARAMETER: &str = "latency_ms";
pub(crate) const LATENCY_PARAMETER: &str = "latency";
/// As messages list them.
const PARAMETERS_OF_ALL: &str =
    "trace, retry_seconds, bytes_per_second, requests_per_second, latency_ms and latency";

/// Most bytes of a URI.
pub const URI_BYTES_MAX: usize = 4096;

/// A checked URI: `scheme://rest?name=value&…`, its parts decoded. Printed, it is whole; for
/// messages there is [`Uri::shown`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uri {
    /// Before `://`, in lower case.
    pub scheme: String,
    /// Between `://` and `?`.
    pub rest: String,
    /// Parameters by name.
    pub parameters: BTreeMap<String, String>,
}

/// Parameters of the schemes of this crate, whose values are shown in messages: whatever else is
/// given may be a key that does not belong there.
const SHOWN_PARAMETERS: [&str; 16] = [
    TRACE_PARAMETER,
    RETRY_PARAMETER,
    BYTES_PARAMETER,
    REQUESTS_PARAMETER,
    LATENCY_MS_PARAMETER,
    LATENCY_PARAMETER,
    "account",
    "allow_http",
    "anonymous",
    "form",
    "io",
    "region",
    "replication",
    "single_host",
    "timeout_seconds",
    "user",
];

fn invalid(text: &str, what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("{what} in the URI {:?}", shown(text)))
}

/// A URI, or what should be one, for messages: without values of parameters that may be secret, and
/// without a name and password before a host.
pub(crate) fn shown(text: &str) -> String {
    let (place, query) = text.split_once('?').map_or((text, None), |(place, query)| (place, Some(query)));
    let (scheme, rest) =
        place.split_once("://").map_or(("", place), |(_, rest)| place.split_at(place.len() - rest.len()));
    // Keys have slashes in them; paths begin with one.
    let rest = match rest.rsplit_once('@').filter(|_| !rest.starts_with('/')) {
        Some((_, rest)) => format!("{HIDDEN}@{rest}"),
        None => rest.to_owned(),
    };
    let pairs = query.into_iter().flat_map(|query| query.split('&')).map(|pair| match pair.split_once('=') {
        Some((name, _)) if SHOWN_PARAMETERS.contains(&name) => pair.to_owned(),
        Some(("endpoint", url)) if !url.contains('%') => format!("endpoint={}", shown(url)),
        Some((name, _)) => format!("{name}={HIDDEN}"),
        None => HIDDEN.to_owned(),
    });
    let pairs = pairs.collect::<Vec<_>>().join("&");
    format!("{scheme}{rest}{}{pairs}", if query.is_some() { "?" } else { "" })
}

/// Stands for a secret that is not shown.
const HIDDEN: &str = "…";

fn decode(text: &str, part: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        match (first, tail) {
            (b'%', [high, low, tail @ ..]) if digit(*high).is_some() && digit(*low).is_some() => {
                bytes.push(digit(*high).unwrap_or(0) << 4 | digit(*low).unwrap_or(0));
                rest = tail;
            }
            (b'%', _) => {
                return Err(
                    invalid(text, "a % without two hexadecimal digits").advice("write a % itself as %25")
                );
            }
            (byte, tail) => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    let decoded = String::from_utf8(bytes).map_err(|_| invalid(text, "bytes that are not UTF-8"))?;
    if decoded.chars().any(char::is_control) {
        return Err(invalid(text, "a control character"));
    }
    Ok(decoded)
}

fn encode(part: &str, also_plain: &[u8], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || also_plain.contains(&byte) {
            write!(formatter, "{}", char::from(byte))?;
        } else {
            write!(formatter, "%{byte:02X}")?;
        }
    }
    Ok(())
}

impl Uri {
    /// Takes a URI apart.
    ///
    /// ```
    /// let uri = tombolo_storage::Uri::parse("file:///data/my%20orders?form=written")?;
    /// assert_eq!(uri.rest, "/data/my orders");
    /// assert_eq!(uri.parameter("form"), Some("written"));
    /// # Ok::<(), tombolo_storage::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid`, naming the fault and how to write it.
    pub fn parse(text: &str) -> Result<Uri> {
        if text.len() > URI_BYTES_MAX {
            let message = format!("a URI of {} bytes; {URI_BYTES_MAX} are the most", text.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            let advice = if text.starts_with('/') {
                format!(
                    "for a directory of this host write {}",
                    Uri::from_path(text).map_or_else(|_| Uri::teach(), |uri| uri.to_string(),)
                )
            } else {
                Uri::teach()
            };
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{:?} is no URI: it has no scheme://", shown(text)),
            )
            .advice(advice));
        };
        let proper = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if !proper {
            return Err(invalid(text, "no scheme before ://").advice(Uri::teach()));
        }
        if rest.contains('#') {
            return Err(invalid(text, "a #").advice("write a # itself as %23"));
        }
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let mut parameters = BTreeMap::new();
        for pair in query.into_iter().flat_map(|query| query.split('&')) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(invalid(text, "a parameter without =")
                    .advice("write parameters as name=value, joined by &"));
            };
            let name = decode(text, name)?;
            if name.is_empty() {
                return Err(invalid(text, "a parameter without a name")
                    .advice("write parameters as name=value, joined by &"));
            }
            if parameters.insert(name.clone(), decode(text, value)?).is_some() {
                return Err(invalid(text, format_args!("the parameter {name:?} twice")));
            }
        }
        Ok(Uri { scheme: scheme.to_ascii_lowercase(), rest: decode(text, rest)?, parameters })
    }

    /// The `file://` URI of a directory of this host, whatever characters its name has. A relative
    /// path is taken from the working directory.
    ///
    /// ```
    /// let uri = tombolo_storage::Uri::from_path("/data/100% of #orders?")?;
    /// assert_eq!(uri.to_string(), "file:///data/100%25%20of%20%23orders%3F");
    /// # Ok::<(), tombolo_storage::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` for an empty path, one with `..` in it, and one that no URI can name: not UTF-8,
    /// with a control character, or too long.
    pub fn from_path(path: impl AsRef<Path>) -> Result<Uri> {
        let path = path.as_ref();
        let invalid = |what: &str| Error::new(ErrorKind::Invalid, format!("the path {path:?} {what}"));
        let absolute = std::path::absolute(path)
            .map_err(|error| invalid(&format!("is not to be made absolute: {error}")))?;
        let Some(rest) = absolute.to_str() else {
            return Err(invalid("is not UTF-8").advice("name a directory whose path is UTF-8"));
        };
        let uri = Uri { scheme: "file".into(), rest: rest.to_owned(), parameters: BTreeMap::new() };
        uri.path()?;
        // Read as it will be read later, which has limits of its own.
        Uri::parse(&uri.to_string())
    }

    pub(crate) fn teach() -> String {
        "write for example file:///data/orders, s3://bucket/orders or mem://orders".into()
    }

    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    /// Reads a parameter that is `yes` or `no`; absent is `no`.
    ///
    /// # Errors
    /// `Invalid` for anything else.
    pub fn flag(&self, name: &str) -> Result<bool> {
        match self.parameter(name) {
            None | Some("no") => Ok(false),
            Some("yes") => Ok(true),
            Some(other) => Err(Error::new(
                ErrorKind::Invalid,
                format!("the parameter {name}={other} of {}", self.shown()),
            )
            .expected(format!("{name}=yes or {name}=no"))
            .found(other)),
        }
    }

    /// Reads a parameter that is one of `choices`; absent is `None`.
    ///
    /// # Errors
    /// `Invalid`, listing the choices.
    pub fn choice<'a>(&'a self, name: &str, choices: &[&str]) -> Result<Option<&'a str>> {
        match self.parameter(name) {
            Some(value) if !choices.contains(&value) => Err(Error::new(
                ErrorKind::Invalid,
                format!("the parameter {name}={value} of {}", self.shown()),
            )
            .expected(format!("{name}={}", choices.join(&format!(" or {name}="))))
            .found(value)),
            value => Ok(value),
        }
    }

    /// Checks that every parameter is among `allowed`.
    ///
    /// # Errors
    /// `Invalid`, naming the unknown one and listing the allowed ones.
    pub fn allow_parameters(&self, allowed: &[&str]) -> Result<()> {
        for name in self.parameters.keys() {
            if !allowed.contains(&name.as_str()) {
                let advice = match allowed {
                    [] => format!("{}:// takes no parameters but {PARAMETERS_OF_ALL}", self.scheme),
                    _ => format!(
                        "{}:// takes the parameters {}, and {PARAMETERS_OF_ALL}",
                        self.scheme,
                        allowed.join(", ")
                    ),
                };
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!("the unknown parameter {name:?} of {}", self.shown()),
                )
                .advice(advice));
            }
        }
        Ok(())
    }

    /// The URI for messages: values of parameters that may be secret, and what stands before an `@`
    /// of its host, are left out.
    pub fn shown(&self) -> String {
        shown(&self.to_string())
    }

    /// The URI without a parameter, and the parameter's value.
    pub(crate) fn without(&self, name: &str) -> (Uri, Option<String>) {
        let mut rest = self.clone();
        let value = rest.parameters.remove(name);
        (rest, value)
    }

    /// The absolute path that a `file://` URI names.
    ///
    /// # Errors
    /// `Invalid` for a host, a relative path, or one with `..` in it.
    pub fn path(&self) -> Result<PathBuf> {
        if !self.rest.starts_with('/') {
            let message = format!("a relative path in {}", self.shown());
            return Err(Error::new(ErrorKind::Invalid, message)
                .advice("name a directory from the root, with three slashes: file:///data/orders"));
        }
        if self.rest.split('/').any(|segment| segment == "..") {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("the path of {} goes up with ..", self.shown()),
            )
            .advice("write the path that is meant"));
        }
        // Joined anew, so that two spellings of one directory are one identity.
        let segments = self.rest.split('/').filter(|segment| !segment.is_empty() && *segment != ".");
        Ok(segments.fold(PathBuf::from("/"), |path, segment| path.join(segment)))
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://", self.scheme)?;
        encode(&self.rest, b"/:,@+=[]", formatter)?;
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            formatter.write_str(if index == 0 { "?" } else { "&" })?;
            encode(name, b"", formatter)?;
            formatter.write_str("=")?;
            encode(value, b"/:,@+", formatter)?;
        }
        Ok(())
    }
}

impl From<Uri> for String {
    fn from(uri: Uri) -> String {
        uri.to_string()
    }
}

impl std::str::FromStr for Uri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Uri> {
        Uri::parse(text)
    }
}
