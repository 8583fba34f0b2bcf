//! How a page's number leads to its bytes: the ways that there are, by name.

use std::fmt;
use std::str::FromStr;

use super::alloc::Layout;
use super::arena;
use crate::PAGE_SIZE;

/// How a pool finds the bytes of its pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PoolBackend {
    /// Each page has an address of its own (as in vmcache): evicting one gives memory back to the system.
    #[default]
    Vmcache,
    /// A page in memory lies in a frame, and its state word says in which: evicting one makes the frame free. Frames lie in
    /// huge pages.
    Array,
    /// Each page has an address of its own, as with `vmcache`; the kernel module exmap gives memory and takes it.
    Exmap,
}

impl PoolBackend {
    /// All of them, the default first.
    pub const ALL: [PoolBackend; 3] = [PoolBackend::Vmcache, PoolBackend::Array, PoolBackend::Exmap];

    /// Those that every machine has.
    pub const WITHOUT_MODULE: [PoolBackend; 2] = [PoolBackend::Vmcache, PoolBackend::Array];

    /// The names of all, in the same order.
    pub const NAMES: [&'static str; PoolBackend::ALL.len()] =
        [PoolBackend::ALL[0].name(), PoolBackend::ALL[1].name(), PoolBackend::ALL[2].name()];

    /// What settings, reports and the command line call it.
    pub const fn name(self) -> &'static str {
        match self {
            PoolBackend::Vmcache => "vmcache",
            PoolBackend::Array => "array",
            PoolBackend::Exmap => "exmap",
        }
    }

    /// Bytes of address space that a pool of this layout needs for the content of its pages, each of which may have so many
    /// places.
    pub fn memory_bytes(self, layout: Layout, places: u32) -> usize {
        match self {
            PoolBackend::Vmcache | PoolBackend::Exmap => layout.page_count() as usize * PAGE_SIZE,
            PoolBackend::Array => arena::memory_bytes(layout.page_count(), places),
        }
    }
}

impl fmt::Display for PoolBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such way.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no pool backend '{name}', only {}", PoolBackend::NAMES.join(", "))]
pub struct UnknownPoolBackend {
    name: String,
}

impl FromStr for PoolBackend {
    type Err = UnknownPoolBackend;

    fn from_str(name: &str) -> Result<PoolBackend, UnknownPoolBackend> {
        let is_it = |backend: &PoolBackend| backend.name() == name;
        PoolBackend::ALL.into_iter().find(is_it).ok_or_else(|| UnknownPoolBackend { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::PoolBackend;

    #[test]
    fn names_lead_back_to_their_backends() {
        for backend in PoolBackend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        assert_eq!(PoolBackend::default(), PoolBackend::ALL[0]);
        let error = "drawer".parse::<PoolBackend>().unwrap_err();
        assert_eq!(error.to_string(), "there is no pool backend 'drawer', only vmcache, array, exmap");
    }
}
