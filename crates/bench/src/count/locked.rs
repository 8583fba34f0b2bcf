//! Which instructions of a program lock a line of the cache.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::count::callgrind::Profile;
use crate::error::{BenchError, Context, Result};

/// Addresses of locked instructions, by object file. Each is read once.
#[derive(Default)]
pub struct Locked {
    by_object: HashMap<String, HashSet<u64>>,
}

impl Locked {
    /// Locked instructions that a thread has executed.
    ///
    /// # Errors
    /// There is no objdump.
    pub fn count(&mut self, profile: &Profile) -> Result<u64> {
        let mut sum = 0;
        for (object, counts) in &profile.by_address {
            let addresses = match self.by_object.get(object) {
                Some(addresses) => addresses,
                None => self.by_object.entry(object.clone()).or_insert(addresses_in(object)?),
            };
            sum += counts
                .iter()
                .filter(|(address, _)| addresses.contains(address))
                .map(|(_, count)| count)
                .sum::<u64>();
        }
        Ok(sum)
    }
}

fn addresses_in(object: &str) -> Result<HashSet<u64>> {
    let mut objdump = Command::new("objdump");
    objdump
        .args(["-d", "--no-show-raw-insn", object])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = objdump.spawn().map_err(|_| BenchError::NoBinary {
        binary: "objdump".to_owned(),
        hint: "install binutils, or run scripts/setup.sh count".to_owned(),
    })?;
    let mut found = HashSet::new();
    for line in child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).split(b'\n')) {
        let line = line.context(|| format!("disassemble {object}"))?;
        found.extend(locked_address(&String::from_utf8_lossy(&line)));
    }
    // Code that is in no file, the kernel's, is disassembled by nobody and locks nothing.
    child.wait().context(|| format!("disassemble {object}"))?;
    Ok(found)
}

/// The address of the instruction in a line of a disassembly, if that locks: by its prefix, or as an exchange with memory.
fn locked_address(line: &str) -> Option<u64> {
    let (address, instruction) = line.trim_start().split_once(":\t")?;
    let mut words = instruction.split_whitespace();
    let is_locked = match words.next()? {
        "lock" => true,
        name if name.starts_with("xchg") => instruction.contains('('),
        _ => words.any(|word| word == "lock"),
    };
    is_locked.then(|| u64::from_str_radix(address, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_exchanges_with_memory_lock() {
        let cases = [
            ("   4f2a1:\tlock cmpxchg %rcx,(%rdx)", Some(0x4f2a1)),
            ("  10f2a0:\txacquire lock xadd %eax,0x8(%rbx)", Some(0x10_f2a0)),
            ("   4f2a8:\txchg   %al,0x10(%rdi)", Some(0x4f2a8)),
            ("   4f2ab:\txchg   %ax,%ax", None),
            ("   4f2ad:\tmov    %rax,(%rdi)", None),
            ("000000000004f2a0 <lock>:", None),
            ("", None),
        ];
        for (line, address) in cases {
            assert_eq!(locked_address(line), address, "{line}");
        }
    }
}
