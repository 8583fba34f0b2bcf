//! The list of algorithms, by name.

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Calc,
    Cpr,
    VirtualHourglass,
    VirtualPiggyback,
}

/// No algorithm has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is not one of calc, cpr, vhg, vpb")]
pub struct UnknownKind(pub String);

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Calc, Kind::Cpr, Kind::VirtualHourglass, Kind::VirtualPiggyback];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Calc => "calc",
            Kind::Cpr => "cpr",
            Kind::VirtualHourglass => "vhg",
            Kind::VirtualPiggyback => "vpb",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        assert!(Kind::ALL.iter().all(|kind| kind.to_string().parse() == Ok(*kind)));
        assert_eq!("zigzag".parse::<Kind>().unwrap_err().0, "zigzag");
    }
}
