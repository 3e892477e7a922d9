//! What time alone brings about: leases that end, invocations that nobody watches, outcomes that nobody knows.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{catalog::Keeper, config::Timings, invocations::Invocations, links, nodes::Nodes};

/// Between two sweeps.
const EVERY: Duration = Duration::from_millis(250);
/// A sweep that comes this much too late means that the coordinator itself stood still.
const STALL: Duration = Duration::from_secs(3);

/// Sweeps for ever.
pub(crate) async fn sweep(
    nodes: Arc<Nodes>,
    catalog: Arc<Keeper>,
    invocations: Arc<Invocations>,
    timings: Timings,
) {
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        tick.tick().await;
        let late = last.elapsed().saturating_sub(EVERY);
        last = Instant::now();
        if late > STALL {
            // Messages of the nodes wait unread; their silence was ours.
            tracing::warn!(late_ms = late.as_millis(), "the coordinator stood still; extending all leases");
            nodes.extend_leases();
        }
        for lost in nodes.end_leases(timings.lease) {
            let silent_s = lost.silent.as_secs();
            tracing::warn!(weft.node.id = %lost.node.id, node = %lost.node.name, silent_s, "node lost");
            catalog.withdraw(&lost.node.id, lost.epoch);
            invocations.node_lost(&lost).await;
        }
        for ask in catalog.overdue() {
            links::ask_for(&nodes, &ask.node, ask.epoch, &ask.digests);
        }
        invocations.sweep().await;
    }
}
