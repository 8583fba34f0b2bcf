//! The machine a figure was measured on; a figure without it means nothing.

use std::fs;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    #[serde(rename = "cpu")]
    pub cpu_model: String,
    #[serde(rename = "cores")]
    pub cpu_count: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    #[serde(rename = "transparent_hugepage")]
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

    pub fn line(&self) -> String {
        format!(
            "{} x {}, {}, {}, THP {}",
            self.cpu_count,
            self.cpu_model,
            stillframe_units::human_bytes(self.memory_bytes as f64),
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
