//! Walking all entries through copies of pages, as a view gives them.

use std::cell::RefCell;

use stillframe_pagepool::{PageId, PAGE_SIZE};

use crate::blobs::{Blob, BlobPlace, Class};
use crate::error::SaveError;
use crate::keyspace::{Catalog, CATALOG_PAGE_COUNT};
use crate::named::{self, NameEntry};
use crate::page::Page;
use crate::source::{Ahead, PageSource, Run};
use crate::stop::Stop;
use crate::tree::hash::{Content, Inner, Leaf, Links, Record, RecordKey, RecordValue, Reference};
use crate::tree::ordered::{OrderedLeaf, Stored};
use crate::tree::{self as page_tree, blank, LeafView, LeafWalk, Pages, Words, NO_DATABASE};
use crate::value::{Encoding, PageRun, Repr, ValueType};
use crate::{DbId, DbStats, Key, StrRef, UnixMillis};

/// Deepest tree that is believed: five levels hold 10^14 records.
const LEVEL_MAX: u8 = 16;

/// A value of any type, as a view gives it.
pub enum Value<'a> {
    String(StrRef<'a>),
    Collection(CollectionView<'a>),
}

impl<'a> Value<'a> {
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::String(_) => ValueType::String,
            Value::Collection(collection) => collection.value_type,
        }
    }

    pub fn as_string(&self) -> Option<&StrRef<'a>> {
        match self {
            Value::String(string) => Some(string),
            Value::Collection(_) => None,
        }
    }
}

impl<S: PageSource> Pages for Ahead<'_, S> {
    fn read(&self, pid: PageId, into: &mut Page) -> Result<(), SaveError> {
        self.read_page(pid, into)
    }

    fn expect(&self, pages: &mut dyn Iterator<Item = PageId>) {
        Ahead::expect(self, pages.map(|first| Run { first, page_count: 1 }));
    }
}

/// A collection as seen by a view; what is done with it is in `types/view.rs`.
pub struct CollectionView<'a> {
    pub(crate) value_type: ValueType,
    pub(crate) encoding: Encoding,
    /// Not later than any deadline of an element.
    pub(crate) earliest: Option<UnixMillis>,
    pub(crate) content: Content<'a>,
    pub(crate) pages: &'a dyn Pages,
}

/// An entry as seen by a view.
pub struct ViewEntry<'a> {
    pub db: DbId,
    pub key: &'a [u8],
    pub value: Value<'a>,
    pub deadline: Option<UnixMillis>,
}

/// Leaves that are read at once (1 MB).
const LEAVES_AHEAD: usize = 256;

/// A tree that is walked.
#[derive(Clone, Copy)]
struct Tree {
    db: DbId,
    tag: u32,
}

/// A blob in a page source.
struct SourceRun<'a, S> {
    pages: &'a Ahead<'a, S>,
    pid: PageId,
    /// The page that was read last, and its index.
    page: RefCell<(Option<u32>, Box<Page>)>,
    failed: RefCell<Option<SaveError>>,
}

impl<S: PageSource> PageRun for SourceRun<'_, S> {
    fn with_page(&self, index: u32, f: &mut dyn FnMut(&Page)) -> bool {
        let mut page = self.page.borrow_mut();
        if page.0 != Some(index) {
            page.0 = None;
            if let Err(error) = self.pages.read_page(PageId(self.pid.0.saturating_add(index)), &mut page.1) {
                self.failed.borrow_mut().get_or_insert(error);
                return false;
            }
            page.0 = Some(index);
        }
        f(&page.1);
        true
    }
}

fn blob_offset(blob: &Blob) -> u64 {
    match blob.place {
        BlobPlace::Slab { class, slot } => Class(class).slot_offset(slot) as u64,
        BlobPlace::Object { .. } => 0,
    }
}

/// The pages of long keys and values of a leaf, in the order of its records.
fn blobs_of(leaf: &Page, runs: &mut Vec<Run>) {
    let Some(leaf) = Leaf::new(leaf) else { return };
    for record in (0..leaf.count()).filter_map(|slot| leaf.record(slot)) {
        runs.extend(record.references().filter_map(|reference| match reference {
            Reference::Blob(blob) => Some(pages_of(&blob)),
            Reference::Tree(_) => None,
        }));
    }
}

/// The pages that a blob's bytes are in.
fn pages_of(blob: &Blob) -> Run {
    let (start, page_bytes) = (blob_offset(blob), PAGE_SIZE as u64);
    let first_index = start / page_bytes;
    let end_index = (start + u64::from(blob.len_bytes)).div_ceil(page_bytes);
    Run {
        first: PageId(blob.pid.0.saturating_add(first_index as u32)),
        page_count: (end_index - first_index) as u32,
    }
}

fn damaged(pid: PageId, what: &str) -> SaveError {
    SaveError::Damaged(format!("page {}: {what} was expected", pid.0).into())
}

/// What a walk left out because pages cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Keys that nobody can name: those of a leaf, or of all leaves below a node.
    Keys { db: DbId, reason: String },
    /// A key whose value cannot be read.
    Value { db: DbId, key: Vec<u8>, reason: String },
    /// Function libraries that nobody can name.
    Libraries { reason: String },
    /// A function library whose source cannot be read.
    Library { name: String, reason: String },
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lost::Keys { db, reason } => write!(f, "keys of database {}: {reason}", db.0),
            Lost::Value { db, key, reason } => {
                write!(f, "the value of {:?} in database {}: {reason}", String::from_utf8_lossy(key), db.0)
            }
            Lost::Libraries { reason } => write!(f, "function libraries: {reason}"),
            Lost::Library { name, reason } => write!(f, "the function library {name:?}: {reason}"),
        }
    }
}

/// Who is told of what is left out; without one the first thing that cannot be read ends the walk.
type OnLost<'l> = Option<&'l mut dyn FnMut(Lost)>;

/// What is done with each entry, and with what cannot be read.
struct Visitor<'l, F> {
    f: F,
    on_lost: OnLost<'l>,
}

impl<F> Visitor<'_, F> {
    /// Leaves something out, if that is asked for.
    fn lose<E: From<SaveError>>(
        &mut self,
        error: SaveError,
        lost: impl FnOnce(String) -> Lost,
    ) -> Result<(), E> {
        match &mut self.on_lost {
            Some(on_lost) => on_lost(lost(error.to_string())),
            None => return Err(error.into()),
        }
        Ok(())
    }
}

/// A catalog and the entries below it.
pub(crate) struct Walk<'a, S> {
    source: &'a S,
    catalog: Catalog,
    leaves: Ahead<'a, S>,
    /// Long keys and values of those leaves.
    blobs: Ahead<'a, S>,
    /// Trees of collections.
    elements: Ahead<'a, S>,
}

impl<'a, S: PageSource> Walk<'a, S> {
    pub fn new(source: &'a S, catalog_pid: PageId) -> Result<Walk<'a, S>, SaveError> {
        let mut pages = vec![[0; PAGE_SIZE]; CATALOG_PAGE_COUNT as usize];
        for (index, page) in (0..).zip(&mut pages) {
            source.read_page(PageId(catalog_pid.0.saturating_add(index)), page)?;
        }
        let catalog = Catalog::decode(1, |index| Ok(&pages[index])).map_err(|stop| match stop {
            Stop::Damaged(reason) => SaveError::Damaged(reason),
            other => SaveError::Damaged(format!("the catalog cannot be read: {other:?}").into()),
        })?;
        let [leaves, blobs, elements] = [(); 3].map(|()| Ahead::new(source));
        Ok(Walk { source, catalog, leaves, blobs, elements })
    }

    pub fn db_stats(&self, db: DbId) -> DbStats {
        self.catalog.databases.get(db.0 as usize).map_or(DbStats::default(), |database| DbStats {
            key_count: database.key_count,
            deadline_count: database.deadline_count,
        })
    }

    /// Databases that have had a key.
    pub fn database_count(&self) -> u32 {
        let used = self.catalog.databases.iter().rposition(|database| database.root != 0);
        used.map_or(0, |last| last as u32 + 1)
    }

    /// Gives `f` the entry of one key, by its hash; `None` if there is none.
    pub fn with_entry<R>(
        &self,
        db: DbId,
        key: &Key<'_>,
        f: impl FnOnce(Option<ViewEntry<'_>>) -> R,
    ) -> Result<R, SaveError> {
        let database = self.catalog.databases.get(db.0 as usize).filter(|database| database.root != 0);
        let Some(database) = database else { return Ok(f(None)) };
        let tree = Tree { db, tag: database.tag };
        let mut pid = self.leaf_of(tree, PageId(database.root), key.hash)?;
        let (mut page, mut f, mut result, mut links) = (blank(), Some(f), None, Links::default());
        loop {
            let leaf = self.leaf(tree, pid, &mut page)?;
            let is_key = |slot: usize| {
                leaf.record(slot).is_some_and(|record| match record.key {
                    RecordKey::Inline(inline) => inline == key.bytes,
                    RecordKey::Hash(_) => false,
                    RecordKey::Out { hash, blob } => {
                        let run = self.run(&blob);
                        hash == key.hash && as_value(&run, &blob, true).to_vec() == key.bytes
                    }
                })
            };
            if let Some(record) = leaf.find_candidate(key.hash, is_key).and_then(|slot| leaf.record(slot)) {
                let give = |entry: ViewEntry<'_>| {
                    result = f.take().map(|f| f(Some(entry)));
                    Ok::<(), SaveError>(())
                };
                self.entry(db, &record, &mut Visitor { f: give, on_lost: None })?;
                break;
            }
            match links.after(pid, leaf) {
                Ok(Some(next)) => pid = next,
                Ok(None) => break,
                Err(_) => return Err(damaged(pid, "a leaf")),
            }
        }
        match (result, f) {
            (Some(result), _) => Ok(result),
            (None, Some(f)) => Ok(f(None)),
            (None, None) => Err(damaged(pid, "an entry")),
        }
    }

    /// The leaf that is responsible for a hash.
    fn leaf_of(&self, tree: Tree, root: PageId, hash: u64) -> Result<PageId, SaveError> {
        let (mut pid, mut page, mut level_max) = (root, blank(), LEVEL_MAX);
        loop {
            self.source.read_page(pid, &mut page)?;
            let level = page.level();
            if !page.is_inner(tree.tag) || level == 0 || level > level_max {
                return Err(damaged(pid, "an inner node"));
            }
            pid = PageId(page.child(page.find_child(hash)));
            if level == 1 {
                return Ok(pid);
            }
            level_max = level - 1;
        }
    }

    /// Gives `f` names and sources of the function libraries, by ascending names. `on_lost` is told what cannot be read; without one
    /// that is an error.
    pub fn for_each_library<E: From<SaveError>>(
        &self,
        mut f: impl FnMut(&str, &[u8]) -> Result<(), E>,
        on_lost: OnLost<'_>,
    ) -> Result<(), E> {
        let mut visitor = Visitor { f: (), on_lost };
        let unnamed = |reason| Lost::Libraries { reason };
        let tree = match self.library_tree() {
            Ok(Some(tree)) => tree,
            Ok(None) => return Ok(()),
            Err(error) => return visitor.lose(error, unnamed),
        };
        let (mut walk, mut page) = (LeafWalk::new(tree), blank());
        loop {
            let leaf = walk.next_leaf(&self.elements, &mut page).and_then(|pid| {
                let Some(pid) = pid else { return Ok(None) };
                let leaf = OrderedLeaf::new(&page).filter(|leaf| leaf.tag() == tree.tag);
                leaf.map(Some).ok_or_else(|| damaged(pid, "a leaf"))
            });
            let leaf = match leaf {
                Ok(Some(leaf)) => leaf,
                Ok(None) => return Ok(()),
                Err(error) => {
                    visitor.lose::<E>(error, unnamed)?;
                    continue;
                }
            };
            for slot in 0..leaf.count() {
                let wrong = || SaveError::Damaged("the record of a function library is malformed".into());
                let record = String::from_utf8(leaf.key(slot)).ok().zip(leaf.record(slot));
                let Some((name, (_, value))) = record else {
                    visitor.lose::<E>(wrong(), unnamed)?;
                    continue;
                };
                match self.library_source(value) {
                    Ok(source) => f(&name, &source)?,
                    Err(error) => visitor.lose::<E>(error, |reason| Lost::Library { name, reason })?,
                }
            }
        }
    }

    fn library_source(&self, value: Stored<'_>) -> Result<Vec<u8>, SaveError> {
        if !value.is_outside {
            return Ok(value.bytes.to_vec());
        }
        let wrong = || SaveError::Damaged("the reference to a function library is malformed".into());
        let blob = value.blob().ok_or_else(wrong)?;
        let run = self.run(&blob);
        let source = as_value(&run, &blob, true).to_vec();
        run.check().map(|()| source)
    }

    /// The tree that they are in; `None` if there are none.
    fn library_tree(&self) -> Result<Option<page_tree::Tree>, SaveError> {
        let Some(place) = self.catalog.names.filter(|_| self.catalog.has_libraries) else { return Ok(None) };
        let (mut bytes, mut page) = (Vec::new(), blank());
        for pid in place.pages() {
            self.source.read_page(pid, &mut page)?;
            bytes.extend_from_slice(&page[..]);
        }
        let names = named::decode(&bytes).unwrap_or_default();
        let entry = names.first().filter(|first| first.name == named::LIBRARIES_NAME);
        let wrong = || damaged(place.pid, "the list of named trees, with function libraries,");
        let NameEntry { root, tag, .. } = *entry.ok_or_else(wrong)?;
        Ok(Some(page_tree::Tree { db: NO_DATABASE, root, tag }))
    }

    /// Calls `f` with each entry, database by database.
    pub fn for_each<E: From<SaveError>>(
        &self,
        f: impl FnMut(ViewEntry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.visit_all(&mut Visitor { f, on_lost: None })
    }

    /// The same, past what cannot be read: `on_lost` is told of it.
    pub fn for_each_readable<E: From<SaveError>>(
        &self,
        f: impl FnMut(ViewEntry<'_>) -> Result<(), E>,
        on_lost: &mut dyn FnMut(Lost),
    ) -> Result<(), E> {
        self.visit_all(&mut Visitor { f, on_lost: Some(on_lost) })
    }

    fn visit_all<E: From<SaveError>, F: FnMut(ViewEntry<'_>) -> Result<(), E>>(
        &self,
        visitor: &mut Visitor<'_, F>,
    ) -> Result<(), E> {
        for (number, database) in (0..).zip(&self.catalog.databases) {
            if database.root != 0 {
                let tree = Tree { db: DbId(number), tag: database.tag };
                self.node(tree, PageId(database.root), LEVEL_MAX, visitor)?;
            }
        }
        Ok(())
    }

    fn node<E: From<SaveError>, F: FnMut(ViewEntry<'_>) -> Result<(), E>>(
        &self,
        tree: Tree,
        pid: PageId,
        level_max: u8,
        visitor: &mut Visitor<'_, F>,
    ) -> Result<(), E> {
        let mut page = Box::new([0; PAGE_SIZE]);
        let read = self.source.read_page(pid, &mut page).and_then(|()| {
            let level = page.level();
            let is_node = page.is_inner(tree.tag) && level > 0 && level <= level_max;
            if is_node {
                Ok(level)
            } else {
                Err(damaged(pid, "an inner node"))
            }
        });
        let level = match read {
            Ok(level) => level,
            Err(error) => return visitor.lose(error, |reason| Lost::Keys { db: tree.db, reason }),
        };
        let children: Vec<PageId> = (0..page.child_count()).map(|index| PageId(page.child(index))).collect();
        if level == 1 {
            return children.chunks(LEAVES_AHEAD).try_for_each(|leaves| self.group(tree, leaves, visitor));
        }
        children.into_iter().try_for_each(|child| self.node(tree, child, level - 1, visitor))
    }

    /// Some leaves of a node, and what they lead to.
    fn group<E: From<SaveError>, F: FnMut(ViewEntry<'_>) -> Result<(), E>>(
        &self,
        tree: Tree,
        leaves: &[PageId],
        visitor: &mut Visitor<'_, F>,
    ) -> Result<(), E> {
        self.leaves.expect(leaves.iter().map(|leaf| Run { first: *leaf, page_count: 1 }));
        let mut page = [0; PAGE_SIZE];
        let mut blobs = Vec::new();
        for leaf in leaves {
            // What cannot be read is told when its turn comes.
            if self.leaf(tree, *leaf, &mut page).is_ok() {
                blobs_of(&page, &mut blobs);
            }
        }
        self.blobs.expect(blobs.into_iter());
        leaves.iter().try_for_each(|leaf| self.leaves(tree, *leaf, visitor))
    }

    /// Copies a leaf of a tree.
    fn leaf<'p>(&self, tree: Tree, pid: PageId, page: &'p mut Page) -> Result<Leaf<'p>, SaveError> {
        self.leaves.read_page(pid, page)?;
        Leaf::new(page).filter(|leaf| leaf.tag() == tree.tag).ok_or_else(|| damaged(pid, "a leaf"))
    }

    fn leaves<E: From<SaveError>, F: FnMut(ViewEntry<'_>) -> Result<(), E>>(
        &self,
        tree: Tree,
        mut pid: PageId,
        visitor: &mut Visitor<'_, F>,
    ) -> Result<(), E> {
        let mut page = [0; PAGE_SIZE];
        let mut links = Links::default();
        loop {
            let leaf = match self.leaf(tree, pid, &mut page) {
                Ok(leaf) => leaf,
                Err(error) => return visitor.lose(error, |reason| Lost::Keys { db: tree.db, reason }),
            };
            for slot in 0..leaf.count() {
                let record = leaf.record(slot).filter(|record| !matches!(record.key, RecordKey::Hash(_)));
                match record {
                    Some(record) => self.entry(tree.db, &record, visitor)?,
                    None => {
                        visitor.lose(damaged(pid, "a record"), |reason| Lost::Keys { db: tree.db, reason })?
                    }
                }
            }
            match links.after(pid, leaf) {
                Ok(Some(next)) => pid = next,
                // A circle ends where it is found.
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }

    fn entry<E: From<SaveError>, F: FnMut(ViewEntry<'_>) -> Result<(), E>>(
        &self,
        db: DbId,
        record: &Record<'_>,
        visitor: &mut Visitor<'_, F>,
    ) -> Result<(), E> {
        let long_key;
        let key = match record.key {
            RecordKey::Inline(key) => key,
            RecordKey::Hash(_) => return Ok(()),
            RecordKey::Out { blob, .. } => {
                let run = self.run(&blob);
                long_key = as_value(&run, &blob, true).to_vec();
                if let Err(error) = run.check() {
                    return visitor.lose(error, |reason| Lost::Keys { db, reason });
                }
                &long_key
            }
        };
        let deadline = record.deadline;
        let inline =
            |repr| ViewEntry { db, key, value: Value::String(StrRef { repr, raw: record.raw }), deadline };
        match record.value {
            RecordValue::Int(value) => (visitor.f)(inline(Repr::Int(value))),
            RecordValue::Bytes(bytes) => (visitor.f)(inline(Repr::Bytes(bytes))),
            RecordValue::Other { value_type, .. } => match self.collection(record, value_type) {
                Ok(collection) => {
                    let lost =
                        visitor.on_lost.as_ref().and_then(|_| collection.for_each(&mut |_| Ok(())).err());
                    if let Some(error) = lost {
                        return visitor.lose(error, |reason| Lost::Value { db, key: key.to_vec(), reason });
                    }
                    (visitor.f)(ViewEntry { db, key, value: Value::Collection(collection), deadline })
                }
                Err(error) => visitor.lose(error, |reason| Lost::Value { db, key: key.to_vec(), reason }),
            },
            RecordValue::Blob(blob) => {
                let run = self.run(&blob);
                let value = as_value(&run, &blob, record.raw);
                if visitor.on_lost.is_some() {
                    // Whoever takes the value announces its length: it must be there to its end.
                    value.chunks(0, u64::MAX, |_| {});
                    if let Err(error) = run.check() {
                        return visitor.lose(error, |reason| Lost::Value { db, key: key.to_vec(), reason });
                    }
                }
                let result = (visitor.f)(ViewEntry { db, key, value: Value::String(value), deadline });
                run.check()?;
                result
            }
        }
    }

    fn collection<'r>(
        &'r self,
        record: &Record<'r>,
        value_type: ValueType,
    ) -> Result<CollectionView<'r>, SaveError> {
        let Some(collection) = record.collection() else {
            return Err(SaveError::Damaged("the body of a collection is malformed".into()));
        };
        let pages: &dyn Pages = match collection.content {
            Content::Trees(_) => &self.elements,
            Content::Packed(_) | Content::Outside(_) => &self.blobs,
        };
        let (encoding, earliest, content) = (collection.encoding, collection.earliest, collection.content);
        Ok(CollectionView { value_type, encoding, earliest, content, pages })
    }

    fn run(&self, blob: &Blob) -> SourceRun<'_, S> {
        SourceRun {
            pages: &self.blobs,
            pid: blob.pid,
            page: RefCell::new((None, Box::new([0; PAGE_SIZE]))),
            failed: RefCell::new(None),
        }
    }
}

impl<S> SourceRun<'_, S> {
    fn check(&self) -> Result<(), SaveError> {
        match self.failed.borrow_mut().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

fn as_value<'r, S: PageSource>(run: &'r SourceRun<'_, S>, blob: &Blob, raw: bool) -> StrRef<'r> {
    let repr = Repr::Pages { run, offset: blob_offset(blob), len_bytes: u64::from(blob.len_bytes) };
    StrRef { repr, raw }
}
