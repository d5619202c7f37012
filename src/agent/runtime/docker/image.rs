//! Images: there, or fetched, each once at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bollard::Docker;
use bollard::auth::DockerCredentials;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::StreamExt as _;
use quorate_base::sync::lock;
use quorate_model::{ContainerSpec, ImagePull};

use super::auth::Login;
use super::fault::{Trouble, is_status, wants_login};
use crate::runtime::PullProgress;
use crate::step::Fault;

/// The longest that a registry may take to begin to answer.
const PULL_BEGIN: Duration = Duration::from_secs(300);

/// Pulls under way: tasks that want the same image at the same time share one, and what became of it.
#[derive(Debug, Default)]
pub(super) struct Images(Mutex<BTreeMap<String, Arc<Turn>>>);

/// One pull. Whoever waits for it and finds nobody at work does it: so a task that is given up takes none with it.
#[derive(Debug, Default)]
struct Turn {
    result: tokio::sync::Mutex<Option<Result<(), Fault>>>,
    /// Per layer: bytes that are here, and bytes in all.
    layers: Mutex<BTreeMap<String, (u64, u64)>>,
}

impl Images {
    /// Sees to it that `image` is there, as `policy` wants it. `login` is asked when it must be fetched.
    ///
    /// # Errors
    /// As classified by [`Trouble::Pull`]; permanent when it is missing and must not be pulled.
    pub(super) async fn provide(
        &self,
        engine: &Docker,
        image: &str,
        policy: ImagePull,
        login: impl FnOnce() -> Result<Login, Fault>,
    ) -> Result<(), Fault> {
        let key = key(image, policy);
        let turn = Arc::clone(lock(&self.0).entry(key.clone()).or_default());
        let result = {
            let mut result = turn.result.lock().await;
            match result.as_ref() {
                Some(shared) => shared.clone(),
                None => {
                    let done = provide(engine, image, policy, login, &turn.layers).await;
                    // Who comes from now on asks anew; who waits already has its answer.
                    lock(&self.0).retain(|known, other| *known != key || !Arc::ptr_eq(other, &turn));
                    *result = Some(done.clone());
                    done
                }
            }
        };
        drop(turn);
        // Those that were given up and that nobody waits for.
        lock(&self.0).retain(|_, turn| Arc::strong_count(turn) > 1);
        result
    }

    /// How far the pull is; `None` when none is under way.
    pub(super) fn progress(&self, image: &str, policy: ImagePull) -> Option<PullProgress> {
        let turn = Arc::clone(lock(&self.0).get(&key(image, policy))?);
        let layers = lock(&turn.layers);
        let add = |(done, total): (u64, u64), layer: &(u64, u64)| {
            (done.saturating_add(layer.0), total.saturating_add(layer.1))
        };
        let (done_bytes, total_bytes) = layers.values().fold((0, 0), add);
        Some(PullProgress { done_bytes, total_bytes })
    }
}

fn key(image: &str, policy: ImagePull) -> String {
    format!("{policy:?} {image}")
}

async fn provide(
    engine: &Docker,
    image: &str,
    policy: ImagePull,
    login: impl FnOnce() -> Result<Login, Fault>,
    layers: &Mutex<BTreeMap<String, (u64, u64)>>,
) -> Result<(), Fault> {
    if policy != ImagePull::Always {
        match engine.inspect_image(image).await {
            Ok(_) => return Ok(()),
            Err(error) if !is_status(&error, 404) => return Err(Trouble::Pull(image).fault(&error)),
            Err(_) if policy == ImagePull::Never => {
                return Err(Fault::permanent(format!(
                    "image {image} is not on this node, and it must not be pulled"
                )));
            }
            Err(_) => {}
        }
    }
    match login()? {
        Login::Anonymous => pull(engine, image, None, layers).await,
        Login::Known(credentials) => pull(engine, image, Some(credentials), layers).await,
        // It may be public.
        Login::Helper { file, name } => pull(engine, image, None, layers).await.map_err(|fault| {
            if !wants_login(&fault) {
                return fault;
            }
            let message = format!(
                "{}; {file} leaves the login to the credential helper {name:?}, which agents do not run: write the \
                 login itself into its auths",
                fault.message
            );
            Fault { message, ..fault }
        }),
    }
}

async fn pull(
    engine: &Docker,
    image: &str,
    credentials: Option<DockerCredentials>,
    layers: &Mutex<BTreeMap<String, (u64, u64)>>,
) -> Result<(), Fault> {
    let (name, tag) = split(image);
    let options = CreateImageOptionsBuilder::new().from_image(name).tag(tag).build();
    let engine = engine.clone().with_timeout(PULL_BEGIN);
    let mut progress = engine.create_image(Some(options), None, credentials);
    while let Some(report) = progress.next().await {
        let report = report.map_err(|error| Trouble::Pull(image).fault(&error))?;
        note(&mut lock(layers), &report);
    }
    Ok(())
}

/// Enters what the engine says of a layer.
fn note(layers: &mut BTreeMap<String, (u64, u64)>, report: &CreateImageInfo) {
    let (Some(id), Some(status)) = (&report.id, &report.status) else { return };
    let bytes = |count: Option<i64>| count.and_then(|count| u64::try_from(count).ok());
    match (status.as_str(), &report.progress_detail) {
        ("Downloading", Some(detail)) => {
            let layer = layers.entry(id.clone()).or_default();
            let total = bytes(detail.total).unwrap_or(layer.1);
            *layer = (bytes(detail.current).unwrap_or(layer.0), total);
        }
        ("Download complete" | "Pull complete", _) => {
            if let Some((done, total)) = layers.get_mut(id) {
                *done = *total;
            }
        }
        _ => {}
    }
}

/// The image that `spec` means: by its digest alone where that is known, so that it is never another one.
pub(super) fn reference(spec: &ContainerSpec) -> String {
    let image = spec.image.as_deref().unwrap_or_default();
    match &spec.digest {
        Some(digest) => format!("{}@{digest}", split(image).0),
        None => image.to_owned(),
    }
}

/// The repository and its tag or digest; without a tag the engine would pull them all.
fn split(image: &str) -> (&str, &str) {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let path_at = name.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match name[path_at..].rfind(':') {
        Some(colon) => (&name[..path_at + colon], Some(&name[path_at + colon + 1..])),
        None => (name, None),
    };
    (name, digest.or(tag).unwrap_or("latest"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::ProgressDetail;

    #[test]
    fn a_digest_outweighs_the_tag() {
        let spec = |image: &str, digest: Option<&str>| ContainerSpec {
            image: Some(image.to_owned()),
            digest: digest.map(str::to_owned),
            ..ContainerSpec::default()
        };
        assert_eq!(
            reference(&spec("127.0.0.1:5000/a/b:2", Some("sha256:00"))),
            "127.0.0.1:5000/a/b@sha256:00"
        );
        assert_eq!(reference(&spec("a/b:2@sha256:11", Some("sha256:00"))), "a/b@sha256:00");
        assert_eq!(reference(&spec("a/b:2", None)), "a/b:2");
    }

    #[test]
    fn progress_counts_what_is_downloaded() {
        let mut layers = BTreeMap::new();
        let report = |id: &str, status: &str, detail: Option<(i64, i64)>| CreateImageInfo {
            id: Some(id.to_owned()),
            status: Some(status.to_owned()),
            progress_detail: detail
                .map(|(current, total)| ProgressDetail { current: Some(current), total: Some(total) }),
            ..CreateImageInfo::default()
        };
        for (id, status, detail) in [
            ("a", "Downloading", Some((10, 100))),
            ("b", "Already exists", None),
            ("a", "Downloading", Some((60, 100))),
            ("c", "Downloading", Some((-5, 50))),
            ("a", "Download complete", None),
            ("a", "Extracting", Some((1, 100))),
        ] {
            note(&mut layers, &report(id, status, detail));
        }
        assert_eq!(layers, BTreeMap::from([("a".to_owned(), (100, 100)), ("c".to_owned(), (0, 50))]));
    }

    #[test]
    fn references_are_split_at_their_tag_or_digest() {
        let table = [
            ("busybox", ("busybox", "latest")),
            ("busybox:1", ("busybox", "1")),
            ("127.0.0.1:5000/a/b", ("127.0.0.1:5000/a/b", "latest")),
            ("127.0.0.1:5000/a/b:2", ("127.0.0.1:5000/a/b", "2")),
            ("a/b@sha256:00", ("a/b", "sha256:00")),
            ("a/b:3@sha256:00", ("a/b", "sha256:00")),
            ("", ("", "latest")),
        ];
        for (image, parts) in table {
            assert_eq!(split(image), parts, "{image}");
        }
    }
}
