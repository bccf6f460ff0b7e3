//! With what certificates an etcd is asked, and as whom. None of it is in a URI: a URI names files.

use std::fmt;
use std::path::Path;

use tombolo_env::Env;
use tombolo_storage::{Error, ErrorKind, Result, Uri};

use super::{PASSWORD_FILE, TLS, USER};
use crate::wire::credentials::{TLS_FILES, file};

/// Certificates in PEM.
pub(super) struct Certificates {
    /// Who signs those of etcd.
    pub(super) authorities: Vec<u8>,
    /// This side's certificate and its key, where etcd asks for one.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// What an etcd is shown: who we are.
#[derive(Default)]
pub(super) struct Access {
    /// `None`: it is asked without TLS.
    pub(super) tls: Option<Certificates>,
    /// Name and password.
    pub(super) user: Option<(String, String)>,
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        formatter.debug_struct("Access").field("tls", &self.tls.is_some()).field("user", &user).finish()
    }
}

impl Access {
    /// What the parameters of a URI name.
    ///
    /// # Errors
    /// `Invalid` for a user without a password or the other way round; those of reading files.
    pub(super) fn read(env: &Env, uri: &Uri) -> Result<Access> {
        let tls = uri.parameter(TLS).map(|directory| certificates(env, Path::new(directory))).transpose()?;
        let user = match (uri.parameter(USER), uri.parameter(PASSWORD_FILE)) {
            (None, None) => None,
            (Some(name), Some(path)) => Some((name.to_owned(), password(env, path)?)),
            (Some(_), None) | (None, Some(_)) => {
                let message = format!("a user and a password belong together in {}", uri.shown());
                return Err(Error::new(ErrorKind::Invalid, message)
                    .advice("write user=NAME&password_file=FILE, the password on the file's first line"));
            }
        };
        Ok(Access { tls, user })
    }
}

/// The authorities are needed; this side's own are shown where they are there.
fn certificates(env: &Env, directory: &Path) -> Result<Certificates> {
    let [authorities, chain, key] = TLS_FILES.map(|name| directory.join(name));
    let own = |path: &Path| match file(env, path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    };
    let identity = match (own(&chain)?, own(&key)?) {
        (Some(chain), Some(key)) => Some((chain, key)),
        (None, None) => None,
        _ => {
            let message =
                format!("a certificate without its key, or the other way round, in {}", directory.display());
            return Err(Error::new(ErrorKind::Invalid, message).advice("put both there, or neither"));
        }
    };
    Ok(Certificates { authorities: file(env, &authorities)?, identity })
}

/// The first line of a file.
fn password(env: &Env, path: &str) -> Result<String> {
    let bytes = file(env, Path::new(path))?;
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match std::str::from_utf8(first.strip_suffix(b"\r").unwrap_or(first)) {
        Ok(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(Error::new(ErrorKind::Invalid, format!("no password on the first line of {path}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_and_passwords_are_read_from_files_and_shown_to_nobody() {
        let folder = tempfile::tempdir().expect("room");
        let path = |name: &str| folder.path().join(name);
        let directory = folder.path().display();
        let read = |parameters: &str| {
            let uri = format!("etcd://a:1?{parameters}");
            Access::read(&Env::real(), &Uri::parse(&uri).expect("a URI"))
        };
        std::fs::write(path("password"), "much secret\r\n\n").expect("room");
        let access = read(&format!("user=me&password_file={directory}/password")).expect("it is there");
        assert_eq!(access.user.as_ref().map(|(_, password)| &**password), Some("much secret"));
        assert!(!format!("{access:?}").contains("secret"));
        for wrong in ["user=me", "password_file=/no/such/file", "user=me&password_file=/dev/null"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let tls = || read(&format!("tls={directory}"));
        assert!(tls().is_err(), "no authorities");
        std::fs::write(path("ca.crt"), "ca").expect("room");
        assert!(tls().expect("authorities alone").tls.expect("TLS").identity.is_none());
        std::fs::write(path("tls.crt"), "certificate").expect("room");
        assert!(tls().is_err(), "a certificate without its key");
        std::fs::write(path("tls.key"), "key").expect("room");
        assert!(tls().expect("all").tls.expect("TLS").identity.is_some());
    }
}
