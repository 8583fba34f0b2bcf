//! What the kernel knows of this process.

/// Memory of the machine, in bytes.
pub fn total_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram * u64::from(info.mem_unit)
}

/// Processor time of the process and of one of its threads, in seconds.
#[derive(Default)]
pub struct CpuSeconds {
    pub user: f64,
    pub system: f64,
    pub children_user: f64,
    pub children_system: f64,
}

/// Reads the times from a `stat` file of `/proc`.
pub fn cpu_seconds(path: &str) -> CpuSeconds {
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    // The name in parentheses may contain anything.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> =
        after_name.split_whitespace().skip(11).take(4).filter_map(|word| word.parse().ok()).collect();
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let at = |index: usize| ticks.get(index).map_or(0.0, |t| t / per_second);
    CpuSeconds { user: at(0), system: at(1), children_user: at(2), children_system: at(3) }
}

/// The kernel, as `uname` names it.
pub fn kernel() -> String {
    let name = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    format!("{} {} {}", text(name.sysname()), text(name.release()), text(name.machine()))
}
