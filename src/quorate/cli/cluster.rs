//! `cluster`, and `status` of everything

use quorate_wire::api::ListJobsRequest;

use super::context::{Context, print, print_json};
use super::pages;
use crate::failure::Failure;
use crate::render;
use crate::render::cluster::{Health, View};

/// The cluster works, and the next failure stops it.
const FRAGILE: u8 = 12;
/// Nobody leads.
const NO_LEADER: u8 = 9;

pub(super) async fn status(context: &Context) -> Result<(), Failure> {
    let answers = context.client.cluster_status_each().await;
    let view = View::new(&answers);
    if context.json() {
        print_json(&view.to_json())?;
    } else {
        print(&view.to_text())?;
    }
    match view.health() {
        Health::Good => Ok(()),
        Health::Fragile => Err(Failure::new(FRAGILE, "the next failure of a manager stops all writes")
            .hint("start the managers that do not answer")),
        Health::NotFormed => Err(Failure::new(NO_LEADER, "the cluster is not formed yet")
            .hint("start the managers that are waited for; a manager's log says which it looks for")),
        Health::NoQuorum => Err(Failure::new(NO_LEADER, format!("no quorum: {}", view.quorum_words()))
            .hint("start the managers that do not answer; running tasks go on meanwhile")),
        Health::NoLeader if answers.iter().all(|one| one.answer.is_ok()) => {
            Err(Failure::new(NO_LEADER, "no manager leads")
                .hint("an election takes seconds: look again; running tasks go on meanwhile"))
        }
        Health::NoLeader => Err(Failure::new(NO_LEADER, "no manager leads")
            .hint("start the managers that do not answer; running tasks go on meanwhile")),
    }
}

/// The cluster in a line, then its jobs.
pub(super) async fn overview(context: &Context) -> Result<(), Failure> {
    let request = ListJobsRequest {
        namespace: context.listed_namespace(),
        read: context.read(),
        ..ListJobsRequest::default()
    };
    let answer = pages::jobs(context, request).await?;
    if context.json() {
        return print_json(&answer);
    }
    let answers = context.client.cluster_status_each().await;
    let headline = View::new(&answers).headline();
    print(&format!("{headline}\n\n{}", render::job::table(&answer.jobs, context.now())))
}
