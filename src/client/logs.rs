//! Logs that go on when a manager is lost.

use std::collections::{BTreeMap, VecDeque};

use quorate_wire::api::task_service_client::TaskServiceClient;
use quorate_wire::api::{LogLine, LogNotice, LogPosition, ReadLogsRequest, ReadLogsResponse};
use quorate_wire::status::Reason;
use tonic::{Status, Streaming};

use crate::calls::Question;
use crate::client::Kind;
use crate::error::Failure;
use crate::{Client, ClientError};

/// Most bytes of one message.
const MAX_MESSAGE: usize = 4 << 20;
/// Most positions that a request may carry; the managers' bound.
const MOST_POSITIONS: usize = 256;
/// Streams in a row that may break without having brought a line.
const MOST_BARREN: u32 = 20;

/// What a log brings.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEvent {
    /// Lines, in order of time.
    Lines(Vec<LogLine>),
    /// A word on one task.
    Notice(LogNotice),
    /// The stream broke and goes on, after the last line, at the manager of this name.
    Resumed {
        /// Name of the manager that answers now; may be empty.
        manager: String,
    },
}

impl Question for ReadLogsRequest {}

/// The log of a task or of a whole job. Nothing is missing and nothing comes twice when a manager is lost.
pub struct Logs {
    client: Client,
    request: ReadLogsRequest,
    stream: Option<Streaming<ReadLogsResponse>>,
    positions: BTreeMap<String, String>,
    waiting: VecDeque<LogEvent>,
    broken: bool,
    barren: u32,
}

impl Client {
    /// Reads logs. Nothing is asked before the first [`Logs::next`].
    #[must_use]
    pub fn read_logs(&self, request: ReadLogsRequest) -> Logs {
        let positions = request.resume.iter().map(|p| (p.task.clone(), p.cursor.clone())).collect();
        let waiting = VecDeque::new();
        Logs { client: self.clone(), request, stream: None, positions, waiting, broken: false, barren: 0 }
    }
}

impl Logs {
    /// The next event; `None` at the end. Safe to cancel.
    ///
    /// # Errors
    /// A refusal of the managers, or that none can be reached within the client's deadline.
    pub async fn next(&mut self) -> Result<Option<LogEvent>, ClientError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            if self.stream.is_none() {
                self.stream = Some(self.open().await?);
            }
            let Some(stream) = &mut self.stream else { continue };
            match stream.message().await {
                Ok(Some(answer)) => self.take(answer),
                Ok(None) => return Ok(None),
                Err(status) => {
                    self.stream = None;
                    self.broken = true;
                    self.barren += 1;
                    if self.barren > MOST_BARREN || !passes(&status) {
                        return Err(self.refusal(status));
                    }
                }
            }
        }
    }

    async fn open(&self) -> Result<Streaming<ReadLogsResponse>, ClientError> {
        let position =
            |(task, cursor): (&String, &String)| LogPosition { task: task.clone(), cursor: cursor.clone() };
        // The newest tasks have the highest numbers; a reader of more than that many starts the oldest anew.
        let resume = self.positions.iter().rev().take(MOST_POSITIONS).map(position).collect();
        let request = ReadLogsRequest { resume, ..self.request.clone() };
        self.client
            .call("read_logs", Kind::Stream, request, |channel, request| async move {
                TaskServiceClient::new(channel)
                    .max_decoding_message_size(MAX_MESSAGE)
                    .read_logs(request)
                    .await
            })
            .await
    }

    fn take(&mut self, answer: ReadLogsResponse) {
        if let Some(meta) = answer.meta {
            self.client.set().learn_leader(&meta.leader_address);
            if std::mem::take(&mut self.broken) {
                self.waiting.push_back(LogEvent::Resumed { manager: meta.manager });
            }
        }
        for line in &answer.lines {
            self.positions.insert(line.task.clone(), line.cursor.clone());
        }
        if !answer.lines.is_empty() {
            self.barren = 0;
            self.waiting.push_back(LogEvent::Lines(answer.lines));
        }
        self.waiting.extend(answer.notices.into_iter().map(LogEvent::Notice));
    }

    fn refusal(&self, status: Status) -> ClientError {
        match Failure::of(status) {
            Failure::Api(error) => ClientError::Api {
                error,
                endpoint: self.client.leader().unwrap_or_default(),
                request_id: None,
            },
            Failure::NotConnected(message) | Failure::Lost(message) => ClientError::Foreign {
                endpoint: self.client.leader().unwrap_or_default(),
                code: tonic::Code::Unavailable,
                message,
            },
            Failure::Foreign(status) => ClientError::Foreign {
                endpoint: self.client.leader().unwrap_or_default(),
                code: status.code(),
                message: status.message().to_owned(),
            },
        }
    }
}

/// Whether another try may go on where this one broke.
fn passes(status: &Status) -> bool {
    match Failure::of(status.clone()) {
        Failure::NotConnected(_) | Failure::Lost(_) => true,
        Failure::Api(error) => {
            matches!(error.reason, Reason::NoLeader | Reason::NotLeader | Reason::ShuttingDown)
        }
        Failure::Foreign(_) => false,
    }
}
