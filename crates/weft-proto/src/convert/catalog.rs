//! Skills, adverts and what hangs on them.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use weft_core::{
    advert::{Advert, Row, Scope},
    catalog,
    ids::{Digest, SkillKey},
    limits,
    node::{Condition, Labels, Selector, Target, Term},
    skill::{
        Class, ClassSource, Definition, Diagnostic, Gate, Kind, Layer, Requirements, Severity, Verdict,
        tool_name,
    },
    tools::Dialect,
};

use super::{Malformed, digest, duration_from_wire, duration_to_wire, parse_optional, required};
use crate::{link, v1};

/// Most providers of a variant that are listed: with those of ten thousand nodes a skill would be larger than what most
/// clients take.
const MAX_PROVIDERS: usize = 1000;

impl From<Class> for v1::SkillClass {
    fn from(class: Class) -> Self {
        match class {
            Class::Safe => Self::Safe,
            Class::Mutating => Self::Mutating,
            Class::Dangerous => Self::Dangerous,
        }
    }
}

/// A class from the wire; a number that is not known, or none, means dangerous.
pub(super) fn class_from_wire(number: i32) -> Class {
    match v1::SkillClass::try_from(number) {
        Ok(v1::SkillClass::Safe) => Class::Safe,
        Ok(v1::SkillClass::Mutating) => Class::Mutating,
        Ok(v1::SkillClass::Dangerous | v1::SkillClass::Unspecified) | Err(_) => Class::Dangerous,
    }
}

impl From<Kind> for v1::SkillKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Executable => Self::Executable,
            Kind::Instructions => Self::Instructions,
        }
    }
}

impl From<Dialect> for v1::ToolDialect {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::OpenAi => Self::Openai,
            Dialect::Anthropic => Self::Anthropic,
            Dialect::Gemini => Self::Gemini,
            Dialect::Mcp => Self::Mcp,
        }
    }
}

/// A dialect from the wire. `None`: not said, or not known here.
pub fn dialect(number: i32) -> Option<Dialect> {
    Dialect::ALL.into_iter().find(|dialect| v1::ToolDialect::from(*dialect) as i32 == number)
}

impl From<Layer> for v1::Layer {
    fn from(layer: Layer) -> Self {
        match layer {
            Layer::Workspace => Self::Workspace,
            Layer::Project => Self::Project,
            Layer::Personal => Self::Personal,
            Layer::Managed => Self::Managed,
            Layer::Bundled => Self::Bundled,
            Layer::Extra => Self::Extra,
        }
    }
}

/// A layer from the wire; one that is not known ranks last.
pub fn layer(number: i32) -> Layer {
    match v1::Layer::try_from(number) {
        Ok(v1::Layer::Workspace) => Layer::Workspace,
        Ok(v1::Layer::Project) => Layer::Project,
        Ok(v1::Layer::Personal) => Layer::Personal,
        Ok(v1::Layer::Managed) => Layer::Managed,
        Ok(v1::Layer::Bundled) => Layer::Bundled,
        Ok(v1::Layer::Extra | v1::Layer::Unspecified) | Err(_) => Layer::Extra,
    }
}

impl From<Gate> for v1::Gate {
    fn from(gate: Gate) -> Self {
        match gate {
            Gate::Os => Self::Os,
            Gate::Bin => Self::Bin,
            Gate::AnyBin => Self::AnyBin,
            Gate::Env => Self::Env,
            Gate::Config => Self::Config,
            Gate::Enabled => Self::Enabled,
            Gate::Metadata => Self::Metadata,
        }
    }
}

/// A gate from the wire; one that is not known reads as the gate data itself.
pub fn gate(number: i32) -> Gate {
    match v1::Gate::try_from(number) {
        Ok(v1::Gate::Os) => Gate::Os,
        Ok(v1::Gate::Bin) => Gate::Bin,
        Ok(v1::Gate::AnyBin) => Gate::AnyBin,
        Ok(v1::Gate::Env) => Gate::Env,
        Ok(v1::Gate::Config) => Gate::Config,
        Ok(v1::Gate::Enabled) => Gate::Enabled,
        // A gate that this side does not know still blocks when it failed.
        Ok(v1::Gate::Metadata | v1::Gate::Unspecified) | Err(_) => Gate::Metadata,
    }
}

impl From<&Verdict> for v1::Verdict {
    fn from(verdict: &Verdict) -> Self {
        Self {
            gate: v1::Gate::from(verdict.gate).into(),
            subject: verdict.subject.clone(),
            passed: verdict.passed,
            reason: verdict.reason.clone(),
        }
    }
}

impl From<v1::Verdict> for Verdict {
    fn from(verdict: v1::Verdict) -> Self {
        Self {
            gate: gate(verdict.gate),
            subject: cut(verdict.subject),
            passed: verdict.passed,
            reason: cut(verdict.reason),
        }
    }
}

impl From<&Diagnostic> for v1::Diagnostic {
    fn from(diagnostic: &Diagnostic) -> Self {
        Self {
            severity: match diagnostic.severity {
                Severity::Warning => v1::Severity::Warning,
                Severity::Error => v1::Severity::Error,
            }
            .into(),
            path: diagnostic.path.clone(),
            line: diagnostic.line.unwrap_or(0),
            rule: diagnostic.rule.clone(),
            message: diagnostic.message.clone(),
            key: diagnostic.key.as_ref().map(ToString::to_string).unwrap_or_default(),
            agent: scope_to_wire(&diagnostic.scope),
        }
    }
}

impl From<v1::Diagnostic> for Diagnostic {
    fn from(diagnostic: v1::Diagnostic) -> Self {
        Self {
            severity: match diagnostic.severity() {
                v1::Severity::Warning => Severity::Warning,
                v1::Severity::Error | v1::Severity::Unspecified => Severity::Error,
            },
            path: cut(diagnostic.path),
            line: (diagnostic.line > 0).then_some(diagnostic.line),
            rule: cut(diagnostic.rule),
            message: cut(diagnostic.message),
            key: SkillKey::normalise(&diagnostic.key).ok(),
            // A name that no agent can have says nothing.
            scope: parse_optional("agent", &diagnostic.agent).ok().flatten().map_or(Scope::All, Scope::Agent),
        }
    }
}

fn scope_to_wire(scope: &Scope) -> String {
    match scope {
        Scope::All => String::new(),
        Scope::Agent(agent) => agent.to_string(),
    }
}

/// Longest text that a node may put into a verdict or a diagnostic, in bytes.
const MAX_TEXT: usize = 4096;
/// Longest name, label, variable or program, in bytes.
const MAX_NAME: usize = 256;
/// Most names in one list.
const MAX_NAMES: usize = 256;
/// Most terms of a selector.
const MAX_TERMS: usize = 64;
/// Most verdicts of one row.
const MAX_VERDICTS: usize = 1024;

/// Refuses a text that is longer than it may be.
pub(super) fn bounded(field: &'static str, text: &str, most: usize) -> Result<(), Malformed> {
    if text.len() > most {
        Err(Malformed::new(field, format_args!("longer than {most} bytes")))
    } else {
        Ok(())
    }
}

/// Refuses a list with too many or too long names.
fn bounded_names(field: &'static str, names: &[String]) -> Result<(), Malformed> {
    if names.len() > MAX_NAMES {
        return Err(Malformed::new(field, format_args!("more than {MAX_NAMES} entries")));
    }
    names.iter().try_for_each(|name| bounded(field, name, MAX_NAME))
}

/// Cuts a text from a node to a size that can be kept for thousands of nodes, and says so.
fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
    text
}

/// Encodes a definition and names it by the digest of its encoding. The same definition has the same bytes on
/// every host: it holds no map and nothing of the host.
pub fn encode_definition(definition: &Definition) -> (Bytes, Digest) {
    let bytes = v1::SkillDefinition::from(definition).encode_to_vec();
    let digest = Digest::of(&bytes);
    (bytes.into(), digest)
}

/// Decodes a definition that a node sent, and the digest that names it.
///
/// # Errors
/// When it is no definition, or breaks a limit that the node should have kept.
pub fn decode_definition(bytes: &[u8]) -> Result<(Digest, Definition), Malformed> {
    let digest = Digest::of(bytes);
    let message = v1::SkillDefinition::decode(bytes).map_err(|error| Malformed::new("definitions", error))?;
    Ok((digest, message.try_into()?))
}

/// Longest instructions, in bytes: a whole SKILL.md. Generated ones hold the schema, indented.
const MAX_INSTRUCTIONS: usize = limits::MANIFEST_BYTES as usize;

impl From<&Definition> for v1::SkillDefinition {
    fn from(definition: &Definition) -> Self {
        Self {
            key: definition.key.to_string(),
            name: definition.name.clone(),
            kind: v1::SkillKind::from(definition.kind).into(),
            description: definition.description.clone(),
            schema: definition.schema.clone(),
            output_schema: definition.output_schema.clone(),
            class: v1::SkillClass::from(definition.class).into(),
            class_declared: definition.class_source == ClassSource::Declared,
            category: definition.category.clone(),
            timeout: Some(duration_to_wire(definition.timeout)),
            env_allow: definition.env_allow.clone(),
            requirements: definition
                .requirements
                .iter()
                .map(|block| v1::Requirements {
                    os: block.os.clone(),
                    bins: block.bins.clone(),
                    any_bins: block.any_bins.clone(),
                    env: block.env.clone(),
                    config: block.config.clone(),
                    always: block.always,
                })
                .collect(),
            broken_requirements: definition.broken_requirements.clone(),
            idempotent: definition.idempotent,
            sensitive: definition.sensitive.clone(),
            max_concurrency: definition.max_concurrency,
            version: definition.version.clone(),
            when_to_use: definition.when_to_use.clone(),
            activation: definition.activation.clone(),
            hidden_from_prompts: definition.hidden_from_prompts,
            instructions: definition.instructions.clone(),
            primary_env: definition.primary_env.clone(),
            settings_key: definition.settings_key.as_ref().map(ToString::to_string),
        }
    }
}

impl TryFrom<v1::SkillDefinition> for Definition {
    type Error = Malformed;

    fn try_from(message: v1::SkillDefinition) -> Result<Self, Malformed> {
        bounded("schema", &message.schema, limits::SCHEMA_BYTES)?;
        bounded("output_schema", message.output_schema.as_deref().unwrap_or_default(), limits::SCHEMA_BYTES)?;
        bounded("description", &message.description, limits::DESCRIPTION_BYTES)?;
        bounded("instructions", &message.instructions, 2 * MAX_INSTRUCTIONS)?;
        bounded("activation", &message.activation, limits::SCHEMA_BYTES)?;
        bounded("when_to_use", &message.when_to_use, limits::DESCRIPTION_BYTES)?;
        bounded("broken_requirements", message.broken_requirements.as_deref().unwrap_or_default(), MAX_TEXT)?;
        for (field, text) in
            [("name", &message.name), ("category", &message.category), ("version", &message.version)]
        {
            bounded(field, text, MAX_TEXT)?;
        }
        bounded("primary_env", message.primary_env.as_deref().unwrap_or_default(), MAX_NAME)?;
        bounded_names("env_allow", &message.env_allow)?;
        bounded_names("sensitive", &message.sensitive)?;
        if message.requirements.len() > MAX_NAMES {
            return Err(Malformed::new("requirements", format_args!("more than {MAX_NAMES} blocks")));
        }
        for block in &message.requirements {
            for names in [&block.os, &block.bins, &block.any_bins, &block.env, &block.config] {
                bounded_names("requirements", names)?;
            }
        }
        Ok(Self {
            key: SkillKey::normalise(&message.key).map_err(|error| Malformed::new("key", error))?,
            kind: match message.kind() {
                v1::SkillKind::Executable => Kind::Executable,
                v1::SkillKind::Instructions | v1::SkillKind::Unspecified => Kind::Instructions,
            },
            class: class_from_wire(message.class),
            class_source: if message.class_declared { ClassSource::Declared } else { ClassSource::Defaulted },
            timeout: duration_from_wire("timeout", required("timeout", message.timeout)?)?,
            name: message.name,
            description: message.description,
            schema: message.schema,
            output_schema: message.output_schema,
            category: message.category,
            env_allow: message.env_allow,
            requirements: message
                .requirements
                .into_iter()
                .map(|block| Requirements {
                    os: block.os,
                    bins: block.bins,
                    any_bins: block.any_bins,
                    env: block.env,
                    config: block.config,
                    always: block.always,
                })
                .collect(),
            broken_requirements: message.broken_requirements,
            primary_env: message.primary_env,
            settings_key: message
                .settings_key
                .map(|key| SkillKey::normalise(&key))
                .transpose()
                .map_err(|error| Malformed::new("settings_key", error))?,
            idempotent: message.idempotent,
            sensitive: message.sensitive,
            max_concurrency: message.max_concurrency,
            version: message.version,
            when_to_use: message.when_to_use,
            activation: message.activation,
            hidden_from_prompts: message.hidden_from_prompts,
            instructions: message.instructions,
        })
    }
}

impl From<&Row> for link::AdvertRow {
    fn from(row: &Row) -> Self {
        Self {
            agent: scope_to_wire(&row.scope),
            key: row.key.to_string(),
            layer: v1::Layer::from(row.layer).into(),
            path: row.path.clone(),
            digest: Bytes::copy_from_slice(row.digest.as_bytes()),
            partial: row.partial,
            definition_digest: Bytes::copy_from_slice(row.definition.as_bytes()),
            verdicts: row.verdicts.iter().map(Into::into).collect(),
            shadowed_by: row.shadowed_by.clone().unwrap_or_default(),
        }
    }
}

impl TryFrom<link::AdvertRow> for Row {
    type Error = Malformed;

    fn try_from(row: link::AdvertRow) -> Result<Self, Malformed> {
        if row.verdicts.len() > MAX_VERDICTS {
            return Err(Malformed::new("verdicts", format_args!("more than {MAX_VERDICTS}")));
        }
        Ok(Self {
            scope: parse_optional("agent", &row.agent)?.map_or(Scope::All, Scope::Agent),
            key: SkillKey::normalise(&row.key).map_err(|error| Malformed::new("key", error))?,
            layer: layer(row.layer),
            path: cut(row.path),
            digest: digest("digest", &row.digest)?,
            partial: row.partial,
            definition: digest("definition_digest", &row.definition_digest)?,
            verdicts: row.verdicts.into_iter().map(Into::into).collect(),
            shadowed_by: (!row.shadowed_by.is_empty()).then(|| cut(row.shadowed_by)),
        })
    }
}

impl From<&Advert> for link::Advert {
    fn from(advert: &Advert) -> Self {
        Self {
            revision: advert.revision,
            rows: advert.rows.iter().map(|row| (&**row).into()).collect(),
            diagnostics: advert.diagnostics.iter().map(Into::into).collect(),
        }
    }
}

/// Most rows of one advert: every skill of a node, and as many shadowed copies again.
const MAX_ROWS: usize = 4 * limits::SKILLS_PER_NODE;
/// Most diagnostics of one advert.
const MAX_DIAGNOSTICS: usize = 1000;

impl TryFrom<link::Advert> for Advert {
    type Error = Malformed;

    fn try_from(advert: link::Advert) -> Result<Self, Malformed> {
        if advert.rows.len() > MAX_ROWS {
            return Err(Malformed::new("rows", format_args!("more than {MAX_ROWS}")));
        }
        Ok(Self {
            revision: advert.revision,
            rows: advert
                .rows
                .into_iter()
                .map(|row| row.try_into().map(Arc::new))
                .collect::<Result<_, _>>()?,
            diagnostics: advert.diagnostics.into_iter().take(MAX_DIAGNOSTICS).map(Into::into).collect(),
        })
    }
}

impl From<&Selector> for v1::LabelSelector {
    fn from(selector: &Selector) -> Self {
        use v1::label_expression::Operator;
        Self {
            match_labels: Default::default(),
            match_expressions: selector
                .terms
                .iter()
                .map(|term| {
                    let (operator, values) = match &term.condition {
                        Condition::In(values) => (Operator::In, values.clone()),
                        Condition::NotIn(values) => (Operator::NotIn, values.clone()),
                        Condition::Exists => (Operator::Exists, vec![]),
                        Condition::Absent => (Operator::DoesNotExist, vec![]),
                    };
                    v1::LabelExpression { key: term.label.clone(), operator: operator.into(), values }
                })
                .collect(),
        }
    }
}

impl TryFrom<v1::LabelSelector> for Selector {
    type Error = Malformed;

    fn try_from(selector: v1::LabelSelector) -> Result<Self, Malformed> {
        use v1::label_expression::Operator;
        const FIELD: &str = "target.selector";
        if selector.match_labels.len() + selector.match_expressions.len() > MAX_TERMS {
            return Err(Malformed::new(FIELD, format_args!("more than {MAX_TERMS} terms")));
        }
        for (label, value) in &selector.match_labels {
            bounded(FIELD, label, MAX_NAME)?;
            bounded(FIELD, value, MAX_NAME)?;
        }
        for expression in &selector.match_expressions {
            bounded(FIELD, &expression.key, MAX_NAME)?;
            bounded_names(FIELD, &expression.values)?;
        }
        let mut terms: Vec<_> = selector
            .match_labels
            .into_iter()
            .map(|(label, value)| Term { label, condition: Condition::In(vec![value]) })
            .collect();
        for expression in selector.match_expressions {
            let condition = match expression.operator() {
                Operator::In => Condition::In(expression.values),
                Operator::NotIn => Condition::NotIn(expression.values),
                Operator::Exists => Condition::Exists,
                Operator::DoesNotExist => Condition::Absent,
                Operator::Unspecified => {
                    return Err(Malformed::new("target.selector", "operator is missing or not known"));
                }
            };
            terms.push(Term { label: expression.key, condition });
        }
        Ok(Self { terms })
    }
}

impl From<&Target> for v1::Target {
    fn from(target: &Target) -> Self {
        Self {
            target: match target {
                Target::Any => None,
                Target::Node(name) => Some(v1::target::Target::Node(name.clone())),
                Target::Selector(selector) => Some(v1::target::Target::Selector(selector.into())),
            },
        }
    }
}

/// The target in an optional field; none means any node.
pub(super) fn target_from_wire(target: Option<v1::Target>) -> Result<Target, Malformed> {
    Ok(match target.and_then(|target| target.target) {
        None => Target::Any,
        Some(v1::target::Target::Node(name)) if name.is_empty() => {
            return Err(Malformed::new("target.node", "must not be empty"));
        }
        Some(v1::target::Target::Node(name)) => {
            bounded("target.node", &name, MAX_NAME)?;
            Target::Node(name)
        }
        Some(v1::target::Target::Selector(selector)) => Target::Selector(selector.try_into()?),
    })
}

impl TryFrom<v1::Target> for Target {
    type Error = Malformed;

    fn try_from(target: v1::Target) -> Result<Self, Malformed> {
        target_from_wire(Some(target))
    }
}

/// What the coordinator knows of a node when it shows a skill.
pub struct NodeSight {
    /// What people call it.
    pub name: String,
    /// It has an open session and takes work.
    pub connected: bool,
}

impl v1::Skill {
    /// The wire form of a skill, without instructions and variants.
    pub fn basic(skill: &catalog::Skill, class: Class) -> Self {
        let shown = skill.shown();
        let mut definition = v1::SkillDefinition::from(&*shown.definition);
        definition.instructions.clear();
        Self {
            key: skill.key.to_string(),
            tool_name: tool_name(&skill.key),
            definition: Some(definition),
            digest: shown.digest.to_string(),
            class: v1::SkillClass::from(class).into(),
            eligible_nodes: count(shown.ready),
            nodes: count(skill.variants.iter().map(|variant| variant.providers.size()).sum()),
            schema_conflict: skill.schema_conflict,
            variants: vec![],
            shadowed: vec![],
        }
    }

    /// The wire form of a skill with all there is to know.
    pub fn full<'a>(
        skill: &catalog::Skill,
        class: Class,
        shadowed: impl Iterator<Item = (&'a weft_core::ids::NodeId, &'a Arc<Row>)>,
        sight: impl Fn(&weft_core::ids::NodeId) -> NodeSight,
    ) -> Self {
        let mut full = Self::basic(skill, class);
        full.definition = Some((&*skill.shown().definition).into());
        full.variants = skill
            .variants
            .iter()
            .map(|variant| v1::Variant {
                digest: variant.digest.to_string(),
                definition: Some((&*variant.definition).into()),
                partial: variant.providers.values().any(|provider| provider.row.partial),
                providers_left_out: count(variant.providers.size().saturating_sub(MAX_PROVIDERS)),
                providers: variant
                    .providers
                    .iter()
                    .take(MAX_PROVIDERS)
                    .map(|(node, catalog::Provider { row, .. })| {
                        let sight = sight(node);
                        v1::Provider {
                            node_id: node.to_string(),
                            node_name: sight.name,
                            eligible: row.eligible(),
                            connected: sight.connected,
                            verdicts: row.verdicts.iter().map(Into::into).collect(),
                            layer: v1::Layer::from(row.layer).into(),
                            path: row.path.clone(),
                        }
                    })
                    .collect(),
            })
            .collect();
        full.shadowed = shadowed.map(|(node, row)| shadowed_copy(node, &sight(node).name, row)).collect();
        full
    }
}

/// The wire form of a copy that does not count.
pub fn shadowed_copy(node: &weft_core::ids::NodeId, name: &str, row: &Row) -> v1::ShadowedCopy {
    v1::ShadowedCopy {
        node_id: node.to_string(),
        node_name: name.to_owned(),
        path: row.path.clone(),
        shadowed_by: row.shadowed_by.clone().unwrap_or_default(),
        layer: v1::Layer::from(row.layer).into(),
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The labels in a map field.
pub fn labels_from_wire(labels: std::collections::HashMap<String, String>) -> Labels {
    labels.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn definition() -> Definition {
        Definition {
            key: SkillKey::normalise("disk-usage").unwrap(),
            name: "disk-usage".into(),
            kind: Kind::Executable,
            description: "d".into(),
            schema: "{}".into(),
            output_schema: Some("{}".into()),
            class: Class::Mutating,
            class_source: ClassSource::Declared,
            category: "ops".into(),
            timeout: Duration::from_millis(1500),
            env_allow: vec!["PATH".into()],
            requirements: vec![Requirements {
                bins: vec!["df".into()],
                always: true,
                ..Requirements::default()
            }],
            broken_requirements: None,
            primary_env: Some("API_KEY".into()),
            settings_key: Some(SkillKey::normalise("disk").unwrap()),
            idempotent: true,
            sensitive: vec!["/password".into()],
            max_concurrency: Some(2),
            version: "1.10".into(),
            when_to_use: "w".into(),
            activation: "{}".into(),
            hidden_from_prompts: true,
            instructions: "# x".into(),
        }
    }

    #[test]
    fn a_definition_survives_the_wire_and_keeps_its_name() {
        let (bytes, digest) = encode_definition(&definition());
        assert_eq!(decode_definition(&bytes).unwrap(), (digest, definition()));
    }

    prop_compose! {
        fn block()(
            lists in prop::collection::vec(prop::collection::vec("[a-z.]{1,8}", 0..3), 5),
            always: bool,
        ) -> Requirements {
            let [os, bins, any_bins, env, config] = lists.try_into().unwrap();
            Requirements { os, bins, any_bins, env, config, always }
        }
    }

    proptest! {
        #[test]
        fn what_gates_and_settings_go_by_survives_the_wire(
            requirements in prop::collection::vec(block(), 0..4),
            broken_requirements in prop::option::of(".{0,40}"),
            primary_env in prop::option::of("[A-Z_][A-Z0-9_]{0,255}"),
            settings_key in prop::option::of("[a-z0-9_]{1,255}"),
        ) {
            let settings_key = settings_key.map(|key| SkillKey::normalise(&key).unwrap());
            let told = Definition {
                requirements, broken_requirements, primary_env, settings_key, ..definition()
            };
            let (bytes, digest) = encode_definition(&told);
            prop_assert_eq!(decode_definition(&bytes).unwrap(), (digest, told));
        }
    }

    #[test]
    fn what_settings_go_by_is_bounded() {
        let refused = |message: v1::SkillDefinition| decode_definition(&message.encode_to_vec()).unwrap_err();
        let message = || v1::SkillDefinition::from(&definition());
        let long = Some("A".repeat(MAX_NAME + 1));
        assert_eq!(refused(v1::SkillDefinition { primary_env: long, ..message() }).field, "primary_env");
        for key in ["a/b".to_owned(), String::new(), "a".repeat(256)] {
            let settings_key = Some(key);
            assert_eq!(refused(v1::SkillDefinition { settings_key, ..message() }).field, "settings_key");
        }
    }

    /// A node may be told to take longer names than manifests of weft have; a coordinator knows one bound for all.
    #[test]
    fn keys_of_a_row_and_of_a_definition_are_bounded() {
        let row = |key: String| link::AdvertRow {
            key,
            digest: vec![0; 32].into(),
            definition_digest: vec![0; 32].into(),
            ..Default::default()
        };
        let encoded = |key: String| v1::SkillDefinition { key, ..(&definition()).into() }.encode_to_vec();
        let (most, more) = ("a".repeat(255), "a".repeat(256));
        assert_eq!(Row::try_from(row(most.clone())).unwrap().key.as_str(), most);
        assert_eq!(Row::try_from(row(more.clone())).unwrap_err().field, "key");
        assert_eq!(decode_definition(&encoded(most.clone())).unwrap().1.key.as_str(), most);
        assert_eq!(decode_definition(&encoded(more)).unwrap_err().field, "key");
    }

    #[test]
    fn an_unknown_class_is_dangerous_and_an_unknown_gate_still_blocks() {
        assert_eq!(class_from_wire(0), Class::Dangerous);
        assert_eq!(class_from_wire(99), Class::Dangerous);
        let verdict = Verdict::from(v1::Verdict { gate: 99, passed: false, ..Default::default() });
        assert!(!verdict.passed);
    }

    #[test]
    fn of_very_many_providers_the_rest_is_counted() {
        let digest = Digest::of(b"1");
        let row = Arc::new(Row {
            scope: Scope::All,
            key: definition().key,
            layer: Layer::Managed,
            path: "/skills/disk-usage".into(),
            digest,
            partial: false,
            definition: digest,
            verdicts: vec![],
            shadowed_by: None,
        });
        let mut providers = catalog::Map::new_sync();
        for node in 0..MAX_PROVIDERS + 7 {
            let provider = catalog::Provider { row: row.clone(), ready: true };
            providers.insert_mut(format!("n{node}").parse().unwrap(), provider);
        }
        let skill = catalog::Skill {
            key: definition().key,
            scope: Scope::All,
            variants: vec![catalog::Variant {
                digest,
                definition_digest: digest,
                definition: Arc::new(definition()),
                eligible: providers.size(),
                ready: providers.size(),
                providers,
            }],
            schema_conflict: false,
        };
        let sight = |_: &weft_core::ids::NodeId| NodeSight { name: "n".into(), connected: true };
        let full = v1::Skill::full(&skill, Class::Safe, [].into_iter(), sight);
        assert_eq!(
            (full.variants[0].providers.len(), full.variants[0].providers_left_out),
            (MAX_PROVIDERS, 7)
        );
        assert_eq!(full.nodes as usize, MAX_PROVIDERS + 7);
    }

    #[test]
    fn targets_survive_the_wire() {
        for target in [
            Target::Any,
            Target::Node("web-1".into()),
            Target::Selector("zone=a,!gpu,arch!=arm64,ssd".parse().unwrap()),
        ] {
            assert_eq!(Target::try_from(v1::Target::from(&target)), Ok(target));
        }
        let empty = v1::Target { target: Some(v1::target::Target::Node(String::new())) };
        assert!(Target::try_from(empty).is_err());
    }
}
