//! Secrets: as text, or as the place where one is found.

use std::path::Path;

use weft_core::entries::Secret;

use crate::{check::Check, home::Home, table::Place, tree::Kind};

/// Whether a text can be the name of an environment variable in a file.
pub(crate) fn is_variable(name: &str) -> bool {
    let rest = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    name.len() <= 128 && name.bytes().all(rest) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// Reads text, `{source: env, id: NAME}` or `{source: file, id: /path}`. No message shows anything of the value.
///
/// OpenClaw names a `provider` as well. For `env` there is only one, so it is passed over; for `file` the id is a
/// place *within* the provider's file there, so taking it for a path would be wrong.
pub(crate) fn read(place: &Place<'_>, check: &mut Check, home: &Home) -> Option<Secret> {
    match place.kind() {
        Kind::Text(text) if text.contains('\0') => {
            check.problem(place, "must not hold a NUL character");
            None
        }
        Kind::Text(text) => {
            if text.starts_with("${") && text.ends_with('}') {
                check.warn(
                    place,
                    "taken as it stands; for a variable of the node write {source: env, id: NAME}",
                );
            }
            Some(Secret::Plain(text.clone()))
        }
        Kind::Map(_) => reference(place, check, home),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::List(_) => {
            check.problem(
                place,
                "must be text in quotes, {source: env, id: NAME} or {source: file, id: PATH}",
            );
            None
        }
    }
}

fn reference(place: &Place<'_>, check: &mut Check, home: &Home) -> Option<Secret> {
    let mut table = place.table(check)?;
    let source = table.get(check, "source");
    let id = table.get(check, "id");
    let provider = table.get(check, "provider");
    table.finish_silently(check);
    let Some(source) = source else {
        check.problem(place, "source is missing; env and file are known");
        return None;
    };
    let word = source.text(check)?;
    if word == "exec" {
        check.problem(&source, "weft runs no program to get a secret; use env or file");
        return None;
    }
    let Some(id) = id else {
        check.problem(place, "id is missing: the name of the variable, or the path of the file");
        return None;
    };
    match word {
        "env" => {
            let name = id.text(check)?;
            if !is_variable(name) {
                check.problem(&id, "must be the name of a variable: A-Z a-z 0-9 _, no digit first");
                return None;
            }
            Some(Secret::Variable(name.to_owned()))
        }
        "file" => {
            if let Some(provider) = provider {
                check.problem(&provider, "weft knows no providers of files; name the file itself in id");
                return None;
            }
            let path = id.text(check).map(|text| home.expand(text))?;
            match path {
                Ok(path) if Path::is_absolute(&path) => Some(Secret::File(path)),
                Ok(_) => {
                    check.problem(&id, "must be an absolute path");
                    None
                }
                Err(why) => {
                    check.problem(&id, why);
                    None
                }
            }
        }
        _ => {
            check.problem(&source, "must be env or file");
            None
        }
    }
}
