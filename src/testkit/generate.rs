//! Random jobs and machines for the world.

use std::time::Duration;

use quorate_base::rand::Rng;
use quorate_model::{
    Constraint, Invalid, JobKind, JobSpec, Name, NodeFacts, Port, ReschedulePolicy, Resources,
    RestartCondition, Strategy,
};
use quorate_state::lab;

/// Names of the services; a name keeps its type for ever.
pub const SERVICES: [&str; 3] = ["web", "api", "cache"];
/// Names of the batches.
pub const BATCHES: [&str; 2] = ["import", "report"];

/// One of `choices`, which must not be empty, with its first as the fallback.
pub fn pick<T: Copy>(rng: &mut Rng, choices: &[T], fallback: T) -> T {
    rng.pick(choices).copied().unwrap_or(fallback)
}

/// A machine: two zones, two sizes, all runtimes.
#[must_use]
pub fn facts(rng: &mut Rng) -> NodeFacts {
    let cpu_millis = pick(rng, &[2000, 4000], 2000);
    let mut facts = lab::facts(Resources { cpu_millis, memory_bytes: 4 << 30 });
    facts.labels.insert("zone".to_owned(), pick(rng, &["a", "b"], "a").to_owned());
    facts.reserved = Resources { cpu_millis: 100, memory_bytes: 64 << 20 };
    facts
}

/// A job of the given name with everything else at random.
///
/// Its waits are seconds, so that a run of a few minutes sees whole rows of failures.
///
/// # Errors
/// Never for the names above.
pub fn job(rng: &mut Rng, name: &str) -> Result<JobSpec, Invalid> {
    let kind = if BATCHES.contains(&name) {
        let (completions, parallelism) = (rng.between(1, 6), rng.between(1, 3));
        JobKind::Batch { completions: completions as u32, parallelism: parallelism as u32 }
    } else {
        JobKind::Service { replicas: rng.between(0, 8) as u32 }
    };
    let image = format!("app:{}", rng.below(3));
    let mut spec = lab::with_image(lab::spec(name, kind)?, &image);
    let reserve = Resources { cpu_millis: pick(rng, &[100, 300, 900], 100), memory_bytes: 64 << 20 };
    spec.containers.values_mut().for_each(|c| c.reserve = reserve);
    spec.priority = rng.between(40, 60) as u8;
    spec.reschedule = ReschedulePolicy {
        attempts: pick(rng, &[None, None, None, Some(0), Some(2)], None),
        delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(8),
    };
    spec.restart.condition = pick(
        rng,
        &[RestartCondition::Any, RestartCondition::Any, RestartCondition::OnFailure, RestartCondition::Never],
        RestartCondition::Any,
    );
    place(rng, &mut spec)?;
    Ok(spec)
}

fn place(rng: &mut Rng, spec: &mut JobSpec) -> Result<(), Invalid> {
    spec.placement.strategy = pick(rng, &[None, Some(Strategy::Spread), Some(Strategy::Binpack)], None);
    spec.placement.max_per_node = pick(rng, &[0, 0, 0, 1, 2], 0);
    let constraint = pick(
        rng,
        &["", "", "", "node.labels.zone == a", "node.labels.zone != a", "node.labels.zone == nowhere"],
        "",
    );
    if !constraint.is_empty() {
        spec.placement.constraints = vec![Constraint::parse("constraint", constraint)?];
    }
    if rng.chance(0.2) {
        let host = pick(rng, &[8080, 9090], 8080);
        spec.ports =
            [(Name::parse("port", "http")?, Port { container: 80, host: Some(host), udp: false })].into();
    }
    Ok(())
}
