//! Result files. Each begins with what is needed to repeat and to judge it: the command line, the servers'
//! versions, the machine, the placement of threads and the date.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use serde_json::{json, Value};
pub use stillframe_fork::units::{human_ns, thousands};

use crate::clock::utc_now;
use crate::error::{Context, Result};
use crate::machine::Machine;
use crate::peer::Peer;

#[derive(Clone, Debug, clap::Args)]
pub struct OutArgs {
    /// Directory for the result files
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub out: PathBuf,
    /// Begin of the result files' names [default: the subcommand and the date]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

pub struct Output {
    dir: PathBuf,
    stem: String,
    title: String,
    pub header: Vec<(String, String)>,
    machine: Machine,
}

impl Output {
    pub fn new(args: &OutArgs, subcommand: &str, title: &str, peers: &[Peer]) -> Result<Self> {
        fs::create_dir_all(&args.out).context(|| format!("create {}", args.out.display()))?;
        let (date, stamp) = utc_now();
        let machine = Machine::describe();
        let mut header = vec![
            ("command".to_owned(), command_line()),
            ("date".to_owned(), date),
            ("machine".to_owned(), machine.line()),
            ("stillframe-bench".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ];
        for peer in peers {
            let flags =
                if peer.args.is_empty() { String::new() } else { format!(" {}", peer.args.join(" ")) };
            header.push((peer.name.clone(), format!("{}{flags}", peer.version())));
        }
        let stem = args.name.clone().unwrap_or_else(|| format!("{subcommand}-{stamp}"));
        Ok(Self { dir: args.out.clone(), stem, title: title.to_owned(), header, machine })
    }

    /// Adds a line to the header and says it at the terminal.
    pub fn note(&mut self, name: &str, text: impl Into<String>) {
        let text = text.into();
        eprintln!("{name}: {text}");
        self.header.push((name.to_owned(), text));
    }

    pub fn path(&self, extension: &str) -> PathBuf {
        self.dir.join(format!("{}.{extension}", self.stem))
    }

    pub fn file_name(&self, extension: &str) -> String {
        format!("{}.{extension}", self.stem)
    }

    /// Prints the report and writes it as markdown.
    pub fn write_markdown(&self, body: &str) -> Result<()> {
        let mut text = format!("# {}\n\n", self.title);
        for (name, value) in &self.header {
            text.push_str(&format!("- {name}: {value}\n"));
        }
        text.push('\n');
        text.push_str(body);
        say(&text);
        self.write("md", text.as_bytes())
    }

    pub fn write_json(&self, results: Value) -> Result<()> {
        let header: serde_json::Map<String, Value> =
            self.header.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
        let document = json!({ "header": header, "machine": self.machine.json(), "results": results });
        self.write("json", format!("{document:#}\n").as_bytes())
    }

    /// Rows under a header of `# ` lines, in NAME.csv or NAME.suffix.csv.
    pub fn write_csv(&self, suffix: &str, columns: &str, rows: &str) -> Result<()> {
        let mut text = String::new();
        for (name, value) in &self.header {
            text.push_str(&format!("# {name}: {value}\n"));
        }
        text.push_str(columns);
        text.push('\n');
        text.push_str(rows);
        let extension = if suffix.is_empty() { "csv".to_owned() } else { format!("{suffix}.csv") };
        self.write(&extension, text.as_bytes())
    }

    pub fn write(&self, extension: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(extension);
        fs::write(&path, bytes).context(|| format!("write {}", path.display()))?;
        eprintln!("wrote {}", path.display());
        Ok(())
    }
}

/// Prints to standard output; a reader that has gone away is no reason to fail.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The command line with the program's name but not its directory.
fn command_line() -> String {
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    std::iter::once(program).chain(args).collect::<Vec<_>>().join(" ")
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

pub fn human_bytes(bytes: f64) -> String {
    let (mut value, mut unit) = (bytes, "B");
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value.abs() < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" {
        format!("{value:.0} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let t =
            markdown_table(&["a", "b"], &[vec!["xx".into(), "1".into()], vec!["y".into(), "1000".into()]]);
        assert_eq!(t, "| a   |    b |\n| --- | ---: |\n| xx  |    1 |\n| y   | 1000 |\n");
    }

    #[test]
    fn units() {
        assert_eq!(human_bytes(2_147_483_648.0), "2.0 GiB");
    }
}
