//! Compares an executor with `std::process` and with the bare start: trivial programs, one at a time and all slots busy.
//!
//! `cargo run --release -p weft-exec --example throughput -- [seconds per figure] [program…]`
//!
//! `HEAP_MIB=1024` before it measures from a process that has touched that much memory: a fork would copy its page tables.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people to look at")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use weft_exec::{Command, Config, ContainmentChoice, Executor, Exit, Observer, Spawner, run_with_std};

const INPUT: &[u8] = b"{\"message\":\"hello\"}";

struct Deaf;

impl Observer for Deaf {
    fn started(&mut self, _: u32, _: SystemTime) {}
    fn stderr(&mut self, _: Bytes) {}
    fn stderr_dropped(&mut self, _: u64) {}
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(2.0, |text| text.parse().unwrap());
    let mut programs: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    if programs.is_empty() {
        programs.push("/bin/true".into());
    }
    let time = Duration::from_secs_f64(seconds);
    let heap: usize = std::env::var("HEAP_MIB").map_or(0, |text| text.parse().unwrap());
    let heap = vec![1_u8; heap << 20];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for program in programs {
        for round in 1..=3 {
            for at_once in [1, 4] {
                let mut figures = Vec::new();
                figures.push(("std::process", in_threads(at_once, time, || || with_std(&program))));
                figures.push((
                    "bare",
                    in_threads(at_once, time, || {
                        let mut spawner = Spawner::new().unwrap();
                        let program = &program;
                        move || bare(&mut spawner, program)
                    }),
                ));
                for (name, containment) in
                    [("cgroup", ContainmentChoice::Cgroup), ("tag", ContainmentChoice::Tag)]
                {
                    let config = Config { slots: at_once, containment, ..Config::default() };
                    let Ok(executor) = Executor::build(config) else { continue };
                    let run = runtime.block_on(with_executor(&executor, &program, at_once, time));
                    figures.push((name, run));
                }
                let line: Vec<String> = figures
                    .iter()
                    .map(|(name, (rate, cpu))| format!("{name} {rate:.0}/s {cpu:.2} ms"))
                    .collect();
                println!("{} round {round}, {at_once} at once: {}", program.display(), line.join(", "));
            }
        }
    }
    std::hint::black_box(&heap);
}

fn in_threads<F: FnMut()>(threads: usize, time: Duration, make: impl Fn() -> F + Sync) -> (f64, f64) {
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let done: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut run = make();
                    let mut done = 0;
                    while begun.elapsed() < time {
                        run();
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    figure(done, begun, cpu)
}

/// Runs per second, and milliseconds of processor time for each.
fn figure(done: usize, begun: Instant, cpu_before: f64) -> (f64, f64) {
    let cpu = (cpu_seconds() - cpu_before) * 1000.0 / done as f64;
    (done as f64 / begun.elapsed().as_secs_f64(), cpu)
}

/// Of this process and the children it has reaped.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ').skip(11).take(4);
    fields.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn with_std(program: &Path) {
    let output = run_with_std(program, Path::new("/"), INPUT).unwrap();
    assert_eq!(output.exit, Some(Exit::Code(0)));
}

fn bare(spawner: &mut Spawner, program: &Path) {
    let output = spawner.run(program, Path::new("/"), INPUT).unwrap();
    assert_eq!(output.exit, Some(Exit::Code(0)));
}

/// As many callers as slots, each waiting for its own report, all on one task.
async fn with_executor(executor: &Executor, program: &Path, at_once: usize, time: Duration) -> (f64, f64) {
    let command = Command {
        program: program.to_owned(),
        directory: "/".into(),
        environment: Vec::new(),
        stdin: Bytes::from_static(INPUT),
        budget: Duration::from_secs(60),
        stop_grace: None,
    };
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..at_once {
        let (executor, command) = (executor.clone(), command.clone());
        callers.spawn(async move {
            let mut done = 0;
            while begun.elapsed() < time {
                let mut running = executor.try_start(command.clone(), Box::new(Deaf)).unwrap();
                assert_eq!(running.wait().await.exit, Some(Exit::Code(0)));
                done += 1;
            }
            done
        });
    }
    let done: usize = callers.join_all().await.into_iter().sum();
    figure(done, begun, cpu)
}
