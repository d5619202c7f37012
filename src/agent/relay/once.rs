//! Orders that are carried out once, though they may come again.

use std::collections::VecDeque;
use std::future::Future;

use quorate_wire::status::ApiError;
use tokio::sync::Mutex;

/// Requests that are remembered.
const MOST: usize = 1_000;

/// The newest requests that were carried out, by their ids.
#[derive(Debug, Default)]
pub(super) struct Once(Mutex<VecDeque<String>>);

impl Once {
    /// Carries `work` out, unless it was carried out for this request before. What failed may be tried again; an empty
    /// id is that of no request. One at a time: who asks again waits for what the first one comes to.
    ///
    /// # Errors
    /// Those of `work`.
    pub(super) async fn run(
        &self,
        request: &str,
        work: impl Future<Output = Result<(), ApiError>>,
    ) -> Result<(), ApiError> {
        if request.is_empty() {
            return work.await;
        }
        let mut done = self.0.lock().await;
        if done.iter().any(|known| known == request) {
            return Ok(());
        }
        work.await?;
        if done.len() >= MOST {
            done.pop_front();
        }
        done.push_back(request.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use quorate_wire::status::Reason;

    use super::*;

    #[tokio::test]
    async fn a_request_is_carried_out_once_and_a_failed_one_again() {
        let (once, count) = (Once::default(), AtomicU32::new(0));
        let work = |fails: bool| async move {
            if fails { Err(ApiError::new(Reason::TaskNotRunning, "not yet")) } else { Ok(()) }
        };
        let count = &count;
        let counted = |fails| async move {
            count.fetch_add(1, Ordering::Relaxed);
            work(fails).await
        };
        assert!(once.run("a", counted(true)).await.is_err());
        for _ in 0..3 {
            once.run("a", counted(false)).await.unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 2);
        for request in 0..=MOST {
            once.run(&request.to_string(), counted(false)).await.unwrap();
        }
        assert_eq!(once.0.lock().await.len(), MOST);
    }
}
