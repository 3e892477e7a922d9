//! What is measured, one phase after the other.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use tokio::{runtime, task::LocalSet, time::sleep};
use weft_client::Coordinator;
use weft_proto::v1::{ListSkillsRequest, SkillView, catalog_service_client::CatalogServiceClient};

use crate::{
    caller::{self, Calls},
    coordinator::Process,
    node::Fleet,
    offer,
    usage::{Cpu, Memory},
};

/// Between two looks at the catalog while nodes arrive.
const LOOK: Duration = Duration::from_millis(50);
/// How long a fleet may take to arrive or to come back.
const ARRIVAL: Duration = Duration::from_secs(300);
/// One node in so many closes its link within each second.
const FLAPPING: usize = 100;

/// How large a fleet is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) skills: usize,
}

/// What was used in one phase.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    pub(crate) took: Duration,
    pub(crate) cpu: Cpu,
    /// Sessions opened, and tries that failed.
    pub(crate) opened: usize,
    pub(crate) failed: usize,
    /// At its end.
    pub(crate) memory: Memory,
}

/// Everything that was measured with one size.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) size: Size,
    pub(crate) away: Duration,
    pub(crate) phases: Vec<Phase>,
    pub(crate) calm: Calls,
    pub(crate) flapping: Calls,
    /// How many links were closed while skills were listed.
    pub(crate) flaps: usize,
    /// From the start of the second coordinator until half, 99 of a hundred and all nodes had a session again, and all
    /// were in the catalog.
    pub(crate) back: Back,
}

#[derive(Debug, Default)]
pub(crate) struct Back {
    pub(crate) half: Duration,
    pub(crate) most: Duration,
    pub(crate) all: Duration,
    pub(crate) in_catalog: Duration,
}

/// Names of phases.
pub(crate) const ARRIVE: &str = "arrive";
pub(crate) const IDLE: &str = "idle";
pub(crate) const CALM: &str = "list";
pub(crate) const FLAP: &str = "list, 1 % flap";
pub(crate) const RETURN: &str = "come back";

/// Measures one size.
pub(crate) fn run(program: &Path, keep: bool, size: Size, length: Duration, away: Duration) -> Run {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = LocalSet::new();
    let mut process = Process::start(program, keep, size.skills);
    let run = local.block_on(&runtime, measure(&mut process, size, length, away));
    // Connections that are still being closed are of no interest.
    runtime.shutdown_background();
    run
}

/// A phase under way.
struct Begun {
    name: &'static str,
    at: Instant,
    cpu: Cpu,
    tries: (usize, usize),
}

impl Begun {
    fn new(name: &'static str, process: &Process, fleet: Option<&Fleet>) -> Self {
        let tries = fleet.map(Fleet::tries).unwrap_or_default();
        Self { name, at: Instant::now(), cpu: Cpu::look(process.pid()), tries }
    }

    fn end(self, process: &Process, fleet: &Fleet) -> Phase {
        let (opened, failed) = fleet.tries();
        Phase {
            name: self.name,
            took: self.at.elapsed(),
            cpu: Cpu::look(process.pid()).since(self.cpu),
            opened: opened - self.tries.0,
            failed: failed - self.tries.1,
            memory: Memory::look(process.pid()),
        }
    }
}

async fn measure(process: &mut Process, size: Size, length: Duration, away: Duration) -> Run {
    let coordinator = process.address();
    let mut phases = Vec::new();

    let begun = Begun::new(ARRIVE, process, None);
    let fleet = Fleet::start(coordinator.clone(), size.nodes, size.skills);
    complete(&coordinator, &fleet, size, |_| {}).await;
    phases.push(begun.end(process, &fleet));

    // What arrives leaves some work behind, which is not the next phase's.
    sleep(Duration::from_secs(1).min(length)).await;
    let begun = Begun::new(IDLE, process, Some(&fleet));
    sleep(length / 2).await;
    phases.push(begun.end(process, &fleet));

    let begun = Begun::new(CALM, process, Some(&fleet));
    let calm = calls(&coordinator, length).await;
    phases.push(begun.end(process, &fleet));

    let begun = Begun::new(FLAP, process, Some(&fleet));
    let (flapping, flaps) = tokio::join!(calls(&coordinator, length), flap(&fleet, size.nodes, length));
    phases.push(begun.end(process, &fleet));

    process.kill();
    sleep(away).await;
    let at = Instant::now();
    process.restart();
    let begun = Begun { at, ..Begun::new(RETURN, process, Some(&fleet)) };
    let mut back = Back::default();
    complete(&coordinator, &fleet, size, |up| {
        let now = at.elapsed();
        let reached = |share: usize, already: &mut Duration| {
            if already.is_zero() && up >= (size.nodes * share).div_ceil(100) {
                *already = now;
            }
        };
        reached(50, &mut back.half);
        reached(99, &mut back.most);
        reached(100, &mut back.all);
    })
    .await;
    back.in_catalog = at.elapsed();
    phases.push(begun.end(process, &fleet));
    fleet.end().await;
    Run { size, away, phases, calm, flapping, flaps, back }
}

/// Waits until every skill is there on every node, and all that can run it are ready to; tells meanwhile how many links
/// are up.
async fn complete(coordinator: &Coordinator, fleet: &Fleet, size: Size, mut up: impl FnMut(usize)) {
    let mut catalog = CatalogServiceClient::new(coordinator.channel());
    let expected: Vec<(usize, usize)> =
        (0..size.skills).map(|skill| (size.nodes, offer::able(size.nodes, skill))).collect();
    let begun = Instant::now();
    loop {
        up(fleet.up());
        let request = ListSkillsRequest {
            page_size: 1000,
            // Before the first key, and yet no first page: that one looks for diagnostics as well.
            page_token: "0".into(),
            view: SkillView::Basic.into(),
            include_ineligible: true,
            ..Default::default()
        };
        let counts: Vec<(usize, usize)> = match catalog.list_skills(request).await {
            Ok(page) => {
                let skills = &page.get_ref().skills;
                skills.iter().map(|skill| (skill.nodes as usize, skill.eligible_nodes as usize)).collect()
            }
            // It may not listen yet.
            Err(_) => Vec::new(),
        };
        if counts == expected {
            up(fleet.up());
            return;
        }
        assert!(
            begun.elapsed() < ARRIVAL,
            "{} of {} links are up after {ARRIVAL:?}; the last failure: {}",
            fleet.up(),
            size.nodes,
            fleet.failure()
        );
        sleep(LOOK).await;
    }
}

/// Lists skills on another thread: what the simulator does meanwhile must not be in the latencies, as far as there are
/// cores for both.
async fn calls(coordinator: &Coordinator, length: Duration) -> Calls {
    let coordinator = coordinator.clone();
    tokio::task::spawn_blocking(move || caller::call(&coordinator, length)).await.unwrap()
}

/// Lets one node in a hundred close its link within each second, another one each time. Returns how often.
async fn flap(fleet: &Fleet, nodes: usize, length: Duration) -> usize {
    let each_second = nodes.div_ceil(FLAPPING);
    let between = Duration::from_secs(1) / u32::try_from(each_second).unwrap();
    let begun = Instant::now();
    let mut flaps = 0;
    while begun.elapsed() < length {
        // Neighbours lie far apart, so that a node flaps again only after all others did.
        fleet.flap(flaps * 7919 % nodes);
        flaps += 1;
        let next = begun + between * u32::try_from(flaps).unwrap();
        sleep(next.saturating_duration_since(Instant::now())).await;
    }
    flaps
}
