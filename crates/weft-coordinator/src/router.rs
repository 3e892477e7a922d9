//! Which node runs an invocation, and why another does not. Pure: it sees a catalog and nodes as they are.

use weft_core::{
    advert::Row,
    catalog::{Skill, Variant},
    ids::{Digest, NodeId},
    node::{Selector, Target},
    refusal::{Obstacle, Refusal},
    skill::Kind,
};

use crate::nodes::{Nodes, Presence, View};

/// Most providers of a skill that are all looked at for each call.
const FEW: usize = 64;
/// Most nodes that are drawn before all providers are looked at after all: where one node in thirty is a candidate, two
/// of so many mostly are.
const DRAWS: usize = 64;

/// A node that can take an invocation, and the files it would start.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<'a> {
    pub(crate) node: NodeId,
    pub(crate) variant: &'a Variant,
    outstanding: u32,
}

/// What a caller wants of the node.
#[derive(Debug, Clone)]
pub(crate) struct Wish<'a> {
    /// The one node that the caller names.
    node: Option<NodeId>,
    selector: Option<&'a Selector>,
    pinned: Option<Digest>,
    /// The digests that a session lets run, that of the variant it was shown first. Empty: any.
    among: &'a [Digest],
    sandboxed: bool,
}

impl<'a> Wish<'a> {
    /// What a target and a pinned digest ask for.
    ///
    /// # Errors
    /// When the target names a node that is not known, or several.
    pub(crate) fn new(target: &'a Target, pinned: Option<Digest>, nodes: &Nodes) -> Result<Self, Refusal> {
        let (node, selector) = match target {
            Target::Any => (None, None),
            Target::Node(name) => (Some(nodes.resolve(name)?), None),
            Target::Selector(selector) => (None, Some(selector)),
        };
        Ok(Self { node, selector, pinned, among: &[], sandboxed: false })
    }

    /// The same target, with these digests only; none means any.
    pub(crate) fn among(self, among: &'a [Digest]) -> Self {
        Self { among, ..self }
    }

    /// The same target, where it must run in a sandbox.
    pub(crate) fn in_sandbox(self, sandboxed: bool) -> Self {
        Self { sandboxed, ..self }
    }

    /// The same target with another digest.
    pub(crate) fn with_digest(self, digest: Digest) -> Self {
        Self { pinned: Some(digest), ..self }
    }

    /// The one node that the caller names.
    pub(crate) fn node(&self) -> Option<&NodeId> {
        self.node.as_ref()
    }

    /// Whether the caller says which files it means, so that those that are shown do not matter.
    fn is_exact(&self) -> bool {
        self.pinned.is_some() || self.node.is_some()
    }

    /// The variant whose args a call means that names neither a node nor a digest.
    fn meant<'s>(&self, skill: &'s Skill) -> &'s Variant {
        let seen = |digest: &Digest| skill.variants.iter().find(|variant| variant.digest == *digest);
        self.among.iter().find_map(seen).unwrap_or_else(|| skill.shown())
    }

    fn takes(&self, variant: &Variant) -> bool {
        self.pinned.is_none_or(|pinned| pinned == variant.digest)
            && (self.among.is_empty() || self.among.contains(&variant.digest))
    }

    /// The node named, or every one, as far as labels say.
    pub(crate) fn admits(&self, view: &View) -> bool {
        self.node.as_ref().is_none_or(|node| *node == view.node.id)
            && self.selector.is_none_or(|selector| selector.matches(&view.node.labels))
    }
}

/// Every reason why a node cannot take an invocation of a skill now; none for a candidate.
pub(crate) fn obstacles(skill: &Skill, view: &View, wish: &Wish<'_>) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let mut add = |kind: &str, reason: String| {
        found.push(Obstacle {
            node: view.node.id.clone(),
            name: view.node.name.clone(),
            kind: kind.to_owned(),
            reason,
        });
    };
    if let Some(node) = &wish.node
        && *node != view.node.id
    {
        add("target", format!("the call names node {node}"));
    }
    if let Some(selector) = wish.selector
        && !selector.matches(&view.node.labels)
    {
        add("target", format!("its labels do not fit {selector}"));
    }
    match view.presence {
        Presence::Connected => {}
        Presence::Draining => add("draining", "it is draining and takes nothing new".into()),
        Presence::Disconnected => add("offline", format!("not connected; last heard at {}", view.heard_at)),
    }
    match skill.on_node(&view.node.id) {
        None => add("absent", "it does not have the skill".into()),
        Some((variant, row)) => {
            if variant.definition.kind == Kind::Instructions {
                add("kind", "its copy is instructions only and has nothing to run".into());
            }
            for verdict in row.verdicts.iter().filter(|verdict| !verdict.passed) {
                add(verdict.gate.as_str(), verdict.sentence());
            }
            if !wish.takes(variant) {
                let of_session = if wish.pinned.is_none() { ", which the session has not seen" } else { "" };
                add("digest", format!("its files have digest {}{of_session}", variant.digest));
            }
            if wish.sandboxed && variant.definition.kind == Kind::Executable && !view.node.sandbox {
                add("sandbox", "the agent runs in a sandbox only, and this node offers none".into());
            }
            if !wish.is_exact() && variant.definition.schema != wish.meant(skill).definition.schema {
                add(
                    "schema",
                    "its copy takes other args than the one shown; name the node or pin its digest".into(),
                );
            }
        }
    }
    if view.outstanding >= view.capacity {
        add("busy", format!("{} invocations run or wait there already", view.outstanding));
    }
    found
}

/// Whether a node is a candidate, without saying why not: this stands on the path of every call.
fn candidate<'a>(variant: &'a Variant, row: &Row, view: &View, wish: &Wish<'_>) -> Option<Candidate<'a>> {
    let free = view.presence == Presence::Connected && view.outstanding < view.capacity;
    let runs = row.eligible() && variant.definition.kind == Kind::Executable;
    let contained = !wish.sandboxed || view.node.sandbox;
    (free && wish.takes(variant) && runs && contained && wish.admits(view)).then(|| Candidate {
        node: view.node.id.clone(),
        variant,
        outstanding: view.outstanding,
    })
}

fn candidate_on<'a>(skill: &'a Skill, view: &View, wish: &Wish<'_>) -> Option<Candidate<'a>> {
    let (variant, row) = skill.on_node(&view.node.id)?;
    candidate(variant, row, view, wish)
}

/// The variants that a call may run. Unless the caller names a node or a digest, only those that take the same args as
/// the one shown count: a call means what the catalog showed.
fn variants<'a>(skill: &'a Skill, wish: &Wish<'_>) -> impl Iterator<Item = &'a Variant> {
    let meant = (!wish.is_exact()).then(|| &wish.meant(skill).definition.schema);
    skill
        .variants
        .iter()
        .filter(move |variant| meant.is_none_or(|schema| variant.definition.schema == *schema))
}

/// The node that runs an invocation, if any but these can take it now. `draw` gives any node at random, `view` looks
/// at one.
///
/// In a large fleet a skill has thousands of providers, and mostly nearly all of them are candidates: two of them are
/// found by drawing, and all providers are looked at only when that fails.
pub(crate) fn route<'a>(
    skill: &'a Skill,
    wish: &Wish<'_>,
    avoid: &[NodeId],
    mut draw: impl FnMut() -> Option<View>,
    view: impl Fn(&NodeId) -> Option<View>,
) -> Option<Candidate<'a>> {
    let providers: usize = variants(skill, wish).map(|variant| variant.providers.size()).sum();
    if wish.node.is_none() && providers > FEW {
        let drawn = (0..DRAWS).map_while(|_| draw()).filter(|view| !avoid.contains(&view.node.id));
        let mut found = drawn.filter_map(|view| {
            let on_node = |variant: &'a Variant| Some((variant, &variant.providers.get(&view.node.id)?.row));
            let (variant, row) = variants(skill, wish).find_map(on_node)?;
            candidate(variant, row, &view, wish)
        });
        if let (Some(one), Some(other)) = (found.next(), found.next()) {
            return Some(less_busy(one, other));
        }
    }
    let mut candidates = candidates(skill, wish, view);
    candidates.retain(|candidate| !avoid.contains(&candidate.node));
    choose(&candidates)
}

/// The nodes that can take an invocation now.
fn candidates<'a>(
    skill: &'a Skill,
    wish: &Wish<'_>,
    view: impl Fn(&NodeId) -> Option<View>,
) -> Vec<Candidate<'a>> {
    if let Some(node) = &wish.node {
        let named = || candidate_on(skill, &view(node)?, wish);
        return named().into_iter().collect();
    }
    variants(skill, wish)
        .flat_map(|variant| variant.providers.iter().map(move |(node, provider)| (variant, node, provider)))
        .filter_map(|(variant, node, provider)| candidate(variant, &provider.row, &view(node)?, wish))
        .collect()
}

/// One of the candidates: the less busy of two drawn at random, so that callers who see the same moment do not
/// all choose the same node.
fn choose<'a>(candidates: &[Candidate<'a>]) -> Option<Candidate<'a>> {
    let draw = || candidates.get(rand::random_range(0..candidates.len()));
    match candidates {
        [] => None,
        [only] => Some(only.clone()),
        [..] => Some(less_busy(draw()?.clone(), draw()?.clone())),
    }
}

fn less_busy<'a>(one: Candidate<'a>, other: Candidate<'a>) -> Candidate<'a> {
    if other.outstanding < one.outstanding { other } else { one }
}

/// Why nobody can take an invocation.
pub(crate) fn refusal(skill: &Skill, views: &[View], wish: &Wish<'_>) -> Refusal {
    let key = skill.key.clone();
    if let Some(pinned) = wish.pinned
        && !skill.variants.iter().any(|variant| variant.digest == pinned)
    {
        return Refusal::DigestMismatch { skill: key, pinned };
    }
    if let Some(first) = wish.among.first()
        && !skill.variants.iter().any(|variant| wish.takes(variant))
    {
        return Refusal::DigestMismatch { skill: key, pinned: *first };
    }
    if skill.variants.iter().all(|variant| variant.definition.kind == Kind::Instructions) {
        return Refusal::SkillNotExecutable { skill: key };
    }
    let per_node: Vec<Vec<Obstacle>> = views.iter().map(|view| obstacles(skill, view, wish)).collect();
    let only = |kinds: &[&str]| {
        per_node
            .iter()
            .filter(|list| !list.is_empty() && list.iter().all(|o| kinds.contains(&o.kind.as_str())))
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
    };
    if !only(&["busy"]).is_empty() {
        return Refusal::QueueFull { skill: key, retry_after: std::time::Duration::from_secs(1) };
    }
    let away = only(&["offline", "draining", "busy"]);
    if !away.is_empty() {
        return Refusal::NodeOffline { skill: key, obstacles: away };
    }
    if !only(&["schema", "offline", "draining", "busy"]).is_empty() {
        return Refusal::SchemaConflict { skill: key };
    }
    // A node that is no target says nothing new when others are.
    let telling = |list: &&Vec<Obstacle>| !list.iter().any(|obstacle| obstacle.kind == "target");
    let listed: Vec<_> = match per_node.iter().filter(telling).flatten().cloned().collect::<Vec<_>>() {
        list if list.is_empty() => per_node.into_iter().flatten().collect(),
        list => list,
    };
    Refusal::NoEligibleNode { skill: key, obstacles: listed }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Arc};

    use jiff::Timestamp;
    use weft_core::{
        advert::Scope,
        catalog::Provider,
        ids::SkillKey,
        node::Node,
        skill::{Definition, Gate, Layer, Verdict},
    };

    use super::*;

    fn definition(schema: &str) -> Definition {
        let plain = Definition::new(SkillKey::normalise("a").unwrap(), Kind::Executable);
        Definition { schema: schema.into(), ..plain }
    }

    fn row(eligible: bool) -> Row {
        Row {
            scope: Scope::All,
            key: SkillKey::normalise("a").unwrap(),
            layer: Layer::Managed,
            path: "/a".into(),
            digest: Digest::of(b"1"),
            partial: false,
            definition: Digest::of(b"1"),
            verdicts: vec![Verdict {
                gate: Gate::Bin,
                subject: "df".into(),
                passed: eligible,
                reason: "df is not in the skill PATH".into(),
            }],
            shadowed_by: None,
        }
    }

    fn variant(digest: &[u8], schema: &str, providers: &[(&str, bool)]) -> Variant {
        Variant {
            digest: Digest::of(digest),
            definition_digest: Digest::of(digest),
            definition: Arc::new(definition(schema)),
            providers: providers
                .iter()
                .map(|(node, eligible)| {
                    (node.parse().unwrap(), Provider { row: Arc::new(row(*eligible)), ready: true })
                })
                .collect(),
            eligible: 0,
            ready: 0,
        }
    }

    fn skill(variants: Vec<Variant>) -> Skill {
        Skill { key: SkillKey::normalise("a").unwrap(), scope: Scope::All, variants, schema_conflict: false }
    }

    fn view(id: &str, presence: Presence, outstanding: u32) -> View {
        View {
            node: Arc::new(Node {
                id: id.parse().unwrap(),
                name: format!("{id}-name"),
                os: "linux".into(),
                arch: "x86_64".into(),
                version: "0".into(),
                labels: [("zone".to_owned(), id.to_owned())].into(),
                slots: 1,
                sandbox: false,
            }),
            presence,
            outstanding,
            capacity: 2,
            epoch: 1,
            journal: "j".parse().unwrap(),
            connected_at: Timestamp::UNIX_EPOCH,
            heard_at: Timestamp::UNIX_EPOCH,
            alarms: vec![],
        }
    }

    fn wish(target: &Target) -> Wish<'_> {
        let (node, selector) = match target {
            Target::Any => (None, None),
            Target::Node(id) => (Some(id.parse().unwrap()), None),
            Target::Selector(selector) => (None, Some(selector)),
        };
        Wish { node, selector, pinned: None, among: &[], sandboxed: false }
    }

    fn names(skill: &Skill, views: &[View], target: &Target) -> Vec<String> {
        let find = |id: &NodeId| views.iter().find(|view| view.node.id == *id).cloned();
        candidates(skill, &wish(target), find)
            .into_iter()
            .map(|candidate| candidate.node.to_string())
            .collect()
    }

    #[test]
    fn only_eligible_connected_free_nodes_that_fit_are_candidates() {
        let skill = skill(vec![variant(
            b"1",
            "{}",
            &[("n1", true), ("n2", false), ("n3", true), ("n4", true), ("n5", true)],
        )]);
        let views = [
            view("n1", Presence::Connected, 0),
            view("n2", Presence::Connected, 0),
            view("n3", Presence::Disconnected, 0),
            view("n4", Presence::Draining, 0),
            view("n5", Presence::Connected, 2),
        ];
        assert_eq!(names(&skill, &views, &Target::Any), ["n1"]);
        assert_eq!(names(&skill, &views, &Target::Node("n1".into())), ["n1"]);
        assert!(names(&skill, &views, &Target::Node("n2".into())).is_empty());
        assert_eq!(names(&skill, &views, &Target::Selector("zone=n1".parse().unwrap())), ["n1"]);
        let wish = &wish(&Target::Any);
        for view in &views[1..] {
            assert_eq!(obstacles(&skill, view, wish).len(), 1, "{}", view.node.id);
        }
        assert!(obstacles(&skill, &views[0], wish).is_empty());
    }

    #[test]
    fn a_call_without_node_or_digest_means_the_schema_that_is_shown() {
        let skill = skill(vec![
            variant(b"1", "{}", &[("n1", true)]),
            variant(b"2", r#"{"type":"object"}"#, &[("n2", true)]),
        ]);
        let views = [view("n1", Presence::Connected, 1), view("n2", Presence::Connected, 0)];
        assert_eq!(names(&skill, &views, &Target::Any), ["n1"]);
        assert_eq!(names(&skill, &views, &Target::Node("n2".into())), ["n2"]);
        let any = &wish(&Target::Any);
        assert_eq!(obstacles(&skill, &views[1], any)[0].kind, "schema");
        assert!(obstacles(&skill, &views[1], &any.clone().with_digest(Digest::of(b"2"))).is_empty());
        assert_eq!(refusal(&skill, &views[1..], any).reason(), "SCHEMA_CONFLICT");
    }

    #[test]
    fn a_session_means_the_args_it_was_shown_and_runs_no_other_files() {
        let skill = skill(vec![
            variant(b"1", "{}", &[("n1", true)]),
            variant(b"2", r#"{"type":"object"}"#, &[("n2", true)]),
            variant(b"3", r#"{"type":"object"}"#, &[("n3", true)]),
        ]);
        let views = ["n1", "n2", "n3"].map(|id| view(id, Presence::Connected, 0));
        let find = |id: &NodeId| views.iter().find(|view| view.node.id == *id).cloned();
        let names = |among: &[Digest], target: &Target| -> Vec<String> {
            let found = candidates(&skill, &wish(target).among(among), find);
            found.into_iter().map(|candidate| candidate.node.to_string()).collect()
        };
        let seen = [Digest::of(b"2"), Digest::of(b"1")];
        assert_eq!(names(&seen, &Target::Any), ["n2"]);
        assert_eq!(names(&seen, &Target::Node("n1".into())), ["n1"]);
        assert!(names(&seen, &Target::Node("n3".into())).is_empty());
        let gone = [Digest::of(b"9")];
        let any = wish(&Target::Any).among(&gone);
        assert_eq!(refusal(&skill, &views, &any).reason(), "DIGEST_MISMATCH");
    }

    #[test]
    fn who_must_run_in_a_sandbox_runs_on_nodes_that_offer_one() {
        let skill = skill(vec![variant(b"1", "{}", &[("n1", true), ("n2", true)])]);
        let mut views = ["n1", "n2"].map(|id| view(id, Presence::Connected, 0));
        Arc::make_mut(&mut views[1].node).sandbox = true;
        let find = |id: &NodeId| views.iter().find(|view| view.node.id == *id).cloned();
        let contained = wish(&Target::Any).in_sandbox(true);
        let found: Vec<_> =
            candidates(&skill, &contained, find).into_iter().map(|c| c.node.to_string()).collect();
        assert_eq!(found, ["n2"]);
        assert_eq!(obstacles(&skill, &views[0], &contained)[0].kind, "sandbox");
    }

    #[test]
    fn the_refusal_says_what_stands_in_the_way() {
        let skill = skill(vec![variant(b"1", "{}", &[("n1", true), ("n2", false)])]);
        let any = &wish(&Target::Any);
        let reason = |views: &[View], wish: &Wish<'_>| refusal(&skill, views, wish).reason();
        let gone = [view("n1", Presence::Disconnected, 0), view("n2", Presence::Connected, 0)];
        assert_eq!(reason(&gone, any), "NODE_OFFLINE");
        assert_eq!(reason(&gone[1..], any), "NO_ELIGIBLE_NODE");
        assert_eq!(reason(&[view("n1", Presence::Connected, 2)], any), "QUEUE_FULL");
        let pinned = any.clone().with_digest(Digest::of(b"9"));
        assert_eq!(reason(&gone, &pinned), "DIGEST_MISMATCH");
    }

    #[test]
    fn in_a_large_fleet_two_are_drawn_and_all_are_looked_at_only_when_that_fails() {
        let ids: Vec<String> = (0..200).map(|node| format!("n{node:03}")).collect();
        let providers: Vec<_> = ids.iter().map(|id| (id.as_str(), true)).collect();
        let skill = skill(vec![variant(b"1", "{}", &providers)]);
        let any = wish(&Target::Any);
        let looked = Cell::new(0);
        let busy_but_last = |id: &NodeId| {
            looked.set(looked.get() + 1);
            Some(view(id.as_str(), Presence::Connected, if id.as_str() == "n199" { 0 } else { 2 }))
        };
        let mut drawn = ["n001", "n002", "n003"].into_iter().zip([2, 1, 0]);
        let draw = || drawn.next().map(|(id, outstanding)| view(id, Presence::Connected, outstanding));
        let avoid = ["n003".parse().unwrap()];
        assert!(route(&skill, &any, &avoid, draw, |_| None).is_none(), "one candidate is too few to choose");
        let mut drawn = ["n001", "n002", "n003"].into_iter().zip([2, 1, 0]);
        let draw = || drawn.next().map(|(id, outstanding)| view(id, Presence::Connected, outstanding));
        assert_eq!(route(&skill, &any, &[], draw, busy_but_last).unwrap().node.as_str(), "n003");
        assert_eq!(looked.get(), 0);
        let draw = || Some(view("n000", Presence::Disconnected, 0));
        assert_eq!(route(&skill, &any, &[], draw, busy_but_last).unwrap().node.as_str(), "n199");
        assert_eq!(looked.get(), 200);
    }

    #[test]
    fn the_busier_of_two_is_never_preferred() {
        let one = variant(b"1", "{}", &[]);
        let make =
            |id: &str, outstanding| Candidate { node: id.parse().unwrap(), variant: &one, outstanding };
        let candidates = [make("busy", 9), make("free", 0)];
        let drawn = (0..200).filter(|_| choose(&candidates).unwrap().node.as_str() == "free").count();
        assert!(drawn > 100, "{drawn}");
    }
}
