//! Commands in containers.

use std::time::Duration;

use quorate_wire::api::task_service_client::TaskServiceClient;
use quorate_wire::api::{ExecRequest, ExecResponse, ExecStart, exec_request, exec_response};
use quorate_wire::status::Reason;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

use crate::error::{Failure, Try};
use crate::{Client, ClientError};

/// Messages to the command that may wait.
const AHEAD: usize = 16;
/// How long a manager may take to start a command.
const START_DEADLINE: Duration = Duration::from_secs(15);

/// A command that runs in a task's container. Dropping it ends the command.
pub struct Exec {
    say: mpsc::Sender<ExecRequest>,
    hear: Streaming<ExecResponse>,
    endpoint: String,
}

impl Client {
    /// Starts a command in a task's container. It is started at most once: when it is not known whether it was, the call
    /// fails.
    ///
    /// # Errors
    /// A refusal of the managers, or that none can be reached.
    pub async fn exec(&self, start: ExecStart) -> Result<Exec, ClientError> {
        let mut tries = Vec::new();
        let mut candidates = self.set().candidates(true);
        candidates.sort_by_key(|one| (one.rank.not_leader, one.rank.cooling, one.rank.latency));
        for candidate in candidates {
            let (say, said) = mpsc::channel(AHEAD);
            let first = ExecRequest { body: Some(exec_request::Body::Start(start.clone())) };
            // A fresh channel has room.
            let _full = say.try_send(first);
            let mut client = TaskServiceClient::new(candidate.channel);
            let call = client.exec(Request::new(ReceiverStream::new(said)));
            let failure = match tokio::time::timeout(START_DEADLINE, call).await {
                Ok(Ok(hear)) => {
                    let endpoint = candidate.address;
                    return Ok(Exec { say, hear: hear.into_inner(), endpoint });
                }
                Ok(Err(status)) => Failure::of(status),
                Err(_) => Failure::Lost("no answer in time".to_owned()),
            };
            let elsewhere = match &failure {
                Failure::NotConnected(_) => true,
                Failure::Api(error) => {
                    matches!(error.reason, Reason::NoLeader | Reason::NotLeader | Reason::ShuttingDown)
                }
                Failure::Lost(_) | Failure::Foreign(_) => false,
            };
            if !elsewhere {
                return Err(failed(failure, candidate.address));
            }
            tries.push(Try { endpoint: candidate.address, times: 1, failure: failure.words() });
        }
        Err(ClientError::Unreachable { tries })
    }
}

fn failed(failure: Failure, endpoint: String) -> ClientError {
    match failure {
        Failure::Api(error) => ClientError::Api { error, endpoint, request_id: None },
        Failure::NotConnected(words) | Failure::Lost(words) => {
            let message = format!("{words}: the command may or may not have been started");
            ClientError::Foreign { endpoint, code: tonic::Code::Unavailable, message }
        }
        Failure::Foreign(status) => {
            ClientError::Foreign { endpoint, code: status.code(), message: status.message().to_owned() }
        }
    }
}

impl Exec {
    /// The way to the command, to be used beside [`Exec::next`].
    #[must_use]
    pub fn input(&self) -> Input {
        Input(self.say.clone())
    }

    /// The next word of the command; `None` after its exit code. Safe to cancel.
    ///
    /// # Errors
    /// The connection or the command was lost: it was ended.
    pub async fn next(&mut self) -> Result<Option<exec_response::Body>, ClientError> {
        match self.hear.message().await {
            Ok(message) => Ok(message.and_then(|message| message.body)),
            Err(status) => Err(match Failure::of(status) {
                Failure::NotConnected(words) | Failure::Lost(words) => ClientError::Foreign {
                    endpoint: self.endpoint.clone(),
                    code: tonic::Code::Unavailable,
                    message: format!("{words}: the command was ended"),
                },
                other => failed(other, self.endpoint.clone()),
            }),
        }
    }
}

/// The way to a command, apart.
#[derive(Clone)]
pub struct Input(mpsc::Sender<ExecRequest>);

impl Input {
    /// Says something to the command. False when it has ended.
    pub async fn say(&self, body: exec_request::Body) -> bool {
        self.0.send(ExecRequest { body: Some(body) }).await.is_ok()
    }
}
