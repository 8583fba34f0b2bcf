//! Function libraries that a worker has loaded.

use std::collections::{BTreeMap, HashMap};

use stillframe_scripting::{Library, LibraryFunction};

/// Libraries with their sources, by name.
#[derive(Default)]
pub struct Loaded {
    /// That of the store which they are; `None`: of none.
    pub version: Option<u64>,
    libraries: BTreeMap<String, (Vec<u8>, Library)>,
    /// By the name in lower case: the library, and the place there. Redis finds functions in any case.
    functions: HashMap<Vec<u8>, (String, usize)>,
}

impl Loaded {
    pub fn add(&mut self, source: Vec<u8>, library: Library) {
        for (index, function) in library.functions.iter().enumerate() {
            let name = function.name.to_ascii_lowercase().into_bytes();
            self.functions.entry(name).or_insert_with(|| (library.name.clone(), index));
        }
        self.libraries.insert(library.name.clone(), (source, library));
    }

    pub fn remove(&mut self, name: &str) -> Option<(Vec<u8>, Library)> {
        self.functions.retain(|_, (library, _)| library != name);
        self.libraries.remove(name)
    }

    /// Takes a library out if that is its source.
    pub fn take(&mut self, name: &str, source: &[u8]) -> Option<Library> {
        let is_same = self.libraries.get(name).is_some_and(|(known, _)| known == source);
        self.remove(name).filter(|_| is_same).map(|(_, library)| library)
    }

    /// Adds others, in the place of those of the same names.
    pub fn join(&mut self, others: Loaded) {
        for (name, (source, library)) in others.libraries {
            self.remove(&name);
            self.add(source, library);
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.libraries.contains_key(name)
    }

    pub fn libraries(&self) -> impl Iterator<Item = (&String, &(Vec<u8>, Library))> {
        self.libraries.iter()
    }

    /// The function of that name, in any case.
    pub fn function(&self, name: &[u8]) -> Option<&LibraryFunction> {
        let (library, index) = self.functions.get(&name.to_ascii_lowercase())?;
        self.libraries.get(library)?.1.functions.get(*index)
    }

    /// The library of the function of that name.
    pub fn library_of(&self, function: &[u8]) -> Option<&String> {
        self.functions.get(&function.to_ascii_lowercase()).map(|(library, _)| library)
    }

    pub fn library_count(&self) -> usize {
        self.libraries.len()
    }

    pub fn function_count(&self) -> usize {
        self.libraries.values().map(|(_, library)| library.functions.len()).sum()
    }
}
