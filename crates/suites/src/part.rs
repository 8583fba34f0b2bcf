//! What is run and timed as one.

use std::path::PathBuf;
use std::process::Command;

/// A part that has not ended after so many times its length, and so many seconds more, hangs.
const PATIENCE: (u32, u32) = (4, 900);

/// One test program, or one command, with what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Such as `store/collections`, or `store/collections@array` with another backend.
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Where it runs; the root of the workspace if `None`.
    pub dir: Option<PathBuf>,
    /// About how long it takes on two cores: longer parts begin earlier, and shares are of equal length.
    pub length_s: u32,
    /// Whether nothing else may run meanwhile, since it counts what the machine does or takes both cores.
    pub is_alone: bool,
}

impl Part {
    /// A command of a shell, from the root of the workspace.
    #[must_use]
    pub fn shell(name: &str, length_s: u32, line: &str) -> Part {
        Part {
            name: name.to_owned(),
            program: PathBuf::from("sh"),
            args: vec!["-c".to_owned(), line.to_owned()],
            env: Vec::new(),
            dir: None,
            length_s,
            is_alone: false,
        }
    }

    /// The same part, with the machine to itself.
    #[must_use]
    pub fn alone(mut self) -> Part {
        self.is_alone = true;
        self
    }

    /// The same part, told something by the environment.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Part {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same part, of a test program: only tests whose names have this in them.
    #[must_use]
    pub fn only(mut self, filter: &str) -> Part {
        self.args.push(filter.to_owned());
        self
    }

    /// Seconds after which it is ended, with what it has started.
    #[must_use]
    pub fn limit_s(&self) -> u32 {
        let (factor, more_s) = PATIENCE;
        self.length_s * factor + more_s
    }

    #[must_use]
    pub fn command(&self) -> Command {
        // `timeout` and what it starts are a group of processes, which a Ctrl-C does not reach: they end with the runner.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "timeout", "--kill-after=10", &self.limit_s().to_string()]);
        command.arg(&self.program);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }
}
