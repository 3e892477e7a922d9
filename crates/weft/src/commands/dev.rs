//! `weft dev`: a coordinator and a node in one process, ready in a moment.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;
use weft_client::{Client, SkillQuery};
use weft_core::policy::Allowed;
use weft_daemon::{Drain, Readiness, signal::Signals};
use weft_node::Config;
use weft_proto::v1;

use super::{coordinator, node::absolute};
use crate::{
    exit::{self, Failure},
    output,
};

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Directory whose skills are offered; may be given several times [default: ./skills, or a sample]
    #[arg(long = "skills", value_name = "DIR")]
    skill_dirs: Vec<PathBuf>,
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
        let (skill_dirs, sample) = self.skill_dirs(scratch.path())?;

        let listener = coordinator::bind(self.listen).await?;
        let address = listener.local_addr().context("the listener's address")?;
        let mut node = Config::new(scratch.path().join("node"), skill_dirs.clone());
        node.coordinator = format!("http://{address}").parse().map_err(Failure::usage)?;
        node.drain = Duration::from_secs(10);
        let client = Client::new(node.coordinator.clone());
        let node = tokio::task::spawn_blocking(move || weft_node::Node::build(node))
            .await
            .context("build the node")?
            .context("cannot start the node")?;
        let config = weft_coordinator::Config {
            name: "dev".into(),
            allow: self.allow,
            ..weft_coordinator::Config::default()
        };
        let coordinator = weft_coordinator::Coordinator::build(config);

        let (node_drain, coordinator_drain) = (Drain::new(), Drain::new());
        let readiness = Readiness::default();
        let offered = node.offers();
        let greet = async {
            let skills = first_look(&client, offered).await;
            greet(address, &skill_dirs, sample, &skills)?;
            std::future::pending::<anyhow::Result<()>>().await
        };
        let node = async {
            node.run(node_drain.clone(), &readiness).await;
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
        }
        Ok(exit::OK)
    }

    /// The directories to offer, and whether they are the sample.
    fn skill_dirs(&self, scratch: &Path) -> anyhow::Result<(Vec<PathBuf>, bool)> {
        if !self.skill_dirs.is_empty() {
            return Ok((absolute(self.skill_dirs.clone())?, false));
        }
        let here = absolute(vec!["skills".into()])?;
        if here[0].is_dir() {
            return Ok((here, false));
        }
        let sample = scratch.join("skills");
        write_sample(&sample).context("write the sample skill")?;
        Ok((vec![sample], true))
    }
}

const SAMPLE_MANIFEST: &str = r#"{
  "name": "hello",
  "description": "Greets somebody and says on stderr what it is doing. A sample: change it and call it again.",
  "schema": {
    "type": "object",
    "properties": {"name": {"type": "string", "description": "Who is greeted."}},
    "required": ["name"],
    "additionalProperties": false
  },
  "entry": "run.sh",
  "class": "safe",
  "category": "sample",
  "timeout_seconds": 10
}
"#;

const SAMPLE_ENTRY: &str = r#"#!/bin/sh
# stdin is the args object, stdout the result object, stderr what a person sees meanwhile.
IFS= read -r args
echo "hello: asked with $args" >&2
printf '{"greeting":"hello from weft","asked":%s}\n' "$args"
"#;

fn write_sample(dir: &Path) -> anyhow::Result<()> {
    let skill = dir.join("hello");
    fs::create_dir_all(&skill)?;
    fs::write(skill.join("run.sh"), SAMPLE_ENTRY)?;
    fs::set_permissions(skill.join("run.sh"), fs::Permissions::from_mode(0o755))?;
    fs::write(skill.join("skill.json"), SAMPLE_MANIFEST)?;
    Ok(())
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

/// How to call this very program from a shell.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "weft".into() };
    let on_path = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path)
            .map(|dir| dir.join("weft"))
            .find(|candidate| candidate.is_file())
            .is_some_and(|found| found.canonicalize().ok() == own.canonicalize().ok())
    });
    match on_path {
        true => "weft".into(),
        false => quoted(&own.display().to_string()),
    }
}

/// Args with which a skill can be called, as they are typed: `None` when they cannot be guessed.
fn sample_args(skill: &v1::Skill) -> Option<String> {
    let definition = skill.definition.as_ref()?;
    if definition.kind() != v1::SkillKind::Executable || skill.class() != v1::SkillClass::Safe {
        return None;
    }
    let schema: Value = serde_json::from_str(&definition.schema).ok()?;
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let words: Option<Vec<_>> = required
        .iter()
        .map(|name| {
            let name = name.as_str()?;
            let member = schema.pointer(&format!("/properties/{name}"))?;
            let given = ["default", "const"].iter().find_map(|key| member.get(key));
            let listed = ["examples", "enum"].iter().find_map(|key| member.get(key)?.get(0));
            let value = match (given.or(listed), member.get("type").and_then(Value::as_str)) {
                (Some(Value::String(text)), _) => text.clone(),
                (Some(value), _) => value.to_string(),
                // Free text takes anything, unless more is asked of it.
                (None, Some("string")) if member.get("pattern").or(member.get("format")).is_none() => {
                    "world".into()
                }
                (None, Some("boolean")) => "true".into(),
                (None, _) => return None,
            };
            Some(quoted(&format!("{name}={value}")))
        })
        .collect();
    Some(words?.join(" "))
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        assert_eq!(quoted("name=world"), "name=world");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("a b"), "'a b'");
    }
}
