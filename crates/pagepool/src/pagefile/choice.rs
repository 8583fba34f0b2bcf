//! Which checkpoint of a file was acknowledged last, by the three copies of its superblock.
//!
//! A commit writes the witness (*announced*) and syncs, then the superblock and syncs, and acknowledges; then the witness
//! again (*confirmed*). So a crash leaves at most one of the three torn, and:
//!
//! | torn or damaged | the newest of | because |
//! |---|---|---|
//! | nothing | the superblocks, a confirmed witness | what is only announced was never acknowledged |
//! | the superblock that the witness announces | that, from the witness | its writing had begun, so all it names is durable |
//! | another superblock | as above | the witness says what was acknowledged, at least |
//! | the witness | the superblocks | both were intact when it was written |
//! | the witness and a superblock | nobody knows | no crash does that |

use super::error::PageFileError;
use super::superblock::{Role, Superblock};
use super::superblocks::Repairs;

/// The copies of the superblock, each as it was read.
pub(super) struct Copies {
    pub places: [Result<Superblock, PageFileError>; 2],
    pub witness: Result<(Superblock, Role), PageFileError>,
}

/// What may be served.
pub(super) struct Choice {
    /// Newest first.
    pub candidates: Vec<Superblock>,
    /// Why the first of them may not be what was acknowledged last.
    pub doubt: Option<PageFileError>,
}

/// Decides by what the copies say; see above.
pub(super) fn choose(file: &str, copies: &Copies) -> Result<Choice, PageFileError> {
    let is_missing = |error: &PageFileError| matches!(error, PageFileError::SuperblockMissing { .. });
    if copies.errors().filter(|error| is_missing(error)).count() == 3 {
        return Err(PageFileError::NotAPageFile { file: file.to_owned() });
    }
    let mut ids = copies.intact().map(|superblock| superblock.file_id);
    let first_id = ids.next();
    if ids.any(|id| Some(id) != first_id) {
        return Err(PageFileError::MixedFiles { file: file.to_owned() });
    }
    let mut candidates: Vec<Superblock> = copies.places.iter().flatten().cloned().collect();
    if let Ok((superblock, role)) = &copies.witness {
        if *role == Role::Confirmed || copies.places[superblock.place as usize].is_err() {
            candidates.push(superblock.clone());
        }
    }
    candidates.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
    candidates.dedup_by_key(|superblock| superblock.generation);
    let newest = candidates.first().map_or(0, |superblock| superblock.generation);
    let acknowledged = copies.acknowledged_at_least();
    let doubt = match &copies.witness {
        _ if newest < acknowledged => {
            let missing =
                PageFileError::CheckpointMissing { file: file.to_owned(), generation: acknowledged };
            Some(copies.errors().next().cloned().unwrap_or(missing))
        }
        Err(_) => copies.places.iter().find_map(|place| place.as_ref().err().cloned()),
        Ok(_) => None,
    };
    Ok(Choice { candidates, doubt })
}

impl Copies {
    fn intact(&self) -> impl Iterator<Item = &Superblock> {
        let witness = self.witness.iter().map(|(superblock, _)| superblock);
        self.places.iter().flatten().chain(witness)
    }

    fn errors(&self) -> impl Iterator<Item = &PageFileError> {
        self.places.iter().filter_map(|place| place.as_ref().err()).chain(self.witness.as_ref().err())
    }

    /// What is wrong with the copies.
    pub fn into_errors(self) -> Vec<PageFileError> {
        self.errors().cloned().collect()
    }

    /// The greatest generation in the file.
    pub fn newest_generation(&self) -> u64 {
        self.intact().map(|superblock| superblock.generation).max().unwrap_or(0)
    }

    /// A generation that was acknowledged for certain; perhaps a later one was too.
    fn acknowledged_at_least(&self) -> u64 {
        let confirmed = self.witness.iter().filter(|(_, role)| *role == Role::Confirmed);
        let confirmed = confirmed.map(|(superblock, _)| superblock.generation);
        self.intact().map(|superblock| superblock.predecessor).chain(confirmed).max().unwrap_or(0)
    }

    /// Where that superblock lies.
    pub fn place_of(&self, wanted: &Superblock) -> Option<u32> {
        let is_wanted = |place: &u32| self.places[*place as usize].as_ref().is_ok_and(|it| it == wanted);
        [wanted.place, 1 - wanted.place].into_iter().find(is_wanted)
    }

    /// What to write anew so that all three copies say that `served`, to lie at `place`, is the current checkpoint.
    pub fn repairs(&self, served: &Superblock, place: u32) -> Repairs {
        let witness = self.witness.as_ref().ok().filter(|(superblock, _)| superblock == served);
        let is_at_place = self.place_of(served).is_some();
        let is_wrong = |at: &u32| self.places[*at as usize].is_err() || (*at == place && !is_at_place);
        Repairs {
            witness: witness.is_none(),
            places: [place, 1 - place].into_iter().filter(is_wrong).collect(),
            confirmation: witness.is_some_and(|(_, role)| *role == Role::Announced),
        }
    }
}
