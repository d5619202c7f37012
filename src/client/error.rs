//! Why a call failed.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use quorate_base::{InvalidId, format_duration};
use quorate_pki::EndpointError;
use quorate_wire::status::ApiError;
use thiserror::Error;
use tonic::Status;

/// What became of the tries at one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// The endpoint, `host:port`.
    pub endpoint: String,
    /// How often it was tried.
    pub times: u32,
    /// How the last try failed, in words.
    pub failure: String,
}

impl fmt::Display for Try {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.endpoint, self.failure)?;
        if self.times > 1 { write!(f, " ({} times)", self.times) } else { Ok(()) }
    }
}

/// Why a call failed, after all retries that made sense.
#[derive(Debug, Error)]
pub enum ClientError {
    /// A manager refused.
    #[error("{error}")]
    Api {
        /// The refusal.
        error: Box<ApiError>,
        /// Who answered.
        endpoint: String,
        /// The request id of a write.
        request_id: Option<String>,
    },
    /// Something answered that is no manager of ours, or a very different version.
    #[error("{endpoint} answered {code:?}: {message}; is it a manager of quorate?")]
    Foreign {
        /// Who answered.
        endpoint: String,
        /// The gRPC code.
        code: tonic::Code,
        /// What it said.
        message: String,
    },
    /// No endpoint could be connected to. Nothing was sent.
    #[error("no manager can be reached")]
    Unreachable {
        /// The endpoints and why.
        tries: Vec<Try>,
    },
    /// The time was up before a manager gave the answer.
    #[error("no answer within {}", format_duration(*.after))]
    Deadline {
        /// The time that the call had.
        after: Duration,
        /// The endpoints and how they failed.
        tries: Vec<Try>,
        /// The last thing that a manager said, if one said something.
        last: Option<Box<ApiError>>,
        /// The request id of a write.
        request_id: Option<String>,
        /// Whether the write may have happened all the same: sent at least once, and nobody said that it failed.
        outcome_unknown: bool,
    },
    /// An address that cannot be used.
    #[error(transparent)]
    Address(#[from] EndpointError),
    /// No address at all.
    #[error("no manager is given; name at least one, like 127.0.0.1:7420")]
    NoManagers,
    /// A request id that cannot be used.
    #[error(transparent)]
    RequestId(#[from] InvalidId),
}

impl ClientError {
    /// What a manager said, if one said something.
    #[must_use]
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api { error, .. } => Some(error),
            Self::Deadline { last, .. } => last.as_deref(),
            _ => None,
        }
    }

    /// The endpoints that were tried in vain.
    #[must_use]
    pub fn tries(&self) -> &[Try] {
        match self {
            Self::Unreachable { tries } | Self::Deadline { tries, .. } => tries,
            _ => &[],
        }
    }

    /// The request id of a write: repeating the call with it cannot do it twice.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Api { request_id, .. } | Self::Deadline { request_id, .. } => request_id.as_deref(),
            _ => None,
        }
    }
}

/// How one try failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No connection: nothing was sent.
    NotConnected(String),
    /// The connection broke, or nothing came back in time.
    Lost(String),
    /// A manager's own word.
    Api(Box<ApiError>),
    /// An answer of something else.
    Foreign(Status),
}

impl Failure {
    /// Sorts out what tonic reports.
    pub(crate) fn of(status: Status) -> Self {
        if ApiError::is_ours(&status) {
            return Self::Api(Box::new(ApiError::from_status(&status)));
        }
        let mut cause = status.source();
        let (mut innermost, mut connecting) = (None, false);
        while let Some(error) = cause {
            if error.is::<tonic::TimeoutExpired>() {
                return Self::Lost("no answer in time".to_owned());
            }
            connecting |= error.is::<tonic::ConnectError>();
            innermost = Some(error.to_string());
            cause = error.source();
        }
        match innermost {
            Some(words) if connecting => Self::NotConnected(words),
            Some(words) => Self::Lost(words),
            // A proxy in between says so when the manager behind it is gone, and a reset stream looks like this.
            None => match status.code() {
                tonic::Code::Unavailable | tonic::Code::Cancelled | tonic::Code::DeadlineExceeded => {
                    Self::Lost(status.message().to_owned())
                }
                tonic::Code::Unknown if status.message().starts_with("Service was not ready") => {
                    Self::NotConnected(status.message().to_owned())
                }
                _ => Self::Foreign(status),
            },
        }
    }

    /// In words, for [`Try`].
    pub(crate) fn words(&self) -> String {
        match self {
            Self::NotConnected(words) => format!("cannot connect: {words}"),
            Self::Lost(words) => words.clone(),
            Self::Api(error) => error.to_string(),
            Self::Foreign(status) => format!("{:?}: {}", status.code(), status.message()),
        }
    }
}
