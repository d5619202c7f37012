//! Images: there, or fetched, once at a time each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::StreamExt as _;
use quorate_base::sync::lock;
use quorate_model::ImagePull;

use super::fault::{Trouble, is_status};
use crate::step::Fault;

/// The longest that a registry may take to begin to answer.
const PULL_BEGIN: Duration = Duration::from_secs(300);

/// Pulls under way, so that ten tasks of one image fetch it once.
#[derive(Debug, Default)]
pub(super) struct Images(Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Images {
    /// Sees to it that `image` is there, as `policy` wants it.
    ///
    /// # Errors
    /// As classified by [`Trouble::Pull`]; permanent when it is missing and must not be pulled.
    pub(super) async fn provide(&self, engine: &Docker, image: &str, policy: ImagePull) -> Result<(), Fault> {
        let turn = Arc::clone(lock(&self.0).entry(image.to_owned()).or_default());
        let result = {
            let _turn = turn.lock().await;
            provide(engine, image, policy).await
        };
        drop(turn);
        // Those that nobody waits for.
        lock(&self.0).retain(|_, turn| Arc::strong_count(turn) > 1);
        result
    }
}

async fn provide(engine: &Docker, image: &str, policy: ImagePull) -> Result<(), Fault> {
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
    let (name, tag) = split(image);
    let options = CreateImageOptionsBuilder::new().from_image(name).tag(tag).build();
    let engine = engine.clone().with_timeout(PULL_BEGIN);
    let mut progress = engine.create_image(Some(options), None, None);
    while let Some(report) = progress.next().await {
        report.map_err(|error| Trouble::Pull(image).fault(&error))?;
    }
    Ok(())
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
