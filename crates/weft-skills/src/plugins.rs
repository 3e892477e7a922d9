//! Plugins: directories made by others that bring skills along, as their `openclaw.plugin.json` says.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;
use weft_core::{json, limits};

use crate::{
    lint::line_of,
    manifest::without_bom,
    platform::{self, Identity},
    report::{Level, Problem, Report, shown, shown_path},
    source::Source,
    walk::{Tree, bytes, tree},
};

/// The manifest's name.
const NAME: &str = "openclaw.plugin.json";
/// Longest id, in bytes.
const ID: usize = 256;
/// Most directories that are looked at below one path.
const MOST: usize = 1000;
/// The rule that all diagnostics of plugins name.
const RULE: &str = "plugin";

/// Where plugins are looked for, and which of them count. They are looked for anew at each load.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plugins {
    /// Each is the root of a plugin, or a directory in which such roots lie. The skills of an earlier one win.
    pub paths: Vec<PathBuf>,
    /// Whether a plugin counts, by its id. One that is not named does.
    pub enabled: BTreeMap<String, bool>,
}

/// What the plugins bring at one load.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// In order of precedence.
    pub(crate) sources: Vec<Source>,
    /// Where a change could bring another plugin, or change one.
    pub(crate) directories: Vec<(PathBuf, Identity)>,
}

/// The manifests of the last load, for those that are being written now.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<PathBuf, Manifest>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Manifest {
    id: String,
    /// Relative to the root.
    skills: Vec<String>,
    /// Where they are written.
    line: Option<u32>,
}

/// Why a manifest gives no plugin.
#[derive(Debug)]
struct Refusal {
    /// It may be in the middle of a write.
    half_written: bool,
    problem: Problem,
}

impl Plugins {
    /// Finds the plugins that are there now.
    pub(crate) fn find(&self, known: &mut Known, report: &mut Report) -> Found {
        let mut search = Search {
            enabled: &self.enabled,
            known: std::mem::take(&mut known.0),
            read: HashMap::new(),
            ids: HashMap::new(),
            report,
            found: Found::default(),
        };
        for path in &self.paths {
            search.path(path);
        }
        known.0 = search.read;
        search.found
    }
}

struct Search<'a> {
    enabled: &'a BTreeMap<String, bool>,
    known: HashMap<PathBuf, Manifest>,
    read: HashMap<PathBuf, Manifest>,
    /// The root of each plugin, by its id.
    ids: HashMap<String, PathBuf>,
    report: &'a mut Report,
    found: Found,
}

impl Search<'_> {
    fn warn(&mut self, path: &Path, message: impl Into<String>) {
        self.report.warn(path, None, &Problem::warning(RULE, message));
    }

    fn error(&mut self, path: &Path, message: impl Into<String>) {
        self.report.warn(path, None, &Problem::error(RULE, message));
    }

    /// The real path of a directory, which is then to be watched.
    fn directory(&mut self, path: &Path) -> io::Result<PathBuf> {
        let canonical = path.canonicalize()?;
        let metadata = canonical.metadata()?;
        if !metadata.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        self.found.directories.push((path.to_owned(), Identity::of(&metadata)));
        Ok(canonical)
    }

    /// Looks at one of the operator's paths.
    fn path(&mut self, path: &Path) {
        if !path.is_absolute() {
            return self.error(path, format!("skip non-absolute dir \"{}\"", shown_path(path)));
        }
        let canonical = match self.directory(path) {
            Ok(canonical) => canonical,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let line = format!("dir {} not present, skipping", shown_path(path));
                self.report.log(Level::Info, path, RULE, line.clone(), String::new());
                self.report.diagnose(path, None, &Problem::warning(RULE, line));
                return;
            }
            Err(error) => return self.error(path, error.to_string()),
        };
        if has_manifest(path) {
            return self.plugin(path, &canonical);
        }
        match self.below(path, &canonical) {
            Ok(0) => self.warn(path, format!("no {NAME} is in it, nor in a directory in it")),
            Ok(_) => {}
            Err(error) => self.error(path, error.to_string()),
        }
    }

    /// Looks for plugins in a directory. How many there are.
    fn below(&mut self, path: &Path, canonical: &Path) -> io::Result<usize> {
        let mut directories = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let plain = tree(&entry.file_name().to_string_lossy()) == Tree::Plain;
            if plain && entry.path().is_dir() {
                directories.push(entry.path());
            }
        }
        directories.sort_by(|a, b| bytes(a).cmp(bytes(b)));
        if directories.len() > MOST {
            self.warn(path, format!("more than {MOST} directories; the rest is not looked at"));
            directories.truncate(MOST);
        }
        let mut plugins = 0;
        for directory in directories {
            // Gone since it was listed: a change that is seen.
            let Ok(target) = directory.canonicalize() else { continue };
            if !target.starts_with(canonical) {
                let root = shown_path(canonical);
                self.warn(&directory, format!("the link leaves the directory {root}; it is not followed"));
                continue;
            }
            if self.directory(&directory).is_ok() && has_manifest(&directory) {
                plugins += 1;
                self.plugin(&directory, &target);
            }
        }
        Ok(plugins)
    }

    /// Reads the plugin in `root`, of which `canonical` is the real path.
    fn plugin(&mut self, root: &Path, canonical: &Path) {
        let path = root.join(NAME);
        let manifest = match read(&path, canonical) {
            Ok(manifest) => manifest,
            Err(Refusal { half_written, mut problem }) => {
                let known = self.known.get(&path).filter(|_| half_written).cloned();
                if known.is_some() {
                    problem.message.push_str("; the version read before stays in use");
                }
                self.report.warn(&path, None, &problem);
                match known {
                    Some(manifest) => manifest,
                    None => return,
                }
            }
        };
        self.read.insert(path.clone(), manifest.clone());
        let Manifest { id, skills, line } = manifest;
        if let Some(first) = self.ids.get(&id) {
            let message = format!("plugin \"{}\" is in {} already, skipping", shown(&id), shown_path(first));
            return self.warn(&path, message);
        }
        self.ids.insert(id.clone(), root.to_owned());
        if self.enabled.get(&id) == Some(&false) {
            return;
        }
        for relative in skills {
            let outcome = self.skills(&relative, root, canonical);
            if let Err(problem) = outcome {
                self.report.warn(&path, None, &Problem { line, ..problem });
            }
        }
    }

    /// Takes one directory of skills that a manifest names.
    fn skills(&mut self, relative: &str, root: &Path, canonical: &Path) -> Result<(), Problem> {
        let problem = |severity: fn(&'static str, String) -> Problem, why: &str| {
            severity(RULE, format!("skills: {:?} {why}", shown(relative)))
        };
        if relative.trim().is_empty() || Path::new(relative).is_absolute() {
            return Err(problem(Problem::error, "is no path relative to the plugin"));
        }
        // Without the dots that authors put in front.
        let path: PathBuf = root.join(relative).components().collect();
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.watch_above(&path, root);
                return Err(problem(Problem::warning, "is not there, skipping"));
            }
            Err(error) => return Err(problem(Problem::error, &format!("cannot be read: {error}"))),
        };
        if !target.starts_with(canonical) {
            let why = format!("leaves the plugin {}; it is not loaded", shown_path(canonical));
            return Err(problem(Problem::error, &why));
        }
        if !target.is_dir() {
            return Err(problem(Problem::error, "is not a directory"));
        }
        self.found.sources.push(Source::extra(path));
        Ok(())
    }

    /// Watches where a directory that is not there would appear.
    fn watch_above(&mut self, path: &Path, root: &Path) {
        let above = path.ancestors().skip(1).take_while(|above| above.starts_with(root) && *above != root);
        for directory in above {
            if self.directory(directory).is_ok() {
                return;
            }
        }
    }
}

fn has_manifest(root: &Path) -> bool {
    root.join(NAME).symlink_metadata().is_ok()
}

/// Reads the manifest of the plugin whose real path is `root`.
fn read(path: &Path, root: &Path) -> Result<Manifest, Refusal> {
    let fault = |message: String| Refusal { half_written: false, problem: Problem::error(RULE, message) };
    let target = path.canonicalize().map_err(|error| fault(error.to_string()))?;
    if !target.starts_with(root) {
        let (target, root) = (shown_path(&target), shown_path(root));
        return Err(fault(format!("the file {target} leaves the plugin {root}")));
    }
    let (content, _) =
        platform::read_regular(&target, limits::MANIFEST_BYTES).map_err(|error| fault(error.to_string()))?;
    let content =
        content.ok_or_else(|| fault(format!("the file is larger than {} bytes", limits::MANIFEST_BYTES)))?;
    parse(without_bom(&content))
}

fn parse(content: &[u8]) -> Result<Manifest, Refusal> {
    let value = json::parse(content).map_err(|error| Refusal {
        half_written: error.fault == json::Fault::Syntax,
        problem: Problem::error(RULE, error.message).at(error.line),
    })?;
    // It parsed, so it is UTF-8.
    let text = std::str::from_utf8(content).unwrap_or_default();
    let fault = |member: &str, message: &str| {
        let problem = Problem { line: line_of(text, &[member]), ..Problem::error(RULE, message) };
        Refusal { half_written: false, problem }
    };
    let id = value.get("id").and_then(Value::as_str).map(str::trim);
    let id = id
        .filter(|id| !id.is_empty() && id.len() <= ID)
        .ok_or_else(|| fault("id", &format!("id must be a string of 1 to {ID} bytes")))?;
    let skills = match value.get("skills") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    };
    let skills = skills.ok_or_else(|| fault("skills", "skills must be a list of directories"))?;
    Ok(Manifest { id: id.to_owned(), skills, line: line_of(text, &["skills"]) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use weft_core::skill::{Diagnostic, Layer, Severity};

    use super::*;
    use crate::{
        Config, Inventory, Loader,
        testing::{self, skill, write},
    };

    fn plugin(root: &Path, id: &str, skills: &str) {
        write(&root.join(NAME), format!("{{\n \"id\": \"{id}\",\n \"skills\": {skills}\n}}"));
    }

    fn config(paths: &[&Path]) -> Config {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        Config { plugins: Plugins { paths, ..Plugins::default() }, ..testing::config::<&str>(&[]) }
    }

    fn load(config: Config) -> Inventory {
        Loader::new(config).load(None)
    }

    fn names(inventory: &Inventory) -> Vec<&str> {
        inventory.copies.iter().map(|copy| copy.definition.name.as_str()).collect()
    }

    fn one(inventory: &Inventory) -> &Diagnostic {
        let [one] = &inventory.diagnostics[..] else { panic!("{:?}", inventory.diagnostics) };
        assert_eq!(one.rule, RULE);
        one
    }

    #[test]
    fn a_plugin_and_a_directory_of_plugins_bring_their_skills_in_order() {
        let temporary = tempfile::tempdir().unwrap();
        let (single, many) = (temporary.path().join("single"), temporary.path().join("many"));
        plugin(&single, "single", r#"["./skills", "one"]"#);
        skill(&single, "skills/a", "a", "");
        // A directory that is one skill.
        skill(&single, "one", "b", "");
        plugin(&many.join("2"), "two", r#"["skills"]"#);
        skill(&many.join("2"), "skills/d", "d", "");
        plugin(&many.join("1"), "one", r#"["skills"]"#);
        skill(&many.join("1"), "skills/c", "c", "");
        plugin(&many.join("none"), "none", "null");
        plugin(&many.join("node_modules"), "pruned", r#"["."]"#);
        fs::create_dir(many.join("no plugin")).unwrap();
        let inventory = load(config(&[&single, &many]));
        assert_eq!(names(&inventory), ["a", "b", "c", "d"]);
        assert!(inventory.diagnostics.is_empty(), "{:?}", inventory.diagnostics);
        assert!(inventory.copies.iter().all(|copy| copy.layer == Layer::Extra));
        assert_eq!(inventory.copies[0].directory, single.join("skills/a"));
        for directory in [&single, &many, &many.join("1"), &many.join("no plugin")] {
            assert!(inventory.directories().any(|watched| watched == directory), "{}", directory.display());
        }
    }

    #[test]
    fn a_plugin_that_is_switched_off_brings_nothing() {
        let temporary = tempfile::tempdir().unwrap();
        plugin(temporary.path(), "p", r#"["skills"]"#);
        skill(temporary.path(), "skills/a", "a", "");
        let mut config = config(&[temporary.path()]);
        for (enabled, count) in [(true, 1), (false, 0)] {
            config.plugins.enabled.insert("p".into(), enabled);
            let inventory = load(config.clone());
            assert_eq!(inventory.copies.len(), count);
            assert!(inventory.diagnostics.is_empty());
        }
    }

    #[test]
    fn what_leaves_the_plugin_is_refused_and_what_is_missing_is_told() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("plugin");
        skill(&temporary.path().join("outside"), "a", "a", "");
        fs::create_dir(&root).unwrap();
        symlink("../outside", root.join("link")).unwrap();
        for (path, severity, part) in [
            ("../outside", Severity::Error, "leaves the plugin"),
            ("link", Severity::Error, "leaves the plugin"),
            ("/", Severity::Error, "no path relative to the plugin"),
            (" ", Severity::Error, "no path relative to the plugin"),
            ("openclaw.plugin.json", Severity::Error, "not a directory"),
            ("none", Severity::Warning, "not there"),
        ] {
            plugin(&root, "p", &format!("[{path:?}]"));
            let inventory = load(config(&[&root]));
            assert!(inventory.copies.is_empty(), "{path}");
            let told = one(&inventory);
            assert_eq!((told.severity, told.line), (severity, Some(3)), "{told}");
            assert!(told.message.contains(part) && told.path.ends_with(NAME), "{told}");
        }
    }

    #[test]
    fn a_manifest_that_cannot_be_read_is_told_of_with_its_line() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join(NAME);
        for (text, line) in [
            ("{\n \"id\": ,", Some(2)),
            ("{\"skills\": []}", None),
            ("{\n \"id\": 5}", Some(2)),
            ("{\n\n \"id\": \"p\", \"skills\": \"skills\"}", Some(3)),
            ("{\"id\": \"p\",\n \"skills\": [5]}", Some(2)),
            ("{\"id\": \"p\",\n \"id\": \"q\"}", Some(2)),
            ("[]", None),
        ] {
            write(&path, text);
            let inventory = load(config(&[temporary.path()]));
            let told = one(&inventory);
            assert_eq!((told.severity, told.line), (Severity::Error, line), "{text}: {told}");
        }
        write(&path, " ".repeat(limits::MANIFEST_BYTES as usize + 1));
        assert!(one(&load(config(&[temporary.path()]))).message.contains("larger"));
        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(one(&load(config(&[temporary.path()]))).message.contains("leaves the plugin"));
        fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(one(&load(config(&[temporary.path()]))).message.contains("not a regular file"));
    }

    #[test]
    fn paths_that_hold_no_plugin_are_told_of() {
        let temporary = tempfile::tempdir().unwrap();
        for (path, part) in [
            (temporary.path().join("none"), "not present"),
            (PathBuf::from("relative"), "non-absolute"),
            (temporary.path().to_owned(), "no openclaw.plugin.json"),
        ] {
            assert!(one(&load(config(&[&path]))).message.contains(part));
        }
    }

    #[test]
    fn of_two_plugins_with_one_id_the_first_counts() {
        let temporary = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            plugin(&temporary.path().join(name), "same", r#"["."]"#);
            skill(&temporary.path().join(name), name, name, "");
        }
        let inventory = load(config(&[temporary.path()]));
        assert_eq!(names(&inventory), ["a"]);
        assert!(one(&inventory).message.contains("already"));
    }

    #[test]
    fn a_half_written_manifest_keeps_the_skills_and_a_removed_one_does_not() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        plugin(root, "p", r#"["skills"]"#);
        skill(root, "skills/a", "a", "");
        let mut loader = Loader::new(config(&[root]));
        let first = loader.load(None);
        let text = fs::read_to_string(root.join(NAME)).unwrap();
        write(&root.join(NAME), &text[..text.len() / 2]);
        for _ in 0..2 {
            let kept = loader.load(Some(&first));
            assert_eq!(names(&kept), ["a"]);
            assert!(one(&kept).message.contains("stays in use"));
        }
        fs::remove_file(root.join(NAME)).unwrap();
        assert!(loader.load(Some(&first)).copies.is_empty());
    }
}
