//! Traces and models, read.

use std::path::Path;

use tombolo_format::trace::{Header, TracedKeys};
use tombolo_lab::analysis::{Analyser, Analysis, Bounds};
use tombolo_lab::model::ModelError;
use tombolo_lab::{Generator, Model};

use super::files::{TraceArguments, open, walk};
use crate::failure::{Failure, Result};
use crate::output::Output;

/// Sees a trace.
pub fn analysed(trace: &TraceArguments, bounds: Bounds, output: &Output) -> Result<Analysis> {
    let mut analyser: Option<Analyser> = None;
    let header = walk(trace, output, |reader, event| {
        let analyser = analyser.get_or_insert_with(|| Analyser::new(reader.header().clone(), bounds));
        analyser.name(reader.names());
        analyser.add(event);
        Ok(())
    })?;
    Ok(analyser.unwrap_or_else(|| Analyser::new(header, bounds)).finish())
}

/// Reads a model.
pub fn read_model(path: &Path) -> Result<Model> {
    let mut text = String::new();
    let reading = |error| Failure::io(error, format!("reading {}", path.display()));
    // Far more than a model may have: a longer file is none.
    let mut file = std::io::Read::take(open(path)?, 1 << 20);
    std::io::Read::read_to_string(&mut file, &mut text).map_err(reading)?;
    Model::from_toml(&text).map_err(|error| wrong_model(path, &error))
}

/// The failure of a wrong model.
pub fn wrong_model(path: &Path, error: &ModelError) -> Failure {
    Failure::Usage(format!("{}: {error}", path.display()))
}

/// What a model's events look like.
pub fn analysed_model(model: &Model, seed: u64, events: u64, bounds: Bounds) -> Result<Analysis> {
    let mut generator = Generator::new(model, seed).map_err(|error| Failure::Usage(error.to_string()))?;
    let names = generator.names().map(|(id, name)| (id, name.to_owned())).collect();
    let mut analyser = Analyser::new(model_header(model), bounds);
    analyser.name(&names);
    (0..events).for_each(|_| analyser.add(&generator.draw()));
    Ok(analyser.finish())
}

/// The header of a trace that is made of a model.
pub fn model_header(model: &Model) -> Header {
    Header {
        start_unix_ns: 0,
        sampled_one_in: 1,
        keys: TracedKeys::Clear,
        has_values: false,
        is_of_blocks: false,
        origin: format!("a model of {}", model.origin),
    }
}
