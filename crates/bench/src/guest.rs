//! Processes that measure: each is given a plan and answers, and does not outlive this one.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::de::DeserializeOwned;
use serde::Serialize;
use stillframe_testkit::mortal;

use crate::error::{BenchError, Context, Result};

/// This program.
pub fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context(|| "find this program".to_owned())
}

/// A subcommand of this program in a process of its own.
pub fn command(subcommand: &str) -> Result<Command> {
    let mut command = mortal(&own_program()?);
    command.arg(subcommand);
    Ok(command)
}

/// A subcommand of this program below another one, which is given its words first.
pub fn command_below(program: &Path, words: &[String], subcommand: &str) -> Result<Command> {
    let mut command = mortal(program);
    command.args(words).arg(own_program()?).arg(subcommand);
    Ok(command)
}

/// Starts a process, does something to it before it is told its plan, and returns what it answers.
///
/// # Errors
/// The process cannot be started, or `before` fails, or it ended without an answer.
pub fn ask<P: Serialize, R: DeserializeOwned>(
    command: &mut Command,
    plan: &P,
    who: &str,
    before: impl FnOnce(u32) -> Result<()>,
) -> Result<R> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context(|| format!("start a process for {who}"))?;
    let sent = before(child.id()).and_then(|()| send(&mut child, plan));
    // Closes its input if nothing was sent: it ends by itself then.
    drop(child.stdin.take());
    let mut text = String::new();
    let heard = child.stdout.take().map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut text));
    let status = child.wait().context(|| "wait for a measuring process".to_owned())?;
    sent?;
    heard.context(|| "hear a measuring process".to_owned())?;
    if !status.success() {
        let hint =
            if status.code().is_none() { ": it may have needed more memory than it was given" } else { "" };
        return Err(BenchError::Failed(format!("{who}: the process ended with {status}{hint}")));
    }
    serde_json::from_str(&text).map_err(|error| BenchError::failed("read an answer", error))
}

fn send<P: Serialize>(child: &mut Child, plan: &P) -> Result<()> {
    let text = serde_json::to_vec(plan).map_err(|error| BenchError::failed("write a plan", error))?;
    // Without it the child would wait for ever; it is closed here.
    let mut stdin = child.stdin.take().ok_or(BenchError::Failed("a child without input".to_owned()))?;
    stdin.write_all(&text).context(|| "tell a measuring process its plan".to_owned())
}

/// In the process that measures: the plan from standard input.
///
/// # Errors
/// There is none.
pub fn plan<P: DeserializeOwned>() -> Result<P> {
    serde_json::from_reader(std::io::stdin())
        .map_err(|error| BenchError::failed("read the plan from standard input", error))
}

/// In the process that measures: says what was measured.
///
/// # Errors
/// Nobody hears it.
pub fn answer<R: Serialize>(reply: &R) -> Result<()> {
    let text = serde_json::to_string(reply).map_err(|error| BenchError::failed("write the answer", error))?;
    writeln!(std::io::stdout(), "{text}").context(|| "write the answer".to_owned())
}
