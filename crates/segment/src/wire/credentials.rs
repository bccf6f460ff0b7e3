//! How a writer and a node show that they belong together, and the files that they have it from.

use std::path::Path;

use tombolo_env::file::read_exact_at;
use tombolo_env::{Access, Connection, Env};
use tombolo_storage::{Error, ErrorKind, Result};

use super::secret::Secret;
use super::tls::Tls;

/// The files of a directory of certificates, named as Kubernetes names them: who signs, whom this
/// side is, and its key.
pub const TLS_FILES: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];
/// Most bytes of such a file, and of one with a secret.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How a side shows that it belongs here.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// Both know the same secret.
    Secret(Secret),
    /// Each has a certificate that the other believes.
    Tls(Tls),
}

impl From<Secret> for Credentials {
    fn from(secret: Secret) -> Credentials {
        Credentials::Secret(secret)
    }
}

/// Checks the certificate of who has come, where certificates are taken. Gives the secret that the
/// introduction is to show.
///
/// # Errors
/// Why it is not let in; `None` when it has gone.
pub async fn admit(
    credentials: Option<&Credentials>,
    connection: &mut dyn Connection,
) -> std::result::Result<Option<Secret>, Option<String>> {
    match credentials {
        None => Ok(None),
        Some(Credentials::Secret(secret)) => Ok(Some(secret.clone())),
        Some(Credentials::Tls(tls)) => match tls.admit(connection).await {
            Ok(secret) => Ok(Some(secret)),
            Err(trouble) if trouble.is_gone() => Err(None),
            Err(trouble) => Err(Some(trouble.to_string())),
        },
    }
}

impl Credentials {
    /// The secret of a file, or the certificates of a directory ([`TLS_FILES`]), whichever is
    /// named.
    ///
    /// # Errors
    /// `Invalid` when both are named, or the content is none; those of reading files.
    pub fn read(
        env: &Env,
        secret_file: Option<&str>,
        tls_directory: Option<&str>,
    ) -> Result<Option<Credentials>> {
        match (secret_file, tls_directory) {
            (None, None) => Ok(None),
            (Some(path), None) => Ok(Some(Secret::new(&file(env, Path::new(path))?)?.into())),
            (None, Some(directory)) => {
                let [authorities, chain, key] =
                    TLS_FILES.map(|name| file(env, &Path::new(directory).join(name)));
                let tls = Tls::new(&authorities?, &chain?, &key?).map_err(|error| error.object(directory))?;
                Ok(Some(Credentials::Tls(tls)))
            }
            (Some(_), Some(_)) => {
                Err(Error::new(ErrorKind::Invalid, "a secret and certificates for the same nodes")
                    .advice("give one of them"))
            }
        }
    }
}

/// What a file of such a kind holds.
pub(crate) fn file(env: &Env, path: &Path) -> Result<Vec<u8>> {
    let read = || {
        let file = env.files().open(path, Access::Read)?;
        let mut bytes = vec![0; usize::try_from(file.length()?.min(FILE_BYTES_MAX)).unwrap_or(0)];
        read_exact_at(&*file, &mut bytes, 0)?;
        Ok(bytes)
    };
    read().map_err(|error: std::io::Error| {
        Error::io(error, "reading what shows who this side is", path.display())
    })
}
