//! `logs`

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCandidates;
use quorate_client::LogEvent;
use quorate_wire::api::{LogLine, LogNotice, LogStream, ReadLogsRequest};
use quorate_wire::common::{moment, timestamp};

use super::args::span;
use super::complete;
use super::context::{Context, say};
use crate::failure::Failure;
use crate::render::style::{Style, Tint};

/// `logs`
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// A job for all of its tasks, or a task as an id like t42, or JOB[SLOT]
    #[arg(value_name = "JOB|TASK", add = ArgValueCandidates::new(complete::jobs))]
    pub(crate) what: String,
    /// Go on with what is written later, also by tasks that start later
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only what was written within this time, like 10m
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) since: Option<Duration>,
    /// Only the last lines of each task
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<u32>,
    /// What ran before the last restart: the container before, or else the task before in the slot
    #[arg(short, long, conflicts_with = "follow")]
    pub(crate) previous: bool,
    /// With the time of each line
    #[arg(short, long)]
    pub(crate) timestamps: bool,
    /// Also tasks that ended (of a job; those of a job without living tasks are shown anyway)
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Only one of the two streams
    #[arg(long, value_enum)]
    pub(crate) only: Option<Stream>,
    /// Without the task's name before each line
    #[arg(long)]
    pub(crate) no_prefix: bool,
}

/// Where tasks write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stream {
    /// Standard output
    Stdout,
    /// Standard error
    Stderr,
}

pub(super) async fn run(context: &Context, args: LogsArgs) -> Result<(), Failure> {
    let request = asked(context, &args)?;
    let mut page = Page::new(context, &args, &request);
    let (mut logs, mut unread) = (context.client.read_logs(request), 0_u32);
    while let Some(event) = logs.next().await? {
        match event {
            LogEvent::Lines(lines) => page.lines(&lines)?,
            LogEvent::Notice(notice) => {
                // Who does not follow gets such a last word only of a task whose log could not be read.
                unread += u32::from(notice.ended && !args.follow);
                page.notice(&notice);
            }
            LogEvent::Resumed { manager } => {
                say(&page.style.dim(&format!("the manager was lost, continuing at {manager}")));
            }
        }
    }
    match unread {
        0 => Ok(()),
        1 => Err(Failure::new(1, "the log of one task could not be read: see above")),
        count => Err(Failure::new(1, format!("the logs of {count} tasks could not be read: see above"))),
    }
}

fn asked(context: &Context, args: &LogsArgs) -> Result<ReadLogsRequest, Failure> {
    let since = args.since.map(|span| timestamp(context.now().saturating_sub(span)));
    let stream = match args.only {
        None => LogStream::Unspecified,
        Some(Stream::Stdout) => LogStream::Stdout,
        Some(Stream::Stderr) => LogStream::Stderr,
    };
    let mut request = ReadLogsRequest {
        follow: args.follow,
        since,
        tail: args.tail,
        previous: args.previous,
        include_ended: args.all,
        stream: stream.into(),
        ..ReadLogsRequest::default()
    };
    if is_task(&args.what) {
        request.task = context.task(&args.what)?;
    } else {
        let key = context.job(&args.what)?;
        (request.namespace, request.job) = (key.namespace, key.name);
    }
    Ok(request)
}

/// Whether the text names a task: `t42` or `JOB[SLOT]`. A job with such a name is written with its namespace.
pub(super) fn is_task(text: &str) -> bool {
    let number = text.strip_prefix('t').filter(|digits| !digits.is_empty());
    text.contains('[') || number.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
}

/// How lines are printed.
struct Page<'a> {
    context: &'a Context,
    /// The job's name, where each line says which task wrote it.
    job: Option<String>,
    timestamps: bool,
    style: Style,
    /// Tasks whose line goes on in the next message.
    open: BTreeMap<String, bool>,
}

impl<'a> Page<'a> {
    fn new(context: &'a Context, args: &LogsArgs, request: &ReadLogsRequest) -> Self {
        let job = Some(request.job.clone()).filter(|job| !job.is_empty() && !args.no_prefix);
        let style = Style::new(context.global.color, io::stdout().is_terminal());
        Self { context, job, timestamps: args.timestamps, style, open: BTreeMap::new() }
    }

    fn lines(&mut self, lines: &[LogLine]) -> Result<(), Failure> {
        if self.context.json() {
            return lines.iter().try_for_each(|line| self.context.printer.document(line));
        }
        let mut out = io::stdout().lock();
        for line in lines {
            let text = self.line(line);
            out.write_all(&text).map_err(|error| Failure::output(&error))?;
        }
        out.flush().map_err(|error| Failure::output(&error))
    }

    /// One line as it is printed; pieces of a long one are put together again.
    fn line(&mut self, line: &LogLine) -> Vec<u8> {
        let continues = self.open.get(&line.task).copied().unwrap_or(false);
        self.open.insert(line.task.clone(), line.unfinished);
        let mut text = Vec::with_capacity(line.data.len() + 64);
        if !continues {
            if let Some(job) = &self.job {
                let name = format!("{job}[{}]", line.slot);
                text.extend(self.style.palette(line.slot, &name).bytes());
                text.extend(b" | ");
            }
            if self.timestamps
                && let Some(at) = &line.time
            {
                text.extend(self.style.tint(Tint::Dim, &moment(at).to_string()).bytes());
                text.push(b' ');
            }
        }
        text.extend(&line.data);
        if !line.unfinished {
            text.push(b'\n');
        }
        text
    }

    fn notice(&self, notice: &LogNotice) {
        say(&self.style.dim(&format!("{}: {}", notice.task, notice.text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_told_from_a_job() {
        for task in ["t1", "t42", "web[0]", "shop/web[12]"] {
            assert!(is_task(task), "{task}");
        }
        for job in ["web", "t", "t4a", "tx", "default/t42"] {
            assert!(!is_task(job), "{job}");
        }
    }
}
