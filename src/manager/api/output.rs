//! The way to a caller who reads: bounded, and cut off when the caller does not.

use std::{pin::Pin, time::Duration};

use futures::{Stream, StreamExt as _, stream};
use quorate_wire::status::{ApiError, Reason};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// A stream of answers.
pub(super) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Messages that may wait for the caller.
const OUTBOX: usize = 8;
/// Where answers go.
pub(super) struct Output<T> {
    answers: mpsc::Sender<Result<T, Status>>,
    end: Option<oneshot::Sender<Option<Status>>>,
    /// How long a caller may read nothing while something waits.
    patience: Duration,
}

/// There is nobody to work for any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// The caller went away.
    Left,
    /// The caller reads too slowly, and was told so unless the output already ended.
    TooSlow,
}

impl<T: Send + 'static> Output<T> {
    /// An output, and the stream that the caller reads; `patience` is how long it may read nothing while something
    /// waits. When the output is dropped without an end, the stream ends with an error: the leader lost its leadership
    /// in the middle.
    pub(super) fn new(patience: Duration) -> (Self, Answers<T>) {
        let (answers, reading) = mpsc::channel(OUTBOX);
        let (end, ended) = oneshot::channel();
        let last = stream::once(ended).filter_map(async |ended: Result<Option<Status>, _>| {
            ended.unwrap_or_else(|_| Some(deposed().into())).map(Err)
        });
        (Self { answers, end: Some(end), patience }, Box::pin(ReceiverStream::new(reading).chain(last)))
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// [`Gone`], after which the output is of no use any more.
    pub(super) async fn send(&mut self, answer: T) -> Result<(), Gone> {
        let sent = self.offer(answer).await;
        if sent == Err(Gone::TooSlow) {
            let text = format!("nothing was read for {}", quorate_base::time::format_duration(self.patience));
            self.end(Some(ApiError::new(Reason::ReaderTooSlow, text)));
        }
        sent
    }

    /// The same, where the sender itself tells a slow caller why it is cut off.
    ///
    /// # Errors
    /// [`Gone`]
    pub(super) async fn offer(&mut self, answer: T) -> Result<(), Gone> {
        self.answers.send_timeout(Ok(answer), self.patience).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Closed(_) => Gone::Left,
            mpsc::error::SendTimeoutError::Timeout(_) => Gone::TooSlow,
        })
    }

    /// Waits until the caller is gone.
    pub(super) async fn closed(&self) {
        self.answers.closed().await;
    }

    /// Ends the stream, well or with an error.
    pub(super) fn end(&mut self, error: Option<ApiError>) {
        if let Some(end) = self.end.take() {
            let _gone = end.send(error.map(Status::from));
        }
    }
}

fn deposed() -> ApiError {
    ApiError::new(Reason::NotLeader, "the leader lost its leadership: go on at another manager")
        .after(crate::core::RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons<T>(answers: Vec<Result<T, Status>>) -> Vec<Reason> {
        answers.into_iter().filter_map(|a| a.err().map(|s| ApiError::from_status(&s).reason)).collect()
    }

    #[tokio::test]
    async fn an_output_without_an_end_is_a_lost_leader() {
        let (mut output, answers) = Output::new(Duration::MAX);
        output.send(1).await.unwrap();
        drop(output);
        assert_eq!(reasons(answers.collect::<Vec<_>>().await), [Reason::NotLeader]);
        let (mut output, answers) = Output::<u32>::new(Duration::MAX);
        output.end(None);
        drop(output);
        assert_eq!(answers.collect::<Vec<_>>().await.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_is_cut_off_by_name() {
        let (mut output, answers) = Output::new(Duration::from_secs(30));
        for i in 0..OUTBOX {
            output.send(i).await.unwrap();
        }
        assert_eq!(output.send(99).await, Err(Gone::TooSlow));
        drop(output);
        let all: Vec<_> = answers.collect().await;
        assert_eq!(all.len(), OUTBOX + 1, "what was sent in time still arrives");
        assert_eq!(reasons(all), [Reason::ReaderTooSlow]);
    }
}
