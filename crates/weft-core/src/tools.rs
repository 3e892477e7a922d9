//! Tool definitions in the dialects that kernels speak to models.
//!
//! The manifest's schema stays the truth that args are checked against; what is made here is a projection of it for
//! one dialect. A dialect carries less than JSON Schema says, and one schema that an API does not take fails the
//! whole request, so whatever would be refused is left out, and all of that is said in [`Dropped`]. Only a required
//! argument that a dialect cannot express makes a skill impossible to call: then the tool is left out as a whole.
//!
//! Order of members and spelling of numbers are those of the manifest in every dialect.

mod gemini;
mod place;
mod root;
mod tree;

#[cfg(test)]
mod tests;

use std::{collections::HashSet, fmt, str::FromStr};

use self::tree::Tree;
use crate::{
    ids::SkillKey,
    skill::{Class, ClassSource, Definition, Kind},
};

/// The interface that a tool definition is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `tools` of OpenAI's chat completions, and of the many that copy them.
    OpenAi,
    /// `tools` of Anthropic's messages.
    Anthropic,
    /// `functionDeclarations` of the Gemini API and of Vertex AI.
    Gemini,
    /// `tools` of a Model Context Protocol server's list.
    Mcp,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::Gemini, Self::Mcp];

    /// The word used on the command line and in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Mcp => "mcp",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Self, UnknownDialect> {
        let known = Self::ALL.into_iter().find(|dialect| dialect.as_str() == text);
        known.ok_or_else(|| UnknownDialect(text.chars().take(80).collect()))
    }
}

/// A word that names no [`Dialect`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("dialect {0:?} is not one of openai, anthropic, gemini, mcp")]
pub struct UnknownDialect(pub String);

/// One tool in one dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    /// The skill that a call of it means.
    pub key: SkillKey,
    /// The name that a model calls it by.
    pub name: String,
    /// One JSON object: the definition as the dialect writes it.
    pub json: String,
    /// What of the manifest the definition does not carry.
    pub dropped: Vec<Dropped>,
}

/// Something of a manifest that a dialect does not carry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dropped {
    /// JSON pointer to the (sub-)schema concerned, empty for the whole, in the manifest's schema as it stands. In
    /// Anthropic and OpenAI definitions whose root had to be rebuilt, places below the root are those of the result.
    pub pointer: String,
    /// The keyword or value.
    pub what: String,
    /// Why it is missing, and what stands in its place.
    pub why: String,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() { "/" } else { &self.pointer };
        write!(f, "{place}: {}: {}", self.what, self.why)
    }
}

/// A skill that cannot be offered in a dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct LeftOut {
    /// The skill.
    pub key: SkillKey,
    /// Why a call of it could never be made.
    pub why: String,
}

/// All tools of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Export {
    /// A JSON array: the value of a request's (for MCP: of a list's) `tools`. OpenAI takes no empty one.
    pub json: String,
    /// The tools in it, by name.
    pub tools: Vec<Tool>,
    /// Skills that the dialect cannot offer.
    pub left_out: Vec<LeftOut>,
    /// What a person should know about the whole.
    pub notes: Vec<String>,
}

/// Longest description that OpenAI takes, in characters.
const OPENAI_DESCRIPTION: usize = 1024;
/// Most tools that OpenAI takes in one request.
const OPENAI_TOOLS: usize = 128;

/// The tools of these skills in one dialect, sorted by name. Instructions are no tools and are passed over.
pub fn export<'a>(definitions: impl IntoIterator<Item = &'a Definition>, dialect: Dialect) -> Export {
    let mut named: Vec<(String, &Definition)> = definitions
        .into_iter()
        .filter(|definition| definition.kind == Kind::Executable)
        .map(|definition| (definition.tool_name(), definition))
        .collect();
    // A key may be the very name that another one is derived to; the skill really called so keeps it.
    named.sort_by(|(a, x), (b, y)| (a, x.key.as_str() != a, &x.key).cmp(&(b, y.key.as_str() != b, &y.key)));
    let mut export = Export::default();
    let mut taken = HashSet::new();
    for (name, definition) in named {
        let key = definition.key.clone();
        if !taken.insert(name.clone()) {
            let why = format!("another skill has the tool name {name}");
            export.left_out.push(LeftOut { key, why });
            continue;
        }
        match tool(definition, dialect) {
            Ok(tool) => export.tools.push(tool),
            Err(left_out) => export.left_out.push(left_out),
        }
    }
    let list = export.tools.iter().map(|tool| tool.json.as_str()).collect::<Vec<_>>().join(",");
    export.json = match dialect {
        Dialect::Gemini if !list.is_empty() => format!(r#"[{{"functionDeclarations":[{list}]}}]"#),
        Dialect::OpenAi | Dialect::Anthropic | Dialect::Gemini | Dialect::Mcp => format!("[{list}]"),
    };
    if dialect == Dialect::OpenAi && export.tools.len() > OPENAI_TOOLS {
        export.notes.push(format!(
            "{} tools, but openai takes at most {OPENAI_TOOLS} in one request: narrow what the agent sees",
            export.tools.len()
        ));
    }
    export
}

/// The tool of one executable skill in one dialect.
///
/// # Errors
/// When the dialect cannot express a call that the skill would accept.
pub fn tool(definition: &Definition, dialect: Dialect) -> Result<Tool, LeftOut> {
    let mut report = Report::default();
    let json = define(definition, dialect, &mut report)
        .map_err(|uncallable| LeftOut { key: definition.key.clone(), why: uncallable.to_string() })?;
    Ok(Tool {
        key: definition.key.clone(),
        name: definition.tool_name(),
        json: json.to_string(),
        dropped: report.dropped,
    })
}

fn define(definition: &Definition, dialect: Dialect, report: &mut Report) -> Result<Tree, Uncallable> {
    let schema = read(&definition.schema)?;
    let name = ("name", Tree::text(&definition.tool_name()));
    let about = ("description", Tree::text(&description(definition, dialect, report)));
    let fields = match dialect {
        Dialect::OpenAi => {
            let function = vec![name, about, ("parameters", root::openai(&schema, report)?)];
            vec![("type", Tree::text("function")), ("function", Tree::object(function))]
        }
        Dialect::Anthropic => vec![name, about, ("input_schema", root::anthropic(&schema, report)?)],
        Dialect::Gemini => {
            let parameters = gemini::parameters(&schema, report)?;
            let parameters = parameters.map(|parameters| ("parameters", parameters));
            [name, about].into_iter().chain(parameters).collect()
        }
        Dialect::Mcp => {
            let mut fields = vec![name];
            if definition.name != definition.tool_name() {
                fields.push(("title", Tree::text(&definition.name)));
            }
            fields.extend([about, ("inputSchema", root::mcp(&schema, report))]);
            fields.extend(output_schema(definition, report).map(|schema| ("outputSchema", schema)));
            fields.extend(annotations(definition).map(|hints| ("annotations", hints)));
            fields
        }
    };
    if dialect != Dialect::Mcp && definition.output_schema.is_some() {
        report.say("", "output schema", format!("{dialect} has no place for it"));
    }
    Ok(Tree::object(fields))
}

fn read(schema: &str) -> Result<Tree, Uncallable> {
    let uncallable = |why| Uncallable { pointer: String::new(), why };
    let tree = Tree::parse(schema).map_err(|error| uncallable(format!("its schema is no JSON: {error}")))?;
    if tree.members().is_some() { Ok(tree) } else { Err(uncallable("its schema is no object".to_owned())) }
}

/// What the skill is for, when to use it, and, where no annotation says so, how much harm it can do.
fn description(definition: &Definition, dialect: Dialect, report: &mut Report) -> String {
    let parts = [definition.description.trim(), definition.when_to_use.trim()];
    let mut text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    if text.is_empty() {
        // An API may refuse a tool without any; the name is at least true.
        text.clone_from(&definition.name);
    }
    let warning = match (dialect, definition.class) {
        (Dialect::Mcp, _) | (_, Class::Safe) => "",
        (_, Class::Mutating) => "\nChanges state.",
        (_, Class::Dangerous) => "\nCannot be undone.",
    };
    let (whole, extra) = (text.chars().count(), warning.chars().count());
    if dialect == Dialect::OpenAi && whole + extra > OPENAI_DESCRIPTION {
        let kept = OPENAI_DESCRIPTION - extra - 1;
        text = text.chars().take(kept).collect::<String>() + "…";
        report.say(
            "",
            "description",
            format!("openai takes {OPENAI_DESCRIPTION} characters: cut after {kept} of {whole}"),
        );
    }
    text + warning
}

/// MCP's hints, for a declared class only: a class that nobody named must not become a claim.
fn annotations(definition: &Definition) -> Option<Tree> {
    if definition.class_source == ClassSource::Defaulted {
        return None;
    }
    let (read_only, destructive, idempotent) = match definition.class {
        Class::Safe => (true, false, true),
        Class::Mutating => (false, false, definition.idempotent),
        Class::Dangerous => (false, true, false),
    };
    Some(Tree::object(vec![
        ("readOnlyHint", Tree::Bool(read_only)),
        ("destructiveHint", Tree::Bool(destructive)),
        ("idempotentHint", Tree::Bool(idempotent)),
    ]))
}

fn output_schema(definition: &Definition, report: &mut Report) -> Option<Tree> {
    let schema = read(definition.output_schema.as_deref()?);
    let usable = schema.ok().and_then(|schema| {
        let for_objects = match schema.member("type") {
            None => true,
            Some(Tree::Text(kind)) => kind == "object",
            Some(Tree::List(kinds)) => kinds.iter().any(|kind| kind.as_text() == Some("object")),
            Some(_) => false,
        };
        for_objects.then(|| root::mcp(&schema, report))
    });
    if usable.is_none() {
        report.say("", "output schema", "mcp takes only one that describes an object");
    }
    usable
}

/// Why no call can be expressed, and of what.
#[derive(Debug)]
struct Uncallable {
    pointer: String,
    why: String,
}

impl fmt::Display for Uncallable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pointer.is_empty() {
            write!(f, "{}: ", shown(&self.pointer, SHOWN_POINTER))?;
        }
        f.write_str(&self.why)
    }
}

/// Longest pointer that a report repeats, in characters: names of members are as long as their author likes.
const SHOWN_POINTER: usize = 300;
/// Longest keyword or value that a report repeats, in characters.
const SHOWN_VALUE: usize = 80;

fn shown(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What was dropped so far; each thing is said once, however often a shared sub-schema is used.
#[derive(Debug, Default)]
struct Report {
    dropped: Vec<Dropped>,
    said: HashSet<Dropped>,
}

impl Report {
    fn say(&mut self, pointer: &str, what: &str, why: impl Into<String>) {
        let dropped = Dropped {
            pointer: shown(pointer, SHOWN_POINTER),
            what: shown(what, SHOWN_VALUE),
            why: why.into(),
        };
        if self.said.insert(dropped.clone()) {
            self.dropped.push(dropped);
        }
    }
}
