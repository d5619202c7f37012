//! `Exec`.

use std::{collections::BTreeMap, convert::Infallible};

use futures::StreamExt as _;
use quorate_base::tasks::TaskKind;
use quorate_model::Invalid;
use quorate_wire::{
    agent::{self as agent, relay_order::Order, relay_request, relay_response},
    api::{self as pb, exec_request, exec_response, task_service_client::TaskServiceClient},
    status::{ApiError, Reason},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{PATIENCE, Relays, lost, passed_on, running, signal_name};
use crate::{
    api::{
        invalid,
        output::{Answers, Gone, Output},
    },
    dispatcher::relay::{Link, Listener, Speaker},
};

/// How long a caller may take to say what to run.
const START_DEADLINE: std::time::Duration = std::time::Duration::from_secs(5);
/// Most bytes of the command and of its environment.
const MOST_BYTES: usize = 64 << 10;
/// Largest terminal.
const MOST_CELLS: u32 = 1000;
/// Messages of the caller that may wait on their way to the leader.
const AHEAD: usize = 16;

impl Relays {
    /// Runs a command in a task's container, through the leader.
    pub(in crate::api) async fn exec(
        &self,
        request: Request<Streaming<pb::ExecRequest>>,
    ) -> Result<Response<Answers<pb::ExecResponse>>, Status> {
        let leader = self.router.leader(&request).await?;
        let mut inbound = request.into_inner();
        let first = tokio::time::timeout(START_DEADLINE, inbound.message()).await;
        let first = first.map_err(|_| wrong("body", "the first message must be the start, within 5s"))??;
        let Some(exec_request::Body::Start(start)) = first.and_then(|m| m.body) else {
            return Err(wrong("body", "the first message must be the start").into());
        };
        check(&start)?;
        match leader {
            Some(leader) => {
                let mut client = TaskServiceClient::new(leader);
                let answers = client.exec(self.router.mark(self.forward(start, inbound))).await;
                Ok(Response::new(passed_on(answers.map_err(lost)?.into_inner())))
            }
            None => Ok(Response::new(self.run(start, inbound).await?)),
        }
    }

    /// The caller's messages for the leader, the start first. Ends when the caller goes away.
    fn forward(
        &self,
        start: pb::ExecStart,
        mut inbound: Streaming<pb::ExecRequest>,
    ) -> ReceiverStream<pb::ExecRequest> {
        let (send, messages) = mpsc::channel(AHEAD);
        let start = pb::ExecRequest { body: Some(exec_request::Body::Start(start)) };
        // A fresh channel has room.
        let _full = send.try_send(start);
        self.group.spawn(TaskKind::best_effort("exec input"), async move {
            while let Some(Ok(message)) = inbound.next().await {
                if send.send(message).await.is_err() {
                    break;
                }
            }
            Ok::<(), Infallible>(())
        });
        ReceiverStream::new(messages)
    }

    async fn run(
        &self,
        start: pb::ExecStart,
        inbound: Streaming<pb::ExecRequest>,
    ) -> Result<Answers<pb::ExecResponse>, ApiError> {
        let leading = self.leading()?;
        let view = self.core.view(None).await?;
        let placed = running(&view, &start.task)?;
        let room = self.room()?;
        let started = pb::ExecStarted {
            meta: Some(self.core.meta(&view)),
            task: placed.task.id.to_string(),
            node: placed.name.to_string(),
        };
        let order = Order::Exec(order(placed.task.id.0, start));
        let link = self.dispatcher.open_relay(placed.node, &placed.name, order).await?;
        let (output, answers) = Output::new(PATIENCE);
        leading.group.spawn(TaskKind::best_effort("exec"), async move {
            converse(link, inbound, output, started).await;
            drop(room);
            Ok::<(), Infallible>(())
        });
        Ok(answers)
    }
}

/// Passes words on in both directions until the command has ended or the caller is gone.
async fn converse(
    link: Link,
    inbound: Streaming<pb::ExecRequest>,
    mut output: Output<pb::ExecResponse>,
    started: pb::ExecStarted,
) {
    let (speaker, mut listener) = link.split();
    let hearing = hear(&mut listener, &mut output, started);
    let ended = tokio::select! {
        ended = hearing => Some(ended),
        // Dropping the relay ends the command.
        () = speak(&speaker, inbound) => None,
    };
    match ended {
        Some(Ok(())) => output.end(None),
        Some(Err(Ended::Failed(error))) => output.end(Some(error)),
        Some(Err(Ended::Gone)) | None => {}
    }
}

enum Ended {
    Gone,
    Failed(ApiError),
}

impl From<Gone> for Ended {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

async fn hear(
    listener: &mut Listener,
    output: &mut Output<pb::ExecResponse>,
    started: pb::ExecStarted,
) -> Result<(), Ended> {
    use relay_request::Body as Said;
    let mut started = Some(started);
    loop {
        let said = tokio::select! {
            said = listener.hear() => said.map_err(Ended::Failed)?,
            () = output.closed() => return Err(Ended::Gone),
        };
        let body = match said {
            Some(Said::Started(_)) => started.take().map(exec_response::Body::Started),
            Some(Said::Stdout(bytes)) => Some(exec_response::Body::Stdout(bytes)),
            Some(Said::Stderr(bytes)) => Some(exec_response::Body::Stderr(bytes)),
            Some(Said::ExitCode(code)) => {
                output.send(pb::ExecResponse { body: Some(exec_response::Body::ExitCode(code)) }).await?;
                return Ok(());
            }
            None => {
                let text = "the agent ended the stream before the command ended";
                return Err(Ended::Failed(ApiError::new(Reason::AgentUnreachable, text)));
            }
            Some(_) => None,
        };
        if body.is_some() {
            output.send(pb::ExecResponse { body }).await?;
        }
    }
}

/// Ends when the caller goes away; a caller that only stops to speak is waited for.
async fn speak(speaker: &Speaker, mut inbound: Streaming<pb::ExecRequest>) {
    while let Some(message) = inbound.next().await {
        let body = match message.map(|m| m.body) {
            Ok(Some(exec_request::Body::Stdin(bytes))) => relay_response::Body::Stdin(bytes),
            Ok(Some(exec_request::Body::StdinClosed(closed))) => relay_response::Body::StdinClosed(closed),
            Ok(Some(exec_request::Body::Resize(size))) => {
                let (rows, columns) = (size.rows.min(MOST_CELLS), size.columns.min(MOST_CELLS));
                relay_response::Body::Resize(agent::RelayResize { rows, columns })
            }
            Ok(Some(exec_request::Body::Signal(signal))) => match signal_name("signal", &signal) {
                Ok(signal) => relay_response::Body::Signal(signal),
                // A signal that nobody knows cannot be sent; the command goes on.
                Err(_) => continue,
            },
            Ok(Some(exec_request::Body::Start(_)) | None) => continue,
            // The call was broken off.
            Err(_) => return,
        };
        if !speaker.say(body).await {
            break;
        }
    }
    // The caller closed its side, as gRPC clients do that send nothing more: the command goes on.
    std::future::pending().await
}

fn wrong(path: &str, why: &str) -> ApiError {
    invalid(Invalid::new(path, why))
}

fn check(start: &pb::ExecStart) -> Result<(), ApiError> {
    if start.command.first().is_none_or(String::is_empty) {
        return Err(wrong("start.command", "required: the program and its arguments"));
    }
    let bytes = start.command.iter().map(String::len).sum::<usize>()
        + start.env.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
    if bytes > MOST_BYTES {
        return Err(wrong("start.command", &format!("command and env have more than {MOST_BYTES} bytes")));
    }
    let texts = start.command.iter().chain(start.env.keys()).chain(start.env.values());
    if texts.chain([&start.user, &start.workdir]).any(|text| text.contains('\0')) {
        return Err(wrong("start", "no text may hold a NUL byte"));
    }
    if start.env.keys().any(|key| key.is_empty() || key.contains('=')) {
        return Err(wrong("start.env", "a name must not be empty or hold ="));
    }
    if !start.workdir.is_empty() && !start.workdir.starts_with('/') {
        return Err(wrong("start.workdir", "must be an absolute path"));
    }
    Ok(())
}

fn order(task_id: u64, start: pb::ExecStart) -> agent::ExecOrder {
    let size = start.size.unwrap_or_default();
    agent::ExecOrder {
        task_id,
        command: start.command,
        tty: start.tty,
        rows: size.rows.min(MOST_CELLS),
        columns: size.columns.min(MOST_CELLS),
        env: start.env.into_iter().collect::<BTreeMap<_, _>>(),
        user: start.user,
        workdir: start.workdir,
        stdin: start.stdin,
    }
}
