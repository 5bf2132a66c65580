//! The host and its processes, read from /proc.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use procfs::process::Process;
use procfs::{Current, CurrentSI, KernelStats};
use serde::{Deserialize, Serialize};

use super::numbers::of_count;

/// The host of the benchmark.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) cores: usize,
    pub(super) memory_mib: u64,
    pub(super) cpu: String,
    /// The nice value of the benchmark. With a negative value, the benchmark takes precedence over other processes.
    #[serde(default)]
    pub(super) nice: i32,
}

impl Machine {
    pub(super) fn of_here() -> Self {
        let cpu = procfs::CpuInfo::current().ok().and_then(|it| it.model_name(0).map(str::to_owned));
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: procfs::Meminfo::current().map_or(0, |it| it.mem_total / 1024 / 1024),
            cpu: cpu.unwrap_or_else(|| "unknown".to_owned()),
            nice: rustix::process::getpriority_process(None).unwrap_or_default(),
        }
    }
}

/// The load average: the number of processes that want to run, averaged over the last minute.
pub(super) fn load() -> f64 {
    procfs::LoadAverage::current().map_or(0.0, |it| it.one.into())
}

/// The time of all cores since the host started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cores {
    busy: u64,
    idle: u64,
}

impl Cores {
    /// The time of niced processes counts as idle, because such processes yield to the benchmark.
    pub(super) fn now() -> Self {
        let Ok(stat) = KernelStats::current() else { return Self::default() };
        let cpu = stat.total;
        let interrupts = [cpu.irq, cpu.softirq, cpu.steal].into_iter().flatten().sum::<u64>();
        Self {
            busy: cpu.user + cpu.system + interrupts,
            idle: cpu.nice + cpu.idle + cpu.iowait.unwrap_or_default(),
        }
    }

    /// The busy share of the time since the earlier reading; 0 if it is unknown.
    pub(super) fn busy_since(self, before: Self) -> f64 {
        let busy = of_count(self.busy.saturating_sub(before.busy));
        let idle = of_count(self.idle.saturating_sub(before.idle));
        if busy + idle > 0.0 { busy / (busy + idle) } else { 0.0 }
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
        let status = process(pid)?.status()?;
        let memory = status.vmrss.zip(status.vmhwm).map(|(resident, peak)| Self { resident, peak });
        memory.with_context(|| format!("process {pid} has no memory"))
    }
}

/// Resets the peak memory. If the kernel does not support this, the peak is that of the whole life of the process.
pub(super) fn forget_peak(pid: u32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").ok();
}

/// The CPU time of a process, including all its threads.
pub(super) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = process(pid)?.stat()?;
    let ticks = stat.utime.saturating_add(stat.stime);
    Ok(Duration::from_millis(ticks.saturating_mul(1000) / procfs::ticks_per_second().max(1)))
}

fn process(pid: u32) -> anyhow::Result<Process> {
    Process::new(pid.try_into()?).with_context(|| format!("cannot read process {pid}"))
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::{Cores, Machine, Memory, cpu};

    #[test]
    fn this_process_and_host_are_read() {
        let memory = Memory::of(process::id()).unwrap();
        assert!(memory.resident > 0 && memory.peak >= memory.resident / 2);
        cpu(process::id()).unwrap();
        let before = Cores { busy: 0, idle: 0 };
        assert!((Cores { busy: 60, idle: 40 }.busy_since(before) - 0.6).abs() < 1e-9);
        assert!(before.busy_since(before).abs() < 1e-9);
        assert_ne!((Cores::now(), Machine::of_here().memory_mib), (before, 0));
    }
}
