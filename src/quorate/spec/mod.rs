//! Job files: `quorate/v1`, in YAML, TOML or JSON.
//!
//! Text → tree with positions → [`JobSpec`], every mistake of all files at once. The rules themselves are the model's;
//! this module finds the place in the file for each one that is broken.

mod container;
mod job;

use std::collections::BTreeMap;

use quorate_model::{JobSpec, Name};

use crate::document::{self, Format, Node, Problem, Problems, Report, Source, Span, locate};

/// Words that the job file may shorten: the one container's fields at the top.
pub(crate) const SHORTHAND: &str = "containers.app.";

/// A job that is legal on its own, and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// The job.
    pub(crate) spec: JobSpec,
    source: Source,
    root: Node,
}

impl Loaded {
    /// A refusal by the server, at the place in the file that it is about.
    pub(crate) fn problem(&self, path: &str, message: &str) -> Problem {
        Problem::at(&self.source, find(&self.root, path), format!("{path}: {message}"))
    }
}

/// Reads all jobs of all `paths`: files, folders, `-` for standard input.
///
/// # Errors
/// Every mistake in every file.
pub(crate) fn load(
    paths: &[String],
    format: Option<Format>,
    namespace: Option<&Name>,
) -> Result<Vec<Loaded>, Problems> {
    let (mut jobs, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        match Source::read_all(path, format) {
            Ok(sources) => {
                for source in sources {
                    match read(&source, namespace) {
                        Ok(mut found) => jobs.append(&mut found),
                        Err(mut found) => problems.append(&mut found.0),
                    }
                }
            }
            Err(mut found) => problems.append(&mut found.0),
        }
    }
    report_twins(&jobs, &mut problems);
    if problems.is_empty() { Ok(jobs) } else { Err(Problems(problems)) }
}

/// The jobs of one text.
fn read(source: &Source, namespace: Option<&Name>) -> Result<Vec<Loaded>, Problems> {
    let mut report = Report::default();
    let documents = document::parse(source, &mut report)?;
    if documents.is_empty() {
        return Err(Problem::of_file(&source.name, "holds no job").into());
    }
    let mut jobs = Vec::new();
    for root in documents {
        let Some(spec) = job::read(&root, namespace, &mut report) else { continue };
        if let Err(invalid) = spec.validate() {
            for one in invalid.0 {
                report.push(find(&root, &one.path), format!("{}: {}", one.path, one.reason));
            }
            continue;
        }
        jobs.push(Loaded { spec, source: source.clone(), root });
    }
    if report.is_empty() { Ok(jobs) } else { Err(report.into_problems(source)) }
}

/// Where the model's `path` stands in the file, which may use the short form of a single container.
fn find(root: &Node, path: &str) -> Span {
    match path.strip_prefix(SHORTHAND) {
        Some(short) if root.get("containers").is_none() => locate(root, short),
        _ => locate(root, path),
    }
}

fn report_twins(jobs: &[Loaded], problems: &mut Vec<Problem>) {
    let mut seen = BTreeMap::new();
    for job in jobs {
        let spec = &job.spec;
        if let Some(first) = seen.insert((&spec.namespace, &spec.name), job) {
            let other = first.problem("name", "");
            let message = format!(
                "job {}/{} is given twice: also at {}:{}",
                spec.namespace, spec.name, other.file, other.line
            );
            problems.push(Problem::at(&job.source, find(&job.root, "name"), message));
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
