//! The host and its processes, read from /proc.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// The host of the benchmark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) cores: usize,
    pub(super) memory_mib: u64,
    pub(super) cpu: String,
    /// The nice value of the benchmark; a negative one takes precedence over other processes.
    #[serde(default)]
    pub(super) nice: i32,
}

impl Machine {
    pub(super) fn of_here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            cores,
            memory_mib: field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default() / 1024,
            cpu: model(&read("/proc/cpuinfo")),
            nice: rustix::process::getpriority_process(None).unwrap_or_default(),
        }
    }
}

/// The load average: the number of processes that want to run, averaged over the last minute.
pub(super) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
}

/// The time of all cores since the host started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cores {
    all: u64,
    idle: u64,
}

impl Cores {
    pub(super) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default()).unwrap_or_default()
    }

    /// The busy share of the time since the earlier reading; 0 if it is unknown.
    pub(super) fn busy_since(self, before: Self) -> f64 {
        let more = |after: u64, before: u64| super::listings::of_count(after.saturating_sub(before));
        let all = more(self.all, before.all);
        if all > 0.0 { 1.0 - more(self.idle, before.idle) / all } else { 0.0 }
    }

    /// The time of niced processes counts as idle, because they yield to others. Source: proc_stat(5): user, nice, system, idle, iowait,
    /// irq, softirq, steal.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        let idle = [1, 3, 4].into_iter().filter_map(|field| ticks.get(field)).sum();
        Some(Self { all: ticks.iter().sum(), idle })
    }
}

/// Memory of a process, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) resident: u64,
    pub(super) peak: u64,
}

impl Memory {
    pub(super) fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/status");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Self::parse(&text).with_context(|| format!("{path} shows no memory"))
    }

    fn parse(status: &str) -> Option<Self> {
        Some(Self { resident: field(status, "VmRSS")?, peak: field(status, "VmHWM")? })
    }
}

/// Resets the peak memory. If the kernel does not support this, the peak is that of the whole life of the process.
pub(super) fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").ok();
}

/// The CPU time of a process, including all its threads.
pub(super) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ticks = ticks(&text).with_context(|| format!("{path} shows no CPU time"))?;
    let second = rustix::param::clock_ticks_per_second().max(1);
    Ok(Duration::from_millis(ticks.saturating_mul(1000) / second))
}

/// The second field, the program's name, may contain any characters: fields are counted after the last parenthesis. Source:
/// proc_pid_stat(5), fields 14 and 15.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user.saturating_add(system))
}

/// Parses a line such as `VmRSS:     1234 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

fn model(cpuinfo: &str) -> String {
    let found = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    found.map_or("unknown", |(_, name)| name.trim()).to_owned()
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::{Cores, Memory, cpu, field, model, ticks};

    #[test]
    fn niced_time_does_not_count_as_busy() {
        let stat = |user: u64, idle: u64| format!("cpu  {user} 10 100 {idle} 5 0 0 0 0 0\ncpu0 1 2 3 4\n");
        let (before, after) =
            (Cores::parse(&stat(100, 500)).unwrap(), Cores::parse(&stat(160, 540)).unwrap());
        assert!((after.busy_since(before) - 0.6).abs() < 1e-9);
        assert!(before.busy_since(before).abs() < 1e-9);
        assert_eq!(Cores::parse("intr 5\n"), None);
    }

    #[test]
    fn memory_and_cpu_model_are_parsed() {
        let status = "Name:\tVmRSS: 5\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(Memory::parse(status), Some(Memory { resident: 1024, peak: 2048 }));
        assert_eq!(field(status, "Vm"), None);
        assert_eq!(Memory::parse("Name:\tx\n"), None);
        assert_eq!(model("processor\t: 0\nmodel name\t: Fast CPU @ 2 GHz\n"), "Fast CPU @ 2 GHz");
    }

    #[test]
    fn cpu_time_is_parsed_after_any_program_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 300 25 0 0 20 0 1 0 5 1 1";
        assert_eq!(ticks(stat), Some(325));
        assert_eq!(ticks("7 (a) S"), None);
    }

    #[test]
    fn memory_of_this_process_is_read() {
        let memory = Memory::of(process::id()).unwrap();
        assert!(memory.resident > 0 && memory.peak >= memory.resident / 2);
        cpu(process::id()).unwrap();
    }
}
