//! Which release of a peer this program was built with.

const LOCK: &str = include_str!("../../../../Cargo.lock");

/// As the lock file of this tree has it.
pub fn locked(crate_name: &str) -> &'static str {
    let head = format!("name = \"{crate_name}\"\nversion = \"");
    let version = LOCK.split_once(&head).and_then(|(_, rest)| rest.split('"').next());
    version.unwrap_or("of unknown version")
}

#[cfg(test)]
mod tests {
    use super::locked;

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let version = locked("clap");
        assert!(version.starts_with('4') && version.split('.').count() == 3, "{version}");
        assert_eq!(locked("cla"), "of unknown version");
    }
}
