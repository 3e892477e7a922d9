//! A skill to begin with: `weft skill new`, and the sample of `weft dev`.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use clap::ValueEnum;
use weft_core::skill::Class;

/// The language of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Lang {
    /// A shell script that needs no other program.
    #[default]
    Sh,
    /// A Python 3 script.
    Python,
}

/// What to write.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    /// The skill's name, which is that of its directory as well.
    pub(crate) name: String,
    pub(crate) lang: Lang,
    pub(crate) class: Class,
    /// With a `SKILL.md`.
    pub(crate) instructions: bool,
}

const DESCRIPTION: &str =
    "Greets somebody and says on stderr what it is doing. Change it, and call it again.";

impl Template {
    /// A safe shell skill.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), lang: Lang::default(), class: Class::Safe, instructions: false }
    }

    /// Writes the skill into a new directory below this one, and returns its path. Whoever watches sees all of it or
    /// nothing.
    pub(crate) fn write(&self, below: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(below)?;
        let skill = below.join(&self.name);
        fs::create_dir(&skill)?;
        let (entry, program) = self.program();
        let entry = skill.join(entry);
        fs::write(&entry, self.filled(program))?;
        fs::set_permissions(&entry, fs::Permissions::from_mode(0o755))?;
        if self.instructions {
            fs::write(skill.join("SKILL.md"), self.filled(include_str!("template/SKILL.md")))?;
        }
        // Last and at once: a directory counts once it has a manifest.
        let draft = skill.join(".skill.json.draft");
        fs::write(&draft, self.filled(include_str!("template/skill.json")))?;
        fs::rename(draft, skill.join("skill.json"))?;
        Ok(skill)
    }

    fn program(&self) -> (&'static str, &'static str) {
        match self.lang {
            Lang::Sh => ("run.sh", include_str!("template/run.sh")),
            Lang::Python => ("run.py", include_str!("template/run.py")),
        }
    }

    fn filled(&self, text: &str) -> String {
        [
            ("{{name}}", self.name.as_str()),
            ("{{description}}", DESCRIPTION),
            ("{{entry}}", self.program().0),
            ("{{class}}", self.class.as_str()),
            ("{{needs}}", self.needs()),
        ]
        .iter()
        .fold(text.to_owned(), |text, (place, value)| text.replace(place, value))
    }

    /// What the entry needs of a host, as members of the manifest.
    fn needs(&self) -> &'static str {
        match self.lang {
            Lang::Sh => "",
            Lang::Python => {
                ",\n  \"env_allow\": [\"PATH\"],\n  \"metadata\": {\"requires\": {\"bins\": [\"python3\"]}}"
            }
        }
    }
}
