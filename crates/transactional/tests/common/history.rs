//! What was committed, and whether an image or a reader saw a prefix of it.

use stillframe_transactional::{Committed, Prefix, RowId, SessionId, Shape};

/// A committed transaction.
#[derive(Clone, Debug)]
pub struct Record {
    pub session: SessionId,
    pub committed: Committed,
    /// Its place among all, taken while it had all its locks: a serial order that gives the same.
    pub lock_point: u64,
    /// Words that it read before it wrote any of that row.
    pub reads: Vec<(RowId, usize, u64)>,
    pub writes: Vec<(RowId, usize, Vec<u64>)>,
}

/// Rows that are written by one transaction after the other.
#[derive(Clone, PartialEq, Eq)]
pub struct Model {
    row_words: usize,
    words: Vec<u64>,
}

impl Model {
    pub fn new(shape: Shape) -> Model {
        Model { row_words: shape.row_words(), words: vec![0; shape.bytes() / 8] }
    }

    pub fn row(&self, row: RowId) -> &[u64] {
        &self.words[row.0 as usize * self.row_words..][..self.row_words]
    }

    pub fn apply(&mut self, record: &Record) {
        for (row, first_word, words) in &record.writes {
            let at = row.0 as usize * self.row_words + first_word;
            self.words[at..at + words.len()].copy_from_slice(words);
        }
    }

    fn check_reads(&self, record: &Record) -> Result<(), String> {
        for (row, word, seen) in &record.reads {
            let latest = self.row(*row)[*word];
            if latest != *seen {
                return Err(format!(
                    "{record:?} read {seen:x} of word {word} of {row:?}, latest was {latest:x}"
                ));
            }
        }
        Ok(())
    }
}

pub struct History {
    shape: Shape,
    /// In the order of their lock points.
    records: Vec<Record>,
}

impl History {
    pub fn new(shape: Shape, mut records: Vec<Record>) -> History {
        records.sort_by_key(|record| record.lock_point);
        History { shape, records }
    }

    /// Each read had the latest committed, in the order of lock points, and in that of commits where there is one.
    pub fn check_reads(&self) -> Result<Model, String> {
        self.check_session_order()?;
        let mut writers: Vec<&Record> =
            self.records.iter().filter(|record| record.committed.commit_seq.is_some()).collect();
        writers.sort_by_key(|record| record.committed.commit_seq);
        let is_twice = |pair: &[&Record]| pair[0].committed.commit_seq == pair[1].committed.commit_seq;
        if writers.windows(2).any(is_twice) {
            return Err("a place in the order of commits twice".to_owned());
        }
        let by_commit = self.replay(writers.iter().copied())?;
        let by_lock_point = self.replay(self.records.iter())?;
        if !writers.is_empty() && by_commit != by_lock_point {
            return Err("two serial orders give different rows".to_owned());
        }
        Ok(by_lock_point)
    }

    fn replay<'r>(&self, records: impl Iterator<Item = &'r Record>) -> Result<Model, String> {
        let mut model = Model::new(self.shape);
        for record in records {
            model.check_reads(record)?;
            model.apply(record);
        }
        Ok(model)
    }

    /// Commits of a session count up, by lock points and in the order of commits.
    fn check_session_order(&self) -> Result<(), String> {
        let mut last = std::collections::HashMap::new();
        for record in &self.records {
            let seq = record.committed.session_seq.0;
            let before = last.insert(record.session, seq).unwrap_or(0);
            if seq != before + 1 {
                return Err(format!("{:?}: {seq} after {before}", record.session));
            }
        }
        Ok(())
    }

    /// The rows of an image are those that its transactions make, and none of them comes after one that it has not.
    pub fn check_image<'i>(
        &self,
        prefix: &Prefix,
        row_of: impl Fn(RowId) -> &'i [u64],
    ) -> Result<(), String> {
        let mut included: Vec<&Record> =
            self.records.iter().filter(|record| is_included(record, prefix)).collect();
        if matches!(prefix, Prefix::Commits(_)) {
            included.sort_by_key(|record| record.committed.commit_seq);
        }
        let mut model = Model::new(self.shape);
        included.iter().for_each(|record| model.apply(record));
        for row in self.shape.rows() {
            let (expected, found) = (model.row(row), row_of(row));
            if expected != found {
                return Err(format!("image of {prefix:?}: {row:?} is {found:x?}, not {expected:x?}"));
            }
        }
        self.check_closed(prefix)
    }

    /// No transaction of the image read, overwrote, or changed after it was read, what belongs to one that it has not. So
    /// the image is the beginning of a serial order, whatever the order of commits was.
    fn check_closed(&self, prefix: &Prefix) -> Result<(), String> {
        let row_count = self.shape.row_count() as usize;
        let (mut read_after, mut written_after) = (vec![false; row_count], vec![false; row_count]);
        for record in &self.records {
            // Who wrote nothing has no place in the order of commits.
            let is_outside = !is_included(record, prefix)
                && (!record.writes.is_empty() || matches!(prefix, Prefix::Sessions(_)));
            for (row, ..) in &record.reads {
                read_after[row.0 as usize] |= is_outside;
                if written_after[row.0 as usize] && is_included(record, prefix) && !record.writes.is_empty() {
                    return Err(format!("{record:?} is in the image, and read what is not: {prefix:?}"));
                }
            }
            for (row, ..) in &record.writes {
                let is_after = written_after[row.0 as usize] || read_after[row.0 as usize];
                if is_after && is_included(record, prefix) {
                    return Err(format!(
                        "{record:?} is in the image, and comes after what is not: {prefix:?}"
                    ));
                }
                written_after[row.0 as usize] |= is_outside;
            }
        }
        Ok(())
    }

    /// Whether some transaction that is not in the image was committed before one that is.
    pub fn is_commit_prefix(&self, prefix: &Prefix) -> bool {
        let is_in: Vec<bool> = self.records.iter().map(|record| is_included(record, prefix)).collect();
        is_in.windows(2).all(|pair| pair[0] || !pair[1])
    }
}

fn is_included(record: &Record, prefix: &Prefix) -> bool {
    match prefix {
        Prefix::Commits(last) => record.committed.commit_seq.is_some_and(|seq| seq <= *last),
        Prefix::Sessions(points) => {
            points.get(&record.session).is_some_and(|last| record.committed.session_seq <= *last)
        }
    }
}
