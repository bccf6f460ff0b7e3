//! Writes one sound input of each kind to `corpus/TARGET/`, for fuzzing to begin with.

use std::{fs, io};

fn main() -> io::Result<()> {
    let seeds = tombolo_format::fuzzing::seeds::all()
        .into_iter()
        .chain(tombolo_segment::fuzzing::seeds::all())
        .chain(tombolo_files::fuzzing::seeds::all());
    for (number, (target, bytes)) in seeds.enumerate() {
        let directory = format!("corpus/{target}");
        fs::create_dir_all(&directory)?;
        fs::write(format!("{directory}/seed-{number}"), bytes)?;
    }
    Ok(())
}
