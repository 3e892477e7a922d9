//! The one way a child starts, and the only module of weft with `unsafe` code.
//!
//! [`start`] makes the child with `clone3` (or `clone`, where a seccomp profile answers `ENOSYS` to `clone3`,
//! as the default profile of container runtimes does) and the flags `CLONE_VM | CLONE_VFORK | CLONE_PIDFD`.
//! The child runs [`child_main`] on a stack of its own while the calling thread is suspended by the kernel,
//! makes raw system calls only, and ends in `execve` or `_exit`. Nothing is copied, so a start costs the same
//! from any heap size. Because memory is shared, the child leaves the step that failed and its errno in the
//! [`Plan`]; no pipe is needed for it.

#![expect(
    unsafe_code,
    reason = "a child that needs rlimits, a process group and a cgroup before exec, from any heap size, cannot be \
              started by std::process: it would fork"
)]

use std::arch::asm;
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::tag::Marks;

const STACK_BYTES: usize = 64 * 1024;
const GUARD_BYTES: usize = 64 * 1024; // a whole page at every page size in use
const LAST_SIGNAL: usize = 64;
const SIGNAL_SET_BYTES: usize = 8;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000; // libc's constant is too narrow for it

/// What the child was doing when it could not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Clone,
    Signals,
    ProcessGroup,
    Cgroup,
    Limits,
    Directory,
    Stdio,
    Descriptors,
    Exec,
}

impl Step {
    const ALL: [Step; 9] = [
        Step::Clone,
        Step::Signals,
        Step::ProcessGroup,
        Step::Cgroup,
        Step::Limits,
        Step::Directory,
        Step::Stdio,
        Step::Descriptors,
        Step::Exec,
    ];

    /// The step as part of "failed to …".
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Step::Clone => "clone the process",
            Step::Signals => "reset signals",
            Step::ProcessGroup => "make a process group",
            Step::Cgroup => "enter the cgroup",
            Step::Limits => "set resource limits",
            Step::Directory => "enter the working directory",
            Step::Stdio => "connect stdin, stdout and stderr",
            Step::Descriptors => "close inherited descriptors",
            Step::Exec => "execute the entry",
        }
    }
}

/// A start that failed: where and with which errno. No process is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) errno: i32,
}

/// A started child, not yet reaped.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
}

/// How the child comes into its cgroup.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Placement<'a> {
    /// It stays in ours.
    Inherit,
    /// Born there: `CLONE_INTO_CGROUP` with a descriptor of the group's directory.
    Born(BorrowedFd<'a>),
    /// Writes itself into the group's `cgroup.procs`, opened for writing. For kernels or seccomp profiles
    /// without `clone3`.
    Enter(BorrowedFd<'a>),
}

/// Which system call makes the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Clone3,
    Clone,
}

/// Program, argv, environment and directory in the form `execve` wants, allocated before the clone.
#[derive(Debug)]
pub(crate) struct Image {
    path: CString,
    argv: [*const c_char; 2],
    directory: CString,
    // `envp` points into `environment`, whose heap buffers stay where they are when the image moves.
    _environment: Vec<CString>,
    envp: Vec<*const c_char>,
}

impl Image {
    /// Fails with the name of the part that holds a NUL byte, which no kernel interface can carry.
    pub(crate) fn new(
        program: &Path,
        directory: &Path,
        environment: &[(OsString, OsString)],
    ) -> Result<Image, String> {
        let c = |bytes: &OsStr, what: &str| {
            CString::new(bytes.as_bytes()).map_err(|_| format!("{what} contains a NUL byte"))
        };
        let path = c(program.as_os_str(), "entry path")?;
        let directory = c(directory.as_os_str(), "working directory")?;
        let mut entries = Vec::with_capacity(environment.len());
        for (name, value) in environment {
            let mut entry = OsString::with_capacity(name.len() + value.len() + 1);
            entry.push(name);
            entry.push("=");
            entry.push(value);
            let what = format!("environment variable `{}`", name.to_string_lossy().escape_debug());
            entries.push(c(&entry, &what)?);
        }
        let envp = entries.iter().map(|e| e.as_ptr()).chain([ptr::null()]).collect();
        Ok(Image { argv: [path.as_ptr(), ptr::null()], path, directory, _environment: entries, envp })
    }
}

/// The child's own stack with a guard below it. One per thread that starts children, reused for every start:
/// the thread is suspended for as long as a child uses it.
#[derive(Debug)]
pub(crate) struct Stack {
    base: *mut c_void,
}

// SAFETY: the mapping belongs to this value alone and to no thread in particular.
unsafe impl Send for Stack {}

impl Stack {
    pub(crate) fn new() -> io::Result<Stack> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing
        // memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                GUARD_BYTES + STACK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Stack { base };
        // SAFETY: the range is the low end of the mapping just made, and nothing points into it.
        if unsafe { libc::mprotect(base, GUARD_BYTES, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack)
    }

    fn low(&self) -> usize {
        self.base as usize + GUARD_BYTES
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, made in `new`, and no child runs on it: `start` returns only after the
        // child has left this memory.
        unsafe { libc::munmap(self.base, GUARD_BYTES + STACK_BYTES) };
    }
}

/// What one start does.
#[derive(Debug)]
pub(crate) struct Recipe<'a> {
    /// `None`: the child does everything but `execve` and exits with 0. For probing what the kernel allows.
    pub(crate) image: Option<&'a Image>,
    /// The child's 0, 1 and 2; each of these descriptors must itself be above 2.
    pub(crate) stdio: Option<[BorrowedFd<'a>; 3]>,
    pub(crate) placement: Placement<'a>,
    /// What the child and its descendants carry.
    pub(crate) marks: Option<Marks>,
}

/// Everything the child reads, and where it leaves its failure.
struct Plan {
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    directory: *const c_char,
    stdio: [c_int; 3],
    enter: c_int,
    rttime: [u64; 2],
    locks: [u64; 2],
    marked: bool,
    failed_step: AtomicU32,
    failed_errno: AtomicI32,
}

/// The kernel's `struct clone_args` as of Linux 5.7, which brought `cgroup`.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Starts a child; returns once it has executed its image, or says why it could not.
pub(crate) fn start(call: Call, stack: &mut Stack, recipe: &Recipe<'_>) -> Result<Child, Failure> {
    let plan = Plan {
        path: recipe.image.map_or(ptr::null(), |i| i.path.as_ptr()),
        argv: recipe.image.map_or(ptr::null(), |i| i.argv.as_ptr()),
        envp: recipe.image.map_or(ptr::null(), |i| i.envp.as_ptr()),
        directory: recipe.image.map_or(ptr::null(), |i| i.directory.as_ptr()),
        stdio: recipe.stdio.map_or([-1; 3], |fds| fds.map(|fd| fd.as_raw_fd())),
        enter: match recipe.placement {
            Placement::Enter(fd) => fd.as_raw_fd(),
            Placement::Inherit | Placement::Born(_) => -1,
        },
        rttime: [recipe.marks.map_or(0, |marks| marks.rttime); 2],
        locks: [recipe.marks.map_or(0, |marks| marks.locks); 2],
        marked: recipe.marks.is_some(),
        failed_step: AtomicU32::new(0),
        failed_errno: AtomicI32::new(0),
    };
    debug_assert!(plan.stdio.iter().all(|&fd| fd == -1 || fd > 2), "stdio sources must be above 2");

    let mut pidfd: c_int = -1;
    let pidfd_at = &raw mut pidfd;
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD) as u64;
    // SAFETY: the set is 8 bytes, as the size says. Blocking every signal keeps a handler of ours from
    // running in the child, which would run it in our memory; the mask goes back below before anything else
    // happens.
    let previous = unsafe { swap_signal_mask(u64::MAX) };
    let result = match call {
        Call::Clone3 => {
            let mut args = CloneArgs {
                flags,
                pidfd: pidfd_at as u64,
                exit_signal: libc::SIGCHLD as u64,
                stack: stack.low() as u64,
                stack_size: STACK_BYTES as u64,
                ..CloneArgs::default()
            };
            if let Placement::Born(group) = recipe.placement {
                args.flags |= CLONE_INTO_CGROUP;
                args.cgroup = group.as_raw_fd() as u64;
            }
            let registers = [&raw const args as usize, mem::size_of::<CloneArgs>(), 0, 0, 0];
            // SAFETY: `args` is a valid `clone_args` of the size given; its stack is mapped, writable,
            // 16-byte aligned and used by nobody else (`&mut Stack`). `plan` and all it points to outlive the
            // call, and CLONE_VFORK keeps this thread, and so these borrows, in place until the child has
            // left our memory.
            unsafe { clone_call(libc::SYS_clone3, registers, &plan) }
        }
        Call::Clone => {
            let registers = [
                (flags | libc::SIGCHLD as u64) as usize,
                stack.low() + STACK_BYTES,
                pidfd_at as usize, // with CLONE_PIDFD, parent_tid is where the pidfd goes
                0,
                0,
            ];
            // SAFETY: as above; the stack is given by its upper end, and the last two arguments (child_tid
            // and tls, in an order that depends on the architecture) are not read under these flags.
            unsafe { clone_call(libc::SYS_clone, registers, &plan) }
        }
    };
    // SAFETY: as for the first call; this restores what it returned.
    unsafe { swap_signal_mask(previous) };

    if result < 0 {
        return Err(Failure { step: Step::Clone, errno: -result as i32 });
    }
    // SAFETY: the call succeeded with CLONE_PIDFD, so the kernel stored a new descriptor here, which is ours
    // alone.
    let child =
        Child { pid: result as u32, pidfd: unsafe { OwnedFd::from_raw_fd(ptr::read_volatile(pidfd_at)) } };
    match plan.failed_step.load(Ordering::Relaxed) {
        0 => Ok(child),
        step => {
            super::reap(&child.pidfd);
            let step = Step::ALL.get(step as usize).copied().unwrap_or(Step::Clone);
            Err(Failure { step, errno: plan.failed_errno.load(Ordering::Relaxed) })
        }
    }
}

/// Runs in the child, in the parent's memory: raw system calls only, no allocation, no lock, no panic, no
/// return.
extern "C" fn child_main(plan: *const Plan) -> ! {
    // SAFETY: `start` passes a plan that lives until this child has executed or exited, and writes nothing to
    // it meanwhile: its thread is suspended. What the child writes are atomics.
    let plan = unsafe { &*plan };
    // SAFETY: each call below is a raw system call whose pointers come from the plan or this stack and whose
    // sizes match what they point to. All of them act on the child alone: its descriptor table, signal
    // actions, umask, directory, limits and group are copies, since neither CLONE_FILES, CLONE_SIGHAND,
    // CLONE_FS nor CLONE_THREAD was given.
    unsafe {
        // exec resets what is caught, but not what is ignored, and Rust ignores SIGPIPE. Also before the mask
        // is emptied: a handler must never run here.
        let default_action = [0_u64; 4];
        let mut signal = 1;
        while signal <= LAST_SIGNAL {
            if signal != libc::SIGKILL as usize && signal != libc::SIGSTOP as usize {
                let action = default_action.as_ptr() as usize;
                let r = system_call(libc::SYS_rt_sigaction, [signal, action, 0, SIGNAL_SET_BYTES, 0]);
                check(plan, Step::Signals, r);
            }
            signal += 1;
        }

        check(plan, Step::ProcessGroup, system_call(libc::SYS_setpgid, [0, 0, 0, 0, 0]));
        if plan.enter >= 0 {
            let zero = c"0".as_ptr() as usize;
            check(plan, Step::Cgroup, system_call(libc::SYS_write, [plan.enter as usize, zero, 1, 0, 0]));
        }

        let no_core = [0_u64; 2];
        check(plan, Step::Limits, set_limit(libc::RLIMIT_CORE as usize, &no_core));
        if plan.marked {
            check(plan, Step::Limits, set_limit(libc::RLIMIT_RTTIME as usize, &plan.rttime));
            check(plan, Step::Limits, set_limit(libc::RLIMIT_LOCKS as usize, &plan.locks));
        }

        system_call(libc::SYS_umask, [0o077, 0, 0, 0, 0]);
        if !plan.directory.is_null() {
            let r = system_call(libc::SYS_chdir, [plan.directory as usize, 0, 0, 0, 0]);
            check(plan, Step::Directory, r);
        }

        let [stdin, stdout, stderr] = plan.stdio;
        if stdin >= 0 {
            check(plan, Step::Stdio, system_call(libc::SYS_dup3, [stdin as usize, 0, 0, 0, 0]));
            check(plan, Step::Stdio, system_call(libc::SYS_dup3, [stdout as usize, 1, 0, 0, 0]));
            check(plan, Step::Stdio, system_call(libc::SYS_dup3, [stderr as usize, 2, 0, 0, 0]));
        }
        // Descriptors that someone opened without CLOEXEC must not reach a skill.
        let cloexec = libc::CLOSE_RANGE_CLOEXEC as usize;
        let r = system_call(libc::SYS_close_range, [3, u32::MAX as usize, cloexec, 0, 0]);
        check(plan, Step::Descriptors, r);

        swap_signal_mask(0);
        if plan.path.is_null() {
            exit(0);
        }
        let [path, argv, envp] = [plan.path as usize, plan.argv as usize, plan.envp as usize];
        check(plan, Step::Exec, system_call(libc::SYS_execve, [path, argv, envp, 0, 0]));
        exit(127)
    }
}

/// Leaves the failure in the plan and ends the child, when `result` is one.
#[inline(always)]
unsafe fn check(plan: &Plan, step: Step, result: isize) {
    if result < 0 {
        plan.failed_errno.store(result.wrapping_neg() as i32, Ordering::Relaxed);
        plan.failed_step.store(step as u32, Ordering::Relaxed);
        // SAFETY: ends the child only.
        unsafe { exit(127) }
    }
}

#[inline(always)]
unsafe fn exit(code: usize) -> ! {
    loop {
        // SAFETY: ends the child, which is a process of its own, without running any code of ours.
        unsafe { system_call(libc::SYS_exit_group, [code, 0, 0, 0, 0]) };
    }
}

#[inline(always)]
unsafe fn set_limit(resource: usize, limit: &[u64; 2]) -> isize {
    // SAFETY: `struct rlimit64` is two 64-bit words, soft and hard; the last pointer is null, so nothing is
    // written.
    unsafe { system_call(libc::SYS_prlimit64, [0, resource, limit.as_ptr() as usize, 0, 0]) }
}

/// Sets this thread's mask of blocked signals, including the two that libc keeps for itself, and returns the
/// old one.
#[inline(always)]
unsafe fn swap_signal_mask(mask: u64) -> u64 {
    let mut previous = 0_u64;
    let [new, old] = [&raw const mask as usize, &raw mut previous as usize];
    // SAFETY: both sets are 8 bytes on this stack, as the size says.
    unsafe {
        system_call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, new, old, SIGNAL_SET_BYTES, 0])
    };
    previous
}

/// Makes the clone call; the child goes to [`child_main`] on its new stack and never comes back here.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_call(number: i64, a: [usize; 5], plan: &Plan) -> isize {
    let result: isize;
    // SAFETY: the kernel preserves every register but rax, rcx and r11 in both processes. Only the child,
    // which finds 0 in rax, takes the branch; it uses nothing of this frame but r12 and r13, on a 16-byte
    // aligned stack of its own.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4],
            in("r12") child_main as extern "C" fn(*const Plan) -> !,
            in("r13") plan as *const Plan,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// Makes the clone call; the child goes to [`child_main`] on its new stack and never comes back here.
#[cfg(target_arch = "aarch64")]
unsafe fn clone_call(number: i64, a: [usize; 5], plan: &Plan) -> isize {
    let result: isize;
    // SAFETY: the kernel preserves every register but x0 in both processes. Only the child, which finds 0 in
    // x0, takes the branch; it uses nothing of this frame but x20 and x21, on a 16-byte aligned stack of its
    // own.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x21",
            // Not `br`: where branch targets are enforced, a function may only be called.
            "blr x20",
            "brk #1",
            "2:",
            in("x8") number,
            inlateout("x0") a[0] as isize => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4],
            in("x20") child_main as extern "C" fn(*const Plan) -> !,
            in("x21") plan as *const Plan,
            // Only the child writes x30, but it is named so that the compiler keeps nothing in it.
            lateout("x30") _,
        );
    }
    result
}

/// One system call without libc: no errno, no lazy binding, no cancellation point.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn system_call(number: i64, a: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the kernel preserves every register but those named.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// One system call without libc: no errno, no lazy binding, no cancellation point.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn system_call(number: i64, a: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the kernel preserves every register but x0.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a[0] as isize => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4],
            options(nostack),
        );
    }
    result
}

// === what rustix does not offer ===

/// The marks of a process, dead or alive; `None` for the calling process.
pub(crate) fn marks(pid: Option<u32>) -> io::Result<Marks> {
    let hard = |resource| {
        let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: only reads: the new limit is null, and the old one goes to a `rlimit64` on this stack.
        let r = unsafe {
            libc::prlimit64(pid.unwrap_or(0) as libc::pid_t, resource, ptr::null(), &raw mut limit)
        };
        if r == 0 { Ok(limit.rlim_max) } else { Err(io::Error::last_os_error()) }
    };
    Ok(Marks { rttime: hard(libc::RLIMIT_RTTIME)?, locks: hard(libc::RLIMIT_LOCKS)? })
}

/// Blocks every signal in this thread, so that handlers run elsewhere and a write to a closed pipe is only an
/// error. All but SIGCHLD: it goes to the thread that started the child, which is to ignore it there and then; blocked, it
/// would wake another one for nothing.
pub(crate) fn block_signals_in_this_thread() {
    // SAFETY: `sigset_t` is plain data, filled by `sigfillset`. libc leaves out the two signals it uses to
    // synchronise threads, which a thread that lives long must not block.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigdelset(&raw mut all, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// Undoes an inherited "ignore SIGCHLD", under which the kernel throws exit statuses away.
pub(crate) fn keep_exit_statuses() -> io::Result<()> {
    // SAFETY: `sigaction` is plain data; the first call only reads, the second sets the default action and is
    // made only when no handler is installed that it could replace.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGCHLD, ptr::null(), &raw mut action) != 0 {
            return Err(io::Error::last_os_error());
        }
        if action.sa_sigaction == libc::SIG_IGN {
            let default: libc::sigaction = mem::zeroed();
            if libc::sigaction(libc::SIGCHLD, &raw const default, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}
