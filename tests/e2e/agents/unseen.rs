//! A skill outside an agent's list is a skill that nobody has: every way to ask says so in the same words, and no list
//! names it.

use std::{fmt::Debug, fs};

use serde_json::json;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use weft_proto::{
    status,
    v1::{
        self, catalog_service_client::CatalogServiceClient,
        invocation_service_client::InvocationServiceClient, session_service_client::SessionServiceClient,
        watch_catalog_response::Message,
    },
};
use weft_testkit::{Daemon, Fabric, Skill, Spec, skill::put};

use crate::{
    operator::{Operator, SECONDS, wait_for_skills, wait_until_seen},
    runtime,
};

const AGENT: &str = "blind";
/// What the agent must not learn of; nothing else in the fleet has this word in it.
const HIDDEN: &str = "secret_plan";
/// A name that nobody has.
const ABSENT: &str = "absent_name";

/// A node with what the agent sees, what it does not, and what does not load of both.
fn fleet(operator: &Operator) -> (Fabric, Daemon) {
    let fabric = operator
        .coordinator(json!({"agents": {"list": [{"id": AGENT, "skills": ["shown", "shown-broken"]}]}}));
    let broken = |name: &str| Skill::echo(name).with("class", json!("SAFE"));
    let skills = [
        Skill::echo("shown"),
        Skill::echo(HIDDEN),
        Skill::echo(HIDDEN).in_directory("zz_secret_copy"),
        broken("shown_broken"),
        broken("secret_broken"),
    ];
    put(&fabric.skills_of("host").join(HIDDEN).join("notes.txt"), "secret notes");
    let node = fabric.node("host", &skills, &Spec::new());
    wait_for_skills(&fabric, 2);
    (fabric, node)
}

async fn connect(fabric: &Fabric) -> Channel {
    Endpoint::from_shared(format!("http://{}", fabric.address())).unwrap().connect().await.unwrap()
}

async fn session(channel: &Channel) -> v1::OpenSessionResponse {
    let request = v1::OpenSessionRequest { agent: AGENT.into() };
    SessionServiceClient::new(channel.clone()).open_session(request).await.unwrap().into_inner()
}

fn host() -> Option<v1::Target> {
    Some(v1::Target { target: Some(v1::target::Target::Node("host".into())) })
}

/// Everything that can be asked of a skill by its name, and what the answer was.
struct Asking {
    channel: Channel,
    /// An open session of the agent.
    session: String,
    /// The digest that the hidden skill has.
    digest: String,
}

impl Asking {
    async fn of(fabric: &Fabric) -> Self {
        let channel = connect(fabric).await;
        let session = session(&channel).await.session.unwrap().id;
        // Known from elsewhere, such as another agent.
        let digest = fabric.client().get_skill(HIDDEN, "").await.unwrap().digest;
        Self { channel, session, digest }
    }

    /// The answers to all that can be asked, in the same order for every name. In place of the key stands `KEY`.
    async fn all(&self, name: &str, key: &str) -> Vec<String> {
        let mut answers = self.catalog(name, key).await;
        answers.extend(self.invocations(name).await);
        answers.into_iter().map(|answer| answer.replace(key, "KEY")).collect()
    }

    async fn catalog(&self, name: &str, key: &str) -> Vec<String> {
        let mut service = CatalogServiceClient::new(self.channel.clone());
        let (skill, agent) = (name.to_owned(), AGENT.to_owned());
        let mut answers = vec![refusal(
            "GetSkill",
            service.get_skill(v1::GetSkillRequest { skill: skill.clone(), agent: agent.clone() }).await,
        )];
        for (target, digest) in [(None, ""), (host(), ""), (None, self.digest.as_str())] {
            let (skill, agent, digest) = (skill.clone(), agent.clone(), digest.to_owned());
            let request = v1::ExplainSkillRequest { skill, agent, target, digest };
            answers.push(refusal("ExplainSkill", service.explain_skill(request).await));
        }
        let location = |path: &str| format!("weft://skills/{key}/{path}");
        for (skill, path, digest) in [
            (skill.clone(), "", ""),
            (skill.clone(), "SKILL.md", ""),
            (skill.clone(), "notes.txt", ""),
            (skill.clone(), "", self.digest.as_str()),
            (location("SKILL.md"), "", ""),
            (location("notes.txt"), "", ""),
        ] {
            let (path, digest) = (path.to_owned(), digest.to_owned());
            let request = v1::ReadSkillFileRequest { skill, path, agent: agent.clone(), digest };
            answers.push(refusal("ReadSkillFile", service.read_skill_file(request).await));
        }
        answers
    }

    async fn invocations(&self, name: &str) -> Vec<String> {
        let mut service = InvocationServiceClient::new(self.channel.clone());
        let plain = v1::InvocationRequest {
            skill: name.into(),
            args: b"{}".to_vec().into(),
            agent: AGENT.into(),
            ..Default::default()
        };
        let ways = [
            plain.clone(),
            v1::InvocationRequest { digest: self.digest.clone(), ..plain.clone() },
            v1::InvocationRequest { target: host(), ..plain.clone() },
            v1::InvocationRequest { target: host(), digest: self.digest.clone(), ..plain.clone() },
            v1::InvocationRequest { args: b"[".to_vec().into(), ..plain.clone() },
            v1::InvocationRequest { session_id: self.session.clone(), ..plain.clone() },
            v1::InvocationRequest { session_id: self.session.clone(), agent: String::new(), ..plain },
        ];
        let mut answers = Vec::new();
        for way in ways {
            let invocation = Some(way);
            let request = v1::CreateInvocationRequest { invocation: invocation.clone() };
            answers.push(refusal("CreateInvocation", service.create_invocation(request).await));
            answers.push(refusal("Invoke", service.invoke(v1::InvokeRequest { invocation }).await));
        }
        answers
    }
}

/// The whole refusal in words; it must be that of an unknown skill.
#[track_caller]
fn refusal<T: Debug>(call: &str, answer: Result<T, Status>) -> String {
    let refused = status::read(&answer.unwrap_err());
    assert_eq!(refused.reason, "SKILL_NOT_FOUND", "{call}: {refused:?}");
    format!("{call}: {refused:?}")
}

#[test]
fn a_skill_outside_the_list_answers_as_unknown_by_every_name_and_call() {
    let operator = Operator::new();
    let (fabric, _node) = fleet(&operator);
    runtime().block_on(async {
        let asking = Asking::of(&fabric).await;
        let unknown = asking.all(ABSENT, ABSENT).await;
        assert_eq!(unknown.len(), 24);
        for name in [HIDDEN, "secret-plan", "Secret Plan", "SECRET.PLAN"] {
            assert_eq!(asking.all(name, HIDDEN).await, unknown, "{name}");
        }
        // One that does not load is no more known.
        assert_eq!(asking.all("secret-broken", "secret_broken").await, unknown);
        assert!(fabric.json(&["invocations"]).unwrap().as_array().unwrap().is_empty());
    });
}

/// Asserts that an answer speaks of what the agent sees, and of nothing else.
#[track_caller]
fn silent(what: &str, answer: &impl Debug) {
    let text = format!("{answer:?}");
    assert!(text.contains("shown"), "{what}: {text}");
    assert!(!text.contains("secret"), "{what}: {text}");
}

#[test]
fn a_skill_outside_the_list_is_in_no_list() {
    let operator = Operator::new();
    let (fabric, _node) = fleet(&operator);
    runtime().block_on(async {
        let channel = connect(&fabric).await;
        let mut catalog = CatalogServiceClient::new(channel.clone());
        for (target, page_token) in [(None, ""), (host(), ""), (None, "secret_p")] {
            let request = v1::ListSkillsRequest {
                agent: AGENT.into(),
                view: v1::SkillView::Full.into(),
                include_ineligible: true,
                page_token: page_token.into(),
                target,
                ..Default::default()
            };
            let page = catalog.list_skills(request).await.unwrap().into_inner();
            silent("ListSkills", &page);
            assert_eq!(page.skills.len(), 1);
            // Of the broken ones it hears of its own.
            assert_eq!(page.diagnostics.is_empty(), !page_token.is_empty());
        }
        let opened = session(&channel).await;
        silent("OpenSession", &opened.snapshot);
        for session_id in [String::new(), opened.session.unwrap().id] {
            let agent = if session_id.is_empty() { AGENT.to_owned() } else { String::new() };
            let request = v1::RenderPromptRequest { agent: agent.clone(), session_id: session_id.clone() };
            silent("RenderPrompt", &catalog.render_prompt(request).await.unwrap().into_inner());
            for dialect in 1..=4 {
                let (agent, session_id) = (agent.clone(), session_id.clone());
                let request = v1::ExportToolsRequest { agent, session_id, dialect };
                silent("ExportTools", &catalog.export_tools(request).await.unwrap().into_inner());
            }
        }
    });
}

/// What a watch of the agent says up to its next bookmark, and that bookmark.
async fn up_to_bookmark(stream: &mut tonic::Streaming<v1::WatchCatalogResponse>) -> (String, String) {
    let mut said = String::new();
    loop {
        let next = tokio::time::timeout(SECONDS, stream.message()).await.expect("a message in time");
        match next.unwrap().unwrap().message.unwrap() {
            Message::Bookmark(bookmark) => return (said, bookmark.resume_token),
            other => said.push_str(&format!("{other:?}\n")),
        }
    }
}

#[test]
fn a_watch_says_nothing_of_a_skill_outside_the_list_also_when_it_comes_and_goes() {
    let operator = Operator::new();
    let (fabric, _node) = fleet(&operator);
    let skills = fabric.skills_of("host");
    runtime().block_on(async {
        let watch = async |resume_token: String| {
            let request =
                v1::WatchCatalogRequest { agent: AGENT.into(), resume_token, include_ineligible: true };
            fabric.client().watch_catalog(request).await.unwrap()
        };
        let mut stream = watch(String::new()).await;
        let (first, token) = up_to_bookmark(&mut stream).await;
        assert!(first.contains("shown") && !first.contains("secret"), "{first}");

        // The hidden one changes, another comes, one goes; what the agent sees changes last.
        Skill::echo(HIDDEN).with("description", json!("other")).write(&skills);
        Skill::echo("secret_other").write(&skills);
        fs::remove_dir_all(skills.join("zz_secret_copy")).unwrap();
        wait_for_skills(&fabric, 3);
        fs::remove_dir_all(skills.join("secret_other")).unwrap();
        wait_for_skills(&fabric, 2);
        Skill::echo("shown").with("description", json!("last")).write(&skills);
        let mut later = String::new();
        while !later.contains("last") {
            later.push_str(&up_to_bookmark(&mut stream).await.0);
        }
        assert!(!later.contains("secret"), "{later}");

        // Who goes on from before all that is not told either what to remove.
        let (resumed, _) = up_to_bookmark(&mut watch(token).await).await;
        assert!(resumed.contains("last") && !resumed.contains("secret"), "{resumed}");
    });
}

#[test]
fn what_lies_in_a_workspace_is_unknown_to_every_other_agent_also_what_does_not_load() {
    let operator = Operator::new();
    let list = json!({"agents": {"list": [{"id": "writer", "workspace": "~/w"}, {"id": "reader"}]}});
    let fabric = operator.coordinator(list);
    let workspace = operator.path("workspace/skills");
    Skill::echo("secret_draft").write(&workspace);
    Skill::echo("secret_draft").in_directory("zz_secret_draft").write(&workspace);
    Skill::echo("secret_broken").with("class", json!("SAFE")).write(&workspace);
    let broken_copy = Skill::echo("shown").with("class", json!("SAFE")).in_directory("secret_copy");
    broken_copy.write(&workspace);
    let file = json!({"agents": {"list": [{"id": "writer", "workspace": operator.path("workspace")}]}});
    let _node = fabric.node("host", &[Skill::echo("shown")], &operator.node(file));
    wait_until_seen(&fabric, "writer", &["secret_draft", "shown"]);

    let ask = |agent: &str, args: &[&str]| {
        let mut all = args.to_vec();
        all.extend(["--agent", agent, "-o", "json"]);
        fabric.weft(&all)
    };
    for args in [&["skills"][..], &["skills", "shown"], &["why", "shown"]] {
        let told = ask("reader", args);
        assert!(told.code == 0 && !format!("{told:?}").contains("secret"), "{args:?}: {told:?}");
    }
    for name in ["secret_draft", "secret_broken"] {
        for args in [["skills", name], ["why", name]] {
            let told = ask("reader", &args);
            assert!(told.code == 3 && told.stderr.contains("SKILL_NOT_FOUND"), "{args:?}: {told:?}");
        }
    }
    // Its owner hears of all of it.
    assert!(ask("writer", &["skills", "secret_broken"]).stderr.contains("SKILL_INVALID"));
    assert!(ask("writer", &["why", "secret_broken"]).stdout.contains("SAFE"));
    assert!(ask("writer", &["skills"]).stdout.contains("zz_secret_draft"));
}
