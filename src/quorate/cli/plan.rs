//! `plan`, and `run --plan-first`

use quorate_wire::api::{PlanJobRequest, PlanJobResponse};

use super::args::{ListArgs, PlanArgs};
use super::context::{Context, print};
use super::job::refused;
use super::print::confirm;
use crate::failure::Failure;
use crate::render::plan::{is_empty, text};
use crate::spec::{self, Loaded};

/// Exit code: something would change.
const CHANGES: u8 = 10;
/// Exit code: something would change, and not all of it finds a place.
const UNPLACED: u8 = 11;

/// Plans the jobs of all files.
pub(super) async fn run(context: &Context, args: PlanArgs) -> Result<(), Failure> {
    let files: Vec<String> = args.files.into_iter().chain(args.more).collect();
    let jobs = spec::load(&files, args.format, context.namespace.as_ref())?;
    let (mut changes, mut unplaced) = (false, false);
    for (at, job) in jobs.iter().enumerate() {
        let plan = ask(context, job).await?;
        if at > 0 && !context.json() && !context.names_only() {
            print("")?;
        }
        show(context, job, &plan, &command(&files, &plan, jobs.len()))?;
        changes |= !is_empty(&plan);
        unplaced |= plan.unplaced > 0;
    }
    match (args.exit_code, changes, unplaced) {
        (true, true, true) => Err(Failure::silent(UNPLACED)),
        (true, true, false) => Err(Failure::silent(CHANGES)),
        _ => Ok(()),
    }
}

/// Shows the plans of `jobs` and asks whether to go on; the etags that apply exactly them.
///
/// # Errors
/// The answer is no.
pub(super) async fn agreed(context: &Context, jobs: &[Loaded]) -> Result<Vec<String>, Failure> {
    let (mut etags, mut changes) = (Vec::new(), false);
    for job in jobs {
        let plan = ask(context, job).await?;
        if !context.json() && !context.names_only() {
            show(context, job, &plan, "answer yes")?;
        }
        changes |= !is_empty(&plan);
        etags.push(plan.etag);
    }
    if changes {
        confirm(&context.global, "Apply?")?;
    }
    Ok(etags)
}

async fn ask(context: &Context, job: &Loaded) -> Result<PlanJobResponse, Failure> {
    let request = PlanJobRequest { spec: Some((&job.spec).into()), update_mask: None, read: context.read() };
    context.client.plan_job(request).await.map_err(|error| refused(job, error))
}

fn show(context: &Context, job: &Loaded, plan: &PlanJobResponse, apply: &str) -> Result<(), Failure> {
    let name = format!("{}/{}", job.spec.namespace, job.spec.name);
    if context.json() || context.names_only() {
        return context.printer.object(plan, &name);
    }
    let layout = context.printer.layout(&ListArgs::default());
    print(&text(&name, plan, apply, layout.style, layout.width))
}

/// What applies exactly this plan.
fn command(files: &[String], plan: &PlanJobResponse, jobs: usize) -> String {
    let files: Vec<String> = files.iter().map(|file| quoted(file)).collect();
    match jobs {
        1 => format!("quorate run {} --etag {}", files.join(" "), quoted(&plan.etag)),
        // An etag is of one job.
        _ => format!("quorate run {} --plan-first", files.join(" ")),
    }
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_quoted_for_a_shell() {
        let plan = PlanJobResponse { etag: "W/\"7\"".into(), ..PlanJobResponse::default() };
        let files = ["web.yaml".to_owned(), "it's.yaml".to_owned()];
        assert_eq!(command(&files[..1], &plan, 1), "quorate run web.yaml --etag 'W/\"7\"'");
        assert_eq!(command(&files, &plan, 2), "quorate run web.yaml 'it'\\''s.yaml' --plan-first");
    }
}
