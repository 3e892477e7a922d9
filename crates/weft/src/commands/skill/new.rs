//! `weft skill new`.

use std::{io, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use weft_core::{
    ids::{MAX_SKILL_NAME, SkillKey},
    skill::Class,
};

use crate::{
    args::example::quoted,
    exit::{self, Failure},
    output::{self, program},
    template::{Lang, Template},
};

#[derive(Debug, Args)]
pub(crate) struct New {
    /// Its name: lower-case letters, digits and underscores
    #[arg(value_parser = name)]
    name: String,
    /// The source directory that it is written into
    #[arg(long, default_value = "skills")]
    dir: PathBuf,
    /// The language of its entry
    #[arg(long, value_enum, default_value_t)]
    lang: Lang,
    /// safe reads only, mutating changes something reversibly, dangerous cannot be undone
    #[arg(long, default_value_t = Class::Safe)]
    class: Class,
    /// Also write a SKILL.md: instructions for a model
    #[arg(long)]
    instructions: bool,
}

fn name(text: &str) -> Result<String, String> {
    if text.len() > MAX_SKILL_NAME {
        return Err(format!("longer than the {MAX_SKILL_NAME} characters that a manifest may have"));
    }
    match SkillKey::normalise(text) {
        Ok(key) if key.as_str() == text => Ok(text.to_owned()),
        Ok(key) => Err(format!("not the name of a skill; {key} would be")),
        Err(error) => Err(error.to_string()),
    }
}

impl New {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let Self { name, dir, lang, class, instructions } = self;
        let template = Template { name, lang, class, instructions };
        let skill = match template.write(&dir) {
            Ok(skill) => skill,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let taken = dir.join(&template.name);
                return Err(Failure::usage(format!(
                    "{} exists already; nothing was changed",
                    taken.display()
                )));
            }
            Err(error) => {
                Err(error).with_context(|| format!("write {}", dir.join(&template.name).display()))?
            }
        };
        let (weft, path) = (program(), quoted(&skill.display().to_string()));
        output::print(&format!("wrote {}\n\nnext:", skill.display()))?;
        output::print(&format!("  {weft} skill lint {path}"))?;
        output::print(&format!("  {weft} skill test {path} name=world"))?;
        let source = if dir.as_os_str() == "skills" {
            String::new()
        } else {
            format!(" --skills {}", quoted(&dir.display().to_string()))
        };
        output::print(&format!("  {weft} dev{source}"))?;
        Ok(exit::OK)
    }
}
