//! Completion by the shell, with names from the live cluster. Whatever goes wrong, there are just no names.

use std::future::Future;
use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, CompletionCandidate};
use quorate_client::{Client, ClientError};
use quorate_wire::api::{ListJobsRequest, ListNodesRequest, ListTasksRequest};

use super::args::Cli;
use super::context::{print, quick_client, stale};
use super::contexts::Contexts;
use crate::failure::Failure;
use crate::render::task;
use crate::render::words::job_name;

/// By this variable the shell asks for completions.
const ASKED: &str = "QUORATE_COMPLETE";
/// The most that a shell waits.
const BUDGET: Duration = Duration::from_millis(300);
/// Most names: more help nobody.
const MOST: u32 = 500;

/// Answers a shell that asks for completions, and ends the process then.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(ASKED).complete();
}

/// Prints what makes a shell ask.
pub(super) fn script(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let written = match shells.completer(&shell.to_string()) {
        Some(completer) => completer.write_registration(ASKED, "quorate", "quorate", "quorate", &mut script),
        None => return Err(Failure::new(5, format!("completion for {shell} is not supported"))),
    };
    written.map_err(|error| Failure::new(1, error.to_string()))?;
    print(String::from_utf8_lossy(&script).trim())
}

/// Saved contexts.
pub(crate) fn contexts() -> Vec<CompletionCandidate> {
    let contexts = Contexts::load().unwrap_or_default();
    contexts.names().map(CompletionCandidate::new).collect()
}

/// Jobs.
pub(crate) fn jobs() -> Vec<CompletionCandidate> {
    names(|client, namespace| async move {
        let given = !namespace.is_empty();
        let request = ListJobsRequest { namespace, page_size: MOST, read: stale(), ..Default::default() };
        let jobs = client.list_jobs(request).await?.jobs;
        Ok(jobs
            .iter()
            .map(|job| if given { job.name.clone() } else { job_name(&job.namespace, &job.name) })
            .collect())
    })
}

/// Tasks, by job and slot.
pub(crate) fn tasks() -> Vec<CompletionCandidate> {
    names(|client, namespace| async move {
        let request = ListTasksRequest { namespace, page_size: MOST, read: stale(), ..Default::default() };
        Ok(client.list_tasks(request).await?.tasks.iter().map(task::name).collect())
    })
}

/// Nodes.
pub(crate) fn nodes() -> Vec<CompletionCandidate> {
    names(|client, _| async move {
        let request = ListNodesRequest { page_size: MOST, read: stale(), ..Default::default() };
        Ok(client.list_nodes(request).await?.nodes.into_iter().map(|node| node.name).collect())
    })
}

/// The names that `ask` learns of the managers of the line, in the namespace of the line, within the budget.
fn names<F>(ask: impl FnOnce(Client, String) -> F) -> Vec<CompletionCandidate>
where
    F: Future<Output = Result<Vec<String>, ClientError>>,
{
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .skip_while(|word| word != "--")
        .skip(1)
        .collect();
    let said = |short, long, variable: &str| {
        flag(&words, short, long).or_else(|| std::env::var(variable).ok()).filter(|value| !value.is_empty())
    };
    let context = said(None, "--context", "QUORATE_CONTEXT");
    let managers = said(Some("-m"), "--manager", "QUORATE_MANAGERS").unwrap_or_default();
    let managers: Vec<String> =
        managers.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect();
    let namespace = said(Some("-n"), "--namespace", "QUORATE_NAMESPACE").unwrap_or_default();
    let Ok(runtime) = super::runtime() else { return Vec::new() };
    let found = runtime.block_on(async {
        let client = quick_client(context.as_deref(), &managers, BUDGET).ok()?;
        tokio::time::timeout(BUDGET, ask(client, namespace)).await.ok()?.ok()
    });
    found.unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}

/// The value of a flag on an unfinished line; the last one counts.
fn flag(words: &[String], short: Option<&str>, long: &str) -> Option<String> {
    words.iter().enumerate().rev().find_map(|(at, word)| {
        if Some(word.as_str()) == short || word == long {
            return words.get(at + 1).cloned();
        }
        word.strip_prefix(long)?.strip_prefix('=').map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_line_are_heeded() {
        let words: Vec<String> =
            "quorate -m a:1 ps --context=prod --manager b:1 web".split(' ').map(str::to_owned).collect();
        assert_eq!(flag(&words, Some("-m"), "--manager").as_deref(), Some("b:1"));
        assert_eq!(flag(&words, None, "--context").as_deref(), Some("prod"));
        assert_eq!(flag(&words, Some("-n"), "--namespace"), None);
        assert_eq!(flag(&["-m".to_owned()], Some("-m"), "--manager"), None);
    }
}
