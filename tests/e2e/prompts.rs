//! The prompt of an agent costs what the formula says, names what it cuts, and holds still within a turn.

use serde_json::{Value, json};
use weft_testkit::{Daemon, Fabric, Skill, Spec, eventually, skill::put};

use crate::{
    caller::Caller,
    fabric,
    operator::{Operator, SECONDS, wait_for_skills, wait_until_seen},
};

/// The length of a value once it is escaped, in characters.
fn escaped(value: &str) -> usize {
    let length = |c| match c {
        '&' => "&amp;".len(),
        '<' | '>' => "&lt;".len(),
        '"' | '\'' => "&quot;".len(),
        _ => 1,
    };
    value.chars().map(length).sum()
}

/// What one skill of a listing costs.
fn cost_of(skill: &Value) -> usize {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let location = format!("weft://skills/{}/SKILL.md", text(&skill["key"]));
    let (name, description) = (&skill["definition"]["name"], &skill["definition"]["description"]);
    97 + escaped(&text(name)) + escaped(&text(description)) + escaped(&location)
}

/// The skills that an agent can use.
fn usable(fabric: &Fabric, agent: &str) -> Vec<Value> {
    let listed = fabric.json(&["skills", "--agent", agent, "--eligible"]).unwrap();
    listed["skills"].as_array().unwrap().clone()
}

fn prompt(fabric: &Fabric, of: &[&str]) -> Value {
    fabric.json(&[&["prompt"], of].concat()).unwrap()
}

/// The keys of the skills listed.
fn listed(prompt: &Value) -> Vec<&str> {
    let all = prompt["listed"].as_array().unwrap();
    all.iter().map(|key| key.as_str().unwrap()).collect()
}

#[test]
fn a_prompt_costs_what_the_formula_says_to_the_character() {
    let fabric = fabric();
    let described = |name: &str, text: &str| Skill::echo(name).with("description", json!(text));
    let skills = [
        described("markup", "a <b> & \"c\" 'd' ]]> &amp; </description>"),
        described("wide", "𝔘nicode 🦀 ünd 日本語 👩‍🚀"),
        described("lines", "first\nsecond\r\n\tthird"),
        described("plain", "nothing special"),
    ];
    let front = "---\nname: Deploy-It\ndescription: \"how & when to 'deploy'\"\n---\n\nDo it.\n";
    put(&fabric.skills_of("host").join("deploy/SKILL.md"), front);
    let _node = fabric.node("host", &skills, &Spec::new());
    wait_for_skills(&fabric, 5);

    let rendered = prompt(&fabric, &["--agent", "a"]);
    let text = rendered["text"].as_str().unwrap();
    let cost = 195 + usable(&fabric, "a").iter().map(cost_of).sum::<usize>();
    assert_eq!((text.chars().count(), rendered["cost"].as_u64().unwrap()), (cost, cost as u64));
    assert_eq!(listed(&rendered), ["deploy_it", "lines", "markup", "plain", "wide"]);
    assert!(text.contains("<name>Deploy-It</name>"), "{text}");
    assert!(text.contains("<location>weft://skills/deploy_it/SKILL.md</location>"), "{text}");
    let inert =
        "a &lt;b&gt; &amp; &quot;c&quot; &apos;d&apos; ]]&gt; &amp;amp; &lt;/description&gt;</description>\n";
    assert!(text.contains(inert), "{text}");
    assert!(text.contains("<description>first second   third</description>\n"), "{text}");
    assert!(text.contains("𝔘nicode 🦀 ünd 日本語 👩‍🚀"), "{text}");
    assert_eq!(text.matches("<skill>").count(), 5);

    // What a script reads is exactly that.
    let printed = fabric.weft(&["prompt", "--agent", "a"]);
    assert_eq!((printed.code, printed.stdout.as_str()), (0, text));
    assert!(printed.stderr.contains(&format!("{cost} characters, 5 skills")), "{}", printed.stderr);
    assert_eq!(prompt(&fabric, &[])["text"], text, "who is no agent sees the same here");
}

#[test]
fn where_there_is_nothing_to_list_the_prompt_is_empty() {
    let operator = Operator::new();
    let fabric = operator.coordinator(json!({"agents": {"list": [{"id": "none", "skills": []}]}}));
    let gated = Skill::echo("gated").with("metadata", json!({"requires": {"bins": ["weft_no_such_tool"]}}));
    let mut node = fabric.node("host", &[gated, Skill::echo("open")], &Spec::new());
    wait_for_skills(&fabric, 2);
    let caller = Caller::of(&fabric);
    let empty = |of: &[&str]| {
        let rendered = prompt(&fabric, of);
        assert_eq!((&rendered["text"], &rendered["cost"]), (&json!(""), &json!(0)), "{of:?}");
        let printed = fabric.weft(&[&["prompt"], of].concat());
        assert_eq!((printed.code, printed.stdout.as_str()), (0, ""), "{of:?}");
    };
    empty(&["--agent", "none"]);
    empty(&["--session", &caller.open_session("none").0]);
    assert_eq!(listed(&prompt(&fabric, &["--agent", "some"])), ["open"]);
    // Nor is there anything when the only node has left.
    node.kill();
    eventually("its absence", SECONDS, || usable(&fabric, "some").is_empty().then_some(()));
    empty(&["--agent", "some"]);
}

#[test]
fn what_hides_from_prompts_is_not_listed_and_still_there_by_name() {
    let fabric = fabric();
    let hidden = |name: &str, text: &str| {
        let front =
            format!("---\nname: {name}\ndescription: d\ndisable-model-invocation: true\n---\n\n{text}\n");
        put(&fabric.skills_of("host").join(name).join("SKILL.md"), front);
    };
    hidden("quiet", "Run it with care.");
    hidden("reading", "Read me by name.");
    let _node = fabric.node("host", &["quiet", "open"].map(Skill::echo), &Spec::new());
    wait_for_skills(&fabric, 3);
    let caller = Caller::of(&fabric);
    let (id, snapshot) = caller.open_session("a");
    for of in [["--agent", "a"], ["--session", &id]] {
        let rendered = prompt(&fabric, &of);
        assert_eq!(listed(&rendered), ["open"], "{of:?}");
        assert_eq!(rendered["cut"], json!([]), "it is not cut: there was room");
    }
    let hides: Vec<_> = snapshot.skills.iter().map(|skill| skill.hidden_from_prompts).collect();
    assert_eq!(hides, [false, true, true]);
    assert_eq!(fabric.call(&["quiet", "--agent", "a", "a=b"]), json!({"a": "b"}));
    assert_eq!(fabric.call(&["quiet", "--session", &id]), json!({}));
    let read = fabric.weft(&["skills", "reading", "--file", "SKILL.md", "--agent", "a"]);
    assert!(read.stdout.ends_with("Read me by name.\n"), "{read:?}");
}

/// A writer with a copy of its own, `zeta`, beside three that everybody has.
fn writers_fleet(operator: &Operator) -> (Fabric, Daemon) {
    let fabric = operator.coordinator(limited(&json!({})));
    Skill::echo("zeta").write(&operator.path("workspace/skills"));
    let file = json!({"agents": {"list": [{"id": "writer", "workspace": operator.path("workspace")}]}});
    let node = fabric.node("host", &["alpha", "beta", "gamma"].map(Skill::echo), &operator.node(file));
    wait_until_seen(&fabric, "writer", &["alpha", "beta", "gamma", "zeta"]);
    (fabric, node)
}

/// The coordinator's file with these limits of a prompt.
fn limited(limits: &Value) -> Value {
    json!({"agents": {"list": [{"id": "writer", "workspace": "~/w"}]}, "skills": {"limits": limits}})
}

#[test]
fn what_finds_no_room_is_named_with_its_bound_and_the_agents_own_copy_stays() {
    let operator = Operator::new();
    let (fabric, _node) = writers_fleet(&operator);
    let holds = |file: Value, keys: &[&str], bound: &str| {
        operator.say(file);
        let rendered = eventually(&format!("{keys:?} with {bound:?}"), SECONDS, || {
            let rendered = prompt(&fabric, &["--agent", "writer"]);
            let said = rendered["cut"].as_array().unwrap().iter().all(|cut| cut["reason"] == bound);
            (said && listed(&rendered) == keys).then_some(rendered)
        });
        let printed = fabric.weft(&["prompt", "--agent", "writer"]);
        for key in ["alpha", "beta", "gamma", "zeta"].iter().filter(|key| !keys.contains(key)) {
            assert!(printed.stderr.contains(&format!("left out: {key}: {bound}\n")), "{}", printed.stderr);
        }
        assert_eq!(
            rendered["text"].as_str().unwrap().chars().count() as u64,
            rendered["cost"].as_u64().unwrap()
        );
    };
    let bound = |chars: usize| format!("too many characters: the list holds {chars}");
    let skills = usable(&fabric, "writer");
    let [alpha, beta, gamma, zeta] = &skills[..] else { panic!("{skills:?}") };
    let cost = |skills: &[&Value]| 195 + skills.iter().map(|skill| cost_of(skill)).sum::<usize>();

    let most = json!({"maxSkillsInPrompt": 2});
    holds(limited(&most), &["alpha", "zeta"], "too many skills: the list holds 2");
    // To the character: one less, and one skill less is listed.
    let two = cost(&[alpha, zeta]);
    holds(limited(&json!({"maxSkillsPromptChars": two})), &["alpha", "zeta"], &bound(two));
    holds(limited(&json!({"maxSkillsPromptChars": two - 1})), &["zeta"], &bound(two - 1));
    let all = cost(&[alpha, beta, gamma, zeta]);
    holds(limited(&json!({"maxSkillsPromptChars": all})), &["alpha", "beta", "gamma", "zeta"], &bound(all));
    // What is said of the agent comes before what is said of all.
    let mut own = limited(&json!({"maxSkillsPromptChars": all}));
    own["agents"]["list"][0]["skillsLimits"] = json!({"maxSkillsPromptChars": two});
    holds(own, &["alpha", "zeta"], &bound(two));
    assert_eq!(listed(&prompt(&fabric, &["--agent", "reader"])), ["alpha", "beta", "gamma"]);
}

#[test]
fn the_prompt_of_a_session_changes_with_its_turn_and_not_before() {
    let fabric = fabric();
    let _node = fabric.node("host", &[Skill::echo("tool")], &Spec::new());
    let caller = Caller::of(&fabric);
    let (id, _) = caller.open_session("a");
    let text = |of: &[&str]| prompt(&fabric, of)["text"].as_str().unwrap().to_owned();
    let before = text(&["--session", &id]);
    assert_eq!(before, text(&["--agent", "a"]));

    let skills = fabric.skills_of("host");
    Skill::echo("tool").with("description", json!("of a later version")).write(&skills);
    Skill::echo("another").write(&skills);
    wait_for_skills(&fabric, 2);
    fabric
        .wait_for_skill("tool", SECONDS, |skill| skill["definition"]["description"] == "of a later version");
    assert_eq!(text(&["--session", &id]), before);
    let now = text(&["--agent", "a"]);
    assert!(now.contains("of a later version") && now.contains("another"), "{now}");
    caller.begin_turn(&id);
    assert_eq!(text(&["--session", &id]), now);
}
