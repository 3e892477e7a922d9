//! The command line.

use clap::{Parser, Subcommand};
use tokio::runtime;

use crate::{
    commands::{
        bench, call, cancel, completions, config, coordinator, dev, doctor, invocations, node, nodes, prompt,
        skill, skills, tools, watch, why,
    },
    exit::Failure,
};

/// Runs skills on a fleet: drop a directory with a skill.json and an executable on any host, call it from
/// anywhere, see what happens.
#[derive(Debug, Parser)]
#[command(name = "weft", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a coordinator and a node in one process, on loopback, to try things out
    Dev(dev::Dev),
    /// Run a coordinator: the service that callers talk to
    Coordinator(coordinator::Coordinator),
    /// Run a node: the daemon that offers and runs the skills of this host
    Node(node::Node),
    /// List the skills of the fleet, or show one
    Skills(skills::Skills),
    /// List the nodes
    Nodes(nodes::Nodes),
    /// Run a skill and print its result
    Call(call::Call),
    /// Say, node by node, why a skill can or cannot run
    Why(why::Why),
    /// Follow an invocation: its stderr, and its result at the end
    Watch(watch::Watch),
    /// End an invocation
    Cancel(cancel::Cancel),
    /// List invocations
    Invocations(invocations::Invocations),
    /// Print the list of skills that goes into an agent's system prompt, and what it costs
    Prompt(prompt::Prompt),
    /// Print the skills as tool definitions for a model's interface
    Tools(tools::Tools),
    /// Check a configuration file, or print one with every key
    Config(config::Config),
    /// Write, check and try out a skill, without a coordinator
    Skill(skill::Skill),
    /// Say what this host offers a node, and what is missing
    Doctor(doctor::Doctor),
    /// Measure what weft adds to the start of a process, on this machine
    Bench(bench::Bench),
    /// Print a completion script for a shell
    Completions(completions::Completions),
}

impl Command {
    /// What is logged unless `WEFT_LOG` says otherwise.
    pub(crate) fn default_log(&self) -> &'static str {
        match self {
            Self::Coordinator(_) | Self::Node(_) => "info",
            Self::Dev(_) => "warn,weft_config=info,weft_coordinator=info,weft_node=info,weft_skills=info",
            Self::Skills(_)
            | Self::Nodes(_)
            | Self::Call(_)
            | Self::Why(_)
            | Self::Watch(_)
            | Self::Cancel(_)
            | Self::Invocations(_)
            | Self::Bench(_)
            | Self::Prompt(_)
            | Self::Tools(_)
            | Self::Config(_)
            | Self::Completions(_) => "warn",
            // They say themselves what a log would say.
            Self::Skill(_) | Self::Doctor(_) => "error",
        }
    }

    /// The name under which it sends telemetry, if it is a daemon. What a command does is seen in the trace of its
    /// coordinator.
    pub(crate) fn daemon(&self) -> Option<&'static str> {
        match self {
            Self::Dev(_) => Some("weft-dev"),
            Self::Coordinator(_) => Some("weft-coordinator"),
            Self::Node(_) => Some("weft-node"),
            Self::Skills(_)
            | Self::Nodes(_)
            | Self::Call(_)
            | Self::Why(_)
            | Self::Watch(_)
            | Self::Cancel(_)
            | Self::Invocations(_)
            | Self::Prompt(_)
            | Self::Tools(_)
            | Self::Config(_)
            | Self::Skill(_)
            | Self::Doctor(_)
            | Self::Bench(_)
            | Self::Completions(_) => None,
        }
    }

    /// A node and every command get one thread: what is heavy there has threads of its own, and handing work from one
    /// to another costs more than the work. A coordinator gets more where there are cores for them.
    pub(crate) fn runtime(&self) -> runtime::Builder {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = match self {
            Self::Dev(_) | Self::Coordinator(_) => (cores / 2).clamp(1, 4),
            _ => 1,
        };
        let mut builder = match threads {
            1 => runtime::Builder::new_current_thread(),
            _ => runtime::Builder::new_multi_thread(),
        };
        if threads > 1 {
            builder.worker_threads(threads);
        }
        builder.enable_all();
        builder
    }

    pub(crate) async fn run(self) -> Result<u8, Failure> {
        match self {
            Self::Dev(command) => command.run().await,
            Self::Coordinator(command) => command.run().await,
            Self::Node(command) => command.run().await,
            Self::Skills(command) => command.run().await,
            Self::Nodes(command) => command.run().await,
            Self::Call(command) => command.run().await,
            Self::Why(command) => command.run().await,
            Self::Watch(command) => command.run().await,
            Self::Cancel(command) => command.run().await,
            Self::Invocations(command) => command.run().await,
            Self::Prompt(command) => command.run().await,
            Self::Tools(command) => command.run().await,
            Self::Config(command) => command.run(),
            Self::Skill(command) => command.run().await,
            Self::Doctor(command) => command.run().await,
            Self::Bench(command) => command.run().await,
            Self::Completions(command) => command.run(),
        }
    }
}
