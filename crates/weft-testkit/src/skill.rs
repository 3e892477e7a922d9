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
    manifest: Value,
    program: String,
}

impl Skill {
    /// A safe skill with this program text.
    pub fn new(name: &str, program: &str) -> Self {
        let manifest = json!({
            "name": name, "description": format!("fixture {name}"), "entry": "run", "class": "safe",
            "env_allow": ["PATH"],
        });
        Self { name: name.into(), manifest, program: program.into() }
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

    /// Writes it below a directory, the manifest last and at once, as an installer would.
    pub fn write(&self, root: &Path) -> PathBuf {
        let dir = root.join(&self.name);
        fs::create_dir_all(&dir).unwrap();
        let entry = dir.join("run");
        fs::write(&entry, &self.program).unwrap();
        fs::set_permissions(&entry, fs::Permissions::from_mode(0o755)).unwrap();
        let draft = dir.join(".skill.json.draft");
        fs::write(&draft, self.manifest.to_string()).unwrap();
        fs::rename(draft, dir.join("skill.json")).unwrap();
        dir
    }
}
