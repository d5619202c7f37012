//! Specifications as trees of JSON: how two differ, and how a part of one replaces that of another.

use std::collections::{BTreeMap, BTreeSet};

use quorate_model::{Invalid, JobSpec};
use serde_json::{Map, Value, json};

use crate::{
    ApiError, Reason,
    generated::api::{self as pb},
};

/// Most fields that one mask names.
const MOST_PATHS: usize = 256;

/// What differs between the stored specification and a new one, by path.
///
/// # Errors
/// `INTERNAL` when a specification cannot be written as JSON.
pub fn spec_diff(old: Option<&JobSpec>, new: &JobSpec) -> Result<Vec<pb::FieldDiff>, ApiError> {
    let before = old.map(tree).transpose()?.unwrap_or_default();
    let after = tree(new)?;
    let replacing: BTreeSet<&String> = match old {
        Some(old) => {
            before.keys().chain(after.keys()).filter(|key| replaces(old, &before, &after, key)).collect()
        }
        None => BTreeSet::new(),
    };
    let (was, is) = (flat(&before), flat(&after));
    let paths: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    let differing = paths.into_iter().filter(|path| was.get(*path) != is.get(*path));
    Ok(differing
        .map(|path| {
            let (was, is) = (was.get(path), is.get(path));
            let kind = match (was, is) {
                (None, _) => pb::DiffKind::Added,
                (_, None) => pb::DiffKind::Removed,
                _ => pb::DiffKind::Changed,
            };
            let top = path.split(['.', '[']).next().unwrap_or_default();
            pb::FieldDiff {
                kind: kind.into(),
                path: path.clone(),
                old: was.cloned().unwrap_or_default(),
                new: is.cloned().unwrap_or_default(),
                replaces_tasks: parts(&replacing, top, path, old, &before, &after),
            }
        })
        .collect())
}

/// Whether this very field replaces tasks: its part of the specification does, and so does the field alone where it
/// can be looked at alone.
fn parts(
    replacing: &BTreeSet<&String>,
    top: &str,
    path: &str,
    old: Option<&JobSpec>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> bool {
    let Some(old) = old else { return false };
    if !replacing.iter().any(|key| key.as_str() == top) {
        return false;
    }
    // Parts of placement have rules of their own; of all others the whole counts.
    let Some(key) = path.strip_prefix("placement.") else { return true };
    let key = key.split(['.', '[']).next().unwrap_or_default();
    let inner =
        |tree: &Map<String, Value>| tree.get(top).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut mixed = before.clone();
    let mut placement = inner(before);
    put(&mut placement, key, inner(after).get(key).cloned());
    mixed.insert(top.to_owned(), Value::Object(placement));
    !runs_like(old, mixed)
}

/// Whether tasks are replaced when a part of the specification alone is taken from the new one.
fn replaces(old: &JobSpec, before: &Map<String, Value>, after: &Map<String, Value>, key: &str) -> bool {
    let mut mixed = before.clone();
    put(&mut mixed, key, after.get(key).cloned());
    !runs_like(old, mixed)
}

fn put(tree: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) => tree.insert(key.to_owned(), value),
        None => tree.remove(key),
    };
}

/// What is no specification by itself, as a mount without its volume, counts as running something else.
fn runs_like(old: &JobSpec, mixed: Map<String, Value>) -> bool {
    let read = serde_json::from_value::<pb::JobSpec>(Value::Object(mixed)).ok();
    match read.map(JobSpec::try_from) {
        Some(Ok(mixed)) => old.runs_like(&mixed),
        // A job without its kind: counts alone differ.
        Some(Err(_)) | None => true,
    }
}

/// The specification with the fields that `paths` name taken from `sent`; the others stay as in `stored`.
///
/// # Errors
/// `ARGUMENT_INVALID` with each path that names no field.
pub fn merge_spec(stored: &JobSpec, sent: &pb::JobSpec, paths: &[String]) -> Result<pb::JobSpec, ApiError> {
    let refuse = |why: Invalid| ApiError::invalid(Reason::ArgumentInvalid, "the request", why.into());
    if paths.len() > MOST_PATHS {
        return Err(refuse(Invalid::new("update_mask", format!("more than {MOST_PATHS} paths"))));
    }
    let mut merged = Value::Object(tree(stored)?);
    let sent = object(sent)?;
    for (i, path) in paths.iter().enumerate() {
        let at = format!("update_mask.paths[{i}]");
        let keys = keys(path).map_err(|why| refuse(Invalid::new(at.clone(), why)))?;
        if !is_field(&keys) {
            return Err(refuse(Invalid::new(at, format!("{path:?} names no field of a job"))));
        }
        let value = keys.iter().try_fold(&sent, |tree, key| tree.get(key)).cloned();
        replace(&mut merged, &keys, value);
    }
    serde_json::from_value(merged)
        .map_err(|error| refuse(Invalid::new("update_mask", format!("gives no job: {error}"))))
}

/// Whether the keys lead to a field: some value of the kinds that JSON has is read there.
fn is_field(keys: &[String]) -> bool {
    let values = [json!(0), json!(""), json!("0s"), json!(false), json!([]), json!({}), Value::Null];
    values.into_iter().any(|value| {
        let nest = |inner, key: &String| Value::Object(Map::from_iter([(key.clone(), inner)]));
        let probe = keys.iter().rev().fold(value, nest);
        serde_json::from_value::<pb::JobSpec>(probe).is_ok()
    })
}

/// Sets or removes what the keys lead to.
fn replace(tree: &mut Value, keys: &[String], value: Option<Value>) {
    let Some((last, way)) = keys.split_last() else { return };
    let mut at = tree;
    for key in way {
        let Value::Object(map) = at else { return };
        at = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    if let Value::Object(map) = at {
        // A service and a batch exclude each other.
        if keys.len() == 1 && value.is_some() && matches!(last.as_str(), "service" | "batch") {
            map.remove("service");
            map.remove("batch");
        }
        // A field that has its default is not written as JSON.
        put(map, last, value);
    }
}

/// The keys of a path as JSON spells them; keys of maps stay as they are.
fn keys(path: &str) -> Result<Vec<String>, String> {
    let maps = ["labels", "ports", "volumes", "containers", "env"];
    let mut keys: Vec<String> = Vec::new();
    for part in path.split('.') {
        if part.is_empty() || part.contains(['[', ']']) {
            return Err(format!(
                "{path:?} is no path: fields are separated by dots, and lists are replaced whole"
            ));
        }
        let in_map = keys.last().is_some_and(|before| maps.contains(&before.as_str()));
        keys.push(if in_map { part.to_owned() } else { camel(part) });
    }
    Ok(keys)
}

fn camel(snake: &str) -> String {
    let mut parts = snake.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut text, part| {
        let mut letters = part.chars();
        text.extend(letters.next().map(|c| c.to_ascii_uppercase()));
        text.push_str(letters.as_str());
        text
    })
}

fn tree(spec: &JobSpec) -> Result<Map<String, Value>, ApiError> {
    match object(&pb::JobSpec::from(spec))? {
        Value::Object(map) => Ok(map),
        _ => Ok(Map::new()),
    }
}

fn object(spec: &pb::JobSpec) -> Result<Value, ApiError> {
    serde_json::to_value(spec).map_err(|error| {
        ApiError::new(Reason::Internal, format!("the job cannot be written as JSON: {error}"))
    })
}

/// The leaves of a tree by their paths, each as JSON.
fn flat(tree: &Map<String, Value>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut left: Vec<(String, &Value)> = tree.iter().map(|(key, value)| (key.clone(), value)).collect();
    while let Some((path, value)) = left.pop() {
        match value {
            Value::Object(map) => {
                left.extend(map.iter().map(|(key, value)| (format!("{path}.{key}"), value)))
            }
            Value::Array(list) => {
                left.extend(list.iter().enumerate().map(|(i, value)| (format!("{path}[{i}]"), value)));
            }
            leaf => {
                out.insert(path, leaf.to_string());
            }
        }
    }
    out
}
