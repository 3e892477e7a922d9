//! One load: sources in order of precedence, manifests read, copies merged, gates checked, files digested.
//!
//! Merge first, gate after: which copy of a name wins depends on where it lies alone, so a winner that cannot
//! run here still hides the copies below it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use weft_core::{
    advert::Scope,
    entries::Entries,
    ids::{MAX_SKILL_KEY, MAX_SKILL_NAME, SkillKey},
    limits,
    skill::{Definition, Kind, Severity},
};

use crate::{
    digest::{self, Cache, Ignore, Subject},
    entry::resolve_entry,
    exposure::Exposure,
    files::Files,
    frontmatter::{self, Document, Identity},
    gates::Gates,
    host::Host,
    injected::{Injected, entry_of},
    instructions,
    inventory::{Copy, Inventory, Recipe, Stamp},
    manifest::{self, Manifest, Refusal},
    platform::FileStamp,
    plugins::{self, Plugins},
    report::{Level, OUTCOME, Problem, Report, in_one_line, shown_path},
    requirements::Gating,
    source::Source,
    walk::{self, Found, Walk},
};

/// What a loader works from.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directories, in the order in which the operator lists them.
    pub sources: Vec<Source>,
    /// Where plugins are looked for: their skills come after those of all sources.
    pub plugins: Plugins,
    /// The host, as gates see it.
    pub host: Host,
    /// The longest time-out that a manifest may ask for.
    pub max_timeout: Duration,
    /// Where manifests of older systems are read more leniently.
    pub compat: Compat,
    /// What the operator says of single skills.
    pub entries: Entries,
    /// The bundled skills that can be used; `None`: all of them.
    pub allow_bundled: Option<BTreeSet<SkillKey>>,
    /// A skill may waive its own conditions by `always: true`.
    pub allow_always: bool,
    /// Entries may set variables that make programs load code: see [`is_loader_variable`](crate::is_loader_variable).
    pub allow_loader_variables: bool,
}

impl Config {
    /// These sources on this host, with the limits of the contract.
    pub fn new(sources: Vec<Source>) -> Self {
        Self {
            sources,
            plugins: Plugins::default(),
            host: Host::current(),
            max_timeout: limits::MAX_TIMEOUT,
            compat: Compat::default(),
            entries: Entries::new(),
            allow_bundled: None,
            allow_always: false,
            allow_loader_variables: false,
        }
    }

    /// Every directory that is loaded from, or looked for plugins in, as far as it can be.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        let sources = self.sources.iter().map(|source| &source.root);
        sources.chain(&self.plugins.paths).filter(|root| root.is_absolute())
    }
}

/// Switches for manifests that were valid before weft. All are off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compat {
    /// A time-out out of range is brought into it, with a warning, and does not refuse the manifest.
    pub clamp_timeouts: bool,
    /// A description of white space is a description.
    pub blank_descriptions: bool,
    /// A name may be as long as a key can be.
    pub long_names: bool,
    /// Of a member that comes twice the last counts, and the case of its name does not; what guards a host is never
    /// weakened by that.
    pub loose_members: bool,
}

impl Compat {
    /// The longest name that is taken.
    pub(crate) const fn longest_name(self) -> usize {
        if self.long_names { MAX_SKILL_KEY } else { MAX_SKILL_NAME }
    }
}

/// Loads skills from disk, again and again. Blocks on the file system.
#[derive(Debug)]
pub struct Loader {
    config: Config,
    cache: Cache,
    files: Files,
    plugins: plugins::Known,
    report: Report,
}

/// Most copies of skills on a node: where agents share a workspace, each of them has its own copy of what is in it.
const MAX_COPIES: usize = 4 * limits::SKILLS_PER_NODE;

impl Loader {
    /// A loader that has read nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            cache: Cache::default(),
            files: Files::default(),
            plugins: plugins::Known::default(),
            report: Report::default(),
        }
    }

    /// What it loads from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Works from this from now on. What was read before and would be read the same is not read again.
    pub fn reconfigure(&mut self, config: Config) {
        if (config.max_timeout, config.compat) != (self.config.max_timeout, self.config.compat) {
            self.files = Files::default();
        }
        self.config = config;
    }

    /// Reads every source. Of a skill whose manifest is half-written now, the version in `previous` stays.
    pub fn load(&mut self, previous: Option<&Inventory>) -> Inventory {
        let Self { config, cache, files, plugins, report } = self;
        let plugged = config.plugins.find(plugins, report);
        let mut exposure = Exposure::default();
        let roots = roots(config.sources.iter().chain(&plugged.sources), &mut exposure, report);
        let allowed: Arc<[PathBuf]> = roots.iter().map(|root| root.canonical.clone()).collect();
        let mut load = Load {
            config,
            cache,
            files,
            report,
            allowed,
            previous,
            exposure,
            copies: Vec::new(),
            made: HashMap::new(),
        };
        let mut left_out: Option<(PathBuf, usize)> = None;
        let mut directories = Vec::new();
        let mut walks: HashMap<&Path, Rc<Walk>> = HashMap::new();
        let mut seen: HashSet<(Scope, PathBuf)> = HashSet::new();
        let mut skills: HashSet<PathBuf> = HashSet::new();
        for root in &roots {
            let walk = match walks.get(root.source.root.as_path()) {
                Some(walk) => Rc::clone(walk),
                None => {
                    let mut walk = walk::walk(&root.source.root, &root.canonical, walk::Bounds::default());
                    directories.append(&mut walk.directories);
                    let walk = Rc::new(walk);
                    walks.insert(&root.source.root, Rc::clone(&walk));
                    walk
                }
            };
            load.report.turn_to(&root.source.scope);
            for (path, problem) in &walk.problems {
                load.report.warn(path, None, problem);
            }
            load.count(root, &walk);
            for found in &walk.found {
                // Sources that overlap reach the same directory twice; it is one copy.
                if !seen.insert((root.source.scope.clone(), found.canonical.clone())) {
                    continue;
                }
                let room = skills.len() < limits::SKILLS_PER_NODE || skills.contains(&found.canonical);
                if room && load.copies.len() < MAX_COPIES {
                    let copies = load.copies.len();
                    load.skill(root, found);
                    if load.copies.len() > copies {
                        skills.insert(found.canonical.clone());
                    }
                } else {
                    left_out.get_or_insert((found.directory.clone(), 0)).1 += 1;
                }
            }
        }
        let mut copies = load.copies;
        report.turn_to(&Scope::All);
        if let Some((first, count)) = left_out {
            let message = format!(
                "more than {} skills; {count} are left out, from this one on",
                limits::SKILLS_PER_NODE
            );
            report.warn(&first, None, &Problem::warning("limit", message));
        }
        merge(&mut copies, report);
        gate(&mut copies, config, report);
        directories.extend(plugged.directories);
        cache.turn();
        files.turn();
        let mut inventory = Inventory {
            revision: 1,
            copies: copies.into_iter().map(Arc::new).collect(),
            diagnostics: report.finish(),
            directories,
        };
        if let Some(previous) = previous {
            inventory.revision = previous.revision + u64::from(!inventory.tells_the_same(previous));
        }
        inventory
    }
}

/// A source whose root exists.
struct Root<'a> {
    source: &'a Source,
    canonical: PathBuf,
    /// Everybody on this host can replace all of it.
    exposed: bool,
}

/// The sources that can be read, in order of precedence.
fn roots<'a>(
    sources: impl Iterator<Item = &'a Source>,
    exposure: &mut Exposure,
    report: &mut Report,
) -> Vec<Root<'a>> {
    let mut sorted: Vec<&Source> = sources.collect();
    sorted.sort_by_key(|source| source.layer);
    let mut roots = Vec::new();
    for source in sorted {
        report.turn_to(&source.scope);
        let path = &source.root;
        let shown = shown_path(path);
        let (level, line, problem) = if path.is_absolute() {
            match path.canonicalize().and_then(|canonical| Ok((canonical.metadata()?.is_dir(), canonical))) {
                Ok((true, canonical)) => {
                    let exposed = exposure.source(path, &canonical, report);
                    roots.push(Root { source, canonical, exposed });
                    continue;
                }
                Ok((false, _)) => {
                    let line = format!("{shown} is not a directory, skipping");
                    (Level::Warn, line.clone(), Problem::error("source", line))
                }
                Err(error) if source.implied && is_missing(&error) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let line = format!("dir {shown} not present, skipping");
                    (Level::Info, line.clone(), Problem::warning("source", line))
                }
                Err(error) => {
                    let line = format!("stat {shown}: {error}");
                    (Level::Warn, line.clone(), Problem::error("source", line))
                }
            }
        } else {
            let line = format!("skip non-absolute dir \"{shown}\"");
            (Level::Warn, line.clone(), Problem::error("source", line))
        };
        report.log(level, path, problem.rule, line, String::new());
        report.diagnose(path, None, &problem);
    }
    report.turn_to(&Scope::All);
    roots
}

/// Whether there is no such directory, also because what should lead to it is none.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Checks the conditions of every copy, with what the operator's entry gives it.
fn gate(copies: &mut [Copy], config: &Config, report: &mut Report) {
    let mut gates = Gates::new(config);
    let mut unused: BTreeSet<&SkillKey> = config.entries.keys().collect();
    for copy in copies {
        report.turn_to(&copy.scope);
        let definition = &copy.definition;
        if let Some((key, _)) = entry_of(definition, &config.entries) {
            unused.remove(key);
        }
        let wins = copy.shadowed_by.is_none();
        let injected = Injected::of(definition, config, &mut |entry, problem| {
            if wins {
                report.warn(&entry_path(entry), Some(&definition.key), &problem);
            }
        });
        copy.verdicts = gates.check(definition, copy.layer, injected.as_ref());
        copy.injected = injected.map(Arc::new);
    }
    report.turn_to(&Scope::All);
    // One for all of them: nodes that share one configuration have many entries for skills of other nodes.
    if !unused.is_empty() {
        let names: Vec<&str> = unused.into_iter().map(SkillKey::as_str).collect();
        let message = format!("there is no skill here for: {}", names.join(", "));
        report.warn(Path::new("skills.entries"), None, &Problem::warning("entries", message));
    }
}

/// Where an entry is, in place of the path of a file.
fn entry_path(key: &SkillKey) -> PathBuf {
    PathBuf::from(format!("skills.entries.{key}"))
}

/// Marks every copy that another one hides.
fn merge(copies: &mut [Copy], report: &mut Report) {
    let mut winners: HashMap<(Scope, SkillKey), PathBuf> = HashMap::new();
    for copy in copies {
        report.turn_to(&copy.scope);
        let key = (copy.scope.clone(), copy.definition.key.clone());
        let name = &copy.definition.name;
        let path = shown_path(&copy.manifest);
        match winners.get(&key) {
            None => {
                winners.insert(key, copy.directory.clone());
                copy.shadowed_by = None;
                let line = match copy.definition.kind {
                    Kind::Executable => format!("registered subprocess skill \"{name}\" from {path}"),
                    Kind::Instructions => format!("registered instructions \"{name}\" from {path}"),
                };
                report.log(Level::Info, &copy.manifest, OUTCOME, line, copy.digest.to_string());
            }
            Some(winner) => {
                copy.shadowed_by = Some(winner.clone());
                let line = format!("skill \"{name}\" already registered, skipping {path}");
                report.log(Level::Warn, &copy.manifest, OUTCOME, line, winner.display().to_string());
                let message = format!("skill \"{name}\" is shadowed by the copy in {}", shown_path(winner));
                let problem = Problem::warning("duplicate", message);
                report.diagnose(&copy.manifest, Some(&copy.definition.key), &problem);
            }
        }
    }
}

/// What a manifest or a document alone gives: all but where it lies.
struct Read {
    definition: Definition,
    entry: String,
    ignore: Ignore,
    warnings: Vec<(PathBuf, Problem)>,
}

struct Load<'a> {
    config: &'a Config,
    cache: &'a Cache,
    files: &'a mut Files,
    report: &'a mut Report,
    allowed: Arc<[PathBuf]>,
    previous: Option<&'a Inventory>,
    exposure: Exposure,
    copies: Vec<Copy>,
    /// The last copy made of each directory.
    made: HashMap<PathBuf, usize>,
}

impl Load<'_> {
    /// Says what a source was taken for where that is not to be seen: it is a link, or nothing is in it.
    fn count(&mut self, root: &Root<'_>, walk: &Walk) {
        let (path, manifests) = (&root.source.root, walk.found.len());
        if *path != root.canonical {
            let (from, to) = (shown_path(path), shown_path(&root.canonical));
            let line = format!("dir {from} is {to}, with {manifests} skills");
            self.report.log(Level::Info, path, "link", line, String::new());
        }
        if manifests == 0 && walk.problems.is_empty() && !root.source.implied {
            let other_case = path.join(frontmatter::NAME.to_lowercase());
            if other_case.is_file() {
                let message = format!("the file is not read: its name has to be {}", frontmatter::NAME);
                return self.report.warn(&other_case, None, &Problem::error("file", message));
            }
            let message = format!("no {} and no {} is below it", manifest::NAME, frontmatter::NAME);
            self.report.warn(path, None, &Problem::warning("source", message));
        }
    }

    fn skill(&mut self, root: &Root<'_>, found: &Found) {
        // The workspace of several agents is read once.
        let made = self.made.get(&found.directory).and_then(|at| self.copies.get(*at));
        if let Some(copy) = made.filter(|copy| copy.root == root.canonical).cloned() {
            let (scope, layer) = (root.source.scope.clone(), root.source.layer);
            return self.push(Copy { scope, layer, ..copy });
        }
        let mut stamps = Vec::new();
        let own = found.directory.join(if found.has_manifest { manifest::NAME } else { frontmatter::NAME });
        let read = if found.has_manifest {
            self.executable(root, found, &own, &mut stamps)
        } else {
            self.instructions(root, found, &own, &mut stamps)
        };
        match read {
            Ok(read) => self.build(root, found, own, read, stamps),
            Err((path, refusal)) => self.refuse(root, found, &path, &refusal, stamps),
        }
    }

    fn push(&mut self, copy: Copy) {
        self.made.insert(copy.directory.clone(), self.copies.len());
        self.copies.push(copy);
    }

    fn executable(
        &mut self,
        root: &Root<'_>,
        found: &Found,
        own: &Path,
        stamps: &mut Vec<(PathBuf, FileStamp)>,
    ) -> Result<Read, (PathBuf, Refusal)> {
        let Config { max_timeout, compat, .. } = *self.config;
        let (stamp, parsed) = self
            .files
            .manifests
            .read(own, &root.canonical, |bytes| manifest::parse(bytes, max_timeout, compat));
        stamps.extend(stamp.map(|stamp| (own.to_owned(), stamp)));
        let manifest = parsed.map_err(|refusal| (own.to_owned(), refusal))?;
        let document = if found.has_document { Some(self.document(root, found, stamps)) } else { None };
        match document {
            // An old version of both is better than a new one of half.
            Some(Err((path, refusal))) if refusal.half_written && self.earlier(root, found).is_some() => {
                Err((path, refusal))
            }
            document => Ok(executable(&manifest, own, document)),
        }
    }

    fn instructions(
        &mut self,
        root: &Root<'_>,
        found: &Found,
        own: &Path,
        stamps: &mut Vec<(PathBuf, FileStamp)>,
    ) -> Result<Read, (PathBuf, Refusal)> {
        let document = self.document(root, found, stamps)?;
        let directory = found.directory.file_name().unwrap_or_default().to_string_lossy();
        instructions_only(&document, own, &directory, self.config.compat)
            .map_err(|refusal| (own.to_owned(), refusal))
    }

    fn document(
        &mut self,
        root: &Root<'_>,
        found: &Found,
        stamps: &mut Vec<(PathBuf, FileStamp)>,
    ) -> Result<Arc<Document>, (PathBuf, Refusal)> {
        let path = found.directory.join(frontmatter::NAME);
        let (stamp, parsed) = self.files.documents.read(&path, &root.canonical, frontmatter::parse);
        stamps.extend(stamp.map(|stamp| (path.clone(), stamp)));
        parsed.map_err(|refusal| (path, refusal))
    }

    /// Puts together what was read and where it lies.
    fn build(
        &mut self,
        root: &Root<'_>,
        found: &Found,
        own: PathBuf,
        read: Read,
        manifests: Vec<(PathBuf, FileStamp)>,
    ) {
        let Read { definition, entry: entry_text, ignore, warnings } = read;
        for (path, problem) in &warnings {
            self.report.warn(path, Some(&definition.key), problem);
        }
        let mut entry = None;
        let mut entry_stamp = None;
        if definition.kind == Kind::Executable {
            let resolved = resolve_entry(&entry_text, &found.directory, &root.canonical, &self.allowed)
                .and_then(|path| {
                    let metadata = path.symlink_metadata();
                    match metadata {
                        Ok(metadata) => Ok((path, FileStamp::of(&metadata))),
                        Err(source) => Err(crate::entry::EntryError::Unreachable { entry: path, source }),
                    }
                });
            match resolved {
                Ok((path, stamp)) => (entry, entry_stamp) = (Some(path), Some(stamp)),
                Err(error) => {
                    return self.cannot_build(&own, &definition, &Problem::error("entry", error.to_string()));
                }
            }
        }
        let subject = Subject {
            root: &root.canonical,
            directory: &found.canonical,
            entry: entry.as_deref(),
            ignore: &ignore,
        };
        let digested = match digest::digest(subject, digest::Bounds::default(), self.cache) {
            Ok(digested) => digested,
            Err(error) => {
                let problem =
                    Problem::error("digest", format!("cannot read the files of the skill: {error}"));
                // Files that come and go are no reason to lose a skill that worked.
                if let Some(copy) = self.earlier(root, found).cloned() {
                    self.report.warn(&own, Some(&definition.key), &problem);
                    return self.keep(root, copy, manifests);
                }
                return self.cannot_build(&own, &definition, &problem);
            }
        };
        if !root.exposed {
            self.exposure(root, found, &definition.key, &manifests, entry.as_deref());
        }
        let earlier = self.earlier(root, found).map(|copy| &copy.definition);
        let definition = match earlier {
            Some(earlier) if **earlier == definition => Arc::clone(earlier),
            _ => Arc::new(definition),
        };
        self.push(Copy {
            definition,
            scope: root.source.scope.clone(),
            layer: root.source.layer,
            root: root.canonical.clone(),
            directory: found.directory.clone(),
            manifest: own,
            entry,
            digest: digested.digest,
            partial: digested.partial,
            verdicts: Vec::new(),
            shadowed_by: None,
            injected: None,
            stamp: Stamp { manifests, entry: entry_stamp },
            recipe: Recipe {
                entry: entry_text,
                roots: Arc::clone(&self.allowed),
                ignore,
                cache: self.cache.clone(),
            },
        });
    }

    /// Warns of what everybody on this host could change about how a skill runs.
    fn exposure(
        &mut self,
        root: &Root<'_>,
        found: &Found,
        key: &SkillKey,
        manifests: &[(PathBuf, FileStamp)],
        entry: Option<&Path>,
    ) {
        let Self { exposure, report, .. } = self;
        for (manifest, _) in manifests {
            exposure.file(manifest, &root.source.root, &found.directory, key, report);
        }
        // Another source may hold the entry; that one was looked at as a whole.
        let entry =
            entry.and_then(|entry| Some((entry, self.allowed.iter().find(|root| entry.starts_with(root))?)));
        if let Some((entry, root)) = entry {
            exposure.file(entry, root, &found.canonical, key, report);
        }
    }

    fn cannot_build(&mut self, path: &Path, definition: &Definition, problem: &Problem) {
        let line = format!("build \"{}\": {}", definition.name, in_one_line(std::slice::from_ref(problem)));
        self.report.log(Level::Warn, path, OUTCOME, line, String::new());
        self.report.diagnose(path, Some(&definition.key), problem);
    }

    /// The copy that the last load found in the same place.
    fn earlier(&self, root: &Root<'_>, found: &Found) -> Option<&Copy> {
        let copies = &self.previous?.copies;
        copies
            .iter()
            .find(|copy| copy.directory == found.directory && copy.scope == root.source.scope)
            .map(|copy| &**copy)
    }

    /// Reports a file that gives no skill, and keeps the version from before a write that is not finished.
    fn refuse(
        &mut self,
        root: &Root<'_>,
        found: &Found,
        path: &Path,
        refusal: &Refusal,
        stamps: Vec<(PathBuf, FileStamp)>,
    ) {
        let line = format!("parse {}: {}", shown_path(path), faults(refusal));
        let kept = if refusal.half_written { self.earlier(root, found).cloned() } else { None };
        // A skill is mostly named as its directory: whoever asks for it hears what is wrong with it, and not
        // that nobody knows it.
        let key = refusal
            .key
            .clone()
            .or_else(|| kept.as_ref().map(|copy| copy.definition.key.clone()))
            .or_else(|| named_as(&found.directory));
        for problem in &refusal.problems {
            let mut problem = problem.clone();
            if kept.is_some() && problem.severity == Severity::Error {
                problem.message.push_str("; the version read before stays in use");
            }
            self.report.diagnose(path, key.as_ref(), &problem);
        }
        match kept {
            None => self.report.log(Level::Warn, path, OUTCOME, line, String::new()),
            Some(copy) => {
                // Its own topic: the manifest stays registered.
                self.report.log(Level::Warn, path, "kept", line, String::new());
                self.keep(root, copy, stamps);
            }
        }
    }

    /// Keeps a copy of the last load beside files as they are now. A start compares with those, so that it goes
    /// on; should the entry change as well, starts are refused until the files can be read.
    fn keep(&mut self, root: &Root<'_>, mut copy: Copy, stamps: Vec<(PathBuf, FileStamp)>) {
        for (path, stamp) in stamps {
            match copy.stamp.manifests.iter_mut().find(|(known, _)| *known == path) {
                Some((_, known)) => *known = stamp,
                None => copy.stamp.manifests.push((path, stamp)),
            }
        }
        copy.shadowed_by = None;
        copy.root.clone_from(&root.canonical);
        copy.layer = root.source.layer;
        self.push(copy);
    }
}

/// Why a file gives no skill, in one line.
fn faults(refusal: &Refusal) -> String {
    let errors = refusal.problems.iter().filter(|problem| problem.severity == Severity::Error);
    in_one_line(&errors.cloned().collect::<Vec<_>>())
}

/// The key of a skill that has the name of its directory.
fn named_as(directory: &Path) -> Option<SkillKey> {
    SkillKey::normalise(directory.file_name()?.to_str()?).ok()
}

fn executable(
    manifest: &Manifest,
    path: &Path,
    document: Option<Result<Arc<Document>, (PathBuf, Refusal)>>,
) -> Read {
    let gating = &manifest.gating;
    let mut warnings: Vec<(PathBuf, Problem)> = manifest
        .warnings
        .iter()
        .chain(&gating.warnings)
        .map(|problem| (path.to_owned(), problem.clone()))
        .collect();
    let mut definition = Definition {
        name: manifest.name.clone(),
        description: manifest.description.clone(),
        schema: manifest.schema.clone(),
        output_schema: manifest.output_schema.clone(),
        class: manifest.class,
        class_source: manifest.class_source,
        category: manifest.category.clone(),
        timeout: manifest.timeout,
        env_allow: manifest.env_allow.clone(),
        requirements: gating.blocks.clone(),
        broken_requirements: gating.broken.clone(),
        primary_env: gating.primary_env.clone(),
        settings_key: gating.settings_key.clone(),
        idempotent: manifest.idempotent,
        sensitive: manifest.sensitive.clone(),
        max_concurrency: manifest.max_concurrency,
        version: manifest.version.clone(),
        ..Definition::new(manifest.key.clone(), Kind::Executable)
    };
    match document {
        None => definition.instructions = instructions::generate(manifest),
        Some(Ok(document)) => {
            let path = path.with_file_name(frontmatter::NAME);
            add_document(&mut definition, &document);
            let found = document.warnings.iter().chain(&document.gating.warnings);
            warnings.extend(found.map(|problem| (path.clone(), problem.clone())));
            let other = document
                .name
                .as_deref()
                .filter(|name| SkillKey::normalise(name).map_or(true, |key| key != definition.key));
            if let Some(other) = other {
                let message = format!(
                    "name {:?} is not used: the skill is named {:?} by {}",
                    crate::report::shown(other),
                    definition.name,
                    manifest::NAME
                );
                warnings.push((path, Problem::warning("name", message)));
            }
        }
        // The conditions may be in what could not be read.
        Some(Err((path, refusal))) => {
            definition.instructions = instructions::generate(manifest);
            // A definition says nothing of the host, such as where a file lies.
            let reason = match refusal.problems.iter().any(|problem| problem.rule == "file") {
                true => "the file cannot be read".to_owned(),
                false => faults(&refusal),
            };
            definition.broken_requirements.get_or_insert(format!("{}: {reason}", frontmatter::NAME));
            warnings.extend(
                refusal
                    .problems
                    .into_iter()
                    .map(|problem| (path.clone(), Problem { severity: Severity::Warning, ..problem })),
            );
        }
    }
    if let Some(reason) = &gating.broken {
        warnings.push((path.to_owned(), Problem::warning("metadata", reason)));
    }
    Read { definition, entry: manifest.entry.clone(), ignore: manifest.digest_ignore.clone(), warnings }
}

/// What a document adds to a skill that a manifest names.
fn add_document(definition: &mut Definition, document: &Document) {
    definition.requirements.extend(document.gating.blocks.iter().cloned());
    if let Some(reason) = &document.gating.broken {
        definition.broken_requirements.get_or_insert(format!("{}: {reason}", frontmatter::NAME));
    }
    let Gating { primary_env, settings_key, .. } = &document.gating;
    definition.primary_env = definition.primary_env.take().or_else(|| primary_env.clone());
    definition.settings_key = definition.settings_key.take().or_else(|| settings_key.clone());
    if definition.version.is_empty() {
        definition.version.clone_from(&document.version);
    }
    definition.when_to_use.clone_from(&document.when_to_use);
    definition.activation.clone_from(&document.activation);
    definition.hidden_from_prompts = document.hidden_from_prompts;
    definition.instructions.clone_from(&document.text);
}

fn instructions_only(
    document: &Document,
    path: &Path,
    directory: &str,
    compat: Compat,
) -> Result<Read, Refusal> {
    let broken = document.gating.broken.iter().map(|reason| Problem::warning("metadata", reason));
    let odd = document.warnings.iter().chain(&document.gating.warnings).cloned().chain(broken);
    let identity = match document.identity(directory, compat) {
        Ok(identity) => identity,
        Err(mut refusal) => {
            refusal.problems.extend(odd);
            return Err(refusal);
        }
    };
    let Identity { key, name, description, warning } = identity;
    let long = manifest::long_name(&key).map(|message| Problem::warning("name", message));
    let mut definition = Definition { name, description, ..Definition::new(key, Kind::Instructions) };
    add_document(&mut definition, document);
    definition.broken_requirements.clone_from(&document.gating.broken);
    let warnings = odd.chain(long).chain(warning).map(|problem| (path.to_owned(), problem)).collect();
    Ok(Read { definition, entry: String::new(), ignore: Ignore::default(), warnings })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
