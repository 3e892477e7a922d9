//! A kernel that lists the skills of its agent, again and again, on a thread and a connection of its own.

use std::time::{Duration, Instant};

use tokio::{
    runtime,
    time::{MissedTickBehavior, interval},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use weft_client::Coordinator;
use weft_proto::v1::{ListSkillsRequest, catalog_service_client::CatalogServiceClient};

use crate::coordinator::AGENT;

/// Between two calls. A caller that never waits would measure mostly itself.
const EVERY: Duration = Duration::from_millis(10);

/// How long calls took.
#[derive(Debug)]
pub(crate) struct Calls {
    /// `ListSkills`.
    pub(crate) list: Latencies,
    /// A health check just before it: the same way to the same process, and nothing done there. What it takes is the
    /// machine's and the transport's.
    pub(crate) check: Latencies,
    /// Skills in the last list.
    pub(crate) listed: usize,
}

/// Sorted.
#[derive(Debug)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The least latency that so many calls of a hundred did not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0[rank - 1]
    }

    pub(crate) fn most(&self) -> Duration {
        self.percentile(100)
    }
}

/// Calls for so long. Blocks.
pub(crate) fn call(coordinator: &Coordinator, length: Duration) -> Calls {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = coordinator.endpoint().connect().await.unwrap();
        let (mut catalog, mut health) =
            (CatalogServiceClient::new(channel.clone()), HealthClient::new(channel));
        let (mut list, mut check, mut listed) = (Vec::new(), Vec::new(), 0);
        let mut tick = interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begun = Instant::now();
        while list.is_empty() || begun.elapsed() < length {
            tick.tick().await;
            let before = Instant::now();
            health.check(HealthCheckRequest::default()).await.unwrap();
            let between = Instant::now();
            let request = ListSkillsRequest { agent: AGENT.into(), ..Default::default() };
            let page = catalog.list_skills(request).await.unwrap().into_inner();
            list.push(between.elapsed());
            check.push(between - before);
            listed = page.skills.len();
        }
        list.sort();
        check.sort();
        Calls { list: Latencies(list), check: Latencies(check), listed }
    })
}
