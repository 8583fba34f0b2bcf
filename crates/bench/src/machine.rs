//! The machine a figure was measured on; a figure without it means nothing.

use std::fs;

use serde_json::{json, Value};

#[derive(Clone, Debug)]
pub struct Machine {
    pub cpu_model: String,
    pub cpu_count: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub huge_pages: String,
    pub clock_source: String,
}

impl Machine {
    pub fn describe() -> Self {
        let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu_model = cpu_info
            .lines()
            .find_map(|l| l.strip_prefix("model name").and_then(|l| l.split_once(':')))
            .map_or_else(|| "unknown".to_owned(), |(_, model)| model.trim().to_owned());
        let uname = rustix::system::uname();
        Self {
            cpu_model,
            cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: meminfo_bytes("MemTotal:"),
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            huge_pages: one_line("/sys/kernel/mm/transparent_hugepage/enabled"),
            clock_source: one_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "cpu": self.cpu_model,
            "cores": self.cpu_count,
            "memory_bytes": self.memory_bytes,
            "kernel": self.kernel,
            "transparent_hugepage": self.huge_pages,
            "clock_source": self.clock_source,
        })
    }

    pub fn line(&self) -> String {
        format!(
            "{} x {}, {:.1} GiB, {}, THP {}",
            self.cpu_count,
            self.cpu_model,
            self.memory_bytes as f64 / (1u64 << 30) as f64,
            self.kernel,
            self.huge_pages
        )
    }
}

/// Memory that could be used now without swapping.
pub fn available_memory_bytes() -> u64 {
    meminfo_bytes("MemAvailable:")
}

/// Time the hypervisor ran somebody else on our cores, summed over cores since boot, in clock ticks:
/// the first thing to look at when a maximum cannot be explained.
pub fn stolen_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    stat.lines().next().and_then(|l| l.split_whitespace().nth(8)).and_then(|f| f.parse().ok()).unwrap_or(0)
}

fn meminfo_bytes(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|l| l.strip_prefix(field))
        .and_then(|l| l.split_whitespace().next())
        .and_then(|kb| kb.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

fn one_line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |s| s.trim().to_owned())
}
