//! Asking every manager by itself: works without a leader and shows who disagrees.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use quorate_wire::api;
use quorate_wire::api::cluster_service_client::ClusterServiceClient;
use tonic::Request;

use crate::error::Failure;
use crate::set::Candidate;
use crate::{Client, Try};

/// One manager's own word about the cluster.
#[derive(Clone, Debug)]
pub struct ManagerAnswer {
    /// Where it was asked.
    pub endpoint: String,
    /// What it said, or why it said nothing.
    pub answer: Result<api::GetClusterStatusResponse, Try>,
}

impl Client {
    /// Asks every known manager, and every one that they tell of, what it knows; all at once, each once, none longer
    /// than the time of one try. In the order in which they were learned. Never fails: silence is an answer.
    pub async fn cluster_status_each(&self) -> Vec<ManagerAnswer> {
        let limit = self.options().try_limit.min(self.options().deadline);
        let (mut answers, mut asked) = (Vec::new(), BTreeSet::new());
        loop {
            let fresh: Vec<Candidate> = self
                .set()
                .candidates(false)
                .into_iter()
                .filter(|candidate| asked.insert(candidate.address.clone()))
                .collect();
            if fresh.is_empty() {
                return answers;
            }
            answers.extend(join_all(fresh.into_iter().map(|candidate| self.ask(candidate, limit))).await);
        }
    }

    async fn ask(&self, candidate: Candidate, limit: Duration) -> ManagerAnswer {
        let endpoint = candidate.address;
        let mut request = Request::new(api::GetClusterStatusRequest {});
        request.set_timeout(limit);
        let mut service = ClusterServiceClient::new(candidate.channel);
        let failure = match tokio::time::timeout(limit, service.get_cluster_status(request)).await {
            Ok(Ok(response)) => {
                let answer = response.into_inner();
                for manager in &answer.managers {
                    self.set().learn(&manager.api_address);
                }
                return ManagerAnswer { endpoint, answer: Ok(answer) };
            }
            Ok(Err(status)) => Failure::of(status),
            Err(_) => Failure::Lost("no answer in time".to_owned()),
        };
        let failed = Try { endpoint: endpoint.clone(), times: 1, failure: failure.words() };
        ManagerAnswer { endpoint, answer: Err(failed) }
    }
}
