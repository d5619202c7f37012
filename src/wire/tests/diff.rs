//! How specifications differ, and how a mask merges them.

#[cfg(test)]
mod common;

use common::story::rich_service;
use quorate_model::JobKind;
use quorate_wire::{
    Reason,
    api::{self, accept_spec, merge_spec, spec_diff},
};

#[test]
fn a_diff_names_each_field_and_whether_it_replaces_tasks() {
    let old = rich_service();
    assert!(spec_diff(Some(&old), &old).unwrap().is_empty());
    let mut new = old.clone();
    new.kind = JobKind::Service { replicas: 5 };
    new.priority = 61;
    new.labels.remove("tier");
    new.placement.max_per_node = 7;
    new.placement.constraints.pop();
    let app = new.containers.values_mut().next().unwrap();
    app.env.insert("NEW".to_owned(), "x".to_owned());
    let diff = spec_diff(Some(&old), &new).unwrap();
    let told: Vec<_> = diff
        .iter()
        .map(|d| (d.path.as_str(), d.kind(), d.old.as_str(), d.new.as_str(), d.replaces_tasks))
        .collect();
    use api::DiffKind::{Added, Changed, Removed};
    assert_eq!(
        told,
        [
            ("containers.app.env.NEW", Added, "", "\"x\"", true),
            ("labels.tier", Removed, "\"front\"", "", false),
            ("placement.constraints[1]", Removed, "\"node.os == linux\"", "", true),
            ("placement.maxPerNode", Changed, "2", "7", false),
            ("priority", Changed, "60", "61", false),
            ("service.replicas", Changed, "3", "5", false),
        ]
    );
    let created = spec_diff(None, &old).unwrap();
    assert!(created.len() > 20 && created.iter().all(|d| d.kind() == Added && !d.replaces_tasks));
}

fn merge(sent: &api::JobSpec, paths: &[&str]) -> Result<api::JobSpec, quorate_wire::ApiError> {
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    merge_spec(&rich_service(), sent, &paths)
}

#[test]
fn a_mask_takes_what_it_names_and_leaves_the_rest() {
    let stored = api::JobSpec::from(&rich_service());
    let mut sent = stored.clone();
    sent.priority = 1;
    sent.labels = [("new".to_owned(), "label".to_owned())].into();
    sent.placement.as_mut().unwrap().max_per_node = 9;
    sent.containers.get_mut("app").unwrap().image = "other:2".to_owned();
    for paths in [
        &["placement.max_per_node", "containers.app.image"],
        &["placement.maxPerNode", "containers.app.image"],
    ] {
        let merged = merge(&sent, paths).unwrap();
        let mut expected = stored.clone();
        expected.placement.as_mut().unwrap().max_per_node = 9;
        expected.containers.get_mut("app").unwrap().image = "other:2".to_owned();
        assert_eq!(merged, expected);
    }
    let labels = merge(&sent, &["labels.new", "labels.team"]).unwrap().labels;
    assert_eq!(labels.into_keys().collect::<Vec<_>>(), ["new", "tier"], "what is not sent is removed");
    assert_eq!(merge(&sent, &["labels"]).unwrap().labels, sent.labels);
    let none = api::JobSpec { priority: 0, ..sent.clone() };
    assert_eq!(accept_spec(Some(merge(&none, &["priority"]).unwrap())).unwrap().priority, 50, "the default");
    let batch = api::job_spec::Kind::Batch(api::BatchSpec { completions: 2, parallelism: 1 });
    let batch = api::JobSpec { kind: Some(batch), ..sent.clone() };
    assert_eq!(merge(&batch, &["batch"]).unwrap().kind, batch.kind);
}

#[test]
fn a_path_that_names_no_field_is_refused_with_its_place() {
    let sent = api::JobSpec::from(&rich_service());
    for bad in [
        "colour",
        "priority.x",
        "containers.app.imagee",
        "labels..a",
        "",
        "containers[app]",
        "placement.constraints[0]",
    ] {
        let error = merge(&sent, &["priority", bad]).unwrap_err();
        assert_eq!(
            (error.reason, error.violations.0[0].path.as_str()),
            (Reason::ArgumentInvalid, "update_mask.paths[1]"),
            "{bad}"
        );
    }
    let many = vec!["priority"; 300];
    assert_eq!(merge(&sent, &many).unwrap_err().violations.0[0].path, "update_mask");
}
