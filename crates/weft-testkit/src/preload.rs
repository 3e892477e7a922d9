//! Libraries that take something of the system away from one process, as a fault would. Preloaded by a node alone:
//! none of its children gets its environment.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::skill::put;

/// No inotify, as when every instance of the user is taken.
pub const WITHOUT_INOTIFY: &str = r"
#include <errno.h>
int inotify_init(void) { errno = EMFILE; return -1; }
int inotify_init1(int flags) { (void)flags; errno = EMFILE; return -1; }
";

/// No control groups, as in most pods.
pub const WITHOUT_CGROUPS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
static int opened(const char *symbol, const char *path, int flags, mode_t mode) {
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, symbol);
    if (strcmp(path, "/proc/self/cgroup") == 0) { errno = ENOENT; return -1; }
    return next(path, flags, mode);
}
#define OPEN(name)                                                                         \
    int name(const char *path, int flags, ...) {                                           \
        va_list more; va_start(more, flags);                                               \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0;          \
        va_end(more);                                                                      \
        return opened(#name, path, flags, mode);                                           \
    }
OPEN(open)
OPEN(open64)
"#;

/// Builds such a library in a directory; its path is for `LD_PRELOAD`.
pub fn library(dir: &Path, source: &str) -> PathBuf {
    let (text, library) = (dir.join("preload.c"), dir.join("preload.so"));
    put(&text, source);
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &text]).arg("-ldl").output();
    let built = built.unwrap();
    assert!(built.status.success(), "{built:?}");
    library
}
