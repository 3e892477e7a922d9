//! Why a program could not be started, said the way its author needs to hear it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::linux::clone::{Failure, Step};

/// How much of a file the kernel looks at for `#!`, and enough of an ELF file for its program headers.
const HEAD_BYTES: u64 = 4096;

/// The kernel follows interpreters that are scripts themselves no further than this.
const INTERPRETER_DEPTH: usize = 5;

/// Why a program could not be started. In every case no code of the skill ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The entry is not there.
    #[error("entry `{}` does not exist", entry.display())]
    EntryMissing {
        /// The program that was to run.
        entry: PathBuf,
    },
    /// The entry may not be executed.
    #[error("entry `{}` is not executable (no execute permission, or on a file system mounted noexec)", entry.display())]
    NotExecutable {
        /// The program that was to run.
        entry: PathBuf,
    },
    /// The kernel does not recognise the file as a program. It is never handed to a shell instead.
    #[error("entry `{}` is not an executable format: {hint}", entry.display())]
    NotExecutableFormat {
        /// The program that was to run.
        entry: PathBuf,
        /// What its first bytes suggest.
        hint: &'static str,
    },
    /// The entry is there, but the interpreter it names is not.
    #[error("interpreter missing: entry `{}` asks for `{}`{}", entry.display(), interpreter.escape_debug(), carriage_return_hint(*.carriage_return))]
    InterpreterMissing {
        /// The program that was to run.
        entry: PathBuf,
        /// The interpreter as the file names it.
        interpreter: String,
        /// The name ends in a carriage return: the file has Windows line ends.
        carriage_return: bool,
    },
    /// The interpreter the entry names may not be executed.
    #[error("interpreter not executable: entry `{}` asks for `{}`", entry.display(), interpreter.escape_debug())]
    InterpreterNotExecutable {
        /// The program that was to run.
        entry: PathBuf,
        /// The interpreter as the file names it.
        interpreter: String,
    },
    /// Somebody had the file open for writing, and still had after a second of retries.
    #[error("entry `{}` is busy: it is open for writing", entry.display())]
    TextFileBusy {
        /// The program that was to run.
        entry: PathBuf,
    },
    /// The child could not enter its working directory.
    #[error("cannot enter working directory `{}`: {}", directory.display(), reason(*.errno))]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The system's error number.
        errno: i32,
    },
    /// This process or the system has no file descriptor left.
    #[error("too many open files: {}", reason(*.errno))]
    TooManyFiles {
        /// The system's error number.
        errno: i32,
    },
    /// This user, container or system may not have another process.
    #[error("too many processes")]
    TooManyProcesses,
    /// The environment does not fit into what the kernel passes on.
    #[error("environment too large")]
    EnvironmentTooLarge,
    /// The command itself cannot be expressed.
    #[error("invalid command: {what}")]
    InvalidCommand {
        /// What is wrong with it.
        what: String,
    },
    /// Anything else, by step and error number.
    #[error("failed to {step}: {}", reason(*.errno))]
    Other {
        /// What was being done.
        step: &'static str,
        /// The system's error number.
        errno: i32,
    },
}

fn reason(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

fn carriage_return_hint(ends_in_it: bool) -> &'static str {
    if ends_in_it {
        ", which ends in a carriage return (\\r): save the file with LF line ends, not CRLF"
    } else {
        ""
    }
}

impl StartError {
    /// For descriptors that could not be made.
    pub(crate) fn descriptors(errno: i32) -> StartError {
        match errno {
            libc::EMFILE | libc::ENFILE => StartError::TooManyFiles { errno },
            _ => StartError::Other { step: "make pipes", errno },
        }
    }

    /// Turns a failed step into its cause. Looks at the files involved, a moment after the kernel did.
    pub(crate) fn diagnose(failure: Failure, program: &Path, directory: &Path) -> StartError {
        let Failure { step, errno } = failure;
        let entry = directory.join(program);
        match (step, errno) {
            (_, libc::EMFILE | libc::ENFILE) => StartError::TooManyFiles { errno },
            (Step::Clone, libc::EAGAIN) | (Step::Exec, libc::EAGAIN) => StartError::TooManyProcesses,
            (Step::Directory, _) => StartError::Directory { directory: directory.to_owned(), errno },
            (Step::Exec, libc::E2BIG) => StartError::EnvironmentTooLarge,
            (Step::Exec, libc::ETXTBSY) => StartError::TextFileBusy { entry },
            (Step::Exec, libc::ENOEXEC) => {
                StartError::NotExecutableFormat { hint: format_hint(&entry), entry }
            }
            (Step::Exec, libc::ENOENT | libc::ENOTDIR) => match missing_interpreter(&entry, directory) {
                Some(interpreter) => StartError::InterpreterMissing {
                    carriage_return: interpreter.ends_with('\r'),
                    interpreter,
                    entry,
                },
                None => StartError::EntryMissing { entry },
            },
            (Step::Exec, libc::EACCES | libc::EPERM) => {
                let own = fs::metadata(&entry)
                    .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
                    .then(|| interpreter_of(&entry))
                    .flatten();
                match own {
                    Some(interpreter) if !may_execute(&directory.join(&interpreter)) => {
                        StartError::InterpreterNotExecutable { entry, interpreter }
                    }
                    _ => StartError::NotExecutable { entry },
                }
            }
            _ => StartError::Other { step: step.verb(), errno },
        }
    }
}

fn may_execute(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn head(path: &Path) -> Option<Vec<u8>> {
    // Opening anything else might block.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some(head)
}

fn format_hint(entry: &Path) -> &'static str {
    match head(entry) {
        None => "it cannot be read",
        Some(head) if head.is_empty() => "the file is empty",
        Some(head) if head.starts_with(b"\xef\xbb\xbf#!") => "a byte order mark stands before `#!`",
        Some(head) if head.starts_with(b"#!") => "its `#!` line names no interpreter",
        Some(head) if head.starts_with(b"\x7fELF") => "it was built for another machine",
        Some(_) => "it has no `#!` line naming an interpreter",
    }
}

/// The interpreter that is not there, when the entry itself is.
fn missing_interpreter(entry: &Path, directory: &Path) -> Option<String> {
    let mut file = entry.to_owned();
    for _ in 0..INTERPRETER_DEPTH {
        let interpreter = interpreter_of(&file)?;
        let path = directory.join(&interpreter);
        if fs::metadata(&path).is_err() {
            return Some(interpreter);
        }
        file = path;
    }
    None
}

fn interpreter_of(file: &Path) -> Option<String> {
    let head = head(file)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return script_interpreter(line);
    }
    elf_interpreter(&head)
}

/// The first word of the `#!` line, as the kernel splits it: at spaces, tabs and the newline, not at `\r`.
fn script_interpreter(line: &[u8]) -> Option<String> {
    let line = line.split(|&b| b == b'\n').next()?;
    let word = line.split(|b| matches!(b, b' ' | b'\t' | 0)).find(|word| !word.is_empty())?;
    Some(String::from_utf8_lossy(word).into_owned())
}

/// The dynamic loader of a 64-bit little-endian ELF file.
fn elf_interpreter(head: &[u8]) -> Option<String> {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let slice = head.get(at..at.checked_add(bytes)?)?;
        Some(slice.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    };
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (offset, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for n in 0..count {
        let at = usize::try_from(offset.checked_add(n * size)?).ok()?;
        if number(at, 4)? == PT_INTERP {
            let from = usize::try_from(number(at + 8, 8)?).ok()?;
            let to = from.checked_add(usize::try_from(number(at + 32, 8)?).ok()?)?;
            let path = head.get(from..to)?.split(|&b| b == 0).next()?;
            return Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_word_is_split_like_the_kernel_does() {
        assert_eq!(script_interpreter(b" \t/bin/sh -e\nrest").unwrap(), "/bin/sh");
        assert_eq!(script_interpreter(b"/bin/sh\r\necho").unwrap(), "/bin/sh\r");
        assert_eq!(script_interpreter(b"/bin/sh").unwrap(), "/bin/sh");
        assert_eq!(script_interpreter(b"  \n"), None);
    }

    #[test]
    fn loader_of_a_dynamic_program_is_found() {
        let name = elf_interpreter(&head(Path::new("/proc/self/exe")).unwrap());
        assert!(name.is_none_or(|name| name.starts_with("/lib")));
        assert_eq!(elf_interpreter(b"\x7fELF\x02\x01"), None);
    }

    #[test]
    fn message_shows_a_carriage_return() {
        let error = StartError::InterpreterMissing {
            entry: "/s/run".into(),
            interpreter: "/bin/sh\r".into(),
            carriage_return: true,
        };
        let text = error.to_string();
        assert!(text.contains(r"`/bin/sh\r`, which ends in a carriage return"), "{text}");
    }
}
