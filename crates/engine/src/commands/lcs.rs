//! `LCS`: the longest common subsequence of two strings.

use stillframe_store::OpError;

use super::string::max_string_bytes;
use crate::command::operand::integer;
use crate::command::{acl, flag, key_flag, CmdError, CmdResult, Group, KeySpec, Touch};
use crate::dispatch::ctx::{Command, Ctx};
use crate::protocol::args::Args;
use crate::protocol::errors;
use crate::protocol::reply::Reply;

#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::new("lcs", -3, flag::READONLY, Touch::EachKey, lcs).acl(acl::STRING)
        .doc(Group::String, "7.0.0", "Find longest common substring", "O(N*M) where N and M are the lengths of s1 and s2, respectively")
        .keys(&[KeySpec::range(1, 1, 1, key_flag::RO | key_flag::ACCESS)]),
];

#[derive(Default)]
struct Options {
    wants_len: bool,
    wants_ranges: bool,
    shows_match_len: bool,
    min_match_len: u64,
}

fn parse(args: &Args<'_>) -> Result<Options, CmdError> {
    let mut options = Options::default();
    let mut index = 3;
    while index < args.len() {
        if args.is(index, "IDX") {
            options.wants_ranges = true;
        } else if args.is(index, "LEN") {
            options.wants_len = true;
        } else if args.is(index, "WITHMATCHLEN") {
            options.shows_match_len = true;
        } else if args.is(index, "MINMATCHLEN") && index + 1 < args.len() {
            options.min_match_len = u64::try_from(integer(args.at(index + 1))?).unwrap_or(0);
            index += 1;
        } else {
            return Err(errors::SYNTAX.into());
        }
        index += 1;
    }
    if options.wants_len && options.wants_ranges {
        return Err("ERR If you want both the length and indexes, please just use IDX.".into());
    }
    Ok(options)
}

pub fn lcs(ctx: &mut Ctx<'_>, args: &Args<'_>) -> CmdResult {
    let mut value = |index: usize| {
        let key = ctx.key(args, index);
        let value = ctx.worker.get(ctx.client.db, &key, |value| value.to_vec());
        match &value {
            Ok(value) => ctx.looked_up(&key, value.is_some()),
            Err(OpError::WrongType) => ctx.looked_up(&key, true),
            Err(_) => {}
        }
        value
    };
    let (a, b) = match (value(1), value(2)) {
        (Ok(a), Ok(b)) => (a.unwrap_or_default(), b.unwrap_or_default()),
        (Err(OpError::WrongType), Err(OpError::WrongType) | Ok(_)) | (Ok(_), Err(OpError::WrongType)) => {
            return Err("ERR The specified keys must contain string values".into());
        }
        (Err(OpError::WrongType) | Ok(_), Err(error)) | (Err(error), _) => return Err(error.into()),
    };
    let options = parse(args)?;
    // The table of lengths may take as much memory as a string.
    let table_bytes = (a.len() as u64 + 1) * (b.len() as u64 + 1) * size_of::<u32>() as u64;
    if table_bytes > max_string_bytes(ctx) {
        return Err("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len".into());
    }
    if options.wants_len {
        ctx.reply.int(i64::from(length(&a, &b)));
        return Ok(());
    }
    let (common, matches) = Table::new(&a, &b).walk(&a, &b);
    if options.wants_ranges {
        reply_ranges(&mut ctx.reply, &options, &matches, common.len());
    } else {
        ctx.reply.bulk(&common);
    }
    Ok(())
}

/// The length alone takes one row of the table.
fn length(a: &[u8], b: &[u8]) -> u32 {
    let mut row = vec![0u32; b.len() + 1];
    for &x in a {
        let mut diagonal = 0;
        for (j, &y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = if x == y { diagonal + 1 } else { above.max(row[j]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

/// First and last index of a matching run, in both strings.
struct Match {
    a: (usize, usize),
    b: (usize, usize),
}

/// Lengths of the longest common subsequences of all pairs of prefixes.
struct Table {
    cells: Vec<u32>,
    width: usize,
}

impl Table {
    fn new(a: &[u8], b: &[u8]) -> Table {
        let width = b.len() + 1;
        let mut cells = vec![0u32; (a.len() + 1) * width];
        for (i, &x) in a.iter().enumerate() {
            let (done, rest) = cells.split_at_mut((i + 1) * width);
            let (above, row) = (&done[i * width..], &mut rest[..width]);
            for (j, &y) in b.iter().enumerate() {
                row[j + 1] = if x == y { above[j] + 1 } else { above[j + 1].max(row[j]) };
            }
        }
        Table { cells, width }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * self.width + j]
    }

    /// The common subsequence and its runs, from the end to the start. Where two ways are equally long the
    /// second string is shortened, as in Redis.
    fn walk(&self, a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<Match>) {
        let (mut i, mut j) = (a.len(), b.len());
        let mut common = Vec::with_capacity(self.at(i, j) as usize);
        let mut matches = Vec::new();
        let mut open: Option<Match> = None;
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                common.push(a[i - 1]);
                (i, j) = (i - 1, j - 1);
                // Two matches in a row are adjacent in both strings: anything else closes the run.
                let run = open.get_or_insert(Match { a: (i, i), b: (j, j) });
                (run.a.0, run.b.0) = (i, j);
            } else {
                if self.at(i - 1, j) > self.at(i, j - 1) {
                    i -= 1;
                } else {
                    j -= 1;
                }
                matches.extend(open.take());
            }
        }
        matches.extend(open);
        common.reverse();
        (common, matches)
    }
}

fn reply_ranges(reply: &mut Reply<'_>, options: &Options, matches: &[Match], len: usize) {
    let match_len = |m: &Match| (m.a.1 - m.a.0 + 1) as u64;
    let shown = || matches.iter().filter(|m| match_len(m) >= options.min_match_len);
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(shown().count());
    for m in shown() {
        reply.array(2 + usize::from(options.shows_match_len));
        for (start, end) in [m.a, m.b] {
            reply.array(2);
            reply.int(start as i64);
            reply.int(end as i64);
        }
        if options.shows_match_len {
            reply.int(match_len(m) as i64);
        }
    }
    reply.bulk(b"len");
    reply.int(len as i64);
}
