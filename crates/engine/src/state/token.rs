/// A connection within its worker: slot and generation, so that a message that comes late finds nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Token(pub u64);
