//! A sequence of commands, as generated, run, shrunk and printed.

use std::fmt;

/// An argument of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arg {
    Bytes(Vec<u8>),
    /// What the same server last answered to `DUMP`; empty before that.
    LastDump,
}

/// One step of a sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Command(Vec<Arg>),
    /// A whole `SCAN` iteration with these options.
    ScanAll(Vec<Vec<u8>>),
    /// The same of the elements of a key: command and key, and the options.
    ScanElements(Vec<Vec<u8>>, Vec<Vec<u8>>),
    /// Lets a key run out: `PEXPIRE key 1`, a wait, and this access, whose first argument is the key.
    ExpireNow(Vec<Vec<u8>>),
}

/// A step, on one of the connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub conn: usize,
    pub action: Action,
}

/// Connections of a sequence: `WATCH` needs somebody else.
pub const CONN_COUNT: usize = 2;

/// What one run consists of.
#[derive(Clone, Debug)]
pub struct Sequence {
    pub seed: u64,
    pub resp3: bool,
    /// Commands of one connection are written at once and their replies read afterwards.
    pub pipelined: bool,
    pub steps: Vec<Step>,
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::LastDump => write!(f, "<last DUMP>"),
            Arg::Bytes(bytes) => quote(bytes, f),
        }
    }
}

fn quote(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let plain = |b: &u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b'\'' | b'<');
    if !bytes.is_empty() && bytes.len() <= 300 && bytes.iter().all(plain) {
        return write!(f, "{}", String::from_utf8_lossy(bytes));
    }
    write!(f, "\"{}\"", bytes[..bytes.len().min(300)].escape_ascii())?;
    if bytes.len() > 300 {
        write!(f, "...({} bytes)", bytes.len())?;
    }
    Ok(())
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.conn)?;
        let words = match &self.action {
            Action::Command(args) => args.clone(),
            Action::ScanAll(options) => {
                write!(f, " (scan all)")?;
                options.iter().cloned().map(Arg::Bytes).collect()
            }
            Action::ScanElements(command, options) => {
                write!(f, " (scan all)")?;
                command.iter().chain(options).cloned().map(Arg::Bytes).collect()
            }
            Action::ExpireNow(access) => {
                write!(f, " (expire now)")?;
                access.iter().cloned().map(Arg::Bytes).collect()
            }
        };
        words.iter().try_for_each(|w| write!(f, " {w}"))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.resp3 { "RESP3" } else { "RESP2" };
        let way = if self.pipelined { "pipelined" } else { "one by one" };
        writeln!(f, "{protocol}, {way}, {} steps:", self.steps.len())?;
        self.steps.iter().enumerate().try_for_each(|(i, step)| writeln!(f, "  {i:>3} {step}"))
    }
}
