//! Pinning images: what a reference stands for when a job is submitted, so that every task runs the very same image.
//!
//! The managers reach no registry; a node's agent asks its engine, with the node's own credentials. It is an effort, not
//! a condition: what cannot be found out is told as a warning.

use std::time::Duration;

use quorate_model::{ContainerSpec, ImagePull, JobSpec, Name, NodeId, NodeStatus, RuntimeKind};
use quorate_state::State;
use quorate_wire::{
    agent::{ResolveOrder, relay_order::Order, relay_request::Body},
    status::ApiError,
};

use super::Relays;

/// How long all images of a job may take together: a submission waits for it, and clients leave a manager that says
/// nothing for two seconds.
const BUDGET: Duration = Duration::from_millis(1500);
/// Nodes that are asked for one image.
const MOST_NODES: usize = 2;

impl Relays {
    /// Fills in digests where they can be found out, and says what could not be.
    pub(in crate::api) async fn pin(&self, view: &State, spec: &mut JobSpec) -> Vec<String> {
        let stored = view.job_named(&spec.namespace, &spec.name).and_then(|job| job.spec()).cloned();
        let until = self.core.clock.monotonic().saturating_add(BUDGET);
        let mut warnings = Vec::new();
        for (name, container) in &mut spec.containers {
            let Some(image) = wants_pin(container) else { continue };
            let before = stored.as_ref().and_then(|spec| spec.containers.get(name));
            if let Some(digest) = before.and_then(|before| still_pinned(before, container)) {
                container.digest = Some(digest);
                continue;
            }
            let left = until.since(self.core.clock.monotonic());
            match tokio::time::timeout(left, self.resolve(view, &image)).await {
                Ok(Ok(digest)) => container.digest = digest,
                Ok(Err(error)) => warnings.push(format!("image {image} is not pinned to a digest: {error}")),
                Err(_) => warnings.push(format!(
                    "image {image} is not pinned to a digest: no answer within {}",
                    quorate_base::time::format_duration(BUDGET)
                )),
            }
        }
        warnings
    }

    /// The digest of an image; `None` when it has none, or when there is no node that could be asked.
    async fn resolve(&self, view: &State, image: &str) -> Result<Option<String>, ApiError> {
        let mut last = None;
        for (node, name) in self.askable(view) {
            let order = Order::Resolve(ResolveOrder { image: image.to_owned() });
            let asked = async { self.dispatcher.open_relay(node, &name, order).await?.hear().await };
            match asked.await {
                Ok(Some(Body::Image(found))) => {
                    return Ok(Some(found.digest).filter(|digest| !digest.is_empty()));
                }
                Ok(_) => {}
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(None), Err)
    }

    /// Nodes whose agents may know images.
    fn askable(&self, view: &State) -> Vec<(NodeId, Name)> {
        view.nodes()
            .filter(|n| n.status == NodeStatus::Ready && n.facts.runtimes.contains_key(&RuntimeKind::Docker))
            .filter(|n| self.dispatcher.has_session(n.id))
            .take(MOST_NODES)
            .map(|n| (n.id, n.name.clone()))
            .collect()
    }
}

/// The image when its digest is to be found out: a reference by tag of the docker runtime that may be pulled.
fn wants_pin(container: &ContainerSpec) -> Option<String> {
    let image = container.image.as_ref().filter(|image| !image.contains('@'))?;
    let pulled = container.runtime == RuntimeKind::Docker && container.pull != ImagePull::Never;
    (pulled && container.digest.is_none()).then(|| image.clone())
}

/// The digest that the stored container has, when the new one asks for the same image and not for a fresh look.
fn still_pinned(before: &ContainerSpec, new: &ContainerSpec) -> Option<String> {
    let same = before.image == new.image && new.pull != ImagePull::Always;
    before.digest.clone().filter(|_| same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(image: &str) -> ContainerSpec {
        ContainerSpec { image: Some(image.to_owned()), ..ContainerSpec::default() }
    }

    #[test]
    fn only_tags_that_may_be_pulled_are_pinned() {
        assert_eq!(wants_pin(&container("web:1")).as_deref(), Some("web:1"));
        let digest = Some("sha256:00".to_owned());
        for not in [
            container("web@sha256:00"),
            ContainerSpec { pull: ImagePull::Never, ..container("web:1") },
            ContainerSpec { runtime: RuntimeKind::Fake, ..container("web:1") },
            ContainerSpec { digest: digest.clone(), ..container("web:1") },
            ContainerSpec::default(),
        ] {
            assert_eq!(wants_pin(&not), None, "{not:?}");
        }
        let before = ContainerSpec { digest: digest.clone(), ..container("web:1") };
        assert_eq!(still_pinned(&before, &container("web:1")), digest);
        assert_eq!(still_pinned(&before, &container("web:2")), None);
        let always = ContainerSpec { pull: ImagePull::Always, ..container("web:1") };
        assert_eq!(still_pinned(&before, &always), None);
    }
}
