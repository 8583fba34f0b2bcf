/// Number of a row of the command table, and the index of its statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(pub u16);
