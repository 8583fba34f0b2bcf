//! Result files. Each run has a directory of its own, `results/DATE-NAME`, and each file in it begins with what is needed
//! to repeat and to judge it: the command line, the revision, the servers' versions, the machine, the placement of threads
//! and the date. `docs/measured/measuring.md` says which runs are kept, and how.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
pub use stillframe_units::{human_bytes, human_ns, thousands};

use crate::error::{BenchError, Context, Result};
use crate::peer::{Peer, PeerKind};
pub use crate::provenance::without_paths;
use crate::provenance::{revision_of, Provenance};
use crate::stops;

pub const REPORT: &str = "report.md";
pub const RESULTS: &str = "results.json";

#[derive(Clone, Debug, clap::Args)]
pub struct OutArgs {
    /// Directory for the runs' directories
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub out: PathBuf,
    /// Name of the run, after the date in its directory's name [default: the subcommand]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

pub struct Output {
    dir: PathBuf,
    title: String,
    provenance: Provenance,
    /// What is to be known beside.
    notes: Vec<(String, String)>,
}

impl Output {
    pub fn new(args: &OutArgs, subcommand: &str, title: &str, peers: &[Peer]) -> Result<Self> {
        let provenance = Provenance::now();
        let notes = peers.iter().map(|peer| (peer.name.clone(), description(peer))).collect();
        let name = args.name.as_deref().unwrap_or(subcommand);
        if name.is_empty() || name.contains('/') {
            return Err(BenchError::Failed(format!(
                "--name {name:?}: give a name for a directory, not a path"
            )));
        }
        let date = provenance.date.split('T').next().unwrap_or_default();
        let dir = new_directory(&args.out, &format!("{date}-{name}"))?;
        Ok(Self { dir, title: title.to_owned(), provenance, notes })
    }

    /// Of this run.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds a line to the header and says it at the terminal.
    pub fn note(&mut self, name: &str, text: impl Into<String>) {
        let text = text.into();
        eprintln!("{name}: {text}");
        self.notes.push((name.to_owned(), text));
    }

    /// Lines of name and text, as all files begin.
    pub fn header(&self) -> impl Iterator<Item = (&str, String)> {
        let from = &self.provenance;
        let own = [
            ("command", from.command.clone()),
            ("date", from.date.clone()),
            ("revision", from.revision.clone()),
            ("machine", from.machine.line()),
        ];
        own.into_iter().chain(self.notes.iter().map(|(name, text)| (name.as_str(), text.clone())))
    }

    /// Prints the report and writes it as markdown.
    pub fn write_markdown(&self, body: &str) -> Result<()> {
        let mut text = format!("# {}\n\n", self.title);
        for (name, value) in self.header() {
            text.push_str(&format!("- {name}: {value}\n"));
        }
        if let Some(stops) = stops::seen() {
            text.push_str(&format!("- stops: {stops}\n"));
        }
        text.push('\n');
        text.push_str(body);
        say(&text);
        self.write(REPORT, text.as_bytes())
    }

    /// One result a line, so that two runs can be compared line by line, and no blanks.
    pub fn write_json<T: Serialize>(&self, results: &[T]) -> Result<()> {
        let line = |value: &T| serde_json::to_string(value);
        let lines = results.iter().map(line).collect::<serde_json::Result<Vec<_>>>();
        let head = serde_json::to_string(&self.provenance).and_then(|from| {
            let notes: serde_json::Map<_, _> =
                self.notes.iter().map(|(name, text)| (name.clone(), text.as_str().into())).collect();
            Ok(format!("{{\"provenance\":{from},\n\"notes\":{},", serde_json::to_string(&notes)?))
        });
        let failed = |error| BenchError::failed("write the results as JSON", error);
        let text = format!(
            "{}\n\"results\":[\n{}\n]}}\n",
            head.map_err(failed)?,
            lines.map_err(failed)?.join(",\n")
        );
        self.write(RESULTS, text.as_bytes())
    }

    /// Rows under a header of `# ` lines.
    pub fn write_csv(&self, file_name: &str, columns: &str, rows: &str) -> Result<()> {
        let mut text = String::new();
        for (name, value) in self.header() {
            text.push_str(&format!("# {name}: {value}\n"));
        }
        text.push_str(columns);
        text.push('\n');
        text.push_str(rows);
        self.write(file_name, text.as_bytes())
    }

    pub fn write(&self, file_name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.dir.join(file_name);
        fs::write(&path, bytes).context(|| format!("write {}", path.display()))?;
        eprintln!("wrote {}", path.display());
        Ok(())
    }
}

/// A run that failed before it had anything to write leaves nothing.
impl Drop for Output {
    fn drop(&mut self) {
        // Fails where there are files.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Version, flags and, of our own, the revision.
fn description(peer: &Peer) -> String {
    let mut text = peer.version();
    if peer.kind == PeerKind::Stillframe {
        text.push_str(&format!(", revision {}", revision_of(&peer.binary)));
    }
    if !peer.args.is_empty() {
        text.push_str(&format!(", started with {}", without_paths(&peer.args.join(" "))));
    }
    text
}

/// A directory that was not there before: no run writes over another one's files.
fn new_directory(parent: &Path, name: &str) -> Result<PathBuf> {
    fs::create_dir_all(parent).context(|| format!("create {}", parent.display()))?;
    let (mut dir, mut number) = (parent.join(name), 1);
    loop {
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error).context(|| format!("create {}", dir.display())),
        }
        dir = parent.join(format!("{name}-{number}"));
    }
}

/// Prints to standard output; a reader that has gone away is no reason to fail.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A markdown table whose columns line up in plain text too.
pub fn markdown_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
        cells.chain([header[i].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(i, (cell, w))| {
            let pad = " ".repeat(w - cell.chars().count().min(*w));
            if i == 0 {
                format!("{cell}{pad}")
            } else {
                format!("{pad}{cell}")
            }
        });
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    };
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(i, w)| if i == 0 { "-".repeat(*w) } else { format!("{}:", "-".repeat(w - 1)) })
        .collect();
    let mut table = line(header.to_vec());
    table.push_str(&line(rule.iter().map(String::as_str).collect()));
    for row in rows {
        table.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    table
}

/// A table with a title and a comment; nothing without rows.
pub fn markdown_section(title: &str, comment: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    match rows.is_empty() {
        true => String::new(),
        false => format!("## {title}\n\n{comment}\n\n{}\n", markdown_table(header, rows)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_never_takes_the_directory_of_another() {
        let dir = stillframe_testkit::TempDir::new("runs");
        let names = [1, 2, 3].map(|_| new_directory(&dir, "2026-01-31-pause").unwrap());
        let ends = ["2026-01-31-pause", "2026-01-31-pause-2", "2026-01-31-pause-3"];
        assert_eq!(names, ends.map(|end| dir.join(end)));
    }

    #[test]
    fn tables_line_up() {
        let t =
            markdown_table(&["a", "b"], &[vec!["xx".into(), "1".into()], vec!["y".into(), "1000".into()]]);
        assert_eq!(t, "| a   |    b |\n| --- | ---: |\n| xx  |    1 |\n| y   | 1000 |\n");
    }
}
