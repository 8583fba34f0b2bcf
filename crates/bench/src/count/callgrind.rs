//! What callgrind wrote about one thread.

use std::collections::HashMap;
use std::io::BufRead;

/// Costs in instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    pub thread: u32,
    pub instructions: u64,
    /// Own costs by source file, inlined code by the file that it is from.
    pub by_file: HashMap<String, u64>,
    /// How often each instruction was executed, by object file and address in it.
    pub by_address: HashMap<String, HashMap<u64, u64>>,
    /// Calls of functions of another object file, by name.
    pub calls: HashMap<String, u64>,
}

/// A line that is not as callgrind writes it when asked for whole names and addresses.
#[derive(Debug, thiserror::Error)]
#[error("line {line_number} of callgrind's output is not understood: {line:?}")]
pub struct BadLine {
    line_number: usize,
    line: String,
}

/// Where the reader is.
#[derive(Default)]
struct At {
    object: String,
    file: String,
    /// Of the call that comes: the object, if it is another one, and the function.
    callee_object: Option<String>,
    callee: String,
    /// The line is the cost of a call with all that it did, which the callee's own lines have.
    is_inclusive: bool,
}

impl Profile {
    /// Reads a file that `--dump-instr=yes --compress-strings=no --compress-pos=no` asked for.
    ///
    /// # Errors
    /// Something else is in it, or it cannot be read.
    pub fn read(input: impl BufRead) -> Result<Profile, BadLine> {
        let (mut profile, mut at, mut has_positions) = (Profile::default(), At::default(), false);
        for (index, line) in input.lines().enumerate() {
            let line = line.unwrap_or_else(|error| error.to_string());
            has_positions |= line == "positions: instr line";
            profile
                .line(&mut at, &line)
                .filter(|()| has_positions || !line.starts_with("events:"))
                .ok_or_else(|| BadLine { line_number: index + 1, line: line.clone() })?;
        }
        Ok(profile)
    }

    fn line(&mut self, at: &mut At, line: &str) -> Option<()> {
        if line.starts_with("0x") {
            return self.cost(at, line);
        }
        let Some((name, value)) = line.split_once('=') else { return self.header(line) };
        // `(1) name` is a compressed name.
        let is_compressed = value.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        if is_compressed.is_some_and(|(number, _)| number.bytes().all(|b| b.is_ascii_digit())) {
            return None;
        }
        match name {
            "ob" => at.object = value.to_owned(),
            "fl" | "fi" | "fe" => at.file = value.to_owned(),
            "cob" => at.callee_object = Some(value.to_owned()),
            "cfn" => at.callee = value.to_owned(),
            "calls" => {
                let count = value.split(' ').next()?.parse::<u64>().ok()?;
                let object = at.callee_object.take();
                if object.is_some_and(|object| object != at.object) {
                    *self.calls.entry(std::mem::take(&mut at.callee)).or_default() += count;
                }
                at.is_inclusive = true;
            }
            _ => {}
        }
        Some(())
    }

    fn header(&mut self, line: &str) -> Option<()> {
        match line.split_once(": ") {
            Some(("thread", number)) => self.thread = number.parse().ok()?,
            Some(("events", events)) if events.trim_end() != "Ir" => return None,
            // Positions that are told by the distance from those before.
            None if line.starts_with(['+', '-', '*']) => return None,
            _ => {}
        }
        Some(())
    }

    /// `address line cost`
    fn cost(&mut self, at: &mut At, line: &str) -> Option<()> {
        if std::mem::take(&mut at.is_inclusive) {
            return Some(());
        }
        let mut words = line.split(' ');
        let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        let count = words.nth(1)?.parse::<u64>().ok()?;
        self.instructions += count;
        add(&mut self.by_file, &at.file, count);
        let addresses = match self.by_address.get_mut(&at.object) {
            Some(addresses) => addresses,
            None => self.by_address.entry(at.object.clone()).or_default(),
        };
        *addresses.entry(address).or_default() += count;
        Some(())
    }

    /// Calls of any of these functions, also where callgrind says how deep they were (`free'2`).
    pub fn calls_of(&self, names: &[&str]) -> u64 {
        let is_one = |called: &str| names.contains(&called.split('\'').next().unwrap_or(called));
        self.calls.iter().filter(|(called, _)| is_one(called)).map(|(_, count)| count).sum()
    }
}

/// Adds to what a name has; most are there already.
fn add(counts: &mut HashMap<String, u64>, name: &str, count: u64) {
    match counts.get_mut(name) {
        Some(sum) => *sum += count,
        None => drop(counts.insert(name.to_owned(), count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profile, BadLine> {
        Profile::read(text.as_bytes())
    }

    /// What callgrind 3.19 wrote of a function that allocates, calls another one that calls itself, and frees.
    const OUTPUT: &str = include_str!("callgrind.out.example");
    const EXCHANGE: u64 = 0x117e;

    #[test]
    fn sums_are_those_that_callgrind_has() {
        let profile = read(OUTPUT).unwrap();
        let total = OUTPUT.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
        assert_eq!(profile.instructions.to_string(), total);
        assert_eq!(profile.by_file.values().sum::<u64>(), profile.instructions);
        let addresses = profile.by_address.values().flat_map(HashMap::values);
        assert_eq!(addresses.sum::<u64>(), profile.instructions);
        assert_eq!((profile.calls_of(&["malloc"]), profile.calls_of(&["free"])), (1, 1));
        // The program's only exchange with memory.
        assert_eq!(profile.by_address["/src/example"][&EXCHANGE], 1);
    }

    #[test]
    fn names_lead_to_their_counts() {
        let text = "positions: instr line\nevents: Ir\nthread: 3\nob=/a\nfl=/a/one.rs\nfn=one\n0x10 1 5\nfi=/a/inlined.rs\n\
                    0x14 7 5\nfe=/a/one.rs\n0x18 2 5\ncob=/libc.so\ncfi=malloc.c\ncfn=malloc\ncalls=5 0x900 0\n0x18 2 500\n\
                    cfn=two\ncalls=5 0x40 9\n0x1c 3 70\n\nfn=two\n0x40 9 5\n\nob=/libc.so\nfl=malloc.c\nfn=malloc\n0x900 0 100\n\
                    \ntotals: 120\n";
        let profile = read(text).unwrap();
        assert_eq!((profile.thread, profile.instructions), (3, 120));
        let files = [("/a/one.rs", 15), ("/a/inlined.rs", 5), ("malloc.c", 100)];
        assert_eq!(profile.by_file, files.map(|(name, count)| (name.to_owned(), count)).into());
        assert_eq!(profile.by_address["/libc.so"], [(0x900, 100)].into());
        // Not those of the same object.
        assert_eq!((profile.calls_of(&["malloc", "calloc"]), profile.calls_of(&["two"])), (5, 0));
    }

    #[test]
    fn what_is_told_otherwise_is_refused() {
        let head = "positions: instr line\nevents: Ir\n";
        for bad in ["fn=(1) one", "+3 1 5", "0xzz 1 5", "0x10 1", "calls=many 0x1 1", "events: Ir Dr"] {
            let error = read(&format!("{head}{bad}\n")).unwrap_err();
            assert!(error.to_string().contains("line 3"), "{error}");
        }
        assert!(read("positions: line\nevents: Ir\n").is_err());
    }
}
