//! What a worker has to run scripts with: a state of Lua, and what it has compiled there.

use std::collections::HashMap;
use std::sync::Arc;

use stillframe_scripting::{CompileError, Options, Script, State, StateError};

use crate::protocol::args::{ArgRange, Args};
use crate::protocol::reply::ReplyBuf;
use crate::state::libraries::Loaded;
use crate::state::scripts::{Digest, Scripts, Source};
use crate::state::session::Session;

/// A state for one worker. It is made when the worker runs its first script.
pub struct Lua {
    pub state: State,
    generation: u64,
    options: Options,
    scripts: HashMap<Digest, (Arc<Source>, Script)>,
    pub libraries: Loaded,
    /// What commands of a script run with, kept for its allocations.
    pub inside: Inside,
}

/// What commands of a script run with.
pub struct Inside {
    pub client: Session,
    pub out: ReplyBuf,
    /// The longest reply that a script can be given, in bytes.
    pub out_bytes_max: usize,
    pub words: Words,
}

/// The words of a command, one behind the other.
#[derive(Default)]
pub struct Words {
    bytes: Vec<u8>,
    ranges: Vec<ArgRange>,
}

impl Words {
    /// False if they are more than a command may have.
    pub fn fill(&mut self, words: &[&[u8]]) -> bool {
        self.bytes.clear();
        self.ranges.clear();
        for word in words {
            let (Ok(start), Ok(len)) = (u32::try_from(self.bytes.len()), u32::try_from(word.len())) else {
                return false;
            };
            self.ranges.push(ArgRange { start, len });
            self.bytes.extend_from_slice(word);
        }
        u32::try_from(self.bytes.len()).is_ok()
    }

    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.ranges)
    }

    /// Those of a call, to be kept.
    pub fn of(args: &Args<'_>) -> Words {
        let mut words = Words::default();
        for word in args.from(0) {
            words.ranges.push(ArgRange { start: words.bytes.len() as u32, len: word.len() as u32 });
            words.bytes.extend_from_slice(word);
        }
        words
    }

    /// Does not keep what a large command has taken.
    pub fn shrink(&mut self) {
        const KEPT_BYTES: usize = 64 << 10;
        if self.bytes.capacity() > KEPT_BYTES {
            *self = Words::default();
        }
    }
}

impl Lua {
    /// # Errors
    /// No memory.
    pub fn new(scripts: &Scripts, options: Options) -> Result<Lua, StateError> {
        let inside = Inside {
            client: Session::new(0, true),
            out: ReplyBuf::within(options.memory_bytes_max),
            out_bytes_max: options.memory_bytes_max,
            words: Words::default(),
        };
        let (state, generation) = (State::new(options)?, scripts.generation());
        Ok(Lua { state, generation, options, scripts: HashMap::new(), libraries: Loaded::default(), inside })
    }

    /// Whether it may run on: nothing has been flushed since, and its bounds are those that hold.
    pub fn is_current(&self, scripts: &Scripts, options: Options) -> bool {
        self.generation == scripts.generation() && self.options.memory_bytes_max == options.memory_bytes_max
    }

    /// What has been compiled of that name, if it is still known.
    pub fn compiled(&self, digest: Digest) -> Option<&(Arc<Source>, Script)> {
        self.scripts.get(&digest).filter(|(source, _)| !source.is_gone())
    }

    /// The same with what it takes to run it.
    pub fn run_with(&mut self, digest: Digest) -> Option<(&State, &Script, &mut Inside)> {
        let Lua { state, scripts, inside, .. } = self;
        scripts.get(&digest).map(|(_, script)| (&*state, script, inside))
    }

    /// Compiles a script of which only the text is there.
    ///
    /// # Errors
    /// Redis refuses its first line, or it is not Lua.
    pub fn compile(&self, text: &[u8], digest: Digest) -> Result<Script, CompileError> {
        self.state.compile(text, &digest.hex())
    }

    /// Keeps what has been compiled.
    pub fn keep(&mut self, source: Arc<Source>, script: Script) {
        self.scripts.retain(|_, (source, _)| !source.is_gone());
        self.scripts.insert(source.digest, (source, script));
    }
}
