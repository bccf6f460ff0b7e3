//! Where results for machines go: a file, standard output, or nowhere.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::output::Output;

/// Where a list of objects goes.
pub struct Results {
    /// Made before anything is measured, so that a wrong path costs nothing.
    file: Option<(File, PathBuf)>,
    standard_output: bool,
}

impl Results {
    /// To the file at `path`, where `-` is standard output; and to standard output when `json` says
    /// so.
    pub fn open(path: Option<&Path>, json: bool) -> Result<Results> {
        let is_dash = path.is_some_and(|path| path.as_os_str() == "-");
        let make = |path: &Path| {
            let file = File::create(path)
                .map_err(|error| Failure::io(error, format!("making {}", path.display())))?;
            Ok::<_, Failure>((file, path.to_owned()))
        };
        let file = path.filter(|_| !is_dash).map(make).transpose()?;
        Ok(Results { file, standard_output: json || is_dash })
    }

    /// Whether standard output is for machines.
    pub fn is_standard_output(&self) -> bool {
        self.standard_output
    }

    /// Writes the list.
    pub fn write(&mut self, output: &Output, objects: &[Value]) -> Result<()> {
        let text = format!("{:#}", Value::Array(objects.to_vec()));
        if let Some((file, path)) = &mut self.file {
            writeln!(file, "{text}")
                .map_err(|error| Failure::io(error, format!("writing {}", path.display())))?;
        }
        if self.standard_output { output.line(text) } else { Ok(()) }
    }
}
