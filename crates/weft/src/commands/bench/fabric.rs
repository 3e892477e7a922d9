//! A coordinator and its nodes as processes, and calls through them.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use tokio::{task::JoinSet, time::sleep};
use weft_client::{Client, Coordinator, Followed, SkillQuery};
use weft_core::{
    event::EventKind,
    ids::Digest,
    invocation::Request,
    node::Target,
    outcome::{Final, Outcome},
};

use super::{
    Stop,
    cell::Call,
    daemon::Daemon,
    samples::{ARGS, Sample},
    usage::resident,
};

/// How long the skills may take to be in the catalog.
const LISTED: Duration = Duration::from_secs(20);
/// Between two looks at the catalog.
const LOOK: Duration = Duration::from_millis(10);

/// A coordinator, a node with the skills, and a node that answers by itself.
#[derive(Debug)]
pub(super) struct Fabric {
    client: Client,
    // In the order in which they end: nodes tell the coordinator how everything ended.
    node: Daemon,
    echo_node: Option<Daemon>,
    coordinator: Daemon,
}

/// Process ids of a coordinator and of the node that a call went to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parties {
    pub(super) coordinator: u32,
    pub(super) node: u32,
}

/// Resident memory, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resident {
    pub(super) coordinator: u64,
    pub(super) node: u64,
}

impl Fabric {
    /// Starts the processes and waits until every one of these skills can be called.
    pub(super) async fn start(scratch: &Path, samples: &[Sample], stop: &Stop) -> anyhow::Result<Self> {
        let mut coordinator = Daemon::start("coordinator", &["coordinator", "--listen", "127.0.0.1:0"])?;
        let ready = coordinator.logs("coordinator ready").await?;
        let address = ready["address"].as_str().unwrap_or_default().to_owned();
        let client = Client::new(address.parse::<Coordinator>().context("the coordinator's address")?);

        let text = |path: std::path::PathBuf| {
            path.into_os_string().into_string().map_err(|path| anyhow!("{} is not UTF-8", path.display()))
        };
        let (state, skills) = (text(scratch.join("state"))?, text(scratch.join("skills"))?);
        let mut args = vec!["node", "--coordinator", &address, "--name", "bench"];
        // What an interrupted run leaves is not waited for.
        args.extend(["--state-dir", &state, "--skills", &skills, "--drain", "1"]);
        let node = Daemon::start("node", &args)?;
        let echo_node = samples
            .contains(&Sample::Echo)
            .then(|| Daemon::start("echo node", &["bench", "--echo-node", &address]))
            .transpose()?;

        let fabric = Self { client, node, echo_node, coordinator };
        fabric.listed(samples, stop).await?;
        Ok(fabric)
    }

    /// Waits until every one of these skills can be called.
    async fn listed(&self, samples: &[Sample], stop: &Stop) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            stop.check()?;
            for daemon in [&self.coordinator, &self.node].into_iter().chain(&self.echo_node) {
                daemon.check()?;
            }
            // Only what can run now is listed.
            let listed = self.client.list_skills(&SkillQuery::default()).await?.skills;
            if samples.iter().all(|sample| listed.iter().any(|skill| skill.key == sample.key().as_str())) {
                return Ok(());
            }
            if begun.elapsed() > LISTED {
                return Err(self.node.failed("does not offer every skill"));
            }
            sleep(LOOK).await;
        }
    }

    /// The processes that serve a sample.
    pub(super) fn parties(&self, sample: Sample) -> Parties {
        let node = match (sample, &self.echo_node) {
            (Sample::Echo, Some(echo_node)) => echo_node,
            _ => &self.node,
        };
        Parties { coordinator: self.coordinator.pid(), node: node.pid() }
    }

    /// What the coordinator and the real node hold in memory now.
    pub(super) fn resident(&self) -> anyhow::Result<Resident> {
        Ok(Resident { coordinator: resident(self.coordinator.pid())?, node: resident(self.node.pid())? })
    }

    /// Calls a skill again and again, as many at the same time as there are callers, each of them at least once.
    pub(super) async fn calls(
        &self,
        sample: Sample,
        callers: usize,
        time: Duration,
        stop: &Stop,
    ) -> anyhow::Result<Vec<Call>> {
        let until = Instant::now() + time;
        let mut set = JoinSet::new();
        for _ in 0..callers {
            // Clones share one connection, as the calls of one kernel do.
            set.spawn(one_caller(self.client.clone(), request(sample)?, until, stop.clone()));
        }
        let mut calls = Vec::new();
        while let Some(caller) = set.join_next().await {
            calls.extend(caller??);
        }
        Ok(calls)
    }

    /// Ends the processes, in their order.
    pub(super) async fn end(self) {
        let Self { client, node, echo_node, coordinator } = self;
        drop(client);
        // On another thread: what is left of the connection closes on this one.
        let _ = tokio::task::spawn_blocking(move || drop((node, echo_node, coordinator))).await;
    }
}

fn request(sample: Sample) -> anyhow::Result<Request> {
    Ok(Request {
        caller: "local".parse()?,
        request_id: None,
        agent: None,
        skill: sample.key(),
        pinned: None,
        session: None,
        among: [].into(),
        args: Bytes::from_static(ARGS.as_bytes()),
        args_digest: Digest::of(ARGS.as_bytes()),
        target: Target::Any,
        budget: None,
        detach: false,
    })
}

async fn one_caller(
    client: Client,
    mut request: Request,
    until: Instant,
    stop: Stop,
) -> anyhow::Result<Vec<Call>> {
    let mut calls = Vec::new();
    loop {
        stop.check()?;
        // As every client of ours does.
        request.request_id = Some(uuid::Uuid::now_v7().to_string().parse()?);
        calls.push(call(&client, &request).await?);
        if Instant::now() >= until {
            return Ok(calls);
        }
    }
}

/// Follows one invocation to its end.
async fn call(client: &Client, request: &Request) -> anyhow::Result<Call> {
    let begun = Instant::now();
    let mut follow = client.invoke(request);
    let mut call = None;
    // Beyond the result, to the end of the stream: a caller that leaves early makes the transport do more.
    while let Some(followed) = follow.next().await {
        match followed? {
            Followed::Event(event) => {
                if let EventKind::Finished(last) = event.kind {
                    succeeded(&last)?;
                    let latency = begun.elapsed();
                    call = Some(Call { latency, outside: latency.saturating_sub(last.duration) });
                }
            }
            Followed::Interrupted { why } => bail!("the stream of an invocation broke: {why}"),
            Followed::Known(_) | Followed::Heartbeat | Followed::Resumed => {}
        }
    }
    call.ok_or_else(|| anyhow!("the stream of an invocation ended before it did"))
}

fn succeeded(last: &Final) -> anyhow::Result<()> {
    match last.outcome {
        Outcome::Succeeded => Ok(()),
        outcome => Err(anyhow!("an invocation ended as {outcome}: {}", last.message)),
    }
}
