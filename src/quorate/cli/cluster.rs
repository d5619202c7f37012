//! `cluster`, and `status` of everything

use super::args::ListArgs;
use super::context::{Context, print};
use super::{job, pages};
use crate::failure::Failure;
use crate::render::cluster::{Health, View};

/// The cluster works, and the next failure stops it.
const FRAGILE: u8 = 12;
/// Nobody leads.
const NO_LEADER: u8 = 9;

pub(super) async fn status(context: &Context) -> Result<(), Failure> {
    let answers = context.client.cluster_status_each().await;
    let view = View::new(&answers);
    let layout = context.printer.layout(&ListArgs::default());
    let document = view.to_json();
    let managers = document["managers"].as_array().cloned().unwrap_or_default();
    let name = |manager: &serde_json::Value| manager["endpoint"].as_str().unwrap_or_default().to_owned();
    context.printer.list(&document, &managers, name, || view.to_text(&layout))?;
    match view.health() {
        Health::Good => Ok(()),
        Health::Fragile => Err(Failure::new(FRAGILE, "the next failure of a manager stops all writes")
            .hint("start the managers that do not answer")),
        Health::NotFormed => Err(Failure::new(NO_LEADER, "the cluster is not formed yet")
            .hint("start the managers that are waited for; a manager's log says which it looks for")),
        Health::NoQuorum => Err(Failure::new(NO_LEADER, format!("no quorum: {}", view.quorum_words()))
            .hint("start the managers that do not answer; running tasks go on meanwhile")),
        Health::Silent => Err(Failure::new(NO_LEADER, "no manager answers")
            .hint("start the managers, or say where they are: --manager HOST:PORT,…")),
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
    let args = ListArgs::default();
    let mut answer = pages::jobs(context, job::every(context, &args)).await?;
    if !context.json() && !context.names_only() {
        let answers = context.client.cluster_status_each().await;
        let headline = View::new(&answers).headline(&context.printer.layout(&args));
        print(&format!("{headline}\n"))?;
    }
    job::show(context, &mut answer, &args)
}
