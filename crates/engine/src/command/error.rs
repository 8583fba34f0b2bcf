//! Why a command did not do what it was asked.

use std::borrow::Cow;

use stillframe_store::OpError;

use crate::protocol::errors;

pub type CmdResult = Result<(), CmdError>;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum CmdError {
    /// A fault parks the command until its pages are in memory; the others become error replies.
    Store(OpError),
    /// The whole reply, code first, without the `-`: `ERR syntax error`.
    Reply(Cow<'static, [u8]>),
}

impl From<OpError> for CmdError {
    fn from(error: OpError) -> Self {
        CmdError::Store(error)
    }
}

impl From<stillframe_store::Fault> for CmdError {
    fn from(fault: stillframe_store::Fault) -> Self {
        CmdError::Store(fault.into())
    }
}

impl From<&'static str> for CmdError {
    fn from(text: &'static str) -> Self {
        CmdError::Reply(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for CmdError {
    fn from(text: String) -> Self {
        CmdError::Reply(Cow::Owned(text.into_bytes()))
    }
}

impl From<Vec<u8>> for CmdError {
    fn from(text: Vec<u8>) -> Self {
        CmdError::Reply(Cow::Owned(text))
    }
}

impl CmdError {
    /// The text of the error reply. A fault has none: its command runs again.
    pub fn into_text(self) -> Cow<'static, [u8]> {
        match self {
            CmdError::Reply(text) => text,
            CmdError::Store(OpError::OutOfMemory { .. }) => Cow::Borrowed(errors::OUT_OF_MEMORY.as_bytes()),
            CmdError::Store(OpError::WrongType) => Cow::Borrowed(errors::WRONG_TYPE.as_bytes()),
            CmdError::Store(OpError::LargerThanMemory { needed_bytes, most_bytes }) => Cow::Owned(
                format!(
                    "ERR the values are larger than memory: this command needs {needed_bytes} bytes of them at a time, \
                     and {most_bytes} may be there, half of what 'maxmemory' leaves for data"
                )
                .into_bytes(),
            ),
            CmdError::Store(OpError::TooLarge) => Cow::Borrowed(errors::TOO_LARGE.as_bytes()),
            CmdError::Store(other) => Cow::Owned(format!("ERR {other}").into_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_type_has_the_text_of_redis() {
        let text = CmdError::Store(OpError::WrongType).into_text();
        assert_eq!(&*text, b"WRONGTYPE Operation against a key holding the wrong kind of value");
    }
}
