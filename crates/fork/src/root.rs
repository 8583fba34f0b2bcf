//! Where the machine's files are. Everything that is read or written goes through [`Root`], so that a test can put a
//! directory in the place of `/`.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::abi::{self, Control, Statistics};
use crate::error::{ForkError, Result};

#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.0.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    pub fn exists(&self, absolute: &str) -> bool {
        self.path(absolute).exists()
    }

    /// The file's text without white space at its ends; nothing if it cannot be read.
    pub fn text(&self, absolute: impl AsRef<Path>) -> Option<String> {
        let bytes = fs::read(self.path(absolute)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Names in a directory, sorted; none if it cannot be read.
    pub fn names(&self, absolute: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(absolute)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub fn kernel_release(&self) -> String {
        self.text("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned())
    }

    pub fn is_module_loaded(&self) -> bool {
        self.exists("/sys/module/async_fork")
    }

    /// From the device, or for those who may not open it from the text file.
    ///
    /// # Errors
    /// The module is not loaded, or has another version.
    pub fn statistics(&self) -> Result<Statistics> {
        let mut file = match fs::File::open(self.path(abi::DEVICE)) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                let text = self.text(abi::PROC_FILE).ok_or_else(|| self.device_error("read", e))?;
                return Statistics::parse(&text);
            }
            Err(e) => return Err(self.device_error("read", e)),
        };
        // More than one structure: a module that has a longer one must be noticed.
        let mut bytes = vec![0; 4 * abi::STATISTICS_BYTES];
        let length = file.read(&mut bytes).map_err(|e| self.device_error("read", e))?;
        Statistics::decode(&bytes[..length])
    }

    /// # Errors
    /// As [`Root::statistics`]; also when the process has gone.
    pub fn set_strategy(&self, control: Control) -> Result<()> {
        let path = self.path(abi::DEVICE);
        let mut file =
            OpenOptions::new().write(true).open(path).map_err(|e| self.device_error("write", e))?;
        file.write_all(&control.to_bytes()).map_err(|e| {
            if e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) {
                return ForkError::NoProcess { pid: control.pid };
            }
            self.device_error("write", e)
        })
    }

    fn device_error(&self, what: &str, source: std::io::Error) -> ForkError {
        if source.kind() == std::io::ErrorKind::NotFound {
            return ForkError::NotLoaded { missing: abi::DEVICE.to_owned() };
        }
        ForkError::io(format!("{what} {}", abi::DEVICE), source)
    }

    /// The kernel log's lines that name the module, oldest first; none if it cannot be read.
    pub fn kernel_log(&self) -> Vec<String> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let open = OpenOptions::new().read(true).custom_flags(nonblocking).open(self.path("/dev/kmsg"));
        let Ok(mut file) = open else { return Vec::new() };
        let mut lines = Vec::new();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                // Each read returns one record of the log: "priority,sequence,time,flags;text".
                Ok(length) => lines.extend(module_lines(&String::from_utf8_lossy(&buffer[..length]))),
                // The log overran this reader; the next read goes on behind the gap.
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        lines
    }
}

fn module_lines(text: &str) -> Vec<String> {
    let records = text.lines().filter(|l| l.contains(abi::MODULE));
    records.map(|l| l.split_once(';').map_or(l, |(_, text)| text).trim().to_owned()).collect()
}
