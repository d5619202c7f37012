//! `debug bundle`: one file with what a helper would ask for.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use quorate_base::Timestamp;
use quorate_wire::api;
use serde::Serialize;
use serde_json::{Value, json};

use super::{BundleArgs, admin};
use crate::cli::args::Colour;
use crate::cli::context::{Context, print, stale};
use crate::cli::pages;
use crate::failure::Failure;
use crate::render::Style;
use crate::render::cluster::View;

/// What is asked of every admin port, and the file that it becomes.
const ASKED: [(&str, &str); 4] = [
    ("/metrics", "metrics.txt"),
    ("/readyz", "readyz.txt"),
    ("/log-level", "log-level.txt"),
    ("/logs?since=1h", "logs.jsonl"),
];
/// What a hidden value becomes.
const HIDDEN: &str = "(hidden)";

/// What was collected.
#[derive(Default)]
struct Bundle {
    files: Vec<(String, Vec<u8>)>,
    errors: Vec<String>,
    include_env: bool,
}

pub(super) async fn run(context: &Context, args: BundleArgs) -> Result<(), Failure> {
    let now = context.now();
    let path = args.out.unwrap_or_else(|| default_path(now));
    let mut bundle = Bundle { include_env: args.include_env, ..Bundle::default() };
    bundle.add("version.txt", format!("quorate {}\n", env!("CARGO_PKG_VERSION")).into_bytes());
    bundle.objects(context).await;
    for address in &args.admin.addresses {
        bundle.admin(context, address).await;
    }
    bundle.finish();
    let failed = |error: io::Error| {
        let hint = "name another file: --out FILE";
        Failure::new(1, format!("{}: cannot be written: {error}", path.display())).hint(hint)
    };
    let packed = pack(&bundle.files, now).map_err(failed)?;
    write(&path, &packed).map_err(failed)?;
    bundle.tell(context, &path)
}

/// In this folder, named after the time.
fn default_path(now: Timestamp) -> PathBuf {
    let time: String = now.to_string().chars().filter(|c| *c != ':').collect();
    PathBuf::from(format!("quorate-bundle-{time}.tar.zst"))
}

/// For nobody else to read: log lines and specifications may tell secrets.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

impl Bundle {
    fn add(&mut self, name: impl Into<String>, bytes: Vec<u8>) {
        self.files.push((name.into(), bytes));
    }

    /// An answer as JSON, or a note why there is none.
    fn document<T: Serialize>(&mut self, name: &str, answer: Result<T, Failure>) {
        let value = answer
            .map_err(|failure| failure.to_text(Style::new(Colour::Never, false)))
            .and_then(|answer| serde_json::to_value(answer).map_err(|error| error.to_string()));
        match value {
            Ok(mut value) => {
                if !self.include_env {
                    hide_env(&mut value);
                }
                self.add(name, format!("{value:#}\n").into_bytes());
            }
            Err(why) => self.errors.push(format!("{name}: {why}")),
        }
    }

    /// What the managers' API says. Stale reads: they need no leader.
    async fn objects(&mut self, context: &Context) {
        let answers = context.client.cluster_status_each().await;
        self.document("cluster-status.json", Ok(View::new(&answers).to_json()));
        if answers.iter().all(|one| one.answer.is_err()) {
            self.errors.push("jobs, nodes, tasks and managers: no manager answers".to_owned());
            return;
        }
        let read = stale();
        let jobs = api::ListJobsRequest { read: read.clone(), ..Default::default() };
        self.document("jobs.json", pages::jobs(context, jobs).await);
        let nodes = api::ListNodesRequest { read: read.clone(), ..Default::default() };
        self.document("nodes.json", pages::nodes(context, nodes).await);
        let tasks = api::ListTasksRequest { read: read.clone(), ..Default::default() };
        self.document("tasks.json", pages::tasks(context, tasks).await);
        let managers = context.client.list_managers(api::ListManagersRequest { read }).await;
        self.document("managers.json", managers.map_err(Failure::from));
    }

    /// What one admin port says.
    async fn admin(&mut self, context: &Context, address: &str) {
        let folder: String = address
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '_' })
            .collect();
        for (path, file) in ASKED {
            match admin::get(address, path, context.admin_limit()).await {
                // Not ready is an answer, too.
                Ok(answer) if answer.status == 200 || path == "/readyz" => {
                    self.add(format!("admin/{folder}/{file}"), answer.body.to_vec());
                }
                Ok(answer) => self.errors.push(format!("{address}{path}: {}", answer.words())),
                Err(why) => {
                    self.errors.push(format!("{address}: {why}"));
                    return;
                }
            }
        }
    }

    /// Notes what failed.
    fn finish(&mut self) {
        if !self.errors.is_empty() {
            self.add("errors.txt", format!("{}\n", self.errors.join("\n")).into_bytes());
        }
    }

    fn tell(&self, context: &Context, path: &Path) -> Result<(), Failure> {
        if context.json() {
            let files: Vec<Value> = self
                .files
                .iter()
                .map(|(name, bytes)| json!({ "name": name, "bytes": bytes.len() }))
                .collect();
            let told = json!({ "path": path, "files": files, "errors": self.errors });
            return context.printer.document(&told);
        }
        if !context.names_only() {
            self.files.iter().try_for_each(|(name, bytes)| print(&format!("{:>10}  {name}", bytes.len())))?;
            if !self.errors.is_empty() {
                let count = self.errors.len();
                print(&format!("{count} failed to answer: see errors.txt"))?;
            }
        }
        print(&path.display().to_string())
    }
}

/// Takes the values of environment variables out of specifications, at any depth; the names stay.
fn hide_env(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::Object(variables) if name == "env" => {
                        variables.values_mut().for_each(|value| *value = HIDDEN.into());
                    }
                    other => hide_env(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_env),
        _ => {}
    }
}

/// A compressed archive of the files.
fn pack(files: &[(String, Vec<u8>)], now: Timestamp) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(zstd::Encoder::new(Vec::new(), zstd::DEFAULT_COMPRESSION_LEVEL)?);
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now.as_millis() / 1000);
        archive.append_data(&mut header, name, bytes.as_slice())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn an_archive_holds_its_files_with_their_names_and_contents() {
        let files = vec![
            ("version.txt".to_owned(), b"quorate 1\n".to_vec()),
            ("admin/127.0.0.1_7480/metrics.txt".to_owned(), vec![b'x'; 100_000]),
            ("empty.txt".to_owned(), Vec::new()),
        ];
        let packed = pack(&files, Timestamp::from_millis(1_234_567_890_123)).unwrap();
        let mut archive = tar::Archive::new(zstd::Decoder::new(packed.as_slice()).unwrap());
        let read: Vec<(String, Vec<u8>)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                assert_eq!(
                    (entry.header().mtime().unwrap(), entry.header().mode().unwrap()),
                    (1_234_567_890, 0o600)
                );
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                (entry.path().unwrap().display().to_string(), bytes)
            })
            .collect();
        assert_eq!(read, files);
    }

    #[test]
    fn values_of_variables_are_hidden_at_any_depth_and_nothing_else() {
        let mut value = json!({
            "jobs": [{
                "name": "web",
                "spec": { "task": { "docker": { "image": "nginx", "env": { "TOKEN": "s3cret", "MODE": "a" } } } },
            }],
            "env": "not a map",
        });
        hide_env(&mut value);
        assert_eq!(
            value,
            json!({
                "jobs": [{
                    "name": "web",
                    "spec": { "task": { "docker": { "image": "nginx", "env": { "TOKEN": HIDDEN, "MODE": HIDDEN } } } },
                }],
                "env": "not a map",
            })
        );
    }

    #[test]
    fn what_failed_is_noted_in_a_file() {
        let mut bundle = Bundle::default();
        bundle.finish();
        assert!(bundle.files.is_empty());
        bundle.document("jobs.json", Err::<Value, _>(Failure::new(9, "no manager answers")));
        bundle.finish();
        let (name, text) = &bundle.files[0];
        assert_eq!(name, "errors.txt");
        assert!(String::from_utf8_lossy(text).contains("jobs.json: error: no manager answers"));
    }

    #[test]
    fn an_existing_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(default_path(Timestamp::from_millis(0)));
        assert!(path.ends_with("quorate-bundle-1970-01-01T000000.000Z.tar.zst"), "{}", path.display());
        write(&path, b"one").unwrap();
        assert_eq!(write(&path, b"two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
    }
}
