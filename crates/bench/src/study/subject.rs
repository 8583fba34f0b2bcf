//! What is compared, by name: the physical algorithms, and what other systems do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stillframe_algorithms::PhysicalKind;

/// A way to take snapshots of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Subject {
    Physical(PhysicalKind),
    /// The kernel's own `fork`, whose child writes the rows.
    Fork,
    /// `userfaultfd`: pages are write-protected at the cut, and a thread copies away what a writer runs into.
    WriteProtect,
    /// A write to an entry that the save has not reached serialises the entry first, as Valkey's forkless save does.
    EntryCow,
    /// The same for a bucket of entries, as Dragonfly does.
    BucketCow,
}

impl Subject {
    /// Those of the paper in its order, ours, then the others.
    pub fn all() -> Vec<Subject> {
        let mut all: Vec<Subject> = PhysicalKind::ALL.into_iter().map(Subject::Physical).collect();
        // The paper's order: NS, COU, Fork, ...
        all.insert(2.min(all.len()), Subject::Fork);
        all.extend([Subject::WriteProtect, Subject::EntryCow, Subject::BucketCow]);
        all
    }

    /// Those of the paper's figures, and ours.
    pub fn of_paper() -> Vec<Subject> {
        Subject::all().into_iter().filter(|subject| subject.is_of_paper()).collect()
    }

    fn is_of_paper(self) -> bool {
        matches!(self, Subject::Physical(_) | Subject::Fork)
    }

    pub fn name(self) -> &'static str {
        match self {
            Subject::Physical(kind) => kind.name(),
            Subject::Fork => "fork",
            Subject::WriteProtect => "uffd-wp",
            Subject::EntryCow => "entry-cow",
            Subject::BucketCow => "bucket-cow",
        }
    }

    /// Whether the time of its cut grows with the data, by design.
    pub fn has_growing_cut(self) -> bool {
        match self {
            Subject::Physical(kind) => {
                matches!(kind, PhysicalKind::Naive | PhysicalKind::Cou | PhysicalKind::Zigzag)
            }
            Subject::Fork | Subject::WriteProtect => true,
            Subject::EntryCow | Subject::BucketCow => false,
        }
    }

    /// Copies of all rows beside the data, at most, in times of the data.
    pub fn copies_beside(self) -> u64 {
        match self {
            Subject::Physical(PhysicalKind::Epoch) => 0,
            Subject::Physical(PhysicalKind::PingPong) => 2,
            Subject::Physical(_) | Subject::Fork => 1,
            Subject::WriteProtect | Subject::EntryCow | Subject::BucketCow => 0,
        }
    }

    pub const EPOCH: Subject = Subject::Physical(PhysicalKind::Epoch);
    pub const NAIVE: Subject = Subject::Physical(PhysicalKind::Naive);
    pub const HOURGLASS: Subject = Subject::Physical(PhysicalKind::Hourglass);
    pub const PIGGYBACK: Subject = Subject::Physical(PhysicalKind::Piggyback);
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Subject> for String {
    fn from(subject: Subject) -> String {
        subject.name().to_owned()
    }
}

impl TryFrom<String> for Subject {
    type Error = String;

    fn try_from(name: String) -> Result<Subject, String> {
        name.parse()
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(name: &str) -> Result<Subject, String> {
        let all = Subject::all();
        all.iter().copied().find(|subject| subject.name() == name).ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|subject| subject.name()).collect();
            format!("there is no algorithm {name:?}, only {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for subject in Subject::all() {
            assert_eq!(subject.name().parse(), Ok(subject));
            let text = serde_json::to_string(&subject).unwrap();
            assert_eq!(serde_json::from_str::<Subject>(&text).unwrap(), subject);
        }
        assert!("spoon".parse::<Subject>().unwrap_err().ends_with("entry-cow, bucket-cow"));
    }
}
