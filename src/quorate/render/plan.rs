//! What applying a job file would do.

use std::collections::BTreeMap;

use quorate_wire::api::{DiffKind, FieldDiff, PlanJobResponse};

use super::style::{Style, Tint};
use super::words::flow;

/// Most characters of a value.
const VALUE: usize = 60;

/// Whether a plan does nothing.
pub(crate) fn is_empty(plan: &PlanJobResponse) -> bool {
    plan.diff.is_empty() && plan.creates + plan.replaces + plan.stops == 0
}

/// The plan for `job`: what differs, what follows for tasks, where they would go, and how to apply exactly that.
pub(crate) fn text(
    job: &str,
    plan: &PlanJobResponse,
    apply: &str,
    style: Style,
    width: Option<usize>,
) -> String {
    let (sign, tint, versions) = match (plan.version, is_empty(plan)) {
        (0, _) => ("+", Tint::Good, "new".to_owned()),
        (version, true) => ("=", Tint::None, format!("version {version} stays")),
        (version, false) if version == plan.new_version => {
            ("~", Tint::Warn, format!("version {version} stays"))
        }
        (version, false) => ("~", Tint::Warn, format!("version {version} → {}", plan.new_version)),
    };
    let mut lines = vec![style.tint(tint, &format!("{sign} job {job}   ({versions})"))];
    // A new job differs in everything.
    if plan.version > 0 {
        lines.extend(diff(&plan.diff, style));
    }
    let counts =
        [(plan.creates, "create"), (plan.replaces, "replace"), (plan.stops, "stop"), (plan.keeps, "keep")];
    let effects: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{what} {count}"))
        .collect();
    let effects = if effects.is_empty() { "none".to_owned() } else { effects.join(", ") };
    lines.push(format!("tasks:      {effects}{}", unplaced(plan.unplaced, style)));
    if !plan.nodes.is_empty() {
        let nodes: Vec<String> = plan
            .nodes
            .iter()
            .map(|node| match node.placed {
                0 => format!("{} {}", node.node, node.tasks),
                placed => format!("{} {} ({placed} new)", node.node, node.tasks),
            })
            .collect();
        let nodes = nodes.iter().map(String::as_str);
        lines.push(format!(
            "placement:  {}",
            flow(nodes, ", ", "            ", width.map(|w| w.saturating_sub(12)))
        ));
    }
    for failure in &plan.failures {
        lines.push(format!("{} {}", style.tint(Tint::Bad, "unplaced:  "), failure.summary));
    }
    for warning in &plan.warnings {
        lines.push(format!("{} {warning}", style.tint(Tint::Warn, "warning:   ")));
    }
    lines.push(match is_empty(plan) {
        true => format!("etag:       {}   nothing to apply", plan.etag),
        false => format!("etag:       {}   apply exactly this:  {apply}", plan.etag),
    });
    lines.join("\n")
}

fn unplaced(count: u32, style: Style) -> String {
    match count {
        0 => String::new(),
        count => format!(", {}", style.tint(Tint::Bad, &format!("{count} of them find no place"))),
    }
}

/// The fields that differ, under the container that they belong to.
fn diff(fields: &[FieldDiff], style: Style) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<(&str, &FieldDiff)>> = BTreeMap::new();
    for field in fields {
        let (group, rest) = match field.path.strip_prefix("containers.").and_then(|rest| rest.split_once('.'))
        {
            Some((container, rest)) => (format!("container {container}: "), rest),
            None => (String::new(), field.path.as_str()),
        };
        groups.entry(group).or_default().push((rest, field));
    }
    let rows: Vec<(DiffKind, String, String, bool)> = groups
        .iter()
        .flat_map(|(group, fields)| fields.iter().map(move |(path, field)| (group, *path, *field)))
        .map(|(group, path, field)| {
            let value = match field.kind() {
                DiffKind::Added => cut(&field.new),
                DiffKind::Removed => cut(&field.old),
                _ => format!("{} → {}", cut(&field.old), cut(&field.new)),
            };
            (field.kind(), format!("{group}{path}"), value, field.replaces_tasks)
        })
        .collect();
    let widest = |text: fn(&(DiffKind, String, String, bool)) -> &String| {
        rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0)
    };
    let (paths, values) = (widest(|row| &row.1), widest(|row| &row.2));
    rows.iter()
        .map(|(kind, path, value, replaces)| {
            let (sign, tint) = match kind {
                DiffKind::Added => ("+", Tint::Good),
                DiffKind::Removed => ("-", Tint::Bad),
                _ => ("~", Tint::Warn),
            };
            let effect = if *replaces { "replaces tasks" } else { "" };
            let line = format!("{path:<paths$}   {value:<values$}   {effect}");
            format!("  {} {}", style.tint(tint, sign), line.trim_end())
        })
        .collect()
}

fn cut(value: &str) -> String {
    super::words::shortened(value, VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_wire::api::{NodePlan, PlacementFailure};

    fn field(kind: DiffKind, path: &str, old: &str, new: &str, replaces_tasks: bool) -> FieldDiff {
        FieldDiff { kind: kind.into(), path: path.into(), old: old.into(), new: new.into(), replaces_tasks }
    }

    fn plan() -> PlanJobResponse {
        let node = |name: &str, tasks, placed| NodePlan { node: name.into(), tasks, placed };
        PlanJobResponse {
            etag: "W/\"48190\"".into(),
            diff: vec![
                field(DiffKind::Changed, "replicas", "6", "9", false),
                field(
                    DiffKind::Changed,
                    "containers.app.image",
                    "\"nginx:1.27.2\"",
                    "\"nginx:1.27.3\"",
                    true,
                ),
                field(DiffKind::Added, "containers.app.env.LOG_LEVEL", "", "\"debug\"", true),
            ],
            nodes: vec![node("n01", 4, 4), node("n02", 4, 4), node("n05", 2, 0)],
            creates: 3,
            replaces: 6,
            unplaced: 1,
            failures: vec![PlacementFailure {
                summary: "3 of 3 nodes: need 2GiB, best free 1GiB".into(),
                ..PlacementFailure::default()
            }],
            warnings: vec!["the image nginx:1.27.3 could not be pinned".into()],
            version: 7,
            new_version: 8,
            ..PlanJobResponse::default()
        }
    }

    #[test]
    fn a_plan_shows_what_differs_what_follows_and_how_to_apply_it() {
        assert_eq!(
            text("default/web", &plan(), "quorate run web.yaml --etag 'W/\"48190\"'", Style::plain(), None),
            "\
~ job default/web   (version 7 → 8)
  ~ replicas                       6 → 9
  ~ container app: image           \"nginx:1.27.2\" → \"nginx:1.27.3\"   replaces tasks
  + container app: env.LOG_LEVEL   \"debug\"                           replaces tasks
tasks:      create 3, replace 6, 1 of them find no place
placement:  n01 4 (4 new), n02 4 (4 new), n05 2
unplaced:   3 of 3 nodes: need 2GiB, best free 1GiB
warning:    the image nginx:1.27.3 could not be pinned
etag:       W/\"48190\"   apply exactly this:  quorate run web.yaml --etag 'W/\"48190\"'"
        );
    }

    #[test]
    fn nothing_to_do_and_new_jobs_say_so() {
        let same =
            PlanJobResponse { version: 7, new_version: 7, keeps: 6, etag: "e".into(), ..Default::default() };
        assert_eq!(
            text("default/web", &same, "x", Style::plain(), None),
            "= job default/web   (version 7 stays)\ntasks:      keep 6\netag:       e   nothing to apply"
        );
        let fresh = PlanJobResponse {
            etag: "0".into(),
            new_version: 1,
            creates: 2,
            diff: vec![field(DiffKind::Added, "name", "", "\"web\"", true)],
            ..Default::default()
        };
        assert_eq!(
            text("default/web", &fresh, "quorate run web.yaml --etag 0", Style::plain(), None),
            "+ job default/web   (new)\ntasks:      create 2\n\
             etag:       0   apply exactly this:  quorate run web.yaml --etag 0"
        );
    }
}
