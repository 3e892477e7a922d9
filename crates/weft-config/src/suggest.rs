//! Spellings of keys: which are one key, and which one was probably meant.

/// Whether a key as written is this one: as it stands, in `snake_case` or in `camelCase`.
pub(crate) fn spells(written: &str, name: &str) -> bool {
    written == name || snake(name).eq(written.chars()) || camel(name).eq(written.chars())
}

fn snake(name: &str) -> impl Iterator<Item = char> {
    name.chars().flat_map(|c| {
        let under = c.is_ascii_uppercase().then_some('_');
        under.into_iter().chain([c.to_ascii_lowercase()])
    })
}

fn camel(name: &str) -> impl Iterator<Item = char> {
    let mut raise = false;
    name.chars().filter_map(move |c| {
        if c == '_' {
            raise = true;
            return None;
        }
        Some(if std::mem::take(&mut raise) { c.to_ascii_uppercase() } else { c })
    })
}

/// How alike two keys must be for one to be taken for the other.
const ALIKE: f64 = 0.8;

/// The known key that an unknown one was probably meant to be.
pub(crate) fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |name: &str| -> String {
        // No key is longer, and comparing costs the product of the lengths.
        let letters = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).take(64);
        letters.map(|c| c.to_ascii_lowercase()).collect()
    };
    let written = plain(written);
    let scored = known.iter().map(|name| (strsim::jaro(&written, &plain(name)), *name));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 >= ALIKE).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_cases_are_one_key_and_nothing_else_is() {
        for name in ["maxSkillsInPrompt", "max_skills_in_prompt"] {
            assert!(spells("maxSkillsInPrompt", name));
            assert!(spells("max_skills_in_prompt", name));
            assert!(!spells("MaxSkillsInPrompt", name));
            assert!(!spells("max-skills-in-prompt", name));
        }
    }

    #[test]
    fn a_slip_of_the_pen_finds_its_key_and_another_word_finds_none() {
        let known = ["coordinator", "labels", "state_dir", "skills", "max_class"];
        for (written, meant) in [
            ("labls", Some("labels")),
            ("statedir", Some("state_dir")),
            ("Skills", Some("skills")),
            ("skill", Some("skills")),
            ("max-class", Some("max_class")),
            ("browser", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, &known), meant, "{written}");
        }
    }
}
