//! The virtual machine's file system: a cpio archive in the "newc" format, which the kernel unpacks into memory.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::error::{BenchError, Context, Result};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const END: &str = "TRAILER!!!";

#[derive(Clone, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Archive {
    /// A file with the execute bit, and the directories above it. A second file of that name is ignored.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        let name = path.trim_start_matches('/');
        let parents: Vec<_> = name.match_indices('/').map(|(at, _)| name[..at].to_owned()).collect();
        for parent in parents {
            self.directory(&parent);
        }
        if self.names.insert(name.to_owned()) {
            self.entry(name, PROGRAM, content);
        }
    }

    pub fn directory(&mut self, path: &str) {
        if self.names.insert(path.trim_start_matches('/').to_owned()) {
            self.entry(path.trim_start_matches('/'), DIRECTORY, &[]);
        }
    }

    /// A program of this machine under another path, with the shared libraries that it needs.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn program(&mut self, path: &str, source: &Path) -> Result<()> {
        let read = |path: &Path| std::fs::read(path).context(|| format!("read {}", path.display()));
        self.file(path, &read(source)?);
        for library in libraries(source)? {
            self.file(&library, &read(Path::new(&library))?);
        }
        Ok(())
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.entry(END, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        let inode = self.names.len() as u32;
        // Inode, mode, uid, gid, links, time, size, four device numbers, length of the name with its end, checksum.
        let fields = [inode, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Absolute paths of a program's shared libraries and its loader, as `ldd` prints them; none of a static one.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(program).output().context(|| "run ldd".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let missing = text.lines().find(|l| l.contains("not found"));
    if let Some(line) = missing {
        return Err(BenchError::Failed(format!("{}: {}", program.display(), line.trim())));
    }
    // "name => /path (address)" or, of the loader, "/path (address)".
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    Ok(text.lines().filter_map(path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_parents_come_first() {
        let mut archive = Archive::default();
        archive.file("/bin/a/x", b"12345");
        archive.file("/bin/a/x", b"again");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let positions: Vec<_> =
            ["bin\0", "bin/a\0", "bin/a/x\0", END].iter().map(|n| text.find(n).unwrap()).collect();
        assert!(positions.is_sorted(), "{positions:?}");
        assert_eq!(text.matches("070701").count(), 4);
        assert!(text.contains("12345") && !text.contains("again"));
    }

    #[test]
    fn this_program_needs_a_c_library() {
        let libraries = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(libraries.iter().any(|l| l.contains("libc.so")), "{libraries:?}");
    }
}
