//! A transaction as a script, or as a function: the same commands, the same replies, one step.

use std::io;

use crate::process::Client;

/// The words of a command.
type Words = Vec<Vec<u8>>;

/// Runs the commands that are among `words`: of each the number of its words, and these.
macro_rules! runs_words {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            "
            local replies, at = {}, 1
            while words[at] do
                local count = tonumber(words[at])
                replies[#replies + 1] = redis.call(unpack(words, at + 1, at + count))
                at = at + count + 1
            end
            return replies",
            $after
        )
    };
}

const SCRIPT: &str = runs_words!("local words = ARGV", "");
const LIBRARY: &str =
    runs_words!("#!lua name=ledger\nredis.register_function('step', function(keys, words)", "\nend)");

/// Lua has room for so many arguments of a call.
const WORDS_MAX: usize = 1000;

/// What commands are sent as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Script,
    /// Of the library that [`load`] brings.
    Function,
}

/// Loads the library, which is there already where a save or a log had it.
pub fn load(conn: &mut Client) -> io::Result<()> {
    let reply = conn.try_run_words(&["FUNCTION", "LOAD", "REPLACE", LIBRARY])?;
    assert!(!reply.is_error(), "{reply:?}");
    Ok(())
}

/// The call that carries these commands out; `None` if a script may not.
pub fn of<'c>(form: Form, commands: impl Iterator<Item = &'c Words> + Clone) -> Option<Words> {
    let is_allowed = |words: &Words| {
        let waits = ["BLPOP", "BRPOP", "BLMOVE", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "BRPOPLPUSH"];
        let is_waiting = waits.iter().any(|name| words[0].eq_ignore_ascii_case(name.as_bytes()));
        !is_waiting && words.len() <= WORDS_MAX
    };
    if !commands.clone().all(is_allowed) {
        return None;
    }
    let call = match form {
        Form::Script => ["EVAL", SCRIPT, "0"],
        Form::Function => ["FCALL", "step", "0"],
    };
    let mut words: Words = call.map(|word| word.as_bytes().to_vec()).into();
    for command in commands {
        words.push(command.len().to_string().into_bytes());
        words.extend(command.iter().cloned());
    }
    Some(words)
}
