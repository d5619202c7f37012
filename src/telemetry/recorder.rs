//! The process's metric recorder and its Prometheus text.

use std::io;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use quorate_base::sync::lock;
use quorate_base::tasks::spawn_thread;
use thiserror::Error;

use crate::metrics::{Metric, describe_all};

/// Upper bounds of every histogram's buckets, in seconds: 0.5 ms to 30 s, finest where the goals for commits lie.
pub const BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0];

/// How often waiting histogram samples are folded into their buckets. Between two rounds they take memory, one number
/// per sample, also when nobody scrapes.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);

/// Why there is no recorder.
#[derive(Debug, Error)]
pub enum InstallError {
    /// The recorder was not accepted.
    #[error("cannot set up metrics: {0}; another metrics recorder must not be installed in this process")]
    Recorder(#[from] BuildError),
    /// The thread that keeps its memory bounded did not start.
    #[error("cannot start the metrics thread: {0}; raise the limit on threads (ulimit -u)")]
    Thread(#[from] io::Error),
}

/// Prints what the recorder holds. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle(PrometheusHandle);

impl Handle {
    /// All metrics in Prometheus' text format, version 0.0.4.
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// The same without `hidden`, none of which is a histogram.
    pub fn render_without(&self, hidden: &[Metric]) -> String {
        let of = |line: &str, name: &str| {
            let bare = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE ")).unwrap_or(line);
            bare.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
        };
        let all = self.render();
        let shown =
            all.split_inclusive('\n').filter(|line| !hidden.iter().any(|metric| of(line, metric.name)));
        shown.collect()
    }
}

/// Installs the process's recorder, or returns the one that is installed: several managers may share a process.
///
/// # Errors
/// [`InstallError`] when something else already installed a recorder, or no thread can be started.
pub fn install() -> Result<Handle, InstallError> {
    static INSTALLED: OnceLock<Handle> = OnceLock::new();
    static INSTALLING: Mutex<()> = Mutex::new(());

    let _one_at_a_time = lock(&INSTALLING);
    if let Some(handle) = INSTALLED.get() {
        return Ok(handle.clone());
    }
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    describe_all();
    let handle = INSTALLED.get_or_init(|| Handle(recorder.clone())).clone();
    // Lives as long as the recorder, which is as long as the process: nobody joins it.
    let _ = spawn_thread("metrics-upkeep", move || {
        loop {
            std::thread::sleep(UPKEEP_PERIOD);
            recorder.run_upkeep();
        }
    })?;
    Ok(handle)
}
