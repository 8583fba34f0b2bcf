//! A part of the long suites for each commit, so that the commits of a while see all of them.

use std::process::Command;
use std::str::FromStr;

use crate::part::Part;

/// A part that takes no longer than this is in every share.
const SHORT_S: u32 = 20;

/// One of `count` shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    count: u32,
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let count = text.strip_prefix("1/").and_then(|count| count.parse().ok()).filter(|count| *count > 0);
        count.map(|count| Share { count }).ok_or_else(|| format!("'{text}' is no share: 1/4 is one"))
    }
}

impl Share {
    /// The parts of this commit's share, and all short ones.
    ///
    /// # Errors
    /// The commit is not known.
    pub fn of(self, parts: Vec<Part>) -> Result<Vec<Part>, String> {
        let out = Command::new("git").args(["rev-parse", "HEAD"]).output();
        let hash =
            out.ok().filter(|out| out.status.success()).and_then(|out| String::from_utf8(out.stdout).ok());
        let number = hash.as_deref().and_then(|hash| u32::from_str_radix(hash.get(..7)?, 16).ok());
        let number =
            number.ok_or("a share takes a clone of the repository: git does not name a commit here")?;
        println!("share {} of {}, as the commit says", number % self.count + 1, self.count);
        Ok(self.numbered(number % self.count, parts))
    }

    /// Longest first, each to the share that has least so far: the shares are about equally long.
    fn numbered(self, wanted: u32, mut parts: Vec<Part>) -> Vec<Part> {
        parts.sort_by(|a, b| b.length_s.cmp(&a.length_s).then(a.name.cmp(&b.name)));
        let mut lengths = vec![0_u32; self.count as usize];
        let mut is_chosen = |part: &Part| {
            if part.length_s <= SHORT_S {
                return true;
            }
            let shortest = (0..lengths.len()).min_by_key(|share| lengths[*share]).unwrap_or(0);
            lengths[shortest] += part.length_s;
            shortest == wanted as usize
        };
        parts.retain(|part| is_chosen(part));
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<Part> {
        let lengths = [300, 240, 200, 90, 80, 60, 45, 30, 5, 1];
        lengths.iter().map(|length| Part::shell(&format!("part {length}"), *length, "true")).collect()
    }

    #[test]
    fn all_shares_together_have_each_long_part_once_and_each_short_one_always() {
        let share: Share = "1/3".parse().unwrap();
        let shares: Vec<Vec<Part>> = (0..3).map(|number| share.numbered(number, parts())).collect();
        for part in parts() {
            let count = shares.iter().filter(|share| share.contains(&part)).count();
            assert_eq!(count, if part.length_s <= SHORT_S { 3 } else { 1 }, "{part:?}");
        }
        let lengths: Vec<u32> =
            shares.iter().map(|share| share.iter().map(|part| part.length_s).sum()).collect();
        assert!(lengths.iter().max().unwrap() < &(lengths.iter().min().unwrap() * 2), "{lengths:?}");
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for text in ["", "1", "1/0", "2/4", "1/-1", "1/x"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
