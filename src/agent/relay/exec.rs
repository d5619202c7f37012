//! Commands.

use quorate_wire::agent::{ExecOrder, RelayResponse, RelayStarted, relay_request, relay_response};
use tokio::sync::mpsc;
use tonic::Streaming;

use super::{Ended, Relays, Speaker, signal};
use crate::runtime::streams::{Exec, ExecInput, ExecOutput};

/// Messages that may wait in either direction.
const QUEUE: usize = 4;

impl Relays {
    /// Runs a command. When the manager goes away the command is ended, and that is waited for.
    pub(super) async fn exec(
        &self,
        order: ExecOrder,
        speaker: &Speaker,
        heard: &mut Streaming<RelayResponse>,
    ) -> Result<(), Ended> {
        let (work, runtime) = self.task(order.task_id)?;
        let (say, input) = mpsc::channel(QUEUE);
        let (output, mut said) = mpsc::channel(QUEUE);
        let exec = Exec { unit: &work.unit, spec: &work.spec, order, input, output };
        let speaking = async {
            let mut gone = false;
            // Read to its end in any case: a command that cannot write would not end.
            while let Some(said) = said.recv().await {
                let body = match said {
                    ExecOutput::Started => relay_request::Body::Started(RelayStarted {}),
                    ExecOutput::Stdout(bytes) => relay_request::Body::Stdout(bytes),
                    ExecOutput::Stderr(bytes) => relay_request::Body::Stderr(bytes),
                };
                gone = gone || speaker.say(body).await.is_err();
            }
        };
        let listening = async {
            listen(heard, say).await;
            // `say` is dropped: the command is ended.
            std::future::pending::<()>().await;
        };
        let running = async { tokio::join!(runtime.exec(exec), speaking).0 };
        let code = tokio::select! {
            code = running => code?,
            () = listening => return Err(Ended::Gone),
        };
        Ok(speaker.say(relay_request::Body::ExitCode(code)).await?)
    }
}

/// Passes on what the caller says until it goes away.
async fn listen(heard: &mut Streaming<RelayResponse>, say: mpsc::Sender<ExecInput>) {
    loop {
        let body = match heard.message().await {
            Ok(Some(message)) => message.body,
            Ok(None) | Err(_) => return,
        };
        let input = match body {
            Some(relay_response::Body::Stdin(bytes)) => ExecInput::Stdin(bytes),
            Some(relay_response::Body::StdinClosed(_)) => ExecInput::StdinClosed,
            Some(relay_response::Body::Resize(size)) => {
                let cells = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
                ExecInput::Resize(cells(size.rows), cells(size.columns))
            }
            Some(relay_response::Body::Signal(name)) => match signal(&name) {
                Ok(signal) => ExecInput::Signal(signal),
                Err(_) => continue,
            },
            Some(relay_response::Body::Order(_)) | None => continue,
        };
        if say.send(input).await.is_err() {
            return;
        }
    }
}
