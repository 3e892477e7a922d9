//! `weft dev`: a coordinator and a node in one process, ready in a moment.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use weft_client::{Client, SkillQuery};
use weft_config::NodeFile;
use weft_coordinator::Settings;
use weft_core::policy::Allowed;
use weft_daemon::{Drain, Readiness, signal::Signals};
use weft_node::Config;
use weft_proto::v1;

use super::{coordinator, node::absolute};
use crate::{
    args::example,
    compat::CompatOptions,
    configuration::{self, ConfigOption},
    exit::{self, Failure},
    output::{self, program},
    template::Template,
};

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Directory whose skills are offered; may be given several times [default: ./skills, or a sample]
    #[arg(long = "skills", value_name = "DIR")]
    skill_dirs: Vec<PathBuf>,
    /// Configuration file of a node, YAML or JSON; its `agents` hold for the coordinator as well. Read again when it
    /// changes
    #[arg(long = "config", value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    compat: CompatOptions,
    /// Address to listen on; loopback only
    #[arg(long, env = "WEFT_LISTEN", value_name = "ADDRESS", default_value_t = coordinator::default_listen())]
    listen: SocketAddr,
    /// Let skills up to this class run without a person's consent: mutating or dangerous
    #[arg(long, value_name = "CLASS")]
    allow: Option<Allowed>,
}

/// How long the first skills may take to be seen before the greeting goes out without them.
const FIRST_LOOK: Duration = Duration::from_secs(5);

impl Dev {
    pub(crate) async fn run(self) -> Result<u8, Failure> {
        let mut signals = Signals::catch().context("catch signals")?;
        let scratch =
            tempfile::Builder::new().prefix("weft-dev-").tempdir().context("make a scratch directory")?;
        let followed = ConfigOption { path: self.file.clone() }.open::<NodeFile>()?;
        let file = followed.first();
        let (skill_dirs, sample) = self.skill_dirs(&file, scratch.path())?;

        let listener = coordinator::bind(self.listen).await?;
        let address = listener.local_addr().context("the listener's address")?;
        let mut node = Config::new(scratch.path().join("node"), skill_dirs.clone());
        node.coordinator = format!("http://{address}").parse().map_err(Failure::usage)?;
        node.drain = Duration::from_secs(10);
        node.compat = self.compat.switches();
        let base = node.clone();
        if self.file.is_some() {
            node = say(&file, &base, &skill_dirs);
        }
        let client = Client::new(node.coordinator.clone());
        let node = tokio::task::spawn_blocking(move || weft_node::Node::build(node))
            .await
            .context("build the node")?
            .context("cannot start the node")?;
        let config = weft_coordinator::Config {
            name: "dev".into(),
            allow: self.allow,
            settings: settings(&file),
            ..weft_coordinator::Config::default()
        };
        let coordinator =
            weft_coordinator::Coordinator::build(config).context("cannot start the coordinator")?;

        let (node_handle, coordinator_handle) = (node.handle(), coordinator.handle());
        let managed = skill_dirs.clone();
        let follow = followed.follow(move |path, loaded| {
            node_handle.complain(loaded.broken.as_deref().map(|why| (path, why)));
            node_handle.configure(&say(&loaded.value, &base, &managed));
            coordinator_handle.configure(settings(&loaded.value));
        });
        let (node_drain, coordinator_drain) = (Drain::new(), Drain::new());
        let offered = node.offers();
        let greet = async {
            let skills = first_look(&client, offered).await;
            greet(address, &skill_dirs, sample, &skills)?;
            std::future::pending::<anyhow::Result<()>>().await
        };
        let node = async {
            node.run(node_drain.clone(), &Readiness::new(node_drain.clone())).await;
            // Last: the node tells it how everything ended.
            coordinator_drain.begin();
            Ok(())
        };
        let stop = async {
            signals.next().await;
            output::note("stopping; once more to stop at once");
            node_drain.begin();
            signals.next().await;
            node_drain.stop();
            coordinator_drain.stop();
            std::future::pending::<()>().await
        };
        let serve = async { tokio::try_join!(coordinator.run(listener, coordinator_drain.clone()), node) };
        tokio::select! {
            served = serve => drop(served.context("coordinator")?),
            greeted = greet => greeted?,
            () = stop => {}
            () = follow => {}
        }
        Ok(exit::OK)
    }

    /// The directories to offer, and whether they are the sample.
    fn skill_dirs(&self, file: &NodeFile, scratch: &Path) -> anyhow::Result<(Vec<PathBuf>, bool)> {
        if !self.skill_dirs.is_empty() {
            return Ok((absolute(self.skill_dirs.clone())?, false));
        }
        if let Some(written) = &file.skills.dirs {
            return Ok((written.clone(), false));
        }
        let here = absolute(vec!["skills".into()])?;
        if here[0].is_dir() {
            return Ok((here, false));
        }
        let sample = scratch.join("skills");
        Template::new("hello").write(&sample).context("write the sample skill")?;
        Ok((vec![sample], true))
    }
}

/// What the one file says for the node.
fn say(file: &NodeFile, base: &Config, managed: &[PathBuf]) -> Config {
    let mut config = base.clone();
    configuration::say_of_skills(file, managed.to_vec(), &mut config);
    // It is the coordinator's word as well, which knows of --allow.
    let agents = &mut config.agents;
    agents.list.values_mut().chain([&mut agents.defaults]).for_each(|agent| agent.permission_mode = None);
    config
}

/// What the one file says for the coordinator.
fn settings(file: &NodeFile) -> Settings {
    Settings { agents: file.agents.clone(), sessions_follow: file.skills.watch, ..Settings::default() }
}

/// What the fleet offers once all that the node offers is in the catalog.
async fn first_look(client: &Client, offered: usize) -> Vec<v1::Skill> {
    let look = async {
        loop {
            let query = SkillQuery { include_ineligible: true, ..SkillQuery::default() };
            let skills = client.list_skills(&query).await.unwrap_or_default().skills;
            if skills.len() >= offered {
                return skills;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(FIRST_LOOK, look).await.unwrap_or_default()
}

fn greet(address: SocketAddr, dirs: &[PathBuf], sample: bool, skills: &[v1::Skill]) -> anyhow::Result<()> {
    let weft = program();
    let at = match address == coordinator::default_listen() {
        true => String::new(),
        false => format!(" --coordinator http://{address}"),
    };
    let list: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    output::print(&format!(
        "weft is ready on http://{address} with {} skills from {}",
        skills.len(),
        list.join(", ")
    ))?;
    if sample {
        output::print(
            "(there is no ./skills here, so this is a sample; make one, or name another with --skills)",
        )?;
    }
    output::print("\nin another terminal:")?;
    output::print(&format!("  {weft} skills{at}"))?;
    let mut callable: Vec<_> = skills
        .iter()
        .filter(|skill| skill.eligible_nodes > 0)
        .filter_map(|skill| Some((skill, sample_args(skill)?)))
        .collect();
    // One that takes args shows more.
    callable.sort_by_key(|(_, args)| args.is_empty());
    if let Some((skill, args)) = callable.into_iter().next() {
        let args = if args.is_empty() { args } else { format!(" {args}") };
        output::print(&format!("  {weft} call{at} {}{args}", skill.key))?;
        output::print(&format!("  {weft} why{at} {}", skill.key))?;
    } else if let Some(skill) = skills.first() {
        output::print(&format!("  {weft} why{at} {}", skill.key))?;
    }
    output::print(&format!("  {weft} invocations{at}"))?;
    output::print("\nCtrl-C stops it.")
}

/// Args with which a skill can be called, as they are typed: `None` when they cannot be guessed.
fn sample_args(skill: &v1::Skill) -> Option<String> {
    let definition = skill.definition.as_ref()?;
    if definition.kind() != v1::SkillKind::Executable || skill.class() != v1::SkillClass::Safe {
        return None;
    }
    example::of_schema(&definition.schema).map(|args| example::words(&args))
}
