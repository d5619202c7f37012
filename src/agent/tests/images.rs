//! Images of registries, with the real engine: logins, digests, pulls that are shared.

#![cfg(test)]

mod support;

use std::path::Path;

use quorate_agent::config::DockerConfig;
use quorate_agent::runtime::docker::DockerRuntime;
use quorate_agent::runtime::{Runtime as _, Work};
use quorate_agent::step::{FaultClass, Seen};
use quorate_base::Clock;
use quorate_model::ImagePull;
use support::engine::{Cluster, Registry, docker, engine};
use support::soon;

fn pulled(cluster: &Cluster, image: &str) -> Work {
    let mut work = cluster.shell(1, "");
    (work.spec.image, work.spec.pull) = (Some(image.to_owned()), ImagePull::Always);
    work
}

fn with_logins(file: &Path, text: &str) -> DockerRuntime {
    std::fs::write(file, text).unwrap();
    let config = DockerConfig { auth_file: Some(file.to_owned()), ..DockerConfig::default() };
    DockerRuntime::new(config, Clock::system())
}

#[tokio::test]
async fn a_registry_behind_a_login_is_entered_with_it_and_each_refusal_says_why() {
    // ann:secret
    let registry = Registry::start_behind(Some("YW5uOnNlY3JldA==")).await;
    let (cluster, folder) = (Cluster::new(), tempfile::tempdir().unwrap());
    let (work, file) = (pulled(&cluster, &registry.image), folder.path().join("config.json"));
    let auths = |auth: &str| format!(r#"{{"auths":{{{:?}:{{"auth":{auth:?}}}}}}}"#, registry.address);
    let runtime = with_logins(&file, "{}");
    let refused = soon("the pull", runtime.pull(&work)).await.unwrap_err();
    assert_eq!(refused.class, FaultClass::Permanent);
    assert!(refused.message.contains("refuses the login, or wants one"), "{refused}");
    // The file is read anew: a wrong login, then a helper, then the right one.
    std::fs::write(&file, auths("YW5uOndyb25n")).unwrap();
    let refused = soon("the pull", runtime.pull(&work)).await.unwrap_err();
    assert!(refused.message.contains("login") && !refused.message.contains("wrong"), "{refused}");
    std::fs::write(&file, r#"{"credsStore":"vault"}"#).unwrap();
    let refused = soon("the pull", runtime.pull(&work)).await.unwrap_err();
    assert!(refused.message.contains("credential helper \"vault\", which agents do not run"), "{refused}");
    std::fs::write(&file, auths("YW5uOnNlY3JldA==")).unwrap();
    soon("the pull", runtime.pull(&work)).await.unwrap();
    docker(&["rmi", &registry.image]);
}

#[tokio::test]
async fn an_image_with_a_digest_is_run_by_it_and_never_another() {
    let (cluster, runtime, registry) = (Cluster::new(), engine(), Registry::start().await);
    let mut work = pulled(&cluster, &registry.image);
    soon("the pull", runtime.pull(&work)).await.unwrap();
    let named = docker(&["inspect", "--format", "{{index .RepoDigests 0}}", &registry.image]);
    docker(&["rmi", &registry.image]);
    work.spec.digest = Some(named.split_once('@').unwrap().1.to_owned());
    work.spec.pull = ImagePull::IfMissing;
    // The tag is another image's by now.
    work.spec.image = Some(registry.image.replace(":1", ":2"));
    soon("the pull", runtime.pull(&work)).await.unwrap();
    assert_eq!(runtime.create(&work).await, Ok(Seen::Created));
    let image = docker(&["inspect", "--format", "{{.Config.Image}}", &work.unit.to_string()]);
    assert_eq!(image, named);
    runtime.remove(&work.unit).await.unwrap();
    docker(&["rmi", &named]);
    // The registry answers with the same image for every digest: that it is another one is noticed.
    work.spec.digest = Some(format!("sha256:{}", "0".repeat(64)));
    let fault = soon("the pull", runtime.pull(&work)).await.unwrap_err();
    assert!(fault.message.contains("sends other contents than that digest"), "{fault}");
}

#[tokio::test]
async fn tasks_that_want_one_image_at_once_share_its_pull() {
    let (cluster, runtime, registry) = (Cluster::new(), engine(), Registry::start().await);
    let work = pulled(&cluster, &registry.image);
    soon("the pull", runtime.pull(&work)).await.unwrap();
    let before = registry.asked();
    soon("the pull", runtime.pull(&work)).await.unwrap();
    let one = registry.asked() - before;
    let before = registry.asked();
    let all = async { tokio::join!(runtime.pull(&work), runtime.pull(&work), runtime.pull(&work)) };
    assert_eq!(soon("the pulls", all).await, (Ok(()), Ok(()), Ok(())));
    assert_eq!(registry.asked() - before, one);
    docker(&["rmi", &registry.image]);
}

#[tokio::test]
async fn a_running_container_is_measured() {
    let (cluster, runtime) = (Cluster::new(), engine());
    let work = cluster.shell(1, "while :; do :; done");
    runtime.create(&work).await.unwrap();
    runtime.start(&work).await.unwrap();
    let absent = cluster.shell(2, "true").unit;
    let used = runtime.usage(&[work.unit.clone(), absent]).await;
    assert_eq!(used.len(), 1, "what does not run is left out");
    let used = used[&work.unit.task];
    assert!(used.memory_bytes > 0 && used.pids > 0, "{used:?}");
    assert!(runtime.data_root().is_some());
}
