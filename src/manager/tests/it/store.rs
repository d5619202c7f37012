//! What a manager does without its store.

use std::fs;

use quorate_manager::StartError;

use crate::{
    cluster::{Cluster, until},
    writes::{apply, service},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_manager_does_not_begin_anew_when_its_store_is_lost() {
    let mut cluster = Cluster::start(1).await;
    cluster.jobs(0).apply_job(apply(service("web", 2))).await.unwrap();
    let formed = || cluster.manager(0).node().identity().epoch > 0;
    until("its header says that the cluster is formed", async || formed().then_some(())).await;
    cluster.stop(0).await;
    fs::remove_dir_all(cluster.data_dir(0).join("log")).unwrap();
    // The second start finds the new, empty store that the first one left.
    for _ in 0..2 {
        let refused = until("the store's lock to be free again", async || {
            let refused = cluster.try_run(0).await.unwrap_err();
            // The store of the last try is closed in the background.
            (!refused.to_string().contains("acquire lock")).then_some(refused)
        })
        .await;
        assert!(matches!(refused, StartError::OnlyCopyLost { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains(&cluster.data_dir(0).join("quarantine").display().to_string()), "{text}");
    }
}
