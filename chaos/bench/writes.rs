//! Durable writes through gRPC at the leader: jobs without tasks, each acknowledged by a quorum's disks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use quorate_base::sync::lock;
use quorate_base::{Clock, RequestIds, TaskKind};

use crate::api::Api;
use crate::bench::{Plan, middle_and_tail, rate};
use crate::drills::Run;
use crate::report::{Spans, columns};
use crate::term::Term;
use crate::workload::{On, idle_service};

/// Clients that share one connection: a server takes at most 200 calls at once on each.
const PER_CONNECTION: usize = 64;
/// Deadline of one write.
const TRY: Duration = Duration::from_secs(10);
/// The jobs' namespace.
const NAMESPACE: &str = "writes";

/// Measures and prints.
///
/// # Errors
/// When a write is refused.
pub async fn print(plan: &Plan, leader: &Api, run: &Run, term: &Term) -> Result<()> {
    let mut rows = vec![["CLIENTS", "WRITES", "P50", "P99"].map(ToOwned::to_owned).to_vec()];
    for &clients in &plan.clients {
        let title = format!("{clients} clients write for {} s", plan.span.as_secs());
        let (spans, took) = term
            .step(&title, async |_| {
                let (spans, took) = measure(leader, run, clients, plan.span).await?;
                let told = rate(spans.len(), took);
                Ok(((spans, took), told))
            })
            .await?;
        let [p50, p99] = middle_and_tail(&spans);
        rows.push(vec![clients.to_string(), rate(spans.len(), took), p50, p99]);
    }
    term.heading("Durable writes through gRPC at the leader, 3 managers and the clients on this machine");
    columns(&rows).iter().for_each(|line| term.quote(line));
    Ok(())
}

async fn measure(leader: &Api, run: &Run, clients: usize, span: Duration) -> Result<(Spans, Duration)> {
    let clock = Clock::system();
    let group = run.group.child("bench");
    let measured = Arc::new(Mutex::new(Vec::new()));
    let connections: Vec<Api> = (0..clients.div_ceil(PER_CONNECTION))
        .map(|_| Api::new(&leader.name, &leader.address))
        .collect::<Result<_>>()?;
    let start = clock.monotonic();
    let end = start.saturating_add(span);
    for (number, api) in (0..clients).zip(connections.iter().cycle()) {
        let (api, ids, measured) = (api.clone(), Arc::clone(&run.ids), Arc::clone(&measured));
        let clock = clock.clone();
        group.spawn(TaskKind::critical("client").drains(), async move {
            let mut own = Vec::new();
            while clock.monotonic() < end {
                own.push(write(&api, &ids, clients, number, own.len()).await?);
            }
            lock(&measured).extend(own);
            Ok::<(), String>(())
        });
    }
    group.shutdown(span + TRY).await;
    let took = clock.monotonic().since(start);
    if let Some(failure) = group.failure() {
        bail!("a write was not acknowledged: {failure}");
    }
    let spans = lock(&measured).drain(..).collect();
    Ok((spans, took))
}

async fn write(
    api: &Api,
    ids: &RequestIds,
    clients: usize,
    number: usize,
    count: usize,
) -> Result<Duration, String> {
    let clock = Clock::system();
    let spec = idle_service(NAMESPACE, &format!("w-{clients}-{number}-{count}"), On::Fake, 0);
    let start = clock.monotonic();
    api.create(spec, &ids.generate(), TRY).await.map_err(|refused| refused.error)?;
    Ok(clock.monotonic().since(start))
}
