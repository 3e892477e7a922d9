//! Fixture skills.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

/// A skill to be written into a directory.
#[derive(Debug, Clone)]
pub struct Skill {
    name: String,
    directory: String,
    manifest: Value,
    /// The manifest as it stands in the file, when that matters.
    text: Option<Vec<u8>>,
    program: String,
}

impl Skill {
    /// A safe skill with this program text.
    pub fn new(name: &str, program: &str) -> Self {
        let manifest = json!({
            "name": name, "description": format!("fixture {name}"), "entry": "run", "class": "safe",
            "env_allow": ["PATH"],
        });
        Self { name: name.into(), directory: name.into(), manifest, text: None, program: program.into() }
    }

    /// A shell script that drops its args.
    pub fn sh(name: &str, script: &str) -> Self {
        Self::new(name, &format!("#!/bin/sh\ncat >/dev/null\n{script}\n"))
    }

    /// Prints its args back, byte for byte.
    pub fn echo(name: &str) -> Self {
        Self::new(name, "#!/bin/sh\nexec cat\n")
    }

    /// Sets a member of the manifest.
    #[must_use]
    pub fn with(mut self, member: &str, value: Value) -> Self {
        self.manifest[member] = value;
        self
    }

    /// Leaves a member out of the manifest.
    #[must_use]
    pub fn without(mut self, member: &str) -> Self {
        self.manifest.as_object_mut().unwrap().remove(member);
        self
    }

    /// The manifest is exactly this, valid or not.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Its directory has another name than the skill; slashes make it lie deeper.
    #[must_use]
    pub fn in_directory(mut self, directory: &str) -> Self {
        self.directory = directory.into();
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes it below a directory, the manifest last and at once, as an installer would.
    pub fn write(&self, root: &Path) -> PathBuf {
        let dir = root.join(&self.directory);
        fs::create_dir_all(&dir).unwrap();
        let entry = dir.join("run");
        fs::write(&entry, &self.program).unwrap();
        fs::set_permissions(&entry, fs::Permissions::from_mode(0o755)).unwrap();
        let draft = dir.join(".skill.json.draft");
        let text = self.text.clone().unwrap_or_else(|| self.manifest.to_string().into_bytes());
        fs::write(&draft, text).unwrap();
        fs::rename(draft, dir.join("skill.json")).unwrap();
        dir
    }
}

/// Writes a file, with the directories above it.
pub fn put(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Writes a program.
pub fn put_program(path: &Path, text: &str) {
    put(path, text);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
