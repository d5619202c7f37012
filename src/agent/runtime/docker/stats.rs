//! What containers use, by the engine's own count.

use std::collections::BTreeMap;
use std::time::Duration;

use bollard::Docker;
use bollard::models::ContainerStatsResponse;
use bollard::query_parameters::StatsOptionsBuilder;
use futures::StreamExt as _;
use futures::stream;
use quorate_model::TaskId;

use crate::runtime::{Counters, Unit};

/// Containers that the engine is asked about at once.
const AT_ONCE: usize = 8;
/// The longest that the engine may take over one of them.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks for all of `units`; those that the engine says nothing of are left out.
pub(super) async fn all(engine: &Docker, units: &[Unit]) -> BTreeMap<TaskId, Counters> {
    let asked = stream::iter(units.to_vec()).map(|unit| async move {
        let options = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
        let mut answers = std::pin::pin!(engine.stats(&unit.to_string(), Some(options)));
        let answer = tokio::time::timeout(PATIENCE, answers.next()).await.ok()??.ok()?;
        Some((unit.task, counters(&answer)?))
    });
    asked.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await
}

/// `None` for a container that does not run.
fn counters(answer: &ContainerStatsResponse) -> Option<Counters> {
    let cpu = answer.cpu_stats.as_ref()?.cpu_usage.as_ref()?.total_usage?;
    let memory = answer.memory_stats.as_ref()?;
    let stats = memory.stats.as_ref();
    let droppable = stats.and_then(|stats| stats.get("inactive_file").or(stats.get("total_inactive_file")));
    let pids = answer.pids_stats.as_ref().and_then(|pids| pids.current);
    Some(Counters {
        cpu: Duration::from_nanos(cpu),
        memory_bytes: memory.usage?.saturating_sub(droppable.copied().unwrap_or(0)),
        pids: pids.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::{ContainerCpuStats, ContainerCpuUsage, ContainerMemoryStats, ContainerPidsStats};

    #[test]
    fn counts_are_read_without_droppable_caches() {
        let cpu_usage = ContainerCpuUsage { total_usage: Some(7), ..Default::default() };
        let stats = [("inactive_file".to_owned(), 40)].into();
        let answer = ContainerStatsResponse {
            cpu_stats: Some(ContainerCpuStats { cpu_usage: Some(cpu_usage), ..Default::default() }),
            memory_stats: Some(ContainerMemoryStats {
                usage: Some(100),
                stats: Some(stats),
                ..Default::default()
            }),
            pids_stats: Some(ContainerPidsStats { current: Some(3), ..Default::default() }),
            ..Default::default()
        };
        let used = Counters { cpu: Duration::from_nanos(7), memory_bytes: 60, pids: 3 };
        assert_eq!(counters(&answer), Some(used));
        assert_eq!(counters(&ContainerStatsResponse::default()), None);
    }
}
