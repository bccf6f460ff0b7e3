//! Writes one sound input of each kind to `corpus/TARGET/`, for fuzzing to begin with.

use std::{fs, io};

fn main() -> io::Result<()> {
    for (number, (target, bytes)) in tombolo_format::fuzzing::seeds::all().into_iter().enumerate() {
        let directory = format!("corpus/{target}");
        fs::create_dir_all(&directory)?;
        fs::write(format!("{directory}/seed-{number}"), bytes)?;
    }
    Ok(())
}
